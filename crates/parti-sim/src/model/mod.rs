//! The passive models: what a store, a stream and an embedded log hold, and how they behave.
//!
//! They are deterministic and have no clock and no randomness of their own: time comes in as
//! microseconds of the simulated world, randomness as a generator. The world adds delay, loss and
//! outages on the way to and from them.

pub mod letters;
pub mod log;
pub mod store;
pub mod stream;

use parti_core::ids::{Offset, PartitionId};
use parti_core::io::{Ask, SourceEvent, SourceKind, SourceRequest};

use letters::DeadLetter;
use log::Log;
use stream::Stream;

/// One connection of one process: pulls belong to it and die with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A message that was once published, for the audit at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The identity of the source at that time.
    pub source: u64,
    /// Where it was published.
    pub partition: PartitionId,
    /// Its place.
    pub offset: Offset,
    /// Hash of its key.
    pub key: u64,
    /// When it was published.
    pub at: u64,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is still there.
    Kept,
    /// It was acked and therefore removed (work queue).
    Acked,
    /// Retention removed it.
    Trimmed,
    /// A work queue's server removed it unacked, taking it for acked (as measured): a consumer had
    /// added its subject without rewinding first. If nobody handled it, that is a loss, and the
    /// worker's fault.
    Destroyed,
    /// The log was rolled back or recreated, and it was gone.
    Vanished,
}

/// Whatever feeds the workers: the world handles both kinds as one.
#[derive(Clone, Debug)]
pub enum Source {
    /// Behaves as JetStream was measured to.
    Stream(Stream),
    /// Behaves as the embedded log.
    Log(Log),
}

impl Source {
    /// Which kind it is, as a worker is told.
    pub fn kind(&self) -> SourceKind {
        match self {
            Source::Stream(stream) => SourceKind::Stream(stream.config().retention),
            Source::Log(_) => SourceKind::Log,
        }
    }

    /// Which one it is: another one after it was recreated.
    pub fn identity(&self) -> u64 {
        match self {
            Source::Stream(stream) => stream.identity(),
            Source::Log(log) => log.identity(),
        }
    }

    /// Appends a message. The world decides whether and when a log's readers learn of it.
    pub fn publish(&mut self, now: u64, partition: &PartitionId, key: u64, size: u32) -> Offset {
        match self {
            Source::Stream(stream) => stream.publish(now, partition, key, size),
            Source::Log(log) => log.publish(now, partition, key, size),
        }
    }

    /// Carries out a request; answers at once where there is an answer.
    pub fn request(
        &mut self,
        now: u64,
        durable: &str,
        client: ClientId,
        request: SourceRequest,
    ) -> Option<SourceEvent> {
        match self {
            Source::Stream(stream) => stream.request(now, durable, client, request),
            Source::Log(log) => log.request(request),
        }
    }

    /// What open pulls get now. Ask after every publish and request, and at `next_deadline`.
    pub fn deliveries(&mut self, now: u64) -> Vec<(ClientId, SourceEvent)> {
        match self {
            Source::Stream(stream) => stream.deliveries(now),
            Source::Log(_) => Vec::new(),
        }
    }

    /// When `deliveries` may have something although nothing else happened until then.
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        match self {
            Source::Stream(stream) => stream.next_deadline(now),
            Source::Log(_) => None,
        }
    }

    /// The client's connection is gone, and its pulls with it; answers which those were.
    pub fn disconnect(&mut self, client: ClientId) -> Vec<Ask> {
        match self {
            Source::Stream(stream) => stream.disconnect(client),
            Source::Log(_) => Vec::new(),
        }
    }

    /// One past the newest message of the partition; the lowest possible offset if it has none.
    pub fn end(&self, partition: &PartitionId) -> Offset {
        match self {
            Source::Stream(stream) => stream.end(partition),
            Source::Log(log) => log.end(partition),
        }
    }

    /// Every message ever published, also by former lives of the source.
    pub fn published(&self) -> Vec<Published> {
        match self {
            Source::Stream(stream) => stream.published(),
            Source::Log(log) => log.published(),
        }
    }

    /// The dead letters, in the order of their first publication.
    pub fn dead_letters(&self) -> &[DeadLetter] {
        match self {
            Source::Stream(stream) => stream.dead_letters(),
            Source::Log(log) => log.dead_letters(),
        }
    }

    /// The stream, if it is one: for the faults that only a stream has.
    pub fn as_stream(&mut self) -> Option<&mut Stream> {
        match self {
            Source::Stream(stream) => Some(stream),
            Source::Log(_) => None,
        }
    }

    /// The embedded log, if it is one: for the faults that only a log has.
    pub fn as_log(&mut self) -> Option<&mut Log> {
        match self {
            Source::Stream(_) => None,
            Source::Log(log) => Some(log),
        }
    }

    /// Vanishes: another, empty source with another identity answers under the same name.
    pub fn recreate(&mut self) {
        match self {
            Source::Stream(stream) => stream.recreate(),
            Source::Log(log) => log.recreate(),
        }
    }
}

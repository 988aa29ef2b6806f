//! Lanes with their feeds, through the facade: what goes in, and the whole list of what comes out.

mod catching_up;
mod external;
mod handling;
mod log;
mod refusals;
mod retention;
mod splice;
mod suspicion;
mod work_queue;
mod work_queue_anew;

use std::time::Duration;

use super::*;
use crate::config::{Ordering, StartPosition};
use crate::io::{Body, Bounds, ConsumerState, HandlerResult, Message, ReadBatch, SourceError};
use crate::record::Begun;

const A: &str = "a";
const B: &str = "b";
const NONE: [u64; 0] = [];

fn p(name: &str) -> PartitionId {
    PartitionId::new(name)
}

fn msg(offset: u64) -> Message {
    keyed(offset, 0)
}

fn keyed(offset: u64, key: u64) -> Message {
    Message {
        offset: Offset(offset),
        key,
        size: 10,
        body: Body::EMPTY,
    }
}

fn opening(epoch: u64, next: u64) -> Opening {
    Opening {
        epoch: Epoch(epoch),
        next: Offset(next),
        done_above: Vec::new(),
        begun: None,
        suspicious: false,
        seized_from: None,
    }
}

fn error() -> SourceError {
    SourceError::Unavailable("down".into())
}

/// Lanes with a clock, and a memory of which request was which.
struct Bench {
    lanes: Lanes,
    now: Time,
    /// Everything that came out and was not asserted yet.
    seen: Vec<LaneAction>,
    next_sequence: u64,
}

impl Bench {
    fn with(kind: SourceKind, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.jetstream.min_update_interval = Duration::from_millis(100);
        change(&mut config);
        let mut lanes = Lanes::new(&config, kind, Rng::new(1));
        let now = Time(1_000_000);
        lanes.lease(now, Time::NEVER);
        Self {
            lanes,
            now,
            seen: Vec::new(),
            next_sequence: 1,
        }
    }

    fn log() -> Self {
        Self::with(SourceKind::Log, |_| {})
    }

    fn limits() -> Self {
        Self::with(SourceKind::Stream(Retention::Limits), |_| {})
    }

    fn work_queue() -> Self {
        Self::with(SourceKind::Stream(Retention::WorkQueue), |_| {})
    }

    /// Fetches what came out.
    fn run(&mut self) -> Vec<LaneAction> {
        let mut all = std::mem::take(&mut self.seen);
        all.extend(self.lanes.take_actions());
        all
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.lanes.tick(self.now);
    }

    /// Passes time up to the next deadline.
    fn pass_to_deadline(&mut self) {
        self.seen.extend(self.lanes.take_actions());
        let deadline = self.lanes.next_deadline();
        assert!(
            deadline > self.now && deadline < Time::NEVER,
            "no deadline: {deadline:?}"
        );
        self.now = deadline;
        self.lanes.tick(self.now);
    }

    fn open(&mut self, name: &str, opening: Opening) {
        self.lanes.open(self.now, &p(name), opening);
    }

    fn done(&mut self, name: &str, epoch: u64, offset: u64) {
        self.ended(name, epoch, offset, HandlerResult::Done);
    }

    fn ended(&mut self, name: &str, epoch: u64, offset: u64, result: HandlerResult) {
        self.ran(name, epoch, Ran::one(Offset(offset), result));
    }

    /// The call of a run's first message has to wait.
    fn waits(&mut self, name: &str, epoch: u64, offset: u64) {
        let first = Offset(offset);
        let then = Then::GoesOn(first);
        self.ran(
            name,
            epoch,
            Ran {
                first,
                done: 0,
                then,
            },
        );
    }

    fn ran(&mut self, name: &str, epoch: u64, ran: Ran) {
        self.lanes.handled(self.now, &p(name), Epoch(epoch), ran);
    }

    fn source(&mut self, event: SourceEvent) {
        self.lanes.source(self.now, event);
    }

    fn consumer_answers(&mut self, ask: Ask, identity: u64, delivered: u64) {
        let state = ConsumerState {
            identity,
            delivered,
            as_wanted: true,
        };
        self.source(SourceEvent::Consumer {
            ask,
            result: Ok(state),
        });
    }

    fn head_answers(&mut self, ask: Ask, last: u64) {
        self.bounds_answer(ask, 1, last);
    }

    /// The stream ends there each time that it is asked, for so long that the next answer is
    /// believed although it is lower than it should be.
    fn head_stays(&mut self, mut ask: Ask, last: u64) -> Ask {
        let until = self.now + Duration::from_secs(10);
        while self.now < until {
            self.head_answers(ask, last);
            assert_eq!(notes(&self.run()), [], "it may be a stale one");
            ask = loop {
                self.pass_to_deadline();
                if let [request] = &requests(&self.run(), "Bounds")[..] {
                    break ask_of(request);
                }
            };
        }
        ask
    }

    fn bounds_answer(&mut self, ask: Ask, first: u64, last: u64) {
        self.source(SourceEvent::Bounds {
            ask,
            result: Ok(Bounds {
                first: Offset(first),
                last: Offset(last),
            }),
        });
    }

    fn read_answers(&mut self, ask: Ask, offsets: &[u64], next: u64) {
        let messages = offsets.iter().map(|o| msg(*o)).collect();
        let batch = ReadBatch {
            messages,
            next: Offset(next),
            first: Offset(0),
            end: Offset(next),
        };
        self.source(SourceEvent::Read {
            ask,
            result: Ok(batch),
        });
    }

    /// The durable (identity 1) delivers in order.
    fn deliver(&mut self, name: &str, offset: u64) -> u64 {
        self.deliver_of(name, offset, 0)
    }

    /// A delivery, with so many still to come.
    fn deliver_of(&mut self, name: &str, offset: u64, pending: u64) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let (partition, message) = (p(name), msg(offset));
        self.source(SourceEvent::Delivered {
            consumer: 1,
            sequence,
            partition,
            message,
            pending,
        });
        sequence
    }

    /// A delivery that never arrives.
    fn lose_one(&mut self) {
        self.next_sequence += 1;
    }

    fn progress(&self, name: &str) -> (Option<u64>, Vec<u64>) {
        let progress = self.lanes.progress(&p(name)).expect("open");
        (
            progress.offset.map(|o| o.0),
            progress.done_above.iter().map(|o| o.0).collect(),
        )
    }

    /// Gets a limits lane into the filter, with the stream's last offset at `last`.
    fn joined(&mut self, names: &[&str], last: u64) {
        for name in names {
            self.lanes.attach(self.now, &p(name));
        }
        let update = only_ask(&self.run(), "UpdateConsumer");
        self.consumer_answers(update, 1, 0);
        let head = only_ask(&self.run(), "Bounds");
        self.head_answers(head, last);
        self.run();
    }
}

/// The first offsets of the runs of this partition: what is handled now.
fn handled(actions: &[LaneAction], name: &str) -> Vec<u64> {
    let first = |run: Vec<u64>| run.first().copied();
    runs(actions, name).into_iter().filter_map(first).collect()
}

/// The runs of this partition, as offsets.
fn runs(actions: &[LaneAction], name: &str) -> Vec<Vec<u64>> {
    let run = |action: &LaneAction| match action {
        LaneAction::Handle(run) if run.partition.as_str() == name => {
            Some(run.messages.iter().map(|m| m.offset.0).collect())
        }
        _ => None,
    };
    actions.iter().filter_map(run).collect()
}

fn notes(actions: &[LaneAction]) -> Vec<LaneNote> {
    let note = |action: &LaneAction| match action {
        LaneAction::Note(note) => Some(note.clone()),
        _ => None,
    };
    actions.iter().filter_map(note).collect()
}

/// The source requests whose name starts so, pulls aside unless asked for.
fn requests(actions: &[LaneAction], named: &str) -> Vec<SourceRequest> {
    let request = |action: &LaneAction| match action {
        LaneAction::Source(request) if format!("{request:?}").starts_with(named) => {
            Some(request.clone())
        }
        _ => None,
    };
    actions.iter().filter_map(request).collect()
}

fn acks(actions: &[LaneAction]) -> Vec<u64> {
    let ack = |request: SourceRequest| match request {
        SourceRequest::Ack { deliveries } => deliveries,
        _ => Vec::new(),
    };
    requests(actions, "Ack").into_iter().flat_map(ack).collect()
}

fn ask_of(request: &SourceRequest) -> Ask {
    match request {
        SourceRequest::UpdateConsumer { ask, .. }
        | SourceRequest::DeleteConsumer { ask }
        | SourceRequest::ResetConsumer { ask }
        | SourceRequest::InspectConsumer { ask, .. }
        | SourceRequest::EvictConsumer { ask, .. }
        | SourceRequest::Bounds { ask }
        | SourceRequest::Read { ask, .. }
        | SourceRequest::Sweep { ask, .. }
        | SourceRequest::Resolve { ask, .. }
        | SourceRequest::Pull { ask, .. }
        | SourceRequest::StopPull { ask }
        | SourceRequest::DeadLetter { ask, .. }
        | SourceRequest::External { ask, .. } => *ask,
        SourceRequest::Ack { .. } | SourceRequest::Extend { .. } => {
            panic!("{request:?} has no ask")
        }
    }
}

/// The ask of the one request that is named so.
fn only_ask(actions: &[LaneAction], named: &str) -> Ask {
    let found = requests(actions, named);
    assert_eq!(found.len(), 1, "one {named} expected in {actions:#?}");
    ask_of(&found[0])
}

/// Partition, first and last offset of the one read.
fn only_read(actions: &[LaneAction]) -> (Ask, u64, Option<u64>) {
    let found = requests(actions, "Read");
    match found.as_slice() {
        [
            SourceRequest::Read {
                ask, from, upto, ..
            },
        ] => (*ask, from.0, upto.map(|o| o.0)),
        _ => panic!("one read expected in {actions:#?}"),
    }
}

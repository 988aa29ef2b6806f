//! Start positions on their way to an offset.

use crate::config::StartPosition;
use crate::feed::backoff::Backoff;
use crate::feed::refusals::Asked;
use crate::ids::{Offset, PartitionId};
use crate::io::{Ask, SourceError, SourceRequest};
use crate::lane::{LaneNote, Lanes};
use crate::time::Time;

/// A start position that is being resolved.
#[derive(Debug)]
pub(super) struct Resolve {
    start: StartPosition,
    ask: Option<Ask>,
    not_before: Time,
    backoff: Backoff,
}

impl Lanes {
    /// Turns a start position into an offset; tries until [`LaneNote::Resolved`] or a detach.
    pub fn resolve(&mut self, now: Time, partition: &PartitionId, start: StartPosition) {
        self.at(now);
        let backoff = Backoff::new(self.retry.0, self.retry.1);
        let resolve = Resolve {
            start,
            ask: None,
            not_before: now,
            backoff,
        };
        self.resolves.insert(partition.clone(), resolve);
    }

    pub(super) fn send_resolves(&mut self) {
        for (partition, resolve) in &mut self.resolves {
            if resolve.ask.is_none() && resolve.not_before <= self.now {
                let ask = self.out.ask();
                resolve.ask = Some(ask);
                let (partition, start) = (partition.clone(), resolve.start);
                self.out.source(SourceRequest::Resolve {
                    ask,
                    partition,
                    start,
                });
            }
        }
    }

    pub(super) fn resolved(&mut self, ask: Ask, result: Result<Offset, SourceError>) {
        let asked = self.resolves.iter_mut().find(|(_, r)| r.ask == Some(ask));
        let Some((partition, resolve)) = asked else {
            return;
        };
        let partition = partition.clone();
        let asked = Asked::Start(partition.clone());
        self.out.answered(self.now, asked, result.as_ref().err());
        match result {
            Ok(next) => {
                self.resolves.remove(&partition);
                self.out.note(LaneNote::Resolved { partition, next });
            }
            Err(_) => {
                resolve.ask = None;
                resolve.not_before = self.now + resolve.backoff.next(&mut self.rng);
            }
        }
    }

    /// When to ask again.
    pub(super) fn resolve_deadline(&self) -> Time {
        let idle = self.resolves.values().filter(|r| r.ask.is_none());
        idle.map(|r| r.not_before).min().unwrap_or(Time::NEVER)
    }
}

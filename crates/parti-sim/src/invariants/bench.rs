//! A workbench for the tests of invariants: hand-made observations for one invariant at a time.

use std::sync::Arc;
use std::time::Duration;

use parti_core::config::{Coordination, Ordering, StrategyChoice};
use parti_core::ids::{
    Badge, Epoch, Incarnation, Nonce, Offset, PartitionId, Revision, Term, Version, WorkerId,
};
use parti_core::io::{Body, HandlerResult, Job, Message, SourceKind, Stored};
use parti_core::key::Key;
use parti_core::partition::Partition;
use parti_core::record::{
    Outcome, OverridesRecord, PartitionRecord, Ready, Record, Request, RequestRecord,
    SessionStatus, WorkerRecord,
};
use parti_core::time::Time;
use parti_core::worker::{Action, Report};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};
use crate::setup::{Class, Micros, Setup};

/// One invariant, and a world made by hand. Every clock shows the world's time.
pub(crate) struct Bench<I> {
    pub invariant: I,
    pub facts: Facts,
    pub now: Micros,
    revision: u64,
}

/// A life of an id.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub id: WorkerId,
    pub incarnation: Incarnation,
}

/// An owner, as records name it.
pub(crate) fn owner(id: &str, incarnation: u64) -> Option<(WorkerId, Incarnation)> {
    Some((WorkerId::new(id), Incarnation(incarnation)))
}

/// A small group with a leader over an embedded log, with a lease of six seconds.
pub(crate) fn plain_setup() -> Setup {
    let mut setup = Setup::of(0);
    setup.class = Class::Mixed;
    setup.source = SourceKind::Log;
    setup.config = parti_core::config::Config {
        coordination: Coordination::Leader,
        strategy: StrategyChoice::FairShare,
        heartbeat_interval: Duration::from_secs(2),
        heartbeat_ttl: Duration::from_secs(6),
        ..Default::default()
    };
    setup.config.processing.ordering = Ordering::Partition;
    let partition = |name: &str| Partition {
        keys: vec![name.to_owned()],
        weight: 1,
        id: PartitionId::new(name),
    };
    setup.partitions = ["p00", "p01", "p02", "p03"]
        .map(partition)
        .into_iter()
        .collect();
    setup
}

impl<I: Invariant> Bench<I> {
    pub fn new(invariant: I) -> Self {
        Self::with(invariant, plain_setup())
    }

    pub fn with(invariant: I, setup: Setup) -> Self {
        Self {
            invariant,
            facts: Facts::new(Arc::new(setup)),
            now: 1_000_000,
            revision: 0,
        }
    }

    pub fn see(&mut self, seen: Seen<'_>) -> Verdict {
        self.facts.now = self.now;
        self.facts.take_in(&seen);
        self.invariant.see(&self.facts, &seen)
    }

    /// Starts so many processes, each on a machine of its own.
    pub fn start(&mut self, count: usize) {
        for machine in 0..count {
            self.see(Seen::Started { machine })
                .expect("a start breaks nothing");
        }
    }

    pub fn pass(&mut self, by: Micros) {
        self.now += by;
    }

    pub fn write(&mut self, proc: Proc, key: Key, record: Option<Record>) -> Verdict {
        self.revision += 1;
        let old: Option<Stored> = self.facts.records.get(&key).cloned();
        self.see(Seen::Wrote {
            proc,
            sent_at: self.now,
            sent_local: Time(self.now),
            revision: Revision(self.revision),
            key: &key,
            old: old.as_ref(),
            new: record.as_ref(),
        })
    }

    /// An operator asks for something.
    pub fn ask(&mut self, id: &str, request: Request) {
        self.revision += 1;
        let record = Arc::new(RequestRecord {
            request,
            by: "somebody".into(),
            why: String::new(),
            at: 0,
            outcome: Outcome::Open,
            nonce: Nonce(self.revision),
        });
        let asked = self.see(Seen::Asked {
            key: &Key::Request(id.into()),
            revision: Revision(self.revision),
            record: &record,
        });
        asked.expect("a wish breaks nothing");
    }

    /// A request gets its outcome.
    pub fn answer(&mut self, proc: Proc, id: &str, outcome: Outcome) -> Verdict {
        let key = Key::Request(id.into());
        let record = match &self.facts.records[&key].record {
            Record::Request(record) => RequestRecord {
                outcome,
                ..(**record).clone()
            },
            other => panic!("a request, not {other:?}"),
        };
        self.write(proc, key, Some(Record::Request(Arc::new(record))))
    }

    /// An operator of a group without a leader changes the overrides.
    pub fn decide(&mut self, change: impl FnOnce(&mut OverridesRecord)) -> Revision {
        self.revision += 1;
        let mut record = self.facts.overrides().cloned().unwrap_or_default();
        change(&mut record);
        let revision = Revision(self.revision);
        let decided = self.see(Seen::Decided {
            revision,
            record: &Arc::new(record),
        });
        decided.expect("a wish breaks nothing");
        revision
    }

    /// The overrides change.
    pub fn overrides(&mut self, proc: Proc, change: impl FnOnce(&mut OverridesRecord)) {
        let mut record = self.facts.overrides().cloned().unwrap_or_default();
        change(&mut record);
        let record = Record::Overrides(Arc::new(record));
        self.write(proc, Key::Overrides, Some(record))
            .expect("overrides break nothing by themselves");
    }

    pub fn delete(&mut self, proc: Proc, key: Key) -> Verdict {
        self.write(proc, key, None)
    }

    /// Writes a partition's record as it is, with a change.
    pub fn partition(
        &mut self,
        proc: Proc,
        id: &str,
        edit: impl FnOnce(&mut PartitionRecord),
    ) -> Verdict {
        let id = PartitionId::new(id);
        let mut record = self
            .facts
            .partition_record(&id)
            .cloned()
            .unwrap_or_default();
        edit(&mut record);
        self.write(
            proc,
            Key::Partition(id),
            Some(Record::Partition(Arc::new(record))),
        )
    }

    pub fn take(&mut self, proc: Proc, id: &str, session: &Session, epoch: u64) -> Verdict {
        let owner = Some((session.id.clone(), session.incarnation));
        self.partition(proc, id, |record| {
            record.epoch = Epoch(epoch);
            record.owner = owner;
        })
    }

    /// Claims an id; must be fine.
    pub fn claim(&mut self, proc: Proc, id: &str) -> Session {
        let id = WorkerId::new(id);
        let incarnation = Incarnation(self.revision + 1);
        self.try_claim(proc, id.as_str())
            .expect("the claim is fine");
        Session { id, incarnation }
    }

    pub fn try_claim(&mut self, proc: Proc, id: &str) -> Verdict {
        self.claim_under(proc, id, None)
    }

    /// Claims an id for a consumer that shows this badge.
    pub fn claim_under(&mut self, proc: Proc, id: &str, badge: Option<Badge>) -> Verdict {
        let record = WorkerRecord {
            incarnation: None,
            beat: 0,
            status: SessionStatus::Live,
            state: 1,
            term: Term(0),
            released: Version(0),
            applied: Version(0),
            ready: Ready::default(),
            blocked_by: Vec::new(),
            load: 0,
            degraded: None,
            partitions: 0,
            heeds: Revision(0),
            renewed_at: 0,
            badge,
            nonce: Nonce(0),
        };
        self.write(
            proc,
            Key::Worker(WorkerId::new(id)),
            Some(Record::Worker(Arc::new(record))),
        )
    }

    /// Writes a session record as it is, with a change.
    pub fn session(
        &mut self,
        proc: Proc,
        session: &Session,
        edit: impl FnOnce(&mut WorkerRecord),
    ) -> Verdict {
        let (record, incarnation) = self
            .facts
            .session_record(&session.id)
            .expect("claimed before");
        let mut record = record.clone();
        record.incarnation = Some(incarnation);
        record.beat += 1;
        edit(&mut record);
        let key = Key::Worker(session.id.clone());
        self.write(proc, key, Some(Record::Worker(Arc::new(record))))
    }

    pub fn publish(&mut self, id: &str, offsets: &[u64]) {
        let partition = self.index(id);
        for offset in offsets {
            let offset = Offset(*offset);
            let seen = Seen::Published {
                partition,
                offset,
                key: offset.0 % 2,
                killer: false,
            };
            self.see(seen).expect("a message breaks nothing");
        }
    }

    pub fn job(&self, id: &str, offset: u64) -> Job {
        let partition = PartitionId::new(id);
        let epoch = self
            .facts
            .partition_record(&partition)
            .map_or(Epoch(0), |record| record.epoch);
        let message = Message {
            offset: Offset(offset),
            key: offset % 2,
            size: 1,
            body: Body::EMPTY,
        };
        Job {
            partition,
            epoch,
            message,
            attempt: 1,
        }
    }

    pub fn act(&mut self, proc: Proc, action: Action) -> Verdict {
        self.see(Seen::Acted {
            proc,
            local: Time(self.now),
            action: &action,
        })
    }

    pub fn report(&mut self, proc: Proc, report: Report) -> Verdict {
        self.act(proc, Action::Report(report))
    }

    pub fn handle(&mut self, proc: Proc, id: &str, offset: u64) -> Verdict {
        let job = self.job(id, offset);
        self.see(Seen::CallBegan {
            proc,
            local: Time(self.now),
            job: &job,
        })
    }

    pub fn end_call(&mut self, proc: Proc, id: &str, offset: u64, reported: bool) -> Verdict {
        let job = self.job(id, offset);
        self.see(Seen::CallEnded {
            proc,
            job: &job,
            result: &HandlerResult::Done,
            reported,
        })
    }

    pub fn done(&mut self, proc: Proc, id: &str, offset: u64) {
        self.end_call(proc, id, offset, true)
            .expect("an end of a call breaks nothing");
    }

    pub fn dead_letter(&mut self, id: &str, offset: u64) {
        let partition = self.index(id);
        let seen = Seen::DeadLettered {
            partition,
            offset: Offset(offset),
        };
        self.see(seen).expect("a dead letter breaks nothing");
    }

    pub fn crash(&mut self, proc: Proc) {
        self.see(Seen::Crashed { proc })
            .expect("a crash breaks nothing");
    }

    pub fn settled(&self) -> Verdict {
        self.invariant.settled(&self.facts)
    }

    fn index(&self, id: &str) -> usize {
        self.facts
            .setup
            .index_of(&PartitionId::new(id))
            .expect("a partition of the bench")
    }
}

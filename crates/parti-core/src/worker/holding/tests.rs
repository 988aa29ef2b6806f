//! Holdings against a hand-driven store: every fate a take, a commit or a release can have.

use std::sync::Arc;

use super::*;
use crate::ids::{Nonce, Revision, Term, Version};
use crate::io::{
    Body, CommitRefused, Expect, HandlerResult, Message, Ran, ReadBatch, RequestId, Run,
    SourceEvent,
};
use crate::io::{SourceKind, SourceRequest, Stored};
use crate::lane::{LaneAction, LaneNote};
use crate::record::{PartitionRecord, Ready, SessionStatus};
use crate::rng::Rng;
use crate::worker::Action;

const LIFE: Incarnation = Incarnation(7);

struct Bench {
    holdings: Holdings,
    lanes: Lanes,
    out: Outbox,
    now: Time,
    runs: Vec<Run>,
    reports: Vec<Report>,
    /// To those who wait for the store.
    answers: Vec<(Ask, Result<(), CommitRefused>)>,
    /// How long the last request may take.
    patience: Duration,
}

fn me() -> WorkerId {
    WorkerId::new("worker-0")
}

fn p() -> PartitionId {
    PartitionId::new("p")
}

fn owned_by(worker: &str, life: u64, epoch: u64, offset: Option<u64>) -> PartitionRecord {
    PartitionRecord {
        epoch: Epoch(epoch),
        owner: Some((WorkerId::new(worker), Incarnation(life))),
        offset: offset.map(Offset),
        ..PartitionRecord::default()
    }
}

fn stored(revision: u64, record: PartitionRecord) -> Stored {
    Stored {
        key: Key::Partition(p()),
        revision: Revision(revision),
        record: Record::Partition(Arc::new(record)),
    }
}

fn session(status: SessionStatus, life: u64) -> WorkerRecord {
    WorkerRecord {
        incarnation: Some(Incarnation(life)),
        beat: 1,
        status,
        state: 4,
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
        badge: None,
        nonce: Nonce(0),
    }
}

impl Bench {
    fn new() -> Self {
        let config = Config::default();
        let mut bench = Self {
            holdings: Holdings::new(&config, SourceKind::Log),
            lanes: Lanes::new(&config, SourceKind::Log, Rng::new(1)),
            out: Outbox::new(Rng::new(2)),
            now: Time::ZERO,
            runs: Vec::new(),
            reports: Vec::new(),
            answers: Vec::new(),
            patience: Duration::ZERO,
        };
        bench.lanes.lease(Time::ZERO, Time::NEVER);
        bench
    }

    fn serve(&mut self) {
        let (lanes, out) = (&mut self.lanes, &mut self.out);
        self.holdings.want([p()], [], &[], lanes, out);
    }

    fn drop_it(&mut self) {
        let (lanes, out) = (&mut self.lanes, &mut self.out);
        self.holdings.want([], [], &[], lanes, out);
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.out.set_now(self.now);
    }

    /// One pass; the log answers reads at once with ten messages.
    fn step(&mut self) -> Vec<(RequestId, StoreOp)> {
        loop {
            let (lanes, out) = (&mut self.lanes, &mut self.out);
            self.holdings.step(&me(), LIFE, true, lanes, out);
            let actions = self.lanes.take_actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.lane_action(action);
            }
        }
        let mut actions = Vec::new();
        self.out.take_actions(&mut actions);
        let mut requests = Vec::new();
        for action in actions {
            match action {
                Action::Store(request) => {
                    self.patience = request.timeout;
                    requests.push((request.id, request.op));
                }
                Action::Report(report) => self.reports.push(report),
                Action::Committed(ask, result) => self.answers.push((ask, result)),
                _ => {}
            }
        }
        requests
    }

    fn lane_action(&mut self, action: LaneAction) {
        match action {
            LaneAction::Handle(run) => self.runs.push(run),
            LaneAction::Halt(_) => {}
            LaneAction::Note(LaneNote::Drained { partition }) => self.holdings.drained(&partition),
            LaneAction::Source(SourceRequest::Read { ask, from, .. }) => {
                let message = |n| Message {
                    offset: Offset(n),
                    key: n,
                    size: 1,
                    body: Body::EMPTY,
                };
                let batch = ReadBatch {
                    messages: (from.0..10).map(message).collect(),
                    next: Offset(10),
                    first: Offset(0),
                    end: Offset(10),
                };
                self.lanes.source(
                    self.now,
                    SourceEvent::Read {
                        ask,
                        result: Ok(batch),
                    },
                );
            }
            _ => {}
        }
    }

    fn only(&mut self) -> (RequestId, StoreOp) {
        let mut requests = self.step();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    fn only_write(&mut self) -> (RequestId, Write) {
        let (id, op) = self.only();
        let StoreOp::Write(mut writes) = op else {
            panic!("a write, not {op:?}")
        };
        (id, writes.remove(0))
    }

    fn answer_read(&mut self, found: Option<Stored>) {
        let (id, op) = self.only();
        assert_eq!(op, StoreOp::Read(Key::Partition(p())));
        self.out.answered(id, StoreReply::Read(Ok(found.clone())));
        self.holdings
            .read_answered(&p(), StoreReply::Read(Ok(found)), &mut self.out);
    }

    fn answer(&mut self, id: RequestId, outcome: WriteOutcome) {
        let reply = StoreReply::Write(vec![outcome]);
        let answered = self.out.answered(id, reply).expect("somebody waits");
        let (lanes, out) = (&mut self.lanes, &mut self.out);
        self.holdings
            .answered(vec![p()], answered.reply, &me(), LIFE, lanes, out);
    }

    fn handle_one(&mut self) {
        let run = self.runs.remove(0);
        let ran = Ran::one(run.messages[0].offset, HandlerResult::Done);
        self.lanes.handled(self.now, &run.partition, run.epoch, ran);
    }

    /// Serves `p` since epoch 4, from offset 3 on; the first run is under way.
    fn serving() -> Self {
        let mut bench = Self::new();
        bench.serve();
        let free = PartitionRecord {
            owner: None,
            ..owned_by("x", 1, 3, Some(2))
        };
        bench.answer_read(Some(stored(20, free)));
        let (id, write) = bench.only_write();
        assert_eq!(write.expect, Expect::At(Revision(20)));
        bench.answer(id, WriteOutcome::Done(Revision(21)));
        assert!(bench.step().is_empty());
        assert_eq!(bench.runs.len(), 1);
        bench
    }
}

fn written(write: &Write) -> &PartitionRecord {
    let Some(Record::Partition(record)) = &write.value else {
        panic!("a partition record")
    };
    record
}

#[test]
fn a_free_partition_is_taken_under_the_next_epoch_and_handled_one_past_the_checkpoint() {
    let bench = Bench::serving();
    let run = &bench.runs[0];
    assert_eq!((run.epoch, run.messages[0].offset), (Epoch(4), Offset(3)));
    assert!(bench.holdings.all_taken() && bench.holdings.holds(&p()));
}

fn flushes(bench: &mut Bench) -> Vec<(u64, Duration)> {
    let flushed = |report| match report {
        Report::Flushed { partitions, age } => Some((partitions, age)),
        _ => None,
    };
    let reports = std::mem::take(&mut bench.reports);
    reports.into_iter().filter_map(flushed).collect()
}

#[test]
fn a_flush_tells_how_old_its_progress_may_be() {
    let mut bench = Bench::serving();
    let interval = Config::default().checkpoint_flush_interval;
    let flush = |bench: &mut Bench| {
        bench.now = bench.now + interval;
        bench.out.set_now(bench.now);
    };
    flush(&mut bench);
    assert!(bench.step().is_empty(), "nothing is done yet");
    assert_eq!(flushes(&mut bench), []);
    bench.handle_one();
    flush(&mut bench);
    let (id, _) = bench.only_write();
    assert_eq!(flushes(&mut bench), [(1, interval)], "since the last look");
    // It fails, and is sent again: it grows older.
    bench.answer(id, WriteOutcome::Failed(StoreError::Unavailable));
    bench.wait(500);
    let (id, _) = bench.only_write();
    let late = interval + Duration::from_millis(500);
    assert_eq!(flushes(&mut bench), [(1, late)]);
    bench.answer(id, WriteOutcome::Done(Revision(22)));
    bench.handle_one();
    flush(&mut bench);
    bench.only_write();
    assert_eq!(flushes(&mut bench), [(1, interval)]);
}

#[test]
fn who_waits_for_the_store_is_answered_when_it_has_so_much() {
    let mut bench = Bench::serving();
    bench.handle_one();
    let epoch = Epoch(4);
    bench
        .holdings
        .tell_when_stored(&p(), epoch, Offset(3), Ask(1));
    let (id, write) = bench.only_write();
    assert_eq!(written(&write).offset, Some(Offset(3)), "at once");
    // More is done while that is on its way: it waits for its turn.
    bench.step();
    bench.handle_one();
    bench
        .holdings
        .tell_when_stored(&p(), epoch, Offset(4), Ask(2));
    assert!(bench.step().is_empty());
    assert_eq!(bench.answers, []);
    bench.answer(id, WriteOutcome::Done(Revision(22)));
    let (id, write) = bench.only_write();
    assert_eq!(written(&write).offset, Some(Offset(4)));
    assert_eq!(bench.answers, [(Ask(1), Ok(()))]);
    // A fate that is open is no answer; that it landed is seen by the next try.
    let landed = written(&write).clone();
    bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
    let (id, _) = bench.only_write();
    assert_eq!(bench.answers.len(), 1);
    bench.answer(id, WriteOutcome::Conflict(Some(stored(23, landed))));
    bench.step();
    assert_eq!(bench.answers[1..], [(Ask(2), Ok(()))]);
    bench
        .holdings
        .tell_when_stored(&p(), epoch, Offset(3), Ask(3));
    bench.step();
    assert_eq!(bench.answers[2..], [(Ask(3), Ok(()))], "it is there");
}

#[test]
fn who_waits_for_the_store_hears_of_a_fencing_a_release_and_a_lost_session() {
    let waiting = || {
        let mut bench = Bench::serving();
        bench.handle_one();
        bench
            .holdings
            .tell_when_stored(&p(), Epoch(4), Offset(3), Ask(1));
        let (id, _) = bench.only_write();
        (bench, id)
    };
    let (mut bench, id) = waiting();
    let other = stored(30, owned_by("worker-1", 3, 5, Some(2)));
    bench.answer(id, WriteOutcome::Conflict(Some(other)));
    bench.step();
    let not_owned = Err(CommitRefused::NotOwned);
    assert_eq!(bench.answers, [(Ask(1), not_owned)]);

    let (mut bench, _) = waiting();
    let (lanes, out) = (&mut bench.lanes, &mut bench.out);
    bench.holdings.abandon(lanes, out);
    bench.step();
    assert_eq!(bench.answers, [(Ask(1), not_owned)]);

    // It is let go of meanwhile: the answer is the same.
    let (mut bench, id) = waiting();
    bench.drop_it();
    bench.step();
    bench.answer(id, WriteOutcome::Failed(StoreError::Unavailable));
    bench.wait(500);
    let (id, again) = bench.only_write();
    assert_eq!(written(&again).offset, Some(Offset(3)));
    bench.answer(id, WriteOutcome::Done(Revision(22)));
    bench.step();
    assert_eq!(bench.answers, [(Ask(1), Ok(()))]);
}

#[test]
fn takes_that_come_to_nothing_are_counted() {
    let mut bench = Bench::new();
    bench.serve();
    bench.answer_read(Some(stored(20, PartitionRecord::default())));
    let (id, _) = bench.only_write();
    bench.answer(id, WriteOutcome::Failed(StoreError::Unavailable));
    bench.wait(500);
    let (id, _) = bench.only_write();
    let other = stored(21, owned_by("worker-1", 3, 1, None));
    bench.answer(id, WriteOutcome::Conflict(Some(other)));
    bench.step();
    let expected = TakeNumbers {
        blocked: 1,
        conflicts: 1,
        failures: 1,
    };
    assert_eq!(bench.holdings.take_numbers(), expected);
}

#[test]
fn a_living_owner_is_never_seized_and_is_named_as_the_obstacle() {
    let mut bench = Bench::new();
    bench.serve();
    bench.answer_read(Some(stored(20, owned_by("worker-1", 3, 3, None))));
    let (id, op) = bench.only();
    let owner = WorkerId::new("worker-1");
    assert_eq!(op, StoreOp::Read(Key::Worker(owner.clone())));
    let alive = Stored {
        key: Key::Worker(owner.clone()),
        revision: Revision(30),
        record: Record::Worker(Arc::new(session(SessionStatus::Live, 3))),
    };
    bench
        .out
        .answered(id, StoreReply::Read(Ok(Some(alive.clone()))));
    let reply = StoreReply::Read(Ok(Some(alive)));
    bench
        .holdings
        .owner_answered(owner.clone(), reply, &mut bench.out);
    assert!(bench.step().is_empty(), "it waits");
    assert_eq!(bench.holdings.blocked()[0].owner, owner);
    // Its session is over now: the next look finds that out, and takes.
    bench
        .holdings
        .learn_session(&owner, Revision(31), &session(SessionStatus::Evicted, 3));
    bench.wait(100);
    bench.answer_read(Some(stored(20, owned_by("worker-1", 3, 3, None))));
    let (_, write) = bench.only_write();
    assert_eq!(written(&write).epoch, Epoch(4));
}

#[test]
fn a_take_of_open_fate_is_settled_before_the_partition_counts_as_let_go() {
    let mut bench = Bench::new();
    bench.serve();
    bench.answer_read(Some(stored(20, PartitionRecord::default())));
    let (id, take) = bench.only_write();
    bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
    bench.drop_it();
    assert!(!bench.holdings.all_released());
    let (id, settle) = bench.only_write();
    assert_eq!(settle.expect, Expect::At(Revision(20)));
    assert_eq!(written(&settle).owner, None);
    // The take had landed after all: it is ours, and released at once, unopened.
    let landed = stored(21, written(&take).clone());
    bench.answer(id, WriteOutcome::Conflict(Some(landed)));
    assert!(!bench.holdings.all_released());
    let (id, release) = bench.only_write();
    assert_eq!(release.expect, Expect::At(Revision(21)));
    assert_eq!(
        (written(&release).owner.clone(), written(&release).epoch),
        (None, Epoch(1))
    );
    bench.answer(id, WriteOutcome::Done(Revision(22)));
    assert!(bench.step().is_empty());
    assert!(bench.holdings.all_released() && bench.runs.is_empty());
}

#[test]
fn a_seizure_that_lands_late_and_is_let_go_unopened_hands_the_suspicion_on() {
    let mut bench = Bench::new();
    let dead = WorkerId::new("worker-1");
    bench
        .holdings
        .learn_session(&dead, Revision(10), &session(SessionStatus::Evicted, 3));
    bench.serve();
    bench.answer_read(Some(stored(20, owned_by("worker-1", 3, 3, Some(2)))));
    let (id, take) = bench.only_write();
    bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
    bench.drop_it();
    let (id, _) = bench.only_write();
    let landed = stored(21, written(&take).clone());
    bench.answer(id, WriteOutcome::Conflict(Some(landed)));
    let (_, release) = bench.only_write();
    assert_eq!(written(&release).owner, None);
    let something_has_killed = Some(Begun {
        offset: Offset(3),
        times: 0,
    });
    assert_eq!(written(&release).begun, something_has_killed);
}

#[test]
fn a_commit_that_failed_does_not_wait_for_the_next_flush() {
    let mut bench = Bench::serving();
    bench.handle_one();
    bench.holdings.flush(bench.now);
    let (id, _) = bench.only_write();
    bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
    let (id, again) = bench.only_write();
    assert_eq!(written(&again).offset, Some(Offset(3)));
    bench.answer(id, WriteOutcome::Failed(StoreError::Unavailable));
    assert!(bench.step().is_empty(), "it pauses");
    bench.wait(250);
    let (_, third) = bench.only_write();
    assert_eq!(written(&third).offset, Some(Offset(3)));
}

#[test]
fn in_a_hurry_a_write_that_went_into_a_dead_link_is_given_up_sooner() {
    let mut bench = Bench::serving();
    assert_eq!(bench.patience, Config::default().operation_timeout);
    bench.holdings.hurry(Duration::from_millis(700));
    bench.holdings.hurry(Duration::from_secs(3600));
    bench.handle_one();
    bench.drop_it();
    bench.only_write();
    assert_eq!(bench.patience, Duration::from_millis(700));
}

#[test]
fn a_commit_of_our_own_that_landed_late_is_adopted() {
    let mut bench = Bench::serving();
    bench.handle_one();
    bench.holdings.flush(bench.now);
    let (id, first) = bench.only_write();
    assert_eq!(written(&first).offset, Some(Offset(3)));
    bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
    bench.handle_one();
    let (id, _) = bench.only_write();
    bench.answer(
        id,
        WriteOutcome::Conflict(Some(stored(22, written(&first).clone()))),
    );
    let (_, again) = bench.only_write();
    assert_eq!(again.expect, Expect::At(Revision(22)));
    assert_eq!(written(&again).offset, Some(Offset(4)));
}

#[test]
fn a_commit_that_meets_another_owner_is_fenced_and_nothing_more_is_handled() {
    let mut bench = Bench::serving();
    bench.handle_one();
    bench.holdings.flush(bench.now);
    let (id, _) = bench.only_write();
    bench.runs.clear();
    let theirs = stored(25, owned_by("worker-1", 9, 5, Some(2)));
    bench.answer(id, WriteOutcome::Conflict(Some(theirs)));
    bench.step();
    assert!(bench.reports.contains(&Report::Fenced {
        partition: p(),
        epoch: Epoch(4)
    }));
    assert!(bench.runs.is_empty() && !bench.holdings.holds(&p()));
}

#[test]
fn a_release_waits_for_the_running_call_and_carries_the_final_offset() {
    let mut bench = Bench::serving();
    bench.drop_it();
    assert!(bench.step().is_empty(), "the handler still runs");
    bench.handle_one();
    let (id, release) = bench.only_write();
    assert_eq!(
        (written(&release).offset, written(&release).owner.clone()),
        (Some(Offset(3)), None)
    );
    // Nobody knows whether it landed: tried again, and known again.
    bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
    assert!(!bench.holdings.all_released());
    let (id, again) = bench.only_write();
    assert_eq!(again.expect, Expect::At(Revision(21)));
    bench.answer(
        id,
        WriteOutcome::Conflict(Some(stored(22, written(&release).clone()))),
    );
    assert!(bench.step().is_empty());
    assert!(bench.holdings.all_released() && bench.holdings.is_empty());
}

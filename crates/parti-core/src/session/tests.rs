//! The session against a hand-driven store.

use std::sync::Arc;

use super::*;
use crate::config::Config;
use crate::ids::{Nonce, Revision, Term, Version};
use crate::io::{RequestId, StoreError, StoreOp, StoreRequest, Stored, Write};
use crate::record::Ready;
use crate::rng::Rng;
use crate::worker::Action;

struct Bench {
    session: Session,
    out: Outbox,
    now: Time,
}

impl Bench {
    fn new(preferred: Option<u64>, max: u64) -> Self {
        Self::of(preferred, max, Belonging::Own)
    }

    fn of(preferred: Option<u64>, max: u64, belongs: Belonging) -> Self {
        let config = Config {
            worker_id_max: max,
            ..Config::default()
        };
        let mut out = Outbox::new(Rng::new(1));
        let mut session = Session::new(&config, preferred, belongs);
        session.claim(&mut out);
        Self {
            session,
            out,
            now: Time::ZERO,
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.out.set_now(self.now);
    }

    /// The only request that was sent.
    fn request(&mut self) -> StoreRequest {
        let mut actions = Vec::new();
        self.out.take_actions(&mut actions);
        let mut requests = actions.into_iter().filter_map(|action| match action {
            Action::Store(request) => Some(request),
            _ => None,
        });
        let request = requests.next().expect("a request");
        assert_eq!(requests.next(), None, "only one request");
        request
    }

    fn write(&mut self) -> (RequestId, Write) {
        let request = self.request();
        let StoreOp::Write(writes) = request.op else {
            panic!("a write, not {:?}", request.op);
        };
        (request.id, writes.into_iter().next().expect("one write"))
    }

    fn answer(&mut self, id: RequestId, reply: StoreReply) -> Outcome {
        let answered = self.out.answered(id, reply).expect("somebody waits");
        self.session
            .answered(answered.sent, answered.reply, &mut self.out)
    }

    fn answer_list(&mut self, records: Vec<Stored>) -> Outcome {
        let request = self.request();
        self.answer(request.id, StoreReply::List(Ok(records)))
    }

    fn answer_write(&mut self, id: RequestId, outcome: WriteOutcome) -> Outcome {
        self.answer(id, StoreReply::Write(vec![outcome]))
    }

    fn step(&mut self) -> Outcome {
        self.session
            .step(&record(SessionStatus::Live, 0), &mut self.out)
    }

    /// Claims `worker-0` at revision 5.
    fn claimed() -> Self {
        let mut bench = Self::new(None, 9);
        bench.answer_list(Vec::new());
        let (id, _) = bench.write();
        assert_eq!(
            bench.answer_write(id, WriteOutcome::Done(Revision(5))),
            Outcome::Claimed
        );
        bench
    }
}

fn record(status: SessionStatus, nonce: u64) -> WorkerRecord {
    WorkerRecord {
        incarnation: None,
        beat: 0,
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
        nonce: Nonce(nonce),
    }
}

fn stored(number: u64, revision: u64, record: WorkerRecord) -> Stored {
    Stored {
        key: Key::Worker(WorkerId::new(format!("worker-{number}"))),
        revision: Revision(revision),
        record: Record::Worker(Arc::new(record)),
    }
}

fn key(number: u64) -> Key {
    Key::Worker(WorkerId::new(format!("worker-{number}")))
}

#[test]
fn the_lowest_free_number_is_created_only_if_absent() {
    let mut bench = Bench::new(None, 9);
    bench.answer_list(vec![
        stored(0, 3, record(SessionStatus::Live, 1)),
        stored(2, 4, record(SessionStatus::Live, 2)),
    ]);
    let (id, write) = bench.write();
    assert_eq!((write.key, write.expect), (key(1), Expect::Absent));
    assert_eq!(
        bench.answer_write(id, WriteOutcome::Done(Revision(9))),
        Outcome::Claimed
    );
    let (worker, incarnation) = bench.session.id().expect("claimed");
    assert_eq!((worker.as_str(), incarnation), ("worker-1", Incarnation(9)));
}

#[test]
fn a_lost_race_goes_on_with_the_next_number_without_listing() {
    let mut bench = Bench::new(None, 9);
    bench.answer_list(Vec::new());
    let (id, write) = bench.write();
    assert_eq!(write.key, key(0));
    let winner = stored(0, 3, record(SessionStatus::Live, 99));
    bench.answer_write(id, WriteOutcome::Conflict(Some(winner)));
    assert_eq!(bench.write().1.key, key(1));
}

#[test]
fn a_claim_of_open_fate_is_tried_again_with_the_same_mark_and_known_again() {
    let mut bench = Bench::new(None, 9);
    bench.answer_list(Vec::new());
    let (id, first) = bench.write();
    bench.answer_write(id, WriteOutcome::Failed(StoreError::Unknown));
    bench.wait(1);
    bench.step();
    let (id, second) = bench.write();
    assert_eq!(first, second);
    let Some(Record::Worker(mine)) = second.value else {
        panic!("a session")
    };
    let landed = Stored {
        key: key(0),
        revision: Revision(4),
        record: Record::Worker(mine),
    };
    assert_eq!(
        bench.answer_write(id, WriteOutcome::Conflict(Some(landed))),
        Outcome::Claimed
    );
    assert_eq!(
        bench.session.id().map(|(_, life)| life),
        Some(Incarnation(4))
    );
    // Nobody knows when it landed, so the lease waits for the first renewal.
    assert_eq!(bench.session.lease_until(), Time::ZERO);
}

#[test]
fn a_preferred_id_waits_until_its_silent_holder_may_be_ended() {
    let mut bench = Bench::new(Some(0), 0);
    let holder = stored(0, 3, record(SessionStatus::Live, 1));
    for _ in 0..6 {
        bench.answer_list(vec![holder.clone()]);
        bench.wait(1);
        assert_eq!(bench.step(), Outcome::Nothing);
    }
    bench.answer_list(vec![holder]);
    // Six seconds of silence: the claim is the write that ends the old session.
    assert_eq!(bench.write().1.expect, Expect::At(Revision(3)));
}

#[test]
fn a_range_full_of_living_workers_is_exhausted() {
    let mut bench = Bench::new(None, 1);
    let mut revision = 10;
    let mut seconds = 0;
    let outcome = loop {
        revision += 2;
        let both = vec![
            stored(0, revision, record(SessionStatus::Live, 1)),
            stored(1, revision + 1, record(SessionStatus::Live, 2)),
        ];
        let outcome = bench.answer_list(both);
        if outcome != Outcome::Nothing {
            break outcome;
        }
        bench.wait(1);
        seconds += 1;
        bench.step();
    };
    assert_eq!(outcome, Outcome::Failed(Fatal::StableIdExhausted(2)));
    // All are known to live: the retries of 1, 2 and 4 s, and no waiting for silence.
    assert!((7..12).contains(&seconds), "{seconds}");
}

#[test]
fn the_lease_counts_from_before_the_renewal_was_sent_and_ends_before_the_ttl() {
    let mut bench = Bench::claimed();
    bench.wait(2);
    bench.step();
    let (id, write) = bench.write();
    assert_eq!(write.expect, Expect::At(Revision(5)));
    bench.wait(1);
    assert_eq!(
        bench.answer_write(id, WriteOutcome::Done(Revision(8))),
        Outcome::Renewed
    );
    // Sent at 2 s, TTL 6 s, a tenth of it as margin.
    assert_eq!(bench.session.lease_until(), Time(7_400_000));
}

#[test]
fn a_renewal_of_our_own_that_landed_late_is_adopted() {
    let mut bench = Bench::claimed();
    bench.step();
    let (id, _) = bench.write();
    bench.answer_write(id, WriteOutcome::Failed(StoreError::Unknown));
    bench.wait(1);
    bench.step();
    let (id, write) = bench.write();
    assert_eq!(write.expect, Expect::At(Revision(5)));
    let mut landed = record(SessionStatus::Live, 7);
    landed.incarnation = Some(Incarnation(5));
    let conflict = WriteOutcome::Conflict(Some(stored(0, 6, landed)));
    assert_eq!(bench.answer_write(id, conflict), Outcome::Nothing);
    bench.step();
    assert_eq!(bench.write().1.expect, Expect::At(Revision(6)));
}

#[test]
fn a_session_that_was_ended_or_replaced_is_lost() {
    let mut ended = record(SessionStatus::Evicted, 7);
    ended.incarnation = Some(Incarnation(5));
    let mut successor = record(SessionStatus::Live, 7);
    successor.incarnation = Some(Incarnation(6));
    for found in [
        Some(stored(0, 9, ended)),
        Some(stored(0, 9, successor)),
        None,
    ] {
        let mut bench = Bench::claimed();
        bench.step();
        let (id, _) = bench.write();
        assert_eq!(
            bench.answer_write(id, WriteOutcome::Conflict(found)),
            Outcome::Lost
        );
        assert_eq!(bench.session.lease_until(), Time::ZERO);
    }
}

#[test]
fn news_do_not_wait_for_the_heartbeat() {
    let mut bench = Bench::claimed();
    bench.step();
    let (id, _) = bench.write();
    bench.answer_write(id, WriteOutcome::Done(Revision(6)));
    bench.step();
    let mut actions = Vec::new();
    bench.out.take_actions(&mut actions);
    assert_eq!(actions, []);
    let news = WorkerRecord {
        released: Version(3),
        ..record(SessionStatus::Live, 0)
    };
    bench.session.step(&news, &mut bench.out);
    let (_, write) = bench.write();
    let Some(Record::Worker(said)) = write.value else {
        panic!("a session")
    };
    assert_eq!((said.released, said.beat), (Version(3), 2));
}

#[test]
fn a_store_in_trouble_is_asked_again_after_a_wait_even_if_there_are_news() {
    for error in [StoreError::Unknown, StoreError::Unavailable] {
        let mut bench = Bench::claimed();
        bench.step();
        let (id, _) = bench.write();
        bench.answer_write(id, WriteOutcome::Failed(error.clone()));
        bench.step();
        let mut actions = Vec::new();
        bench.out.take_actions(&mut actions);
        assert_eq!(actions, [], "{error}: not at once");
        let again = bench.session.next_deadline();
        assert!(again > bench.now, "{error}");
        assert!(again <= bench.now + bench.session.heartbeat / 4, "{error}");
        bench.now = again;
        bench.out.set_now(again);
        bench.step();
        bench.write();
    }
}

#[test]
fn a_revoked_session_stops_at_once_and_is_given_up_by_its_holder() {
    let mut successor = record(SessionStatus::Live, 1);
    successor.incarnation = Some(Incarnation(9));
    for (revoked, taken, after) in [
        (SessionStatus::Revoked, false, Outcome::Lost),
        (SessionStatus::Revoked, true, Outcome::Lost),
        (SessionStatus::Dismissed, false, Outcome::Dismissed),
        (SessionStatus::Dismissed, true, Outcome::Dismissed),
    ] {
        let mut bench = Bench::claimed();
        bench.step();
        let (id, _) = bench.write();
        assert!(bench.session.lease_until() > bench.now);
        let found = WorkerRecord {
            incarnation: Some(Incarnation(5)),
            ..record(revoked, 8)
        };
        let found = WriteOutcome::Conflict(Some(stored(0, 7, found)));
        assert_eq!(bench.answer_write(id, found), Outcome::Nothing);
        assert_eq!(bench.session.lease_until(), Time::ZERO, "nothing starts");
        // Whatever becomes of the mark: it is written until it is there.
        bench.step();
        let (id, mark) = bench.write();
        assert_eq!(mark.expect, Expect::At(Revision(7)));
        let Some(Record::Worker(over)) = &mark.value else {
            panic!("a session")
        };
        assert_eq!(over.status, SessionStatus::Evicted);
        let open = WriteOutcome::Failed(StoreError::Unknown);
        assert_eq!(bench.answer_write(id, open), Outcome::Missed);
        bench.wait(1);
        bench.step();
        let (id, again) = bench.write();
        assert_eq!(again.expect, mark.expect);
        // It had landed; and then somebody else may have had the id, before the next try.
        let found = if taken {
            stored(0, 10, successor.clone())
        } else {
            stored(0, 8, (**over).clone())
        };
        let landed = WriteOutcome::Conflict(Some(found));
        assert_eq!(bench.answer_write(id, landed), after);
        assert!(bench.session.is_idle());
    }
}

fn hosted(badge: u128, status: SessionStatus) -> WorkerRecord {
    WorkerRecord {
        badge: Some(Badge(badge)),
        ..record(status, 7)
    }
}

#[test]
fn a_consumer_goes_on_at_another_host_under_its_badge() {
    let mut bench = Bench::of(None, 9, Belonging::Continued(Badge(77), 2));
    bench.answer_list(vec![stored(2, 3, hosted(77, SessionStatus::Live))]);
    let (id, write) = bench.write();
    assert_eq!((write.key, write.expect), (key(2), Expect::At(Revision(3))));
    // The old host renews in between.
    let renewed = WorkerRecord {
        incarnation: Some(Incarnation(3)),
        ..hosted(77, SessionStatus::Live)
    };
    let conflict = WriteOutcome::Conflict(Some(stored(2, 4, renewed)));
    assert_eq!(bench.answer_write(id, conflict), Outcome::Nothing);
    let (id, write) = bench.write();
    assert_eq!((write.key, write.expect), (key(2), Expect::At(Revision(4))));
    let Some(Record::Worker(claim)) = &write.value else {
        panic!("a session")
    };
    assert_eq!((claim.badge, claim.incarnation), (Some(Badge(77)), None));
    let done = WriteOutcome::Done(Revision(5));
    assert_eq!(bench.answer_write(id, done), Outcome::Claimed);
    let (worker, life) = bench.session.id().expect("claimed");
    assert_eq!((worker.as_str(), life), ("worker-2", Incarnation(5)));
}

#[test]
fn nobody_goes_on_with_what_is_over_or_another_consumers() {
    let own = record(SessionStatus::Live, 7);
    for found in [
        vec![],
        vec![stored(2, 3, own)],
        vec![stored(2, 3, hosted(78, SessionStatus::Live))],
        vec![stored(2, 3, hosted(77, SessionStatus::Goodbye))],
        vec![stored(2, 3, hosted(77, SessionStatus::Evicted))],
        vec![stored(2, 3, hosted(77, SessionStatus::Leaving))],
        vec![stored(2, 3, hosted(77, SessionStatus::Dismissed))],
        vec![stored(1, 3, hosted(77, SessionStatus::Live))],
    ] {
        let mut bench = Bench::of(None, 9, Belonging::Continued(Badge(77), 2));
        let over = Outcome::Failed(Fatal::SessionOver);
        assert_eq!(bench.answer_list(found.clone()), over, "{found:?}");
    }
}

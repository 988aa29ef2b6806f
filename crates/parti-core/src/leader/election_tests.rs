//! The election against a hand-driven store.

use std::sync::Arc;
use std::time::Duration;

use super::election::{Agent, Election, Outcome};
use crate::config::Config;
use crate::ids::{Incarnation, Nonce, Revision, Term, WorkerId};
use crate::io::{
    Expect, RequestId, StoreError, StoreOp, StoreReply, Stored, WatchEvent, WriteOutcome,
};
use crate::key::Key;
use crate::record::{LeaderRecord, Record};
use crate::rng::Rng;
use crate::session::silence::Silence;
use crate::time::Time;
use crate::worker::outbox::Outbox;
use crate::worker::{Action, Report, Trouble};

const LIFE: Incarnation = Incarnation(7);

struct Bench {
    election: Election,
    silence: Silence,
    out: Outbox,
    now: Time,
}

impl Bench {
    fn new(agent: Agent) -> Self {
        Self::with(&Config::default(), agent)
    }

    fn with(config: &Config, agent: Agent) -> Self {
        Self {
            election: Election::new(config, agent),
            silence: Silence::new(Time::ZERO, config.heartbeat()),
            out: Outbox::new(Rng::new(1)),
            now: Time::ZERO,
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.out.set_now(self.now);
        self.silence.succeeded(self.now);
    }

    fn watched(&mut self, record: Option<Stored>) {
        let event = WatchEvent::Snapshot(record.into_iter().collect());
        self.election
            .watched(&event, &mut self.silence, &mut self.out);
    }

    fn step(&mut self) -> Outcome {
        self.election
            .step(&me(), LIFE, true, &self.silence, &mut self.out)
    }

    fn write(&mut self) -> Option<(RequestId, Expect, LeaderRecord)> {
        let mut actions = Vec::new();
        self.out.take_actions(&mut actions);
        let Some(Action::Store(request)) = actions.pop() else {
            return None;
        };
        let StoreOp::Write(mut writes) = request.op else {
            panic!("a write")
        };
        let write = writes.pop()?;
        let Some(Record::Leader(record)) = write.value else {
            panic!("a leader record")
        };
        Some((request.id, write.expect, (*record).clone()))
    }

    fn answer(&mut self, id: RequestId, outcome: WriteOutcome) -> Outcome {
        let reply = StoreReply::Write(vec![outcome]);
        let answered = self.out.answered(id, reply).expect("somebody waits");
        self.election.answered(
            answered.sent,
            answered.reply,
            &mut self.silence,
            &mut self.out,
        )
    }
}

fn me() -> WorkerId {
    WorkerId::new("worker-0")
}

fn held_by(worker: &str, life: u64, term: u64, revision: u64) -> Stored {
    let holder = Some((WorkerId::new(worker), Incarnation(life)));
    let record = LeaderRecord {
        holder,
        term: Term(term),
        beat: 1,
        nonce: Nonce(9),
    };
    Stored {
        key: Key::Leader,
        revision: Revision(revision),
        record: Record::Leader(Arc::new(record)),
    }
}

#[test]
fn the_first_leader_creates_the_record_with_term_one() {
    let mut bench = Bench::new(Agent::Store);
    assert_eq!(bench.step(), Outcome::Nothing);
    assert!(
        bench.write().is_none(),
        "nobody stands before the record was looked at"
    );
    bench.watched(None);
    bench.step();
    let (id, expect, record) = bench.write().expect("a candidacy");
    assert_eq!((expect, record.term), (Expect::Absent, Term(1)));
    assert_eq!(
        bench.answer(id, WriteOutcome::Done(Revision(3))),
        Outcome::Won(Term(1))
    );
}

#[test]
fn a_silent_leader_is_replaced_under_the_next_term_and_a_living_one_is_not() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(Some(held_by("worker-1", 5, 4, 10)));
    for _ in 0..5 {
        bench.wait(1);
        bench.step();
        assert!(bench.write().is_none());
    }
    bench.wait(1);
    bench.step();
    let (id, expect, record) = bench.write().expect("a candidacy");
    assert_eq!((expect, record.term), (Expect::At(Revision(10)), Term(5)));
    // It lives after all: its renewal came first.
    let alive = held_by("worker-1", 5, 4, 11);
    assert_eq!(
        bench.answer(id, WriteOutcome::Conflict(Some(alive))),
        Outcome::Nothing
    );
    bench.step();
    assert!(bench.write().is_none());
}

#[test]
fn an_older_life_of_mine_is_replaced_at_once() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(Some(held_by("worker-0", 6, 4, 10)));
    bench.step();
    assert_eq!(bench.write().expect("a candidacy").2.term, Term(5));
}

#[test]
fn a_candidacy_of_open_fate_that_landed_is_a_victory() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(None);
    bench.step();
    let (id, _, first) = bench.write().expect("a candidacy");
    bench.answer(id, WriteOutcome::Failed(StoreError::Unknown));
    bench.wait(1);
    bench.step();
    let (id, _, _) = bench.write().expect("another try");
    let landed = Stored {
        key: Key::Leader,
        revision: Revision(3),
        record: Record::Leader(Arc::new(first)),
    };
    assert_eq!(
        bench.answer(id, WriteOutcome::Conflict(Some(landed))),
        Outcome::Won(Term(1))
    );
}

#[test]
fn a_leader_that_meets_another_one_steps_down() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(None);
    bench.step();
    let (id, ..) = bench.write().expect("a candidacy");
    bench.answer(id, WriteOutcome::Done(Revision(3)));
    bench.wait(2);
    bench.step();
    let (id, expect, _) = bench.write().expect("a renewal");
    assert_eq!(expect, Expect::At(Revision(3)));
    let other = held_by("worker-1", 5, 2, 4);
    assert_eq!(
        bench.answer(id, WriteOutcome::Conflict(Some(other))),
        Outcome::Lost
    );
    assert_eq!(bench.election.leading(), None);
}

#[test]
fn a_resignation_keeps_the_term_and_names_nobody() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(None);
    bench.step();
    let (id, ..) = bench.write().expect("a candidacy");
    bench.answer(id, WriteOutcome::Done(Revision(3)));
    bench.election.resign();
    bench.step();
    let (id, _, record) = bench.write().expect("a resignation");
    assert_eq!((record.holder, record.term), (None, Term(1)));
    bench.answer(id, WriteOutcome::Done(Revision(4)));
    assert!(!bench.election.is_resigning());
    bench.wait(60);
    bench.step();
    assert!(bench.write().is_none(), "who resigned does not stand again");
}

#[test]
fn an_external_agent_decides_who_and_the_record_decides_the_term() {
    let mut bench = Bench::new(Agent::External { elected: false });
    bench.watched(Some(held_by("worker-1", 5, 4, 10)));
    bench.wait(60);
    bench.step();
    assert!(bench.write().is_none());
    bench.election.agent_says(true);
    bench.step();
    assert_eq!(bench.write().expect("a candidacy").2.term, Term(5));
}

#[test]
fn a_candidacy_on_its_way_is_taken_back_before_its_writer_goes() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(None);
    bench.step();
    let (id, ..) = bench.write().expect("a candidacy");
    bench.election.resign();
    assert!(bench.election.is_resigning(), "it may land");
    bench.answer(id, WriteOutcome::Done(Revision(1)));
    assert!(bench.election.is_resigning(), "it landed");
    bench.step();
    let (id, _, record) = bench.write().expect("a resignation");
    assert_eq!(record.holder, None);
    bench.answer(id, WriteOutcome::Done(Revision(2)));
    assert!(!bench.election.is_resigning());
}

#[test]
fn whom_an_agent_deposed_it_may_elect_again_but_whoever_resigned_stands_no_more() {
    let mut bench = Bench::new(Agent::External { elected: true });
    bench.watched(None);
    bench.step();
    let (id, ..) = bench.write().expect("it stands");
    let won = bench.answer(id, WriteOutcome::Done(Revision(50)));
    assert_eq!(won, Outcome::Won(Term(1)));
    bench.election.agent_says(false);
    assert_eq!(bench.step(), Outcome::Lost);
    bench.step();
    let (id, _, record) = bench.write().expect("a resignation");
    assert_eq!((record.holder, record.term), (None, Term(1)));
    bench.answer(id, WriteOutcome::Done(Revision(51)));
    bench.step();
    assert!(bench.write().is_none());
    bench.election.agent_says(true);
    bench.step();
    let (id, _, record) = bench.write().expect("a candidacy");
    assert_eq!(record.term, Term(2));
    bench.answer(id, WriteOutcome::Done(Revision(52)));
    bench.election.resign();
    bench.step();
    let (id, ..) = bench.write().expect("a resignation");
    bench.answer(id, WriteOutcome::Done(Revision(53)));
    bench.step();
    assert!(bench.write().is_none(), "for good");
}

#[test]
fn a_leader_that_is_outdone_by_a_term_without_a_leader_stands_above_it() {
    let mut bench = Bench::new(Agent::Store);
    // The record was lost, so terms begin anew; what was published before still counts.
    bench.watched(None);
    bench.step();
    let (id, _, record) = bench.write().expect("it stands");
    assert_eq!(record.term, Term(1));
    let won = bench.answer(id, WriteOutcome::Done(Revision(50)));
    assert_eq!(won, Outcome::Won(Term(1)));
    bench.election.outdone(Term(6));
    assert_eq!(bench.election.leading(), None);
    assert_eq!(bench.step(), Outcome::Nothing, "not under the old term");
    let (id, expect, record) = bench.write().expect("it stands again");
    assert_eq!((expect, record.term), (Expect::At(Revision(50)), Term(7)));
    let won = bench.answer(id, WriteOutcome::Done(Revision(51)));
    assert_eq!(won, Outcome::Won(Term(7)));
}

#[test]
fn a_leader_that_is_outdone_by_another_follows() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(None);
    bench.step();
    let (id, ..) = bench.write().expect("it stands");
    bench.answer(id, WriteOutcome::Done(Revision(50)));
    bench.election.outdone(Term(2));
    bench.step();
    let (id, ..) = bench.write().expect("it stands again");
    let found = held_by("worker-1", 3, 2, 60);
    let lost = bench.answer(id, WriteOutcome::Conflict(Some(found)));
    assert_eq!(lost, Outcome::Nothing, "it led no more");
    bench.step();
    assert!(bench.write().is_none(), "worker-1 leads");
}

fn unreadable(revision: u64) -> Stored {
    Stored {
        key: Key::Leader,
        revision: Revision(revision),
        record: Record::Unreadable("v 9 is newer than v 1".into()),
    }
}

/// What was reported, in words.
fn troubles(bench: &mut Bench) -> Vec<String> {
    let mut actions = Vec::new();
    bench.out.take_actions(&mut actions);
    let words = |action: Action| match action {
        Action::Report(Report::Trouble(trouble @ Trouble::NoElection(_))) => trouble.to_string(),
        other => panic!("only trouble, not {other:?}"),
    };
    actions.into_iter().map(words).collect()
}

#[test]
fn a_record_that_cannot_be_read_is_named_once_and_left_alone() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(Some(unreadable(5)));
    let told = troubles(&mut bench);
    assert_eq!(told.len(), 1);
    for part in [
        "record leader",
        "v 9 is newer",
        "update this program",
        "delete",
    ] {
        assert!(told[0].contains(part), "{part} is missing in {told:?}");
    }
    bench.watched(Some(unreadable(5)));
    for _ in 0..20 {
        bench.wait(1);
        assert_eq!(bench.step(), Outcome::Nothing);
    }
    assert_eq!(troubles(&mut bench), Vec::<String>::new(), "said once");
    assert_eq!(bench.election.next_deadline(&bench.silence), Time::NEVER);
}

#[test]
fn elections_go_on_once_the_damaged_record_is_gone_or_readable() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(Some(held_by("worker-1", 3, 4, 5)));
    bench.watched(Some(unreadable(6)));
    assert_eq!(troubles(&mut bench).len(), 1);
    let removed = WatchEvent::Removed(Key::Leader, Revision(7));
    bench
        .election
        .watched(&removed, &mut bench.silence, &mut bench.out);
    bench.wait(1);
    bench.step();
    let (_, expect, record) = bench.write().expect("stands");
    assert_eq!((expect, record.term), (Expect::Absent, Term(5)));

    let mut bench = Bench::new(Agent::Store);
    bench.watched(Some(unreadable(6)));
    bench.watched(Some(held_by("worker-1", 3, 4, 7)));
    assert_eq!(bench.election.term(), Term(4), "somebody put it right");
}

#[test]
fn a_leader_whose_record_is_damaged_leads_no_more() {
    let mut bench = Bench::new(Agent::Store);
    bench.watched(None);
    bench.step();
    let (id, ..) = bench.write().expect("stands");
    assert_eq!(
        bench.answer(id, WriteOutcome::Done(Revision(1))),
        Outcome::Won(Term(1))
    );
    bench.wait(2);
    bench.step();
    let (id, ..) = bench.write().expect("renews");
    let conflict = WriteOutcome::Conflict(Some(unreadable(2)));
    assert_eq!(bench.answer(id, conflict), Outcome::Lost);
    assert_eq!(troubles(&mut bench).len(), 1);
    bench.wait(60);
    assert_eq!(bench.step(), Outcome::Nothing);
    assert_eq!(troubles(&mut bench).len(), 0, "and does not stand");
}

#[test]
fn a_store_in_trouble_is_asked_again_after_a_wait() {
    for error in [StoreError::Unknown, StoreError::Unavailable] {
        let mut bench = Bench::new(Agent::Store);
        bench.watched(None);
        bench.step();
        let (id, ..) = bench.write().expect("stands");
        bench.answer(id, WriteOutcome::Failed(error.clone()));
        bench.step();
        assert!(bench.write().is_none(), "{error}: not at once");
        bench.wait(1);
        bench.step();
        assert!(bench.write().is_some(), "{error}: but soon");
    }
}

#[test]
fn every_call_is_bounded_by_the_election_timeout_and_by_a_heartbeat() {
    for (limit, expected) in [(1, 1), (60, 2)] {
        let config = Config {
            election_timeout: Duration::from_secs(limit),
            heartbeat_interval: Duration::from_secs(2),
            ..Config::default()
        };
        let mut bench = Bench::with(&config, Agent::Store);
        bench.watched(None);
        bench.step();
        let mut actions = Vec::new();
        bench.out.take_actions(&mut actions);
        let Some(Action::Store(request)) = actions.pop() else {
            panic!("a candidacy")
        };
        assert_eq!(request.timeout, Duration::from_secs(expected));
    }
}

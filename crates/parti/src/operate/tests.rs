//! What an operator changes, from records written by hand.

use std::sync::Arc;
use std::time::Duration;

use parti_core::ids::{Epoch, Incarnation, Offset};
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, EventRecord, Record, Request, SessionStatus};
use parti_core::worker::chronicle;

use super::*;
use crate::inspect::tests::{Desk, partition, worker};
use crate::store::faulty::Faulty;
use crate::store::{GroupStore, Memory};

mod force;
mod latest;
mod marks;
mod meddled;
mod other_source;

use meddled::{When, meddled};

const SILENCE: Duration = Duration::from_secs(10);

async fn change(desk: &Desk, id: &str, next: u64, rules: Rules) -> Change {
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let wanted = vec![Wanted::at(partition(id), Offset(next))];
    let planned = checkpoints.plan(wanted, rules);
    let applied = checkpoints
        .apply(planned, rules, &reason())
        .await
        .expect("writable");
    assert_eq!(applied.left_paused, []);
    applied.changes.into_iter().next().expect("one")
}

fn reason() -> Reason {
    Reason {
        by: "alice".into(),
        why: "to see".into(),
    }
}

#[test]
fn a_reason_is_one_plain_line_of_somebody() {
    let reason = |by: &str, why: &str| Reason {
        by: by.into(),
        why: why.into(),
    };
    assert_eq!(reason("älice", "").check(), Ok(()));
    let long = "x".repeat(501);
    for (by, why) in [
        ("", "why"),
        ("  ", "why"),
        ("alice\nbob asked to delete: done", ""),
        ("alice", "a\u{1b}[31mred"),
        ("alice", "a\u{202e}b"),
        ("alice\u{2060}", ""),
        ("alice", &long),
        (&long, ""),
    ] {
        let refused = reason(by, why).check();
        assert!(matches!(refused, Err(Error::Refused(_))), "{by:?} {why:?}");
    }
}

/// By force at once: owners are not asked.
fn rules(force: bool, back: bool) -> Rules {
    let at_once = Patience {
        effect: Duration::ZERO,
        silence: Duration::ZERO,
    };
    Rules {
        force: force.then_some(at_once),
        back,
        unknown: false,
    }
}

#[tokio::test]
async fn a_checkpoint_moves_with_a_higher_epoch_and_no_owner() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(9)).await;
    let done = change(&desk, "0", 50, Rules::default()).await;
    assert_eq!(
        (done.verdict, done.after.epoch),
        (Verdict::Change, Epoch(4))
    );
    let seen = desk.seen().await;
    let told: Vec<&str> = seen.history.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        told,
        ["alice set the checkpoint of 0 from 10 to 50 (to see): done"]
    );
    let now = seen.partition(&partition("0")).expect("there");
    assert_eq!((now.epoch, now.offset), (Epoch(4), Some(Offset(49))));
    assert_eq!((now.next_offset, &now.owner), (Some(Offset(50)), &None));
    let back = change(&desk, "0", 10, Rules::default()).await;
    assert_eq!(back.verdict, Verdict::Back);
    let back = change(&desk, "0", 0, rules(false, true)).await;
    assert_eq!((back.after.offset, back.after.epoch), (None, Epoch(5)));
    let again = change(&desk, "0", 0, rules(false, true)).await;
    assert_eq!(again.verdict, Verdict::Same);
    let nobody = change(&desk, "7", 0, rules(true, true)).await;
    assert_eq!(nobody.verdict, Verdict::Unknown);
}

/// A stopped group has no worker that would do it.
#[tokio::test]
async fn what_is_told_by_hand_has_the_oldest_lines_go() {
    // Somebody else appends at the same time.
    let (desk, meddled) = meddled(When::BeforeWrite("events"), |desk| {
        Box::pin(async move { event(&desk, 1_006).await })
    });
    desk.group().await;
    desk.owned("0", None, Some(9)).await;
    for number in 1..=1_005 {
        event(&desk, number).await;
    }
    let numbers = async || -> Vec<u64> {
        let history = desk.seen().await.history;
        history.iter().map(|line| line.number).collect()
    };
    meddled.arm();
    change(&desk, "0", 50, Rules::default()).await;
    assert!(meddled.has_come());
    // It made room for its own, and knew of no other.
    assert_eq!(numbers().await, (7..=1_007).collect::<Vec<u64>>());
    for next in 51..60 {
        change(&desk, "0", next, Rules::default()).await;
        assert_eq!(numbers().await.len(), chronicle::KEPT);
    }
    let told = desk.seen().await.history;
    assert!(told[999].text.contains("of 0 from 58 to 59"), "{told:?}");
}

async fn event(desk: &Desk, number: u64) {
    let event = EventRecord {
        at: 1,
        worker: worker("worker-0"),
        kind: EventKind::Plan,
        text: "planned".into(),
        moves: None,
        nonce: parti_core::ids::Nonce(number),
    };
    desk.put(Key::Event(number), Record::Event(Arc::new(event)))
        .await;
}

#[tokio::test]
async fn a_partition_that_is_named_twice_is_changed_once() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(9)).await;
    desk.owned("1", None, Some(9)).await;
    for (rules, next) in [(rules(false, true), 50), (rules(true, true), 60)] {
        let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
        // The last wish for a partition counts.
        let wanted = [("0", 7), ("1", next), ("0", next), ("0", next)];
        let wanted = wanted.map(|(id, next)| Wanted::at(partition(id), Offset(next)));
        let planned = checkpoints.plan(wanted.into(), rules);
        let ids: Vec<&str> = planned.iter().map(|one| one.partition.as_str()).collect();
        assert_eq!(ids, ["0", "1"]);
        let applied = checkpoints.apply(planned, rules, &reason()).await;
        let applied = applied.expect("writable");
        assert_eq!(applied.changes.len(), 2);
        let seen = desk.seen().await;
        for id in ["0", "1"] {
            let now = seen.partition(&partition(id)).expect("there");
            assert_eq!(now.next_offset, Some(Offset(next)));
        }
    }
    let told = desk.seen().await.history;
    assert_eq!(told.len(), 2, "a line for each command: {told:?}");
    assert!(told[1].text.contains("of 0 from 50 to 60, 1 from 50 to 60"));
}

#[tokio::test]
async fn what_is_served_is_left_alone_unless_paused_or_forced() {
    let desk = Desk::new();
    desk.group().await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    desk.owned("0", Some(("worker-0", life)), Some(9)).await;
    // Its owner may be further than that.
    let as_recorded = change(&desk, "0", 10, Rules::default()).await;
    assert_eq!(as_recorded.verdict, Verdict::Served);
    let refused = change(&desk, "0", 20, Rules::default()).await;
    assert_eq!(refused.verdict, Verdict::Served);
    assert_eq!(refused.served_by, Some(worker("worker-0")));
    let forced = change(&desk, "0", 20, rules(true, false)).await;
    assert_eq!(
        (forced.verdict, forced.after.epoch),
        (Verdict::Change, Epoch(4))
    );

    desk.owned("0", Some(("worker-0", life)), Some(9)).await;
    desk.decide(|overrides| overrides.pause(&partition("0")))
        .await;
    let paused = change(&desk, "0", 20, Rules::default()).await;
    assert_eq!(paused.verdict, Verdict::Change);

    desk.owned("1", Some(("worker-0", Incarnation(life.0 - 1))), None)
        .await;
    let of_a_dead_one = change(&desk, "1", 20, Rules::default()).await;
    assert_eq!(of_a_dead_one.verdict, Verdict::Change);
}

/// Only its own life's end, or a later life, shows that an owner is gone.
#[tokio::test]
async fn an_owner_that_no_session_shows_to_be_gone_is_left_alone_unless_forced() {
    let desk = Desk::new();
    desk.group().await;
    let over = desk.session("worker-0", SessionStatus::Evicted).await;
    let next = Incarnation(over.0 + 1);
    for (id, owner, life, verdict) in [
        ("0", "worker-0", over, Verdict::Change),
        ("1", "worker-0", Incarnation(over.0 - 1), Verdict::Change),
        // It came back, and what was read of it is old.
        ("2", "worker-0", next, Verdict::Served),
        // It is new, and what was read is from before it came.
        ("3", "worker-1", next, Verdict::Served),
    ] {
        desk.owned(id, Some((owner, life)), Some(9)).await;
        let asked = change(&desk, id, 20, Rules::default()).await;
        assert_eq!(asked.verdict, verdict, "{owner} {life}");
        let is_served = (verdict == Verdict::Served).then(|| worker(owner));
        assert_eq!(asked.served_by, is_served);
        // Its record may be lost for good: then its silence counts.
        let forced = change(&desk, id, 30, rules(true, false)).await;
        assert_eq!(forced.verdict, Verdict::Change, "{owner} {life}");
    }
}

#[tokio::test]
async fn a_worker_that_comes_back_while_records_are_read_is_not_fenced() {
    for between in ["workers", "partitions"] {
        let (desk, meddled) = meddled(When::AfterList(between), |desk| {
            Box::pin(async move {
                let life = desk.session("worker-0", SessionStatus::Live).await;
                desk.owned("0", Some(("worker-0", life)), Some(9)).await;
            })
        });
        desk.group().await;
        let over = desk.session("worker-0", SessionStatus::Evicted).await;
        desk.owned("0", Some(("worker-0", over)), Some(9)).await;
        meddled.arm();
        let asked = change(&desk, "0", 20, Rules::default()).await;
        assert!(meddled.has_come());
        assert_eq!(asked.verdict, Verdict::Served, "after {between}");
        let seen = desk.seen().await;
        let now = seen.partition(&partition("0")).expect("there");
        assert_eq!(now.owner, Some(worker("worker-0")), "after {between}");
        assert!(now.is_served());
    }
}

#[tokio::test]
async fn whoever_commits_meanwhile_is_overtaken_only_by_force() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(9)).await;
    for force in [false, true] {
        let allowed = rules(force, true);
        let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
        let planned = checkpoints.plan(vec![Wanted::at(partition("0"), Offset(5))], allowed);
        // Somebody takes it before the change lands.
        let life = desk.session("worker-0", SessionStatus::Live).await;
        desk.owned("0", Some(("worker-0", life)), Some(12)).await;
        let applied = checkpoints
            .apply(planned, allowed, &reason())
            .await
            .expect("writable");
        let expected = if force {
            Verdict::Change
        } else {
            Verdict::Served
        };
        assert_eq!(applied.changes[0].verdict, expected);
    }
    let seen = desk.seen().await;
    assert_eq!(
        seen.partition(&partition("0")).and_then(|p| p.offset),
        Some(Offset(4))
    );
}

#[tokio::test]
async fn an_import_jumps_over_the_epochs_it_names() {
    let desk = Desk::new();
    let all = Rules {
        unknown: true,
        ..Rules::default()
    };
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    assert!(!checkpoints.has_group());
    let wanted = Wanted {
        above: Epoch(1_000),
        done_above: vec![Offset(44)],
        ..Wanted::at(partition("0"), Offset(42))
    };
    let planned = checkpoints.plan(vec![wanted], all);
    checkpoints
        .apply(planned, all, &reason())
        .await
        .expect("writable");
    desk.group().await;
    let seen = desk.seen().await;
    let there = seen.partition(&partition("0")).expect("made");
    assert_eq!(
        (there.epoch, &there.done_above[..]),
        (Epoch(1_001), &[Offset(44)][..])
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_group_is_deleted_with_everything() {
    let desk = Desk::new();
    desk.group().await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    desk.session("worker-1", SessionStatus::Goodbye).await;
    for number in 0..2_500 {
        let id = number.to_string();
        desk.owned(&id, Some(("worker-0", life)), None).await;
    }
    desk.told("worker-0", life, &["0"], &[]).await;
    desk.decide(|overrides| overrides.pause(&partition("0")))
        .await;
    let deleted = delete_group(&desk.store, SILENCE).await.expect("deleted");
    let expected = Deleted {
        ended: 1,
        workers: 2,
        partitions: 2_500,
        others: 3,
    };
    assert_eq!(deleted, expected);
    for prefix in Prefix::ALL {
        assert_eq!(desk.store.list(prefix).await, Ok(vec![]), "{prefix}");
    }
    for key in [Key::Group, Key::Overrides] {
        assert_eq!(desk.store.read(&key).await, Ok(None), "{key}");
    }
    let again = delete_group(&desk.store, SILENCE).await;
    assert_eq!(again, Err(Error::NoGroup("g".into())));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_says_how_far_it_came() {
    for (answered, expected) in [(true, Reached::Nothing), (false, Reached::Closing)] {
        let line = Faulty::new(Arc::new(Memory::new()), 1);
        let store = GroupStore::new(Arc::new(line.clone()), "g").expect("a name");
        let desk = Desk { store };
        desk.group().await;
        desk.owned("0", None, Some(3)).await;
        // A read fails, or no try of the first write gets an answer.
        match answered {
            true => line.fail_next(),
            false => (0..5).for_each(|_| line.hold_next_write()),
        }
        let mut reached = Reached::default();
        let failed = delete_group_noting(&desk.store, SILENCE, &mut reached).await;
        assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
        assert_eq!(reached, expected);
        let left = desk.store.list(Prefix::Partitions).await.expect("readable");
        assert_eq!(left.len(), 1, "nothing was deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_renews_keeps_its_group() {
    let desk = Desk::new();
    desk.group().await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    desk.owned("0", None, Some(3)).await;
    let before = desk.store.read(&Key::Group).await;
    let renewing = async {
        tokio::time::sleep(SILENCE / 2).await;
        desk.renew("worker-0", Some(life), SessionStatus::Live, 1)
            .await;
    };
    let (refused, ()) = tokio::join!(delete_group(&desk.store, SILENCE), renewing);
    let Err(Error::Refused(why)) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.starts_with("worker-0 is live"), "{why}");
    assert_eq!(desk.store.read(&Key::Group).await, before);
    assert_eq!(desk.seen().await.partitions.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_interrupted_goes_on() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, None).await;
    // As far as closing the group, and then killed.
    let records = crate::inspect::Records::read(&desk.store)
        .await
        .expect("readable");
    super::delete::close(&desk.store, &records)
        .await
        .expect("closed");
    let seen = desk.seen().await;
    assert!(seen.closed, "{seen:?}");
    let Ok(Some(stored)) = desk.store.read(&Key::Group).await else {
        panic!("there")
    };
    assert!(matches!(stored.record, Record::Group(_)));
    let deleted = delete_group(&desk.store, SILENCE).await.expect("deleted");
    assert_eq!((deleted.partitions, deleted.others), (1, 1));
}

fn evict(name: &str, incarnation: Incarnation) -> Request {
    Request::Evict {
        worker: worker(name),
        incarnation,
        stay_away: false,
    }
}

const PATIENCE: Patience = Patience {
    effect: Duration::from_secs(60),
    silence: SILENCE,
};

#[tokio::test(start_paused = true)]
async fn without_a_leader_a_dead_worker_is_evicted_though_all_others_are_dead_too() {
    let desk = Desk::new();
    desk.group_of("leaderless").await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    desk.session("worker-1", SessionStatus::Evicted).await;
    let began = tokio::time::Instant::now();
    let done = request(&desk.store, evict("worker-0", life), reason(), PATIENCE).await;
    assert!(done.is_ok(), "{done:?}");
    assert!(began.elapsed() >= SILENCE, "not before it was silent");
    assert_eq!(
        desk.seen().await.workers[0].status,
        SessionStatus::Evicted,
        "its session is over"
    );
    let again = request(&desk.store, evict("worker-0", life), reason(), PATIENCE).await;
    assert!(
        again.is_ok(),
        "nobody lives, and nobody needs to: {again:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_leaves_alone_whoever_gives_up_by_itself() {
    let desk = Desk::new();
    desk.group_of("leaderless").await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    let giving_up = async {
        tokio::time::sleep(SILENCE / 2).await;
        desk.renew("worker-0", Some(life), SessionStatus::Free, 1)
            .await
    };
    let asked = request(&desk.store, evict("worker-0", life), reason(), PATIENCE);
    let (done, own) = tokio::join!(asked, giving_up);
    assert!(done.is_ok(), "{done:?}");
    let key = Key::Worker(worker("worker-0"));
    let found = desk.store.read(&key).await.expect("readable");
    assert_eq!(found.map(|stored| stored.revision), Some(own));
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_worker_dies_says_so_and_what_became_of_its_partitions() {
    let desk = Desk::new();
    desk.group_of("leaderless").await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    desk.session("worker-1", SessionStatus::Live).await;
    desk.owned("0", Some(("worker-0", life)), Some(3)).await;
    desk.owned("1", Some(("worker-0", life)), Some(3)).await;
    let dying = async {
        tokio::time::sleep(SILENCE / 2).await;
        desk.owned("1", None, Some(4)).await;
        desk.renew("worker-0", Some(life), SessionStatus::Evicted, 1)
            .await;
    };
    let drain = Request::Drain {
        worker: worker("worker-0"),
    };
    let (asked, ()) = tokio::join!(request(&desk.store, drain, reason(), PATIENCE), dying);
    let Err(Error::Overtaken(said)) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!(
        said,
        "the request to drain worker-0 was overtaken: worker-0 was gone before it had handed over \
         everything; others take over what it had from the last checkpoints, 1 partition so far \
         without an owner"
    );
    let told = desk.seen().await.history.pop().expect("a line").text;
    assert!(told.contains("drain worker-0 (to see): not done"), "{told}");
}

/// It ends its own session, as it is told, and nobody is left who could say that this is done.
#[tokio::test(start_paused = true)]
async fn the_eviction_of_the_last_one_with_a_leader_is_done_when_its_session_is_over() {
    let desk = Desk::new();
    desk.group().await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    let ending = async {
        while desk.seen().await.requests.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        desk.renew("worker-0", Some(life), SessionStatus::Dismissed, 1)
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        desk.renew("worker-0", Some(life), SessionStatus::Evicted, 2)
            .await;
    };
    let began = tokio::time::Instant::now();
    let asked = request(&desk.store, evict("worker-0", life), reason(), PATIENCE);
    let (done, ()) = tokio::join!(asked, ending);
    assert!(done.is_ok(), "{done:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "not before");
}

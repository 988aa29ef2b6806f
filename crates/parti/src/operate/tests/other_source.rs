//! A group that takes over another source than the one it began with.

use futures_util::future::BoxFuture;
use parti_core::ids::{Nonce, Revision, SourceId};
use parti_core::io::{Expect, Stored, Write, WriteOutcome};
use parti_core::record::{Layout, TopicRecord};

use super::force::Mute;
use super::*;
use crate::operate::other_source::OtherSource;

/// The source of [`Desk::group`] is 7.
const OTHER: u64 = 9;

fn other(topic: Option<&str>) -> OtherSource {
    OtherSource {
        identity: OTHER,
        topic: topic.map(str::to_owned),
        partitions: topic.map(|_| 1),
    }
}

async fn named(desk: &Desk) -> SourceId {
    let found = desk.store.read(&Key::Group).await.expect("readable");
    match found.expect("a group").record {
        Record::Group(record) => record.stream,
        other => panic!("{other:?}"),
    }
}

/// Has all partitions go on at 0 of the other source.
async fn reset(desk: &Desk) -> Result<Applied, Error> {
    reset_to(desk, 0, &mut TakeOver::default()).await
}

/// The same, at any place.
async fn reset_to(desk: &Desk, next: u64, reached: &mut TakeOver) -> Result<Applied, Error> {
    let checkpoints = Checkpoints::read(&desk.store).await?.seen_from(other(None));
    let ids: Vec<_> = desk
        .seen()
        .await
        .partitions
        .into_iter()
        .map(|one| one.id)
        .collect();
    let wanted = ids.into_iter().map(|id| Wanted::at(id, Offset(next)));
    let rules = rules(false, true);
    let planned = checkpoints.plan(wanted.collect(), rules);
    let never = std::future::pending();
    checkpoints
        .apply_noting(planned, rules, &reason(), never, reached)
        .await
}

/// Where each partition goes on.
async fn places(desk: &Desk) -> Vec<u64> {
    let seen = desk.seen().await.partitions.into_iter();
    seen.filter_map(|one| Some(one.next_offset?.0)).collect()
}

#[tokio::test]
async fn a_commit_of_a_frozen_worker_meets_a_newer_record_though_nothing_was_to_change() {
    let desk = Desk::new();
    desk.group().await;
    let life = desk.session("worker-0", SessionStatus::Evicted).await;
    desk.owned("0", Some(("worker-0", life)), None).await;
    let key = Key::Partition(partition("0"));
    let found = desk
        .store
        .read(&key)
        .await
        .expect("readable")
        .expect("there");
    let applied = reset(&desk).await.expect("taken over");
    assert_eq!(applied.changes[0].verdict, Verdict::Change);
    assert_eq!(named(&desk).await, OTHER.into());
    // It was on its way all the time.
    let late = Write {
        key,
        expect: Expect::At(found.revision),
        value: Some(found.record),
    };
    let outcome = desk.store.write(&[late]).await.pop();
    assert!(
        matches!(outcome, Some(WriteOutcome::Conflict(Some(_)))),
        "{outcome:?}"
    );
}

fn joins(desk: Desk) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        desk.session("worker-1", SessionStatus::Live).await;
    })
}

#[tokio::test]
async fn whoever_joins_before_anything_is_changed_keeps_the_source() {
    let (desk, meddled) = meddled(When::BeforeWrite("group"), joins);
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    meddled.arm();
    let mut reached = TakeOver::default();
    let refused = reset_to(&desk, 0, &mut reached).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(reached, TakeOver::Untouched);
    assert!(meddled.has_come());
    assert_eq!(named(&desk).await, 7.into());
    let seen = desk.seen().await;
    assert_eq!(seen.partitions[0].next_offset, Some(Offset(4)));
}

/// Half of the checkpoints may be set by then: whoever joined now would believe the others.
#[tokio::test]
async fn a_take_over_that_is_interrupted_lets_nobody_join_and_goes_on_later() {
    let (desk, meddled) = meddled(When::BeforeWrite("partitions"), joins);
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    meddled.arm();
    let mut reached = TakeOver::default();
    let interrupted = reset_to(&desk, 0, &mut reached).await;
    assert!(
        matches!(interrupted, Err(Error::Unfinished(_))),
        "{interrupted:?}"
    );
    assert_eq!(reached, TakeOver::Held);
    let between = named(&desk).await;
    assert!(
        ![7, OTHER].map(SourceId::from).contains(&between),
        "neither joins"
    );
    let stays = reset(&desk).await;
    assert!(
        matches!(stays, Err(Error::Refused(_))),
        "it lives: {stays:?}"
    );
    assert_eq!(named(&desk).await, between);
    desk.session("worker-1", SessionStatus::Goodbye).await;
    let done = reset_to(&desk, 0, &mut reached).await;
    done.expect("taken over");
    assert_eq!(reached, TakeOver::Adopted);
    assert_eq!(named(&desk).await, OTHER.into());
    let told: Vec<String> = super::force::told(&desk).await;
    let taken = told.iter().filter(|line| line.contains("another source"));
    assert_eq!(taken.count(), 1, "{told:?}");
}

/// Somebody else takes it over, too, to go on at 2, and comes to the end.
fn another(desk: Desk) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut reached = TakeOver::default();
        let done = reset_to(&desk, 2, &mut reached).await;
        done.expect("taken over");
        assert_eq!(reached, TakeOver::Adopted);
    })
}

/// The other one comes before the group is held, or before the first checkpoint is written.
#[tokio::test]
async fn of_two_at_once_only_one_sets_checkpoints() {
    for (of, expected) in [
        ("group", TakeOver::Untouched),
        ("partitions", TakeOver::Held),
    ] {
        let (desk, meddled) = meddled(When::BeforeWrite(of), another);
        desk.group().await;
        desk.owned("0", None, Some(3)).await;
        desk.owned("1", None, Some(3)).await;
        meddled.arm();
        let mut reached = TakeOver::default();
        let ended = reset_to(&desk, 0, &mut reached).await;
        let Err(Error::Unfinished(why)) = ended else {
            panic!("{ended:?}")
        };
        // There is no worker to be stopped: it was another operator.
        for part in ["another operator was quicker", "parti group history"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(!why.contains("stop"), "{why}");
        assert!(meddled.has_come());
        assert_eq!(reached, expected);
        assert_eq!(
            named(&desk).await,
            OTHER.into(),
            "the other one was through"
        );
        assert_eq!(places(&desk).await, [2, 2], "{of}");
    }
}

/// Of the others, too: here of somebody who names no source. He comes before the checkpoints are
/// written, or when they are.
#[tokio::test]
async fn what_somebody_else_sets_meanwhile_is_neither_written_over_nor_adopted() {
    for of in ["partitions", "events"] {
        let (desk, meddled) = meddled(When::BeforeWrite(of), |desk| {
            Box::pin(async move {
                let done = change(&desk, "1", 2, rules(false, true)).await;
                assert_eq!(done.verdict, Verdict::Change);
            })
        });
        desk.group().await;
        desk.owned("0", None, Some(3)).await;
        desk.owned("1", None, Some(3)).await;
        meddled.arm();
        let mut reached = TakeOver::default();
        let ended = reset_to(&desk, 0, &mut reached).await;
        let Err(Error::Unfinished(why)) = ended else {
            panic!("{ended:?}")
        };
        assert!(why.contains("partition 1"), "{why}");
        assert_eq!(reached, TakeOver::Held);
        assert_eq!(places(&desk).await, [0, 2], "{of}");
        let done = reset_to(&desk, 0, &mut reached).await;
        done.expect("the rest");
        assert_eq!(reached, TakeOver::Adopted);
        assert_eq!(places(&desk).await, [0, 0]);
    }
}

/// Its session is over, and its commit keeps the epoch.
#[tokio::test]
async fn a_late_commit_of_an_old_owner_is_written_over() {
    let (desk, meddled) = meddled(When::BeforeWrite("partitions"), |desk| {
        Box::pin(async move { desk.owned("0", None, Some(9)).await })
    });
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    meddled.arm();
    reset(&desk).await.expect("taken over");
    assert!(meddled.has_come());
    assert_eq!(named(&desk).await, OTHER.into());
    assert_eq!(places(&desk).await, [0]);
}

/// It has gone again by the time that sessions are looked at.
#[tokio::test]
async fn whoever_comes_and_goes_before_the_group_is_held_leaves_no_checkpoint_behind() {
    let (desk, meddled) = meddled(When::BeforeWrite("group"), |desk| {
        Box::pin(async move { desk.owned("1", None, Some(5)).await })
    });
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    meddled.arm();
    let mut reached = TakeOver::default();
    let refused = reset_to(&desk, 0, &mut reached).await;
    let Err(Error::Refused(why)) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains("partition 1"), "{why}");
    assert!(why.contains("nothing was changed"), "{why}");
    assert_eq!(reached, TakeOver::Untouched);
    assert_eq!(named(&desk).await, 7.into(), "as it was");
    assert_eq!(places(&desk).await, [4, 6]);
    reset(&desk).await.expect("now with both");
    assert_eq!(named(&desk).await, OTHER.into());
    assert_eq!(places(&desk).await, [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_time_leaves_the_group_as_it_was() {
    let desk = Desk::new();
    desk.group().await;
    desk.session("worker-0", SessionStatus::Live).await;
    desk.owned("0", None, Some(3)).await;
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let checkpoints = checkpoints.seen_from(other(None));
    let rules = Rules {
        force: Some(SILENCE.into()),
        ..rules(true, true)
    };
    let planned = checkpoints.plan(vec![Wanted::at(partition("0"), Offset(0))], rules);
    let (stop, mut reached) = (tokio::time::sleep(SILENCE / 2), TakeOver::default());
    let why = reason();
    let stopped = checkpoints.apply_noting(planned, rules, &why, stop, &mut reached);
    let changes = stopped.await.expect("stopped").changes;
    assert_eq!(changes[0].verdict, Verdict::Served);
    assert_eq!(reached, TakeOver::Untouched);
    assert_eq!(
        (named(&desk).await, places(&desk).await),
        (7.into(), vec![4])
    );
}

#[tokio::test(start_paused = true)]
async fn a_take_over_that_fails_or_is_dropped_says_how_far_it_came() {
    for expected in [TakeOver::Untouched, TakeOver::Holding] {
        let line = Faulty::new(Arc::new(Memory::new()), 1);
        let store = GroupStore::new(Arc::new(line.clone()), "g").expect("a name");
        let desk = Desk { store };
        desk.group().await;
        desk.owned("0", None, Some(3)).await;
        let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
        let checkpoints = checkpoints.seen_from(other(None));
        let rules = rules(false, true);
        let planned = checkpoints.plan(vec![Wanted::at(partition("0"), Offset(0))], rules);
        match expected {
            // A read.
            TakeOver::Untouched => line.fail_next(),
            // The hold, as often as it is tried.
            _ => (0..5).for_each(|_| line.hold_next_write()),
        }
        let (never, mut reached) = (std::future::pending(), TakeOver::default());
        let failed = checkpoints
            .apply_noting(planned, rules, &reason(), never, &mut reached)
            .await;
        assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
        assert_eq!(reached, expected);
    }
    // Checkpoints are never answered.
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    let store = GroupStore::new(Arc::new(Mute::new(&desk)), "g").expect("a name");
    let mute = Desk { store };
    let mut reached = TakeOver::default();
    let dropped = tokio::time::timeout(SILENCE, reset_to(&mute, 0, &mut reached)).await;
    assert!(dropped.is_err(), "{dropped:?}");
    assert_eq!(reached, TakeOver::Held);
}

#[tokio::test]
async fn a_topic_that_cannot_be_read_is_named() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    let mut checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    checkpoints.topics = vec![Stored {
        key: Key::Topic("orders".into()),
        revision: Revision(1),
        record: Record::Unreadable("of a newer version".into()),
    }];
    let checkpoints = checkpoints.seen_from(other(Some("orders")));
    let planned = checkpoints.plan(
        vec![Wanted::at(partition("0"), Offset(0))],
        rules(false, true),
    );
    let Err(Error::Refused(why)) = checkpoints.takes_over(&planned) else {
        panic!("refused")
    };
    assert!(why.starts_with("topics/orders cannot be read"), "{why}");
}

#[tokio::test]
async fn a_take_over_that_cannot_be_done_in_full_touches_nothing() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let checkpoints = checkpoints.seen_from(other(None));
    let wanted = vec![Wanted::at(partition("0"), Offset(0))];
    // Going back is not allowed.
    let planned = checkpoints.plan(wanted, Rules::default());
    let refused = checkpoints
        .apply(planned, Rules::default(), &reason())
        .await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(named(&desk).await, 7.into());
}

/// Whoever was told to serve it is dead and forgotten by then.
#[tokio::test(start_paused = true)]
async fn what_nobody_has_taken_yet_is_set_too() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    desk.told("worker-0", life, &["0", "1"], &[]).await;
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let checkpoints = checkpoints.seen_from(other(None));
    assert_eq!(checkpoints.keeps_source(), Some(worker("worker-0")));
    let wanted = ["0", "1"].map(|id| Wanted::at(partition(id), Offset(0)));
    let rules = rules(true, true);
    let planned = checkpoints.plan(wanted.to_vec(), rules);
    let applied = checkpoints.apply(planned, rules, &reason()).await;
    let verdicts = applied.expect("taken over").changes.into_iter();
    let verdicts: Vec<Verdict> = verdicts.map(|change| change.verdict).collect();
    assert_eq!(verdicts, [Verdict::Change, Verdict::Change]);
    assert_eq!(named(&desk).await, OTHER.into());
}

/// The service goes by the topic's name: with another one, nobody could work any more.
#[tokio::test]
async fn a_group_that_was_made_for_a_topic_takes_over_that_one_anew_and_no_other() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    let topic = TopicRecord {
        partitions: 1,
        layout: Layout::Xxh3Modulo,
        subject: None,
        strategy: None,
        nonce: Nonce(1),
    };
    let record = Record::Topic(Arc::new(topic));
    desk.put(Key::Topic("orders".into()), record).await;
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let wanted = vec![Wanted::at(partition("0"), Offset(0))];
    let rules = rules(false, true);
    for (topic, takes_over) in [
        (None, false),
        (Some("other"), false),
        (Some("orders"), true),
    ] {
        let checkpoints = checkpoints.clone().seen_from(other(topic));
        let planned = checkpoints.plan(wanted.clone(), rules);
        let done = checkpoints.apply(planned, rules, &reason()).await;
        assert_eq!(done.is_ok(), takes_over, "{topic:?}: {done:?}");
        let now = if takes_over { OTHER } else { 7 };
        assert_eq!(named(&desk).await, now.into(), "{topic:?}");
    }
}

/// Only of a source that tells no identity it may be that it is the same.
#[tokio::test]
async fn a_group_without_a_log_takes_no_source_over_and_one_of_an_untold_source_may_have_it() {
    for (began_with, is_moved) in [(SourceId::NoLog, false), (SourceId::Untold, true)] {
        for (identity, force) in [(0, false), (0, true), (OTHER, false), (OTHER, true)] {
            let desk = Desk::new();
            desk.group_with("leader", began_with).await;
            desk.owned("0", None, Some(3)).await;
            let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
            assert_eq!(checkpoints.has_no_log(), !is_moved);
            let source = OtherSource {
                identity,
                ..other(None)
            };
            let checkpoints = checkpoints.seen_from(source);
            let rules = rules(force, true);
            let planned = checkpoints.plan(vec![Wanted::at(partition("0"), Offset(0))], rules);
            let would = checkpoints.takes_over(&planned);
            let done = checkpoints.apply(planned, rules, &reason()).await;
            let place = if is_moved { 0 } else { 4 };
            assert_eq!(places(&desk).await, [place], "{began_with:?}, {identity}");
            assert_eq!(named(&desk).await, began_with);
            match is_moved {
                true => assert_eq!((would, done.is_ok()), (Ok(false), true)),
                false => {
                    let Err(Error::Refused(why)) = would else {
                        panic!("{would:?}")
                    };
                    assert!(why.contains("made without a log"), "{why}");
                    assert_eq!(done, Err(Error::Refused(why)));
                }
            }
        }
    }
}

/// What the group never heard of begins where the change says, not where its workers would.
#[tokio::test]
async fn all_are_those_that_the_other_source_was_made_with_too() {
    let desk = Desk::new();
    desk.group().await;
    desk.owned("0", None, Some(3)).await;
    desk.owned("7", None, Some(3)).await;
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let checkpoints = checkpoints.seen_from(OtherSource {
        partitions: Some(3),
        ..other(None)
    });
    let all = checkpoints.all();
    assert_eq!(all, ["0", "1", "2", "7"].map(partition));
    let gone = all.iter().filter(|id| checkpoints.is_gone(id));
    assert!(gone.eq([&partition("7")]));
    let rules = Rules {
        unknown: true,
        ..rules(false, true)
    };
    let at = |ids: &[PartitionId]| {
        let wanted = ids.iter().map(|id| Wanted::at(id.clone(), Offset(0)));
        checkpoints.plan(wanted.collect(), rules)
    };
    let left = at(&all[..2]);
    assert!(checkpoints.takes_over(&left).is_err(), "2 is left");
    let applied = checkpoints.apply(at(&all), rules, &reason()).await;
    assert_eq!(applied.expect("taken over").changes.len(), 4);
    assert_eq!(desk.seen().await.partition_ids(), all);
}

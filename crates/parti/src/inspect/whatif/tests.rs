//! What would happen in groups that operators have a hand in, from records written by hand.

use parti_core::ids::Incarnation;
use parti_core::key::Key;
use parti_core::record::{Pinned, Record};

use super::*;
use crate::inspect::tests::{Desk, partition, worker};

/// Two workers with three partitions each, worker-2 with none.
async fn group(coordination: &str) -> (Desk, [Incarnation; 3]) {
    let desk = Desk::new();
    desk.group_of(coordination).await;
    let mut lives = Vec::new();
    for number in 0..3 {
        let name = format!("worker-{number}");
        lives.push(desk.session(&name, SessionStatus::Live).await);
    }
    let lives = <[Incarnation; 3]>::try_from(lives).expect("three");
    for number in 0..6_usize {
        let owner = number / 3;
        let name = format!("worker-{owner}");
        let owner = Some((name.as_str(), lives[owner]));
        desk.owned(&number.to_string(), owner, Some(4)).await;
    }
    (desk, lives)
}

async fn case(desk: &Desk) -> Case {
    Case::of(&desk.seen().await, None).expect("a case")
}

async fn fair_share(desk: &Desk) -> Outcome {
    let case = case(desk).await;
    let outcomes = outcomes(&case, &case, None, &[StrategyChoice::FairShare]);
    outcomes.into_iter().next().expect("one")
}

/// How many each worker has afterwards.
fn after(outcome: &Outcome) -> Vec<usize> {
    outcome.workers.values().map(|share| share.after).collect()
}

fn goes_to(outcome: &Outcome, id: &str) -> Option<String> {
    let placed = &outcome.partitions[&partition(id)];
    placed.after.as_ref().map(ToString::to_string)
}

#[tokio::test]
async fn whoever_is_drained_or_leaves_gets_nothing() {
    let (desk, lives) = group("leader").await;
    assert_eq!(after(&fair_share(&desk).await), [2, 2, 2]);
    desk.decide(|overrides| overrides.drain(&worker("worker-1"), lives[1]))
        .await;
    let drained = fair_share(&desk).await;
    assert_eq!(after(&drained), [3, 0, 3]);
    assert_eq!(drained.workers[&worker("worker-1")].before, 3);
    // Those of the drained one have to go somewhere.
    assert_eq!((drained.moved, drained.placed), (0, 3));
    assert_eq!(drained.balance_by_count, 1.0);
    let leaving = SessionStatus::Leaving;
    desk.renew("worker-2", Some(lives[2]), leaving, 1).await;
    assert_eq!(after(&fair_share(&desk).await), [6, 0, 0]);
    let case = case(&desk).await;
    let apart = ["worker-0", "worker-1", "worker-2"].map(|id| case.apart(&worker(id)));
    assert_eq!(apart, [None, Some(Apart::Drained), Some(Apart::Leaving)]);
    // A later life serves like any other.
    desk.session("worker-1", SessionStatus::Live).await;
    assert_eq!(after(&fair_share(&desk).await), [3, 3, 0]);
}

#[tokio::test]
async fn a_worker_that_joins_is_not_taken_for_a_drained_one_that_died() {
    let (desk, lives) = group("leader").await;
    desk.decide(|overrides| overrides.drain(&worker("worker-1"), lives[1]))
        .await;
    desk.renew("worker-1", Some(lives[1]), SessionStatus::Evicted, 1)
        .await;
    let before = case(&desk).await;
    let wish = Wish {
        add: 1,
        ..Wish::default()
    };
    let joined = before.changed(&wish).expect("it can");
    let outcomes = outcomes(&before, &joined, None, &[StrategyChoice::FairShare]);
    assert_eq!(after(&outcomes[0]), [2, 2, 2], "worker-1 is free");
}

#[tokio::test]
async fn what_is_paused_is_nobodys_and_pins_hold() {
    let (desk, lives) = group("leader").await;
    desk.decide(|overrides| {
        overrides.pause(&partition("0"));
        for (id, to, life) in [
            ("1", "worker-2", None),
            ("4", "worker-0", Some(lives[0])),
            // Both are of no worker that is there.
            ("2", "worker-1", Some(Incarnation(lives[1].0 - 1))),
            ("5", "worker-9", None),
        ] {
            overrides.pin(Pinned {
                partition: partition(id),
                worker: worker(to),
                incarnation: life,
            });
        }
    })
    .await;
    let outcome = fair_share(&desk).await;
    assert_eq!(goes_to(&outcome, "0"), None);
    assert_eq!((outcome.unserved, case(&desk).await.paused()), (0, 1));
    assert_eq!(goes_to(&outcome, "1").as_deref(), Some("worker-2"));
    assert_eq!(goes_to(&outcome, "4").as_deref(), Some("worker-0"));
    assert_eq!(goes_to(&outcome, "2").as_deref(), Some("worker-0"));
    assert_ne!(goes_to(&outcome, "5").as_deref(), Some("worker-9"));
    assert_eq!(after(&outcome).iter().sum::<usize>(), 5);
    let pinned = |group: &Group| -> Vec<String> {
        let all = group.partitions.iter();
        let all = all.filter_map(|one| Some(format!("{} {}", one.id, one.pinned_to.as_ref()?)));
        all.collect()
    };
    let seen = desk.seen().await;
    assert_eq!(
        pinned(&seen),
        ["1 worker-2", "4 worker-0", "5 worker-9"],
        "what was moved to a life that is over stays nowhere"
    );
}

/// A pause moves nothing but what is paused: everybody computes the same, from who is there.
#[tokio::test]
async fn without_a_leader_what_is_there_now_does_not_count() {
    let (desk, _) = group("leaderless").await;
    let before = fair_share(&desk).await;
    desk.decide(|overrides| overrides.pause(&partition("0")))
        .await;
    let paused = fair_share(&desk).await;
    for id in ["1", "2", "3", "4", "5"] {
        assert_eq!(goes_to(&paused, id), goes_to(&before, id), "{id}");
    }
    assert_eq!(goes_to(&paused, "0"), None);
    let case = case(&desk).await;
    let input = Input {
        workers: &case.workers,
        partitions: &case.partitions,
        previous: &[],
        capacity: None,
    };
    let anew = from_choice(&StrategyChoice::FairShare).assign(input);
    let anew = owners(&case, &anew);
    for (id, placed) in &before.partitions {
        assert_eq!(placed.after.as_ref(), anew.get(id), "{id}");
    }
}

#[tokio::test]
async fn a_degraded_worker_keeps_what_it_has_where_there_is_a_leader() {
    for (coordination, expected) in [("leader", [2, 3, 1]), ("leaderless", [3, 0, 3])] {
        let (desk, lives) = group(coordination).await;
        let key = Key::Worker(worker("worker-1"));
        desk.renew("worker-1", Some(lives[1]), SessionStatus::Live, 1)
            .await;
        let found = desk.store.read(&key).await.expect("readable");
        let Some(Record::Worker(session)) = found.map(|stored| stored.record) else {
            panic!("a session")
        };
        let mut session = (*session).clone();
        session.degraded = Some("its source does not answer".into());
        desk.put(key, Record::Worker(session.into())).await;
        let outcome = fair_share(&desk).await;
        assert_eq!(after(&outcome), expected, "{coordination}");
    }
}

#[test]
fn the_groups_own_strategy_comes_first_with_its_parameters() {
    let named = |strategy: Option<&str>| {
        let mut case = Case::numbered(2, partition::numbered(4)).expect("a case");
        case.standing.strategy = strategy.map(str::to_owned);
        let all = case.strategies();
        let names = all.iter().map(|choice| from_choice(choice).name());
        let own = outcomes(&case, &case, None, &all).into_iter();
        let own: Vec<bool> = own.map(|outcome| outcome.own).collect();
        (names.collect::<Vec<_>>(), own)
    };
    let usual = "consistent_hash(virtual_nodes=150)";
    let few = "consistent_hash(virtual_nodes=9)";
    for (own, names) in [
        (Some(few), [few, "fair_share", "round_robin"]),
        (Some("round_robin"), ["round_robin", usual, "fair_share"]),
    ] {
        let (told, is_own) = named(own);
        assert_eq!(told, names);
        assert_eq!(is_own, [true, false, false]);
    }
    for own in [None, Some("active_standby")] {
        let (told, is_own) = named(own);
        assert_eq!(told, [usual, "fair_share", "round_robin"]);
        assert_eq!(is_own, [false; 3]);
    }
}

#[tokio::test]
async fn the_strategy_is_that_of_the_plan_or_of_a_group_without_a_leader() {
    let desk = Desk::new();
    desk.group_of("leaderless").await;
    assert_eq!(desk.seen().await.strategy, None);
    let found = desk.store.read(&Key::Group).await.expect("readable");
    let Some(Record::Group(group)) = found.map(|stored| stored.record) else {
        panic!("a group")
    };
    let mut group = (*group).clone();
    group.strategy = Some("fair_share".into());
    desk.put(Key::Group, Record::Group(group.into())).await;
    assert_eq!(desk.seen().await.strategy.as_deref(), Some("fair_share"));
}

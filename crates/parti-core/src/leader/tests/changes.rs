//! Leaves, crashes, returns, and changes of the partition list.

use super::*;
use crate::record::PlanState;

#[test]
fn a_leave_hands_over_at_once() {
    let mut world = World::settled(4, &["a", "b"]);
    world.leave("b");
    assert_eq!(
        world.say(),
        [
            "a v2 [p0 p1] p2<-b p3<-b",
            "plan v2 Stable Rebalancing, 2 moving: b leaving",
            "history: b leaves",
            "history: b leaving: 2 moves begun",
        ]
    );
    world.obey();
    assert_eq!(
        world.say(),
        ["b v3 []", "plan v3 Stable Rebalancing, 2 moving: b leaving"]
    );
    world.obey();
    assert_eq!(
        world.say(),
        [
            "a v4 [p0 p1 p2 p3]",
            "plan v4 Stable Rebalancing, 0 moving: b leaving"
        ]
    );
    world.obey();
    world.goodbye("b");
    assert_eq!(
        world.say(),
        [
            "forget b",
            "plan v4 Stable Stable, 0 moving: b left",
            "history: b left"
        ]
    );
    assert!(
        !world
            .planner
            .still_names(&id("b"), world.workers[&id("b")].member.incarnation)
    );
    world.workers.remove(&id("b"));
    assert_eq!(world.say(), [] as [&str; 0]);
}

#[test]
fn the_last_one_leaves_alone() {
    let mut world = World::settled(2, &["a"]);
    world.leave("a");
    assert_eq!(
        world.say()[1..],
        ["history: a leaves"],
        "nobody to hand over to"
    );
    assert_eq!(world.held(), "a[p0 p1]");
    world.goodbye("a");
    world.run();
    assert_eq!(world.plan().unserved[0].1, "no worker can take it");
    world.join("b");
    world.run();
    assert_eq!(
        world.held(),
        "b[p0 p1]",
        "better at once by a joiner than by nobody"
    );
}

#[test]
fn a_goodbye_before_the_handover_leaves_nothing_unserved() {
    let mut world = World::settled(4, &["a", "b"]);
    world.goodbye("b");
    assert_eq!(
        world.say(),
        [
            "a v2 [p0 p1 p2 p3]",
            "forget b",
            "plan v2 Stable Rebalancing, 0 moving: b left",
            "history: b left",
            "history: b left: 2 partitions placed",
        ]
    );
}

#[test]
fn a_crash_moves_only_what_was_lost() {
    // Even a strategy that would deal everything anew.
    let config = Config {
        settle_time: Some(secs(1)),
        ..Config::default()
    };
    let mut world = World::with(config, parts(6), Arc::new(Careless), None);
    ["a", "b", "c"].iter().for_each(|worker| world.join(worker));
    world.run_for(secs(1));
    assert_eq!(world.held(), "a[p0 p3] b[p1 p4] c[p2 p5]");
    world.pass(secs(60));
    world.crash("b");
    assert_eq!(
        world.say(),
        [
            "a v2 [p0 p3 p4]",
            "c v2 [p1 p2 p5]",
            "forget b",
            "plan v2 Stable Emergency, 0 moving: b lost",
            "history: b was lost",
            "history: b lost: 2 partitions placed",
        ]
    );
    let life = world.workers[&id("b")].member.incarnation;
    assert!(
        world.planner.still_names(&id("b"), life),
        "takers still need its mark"
    );
    world.obey();
    world.step();
    assert_eq!(world.plan().state, PlanState::Stable);
    assert!(!world.planner.still_names(&id("b"), life));
}

#[test]
fn a_worker_that_restarts_unnoticed_keeps_its_partitions() {
    let mut world = World::settled(4, &["a", "b"]);
    world.join("b");
    assert_eq!(
        world.say(),
        [
            "b v2 [p2 p3]",
            "plan v2 Stable Stable, 0 moving: first plan for 2 workers",
            "history: b is back, and keeps what it served",
        ]
    );
    world.run_for(secs(60));
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
    assert_eq!(world.moves, 0);
}

#[test]
fn a_worker_that_returns_after_its_eviction_waits_for_the_window() {
    let mut world = World::settled(4, &["a", "b"]);
    world.crash("b");
    world.run();
    world.join("b");
    world.run();
    assert_eq!(world.held(), "a[p0 p1 p2 p3] b[]");
    world.run_for(secs(2));
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
}

#[test]
fn a_crash_in_a_window_does_not_wait_for_it() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    world.join("d");
    world.run();
    world.crash("c");
    world.run();
    assert_eq!(world.held(), "a[p0 p1 p4] b[p2 p3 p5] d[]");
    world.run_for(secs(30));
    assert_eq!(world.held().matches('p').count(), 6);
    assert_ne!(world.records[&id("d")].serve.len(), 0);
}

#[test]
fn a_refresh_adds_and_removes_without_a_window() {
    let mut world = World::settled(4, &["a", "b"]);
    let list = ["p0", "p1", "p2", "p7", "p8"].map(|name| part(name, 1));
    world.refresh(list.to_vec());
    assert_eq!(
        world.say(),
        [
            "a v2 [p0 p1 p7] added[p7]",
            "b v2 [p2 p8] added[p8]",
            "plan v2 Stable Rebalancing, 0 moving: partition list changed: 2 added, 1 removed \
             added[p7 p8]",
            "history: partition list changed: 2 added, 1 removed, 0 reweighted",
            "history: partition list changed: 2 added, 1 removed: 2 partitions placed",
        ]
    );
    world.obey();
    assert_eq!(
        world.say(),
        ["plan v2 Stable Stable, 0 moving: partition list changed: 2 added, 1 removed"],
        "once taken, they are like any other"
    );
    assert_eq!(world.held(), "a[p0 p1 p7] b[p2 p8]");
}

#[test]
fn the_first_plan_adds_nothing() {
    let mut world = World::new(Config::default(), parts(1));
    world.join("a");
    world.run();
    world.refresh(parts(3));
    world.run_for(secs(10));
    assert_eq!(world.held(), "a[p0 p1 p2]");
    assert!(world.records[&id("a")].added.is_empty());
}

#[test]
fn the_mark_of_a_worker_that_died_before_it_let_go_of_a_removed_partition_stays() {
    let mut world = World::settled(4, &["a", "b"]);
    world.refresh(parts(3));
    world.step();
    let life = world.workers[&id("b")].member.incarnation;
    world.crash("b");
    world.run();
    assert!(world.planner.still_names(&id("b"), life));
}

#[test]
fn a_refresh_in_the_middle_of_a_move_drops_it() {
    let mut world = World::settled(2, &["a"]);
    world.join("b");
    world.run();
    world.pass(secs(1));
    world.step();
    assert_eq!(world.plan().moving, 1);
    world.refresh(parts(1));
    world.run();
    assert_eq!(world.plan().moving, 0);
    assert_eq!(world.held(), "a[p0] b[]");
}

#[test]
fn who_stands_in_the_way_is_told_to_let_go() {
    let mut world = World::settled(4, &["a", "b"]);
    let life = world.workers[&id("b")].member.incarnation;
    let blocked = |partition: &str| Blocked {
        partition: PartitionId::new(partition),
        owner: id("b"),
        incarnation: life,
    };
    world.fake("a").member.blocked_by = vec![blocked("p0"), blocked("p2"), blocked("gone")];
    assert_eq!(
        world.say(),
        [
            "b v2 [p2 p3] release[p0]",
            "plan v2 Stable Stable, 0 moving: first plan for 2 workers"
        ],
        "p2 is its own"
    );
    world.fake("a").member.blocked_by.clear();
    assert_eq!(world.say()[0], "b v3 [p2 p3]");
    world.fake("a").member.blocked_by = vec![Blocked {
        incarnation: Incarnation(99),
        ..blocked("p0")
    }];
    assert_eq!(world.say(), [] as [&str; 0], "not this life of b");
}

#[test]
fn a_partition_that_comes_back_before_its_owner_has_let_go_stays_there() {
    let mut world = World::settled(4, &["a", "b"]);
    let owner = world
        .served_by
        .get(&PartitionId::new("p1"))
        .cloned()
        .expect("served");
    let without: Vec<_> = parts(4)
        .into_iter()
        .filter(|p| p.id.as_str() != "p1")
        .collect();
    world.fake(owner.as_str()).stubborn = true;
    world.refresh(without.clone());
    world.run();
    // Whoever else has less by now would be the one to get it.
    world.refresh(parts(4));
    world.run();
    assert!(
        world.records[&owner]
            .serve
            .contains(&PartitionId::new("p1")),
        "it never let go"
    );
    assert_eq!(world.moves, 0);

    world.fake(owner.as_str()).stubborn = false;
    world.refresh(without);
    world.run();
    world.refresh(parts(4));
    world.run();
    let servers = world.records.values();
    let servers = servers.filter(|record| record.serve.contains(&PartitionId::new("p1")));
    assert_eq!(servers.count(), 1, "it had let go: anybody may have it");
}

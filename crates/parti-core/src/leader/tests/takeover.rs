//! A new leader goes on where the old one stopped.

use super::*;
use crate::record::{Lifecycle, PlanState};

#[test]
fn everybody_is_told_again_under_the_new_term() {
    let mut world = World::settled(4, &["a", "b"]);
    world.elect("b");
    assert_eq!(
        world.say(),
        [
            "a v2 [p0 p1]",
            "b v2 [p2 p3]",
            "plan v2 Stable Stable, 0 moving: b leads under term 2",
            "history: b takes over, and finds a, b",
        ]
    );
    assert!(world.records.values().all(|record| record.term == Term(2)));
    world.run_for(secs(60));
    assert_eq!(world.moves, 0);
}

#[test]
fn a_move_in_preparation_is_rolled_back_and_comes_again() {
    let mut world = World::settled(4, &["a"]);
    world.join("b");
    world.run();
    world.pass(secs(1));
    world.step();
    world.elect("b");
    let said = world.say();
    assert_eq!(said[..2], ["a v3 [p0 p1 p2 p3]", "b v3 []"]);
    assert_eq!(world.plan().state, PlanState::Scaling);
    world.run_for(secs(2));
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
}

#[test]
fn a_move_in_the_middle_of_its_release_goes_on() {
    let mut world = World::settled(4, &["a"]);
    world.join("b");
    world.run();
    world.pass(secs(1));
    world.step();
    world.obey();
    world.step();
    assert!(
        !world.records[&id("a")]
            .serve
            .contains(&PartitionId::new("p3"))
    );
    world.elect("b");
    let said = world.say();
    assert_eq!(
        said[..2],
        ["a v4 [p0 p1]", "b v4 [] p2<-a p3<-a"],
        "a may still hold them"
    );
    world.obey();
    assert_eq!(world.say()[0], "b v5 [p2 p3]");
}

#[test]
fn a_half_moved_partition_whose_owner_is_gone_goes_to_who_prepared_it() {
    let mut world = World::settled(4, &["a"]);
    world.join("b");
    world.run();
    world.pass(secs(1));
    world.step();
    world.obey();
    world.step();
    world.crash("a");
    world.elect("b");
    world.run();
    assert_eq!(world.held(), "b[p0 p1 p2 p3]");
    assert!(!world.records.contains_key(&id("a")));
}

#[test]
fn the_old_leaders_crash_is_an_emergency() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    world.crash("a");
    world.elect("b");
    let said = world.say();
    assert_eq!(
        said[..3],
        ["b v2 [p0 p2 p3]", "c v2 [p1 p4 p5]", "forget a"]
    );
    assert_eq!(world.plan().state, PlanState::Emergency);
    let life = world.workers[&id("a")].member.incarnation;
    assert!(world.planner.still_names(&id("a"), life));
    world.run();
    assert!(!world.planner.still_names(&id("a"), life));
}

#[test]
fn a_worker_that_came_back_meanwhile_keeps_its_partitions() {
    let mut world = World::settled(4, &["a", "b"]);
    world.join("a");
    world.elect("b");
    world.run_for(secs(30));
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
    assert_eq!(world.moves, 0);
}

#[test]
fn a_cleared_workers_assignment_is_forgotten() {
    let mut world = World::settled(4, &["a", "b", "c"]);
    world.workers.remove(&id("c"));
    world.elect("b");
    world.run();
    assert_eq!(
        world.records.keys().cloned().collect::<Vec<_>>(),
        [id("a"), id("b")]
    );
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
}

#[test]
fn a_whole_group_that_died_is_a_restart() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    ["a", "b", "c"]
        .iter()
        .for_each(|worker| world.crash(worker));
    world.pass(secs(60));
    world.join("a");
    world.elect("a");
    world.run();
    assert_eq!(world.plan().lifecycle, Lifecycle::ColdStart);
    assert_eq!(
        world.held(),
        "a[p0 p1]",
        "a is back, and keeps what it served"
    );
    world.join("c");
    world.run_for(secs(2));
    assert_eq!(world.held(), "a[p0 p1 p2] c[p3 p4 p5]");
}

#[test]
fn a_leader_that_dies_in_the_cold_start_leaves_a_cold_start() {
    let mut world = World::new(Config::default(), parts(2));
    world.join("a");
    world.join("b");
    world.run();
    world.crash("a");
    world.elect("b");
    let said = world.say();
    assert_eq!(said[0], "b v1 []", "nothing of the old leader may land");
    assert_eq!(world.plan().version, Version(0), "still without a plan");
    world.elect("b");
    world.refresh(parts(3));
    world.run_for(secs(5));
    assert_eq!(world.held(), "b[p0 p1 p2]");
    assert!(
        world.records[&id("b")].added.is_empty(),
        "the first plan adds nothing"
    );
}

#[test]
fn a_list_that_grew_while_nobody_led_was_added_to() {
    let mut world = World::settled(2, &["a", "b"]);
    world.list = parts(3).into();
    world.elect("b");
    let said = world.say();
    assert_eq!(said[0], "a v2 [p0 p2] added[p2]");
    world.elect("a");
    let said = world.say();
    assert_eq!(
        said[0], "a v3 [p0 p2] added[p2]",
        "not yet taken: still said"
    );
    world.run();
    world.elect("b");
    assert_eq!(world.say()[0], "a v4 [p0 p2]");
}

#[test]
fn two_records_that_both_serve_a_partition_are_settled_by_the_newer() {
    let mut world = World::settled(4, &["a", "b"]);
    let p3 = PartitionId::new("p3");
    world.fake("b").held.remove(&p3);
    let record = world.records.get_mut(&id("a")).expect("a record");
    record.serve.push(p3);
    record.version = Version(9);
    world.elect("b");
    let said = world.say();
    assert_eq!(said[..2], ["a v10 [p0 p1 p3]", "b v10 [p2]"]);
}

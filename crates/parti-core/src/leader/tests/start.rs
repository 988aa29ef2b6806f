//! Cold starts, joiners, restarts.

use super::*;
use crate::record::{Lifecycle, PlanState};

#[test]
fn a_cold_start_waits_until_membership_is_quiet() {
    let mut world = World::new(Config::default(), parts(4));
    world.join("a");
    assert_eq!(
        world.say(),
        [
            "plan v0 ColdStart Scaling, 0 moving: cold start: waiting for workers; \
             4 partitions unserved",
            "history: a joined",
        ]
    );
    world.pass(secs(3));
    world.join("b");
    assert_eq!(world.say(), ["history: b joined"]);
    world.pass(secs(3));
    assert_eq!(
        world.say(),
        [] as [&str; 0],
        "quiet for 3 seconds is not settled"
    );
    assert_eq!(world.planner.next_deadline(), world.now + secs(1));
    world.pass(secs(1));
    assert_eq!(
        world.say(),
        [
            "a v1 [p0 p1]",
            "b v1 [p2 p3]",
            "plan v1 PostColdStart Rebalancing, 0 moving: first plan for 2 workers",
            "history: first plan for 2 workers: 4 partitions placed",
        ]
    );
    world.obey();
    assert_eq!(
        world.say(),
        ["plan v1 Stable Stable, 0 moving: first plan for 2 workers"]
    );
    assert!(world.planner.is_settled());
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
}

#[test]
fn a_cold_start_that_never_settles_ends_with_its_window() {
    let mut world = World::new(Config::default(), parts(2));
    let start = world.now;
    for n in 0..12 {
        world.join(&format!("w{n:02}"));
        world.run();
        assert!(world.records.is_empty(), "at {n}");
        world.pass(Duration::from_millis(2500));
    }
    assert_eq!(world.now, start + secs(30));
    world.run();
    assert_eq!(
        world.records.len(),
        12,
        "also those with nothing to serve are told"
    );
}

#[test]
fn expected_workers_end_a_cold_start_at_once() {
    let config = Config {
        expected_workers: Some(2),
        ..Config::default()
    };
    let mut world = World::new(config, parts(2));
    world.join("a");
    world.run();
    assert!(world.records.is_empty());
    world.join("b");
    world.run();
    assert_eq!(world.held(), "a[p0] b[p1]");
}

#[test]
fn without_windows_everything_is_at_once_and_a_leader_alone_serves_all() {
    let config = Config {
        cold_start_window: secs(0),
        planned_scale_window: secs(0),
        ..Config::default()
    };
    let mut world = World::new(config, parts(3));
    world.join("a");
    world.run();
    assert_eq!(world.held(), "a[p0 p1 p2]");
    world.join("b");
    world.run();
    assert_eq!(world.held(), "a[p0 p1] b[p2]");
}

#[test]
fn an_empty_list_is_a_plan_too() {
    let mut world = World::new(Config::default(), Vec::new());
    world.join("a");
    world.run_for(secs(5));
    assert_eq!(world.plan().lifecycle, Lifecycle::Stable);
    assert!(world.records[&id("a")].serve.is_empty());
}

#[test]
fn a_joiner_gets_its_share_after_the_planned_window() {
    let mut world = World::settled(4, &["a"]);
    world.join("b");
    assert_eq!(
        world.say(),
        [
            "plan v1 Stable Scaling, 0 moving: b joined",
            "history: b joined"
        ]
    );
    world.pass(secs(1));
    assert_eq!(
        world.say(),
        [
            "b v2 [] p2<-a p3<-a",
            "plan v2 Stable Rebalancing, 2 moving: b joined",
            "history: b joined: 2 moves begun",
        ]
    );
    world.obey();
    assert_eq!(
        world.say(),
        [
            "a v3 [p0 p1]",
            "plan v3 Stable Rebalancing, 2 moving: b joined"
        ]
    );
    world.obey();
    assert_eq!(
        world.say(),
        [
            "b v4 [p2 p3]",
            "plan v4 Stable Rebalancing, 0 moving: b joined"
        ]
    );
    world.obey();
    assert_eq!(world.say(), ["plan v4 Stable Stable, 0 moving: b joined"]);
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
}

#[test]
fn a_joiner_that_goes_within_the_window_costs_nothing() {
    let mut world = World::settled(4, &["a"]);
    world.join("b");
    world.run();
    world.crash("b");
    world.run_for(secs(30));
    assert_eq!(world.held(), "a[p0 p1 p2 p3]");
    assert_eq!(world.moves, 0);
}

#[test]
fn flapping_costs_at_most_one_share_per_window() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    for _ in 0..5 {
        let before = world.moves;
        world.crash("c");
        world.run();
        assert_eq!(world.moves - before, 2, "only what it had");
        world.pass(Duration::from_millis(500));
        for _ in 0..4 {
            // Comes and goes faster than the window closes: nothing more moves.
            world.join("c");
            world.run();
            world.pass(Duration::from_millis(900));
            world.crash("c");
            world.run();
        }
        assert_eq!(world.moves - before, 2);
        world.join("c");
        world.run_for(secs(20));
        assert_eq!(world.moves - before, 4);
    }
}

#[test]
fn many_losses_at_once_are_a_restart() {
    let mut world = World::settled(8, &["a", "b", "c", "d"]);
    world.crash("c");
    world.crash("d");
    assert_eq!(
        world.say(),
        [
            "plan v1 ColdStart Scaling, 0 moving: restart: 2 of 4 workers lost, waiting for them; \
             4 partitions unserved",
            "history: c was lost",
            "history: d was lost",
            "history: restart detected: 2 of 4 workers lost",
        ]
    );
    assert_eq!(
        world.held(),
        "a[p0 p1] b[p2 p3]",
        "survivors keep what they have"
    );
    assert!(
        world
            .planner
            .still_names(&id("c"), world.workers[&id("c")].member.incarnation)
    );
    world.join("c");
    assert_eq!(
        world.say(),
        [
            "c v2 [p4 p5]",
            "plan v2 ColdStart Scaling, 0 moving: restart: 2 of 4 workers lost, waiting for them; \
             2 partitions unserved",
            "history: c is back, and keeps what it served",
        ]
    );
    world.obey();
    world.pass(secs(1));
    world.run();
    assert_eq!(world.held(), "a[p0 p1 p6] b[p2 p3 p7] c[p4 p5]");
    assert_eq!(world.plan().lifecycle, Lifecycle::Stable);
    assert!(!world.records.contains_key(&id("d")));
}

#[test]
fn losses_far_apart_are_crashes() {
    let mut world = World::settled(8, &["a", "b", "c", "d"]);
    world.crash("c");
    world.run();
    world.pass(secs(7));
    world.crash("d");
    world.run();
    assert_eq!(world.held(), "a[p0 p1 p4 p6] b[p2 p3 p5 p7]");
    assert_eq!(world.plan().state, PlanState::Stable);
}

#[test]
fn the_second_loss_within_the_ttl_makes_it_a_restart() {
    let mut world = World::settled(8, &["a", "b", "c", "d"]);
    world.crash("c");
    world.run();
    world.pass(secs(3));
    world.crash("d");
    world.run();
    assert_eq!(world.plan().lifecycle, Lifecycle::ColdStart);
    world.run_for(secs(5));
    assert_eq!(world.plan().lifecycle, Lifecycle::Stable);
    assert_eq!(world.plan().unserved, []);
}

#[test]
fn one_of_two_lost_is_a_crash() {
    let mut world = World::settled(4, &["a", "b"]);
    world.crash("b");
    world.run();
    assert_eq!(world.held(), "a[p0 p1 p2 p3]");
}

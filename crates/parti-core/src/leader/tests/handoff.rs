//! Each party of a move fails at each step.

use super::*;
use crate::leader::moves::Handoff;
use crate::record::PlanState;

/// `b` joined `a`: `p2` and `p3` are being prepared by `b`.
fn preparing() -> World {
    let mut world = World::settled(4, &["a", "c"]);
    world.join("b");
    world.run();
    world.pass(secs(1));
    world.step();
    assert_eq!(world.plan().moving, 1);
    assert_eq!(
        world.records[&id("b")].prepare,
        [(PartitionId::new("p3"), id("c"))]
    );
    world
}

/// One step later: `c` was told to let go of `p3`.
fn revoking() -> World {
    let mut world = preparing();
    world.obey();
    assert_eq!(world.say()[0], "c v3 [p2]");
    world
}

fn handoffs(decisions: Vec<Decision>) -> Vec<Handoff> {
    let moved = |decision| match decision {
        Decision::Moved(handoff) => Some(handoff),
        _ => None,
    };
    decisions.into_iter().filter_map(moved).collect()
}

#[test]
fn a_handoff_is_timed_from_the_decision_and_its_pause_from_the_order_to_let_go() {
    let mut world = preparing();
    world.pass(secs(2));
    world.obey();
    assert_eq!(handoffs(world.step()), [], "told to let go");
    world.pass(secs(1));
    world.obey();
    assert_eq!(handoffs(world.step()), [], "the new owner is told");
    world.pass(secs(1));
    world.obey();
    let expected = Handoff {
        partition: PartitionId::new("p3"),
        from: id("c"),
        to: id("b"),
        took: secs(4),
        pause: secs(2),
        reason: "b joined".into(),
    };
    assert_eq!(handoffs(world.step()), [expected]);
    world.run();
    assert!(world.planner.granted.is_empty());
}

#[test]
fn a_handoff_whose_new_owner_dies_is_none() {
    let mut world = revoking();
    world.obey();
    world.step();
    assert_eq!(world.planner.granted.len(), 1);
    world.crash("b");
    assert_eq!(handoffs(world.step()), []);
    assert!(world.planner.granted.is_empty());
}

#[test]
fn a_plan_tells_its_cause() {
    let causes = |decisions: Vec<Decision>| -> Vec<String> {
        let planned = |d: &&Decision| matches!(d, Decision::Planned { .. });
        decisions.iter().filter(planned).map(render).collect()
    };
    let mut world = World::settled(4, &["a", "c"]);
    world.crash("c");
    assert_eq!(
        causes(world.step()),
        ["planned for crash: 2 placed, 0 moves"]
    );
    world.run();
    world.join("b");
    world.run();
    world.pass(secs(1));
    assert_eq!(
        causes(world.step()),
        ["planned for join: 0 placed, 2 moves"]
    );
    world.run();
    world.leave("b");
    assert_eq!(
        causes(world.step()),
        ["planned for leave: 0 placed, 2 moves"]
    );
}

#[test]
fn the_new_owner_dies_while_preparing() {
    let mut world = preparing();
    world.crash("b");
    let said = world.say();
    assert_eq!(said[0], "forget b");
    world.run();
    assert_eq!(world.held(), "a[p0 p1] c[p2 p3]");
    assert_eq!(world.moves, 0);
}

#[test]
fn the_new_owner_dies_while_the_old_one_lets_go() {
    for released in [false, true] {
        let mut world = revoking();
        if released {
            world.obey();
        }
        world.crash("b");
        assert_eq!(world.say()[0], "c v4 [p2 p3]");
        world.run();
        assert_eq!(world.held(), "a[p0 p1] c[p2 p3]");
    }
}

#[test]
fn the_new_owner_dies_and_the_old_one_leaves() {
    let mut world = revoking();
    world.leave("c");
    world.crash("b");
    let said = world.say();
    assert!(
        !said
            .iter()
            .any(|line| line.starts_with("c ") && line.contains("[p2 p3]")),
        "c is not told to serve again what it was told to let go of: {said:?}"
    );
    world.run();
    assert_eq!(world.held(), "a[p0 p1 p2 p3] c[]");
}

#[test]
fn the_new_owner_dies_after_the_move() {
    let mut world = revoking();
    world.obey();
    assert_eq!(world.say()[0], "b v4 [p3]");
    world.crash("b");
    world.run();
    assert_eq!(world.held(), "a[p0 p1] c[p2 p3]");
}

#[test]
fn the_old_owner_dies_while_the_new_one_prepares_or_waits() {
    for mut world in [preparing(), revoking()] {
        world.crash("c");
        let said = world.say();
        assert_eq!(said[0], format!("b v{} [p2 p3]", world.plan().version));
        assert_eq!(said[1], "forget c");
        assert_eq!(world.plan().state, PlanState::Emergency);
        world.run();
        assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
    }
}

#[test]
fn both_die() {
    for mut world in [preparing(), revoking()] {
        world.crash("b");
        world.crash("c");
        world.run_for(secs(40));
        assert_eq!(world.held(), "a[p0 p1 p2 p3]");
    }
}

#[test]
fn the_old_owner_restarts_unnoticed() {
    for mut world in [preparing(), revoking()] {
        world.join("c");
        world.run();
        assert_eq!(
            world.held(),
            "a[p0 p1] b[p3] c[p2]",
            "its new life owned nothing of p3"
        );
    }
}

#[test]
fn the_new_owner_restarts_unnoticed() {
    let mut world = preparing();
    world.join("b");
    world.run();
    assert_eq!(
        world.held(),
        "a[p0 p1] b[] c[p2 p3]",
        "it has prepared nothing"
    );
    world.run_for(secs(10));
    assert_eq!(
        world.held(),
        "a[p0 p1] b[p3] c[p2]",
        "its share comes with the next window"
    );
    let mut world = revoking();
    world.join("b");
    world.run();
    assert_eq!(world.held(), "a[p0 p1] b[p3] c[p2]");
}

#[test]
fn the_new_owner_leaves_while_preparing() {
    let mut world = preparing();
    world.leave("b");
    assert_eq!(world.say()[0], "b v3 []");
    world.run();
    assert_eq!(world.held(), "a[p0 p1] b[] c[p2 p3]");
}

#[test]
fn one_that_never_gets_ready_is_rolled_back_and_left_alone_ever_longer() {
    let mut world = preparing();
    world.fake("b").unready = true;
    world.obey();
    world.pass(secs(10));
    assert_eq!(
        world.say(),
        [
            "b v3 []",
            "plan v3 Stable Stable, 0 moving: b joined",
            "history: b did not get ready in time: 1 move rolled back",
        ]
    );
    world.obey();
    assert_eq!(world.say(), [] as [&str; 0]);
    // Suspended for 10 seconds, then a settle time, then the next try.
    world.run_for(secs(10));
    assert_eq!(world.plan().state, PlanState::Scaling);
    world.run_for(secs(1));
    assert_eq!(world.plan().moving, 1);
    world.run_for(secs(10));
    assert_eq!(world.plan().moving, 0, "rolled back again");
    world.run_for(secs(20));
    assert_eq!(world.plan().moving, 0, "twice as long");
    world.fake("b").unready = false;
    world.run_for(secs(2));
    assert_eq!(world.held(), "a[p0 p1] b[p3] c[p2]");
}

#[test]
fn a_leaver_is_relieved_by_another_when_the_first_never_gets_ready() {
    let mut world = World::settled(2, &["a", "b", "c"]);
    world.fake("c").unready = true;
    world.leave("a");
    world.step();
    assert_eq!(world.records[&id("c")].prepare.len(), 1);
    world.run_for(secs(11));
    assert_eq!(world.held(), "a[] b[p0 p1] c[]");
}

#[test]
fn a_leftover_of_an_earlier_prepare_is_not_readiness() {
    let mut world = preparing();
    let p3 = PartitionId::new("p3");
    world.fake("b").member.ready = Ready {
        version: Version(1),
        partitions: vec![p3.clone()],
    };
    assert_eq!(world.say(), [] as [&str; 0]);
    world.fake("b").member.ready = Ready {
        version: Version(2),
        partitions: vec![p3],
    };
    assert_eq!(world.say()[0], "c v3 [p2]");
}

#[test]
fn a_release_counts_only_from_the_version_that_asked_for_it() {
    let mut world = revoking();
    assert_eq!(world.fake("c").member.released, Version(1));
    world.fake("c").member.released = Version(2);
    assert_eq!(world.say(), [] as [&str; 0]);
    world.obey();
    assert_eq!(world.say()[0], "b v4 [p3]");
}

#[test]
fn a_degraded_worker_keeps_what_it_has_and_gets_nothing_new() {
    let mut world = preparing();
    world.fake("b").member.degraded = true;
    assert_eq!(world.say()[0], "b v3 []", "rolled back at once");
    world.run_for(secs(60));
    assert_eq!(world.held(), "a[p0 p1] b[] c[p2 p3]");
    world.fake("a").member.degraded = true;
    world.leave("c");
    world.run_for(secs(5));
    assert_eq!(
        world.held(),
        "a[p0 p1] b[] c[p2 p3]",
        "nobody may take them, the leaver serves on"
    );
    world.fake("b").member.degraded = false;
    world.run_for(secs(5));
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3] c[]");
}

#[test]
fn a_slow_release_is_reported_once_and_waited_for() {
    let mut world = revoking();
    world.fake("c").stubborn = true;
    world.obey();
    world.pass(secs(10));
    assert_eq!(
        world.say(),
        ["trouble: partition p3: c takes long to release it"]
    );
    world.run_for(secs(1000));
    assert_eq!(
        world.records[&id("b")].prepare.len(),
        1,
        "a live owner is never seized"
    );
    world.fake("c").stubborn = false;
    world.run();
    assert_eq!(world.held(), "a[p0 p1] b[p3] c[p2]");
}

#[test]
fn a_share_that_moves_overtook_is_made_up_for_once_they_are_done() {
    let mut config = Config {
        settle_time: Some(secs(1)),
        ..Config::default()
    };
    // Nothing moves merely for balance.
    config.assignment.rebalance_cooldown = secs(3600);
    let mut world = World::with(config, parts(4), Arc::new(Careless), None);
    world.join("b");
    world.run_for(secs(10));
    world.join("c");
    world.fake("b").stubborn = true;
    world.run_for(secs(10));
    assert_eq!(world.plan().moving, 2, "b lets go of p1 and p3, slowly");
    world.join("a");
    world.run_for(secs(10));
    assert_eq!(world.plan().moving, 4, "the rest of b's goes too");
    world.fake("b").stubborn = false;
    world.run();
    assert_eq!(
        world.held(),
        "a[p0 p3] b[p1] c[p2]",
        "p1 was meant to stay with b"
    );
}

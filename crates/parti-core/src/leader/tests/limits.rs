//! Capacity, threshold, cooldown, and size.

use super::*;

#[test]
fn what_does_not_fit_is_unserved_with_a_remedy() {
    let config = Config {
        settle_time: Some(secs(1)),
        ..Config::default()
    };
    let mut world = World::with(config, parts(5), Arc::new(Careless), Some(2));
    world.join("a");
    world.join("b");
    world.run_for(secs(1));
    assert_eq!(world.held(), "a[p0 p2] b[p1 p3]");
    let plan = world.plan();
    assert_eq!(
        plan.unserved,
        [(PartitionId::new("p4"), "over cap".to_string())]
    );
    assert_eq!(
        plan.reason,
        "first plan for 2 workers; 1 partition unserved, 1 of them over cap: add workers or raise \
         jetstream.subject_cap"
    );
    world.join("c");
    world.run_for(secs(30));
    assert!(world.plan().unserved.is_empty());
    assert_eq!(world.held().matches('p').count(), 5);
}

#[test]
fn what_is_over_cap_is_named_trouble_once_per_change() {
    let over = |decisions: &[Decision]| -> Vec<String> {
        let all = decisions.iter().map(render);
        all.filter(|line| line.starts_with("trouble")).collect()
    };
    let config = Config {
        cold_start_window: Duration::ZERO,
        planned_scale_window: Duration::ZERO,
        ..Config::default()
    };
    let mut world = World::with(config, parts(7), Arc::new(Even), Some(2));
    world.join("a");
    world.join("b");
    let trouble = |count| {
        format!(
            "trouble: {count} partitions over cap and served by nobody: every worker serves 2 \
             already; add workers or raise jetstream.subject_cap"
        )
    };
    assert_eq!(over(&world.run()), [trouble(3)]);
    world.leave("b");
    assert!(over(&world.run()).is_empty(), "still the same three");
    world.crash("b");
    assert_eq!(over(&world.run()), [trouble(5)]);
    for worker in ["c", "d", "e"] {
        world.join(worker);
    }
    assert!(over(&world.run()).is_empty(), "everything fits");
}

#[test]
fn a_crash_never_overfills_the_others() {
    let config = Config {
        settle_time: Some(secs(1)),
        ..Config::default()
    };
    let mut world = World::with(config, parts(6), Arc::new(Even), Some(2));
    ["a", "b", "c"].iter().for_each(|worker| world.join(worker));
    world.run_for(secs(1));
    world.pass(secs(60));
    world.crash("c");
    world.run();
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3]");
    assert_eq!(world.plan().unserved.len(), 2);
    let life = world.workers[&id("c")].member.incarnation;
    assert!(
        world.planner.still_names(&id("c"), life),
        "who takes them later needs its mark"
    );
    world.join("d");
    world.run_for(secs(2));
    assert_eq!(world.held(), "a[p0 p1] b[p2 p3] d[p4 p5]");
}

#[test]
fn a_cap_that_was_lowered_is_kept_by_the_next_leader() {
    let mut world = World::settled(4, &["a", "b"]);
    world.capacity = Some(1);
    world.elect("a");
    world.run_for(secs(5));
    assert_eq!(world.held(), "a[p0] b[p2]");
    assert_eq!(world.plan().unserved.len(), 2);
}

/// `a` has two of six, `b` four.
fn lopsided(threshold: f64) -> World {
    let config = Config {
        settle_time: Some(secs(1)),
        ..Config::default()
    };
    let mut world = World::new(config, parts(8));
    world.config.assignment.min_rebalance_threshold = threshold;
    world.elect("a");
    world.join("a");
    world.join("b");
    world.run_for(secs(1));
    assert_eq!(world.held(), "a[p0 p1 p2 p3] b[p4 p5 p6 p7]");
    world.refresh(parts(8)[2..].to_vec());
    world.run();
    world
}

#[test]
fn balance_alone_waits_for_the_cooldown() {
    let mut world = lopsided(0.15);
    assert_eq!(world.held(), "a[p2 p3] b[p4 p5 p6 p7]");
    assert_eq!(
        world.planner.next_deadline(),
        world.now + secs(10),
        "since the first plan"
    );
    world.run_for(secs(9));
    assert_eq!(world.moves, 0);
    world.run_for(secs(1));
    assert_eq!(world.held(), "a[p2 p3 p7] b[p4 p5 p6]");
    assert_eq!(world.plan().reason, "balance: 1.33 to 1.00");
    world.run_for(secs(100));
    assert_eq!(world.moves, 1);
}

#[test]
fn balance_alone_must_be_worth_it() {
    let mut world = lopsided(0.5);
    world.run_for(secs(100));
    assert_eq!(world.moves, 0);
    world.join("c");
    world.run_for(secs(2));
    assert_eq!(
        world.held(),
        "a[p2 p3] b[p4 p5] c[p6 p7]",
        "a joiner's share is never held back"
    );
    world.leave("a");
    world.run();
    assert_eq!(world.held(), "a[] b[p2 p4 p5] c[p3 p6 p7]", "nor a leave");
}

#[test]
fn whoever_has_nothing_is_given_a_share_though_the_heaviest_load_stays() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    world.refresh(parts(4));
    world.run();
    assert_eq!(world.held(), "a[p0 p1] b[p2] c[p3]");
    assert_eq!(world.plan().reason, "balance: 1 had nothing to serve");
    // One of more workers than partitions stays idle, and nothing moves for that.
    world.refresh(parts(2));
    world.run_for(secs(100));
    let (held, moves) = (world.held(), world.moves);
    world.run_for(secs(100));
    assert_eq!((world.held(), world.moves), (held, moves));
}

#[test]
fn weights_alone_are_a_matter_of_balance() {
    let mut world = World::settled(4, &["a", "b"]);
    let mut list = parts(4);
    list[0].weight = 7;
    world.refresh(list);
    world.run_for(secs(100));
    assert_eq!(world.moves, 0, "this strategy does not look at weights");
    assert_eq!(
        world.plan().fingerprint.partitions,
        crate::partition::hash(&world.list)
    );
}

#[test]
fn a_large_group_is_planned_in_one_step() {
    let config = Config {
        expected_workers: Some(64),
        ..Config::default()
    };
    let list = (0..5000).map(|n| part(&format!("p{n:04}"), 1)).collect();
    let mut world = World::new(config, list);
    (0..64).for_each(|n| world.join(&format!("w{n:02}")));
    world.step();
    assert_eq!(world.records.len(), 64);
    assert!(
        world
            .records
            .values()
            .all(|record| (78..=79).contains(&record.serve.len()))
    );
    world.obey();
    world.pass(secs(60));
    world.crash("w07");
    world.run();
    assert_eq!(
        world.moves,
        78.max(world.moves.min(79)),
        "only what was lost"
    );
}

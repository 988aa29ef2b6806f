//! What operators decide: drained workers, paused and pinned partitions.

use std::sync::Arc;

use super::*;
use crate::leader::requests::Sight;
use crate::leader::sessions::{Eviction, Evictions};
use crate::record::{OverridesRecord, Pinned};

impl World {
    fn decide(&mut self, change: impl FnOnce(&mut OverridesRecord)) {
        let mut overrides = (*self.planner.overrides).clone();
        change(&mut overrides);
        self.planner.override_by(self.now, Arc::new(overrides));
    }

    fn life(&mut self, name: &str) -> Incarnation {
        self.fake(name).member.incarnation
    }

    fn held_by(&mut self, name: &str) -> Vec<String> {
        let held = &self.fake(name).held;
        held.iter().map(|id| id.to_string()).collect()
    }

    /// An operator evicts a worker's present life.
    fn evict(&mut self, name: &str) -> Evictions {
        let life = self.life(name);
        let stay_away = false;
        let evictions = Evictions::from([(id(name), Eviction { life, stay_away })]);
        self.planner.evict(&evictions);
        evictions
    }

    fn pin(&mut self, partition: &str, worker: &str) {
        let pinned = Pinned {
            partition: PartitionId::new(partition),
            worker: id(worker),
            incarnation: None,
        };
        self.decide(|overrides| overrides.pin(pinned));
    }
}

#[test]
fn a_drained_worker_is_relieved_gets_nothing_and_comes_back() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    let life = world.life("b");
    world.decide(|overrides| overrides.drain(&id("b"), life));
    assert!(!world.planner.holds_nothing(&id("b"), life));
    world.run();
    assert!(world.planner.holds_nothing(&id("b"), life));
    assert_eq!(world.held_by("b").len(), 0);
    assert_eq!(world.held_by("a").len() + world.held_by("c").len(), 6);
    world.crash("c");
    world.run();
    assert_eq!(
        world.held_by("a").len(),
        6,
        "and what is lost goes elsewhere"
    );
    world.decide(|overrides| overrides.undrain(&id("b")));
    world.run();
    world.pass(secs(60));
    world.run();
    assert_eq!(world.held_by("b").len(), 3);
}

#[test]
fn a_drain_ends_with_the_life_it_was_meant_for() {
    let mut world = World::settled(4, &["a", "b"]);
    let life = world.life("b");
    world.decide(|overrides| overrides.drain(&id("b"), life));
    world.run();
    assert_eq!(world.held_by("b").len(), 0);
    world.goodbye("b");
    world.run();
    assert!(world.planner.is_over(&id("b"), life));
    world.join("b");
    world.run();
    world.pass(secs(60));
    world.run();
    assert_eq!(world.held_by("b").len(), 2);
}

#[test]
fn a_paused_partition_is_nobodys_once_its_owner_has_let_go() {
    let mut world = World::settled(4, &["a", "b"]);
    let p0 = PartitionId::new("p0");
    let owner = if world.held_by("a").contains(&"p0".into()) {
        "a"
    } else {
        "b"
    };
    world.fake(owner).stubborn = true;
    world.decide(|overrides| overrides.pause(&p0));
    world.run();
    assert!(!world.planner.is_free(&p0), "{owner} still has it");
    world.fake(owner).stubborn = false;
    world.run();
    assert!(world.planner.is_free(&p0));
    let numbers = world.planner.numbers();
    assert_eq!(
        (numbers.unserved, numbers.paused),
        (1, 1),
        "and that is meant"
    );
    // Neither a crash nor another leader gives it to anybody.
    world.join("c");
    world.run();
    world.pass(secs(60));
    world.run();
    let overrides = world.planner.overrides.clone();
    world.elect("b");
    world.planner.override_by(world.now, overrides);
    world.crash("a");
    world.run();
    world.pass(secs(60));
    world.run();
    assert!(world.planner.is_free(&p0));
    let holders = ["b", "c"].map(|name| world.held_by(name));
    assert!(holders.iter().flatten().all(|id| id != "p0"));
    assert_eq!(holders.iter().flatten().count(), 3);
    world.decide(|overrides| overrides.resume(&p0));
    world.run();
    let holders = ["b", "c"].map(|name| world.held_by(name));
    assert!(holders.iter().flatten().any(|id| id == "p0"));
    assert_eq!(world.planner.numbers().unserved, 0);
}

#[test]
fn a_new_leader_calls_no_pause_done_before_everybody_has_answered_it() {
    let mut world = World::settled(4, &["a", "b"]);
    let p0 = PartitionId::new("p0");
    world.decide(|overrides| overrides.pause(&p0));
    world.run();
    assert!(world.planner.is_free(&p0));
    let overrides = world.planner.overrides.clone();
    world.elect("b");
    world.planner.override_by(world.now, overrides);
    world.step();
    assert!(!world.planner.is_free(&p0));
    world.run();
    assert!(world.planner.is_free(&p0));
}

#[test]
fn a_pin_moves_its_partition_and_keeps_it_there() {
    let mut world = World::settled(4, &["a", "b"]);
    let (p0, from, to) = if world.held_by("a").contains(&"p0".into()) {
        (PartitionId::new("p0"), "a", "b")
    } else {
        (PartitionId::new("p0"), "b", "a")
    };
    world.pin("p0", to);
    world.run();
    assert!(world.planner.serves(&id(to), &p0));
    assert_eq!(world.held_by(from).len(), 2, "balance moves another one");
    // Whatever balance wants, and whoever joins.
    world.join("c");
    for _ in 0..5 {
        world.pass(secs(60));
        world.run();
    }
    assert!(world.planner.serves(&id(to), &p0));
    // Who is gone serves nothing; who is back gets it back.
    world.crash(to);
    world.run();
    assert!(!world.held_by(from).is_empty());
    world.join(to);
    world.run();
    world.pass(secs(60));
    world.run();
    assert!(world.planner.serves(&id(to), &p0));
}

#[test]
fn what_an_evicted_life_served_is_not_its_successors() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    let life = world.life("b");
    world.evict("b");
    world.run();
    assert_eq!(world.held_by("b").len(), 2, "it is yet to end");
    // It is back before the leader has heard that it was gone.
    world.join("b");
    world.run();
    assert!(world.planner.is_over(&id("b"), life));
    assert_eq!(world.held_by("b").len(), 0);
    assert_eq!(world.held_by("a").len() + world.held_by("c").len(), 6);
    // And gets a share like any newcomer.
    world.pass(secs(60));
    world.run();
    assert_eq!(world.held_by("b").len(), 2);
}

#[test]
fn another_leader_knows_of_evictions_too() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    let evictions = world.evict("b");
    world.join("b");
    world.elect("b");
    world.planner.evict(&evictions);
    world.run();
    assert_eq!(world.held_by("b").len(), 0);
    assert_eq!(world.held_by("a").len() + world.held_by("c").len(), 6);
}

#[test]
fn many_evictions_are_no_restart() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    for name in ["b", "c"] {
        world.evict(name);
        world.crash(name);
    }
    world.run();
    assert_eq!(world.held_by("a").len(), 6, "nobody is waited for");
}

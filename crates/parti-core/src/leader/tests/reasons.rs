//! Every line of the history has its own reason, whatever happens beside it.

use std::sync::Arc;

use super::*;
use crate::record::OverridesRecord;

impl World {
    fn overridden(&mut self, change: impl FnOnce(&mut OverridesRecord)) {
        let mut overrides = (*self.planner.overrides).clone();
        change(&mut overrides);
        self.planner.override_by(self.now, Arc::new(overrides));
    }

    /// Steps until nothing happens, and says what the history got, and what moved for which reason.
    fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..10 {
            lines.extend(
                self.step()
                    .into_iter()
                    .filter_map(|decision| match decision {
                        Decision::History(_, line) => Some(line),
                        Decision::Moved(moved) => {
                            Some(format!("{} moved: {}", moved.partition, moved.reason))
                        }
                        _ => None,
                    }),
            );
            self.obey();
        }
        lines
    }
}

#[test]
fn moves_keep_the_reason_for_which_they_began() {
    let mut world = World::settled(4, &["a", "c"]);
    world.join("b");
    world.run();
    world.pass(secs(1));
    world.step();
    // The move to b is under way when the list changes, which is another matter.
    let mut list = parts(4);
    list.push(part("p9", 1));
    world.refresh(list);
    assert_eq!(
        world.lines(),
        [
            "partition list changed: 1 added, 0 removed, 0 reweighted",
            "partition list changed: 1 added, 0 removed: 1 partition placed",
            "p3 moved: b joined",
        ]
    );
}

#[test]
fn a_window_that_closes_after_a_crash_is_about_who_joined() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    world.join("d");
    world.step();
    world.crash("c");
    assert_eq!(world.lines(), ["c was lost", "c lost: 2 partitions placed"]);
    world.pass(secs(1));
    assert_eq!(
        world.lines(),
        [
            "d joined: 2 moves begun",
            "p4 moved: d joined",
            "p5 moved: d joined"
        ]
    );
}

#[test]
fn a_drain_beside_a_crash_has_its_own_line() {
    let mut world = World::settled(6, &["a", "b", "c"]);
    world.crash("c");
    let life = world.fake("b").member.incarnation;
    world.overridden(|overrides| overrides.drain(&id("b"), life));
    assert_eq!(
        world.lines(),
        [
            "c was lost",
            "c lost: 2 partitions placed",
            "b drained: 2 moves begun",
            "p2 moved: b drained",
            "p3 moved: b drained",
        ]
    );
    assert_eq!(world.plan().reason, "b drained");
}

#[test]
fn a_partition_that_is_resumed_says_so() {
    let mut world = World::settled(4, &["a", "b"]);
    world.overridden(|overrides| overrides.pause(&PartitionId::new("p1")));
    world.lines();
    world.overridden(|overrides| overrides.resume(&PartitionId::new("p1")));
    assert_eq!(
        world.lines(),
        ["partition p1 is resumed: 1 partition placed"]
    );
}

#[test]
fn a_new_leader_finds_who_never_left_and_hears_who_comes() {
    let mut world = World::settled(2, &["a", "b", "c"]);
    world.elect("b");
    world.lives += 1;
    world.join("d");
    assert_eq!(
        world.lines(),
        ["b takes over, and finds a, b, c, d", "d joined"],
        "c serves nothing, and was there all the time"
    );
    // Both get what there is with the window: nothing.
    world.pass(secs(1));
    assert_eq!(world.lines(), Vec::<String>::new());
}

#[test]
fn a_restart_is_no_first_plan() {
    let mut world = World::settled(4, &["a", "b"]);
    world.crash("a");
    world.crash("b");
    world.lines();
    world.join("a");
    world.join("c");
    world.lines();
    world.pass(secs(1));
    assert_eq!(
        world.lines(),
        ["plan after a restart for 2 workers: 2 partitions placed"]
    );
}

#[test]
fn what_nobody_may_serve_because_all_are_drained_says_so_and_waits_for_no_window() {
    let mut world = World::settled(4, &["a", "b"]);
    let life = world.fake("b").member.incarnation;
    world.overridden(|overrides| overrides.drain(&id("b"), life));
    world.lines();
    world.crash("a");
    assert_eq!(world.lines(), ["a was lost"]);
    let plan = world.plan();
    assert_eq!(
        plan.reason,
        "a lost; 4 partitions unserved: all living workers are drained, undrain one"
    );
    let why = "all living workers are drained: undrain one";
    assert!(plan.unserved.iter().all(|(_, text)| text == why));
    world.overridden(|overrides| overrides.undrain(&id("b")));
    assert_eq!(world.lines(), ["b undrained: 4 partitions placed"]);
    assert_eq!(world.plan().unserved, []);
}

//! A store that is away for a while, one lost store node, or one client that is cut off for less
//! than its lease leaves over, moves nothing: in a group at rest no session is ended and no
//! partition changes its owner because of it.

use parti_core::config::Coordination;
use parti_core::key::Key;
use parti_core::record::{PlanState, Record, SessionStatus};

use super::{Invariant, Verdict, partition_write};
use crate::facts::{Facts, Seen};
use crate::setup::{Micros, SECOND, micros};

/// How long a change of the partition list, or an operator's wish, takes to be heard of and carried
/// out by all, at the most.
const LIST_HEARD: Micros = 30 * SECOND;

/// See the module.
#[derive(Default)]
pub struct OutageMovesNothing {
    /// Until when nothing may move.
    still_until: Option<Micros>,
    /// Until when trouble of another kind (a machine that is cut off for longer than its lease, or
    /// reads and writes through a bad link) is a reason to move, whatever else happens meanwhile.
    excused_until: Micros,
}

impl Invariant for OutageMovesNothing {
    fn name(&self) -> &'static str {
        "a store outage moves nothing"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::StoreTrouble {
                until,
                harmless: true,
                ..
            } => {
                let still = self.still_until.is_some_and(|until| facts.now <= until);
                if facts.now > self.excused_until && (still || at_rest(facts)) {
                    self.still_until = Some(until + 2 * facts.setup.ttl());
                }
                return Ok(());
            }
            // Whoever goes, comes or stands still is a reason to move.
            Seen::StoreTrouble {
                until,
                harmless: false,
                ..
            } => {
                self.still_until = None;
                let over = until + 2 * facts.setup.ttl();
                self.excused_until = self.excused_until.max(over);
                return Ok(());
            }
            // Another list moves partitions, and so does an operator; whoever cannot reach the store
            // hears of it late.
            Seen::ListChanged
            | Seen::Asked { .. }
            | Seen::Decided { .. }
            | Seen::Revoked { .. } => {
                self.still_until = None;
                self.excused_until = self.excused_until.max(facts.now + LIST_HEARD);
                return Ok(());
            }
            Seen::Started { .. }
            | Seen::Crashed { .. }
            | Seen::Paused { .. }
            | Seen::Resumed { .. }
            | Seen::StopAsked { .. }
            | Seen::Ended { .. } => {
                self.still_until = None;
                return Ok(());
            }
            _ => {}
        }
        if self.still_until.is_none_or(|until| facts.now > until) {
            return Ok(());
        }
        if let Seen::Wrote {
            proc,
            key: Key::Worker(id),
            new: Some(Record::Worker(record)),
            ..
        } = seen
            && record.status == SessionStatus::Evicted
        {
            return Err(format!(
                "process {proc} ended the session of {id} for a store outage"
            ));
        }
        match partition_write(seen) {
            Some((proc, id, before, after))
                if before.map(|before| &before.owner) != Some(&after.owner) =>
            {
                Err(format!(
                    "partition {id} moved for a store outage: process {proc} wrote owner {:?} over {:?}",
                    after.owner,
                    before.and_then(|before| before.owner.as_ref())
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the group has no reason of its own to move anything.
fn at_rest(facts: &Facts) -> bool {
    let config = &facts.setup.config;
    let quiet = 3 * SECOND
        + 2 * facts.setup.ttl()
        + micros(config.planned_scale_window)
        + micros(config.settle_time())
        + micros(config.assignment.rebalance_cooldown)
        + 2 * micros(config.leaderless.claim_interval);
    let changed = facts.membership_changed.max(facts.ownership_changed);
    let planned = config.coordination == Coordination::Leaderless
        || matches!(facts.records.get(&Key::Plan).map(|stored| &stored.record),
            Some(Record::Plan(plan)) if plan.state == PlanState::Stable);
    let owned = facts.setup.partitions.iter().all(|partition| {
        let owner = facts
            .partition_record(&partition.id)
            .and_then(|record| record.owner.as_ref());
        owner.is_some_and(|(id, life)| {
            facts
                .members()
                .any(|(_, session)| session.id == *id && session.incarnation == *life)
        })
    });
    planned && owned && facts.now >= changed + quiet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, Session, plain_setup};

    fn resting() -> (Bench<OutageMovesNothing>, Session, Session) {
        let mut setup = plain_setup();
        setup.config.coordination = Coordination::Leaderless;
        let mut bench = Bench::with(OutageMovesNothing::default(), setup);
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        for id in ["p00", "p01", "p02", "p03"] {
            bench.take(0, id, &a, 1).expect("no outage yet");
        }
        bench.pass(60 * SECOND);
        (bench, a, b)
    }

    fn outage(bench: &mut Bench<OutageMovesNothing>) {
        trouble(bench, 5 * SECOND, true);
        bench.pass(6 * SECOND);
    }

    fn trouble(bench: &mut Bench<OutageMovesNothing>, length: Micros, harmless: bool) {
        let until = bench.now + length;
        bench
            .see(Seen::StoreTrouble {
                machine: None,
                until,
                harmless,
            })
            .expect("it begins");
    }

    #[test]
    fn a_move_or_an_eviction_after_an_outage_is_caught() {
        let (mut bench, _, b) = resting();
        outage(&mut bench);
        bench
            .take(1, "p00", &b, 2)
            .expect_err("nothing else happened");
        let (mut bench, a, _) = resting();
        outage(&mut bench);
        bench
            .partition(0, "p00", |_| ())
            .expect("a commit moves nothing");
        bench.session(0, &a, |_| ()).expect("nor does a renewal");
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect_err("evicted");
    }

    #[test]
    fn a_crash_is_a_reason_to_move() {
        let (mut bench, _, b) = resting();
        outage(&mut bench);
        bench.crash(0);
        bench.take(1, "p00", &b, 2).expect("process 0 is gone");
    }
    #[test]
    fn another_partition_list_is_a_reason_to_move() {
        let (mut bench, _, b) = resting();
        bench.see(Seen::ListChanged).expect("a change");
        outage(&mut bench);
        bench.take(1, "p00", &b, 2).expect("the list moves it");
    }

    #[test]
    fn a_machine_that_is_cut_off_during_an_outage_is_a_reason_to_move() {
        let (mut bench, a, _) = resting();
        trouble(&mut bench, 20 * SECOND, false);
        outage(&mut bench);
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect("it was cut off for longer than its lease");
        let (mut bench, a, _) = resting();
        trouble(&mut bench, SECOND, false);
        bench.pass(60 * SECOND);
        outage(&mut bench);
        bench
            .session(1, &a, |record| record.status = SessionStatus::Evicted)
            .expect_err("that was long ago");
    }
}

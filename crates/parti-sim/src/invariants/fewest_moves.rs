//! A plan moves no more than it must: of workers that stay, nobody gives a partition up and is given
//! another in exchange.
//!
//! ```text
//!   plan ──▶ next plan     kept      a joiner's share          an exchange: two moves for nothing
//!   A: 1 2 3               1 2 3     A: 1 2   ─3─▶ C           A: 1 2 ─3─▶ B
//!   B: 4 5 6               4 5 6     B: 4 5   ─6─▶ C           B: 4 5 ─6─▶ A
//! ```
//!
//! Where partitions count alike, the numbers that a plan ends with are so reached by the fewest moves
//! there are: what a leaver had, what was lost, what a joiner lacks, what is too much. A strategy that
//! forgets who serves what, or a crash that is answered by spreading everything anew, exchanges.
//!
//! Strategies that give no such promise are not held to it: round robin counts on from worker to
//! worker, and where weights differ an exchange can be what balance needs.

use std::collections::BTreeMap;

use parti_core::config::StrategyChoice;
use parti_core::ids::{PartitionId, Term, Version, WorkerId};
use parti_core::key::Key;
use parti_core::record::{AssignmentRecord, Record, SessionStatus};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Seen};

/// See the module.
#[derive(Default)]
pub struct FewestMoves {
    /// The plan that is being told.
    plan: (Term, Version),
    /// Of workers that stay, by that plan: what each gives up, and to whom.
    gives: BTreeMap<WorkerId, (PartitionId, WorkerId)>,
    /// What each is given, and by whom.
    gets: BTreeMap<WorkerId, (PartitionId, WorkerId)>,
}

impl Invariant for FewestMoves {
    fn name(&self) -> &'static str {
        "a plan moves no more than it must"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Wrote {
            key: Key::Assignment(to),
            old,
            new: Some(Record::Assignment(after)),
            ..
        } = seen
        else {
            return Ok(());
        };
        if !is_promised(facts) {
            return Ok(());
        }
        let plan = (after.term, after.version);
        if plan != self.plan {
            *self = Self {
                plan,
                ..Self::default()
            };
        }
        let before = old.and_then(|stored| match &stored.record {
            Record::Assignment(record) => Some(&**record),
            _ => None,
        });
        for (partition, from) in begun(before, after) {
            if stays(facts, from) {
                self.take_in(partition, from, to)?;
            }
        }
        Ok(())
    }
}

impl FewestMoves {
    fn take_in(&mut self, partition: &PartitionId, from: &WorkerId, to: &WorkerId) -> Verdict {
        let (term, version) = self.plan;
        let exchange = |who: &WorkerId, gets: (&PartitionId, &WorkerId), gives: (&_, &WorkerId)| {
            Err(format!(
                "version {version} of term {term} gives {who} partition {} of {}, and {} of {who} to {}: \
                 all of them stay, so one move less would do",
                gets.0, gets.1, gives.0, gives.1
            ))
        };
        if let Some((other, by)) = self.gets.get(from) {
            return exchange(from, (other, by), (partition, to));
        }
        if let Some((other, receiver)) = self.gives.get(to) {
            return exchange(to, (partition, from), (other, receiver));
        }
        let gives = self.gives.entry(from.clone());
        gives.or_insert_with(|| (partition.clone(), to.clone()));
        let gets = self.gets.entry(to.clone());
        gets.or_insert_with(|| (partition.clone(), from.clone()));
        Ok(())
    }
}

/// Whether the group's strategy promises the fewest moves.
fn is_promised(facts: &Facts) -> bool {
    // What an operator puts somewhere moves there, and for balance another may move away from there.
    if facts.placed {
        return false;
    }
    match facts.setup.config.strategy {
        StrategyChoice::FairShare => true,
        StrategyChoice::ConsistentHash { .. } => {
            let mut pairs = facts.setup.partitions.windows(2);
            let alike = pairs.all(|pair| pair[0].weight == pair[1].weight);
            // Another list may have other weights.
            alike && !facts.list_changed
        }
        StrategyChoice::RoundRobin => false,
    }
}

/// The moves that begin with this assignment: what is prepared, and who serves it.
fn begun<'a>(
    before: Option<&'a AssignmentRecord>,
    after: &'a AssignmentRecord,
) -> impl Iterator<Item = &'a (PartitionId, WorkerId)> {
    let known = move |wanted: &(PartitionId, WorkerId)| {
        before.is_some_and(|before| before.prepare.contains(wanted))
    };
    after.prepare.iter().filter(move |wanted| !known(wanted))
}

/// Whether this worker is there, has not asked to be relieved, and no operator ever asked it of it:
/// a plan by a drain that was taken back meanwhile may still be on its way.
fn stays(facts: &Facts, worker: &WorkerId) -> bool {
    if facts.drained.contains(worker) {
        return false;
    }
    let session = facts.session_record(worker);
    session.is_some_and(|(session, _)| session.status == SessionStatus::Live)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parti_core::ids::Nonce;
    use parti_core::record::Lifecycle;

    use super::*;
    use crate::invariants::bench::{Bench, Session, plain_setup};

    fn prepares(
        bench: &mut Bench<FewestMoves>,
        to: &Session,
        version: u64,
        prepare: &[(&str, &str)],
    ) -> Verdict {
        let record = AssignmentRecord {
            version: Version(version),
            term: Term(1),
            incarnation: to.incarnation,
            lifecycle: Lifecycle::Stable,
            serve: Vec::new(),
            prepare: prepare
                .iter()
                .map(|(id, owner)| (PartitionId::new(id), WorkerId::new(owner)))
                .collect(),
            release: Vec::new(),
            added: Vec::new(),
            nonce: Nonce(version),
        };
        let key = Key::Assignment(to.id.clone());
        bench.write(0, key, Some(Record::Assignment(Arc::new(record))))
    }

    fn three(mut bench: Bench<FewestMoves>) -> (Bench<FewestMoves>, [Session; 3]) {
        bench.start(3);
        let claim = |proc| bench.claim(proc, &format!("worker-{proc}"));
        let sessions = [0, 1, 2].map(claim);
        (bench, sessions)
    }

    #[test]
    fn an_exchange_within_a_plan_is_caught() {
        let (mut bench, [a, b, c]) = three(Bench::new(FewestMoves::default()));
        prepares(
            &mut bench,
            &c,
            1,
            &[("p00", "worker-0"), ("p02", "worker-1")],
        )
        .expect("a joiner's share");
        prepares(&mut bench, &a, 2, &[("p01", "worker-1")]).expect("another plan");
        prepares(&mut bench, &b, 2, &[("p03", "worker-2")]).expect_err("worker-1 gives p01 away");
        prepares(&mut bench, &a, 3, &[("p01", "worker-1")]).expect("still the move of version 2");
        prepares(&mut bench, &b, 3, &[("p02", "worker-2")]).expect("so only this one is new");
        prepares(&mut bench, &c, 3, &[("p01", "worker-0")]).expect_err("worker-2 gives p02 away");
    }

    #[test]
    fn what_a_leaver_hands_over_is_no_exchange() {
        let (mut bench, [a, b, c]) = three(Bench::new(FewestMoves::default()));
        prepares(&mut bench, &b, 1, &[("p02", "worker-2")]).expect("fine");
        let leaves = bench.session(0, &a, |record| record.status = SessionStatus::Leaving);
        leaves.expect("leaving breaks nothing");
        prepares(&mut bench, &c, 1, &[("p00", "worker-0")]).expect("somebody must have it");
    }

    #[test]
    fn strategies_that_promise_nothing_are_left_alone() {
        let mut setup = plain_setup();
        setup.config.strategy = StrategyChoice::RoundRobin;
        let (mut bench, [a, b, _]) = three(Bench::with(FewestMoves::default(), setup));
        prepares(&mut bench, &a, 1, &[("p02", "worker-1")]).expect("fine");
        prepares(&mut bench, &b, 1, &[("p00", "worker-0")]).expect("it counts on");
    }
}

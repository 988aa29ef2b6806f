//! No assignment of a lower term or version is accepted, by a worker or over a newer one in the
//! store. For a worker, any term counts that it was shown. (The same one may be written again, by a
//! leader that does not know whether it landed.)

use std::collections::BTreeMap;

use parti_core::config::Coordination;
use parti_core::ids::{Term, Version};
use parti_core::record::{AssignmentRecord, Record};
use parti_core::worker::{Action, Report};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// See the module.
#[derive(Default)]
pub struct AssignmentOrder {
    accepted: BTreeMap<Proc, (Term, Version)>,
    /// The highest term that each worker was shown.
    shown: BTreeMap<Proc, Term>,
}

impl Invariant for AssignmentOrder {
    fn name(&self) -> &'static str {
        "no assignment from a lower term or version"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::TermShown { proc, term } => {
                let highest = self.shown.entry(*proc).or_default();
                *highest = (*highest).max(*term);
                Ok(())
            }
            Seen::Acted {
                proc,
                action: Action::Report(report),
                ..
            } => {
                if matches!(report, Report::SessionLost)
                    && facts.setup.config.coordination == Coordination::Leaderless
                {
                    // Without a leader a worker counts for itself, and a new session counts anew.
                    self.accepted.remove(proc);
                }
                let Report::Assigned { version, term, .. } = report else {
                    return Ok(());
                };
                let (last_term, last_version) =
                    self.accepted.get(proc).copied().unwrap_or_default();
                if *term < last_term || *version < last_version {
                    return Err(format!(
                        "process {proc} accepted version {version} of term {term} after version \
                         {last_version} of term {last_term}"
                    ));
                }
                let shown = self.shown.get(proc).copied().unwrap_or_default();
                if *term < shown && facts.setup.config.coordination == Coordination::Leader {
                    return Err(format!(
                        "process {proc} accepted version {version} of term {term}, and knew of term \
                         {shown}"
                    ));
                }
                self.accepted.insert(*proc, (*term, *version));
                Ok(())
            }
            Seen::Wrote {
                proc,
                key,
                old: Some(old),
                new: Some(Record::Assignment(after)),
                ..
            } => {
                let Record::Assignment(before) = &old.record else {
                    return Ok(());
                };
                // The same version of a higher term is told apart by its term.
                let newer = after.version > before.version
                    || after.version == before.version && after.term > before.term;
                let newer = newer && after.term >= before.term;
                if newer || same(before, after) {
                    return Ok(());
                }
                Err(format!(
                    "process {proc} wrote {key:?} version {} of term {} over version {} of term {}",
                    after.version, after.term, before.version, before.term
                ))
            }
            _ => Ok(()),
        }
    }
}

fn same(one: &AssignmentRecord, other: &AssignmentRecord) -> bool {
    let nonce = one.nonce;
    *one == AssignmentRecord {
        nonce,
        ..other.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;

    fn assigned(term: u64, version: u64) -> Report {
        Report::Assigned {
            version: Version(version),
            term: Term(term),
            serve: Vec::new(),
            prepare: Vec::new(),
        }
    }

    #[test]
    fn an_older_assignment_is_caught() {
        let mut bench = Bench::new(AssignmentOrder::default());
        bench.start(1);
        bench.report(0, assigned(2, 5)).expect("the first");
        bench.report(0, assigned(2, 6)).expect("newer");
        bench.report(0, assigned(3, 7)).expect("of a newer term");
        bench.report(0, assigned(2, 8)).expect_err("an old term");
        bench.report(0, assigned(3, 6)).expect_err("an old version");
    }

    #[test]
    fn an_assignment_below_a_known_term_is_caught() {
        let mut bench = Bench::new(AssignmentOrder::default());
        bench.start(1);
        bench.report(0, assigned(2, 5)).expect("the first");
        let shown = Seen::TermShown {
            proc: 0,
            term: Term(3),
        };
        bench.see(shown).expect("fine");
        bench.report(0, assigned(2, 6)).expect_err("3 was shown");
    }
}

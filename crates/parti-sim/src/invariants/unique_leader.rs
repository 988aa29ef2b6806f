//! One leader per term, terms that only grow; and once the faults are over, one leader that
//! everybody's record names.

use std::collections::BTreeMap;

use parti_core::config::Coordination;
use parti_core::ids::Term;
use parti_core::key::Key;
use parti_core::record::Record;
use parti_core::worker::{Action, Report};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// See the module.
#[derive(Default)]
pub struct UniqueLeader {
    terms: BTreeMap<Term, Proc>,
}

impl Invariant for UniqueLeader {
    fn name(&self) -> &'static str {
        "one leader per term, and one in the end"
    }

    fn see(&mut self, _facts: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Acted {
                proc,
                action: Action::Report(Report::Leading(Some(term))),
                ..
            } => {
                let first = *self.terms.entry(*term).or_insert(*proc);
                if first == *proc {
                    return Ok(());
                }
                Err(format!(
                    "process {proc} leads in term {term}, which is process {first}'s"
                ))
            }
            Seen::Wrote {
                proc,
                key: Key::Leader,
                new: None,
                ..
            } => Err(format!(
                "process {proc} deleted the leader's record: terms would start anew"
            )),
            Seen::Wrote {
                proc,
                key: Key::Leader,
                old: Some(old),
                new: Some(new),
                ..
            } => {
                let (Record::Leader(before), Record::Leader(after)) = (&old.record, new) else {
                    return Ok(());
                };
                let changed = after.holder.is_some() && after.holder != before.holder;
                if after.term < before.term || (changed && after.term == before.term) {
                    return Err(format!(
                        "process {proc} wrote leader {:?} of term {} over {:?} of term {}",
                        after.holder, after.term, before.holder, before.term
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        if facts.setup.config.coordination != Coordination::Leader {
            return Ok(());
        }
        let Some(Record::Leader(record)) =
            facts.records.get(&Key::Leader).map(|found| &found.record)
        else {
            return Err("there is no leader's record".into());
        };
        let Some((id, life)) = &record.holder else {
            return Err("nobody leads".into());
        };
        let leader = facts
            .members()
            .find(|(_, session)| session.id == *id && session.incarnation == *life)
            .map(|(proc, _)| proc);
        let Some(leader) = leader else {
            return Err(format!(
                "the record names {id} ({life:?}) as leader, which is gone"
            ));
        };
        let leading: Vec<(Proc, Option<Term>)> = facts
            .procs
            .iter()
            .enumerate()
            .filter(|(_, proc)| proc.is_alive() && proc.leading.is_some())
            .map(|(proc, known)| (proc, known.leading))
            .collect();
        if leading == [(leader, Some(record.term))] {
            return Ok(());
        }
        Err(format!(
            "the record names process {leader} in term {}, but {leading:?} lead",
            record.term
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::{Bench, Session};
    use parti_core::ids::Nonce;
    use parti_core::record::LeaderRecord;
    use std::sync::Arc;

    fn lead(bench: &mut Bench<UniqueLeader>, proc: Proc, session: &Session, term: u64) -> Verdict {
        let holder = Some((session.id.clone(), session.incarnation));
        let record = LeaderRecord {
            holder,
            term: Term(term),
            beat: 0,
            nonce: Nonce(0),
        };
        bench.write(proc, Key::Leader, Some(Record::Leader(Arc::new(record))))
    }

    #[test]
    fn two_leaders_of_one_term_are_caught() {
        let mut bench = Bench::new(UniqueLeader::default());
        bench.start(2);
        bench
            .report(0, Report::Leading(Some(Term(1))))
            .expect("the first");
        bench
            .report(0, Report::Leading(Some(Term(1))))
            .expect("the same one");
        bench
            .report(1, Report::Leading(Some(Term(2))))
            .expect("another term");
        bench
            .report(1, Report::Leading(Some(Term(1))))
            .expect_err("that is process 0's");
    }

    #[test]
    fn a_term_that_does_not_grow_is_caught() {
        let mut bench = Bench::new(UniqueLeader::default());
        bench.start(2);
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        lead(&mut bench, 0, &a, 1).expect("the first");
        lead(&mut bench, 0, &a, 1).expect("a renewal");
        lead(&mut bench, 1, &b, 1).expect_err("the same term");
        bench
            .delete(0, Key::Leader)
            .expect_err("terms would start anew");
    }

    #[test]
    fn a_group_without_one_leader_is_not_settled() {
        let mut bench = Bench::new(UniqueLeader::default());
        bench.start(2);
        bench.settled().expect_err("nobody leads");
        let (a, b) = (bench.claim(0, "worker-0"), bench.claim(1, "worker-1"));
        lead(&mut bench, 0, &a, 1).expect("the first");
        bench.settled().expect_err("it does not know yet");
        bench
            .report(0, Report::Leading(Some(Term(1))))
            .expect("now it does");
        bench.settled().expect("one leader");
        lead(&mut bench, 1, &b, 2).expect("the next");
        bench
            .report(1, Report::Leading(Some(Term(2))))
            .expect("it knows");
        bench.settled().expect_err("the old one has not given up");
        bench.report(0, Report::Leading(None)).expect("it gives up");
        bench.settled().expect("one leader");
    }
}

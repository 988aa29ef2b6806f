//! The history tells of a join only if there was one: a leader that took over says nothing of the
//! kind about a life that began before its term.

use std::collections::BTreeMap;

use parti_core::ids::{Revision, Term, WorkerId};
use parti_core::key::Key;
use parti_core::record::Record;
use parti_core::worker::{Action, Report};

use super::{Invariant, Verdict};
use crate::facts::{Facts, Proc, Seen};

/// See the module.
#[derive(Default)]
pub struct JoinsTold {
    /// Under which term each process was elected last, and when.
    elected: BTreeMap<Proc, (Term, Revision)>,
}

impl Invariant for JoinsTold {
    fn name(&self) -> &'static str {
        "nobody is told to have joined who was there"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Wrote {
                proc,
                revision,
                key: Key::Leader,
                new: Some(Record::Leader(record)),
                ..
            } => {
                let before = self.elected.get(proc).map(|(term, _)| *term);
                if record.holder.is_some() && before.is_none_or(|before| before < record.term) {
                    self.elected.insert(*proc, (record.term, *revision));
                }
                Ok(())
            }
            Seen::Acted {
                proc,
                action: Action::Report(Report::History(line)),
                ..
            } => self.told(facts, *proc, line),
            _ => Ok(()),
        }
    }
}

impl JoinsTold {
    fn told(&self, facts: &Facts, proc: Proc, line: &str) -> Verdict {
        let who = line.strip_suffix(" joined").map(WorkerId::new);
        let (Some(who), Some((term, elected))) = (who, self.elected.get(&proc)) else {
            return Ok(());
        };
        let newest = facts.session_record(&who).map(|(_, life)| life);
        // Whoever leads first tells who came to the group.
        if *term == Term(1) || newest.is_none_or(|life| life.0 > elected.0) {
            return Ok(());
        }
        Err(format!(
            "process {proc} tells that {who} joined, which was there before term {term}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::ids::Nonce;
    use parti_core::record::LeaderRecord;
    use std::sync::Arc;

    fn elect(bench: &mut Bench<JoinsTold>, proc: Proc, id: &str, term: u64) {
        let (_, life) = (bench.facts)
            .session_record(&WorkerId::new(id))
            .expect("claimed before");
        let record = LeaderRecord {
            holder: Some((WorkerId::new(id), life)),
            term: Term(term),
            beat: 0,
            nonce: Nonce(0),
        };
        let record = Record::Leader(Arc::new(record));
        bench
            .write(proc, Key::Leader, Some(record))
            .expect("an election breaks nothing");
    }

    fn tell(bench: &mut Bench<JoinsTold>, proc: Proc, line: &str) -> Verdict {
        bench.report(proc, Report::History(line.into()))
    }

    #[test]
    fn a_join_that_was_none_is_caught() {
        let mut bench = Bench::new(JoinsTold::default());
        bench.start(3);
        bench.claim(0, "worker-0");
        bench.claim(1, "worker-1");
        elect(&mut bench, 0, "worker-0", 1);
        tell(&mut bench, 0, "worker-1 joined").expect("the first leader tells all");
        elect(&mut bench, 1, "worker-1", 2);
        bench.claim(2, "worker-2");
        tell(&mut bench, 1, "worker-2 joined").expect("it came");
        tell(&mut bench, 1, "worker-0 joined").expect_err("it was there");
    }
}

//! A group that is told to stop as a whole is gone soon: nobody waits for somebody who stops too.
//!
//! It counts from when the last one was told, or from the end of the worker's own last handler
//! call, whichever is later. It is promised where nothing stood in the way: no crash, no pause, no
//! trouble on the way to the store or the source, not even one slow message.

use parti_core::io::SourceKind;
use parti_core::key::Key;
use parti_core::record::Record;
use parti_core::worker::Fatal;

use super::{Invariant, Verdict};
use crate::facts::{Facts, Life, ProcFacts, Seen};
use crate::setup::{Micros, SECOND, micros};

/// So many round trips, and a change of the consumer, are never slower than this together.
const ROUND_TRIPS: Micros = SECOND;

/// See the module.
pub struct StopIsPrompt;

impl Invariant for StopIsPrompt {
    fn name(&self) -> &'static str {
        "a group that stops as a whole is gone soon"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Verdict {
        let Seen::Ended {
            proc,
            result: Ok(()) | Err(Fatal::StopTimedOut { .. }),
        } = seen
        else {
            return Ok(());
        };
        let known = &facts.procs[*proc];
        let Some(asked) = known.stop_asked else {
            return Ok(());
        };
        let updates = match facts.setup.source {
            SourceKind::Log | SourceKind::External => 0,
            SourceKind::Stream(_) => micros(facts.setup.config.jetstream.min_update_interval),
        };
        let bound = ROUND_TRIPS + 2 * updates;
        let Some(all_asked) = all_asked(facts, asked) else {
            return Ok(());
        };
        let due = all_asked.max(known.last_call) + bound;
        if facts.now <= due || was_disturbed(facts, asked, due) {
            return Ok(());
        }
        Err(format!(
            "process {proc} was asked to stop at {asked} µs, the last of all at {all_asked} µs, its \
             last call ended at {} µs: it should have been gone {} µs ago",
            known.last_call,
            facts.now - due
        ))
    }
}

/// Those who were there after this time, dead ones too as long as they may count as there.
fn present(facts: &Facts, since: Micros) -> impl Iterator<Item = &ProcFacts> {
    let detection = 2 * facts.setup.ttl() + 3 * SECOND;
    facts.procs.iter().filter(move |known| match known.life {
        Life::Running | Life::Paused(_) => true,
        Life::Ended(at) => at >= since,
        Life::Crashed(at) => at + detection >= since,
    })
}

/// When the last one was told, if all were.
fn all_asked(facts: &Facts, asked: Micros) -> Option<Micros> {
    present(facts, asked)
        .map(|known| known.stop_asked)
        .try_fold(asked, |last, asked| Some(last.max(asked?)))
}

/// Whether anything stood in anybody's way.
fn was_disturbed(facts: &Facts, from: Micros, to: Micros) -> bool {
    let crashed = |known: &ProcFacts| matches!(known.life, Life::Crashed(_));
    let hurt = |known: &ProcFacts| {
        crashed(known) || known.was_hindered(from, to) || known.was_slowed(from, to)
    };
    // Whoever crashed counts as there until somebody has ended its session.
    let left_behind = facts.records.values().any(|stored| {
        let (Key::Worker(id), Record::Worker(record)) = (&stored.key, &stored.record) else {
            return false;
        };
        let holder = facts.holder(id, record.incarnation_at(stored.revision));
        let gone = holder.is_none_or(|holder| crashed(&facts.procs[holder]));
        !record.status.is_over() && gone
    });
    left_behind || present(facts, from).any(hurt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Proc;
    use crate::invariants::bench::Bench;
    use crate::setup::MILLI;

    fn two_asked() -> Bench<StopIsPrompt> {
        let mut bench = Bench::new(StopIsPrompt);
        bench.start(2);
        for proc in 0..2 {
            bench.pass(100 * MILLI);
            bench
                .see(Seen::StopAsked { proc })
                .expect("a wish breaks nothing");
        }
        bench
    }

    fn ends(bench: &mut Bench<StopIsPrompt>, proc: Proc) -> Verdict {
        bench.see(Seen::Ended {
            proc,
            result: &Ok(()),
        })
    }

    #[test]
    fn who_waits_for_somebody_who_stops_too_is_late() {
        let mut bench = two_asked();
        bench.pass(ROUND_TRIPS);
        assert_eq!(ends(&mut bench, 0), Ok(()));
        bench.pass(1);
        assert!(ends(&mut bench, 1).is_err());
    }

    #[test]
    fn one_who_stays_or_was_disturbed_excuses_all() {
        let mut bench = two_asked();
        bench.start(1);
        bench.pass(5 * SECOND);
        assert_eq!(ends(&mut bench, 0), Ok(()));

        let mut bench = two_asked();
        let until = bench.now + 300 * MILLI;
        bench
            .see(Seen::Slow { proc: 1, until })
            .expect("bad luck is none's fault");
        bench.pass(5 * SECOND);
        assert_eq!(ends(&mut bench, 0), Ok(()));

        let mut bench = two_asked();
        bench.crash(1);
        bench.pass(5 * SECOND);
        assert_eq!(ends(&mut bench, 0), Ok(()));
    }

    #[test]
    fn a_handler_call_has_its_time() {
        let mut bench = two_asked();
        bench.publish("p00", &[0]);
        bench.handle(0, "p00", 0).expect("the first time");
        bench.pass(3 * SECOND);
        bench.done(0, "p00", 0);
        bench.pass(ROUND_TRIPS);
        assert_eq!(ends(&mut bench, 0), Ok(()));
        assert!(ends(&mut bench, 1).is_err());
    }
}

//! Every request gets an outcome: once the faults are over, each is done or refused.

use parti_core::record::{Outcome, Record};

use super::{Invariant, Verdict};
use crate::facts::Facts;

/// See the module.
pub struct RequestsAnswered;

impl Invariant for RequestsAnswered {
    fn name(&self) -> &'static str {
        "every request gets an outcome"
    }

    fn settled(&self, facts: &Facts) -> Verdict {
        for (key, stored) in &facts.records {
            let Record::Request(record) = &stored.record else {
                continue;
            };
            if matches!(record.outcome, Outcome::Open | Outcome::Accepted) {
                return Err(format!(
                    "{key} ({:?}) is still {:?}",
                    record.request, record.outcome
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bench::Bench;
    use parti_core::record::Request;

    #[test]
    fn a_forgotten_request_is_caught() {
        let mut bench = Bench::new(RequestsAnswered);
        bench.start(1);
        bench.ask("r1", Request::Rebalance);
        assert!(bench.settled().is_err());
        bench.answer(0, "r1", Outcome::Done).expect("an outcome");
        assert_eq!(bench.settled(), Ok(()));
    }
}

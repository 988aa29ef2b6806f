//! A strategy that is timed and judged.

use std::sync::Arc;
use std::time::Instant;

use parti_core::strategy::{Answer, Input, Strategy};

use super::Meters;

/// Tells how long the strategy within took, and how much it left in its place.
#[derive(Debug)]
pub(crate) struct Timed {
    inner: Arc<dyn Strategy>,
    meters: Arc<Meters>,
}

impl Timed {
    /// Over this one.
    pub(crate) fn new(inner: Arc<dyn Strategy>, meters: Arc<Meters>) -> Self {
        Self { inner, meters }
    }
}

impl Strategy for Timed {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn assign(&self, input: Input<'_>) -> Answer {
        let began = Instant::now();
        let answer = self.inner.assign(input);
        let handles = self.meters.handles();
        handles.calculation.record(began.elapsed());
        if let Some(affinity) = affinity(input, &answer) {
            handles.affinity.record(affinity);
        }
        answer
    }
}

/// The share of the partitions with an owner that stay where they are; none if none has an owner.
fn affinity(input: Input<'_>, answer: &Answer) -> Option<f64> {
    let (mut owned, mut stays) = (0_u32, 0_u32);
    for (partition, owner) in answer.owners.iter().enumerate() {
        if let Some(before) = input.previous_owner(partition) {
            owned += 1;
            stays += u32::from(*owner == Some(before));
        }
    }
    (owned > 0).then(|| f64::from(stays) / f64::from(owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parti_core::ids::WorkerId;
    use parti_core::partition::numbered;

    #[test]
    fn affinity_is_the_share_that_stays() {
        let workers = [WorkerId::new("worker-0"), WorkerId::new("worker-1")];
        let partitions = numbered(4);
        let input = |previous| Input {
            workers: &workers,
            partitions: &partitions,
            previous,
            capacity: None,
        };
        let answer = Answer {
            owners: vec![Some(0), Some(1), Some(1), None],
        };
        assert_eq!(affinity(input(&[]), &answer), None);
        let before = [Some(0), Some(0), None, Some(7)];
        assert_eq!(affinity(input(&before), &answer), Some(0.5));
        let before = [None, None, None, Some(1)];
        assert_eq!(affinity(input(&before), &answer), Some(0.0));
    }
}

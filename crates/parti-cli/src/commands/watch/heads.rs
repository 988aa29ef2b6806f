//! Where partitions end: asks the source now and then, for a bounded number of partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use parti::PartitionId;
use parti::inspect::Bounds;
use parti::source::place::Located;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_secs(2);
/// The longest, however long a look takes.
const LONGEST: Duration = Duration::from_secs(10);
/// A pause is so many times as long as the look before it.
const PAUSE_FOR_LOOK: u32 = 100;
/// A stream is asked for each partition: so many by look, in turn.
const AT_ONCE: usize = 200;

/// What a look found, or why it failed.
pub type Look = Result<BTreeMap<PartitionId, Bounds>, String>;

/// Looks again and again, at the partitions that are known at that time, until nobody listens.
pub async fn look(
    source: Located,
    known: watch::Receiver<Vec<PartitionId>>,
    to: mpsc::Sender<Look>,
) {
    let mut turn = 0;
    loop {
        let began = Instant::now();
        let asked = match &source {
            // One question, whatever it is about.
            Located::Topic(_) => Vec::new(),
            Located::Stream(_) => next(&known.borrow(), &mut turn),
        };
        let found = source.bounds(&asked).await;
        if to
            .send(found.map_err(|error| error.to_string()))
            .await
            .is_err()
        {
            return;
        }
        sleep((began.elapsed() * PAUSE_FOR_LOOK).clamp(SHORTEST, LONGEST)).await;
    }
}

/// The partitions whose turn it is.
fn next(known: &[PartitionId], turn: &mut usize) -> Vec<PartitionId> {
    if *turn >= known.len() {
        *turn = 0;
    }
    let asked: Vec<PartitionId> = known.iter().skip(*turn).take(AT_ONCE).cloned().collect();
    *turn += asked.len();
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_its_turn() {
        let ids: Vec<PartitionId> = (0..450).map(|n| PartitionId::new(n.to_string())).collect();
        let mut turn = 0;
        let mut asked = Vec::new();
        for count in [200, 200, 50, 200] {
            let now = next(&ids, &mut turn);
            assert_eq!(now.len(), count);
            asked.extend(now);
        }
        assert_eq!(asked[..450], ids);
        assert_eq!(asked[450..], ids[..200]);
        assert_eq!(next(&[], &mut turn), []);
    }
}

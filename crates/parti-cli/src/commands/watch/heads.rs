//! Where partitions end: asks the source now and then, for a bounded number of partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use parti::inspect::{Bounds, Group};
use parti::source::place::Located;
use parti::{PartitionId, SourceId};
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

/// What a look found, or why it found nothing.
pub type Look = Result<BTreeMap<PartitionId, Bounds>, Unseen>;

/// Why nothing is known of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It does not answer.
    Silent,
    /// It is not the one that the group began with, or that one has none: its offsets say nothing about these checkpoints.
    Other,
}

/// What is known of the group by now.
pub struct Known {
    /// Its partitions.
    pub partitions: Vec<PartitionId>,
    /// The source that it began with.
    stream: SourceId,
}

impl Known {
    /// Of this group.
    pub fn of(group: &Group) -> Self {
        Self {
            partitions: group.partition_ids(),
            stream: group.stream,
        }
    }

    /// Whether this is all there is to know of it.
    pub fn is_of(&self, group: &Group) -> bool {
        self.partitions.len() == group.partitions.len() && self.stream == group.stream
    }
}

/// Looks again and again, at the group as it is known at that time, until nobody listens.
pub async fn look(source: Located, known: watch::Receiver<Known>, to: mpsc::Sender<Look>) {
    let mut turn = 0;
    loop {
        let began = Instant::now();
        let (asked, stream) = {
            let known = known.borrow();
            let asked = match &source {
                // One question, whatever it is about.
                Located::Topic(_) => Vec::new(),
                Located::Stream(_) => next(&known.partitions, &mut turn),
            };
            (asked, known.stream)
        };
        let found = match source.identity().await {
            Ok(identity) if stream.is_other(identity.into()) => Err(Unseen::Other),
            Ok(_) => source.bounds(&asked).await.map_err(|_| Unseen::Silent),
            Err(_) => Err(Unseen::Silent),
        };
        if to.send(found).await.is_err() {
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

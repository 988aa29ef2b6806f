//! Dead letters: messages that failed too often, each kept once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::ids::{Offset, PartitionId};
use parti_core::io::{Ask, Job, SourceEvent};

/// A message that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The identity of the source it came from.
    pub source: u64,
    /// The job that failed last.
    pub job: Job,
    /// Why.
    pub error: Arc<str>,
    /// How often it was published; only the first time counts.
    pub times: u32,
}

/// All dead letters, deduplicated by their message id (partition and offset).
#[derive(Clone, Debug, Default)]
pub(super) struct DeadLetters {
    letters: Vec<DeadLetter>,
    by_id: BTreeMap<(u64, PartitionId, Offset), usize>,
}

impl DeadLetters {
    /// Keeps the letter, once, and answers.
    pub fn publish(&mut self, source: u64, ask: Ask, job: Job, error: Arc<str>) -> SourceEvent {
        let id = (source, job.partition.clone(), job.message.offset);
        match self.by_id.get(&id) {
            Some(known) => self.letters[*known].times += 1,
            None => {
                self.by_id.insert(id, self.letters.len());
                self.letters.push(DeadLetter {
                    source,
                    job,
                    error,
                    times: 1,
                });
            }
        }
        SourceEvent::DeadLettered {
            ask,
            result: Ok(()),
        }
    }

    /// In the order of their first publication.
    pub fn all(&self) -> &[DeadLetter] {
        &self.letters
    }
}

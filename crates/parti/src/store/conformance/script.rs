//! A script of random operations, compared step by step with the simplest store there is, and its
//! watch with what happened.
//!
//! ```text
//!   seed ─▶ operation ─┬─▶ the store ──▶ outcome ─┐
//!                      └─▶ a map ──────▶ outcome ─┴─▶ the same? revisions grow?
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::rng::Rng;

use super::room::{Failure, Room, refused};
use super::{cases, ensure};
use crate::store::{Bytes, Change, Entry, Expect, Revision, Store, Write};

cases! { "script", Nothing:
    BOTH random_operations,
}

const SEEDS: u64 = 4;
const STEPS: usize = 120;
const NAMES: [&str; 7] = ["a", "b", "a/b", "a.b", "c/d/e", "*", "ü"];

/// What a store is, without anything that makes it hard.
#[derive(Default)]
struct Reference {
    there: BTreeMap<String, Entry>,
    /// Every state of a key, in order: `None` is a deletion.
    history: BTreeMap<String, Vec<(Revision, Option<Bytes>)>>,
}

impl Reference {
    fn holds(&self, write: &Write) -> bool {
        match (write.expect, self.there.get(&write.key)) {
            (Expect::Absent, None) => true,
            (Expect::At(revision), Some(now)) => now.revision == revision,
            _ => false,
        }
    }

    /// The newest revision of a key, also of its deletion.
    fn last(&self, key: &str) -> Revision {
        let history = self.history.get(key).and_then(|states| states.last());
        history.map_or(Revision(0), |(revision, _)| *revision)
    }

    fn carry_out(&mut self, write: &Write, revision: Revision) {
        let history = self.history.entry(write.key.clone()).or_default();
        history.push((revision, write.value.clone()));
        match &write.value {
            None => {
                self.there.remove(&write.key);
            }
            Some(value) => {
                let entry = super::room::entry(&write.key, revision, value.clone());
                self.there.insert(write.key.clone(), entry);
            }
        }
    }
}

async fn random_operations(room: &Room<'_>) -> Result<(), Failure> {
    let connections = room.connections(3).await?;
    for seed in room.seed()..room.seed() + SEEDS {
        play(room, &connections, seed)
            .await
            .map_err(|failure| Failure::new(format!("seed {seed}, {failure}")))?;
    }
    Ok(())
}

async fn play(room: &Room<'_>, connections: &[Arc<dyn Store>], seed: u64) -> Result<(), Failure> {
    let mut rng = Rng::new(seed);
    let mut reference = Reference::default();
    let keys: Vec<String> = NAMES
        .iter()
        .map(|name| room.key(format!("{seed}/{name}")))
        .collect();
    let scope = room.under(seed);
    let mut observers = vec![room.watch(&connections[0], scope.clone()).await?];
    for step in 0..STEPS {
        let store = &connections[rng.below(connections.len() as u64) as usize];
        let what = match rng.below(20) {
            0 => {
                let truth: Vec<Entry> = reference.there.values().cloned().collect();
                room.lists(store, &scope, &truth).await.map(|()| "a list")
            }
            1 | 2 => {
                let key = &keys[rng.below(keys.len() as u64) as usize];
                let shows = room.shows(store, key, reference.there.get(key)).await;
                shows.map(|()| "a read")
            }
            3 if observers.len() < 6 => {
                observers.push(room.watch(store, scope.clone()).await?);
                Ok("a watch")
            }
            _ => {
                let batch = draw_batch(&mut rng, &reference, &keys, step);
                write(store, &mut reference, batch)
                    .await
                    .map(|()| "a batch")
            }
        };
        what.map_err(|failure| Failure::new(format!("step {step}: {failure}")))?;
    }
    let truth: Vec<Entry> = reference.there.values().cloned().collect();
    for observer in &mut observers {
        observer.until(&truth).await?;
        follows_history(observer.told(), &reference)?;
    }
    Ok(())
}

async fn write(
    store: &Arc<dyn Store>,
    reference: &mut Reference,
    batch: Vec<Write>,
) -> Result<(), Failure> {
    let outcomes = store.write(batch.clone()).await;
    ensure!(
        outcomes.len() == batch.len(),
        "{} answers to {} writes",
        outcomes.len(),
        batch.len()
    );
    for (write, outcome) in batch.iter().zip(outcomes) {
        if !reference.holds(write) {
            let what = format!("a write of {:?} with {:?}", write.key, write.expect);
            refused(&what, outcome, reference.there.get(&write.key))?;
            continue;
        }
        let (revision, last) = (outcome?, reference.last(&write.key));
        ensure!(
            revision > last,
            "{:?} went from revision {} to {}",
            write.key,
            last.0,
            revision.0
        );
        reference.carry_out(write, revision);
    }
    Ok(())
}

fn draw_batch(rng: &mut Rng, reference: &Reference, keys: &[String], step: usize) -> Vec<Write> {
    let size = match rng.below(4) {
        0 => rng.between(2, keys.len() as u64) as usize,
        _ => 1,
    };
    let mut left: Vec<&String> = keys.iter().collect();
    let writes = (0..size).map(|_| {
        let key = left.swap_remove(rng.below(left.len() as u64) as usize);
        let last = reference.last(key);
        let now = reference.there.get(key).map(|entry| entry.revision);
        let expect = match rng.below(10) {
            0 => Expect::Absent,
            // Older, newer, of a deletion, of another key: all that a confused caller could hold.
            1 => Expect::At(Revision(last.0.saturating_sub(1))),
            2 => Expect::At(Revision(last.0 + 1)),
            3 => Expect::At(last),
            4 => {
                let other = &keys[rng.below(keys.len() as u64) as usize];
                Expect::At(reference.last(other))
            }
            _ => now.map_or(Expect::Absent, Expect::At),
        };
        let deletes = expect != Expect::Absent && rng.chance(0.3);
        let value = match deletes {
            true => None,
            false => Some(Bytes::from(format!("{step} {}", rng.below(1_000)))),
        };
        Write {
            key: key.clone(),
            expect,
            value,
        }
    });
    writes.collect()
}

/// Whether all that was told happened, in the order in which it was told. (That it ends with the
/// truth, and never goes back, was seen to already.)
fn follows_history(told: &[Change], reference: &Reference) -> Result<(), Failure> {
    for change in told {
        let (key, state) = match change {
            Change::Put(entry) => (&entry.key, (entry.revision, Some(entry.value.clone()))),
            Change::Deleted { key, revision } => (key, (*revision, None)),
            Change::Synced | Change::Restarted | Change::Interrupted(_) => continue,
        };
        let history = reference.history.get(key);
        ensure!(
            history.is_some_and(|states| states.contains(&state)),
            "the watch told of {key:?} as {state:?}, which never was"
        );
    }
    Ok(())
}

//! The store that the simulator uses, held against real ones: one random script of typed writes
//! runs on both, and everything they say must be the same, but for how they count revisions.
//!
//! ```text
//!                ┌─▶ GroupStore on a backend ─▶ outcomes, reads, lists, watches ─┐
//!   seed ─▶ step ┤                                        revisions translated   ├─▶ the same
//!                └─▶ parti_sim's model ───────▶ outcomes, reads, lists, changes ─┘
//! ```

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use parti::store::{GroupChange, GroupStore, Memory, Store};
use parti_core::ids::{Epoch, Incarnation, Nonce, Offset, PartitionId, Revision, Term, WorkerId};
use parti_core::io::{Expect, Scope, Stored, WatchEvent, Write, WriteOutcome};
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, EventRecord, LeaderRecord, PartitionRecord, Record};
use parti_core::rng::Rng;
use parti_sim::model::store as model;

const SEEDS: u64 = 6;
const STEPS: usize = 150;
const PREFIXES: [Prefix; 2] = [Prefix::Partitions, Prefix::Events];

/// What does not come within this time never will. A guard: nothing is measured against it.
const PATIENCE: Duration = Duration::from_secs(180);
const REST: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    agrees(Arc::new(Memory::new())).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("model.db").display());
    agrees(parti::store::open(&url).await.expect("a store")).await;
}

/// A further backend with a server is one line.
#[cfg(any(feature = "nats", feature = "etcd", feature = "postgres"))]
macro_rules! served {
    ($name:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let server = parti_servers::$name::Server::start();
            agrees(parti::store::open(&server.url()).await.expect("a store")).await;
        }
    };
}

#[cfg(feature = "nats")]
served!(nats);
#[cfg(feature = "etcd")]
served!(etcd);
#[cfg(feature = "postgres")]
served!(postgres);

/// Runs the script on a store and on the model.
async fn agrees(store: Arc<dyn Store>) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let run = now.map_or(0, |now| now.as_nanos());
    for seed in 0..SEEDS {
        let group = format!("model {run:x}.{seed}");
        let group = GroupStore::new(store.clone(), &group).expect("a name");
        let mut script = Script::new(seed, group);
        for step in 0..STEPS {
            script.step(step).await;
        }
        script.compare_watches().await;
        println!("{} agrees with the model, seed {seed}", store.name());
    }
}

struct Script {
    seed: u64,
    rng: Rng,
    group: GroupStore,
    model: model::Store,
    /// The backend's revision for each of the model's, which are unique.
    real: BTreeMap<Revision, Revision>,
    watches: Vec<Watched>,
    writes: u64,
}

struct Watched {
    scope: Scope,
    events: BoxStream<'static, GroupChange>,
}

impl Script {
    fn new(seed: u64, group: GroupStore) -> Self {
        Self {
            seed,
            rng: Rng::new(seed),
            group,
            model: model::Store::new(),
            real: BTreeMap::new(),
            watches: Vec::new(),
            writes: 0,
        }
    }

    async fn step(&mut self, step: usize) {
        let at = format!("seed {}, step {step}", self.seed);
        match self.rng.below(16) {
            0 => self.compare_list(&at).await,
            1 | 2 => self.compare_read(&at).await,
            3 if self.watches.len() < 8 => self.watch().await,
            _ => self.write(&at).await,
        }
    }

    async fn write(&mut self, at: &str) {
        let size = match self.rng.below(3) {
            0 => self.rng.between(2, 6) as usize,
            _ => 1,
        };
        let mut left = keys();
        let (mut for_model, mut for_real) = (Vec::new(), Vec::new());
        for _ in 0..size {
            let key = left.swap_remove(self.rng.below(left.len() as u64) as usize);
            let expect = self.draw_expectation(&key);
            // Deleting what must be absent is no write; a backend refuses it before it is sent.
            let deletes = expect != Expect::Absent && self.rng.chance(0.25);
            let write = Write {
                value: (!deletes).then(|| self.draw_record(&key)),
                key,
                expect,
            };
            for_real.push(Write {
                expect: match expect {
                    Expect::Absent => Expect::Absent,
                    Expect::At(revision) => Expect::At(self.translated(revision)),
                },
                ..write.clone()
            });
            for_model.push(write);
        }
        let expected = self.model.apply(&for_model);
        let found = self.group.write(&for_real).await;
        assert_eq!(found.len(), expected.len(), "{at}");
        for ((write, expected), found) in for_model.iter().zip(expected).zip(found) {
            let at = format!("{at}, {:?} with {:?}", write.key, write.expect);
            match (expected, found) {
                (WriteOutcome::Done(modelled), WriteOutcome::Done(real)) => {
                    self.real.insert(modelled, real);
                }
                (WriteOutcome::Conflict(expected), WriteOutcome::Conflict(found)) => {
                    assert_eq!(found, self.real_of(expected), "{at}");
                }
                (expected, found) => panic!("{at}: {found:?}, the model says {expected:?}"),
            }
        }
    }

    fn draw_expectation(&mut self, key: &Key) -> Expect {
        let now = self.model.read(key).map(|stored| stored.revision);
        let drawn = self.draw_any_expectation(now);
        // A backend may give two keys of one batch the same revision: then it is no other one.
        match (drawn, now) {
            (Expect::At(drawn), Some(now)) if self.translated(drawn) == self.translated(now) => {
                Expect::At(now)
            }
            _ => drawn,
        }
    }

    fn draw_any_expectation(&mut self, now: Option<Revision>) -> Expect {
        let newest = self.model.revision();
        match self.rng.below(8) {
            0 => Expect::Absent,
            // Of any write there was: of an older state, of a deletion, of another key.
            1 | 2 if newest.0 > 0 => Expect::At(Revision(self.rng.between(1, newest.0))),
            3 => Expect::At(Revision(newest.0 + 1_000)),
            _ => now.map_or(Expect::Absent, Expect::At),
        }
    }

    fn draw_record(&mut self, key: &Key) -> Record {
        self.writes += 1;
        let nonce = Nonce(self.rng.next_u64());
        let holder = Some((
            WorkerId::new("worker-1"),
            Incarnation(self.rng.below(1 << 40)),
        ));
        match key {
            Key::Leader => Record::Leader(Arc::new(LeaderRecord {
                holder: holder.filter(|_| !self.writes.is_multiple_of(3)),
                term: Term(self.writes),
                beat: self.writes,
                nonce,
            })),
            Key::Event(_) => Record::Event(Arc::new(EventRecord {
                at: self.writes,
                worker: WorkerId::new("w"),
                kind: EventKind::Plan,
                text: "a \"quoted\" text\n".repeat(self.rng.below(20) as usize),
                moves: None,
                nonce,
            })),
            _ => Record::Partition(Arc::new(PartitionRecord {
                epoch: Epoch(self.writes),
                owner: holder.filter(|_| !self.writes.is_multiple_of(2)),
                offset: Some(Offset(self.rng.below(1 << 50))),
                nonce,
                ..PartitionRecord::default()
            })),
        }
    }

    async fn compare_read(&mut self, at: &str) {
        let keys = keys();
        let key = &keys[self.rng.below(keys.len() as u64) as usize];
        let expected = self.real_of(self.model.read(key));
        // A read may be stale for a while.
        eventually(&format!("{at}, reading {key:?}"), || async {
            let found = self.group.read(key).await.expect("a read");
            (found == expected).then_some(()).ok_or(found)
        })
        .await;
    }

    async fn compare_list(&mut self, at: &str) {
        let prefix = PREFIXES[self.rng.below(2) as usize];
        let listed = self.model.list(prefix).into_iter();
        let mut expected: Vec<Stored> = listed.filter_map(|s| self.real_of(Some(s))).collect();
        // Both are sorted by key: the model by the typed one, a store by its text.
        expected.sort_by_key(|stored| stored.key.to_string());
        eventually(&format!("{at}, listing {prefix}"), || async {
            let found = self.group.list(prefix).await.expect("a list");
            (found == expected).then_some(()).ok_or(found)
        })
        .await;
    }

    async fn watch(&mut self) {
        let scope = match self.rng.below(4) {
            0 => Scope::Key(Key::Leader),
            1 => Scope::Key(keys()[0].clone()),
            other => Scope::Prefix(PREFIXES[(other - 2) as usize]),
        };
        let mut events = self.group.watch(&scope);
        // It begins with its first poll; the rest is read at the end.
        let first = tokio::time::timeout(PATIENCE, events.next()).await;
        let first = first.expect("a snapshot").expect("a watch never ends");
        let events = stream::iter([first]).chain(events).boxed();
        self.watches.push(Watched { events, scope });
    }

    /// Every watch ends with what the model has, and told nothing on the way that the model's own
    /// watch would not tell in that order.
    async fn compare_watches(&mut self) {
        for scope in PREFIXES.map(Scope::Prefix) {
            self.watches.push(Watched {
                events: self.group.watch(&scope),
                scope,
            });
        }
        for mut watched in std::mem::take(&mut self.watches) {
            let scope = &watched.scope;
            let at = format!("seed {}, a watch of {scope:?}", self.seed);
            let (records, _) = self.model.snapshot(scope);
            let expected: BTreeMap<Key, Stored> = records
                .into_iter()
                .filter_map(|stored| self.real_of(Some(stored)))
                .map(|stored| (stored.key.clone(), stored))
                .collect();
            let history = self.history(scope);
            let mut there: Option<BTreeMap<Key, Stored>> = None;
            let mut places: BTreeMap<Key, usize> = BTreeMap::new();
            while there.as_ref() != Some(&expected) {
                let told = tokio::time::timeout(PATIENCE, watched.events.next()).await;
                let told = told.unwrap_or_else(|_| panic!("{at}: no more after {there:?}"));
                match told.expect("a watch never ends") {
                    GroupChange::Interrupted(_) => {}
                    GroupChange::Event(WatchEvent::Snapshot(all)) => {
                        places.clear();
                        let mut fresh = BTreeMap::new();
                        for stored in all {
                            step_on(&history, &mut places, &stored.key, &change(&stored), &at);
                            fresh.insert(stored.key.clone(), stored);
                        }
                        there = Some(fresh);
                    }
                    GroupChange::Event(WatchEvent::Changed(stored)) => {
                        step_on(&history, &mut places, &stored.key, &change(&stored), &at);
                        let there = there.as_mut().expect("a snapshot comes first");
                        there.insert(stored.key.clone(), stored);
                    }
                    GroupChange::Event(WatchEvent::Removed(key, revision)) => {
                        step_on(&history, &mut places, &key, &(revision, None), &at);
                        let there = there.as_mut().expect("a snapshot comes first");
                        there.remove(&key);
                    }
                }
            }
        }
    }

    /// The model's changes since the beginning, by key, in the backend's revisions.
    fn history(&self, scope: &Scope) -> BTreeMap<Key, Vec<State>> {
        let mut history: BTreeMap<Key, Vec<State>> = BTreeMap::new();
        for event in self.model.changes(scope, Revision(0)) {
            let (key, state) = match event {
                WatchEvent::Changed(stored) => {
                    let stored = self.real_of(Some(stored)).expect("it is there");
                    (stored.key.clone(), change(&stored))
                }
                WatchEvent::Removed(key, revision) => (key, (self.translated(revision), None)),
                WatchEvent::Snapshot(_) => panic!("the model forgot: make the script shorter"),
            };
            history.entry(key).or_default().push(state);
        }
        history
    }

    fn translated(&self, revision: Revision) -> Revision {
        // One that the model never gave is one that the backend never gave.
        let never = Revision(revision.0 + (1 << 40));
        self.real.get(&revision).copied().unwrap_or(never)
    }

    fn real_of(&self, stored: Option<Stored>) -> Option<Stored> {
        stored.map(|stored| Stored {
            revision: self.translated(stored.revision),
            ..stored
        })
    }
}

/// A key's state by one write; `None` is its deletion.
type State = (Revision, Option<Record>);

fn change(stored: &Stored) -> State {
    (stored.revision, Some(stored.record.clone()))
}

/// Goes on to the place of a state in its key's history, which is never behind the last one.
fn step_on(
    history: &BTreeMap<Key, Vec<State>>,
    places: &mut BTreeMap<Key, usize>,
    key: &Key,
    state: &State,
    at: &str,
) {
    let states = history.get(key).map_or(&[][..], Vec::as_slice);
    let from = places.get(key).copied().unwrap_or(0);
    let found = states[from..].iter().position(|known| known == state);
    let found = found.unwrap_or_else(|| {
        panic!("{at}: {key:?} told as {state:?}, after number {from} of {states:?}")
    });
    places.insert(key.clone(), from + found);
}

fn keys() -> Vec<Key> {
    let partition = |name: &str| Key::Partition(PartitionId::new(name));
    vec![
        partition("p1"),
        partition("p.1"),
        partition("p*/ü >"),
        partition("P1"),
        Key::Leader,
        Key::Event(1),
        Key::Event(20),
        Key::Event(3),
    ]
}

/// Asks until it is so; what was seen last is in the complaint.
async fn eventually<T: std::fmt::Debug, F: Future<Output = Result<(), T>>>(
    what: &str,
    ask: impl Fn() -> F,
) {
    let mut last = ask().await;
    for _ in 0..1_500 {
        if last.is_ok() {
            return;
        }
        tokio::time::sleep(REST).await;
        last = ask().await;
    }
    panic!("{what}: still {last:?}");
}

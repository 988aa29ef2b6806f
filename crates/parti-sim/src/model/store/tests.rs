//! The store contract, and an oracle that keeps every state it ever had.

use std::sync::Arc;

use parti_core::ids::{Nonce, PartitionId, WorkerId};
use parti_core::record::GroupRecord;
use parti_core::rng::Rng;

use super::*;

fn partition(name: &str) -> Key {
    Key::Partition(PartitionId::new(name))
}

fn worker(name: &str) -> Key {
    Key::Worker(WorkerId::new(name))
}

fn record(mark: u64) -> Record {
    Record::Group(Arc::new(GroupRecord {
        store: Nonce(mark),
        stream: 0.into(),
        coordination: "leader".into(),
        strategy: None,
        nonce: Nonce(0),
    }))
}

fn write(key: &Key, expect: Expect, value: Option<u64>) -> Write {
    Write {
        key: key.clone(),
        expect,
        value: value.map(record),
    }
}

fn put(store: &mut Store, key: &Key, mark: u64) -> Revision {
    let expect = store
        .read(key)
        .map_or(Expect::Absent, |found| Expect::At(found.revision));
    match store.apply_one(&write(key, expect, Some(mark))) {
        WriteOutcome::Done(revision) => revision,
        other => panic!("{other:?}"),
    }
}

fn delete(store: &mut Store, key: &Key) -> Revision {
    let at = store.read(key).expect("something to delete").revision;
    match store.apply_one(&write(key, Expect::At(at), None)) {
        WriteOutcome::Done(revision) => revision,
        other => panic!("{other:?}"),
    }
}

fn found(key: &Key, revision: u64, mark: u64) -> Stored {
    Stored {
        key: key.clone(),
        revision: Revision(revision),
        record: record(mark),
    }
}

#[test]
fn each_write_of_a_batch_fares_on_its_own() {
    let mut store = Store::new();
    let (a, b) = (partition("a"), partition("b"));
    put(&mut store, &a, 1);
    let outcomes = store.apply(&[
        write(&a, Expect::Absent, Some(2)),
        write(&b, Expect::Absent, Some(3)),
        write(&a, Expect::At(Revision(1)), Some(4)),
        write(&a, Expect::At(Revision(1)), Some(5)),
        write(&worker("w"), Expect::At(Revision(1)), Some(6)),
    ]);
    assert_eq!(
        outcomes,
        vec![
            WriteOutcome::Conflict(Some(found(&a, 1, 1))),
            WriteOutcome::Done(Revision(2)),
            WriteOutcome::Done(Revision(3)),
            WriteOutcome::Conflict(Some(found(&a, 3, 4))),
            WriteOutcome::Conflict(None),
        ]
    );
    let expected = Counters {
        keys: 2,
        most_keys: 2,
        writes: 3,
        conflicts: 3,
    };
    assert_eq!(store.counters(), expected);
}

#[test]
fn revisions_grow_across_delete_and_create() {
    let mut store = Store::new();
    let a = partition("a");
    let created = put(&mut store, &a, 1);
    let deleted = delete(&mut store, &a);
    let stale = store.apply_one(&write(&a, Expect::At(created), Some(2)));
    assert_eq!(
        stale,
        WriteOutcome::Conflict(None),
        "a revision of a former life is no key"
    );
    let again = put(&mut store, &a, 3);
    assert!(created < deleted && deleted < again);
    assert_eq!(store.counters().keys, 1);
}

#[test]
fn lists_hold_one_kind_sorted_without_the_deleted() {
    let mut store = Store::new();
    for name in ["c", "a", "b"] {
        put(&mut store, &partition(name), 0);
    }
    put(&mut store, &worker("a"), 0);
    put(&mut store, &Key::Leader, 0);
    delete(&mut store, &partition("b"));
    let keys: Vec<Key> = store
        .list(Prefix::Partitions)
        .into_iter()
        .map(|s| s.key)
        .collect();
    assert_eq!(keys, vec![partition("a"), partition("c")]);
    assert_eq!(store.list(Prefix::Workers).len(), 1);
    assert_eq!(store.list(Prefix::Assignments), vec![]);
}

#[test]
fn a_watch_sees_every_change_after_its_snapshot_once_and_in_order() {
    let mut store = Store::new();
    let (a, b) = (worker("a"), worker("b"));
    put(&mut store, &a, 1);
    let scope = Scope::Prefix(Prefix::Workers);
    let (snapshot, after) = store.snapshot(&scope);
    assert_eq!((snapshot, after), (vec![found(&a, 1, 1)], Revision(1)));
    put(&mut store, &partition("p"), 9);
    put(&mut store, &b, 2);
    put(&mut store, &a, 3);
    delete(&mut store, &b);
    let all = vec![
        WatchEvent::Changed(found(&b, 3, 2)),
        WatchEvent::Changed(found(&a, 4, 3)),
        WatchEvent::Removed(b.clone(), Revision(5)),
    ];
    assert_eq!(store.changes(&scope, after), all);
    assert_eq!(store.changes(&scope, Revision(4)), all[2..]);
    assert_eq!(store.changes(&scope, Revision(5)), vec![]);
    assert_eq!(
        store.changes(&Scope::Key(a.clone()), Revision(1)),
        all[1..2]
    );
    assert_eq!(store.changes(&Scope::Key(worker("z")), Revision(0)), vec![]);
}

#[test]
fn a_watch_that_asks_beyond_memory_gets_a_snapshot() {
    let mut store = Store::remembering(2);
    let a = worker("a");
    for mark in 1..=4 {
        put(&mut store, &a, mark);
    }
    let scope = Scope::Key(a.clone());
    let fresh = vec![WatchEvent::Snapshot(vec![found(&a, 4, 4)])];
    assert_eq!(store.changes(&scope, Revision(1)), fresh, "forgotten");
    assert_eq!(
        store.changes(&scope, Revision(9)),
        fresh,
        "from a future that was rolled back"
    );
    assert_eq!(store.changes(&scope, Revision(2)).len(), 2, "still known");
}

#[test]
fn a_roll_back_takes_the_revision_counter_along() {
    let mut store = Store::new();
    let (a, b) = (partition("a"), partition("b"));
    put(&mut store, &a, 1);
    put(&mut store, &a, 2);
    put(&mut store, &b, 3);
    delete(&mut store, &a);
    assert_eq!(store.roll_back(Revision(2)), Revision(2));
    assert_eq!(store.list(Prefix::Partitions), vec![found(&a, 2, 2)]);
    assert_eq!((store.life(), store.counters().keys), (1, 1));
    assert_eq!(
        put(&mut store, &b, 4),
        Revision(3),
        "a revision is given twice"
    );
    let log = store.drain_log();
    let seen: Vec<(u64, u64)> = log.iter().map(|a| (a.life, a.revision.0)).collect();
    assert_eq!(
        seen,
        vec![(0, 1), (0, 2), (0, 3), (0, 4), (1, 3)],
        "the observer saw it all"
    );
}

#[test]
fn a_replaced_store_is_empty_and_counts_from_the_beginning() {
    let mut store = Store::new();
    put(&mut store, &partition("a"), 1);
    store.replace();
    assert_eq!(store.list(Prefix::Partitions), vec![]);
    assert_eq!(
        store.changes(&Scope::Prefix(Prefix::Partitions), Revision(0)),
        vec![]
    );
    assert_eq!(put(&mut store, &partition("a"), 2), Revision(1));
    assert_eq!(store.life(), 1);
    assert_eq!(store.counters().most_keys, 1);
}

#[test]
fn the_log_tells_old_and_new_of_each_accepted_write() {
    let mut store = Store::new();
    let a = partition("a");
    put(&mut store, &a, 1);
    store.apply_one(&write(&a, Expect::Absent, Some(8)));
    put(&mut store, &a, 2);
    delete(&mut store, &a);
    let log = store.drain_log();
    let olds: Vec<Option<Stored>> = log.iter().map(|a| a.old.clone()).collect();
    let news: Vec<Option<Record>> = log.iter().map(|a| a.new.clone()).collect();
    assert_eq!(
        olds,
        vec![None, Some(found(&a, 1, 1)), Some(found(&a, 2, 2))]
    );
    assert_eq!(news, vec![Some(record(1)), Some(record(2)), None]);
    assert_eq!(store.drain_log(), vec![]);
}

/// A store whose every state is kept whole.
struct Oracle {
    states: Vec<BTreeMap<Key, Stored>>,
}

impl Oracle {
    fn list_as_of(&self, prefix: Prefix, revision: u64) -> Vec<Stored> {
        let state = &self.states[revision as usize];
        state
            .values()
            .filter(|stored| prefix.holds(&stored.key))
            .cloned()
            .collect()
    }
}

#[test]
fn every_stale_view_is_what_the_store_once_was() {
    let keys: Vec<Key> = ["a", "b", "c"]
        .iter()
        .flat_map(|n| [partition(n), worker(n)])
        .collect();
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let history = 10 + rng.below(60) as usize;
        let mut store = Store::remembering(history);
        let mut oracle = Oracle {
            states: vec![BTreeMap::new()],
        };
        for mark in 0..300 {
            let key = &keys[rng.below(keys.len() as u64) as usize];
            if rng.chance(0.02) {
                let now = store.revision().0;
                let wanted = now.saturating_sub(rng.below(history as u64 / 2));
                let to = store.roll_back(Revision(wanted));
                assert!(to.0 >= wanted, "went back further than asked");
                oracle.states.truncate(to.0 as usize + 1);
            } else if store.read(key).is_some() && rng.chance(0.3) {
                delete(&mut store, key);
                let mut state = oracle.states.last().cloned().unwrap_or_default();
                state.remove(key);
                oracle.states.push(state);
            } else {
                let revision = put(&mut store, key, mark);
                let mut state = oracle.states.last().cloned().unwrap_or_default();
                state.insert(key.clone(), found(key, revision.0, mark));
                oracle.states.push(state);
            }
            let now = store.revision().0;
            assert_eq!(oracle.states.len() as u64, now + 1);
            assert_eq!(
                store.counters().keys,
                oracle.states[now as usize].len() as u64
            );
            let known = store.floor.0;
            assert!(now - known <= history as u64);
            let past = rng.between(known, now);
            for prefix in [Prefix::Partitions, Prefix::Workers] {
                assert_eq!(
                    store.list_as_of(prefix, Revision(past)),
                    oracle.list_as_of(prefix, past),
                    "seed {seed}, revision {past} of {now}"
                );
                // A watch from there ends at the present.
                let scope = Scope::Prefix(prefix);
                let (snapshot, after) = store.snapshot_as_of(&scope, Revision(past));
                let mut view: BTreeMap<Key, Stored> = snapshot
                    .into_iter()
                    .map(|stored| (stored.key.clone(), stored))
                    .collect();
                for event in store.changes(&scope, after) {
                    match event {
                        WatchEvent::Changed(stored) => {
                            view.insert(stored.key.clone(), stored);
                        }
                        WatchEvent::Removed(key, _) => {
                            assert!(view.remove(&key).is_some(), "removed what was not there");
                        }
                        WatchEvent::Snapshot(_) => panic!("nothing was forgotten"),
                    }
                }
                let view: Vec<Stored> = view.into_values().collect();
                assert_eq!(view, store.list(prefix), "seed {seed}");
            }
            assert_eq!(
                store.read_as_of(key, Revision(past)).as_ref(),
                oracle.states[past as usize].get(key)
            );
        }
    }
}

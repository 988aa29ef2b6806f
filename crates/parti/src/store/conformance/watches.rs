//! Watches: the seam between the snapshot and the changes, and who hears what.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use parti_core::rng::Rng;

use super::observer::Observer;
use super::room::{Failure, Room, all, create, created, delete, entry, update};
use super::{cases, ensure};
use crate::store::{Change, Entry, Revision, Scope, Store, StoreExt};

cases! { "watches", Nothing:
    BOTH snapshot_then_changes,
    BOTH the_seam_loses_nothing,
    BOTH one_key,
    BOTH what_was_deleted_before_is_not_told,
    BOTH a_delete_is_told_with_its_revision,
    BOTH several_at_once,
    BOTH a_dropped_one_harms_nobody,
    PLAIN what_is_written_before_the_first_poll_is_told,
    BOTH revisions_come_in_order,
    BOTH a_slow_reader_misses_nothing,
    BOTH five_thousand,
}

async fn snapshot_then_changes(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let a = created(&store, &room.key("a"), "one").await?;
    let b = created(&store, &room.key("b"), "one").await?;
    let mut observer = room.watch(&other, room.scope()).await?;
    ensure!(
        observer.entries() == [a.clone(), b.clone()],
        "the snapshot is {:?}",
        observer.entries()
    );
    let a2 = entry(
        &a.key,
        store.update(&a.key, a.revision, "two").await?,
        "two",
    );
    store.delete(&b.key, b.revision).await?;
    let c = created(&store, &room.key("c"), "new").await?;
    observer.until(&[a2.clone(), c.clone()]).await?;
    let b = created(&store, &b.key, "again").await?;
    observer.until(&[a2, b, c]).await?;
    ensure!(
        observer.restarts() == 0,
        "it started anew without an outage"
    );
    Ok(())
}

/// Writes at random to keys of its own, and knows how they end.
async fn writer(
    store: Arc<dyn Store>,
    keys: Vec<String>,
    mut rng: Rng,
    steps: usize,
) -> Result<Vec<Entry>, Failure> {
    let mut there: BTreeMap<String, Entry> = BTreeMap::new();
    for step in 0..steps {
        let key = &keys[rng.below(keys.len() as u64) as usize];
        let value = format!("step {step}");
        let write = match there.get(key) {
            None => create(key, value.clone()),
            Some(now) if rng.chance(0.3) => delete(key, now.revision),
            Some(now) => update(key, now.revision, value.clone()),
        };
        let deletes = write.value.is_none();
        let revision = store.write_one(write).await?;
        if deletes {
            there.remove(key);
        } else {
            there.insert(key.clone(), entry(key, revision, value));
        }
        tokio::task::yield_now().await;
    }
    Ok(there.into_values().collect())
}

async fn the_seam_loses_nothing(room: &Room<'_>) -> Result<(), Failure> {
    const WRITERS: usize = 4;
    const WATCHES: usize = 24;
    let connections = room.connections(WRITERS).await?;
    let mut rng = Rng::new(room.seed());
    let writers: Vec<_> = connections
        .iter()
        .enumerate()
        .map(|(number, store)| {
            let keys = (0..6).map(|n| room.key(format!("w{number}/k{n}")));
            let work = writer(store.clone(), keys.collect(), rng.fork(), 150);
            tokio::spawn(work)
        })
        .collect();
    // One starts after the other, as fast as they can, all while the writers are at work.
    let mut observers = Vec::new();
    for number in 0..WATCHES {
        let store = &connections[number % WRITERS];
        let scope = match number % 3 {
            0 => room.scope(),
            _ => room.under(format!("w{}", number % WRITERS)),
        };
        observers.push((room.watch(store, scope.clone()).await?, scope));
    }
    let mut truth = Vec::new();
    for writer in writers {
        let wrote = writer.await;
        truth.extend(wrote.map_err(|error| Failure::new(format!("a writer: {error}")))??);
    }
    truth.sort_by(|a, b| a.key.cmp(&b.key));
    for (observer, scope) in &mut observers {
        let own = truth.iter().filter(|entry| scope.holds(&entry.key));
        observer.until(&own.cloned().collect::<Vec<_>>()).await?;
    }
    room.lists(&connections[0], &room.scope(), &truth).await
}

async fn one_key(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let key = room.key("a");
    let mut observer = room.watch(&other, Scope::Key(key.clone())).await?;
    // The observer complains about whatever is not in its scope.
    for name in ["a/b", "ab", "A", "a.b", "b", "*", "a%"] {
        created(&store, &room.key(name), "a neighbour").await?;
    }
    let first = created(&store, &key, "one").await?;
    observer.until(std::slice::from_ref(&first)).await?;
    let second = entry(
        &key,
        store.update(&key, first.revision, "two").await?,
        "two",
    );
    observer.until(std::slice::from_ref(&second)).await?;
    store.delete(&key, second.revision).await?;
    observer.until(&[]).await?;
    let third = created(&store, &key, "three").await?;
    observer.until(std::slice::from_ref(&third)).await?;
    let later = room.watch(&other, Scope::Key(key)).await?;
    ensure!(later.entries() == [third], "a later watch differs");
    Ok(())
}

async fn what_was_deleted_before_is_not_told(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let gone = created(&store, &room.key("gone"), "x").await?;
    let there = created(&store, &room.key("there"), "y").await?;
    store.delete(&gone.key, gone.revision).await?;
    let observer = room.watch(&other, room.scope()).await?;
    ensure!(
        observer.entries() == [there],
        "the snapshot is {:?}",
        observer.entries()
    );
    let observer = room.watch(&other, Scope::Key(gone.key)).await?;
    ensure!(
        observer.entries().is_empty(),
        "the snapshot of a deleted key is {:?}",
        observer.entries()
    );
    Ok(())
}

async fn a_delete_is_told_with_its_revision(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut observer = room.watch(&other, room.scope()).await?;
    for round in 0..5 {
        let there = created(&store, &room.key("a"), round.to_string()).await?;
        observer.until(std::slice::from_ref(&there)).await?;
        let gone = store.delete(&there.key, there.revision).await?;
        observer.until(&[]).await?;
        let key = there.key;
        let told = Change::Deleted {
            key,
            revision: gone,
        };
        ensure!(
            observer.told().last() == Some(&told),
            "the delete {gone:?} was told as {:?}",
            observer.told().last()
        );
    }
    Ok(())
}

async fn several_at_once(room: &Room<'_>) -> Result<(), Failure> {
    const EACH: usize = 20;
    let (store, watching) = (room.connect().await?, room.connect().await?);
    let mut scopes = Vec::new();
    for _ in 0..EACH {
        scopes.extend([
            room.scope(),
            room.under("a"),
            room.under("b"),
            Scope::Key(room.key("a/x")),
        ]);
    }
    let mut observers = Vec::new();
    for scope in scopes {
        observers.push((room.watch(&watching, scope.clone()).await?, scope));
    }
    let mut there = Vec::new();
    for name in ["a/x", "a/y", "b/x"] {
        let first = created(&store, &room.key(name), "one").await?;
        let second = store.update(&first.key, first.revision, "two").await?;
        there.push(entry(&first.key, second, "two"));
    }
    for (observer, scope) in &mut observers {
        let own = there.iter().filter(|entry| scope.holds(&entry.key));
        observer.until(&own.cloned().collect::<Vec<_>>()).await?;
    }
    Ok(())
}

async fn a_dropped_one_harms_nobody(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let first = created(&store, &room.key("a"), "0").await?;
    let mut there = vec![first];
    let mut stays = room.watch(&store, room.scope()).await?;
    for round in 1..=40 {
        match round % 4 {
            0 => drop(store.watch(room.scope())),
            // In the middle of its snapshot.
            1 => drop(store.watch(room.scope()).next().await),
            2 => drop(room.watch(&store, room.scope()).await?),
            // With changes that nobody reads.
            _ => {
                let unread = room.watch(&store, room.scope()).await?;
                let now = &mut there[0];
                let revision = store.update(&now.key, now.revision, "unread").await?;
                *now = entry(&now.key, revision, "unread");
                drop(unread);
            }
        }
        let now = &mut there[0];
        let value = round.to_string();
        let revision = store.update(&now.key, now.revision, value.clone()).await?;
        *now = entry(&now.key, revision, value);
        stays.until(&there).await?;
    }
    ensure!(stays.restarts() == 0, "the one that stays started anew");
    Ok(())
}

async fn what_is_written_before_the_first_poll_is_told(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let watch = other.watch(room.scope());
    let there = created(&store, &room.key("a"), "x").await?;
    let mut observer = Observer::new(watch, room.scope());
    observer.until(&[there]).await?;
    Ok(())
}

async fn revisions_come_in_order(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut observer = room.watch(&other, room.scope()).await?;
    let key = room.key("a");
    let mut history: BTreeMap<Revision, String> = BTreeMap::new();
    let mut last = created(&store, &key, "0").await?;
    history.insert(last.revision, "0".into());
    for step in 1..300 {
        let value = step.to_string();
        let revision = store.update(&key, last.revision, value.clone()).await?;
        history.insert(revision, value.clone());
        last = entry(&key, revision, value);
    }
    observer.until(&[last]).await?;
    // Going back is the observer's business; here: nothing is told that never was.
    for told in observer.told() {
        if let Change::Put(told) = told {
            let value = history.get(&told.revision);
            ensure!(
                value.is_some_and(|value| value.as_bytes() == told.value),
                "revision {} was told as {:?}, it was {value:?}",
                told.revision.0,
                told.value
            );
        }
    }
    Ok(())
}

async fn a_slow_reader_misses_nothing(room: &Room<'_>) -> Result<(), Failure> {
    const KEYS: usize = 500;
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut slow = room.watch(&other, room.scope()).await?;
    let mut there: Vec<Entry> = Vec::new();
    // Far more than any buffer on the way holds, in values that fill one quickly.
    for round in 0..8 {
        let value = format!("{round}").repeat(1_000);
        let batch = (0..KEYS).map(|n| match there.get(n) {
            None => create(&room.key(format!("k{n:04}")), value.clone()),
            Some(now) => update(&now.key, now.revision, value.clone()),
        });
        let outcomes = store.write(batch.collect()).await;
        let mut after = Vec::new();
        for (n, outcome) in outcomes.into_iter().enumerate() {
            let key = room.key(format!("k{n:04}"));
            after.push(entry(&key, outcome?, value.clone()));
        }
        there = after;
    }
    let gone = there.remove(0);
    store.delete(&gone.key, gone.revision).await?;
    // The store goes on while its watch is not read, on the same connection too.
    room.shows(&other, &gone.key, None).await?;
    slow.until(&there).await?;
    Ok(())
}

async fn five_thousand(room: &Room<'_>) -> Result<(), Failure> {
    const MANY: usize = 5_000;
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut early = room.watch(&other, room.scope()).await?;
    let keys: Vec<String> = (0..MANY).map(|n| room.key(format!("k{n:05}"))).collect();
    let batch = keys.iter().map(|key| create(key, "x")).collect();
    let mut there = Vec::new();
    for (key, outcome) in keys.iter().zip(store.write(batch).await) {
        there.push(entry(key, outcome?, "x"));
    }
    // One has them as changes, the others as a snapshot, several at the same time.
    early.until(&there).await?;
    let late = (0..4).map(|_| {
        let mut observer = Observer::new(other.watch(room.scope()), room.scope());
        async move {
            observer.synced().await?;
            Ok::<_, String>(observer.entries())
        }
    });
    for told in all(late).await? {
        let told = told?;
        ensure!(
            told == there,
            "a snapshot: {}",
            super::room::difference(&told, &there)
        );
    }
    Ok(())
}

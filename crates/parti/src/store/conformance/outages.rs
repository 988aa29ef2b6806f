//! Broken connections: the watch comes back by itself, and nothing acknowledged is lost.

use std::time::Duration;

use super::room::{Failure, Room, created, entry};
use super::{cases, ensure};
use crate::store::{Entry, Error, Expect, Revision, Scope, Store, StoreExt, Write};

cases! { "outages", Disturbance:
    BOTH a_watch_comes_back,
    BOTH what_was_deleted_meanwhile_is_gone,
    PLAIN watches_of_keys_and_several_scopes_come_back,
    BOTH acknowledged_writes_survive,
    BOTH a_counter_counts_through_an_outage,
}

/// How long to rest before an operation is tried again.
const REST: Duration = Duration::from_millis(50);

/// Writes until it is settled, whatever happens on the way: the value is the writer's own mark.
async fn settle(
    store: &dyn Store,
    key: &str,
    expect: Expect,
    value: &'static str,
) -> Result<Entry, Failure> {
    let mut expect = expect;
    loop {
        let write = Write {
            key: key.to_owned(),
            expect,
            value: Some(value.into()),
        };
        match store.write_one(write).await {
            Ok(revision) => return Ok(entry(key, revision, value)),
            Err(Error::Conflict {
                current: Some(current),
            }) => {
                // An earlier try of ours, whose answer was lost.
                if current.value == value {
                    return Ok(*current);
                }
                expect = Expect::At(current.revision);
            }
            Err(Error::Conflict { current: None }) => expect = Expect::Absent,
            Err(Error::Unavailable { .. } | Error::Unknown { .. }) => {
                tokio::time::sleep(REST).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// Deletes until it is gone.
async fn settle_gone(store: &dyn Store, key: &str, revision: Revision) -> Result<(), Failure> {
    loop {
        match store.delete(key, revision).await {
            Ok(_) | Err(Error::Conflict { current: None }) => return Ok(()),
            Err(Error::Unavailable { .. } | Error::Unknown { .. }) => {
                tokio::time::sleep(REST).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
}

async fn a_watch_comes_back(room: &Room<'_>) -> Result<(), Failure> {
    let (store, watching) = (room.connect().await?, room.connect().await?);
    let a = created(&store, &room.key("a"), "one").await?;
    let b = created(&store, &room.key("b"), "one").await?;
    let mut observer = room.watch(&watching, room.scope()).await?;
    for value in ["two", "three", "four"] {
        room.disturb().await?;
        // The same connections go on: coming back is their own business.
        let a = settle(&*store, &a.key, Expect::Absent, value).await?;
        observer.until(&[a.clone(), b.clone()]).await?;
        // And it is live: what comes now comes as a change.
        let c = settle(&*store, &room.key("c"), Expect::Absent, value).await?;
        observer.until(&[a.clone(), b.clone(), c.clone()]).await?;
        settle_gone(&*store, &c.key, c.revision).await?;
        observer.until(&[a, b.clone()]).await?;
    }
    Ok(())
}

async fn what_was_deleted_meanwhile_is_gone(room: &Room<'_>) -> Result<(), Failure> {
    let (store, watching) = (room.connect().await?, room.connect().await?);
    let gone = created(&store, &room.key("gone"), "x").await?;
    let again = created(&store, &room.key("again"), "x").await?;
    let stays = created(&store, &room.key("stays"), "x").await?;
    let mut observer = room.watch(&watching, room.scope()).await?;
    room.disturb().await?;
    // The watch is not read, so that it knows of none of this before it comes back.
    let other = room.connect().await?;
    settle_gone(&*other, &gone.key, gone.revision).await?;
    settle_gone(&*other, &again.key, again.revision).await?;
    let again = settle(&*other, &again.key, Expect::Absent, "y").await?;
    observer.until(&[again, stays]).await?;
    Ok(())
}

async fn watches_of_keys_and_several_scopes_come_back(room: &Room<'_>) -> Result<(), Failure> {
    let (store, watching) = (room.connect().await?, room.connect().await?);
    let mut there = vec![
        created(&store, &room.key("a/x"), "one").await?,
        created(&store, &room.key("b/x"), "one").await?,
    ];
    let mut observers = Vec::new();
    for scope in [
        Scope::Key(room.key("a/x")),
        Scope::Key(room.key("c/x")),
        room.under("a"),
        room.under("b"),
        room.scope(),
    ] {
        observers.push((room.watch(&watching, scope.clone()).await?, scope));
    }
    room.disturb().await?;
    there[0] = settle(&*store, &room.key("a/x"), Expect::Absent, "two").await?;
    there.push(settle(&*store, &room.key("c/x"), Expect::Absent, "new").await?);
    for (observer, scope) in &mut observers {
        let own = there.iter().filter(|entry| scope.holds(&entry.key));
        observer.until(&own.cloned().collect::<Vec<_>>()).await?;
    }
    Ok(())
}

async fn acknowledged_writes_survive(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let keys: Vec<String> = (0..500).map(|n| room.key(format!("k{n:03}"))).collect();
    let batch = keys.iter().map(|key| super::room::create(key, key.clone()));
    let mut there = Vec::new();
    for (key, outcome) in keys.iter().zip(store.write(batch.collect()).await) {
        there.push(entry(key, outcome?, key.clone()));
    }
    room.disturb().await?;
    let fresh = room.connect().await?;
    room.lists(&fresh, &room.scope(), &there).await?;
    // Revisions go on from where they were.
    let first = &there[0];
    let updated = fresh.update(&first.key, first.revision, "two").await?;
    ensure!(updated > first.revision, "an update did not grow");
    Ok(())
}

/// Increments all through an outage: what was acknowledged counts, what is unknown may.
async fn a_counter_counts_through_an_outage(room: &Room<'_>) -> Result<(), Failure> {
    let key = room.key("counter");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writers: Vec<_> = room
        .connections(3)
        .await?
        .into_iter()
        .map(|store| {
            let (key, stopped) = (key.clone(), stopped.clone());
            tokio::spawn(async move { increments(&*store, &key, &stopped).await })
        })
        .collect();
    for _ in 0..2 {
        room.disturb().await?;
    }
    stop.send_replace(true);
    let (mut least, mut most) = (0, 0);
    for writer in writers {
        let (acknowledged, unknown) = writer
            .await
            .map_err(|error| Failure::new(format!("a writer: {error}")))??;
        least += acknowledged;
        most += acknowledged + unknown;
    }
    let store = room.connect().await?;
    let probe = store.update(&key, Revision(u64::MAX), "").await;
    let Err(Error::Conflict {
        current: Some(last),
    }) = probe
    else {
        return Err(Failure::new(format!("the probe got {probe:?}")));
    };
    let count = number(&last.value)?;
    ensure!(
        (least..=most).contains(&count),
        "{least} increments were acknowledged and {} are unknown, the counter is at {count}",
        most - least
    );
    Ok(())
}

async fn increments(
    store: &dyn Store,
    key: &str,
    stopped: &tokio::sync::watch::Receiver<bool>,
) -> Result<(u64, u64), Failure> {
    let (mut acknowledged, mut unknown) = (0, 0);
    let mut current: Option<Entry> = None;
    // A last success shows that the store works again for those who were connected before.
    let mut succeeded_since = false;
    while !(*stopped.borrow() && succeeded_since) {
        if !*stopped.borrow() {
            succeeded_since = false;
        }
        let (expect, count) = match &current {
            None => (Expect::Absent, 0),
            Some(entry) => (Expect::At(entry.revision), number(&entry.value)?),
        };
        let value = (count + 1).to_string();
        let write = Write {
            key: key.to_owned(),
            expect,
            value: Some(value.clone().into()),
        };
        match store.write_one(write).await {
            Ok(revision) => {
                acknowledged += 1;
                succeeded_since = true;
                current = Some(entry(key, revision, value));
            }
            Err(Error::Conflict { current: told }) => current = told.map(|entry| *entry),
            Err(Error::Unavailable { .. }) => tokio::time::sleep(REST).await,
            Err(Error::Unknown { .. }) => {
                unknown += 1;
                tokio::time::sleep(REST).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok((acknowledged, unknown))
}

fn number(value: &[u8]) -> Result<u64, Failure> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::new(format!("{value:?} is no number")))
}

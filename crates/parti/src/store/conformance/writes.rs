//! Single writes: what an expectation means, and how revisions grow.

use futures_util::FutureExt;

use super::room::{Failure, Room, create, created, delete, entry, refused, rejected, update};
use super::{cases, ensure};
use crate::store::{Error, Expect, Revision, StoreExt, Write};

cases! { "writes", Nothing:
    BOTH create_update_delete,
    BOTH create_of_what_is_there,
    BOTH stale_update,
    BOTH stale_delete,
    BOTH update_and_delete_of_what_is_not_there,
    BOTH a_revision_that_never_was,
    BOTH the_revision_of_a_delete_is_no_expectation,
    BOTH create_after_delete,
    BOTH revisions_grow_across_deletes,
    PLAIN a_delete_of_what_must_be_absent,
    BOTH a_dropped_write_leaves_the_store_usable,
}

async fn create_update_delete(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let key = room.key("a");
    room.shows(&store, &key, None).await?;
    let first = created(&store, &key, "one").await?;
    room.shows(&store, &key, Some(&first)).await?;
    room.shows(&other, &key, Some(&first)).await?;
    let revision = store.update(&key, first.revision, "two").await?;
    ensure!(revision > first.revision, "an update did not grow");
    room.shows(&other, &key, Some(&entry(&key, revision, "two")))
        .await?;
    let gone = other.delete(&key, revision).await?;
    ensure!(gone > revision, "the revision of a delete did not grow");
    room.shows(&store, &key, None).await?;
    room.shows(&other, &key, None).await
}

async fn create_of_what_is_there(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let key = room.key("a");
    let there = created(&store, &key, "one").await?;
    for connection in [&store, &other] {
        let outcome = connection.create(&key, "two").await;
        refused("a second create", outcome, Some(&there))?;
    }
    // The same value is no excuse: the caller could not tell whose write it was.
    let outcome = store.create(&key, "one").await;
    refused("a second create of the same", outcome, Some(&there))?;
    room.shows(&store, &key, Some(&there)).await
}

async fn stale_update(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let key = room.key("a");
    let first = created(&store, &key, "one").await?;
    let second = entry(
        &key,
        other.update(&key, first.revision, "two").await?,
        "two",
    );
    for connection in [&store, &other] {
        let outcome = connection.update(&key, first.revision, "late").await;
        refused("a stale update", outcome, Some(&second))?;
    }
    room.shows(&store, &key, Some(&second)).await
}

async fn stale_delete(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let key = room.key("a");
    let first = created(&store, &key, "one").await?;
    let second = entry(
        &key,
        other.update(&key, first.revision, "two").await?,
        "two",
    );
    for connection in [&store, &other] {
        let outcome = connection.delete(&key, first.revision).await;
        refused("a stale delete", outcome, Some(&second))?;
    }
    room.shows(&store, &key, Some(&second)).await?;
    store.delete(&key, second.revision).await?;
    let outcome = other.delete(&key, second.revision).await;
    refused("a second delete", outcome, None)
}

async fn update_and_delete_of_what_is_not_there(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    // A revision that exists, of another key: a backend with one counter must not mix them up.
    let other = created(&store, &room.key("other"), "x").await?;
    let key = room.key("a");
    let outcome = store.update(&key, other.revision, "y").await;
    refused("an update of nothing", outcome, None)?;
    let outcome = store.delete(&key, other.revision).await;
    refused("a delete of nothing", outcome, None)?;
    room.shows(&store, &key, None).await
}

/// Numbers that a backend could mistake for "none", "any", or something negative.
const NEVER: [Revision; 4] = [
    Revision(0),
    Revision(i64::MAX as u64),
    Revision(i64::MAX as u64 + 1),
    Revision(u64::MAX),
];

async fn a_revision_that_never_was(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let key = room.key("a");
    for revision in NEVER {
        let outcome = store.update(&key, revision, "x").await;
        refused(&format!("{revision:?} of nothing"), outcome, None)?;
        let outcome = store.delete(&key, revision).await;
        refused(&format!("delete {revision:?} of nothing"), outcome, None)?;
    }
    let there = created(&store, &key, "one").await?;
    let next = Revision(there.revision.0 + 1);
    for revision in NEVER.into_iter().chain([next]) {
        let outcome = store.update(&key, revision, "x").await;
        refused(&format!("an update at {revision:?}"), outcome, Some(&there))?;
        let outcome = store.delete(&key, revision).await;
        refused(&format!("a delete at {revision:?}"), outcome, Some(&there))?;
    }
    room.shows(&store, &key, Some(&there)).await
}

async fn the_revision_of_a_delete_is_no_expectation(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let key = room.key("a");
    let there = created(&store, &key, "one").await?;
    let gone = store.delete(&key, there.revision).await?;
    for revision in [gone, there.revision, Revision(0)] {
        let outcome = store.update(&key, revision, "back").await;
        refused(
            &format!("an update at {revision:?} after the delete"),
            outcome,
            None,
        )?;
        let outcome = store.delete(&key, revision).await;
        refused(
            &format!("a delete at {revision:?} after the delete"),
            outcome,
            None,
        )?;
    }
    room.shows(&store, &key, None).await
}

async fn create_after_delete(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let key = room.key("a");
    let first = created(&store, &key, "one").await?;
    let gone = other.delete(&key, first.revision).await?;
    let second = created(&store, &key, "two").await?;
    ensure!(second.revision > gone, "a re-create did not grow");
    let outcome = other.update(&key, first.revision, "late").await;
    refused("an update from a former life", outcome, Some(&second))?;
    let outcome = other.delete(&key, first.revision).await;
    refused("a delete from a former life", outcome, Some(&second))?;
    room.shows(&other, &key, Some(&second)).await
}

async fn revisions_grow_across_deletes(room: &Room<'_>) -> Result<(), Failure> {
    let connections = room.connections(2).await?;
    let (key, neighbour) = (room.key("a"), room.key("b"));
    let mut last = Revision(0);
    for round in 0..20 {
        let store = &connections[round % 2];
        for expect in [Step::Create, Step::Update, Step::Update, Step::Delete] {
            let write = match expect {
                Step::Create => create(&key, "x"),
                Step::Update => update(&key, last, "y"),
                Step::Delete => delete(&key, last),
            };
            let revision = store.write_one(write).await?;
            ensure!(
                revision > last,
                "round {round}: revision {} follows {}",
                revision.0,
                last.0
            );
            last = revision;
        }
        // The store moves on without this key, too.
        let there = created(store, &neighbour, "n").await?;
        store.delete(&neighbour, there.revision).await?;
    }
    Ok(())
}

enum Step {
    Create,
    Update,
    Delete,
}

async fn a_delete_of_what_must_be_absent(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let key = room.key("a");
    let senseless = || Write {
        key: key.clone(),
        expect: Expect::Absent,
        value: None,
    };
    rejected("deleting nothing", store.write_one(senseless()).await)?;
    let there = created(&store, &key, "one").await?;
    rejected("deleting nothing", store.write_one(senseless()).await)?;
    room.shows(&store, &key, Some(&there)).await
}

async fn a_dropped_write_leaves_the_store_usable(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    for round in 0..20 {
        let key = room.key(round);
        let batch = vec![
            create(&key, "dropped"),
            create(&room.key(format!("{round}-b")), "dropped"),
        ];
        // Started, and left alone after a few looks at it, a different number in each round.
        let mut write = Box::pin(store.write(batch));
        for _ in 0..=round {
            if write.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(write);
        // It may land now or later: whoever wants to know settles it by a further write.
        let mut expect = Expect::Absent;
        let settled = loop {
            let value = Some("settled".into());
            let write = Write {
                key: key.clone(),
                expect,
                value,
            };
            match store.write_one(write).await {
                Ok(revision) => break entry(&key, revision, "settled"),
                Err(Error::Conflict {
                    current: Some(current),
                }) => {
                    ensure!(current.value == "dropped", "found {current:?}");
                    expect = Expect::At(current.revision);
                }
                Err(other) => return Err(other.into()),
            }
        };
        room.shows(&store, &key, Some(&settled)).await?;
    }
    Ok(())
}

//! Values: any bytes, from none to the largest.

use super::room::{Failure, Room, created, entry, rejected};
use super::{cases, ensure};
use crate::store::{Bytes, MAX_VALUE, StoreExt};
use parti_core::rng::Rng;

cases! { "values", Nothing:
    BOTH any_bytes,
    BOTH an_empty_one_is_there,
    BOTH the_largest,
    BOTH too_large_is_refused_without_harm,
}

async fn any_bytes(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut observer = room.watch(&other, room.scope()).await?;
    let all: Vec<u8> = (0..=255).collect();
    let mut there = Vec::new();
    for (at, value) in [
        &all[..],
        b"\0",
        b"\0\0a",
        b"\xff\xfe",
        b"\xc3\x28",
        b"a\0",
        b"\n",
        b"'; --",
        b"\\x41",
        b"{\"v\":1}",
        "ü".as_bytes(),
    ]
    .into_iter()
    .enumerate()
    {
        let key = room.key(format!("k{at:02}"));
        there.push(created(&store, &key, Bytes::copy_from_slice(value)).await?);
    }
    for now in &there {
        room.shows(&other, &now.key, Some(now)).await?;
    }
    room.lists(&other, &room.scope(), &there).await?;
    observer.until(&there).await?;
    Ok(())
}

/// A backend whose deletions are empty values must not mix the two up.
async fn an_empty_one_is_there(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut observer = room.watch(&other, room.scope()).await?;
    let key = room.key("a");
    let first = created(&store, &key, "").await?;
    room.shows(&other, &key, Some(&first)).await?;
    room.lists(&other, &room.scope(), std::slice::from_ref(&first))
        .await?;
    observer.until(std::slice::from_ref(&first)).await?;
    let full = entry(
        &key,
        store.update(&key, first.revision, "full").await?,
        "full",
    );
    observer.until(std::slice::from_ref(&full)).await?;
    let empty = entry(&key, store.update(&key, full.revision, "").await?, "");
    observer.until(std::slice::from_ref(&empty)).await?;
    let told = room.watch(&other, room.scope()).await?.entries();
    ensure!(
        told == [empty.clone()],
        "a watch that starts later tells {told:?}"
    );
    store.delete(&key, empty.revision).await?;
    observer.until(&[]).await?;
    room.shows(&other, &key, None).await
}

async fn the_largest(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut observer = room.watch(&other, room.scope()).await?;
    // What does not compress.
    let mut rng = Rng::new(room.seed());
    let mut noise = || -> Bytes {
        let words = (0..MAX_VALUE / 8).flat_map(|_| rng.next_u64().to_le_bytes());
        words.collect()
    };
    let key = room.key("a");
    let first = created(&store, &key, noise()).await?;
    room.shows(&other, &key, Some(&first)).await?;
    observer.until(std::slice::from_ref(&first)).await?;
    let value = noise();
    let revision = store.update(&key, first.revision, value.clone()).await?;
    let second = entry(&key, revision, value);
    room.lists(&other, &room.scope(), std::slice::from_ref(&second))
        .await?;
    observer.until(std::slice::from_ref(&second)).await?;
    // A conflict carries it whole.
    let outcome = other.update(&key, first.revision, "late").await;
    super::room::refused("a stale update", outcome, Some(&second))
}

async fn too_large_is_refused_without_harm(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let mut observer = room.watch(&store, room.scope()).await?;
    let key = room.key("a");
    for size in [MAX_VALUE + 1, 2 * MAX_VALUE, 16 * MAX_VALUE] {
        let outcome = store.create(&key, vec![1; size]).await;
        rejected(&format!("a value of {size} bytes"), outcome)?;
    }
    let there = created(&store, &key, "small").await?;
    let outcome = store
        .update(&key, there.revision, vec![1; MAX_VALUE + 1])
        .await;
    rejected("an update that is too large", outcome)?;
    room.shows(&store, &key, Some(&there)).await?;
    observer.until(&[there]).await?;
    Ok(())
}

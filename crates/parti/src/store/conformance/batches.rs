//! Batches: each write fares on its own, and is answered in its place.

use super::room::{
    Failure, Room, create, created, delete, difference, entry, refused, rejected, update,
};
use super::{cases, ensure};
use crate::store::{Entry, Expect, MAX_VALUE, Revision, Write};

cases! { "batches", Nothing:
    BOTH an_empty_one,
    BOTH five_thousand_with_conflicts,
    BOTH bad_writes_among_good_ones,
    BOTH a_key_twice,
    PLAIN large_values,
    PLAIN across_the_kinds_of_keys,
}

const MANY: usize = 5_000;

async fn an_empty_one(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let outcomes = store.write(Vec::new()).await;
    ensure!(outcomes.is_empty(), "nothing was answered by {outcomes:?}");
    Ok(())
}

async fn five_thousand_with_conflicts(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    // Not in the order of the keys, so that an answer in the wrong place shows.
    let keys: Vec<String> = (0..MANY)
        .map(|n| room.key(format!("k{:05}", n * 2_999 % MANY)))
        .collect();
    let batch = keys.iter().map(|key| create(key, format!("one {key}")));
    let outcomes = store.write(batch.collect()).await;
    ensure!(outcomes.len() == MANY, "{} answers", outcomes.len());
    let mut there: Vec<Entry> = Vec::new();
    for (key, outcome) in keys.iter().zip(outcomes) {
        there.push(entry(key, outcome?, format!("one {key}")));
    }
    listed(room, &other, &there).await?;

    // Four kinds of writes by turns; every second one is refused.
    let batch = there.iter().enumerate().map(|(at, now)| match at % 4 {
        0 => update(&now.key, now.revision, format!("two {}", now.key)),
        1 => create(&now.key, "late"),
        2 => delete(&now.key, now.revision),
        _ => update(&now.key, Revision(now.revision.0 + 1_000_000_000), "late"),
    });
    let outcomes = store.write(batch.collect()).await;
    ensure!(outcomes.len() == MANY, "{} answers", outcomes.len());
    let mut after = Vec::new();
    for (at, (now, outcome)) in there.into_iter().zip(outcomes).enumerate() {
        match at % 4 {
            0 | 2 => {
                let revision = outcome?;
                ensure!(revision > now.revision, "{} did not grow", now.key);
                if at % 4 == 0 {
                    after.push(entry(&now.key, revision, format!("two {}", now.key)));
                }
            }
            _ => {
                refused("one of many", outcome, Some(&now))?;
                after.push(now);
            }
        }
    }
    listed(room, &other, &after).await?;

    // The answers to a batch are good as the expectations of the next, deletes too.
    let batch = after.iter().map(|now| delete(&now.key, now.revision));
    for outcome in other.write(batch.collect()).await {
        outcome?;
    }
    listed(room, &store, &[]).await
}

async fn listed(
    room: &Room<'_>,
    store: &std::sync::Arc<dyn crate::store::Store>,
    there: &[Entry],
) -> Result<(), Failure> {
    let mut sorted = there.to_vec();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    room.lists(store, &room.scope(), &sorted).await
}

async fn bad_writes_among_good_ones(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let there = created(&store, &room.key("there"), "one").await?;
    let nothing = Write {
        value: None,
        ..create(&room.key("x"), "")
    };
    let batch = vec![
        create(&room.key("a"), "a"),
        create("", "no key"),
        create(&room.key("b"), "b"),
        create(&room.key("/c"), "an empty segment"),
        create(&room.key("n\0"), "a NUL"),
        create(&room.key("large"), vec![7; MAX_VALUE + 1]),
        nothing,
        update(&there.key, Revision(there.revision.0 + 1), "late"),
        create(&room.key("d"), "d"),
        create(&room.key("e".repeat(600)), "too long"),
    ];
    let outcomes = store.write(batch).await;
    ensure!(outcomes.len() == 10, "{} answers", outcomes.len());
    let mut expected = Vec::new();
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let good = match at {
            0 => "a",
            2 => "b",
            8 => "d",
            7 => {
                refused("the stale one", outcome, Some(&there))?;
                continue;
            }
            _ => {
                rejected(&format!("bad write {at}"), outcome)?;
                continue;
            }
        };
        expected.push(entry(&room.key(good), outcome?, good));
    }
    expected.push(there);
    room.lists(&store, &room.scope(), &expected).await
}

async fn a_key_twice(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let (a, b) = (room.key("a"), room.key("b"));
    let batch = vec![create(&a, "first"), create(&a, "second"), create(&b, "b")];
    let outcomes = store.write(batch).await;
    let Ok([first, second, third]) = <[_; 3]>::try_from(outcomes) else {
        return Err(Failure::new("three writes had another number of answers"));
    };
    rejected("the second write of a key", second)?;
    let expected = [entry(&a, first?, "first"), entry(&b, third?, "b")];
    room.lists(&store, &room.scope(), &expected).await
}

/// More than one message of some backends can hold, in a batch, a list and a snapshot.
async fn large_values(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let value = |n: u8| vec![n.wrapping_mul(37); MAX_VALUE];
    let keys: Vec<String> = (0..16).map(|n| room.key(format!("k{n:02}"))).collect();
    let batch = keys.iter().zip(0..).map(|(key, n)| create(key, value(n)));
    let outcomes = store.write(batch.collect()).await;
    let mut expected = Vec::new();
    for ((key, n), outcome) in keys.iter().zip(0..).zip(outcomes) {
        expected.push(entry(key, outcome?, value(n)));
    }
    ensure!(expected.len() == 16, "{} answers", expected.len());
    room.lists(&store, &room.scope(), &expected).await?;
    let told = room.watch(&store, room.scope()).await?.entries();
    ensure!(
        told == expected,
        "a watch: {}",
        difference(&told, &expected)
    );
    Ok(())
}

async fn across_the_kinds_of_keys(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    // Every second key is of the kind that a backend may keep elsewhere.
    let key = |n: usize| match n % 2 {
        0 => room.key(format!("k{n:03}")),
        _ => format!("partitions/{}", room.key(format!("k{n:03}"))),
    };
    let outcomes = store
        .write((0..200).map(|n| create(&key(n), n.to_string())).collect())
        .await;
    ensure!(outcomes.len() == 200, "{} answers", outcomes.len());
    let mut there = Vec::new();
    for (n, outcome) in outcomes.into_iter().enumerate() {
        there.push(entry(&key(n), outcome?, n.to_string()));
    }
    for now in &there {
        room.shows(&store, &now.key, Some(now)).await?;
    }
    // Every third is refused, in its place.
    let batch = there.iter().enumerate().map(|(n, now)| Write {
        expect: match n % 3 {
            0 => Expect::Absent,
            _ => Expect::At(now.revision),
        },
        ..update(&now.key, now.revision, "two")
    });
    for (n, (now, outcome)) in store
        .write(batch.collect())
        .await
        .into_iter()
        .zip(&there)
        .map(|(outcome, now)| (now, outcome))
        .enumerate()
    {
        match n % 3 {
            0 => refused("every third", outcome, Some(now))?,
            _ => ensure!(outcome? > now.revision, "{} did not grow", now.key),
        }
    }
    Ok(())
}

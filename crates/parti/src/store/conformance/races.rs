//! Several at once: of those with the same expectation exactly one wins.

use std::sync::Arc;

use super::room::{Failure, Room, all, create, created, delete, entry, refused, update};
use super::{cases, ensure};
use crate::store::{Bytes, Entry, Error, Expect, Revision, Store, StoreExt, Write};

cases! { "races", Nothing:
    BOTH one_wins,
    PLAIN one_wins_of_update_and_delete,
    BOTH one_wins_each_key_of_racing_batches,
    BOTH a_counter_counts_every_writer,
    PLAIN readers_see_whole_values,
}

const CONNECTIONS: usize = 8;
const CONTENDERS: usize = 24;

/// Lets all contenders try the same at once; answers with the winner's number and revision, once
/// it is sure that every other one was refused with `current(winner)` in hand.
async fn race(
    connections: &[Arc<dyn Store>],
    attempt: impl Fn(usize) -> Write,
    current: impl Fn(usize, Revision) -> Option<Entry>,
) -> Result<(usize, Revision), Failure> {
    let tries = (0..CONTENDERS).map(|number| {
        let store = connections[number % connections.len()].clone();
        let write = attempt(number);
        async move { store.write_one(write).await }
    });
    let outcomes = all(tries).await?;
    let winners: Vec<_> = outcomes
        .iter()
        .enumerate()
        .filter_map(|(number, outcome)| Some((number, *outcome.as_ref().ok()?)))
        .collect();
    let [(winner, revision)] = winners[..] else {
        let outcome = outcomes.first();
        return Err(Failure::new(format!(
            "{} winners; the first contender got {outcome:?}",
            winners.len()
        )));
    };
    let there = current(winner, revision);
    for (number, outcome) in outcomes.into_iter().enumerate() {
        if number != winner {
            refused("a loser", outcome, there.as_ref())?;
        }
    }
    Ok((winner, revision))
}

async fn one_wins(room: &Room<'_>) -> Result<(), Failure> {
    let connections = room.connections(CONNECTIONS).await?;
    let value = |number: usize| Bytes::from(format!("by {number}"));
    for round in 0..6 {
        let key = room.key(round % 3);
        let there = |winner: usize, revision: Revision| Some(entry(&key, revision, value(winner)));
        let attempt = |number| create(&key, value(number));
        let (_, first) = race(&connections, attempt, there).await?;
        let attempt = |number| update(&key, first, value(number));
        let (winner, second) = race(&connections, attempt, there).await?;
        let truth = entry(&key, second, value(winner));
        room.shows(&connections[0], &key, Some(&truth)).await?;
        let (_, gone) = race(&connections, |_| delete(&key, second), |_, _| None).await?;
        ensure!(first < second && second < gone, "revisions did not grow");
        room.shows(&connections[0], &key, None).await?;
    }
    Ok(())
}

async fn one_wins_of_update_and_delete(room: &Room<'_>) -> Result<(), Failure> {
    let connections = room.connections(CONNECTIONS).await?;
    for round in 0..8 {
        let key = room.key(round);
        let first = created(&connections[0], &key, "start").await?;
        let deletes = |number: usize| number.is_multiple_of(2);
        let attempt = |number| match deletes(number) {
            true => delete(&key, first.revision),
            false => update(&key, first.revision, format!("by {number}")),
        };
        let there = |winner: usize, revision: Revision| match deletes(winner) {
            true => None,
            false => Some(entry(&key, revision, format!("by {winner}"))),
        };
        let (winner, revision) = race(&connections, attempt, there).await?;
        let truth = there(winner, revision);
        room.shows(&connections[0], &key, truth.as_ref()).await?;
    }
    Ok(())
}

async fn one_wins_each_key_of_racing_batches(room: &Room<'_>) -> Result<(), Failure> {
    const KEYS: usize = 300;
    let connections = room.connections(4).await?;
    let names: Vec<String> = (0..KEYS).map(|n| room.key(format!("k{n:04}"))).collect();
    let tries = connections.iter().enumerate().map(|(number, store)| {
        let store = store.clone();
        let mut batch: Vec<Write> = names
            .iter()
            .map(|key| create(key, format!("by {number}")))
            .collect();
        // In different orders: whoever locks what it writes must not lock up.
        let half = KEYS / 2;
        match number {
            0 => {}
            1 => batch.reverse(),
            _ => batch.rotate_left(half + number),
        }
        async move {
            let keys: Vec<String> = batch.iter().map(|write| write.key.clone()).collect();
            let outcomes = store.write(batch).await;
            keys.into_iter().zip(outcomes).collect::<Vec<_>>()
        }
    });
    let mut outcomes = all(tries).await?;
    for outcomes in &mut outcomes {
        ensure!(outcomes.len() == KEYS, "{} answers", outcomes.len());
        outcomes.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    let mut truth = Vec::new();
    for (at, key) in names.iter().enumerate() {
        let of_key = || outcomes.iter().map(|own| &own[at].1);
        let winners: Vec<_> = of_key()
            .enumerate()
            .filter_map(|(number, outcome)| Some((number, *outcome.as_ref().ok()?)))
            .collect();
        let [(winner, revision)] = winners[..] else {
            return Err(Failure::new(format!("{} winners of {key}", winners.len())));
        };
        let there = entry(key, revision, format!("by {winner}"));
        for (number, outcome) in of_key().enumerate() {
            if number != winner {
                refused("a loser", outcome.clone(), Some(&there))?;
            }
        }
        truth.push(there);
    }
    room.lists(&connections[0], &room.scope(), &truth).await
}

async fn a_counter_counts_every_writer(room: &Room<'_>) -> Result<(), Failure> {
    const EACH: u64 = 25;
    let connections = room.connections(CONNECTIONS).await?;
    let key = room.key("counter");
    let writers = connections.iter().cloned().map(|store| {
        let key = key.clone();
        async move {
            let mut current: Option<Entry> = None;
            for _ in 0..EACH {
                loop {
                    let (expect, count) = match &current {
                        None => (Expect::Absent, 0),
                        Some(entry) => (Expect::At(entry.revision), number(entry)?),
                    };
                    let value = Bytes::from((count + 1).to_string());
                    let write = Write {
                        key: key.clone(),
                        expect,
                        value: Some(value.clone()),
                    };
                    match store.write_one(write).await {
                        Ok(revision) => {
                            current = Some(entry(&key, revision, value));
                            break;
                        }
                        // Told by the one who refused: no read is needed, so none can be stale.
                        Err(Error::Conflict { current: told }) => {
                            current = told.map(|entry| *entry);
                        }
                        Err(other) => return Err(Failure::from(other)),
                    }
                }
            }
            Ok(())
        }
    });
    for outcome in all(writers).await? {
        outcome?;
    }
    let probe = connections[0].update(&key, Revision(u64::MAX), "").await;
    let Err(Error::Conflict {
        current: Some(last),
    }) = probe
    else {
        return Err(Failure::new(format!("the probe got {probe:?}")));
    };
    let expected = EACH * CONNECTIONS as u64;
    ensure!(
        number(&last)? == expected,
        "{} increments were acknowledged, the counter is at {}",
        expected,
        number(&last)?
    );
    Ok(())
}

fn number(entry: &Entry) -> Result<u64, Failure> {
    let text = std::str::from_utf8(&entry.value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::new(format!("{:?} is no number", entry.value)))
}

async fn readers_see_whole_values(room: &Room<'_>) -> Result<(), Failure> {
    const READERS: usize = 64;
    const LENGTH: usize = 20_000;
    let connections = room.connections(4).await?;
    let key = room.key("a");
    let value = |letter: u8| Bytes::from(vec![letter; LENGTH]);
    let writer = connections[0].clone();
    let mut written = vec![created(&writer, &key, value(b'a')).await?];
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let store = connections[number % connections.len()].clone();
            let (key, stopped) = (key.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut seen: Vec<Entry> = Vec::new();
                // At least one, however fast the writer is.
                loop {
                    let Some(entry) = store.read(&key).await? else {
                        return Err(Failure::new("what is there was read as nothing"));
                    };
                    if seen.last() != Some(&entry) {
                        seen.push(entry);
                    }
                    if *stopped.borrow() {
                        return Ok(seen);
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for letter in b'b'..=b'z' {
        let last = written[written.len() - 1].revision;
        let revision = writer.update(&key, last, value(letter)).await?;
        written.push(entry(&key, revision, value(letter)));
    }
    stop.send_replace(true);
    for reader in readers {
        let seen = reader.await;
        for entry in seen.map_err(|error| Failure::new(format!("a reader: {error}")))?? {
            ensure!(
                written.contains(&entry),
                "a read shows {}, which nobody wrote",
                super::room::shown(Some(&entry))
            );
        }
    }
    Ok(())
}

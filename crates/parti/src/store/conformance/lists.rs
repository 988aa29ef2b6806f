//! Lists: what belongs to a scope, and in which order.

use super::room::{Failure, Room, create, created, rejected, update};
use super::{cases, ensure};
use crate::store::{Entry, Scope, StoreExt};

cases! { "lists", Nothing:
    BOTH nothing_is_an_empty_list,
    BOTH one_key,
    BOTH sorted_by_bytes,
    BOTH neighbours_stay_apart,
    BOTH what_was_deleted_is_gone,
    BOTH five_thousand,
    BOTH whole_while_all_of_it_is_written_anew,
    PLAIN everything_there_is,
    PLAIN what_ends_within_a_segment_is_rejected,
}

async fn nothing_is_an_empty_list(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    room.lists(&store, &room.scope(), &[]).await?;
    room.lists(&store, &Scope::Key(room.key("a")), &[]).await
}

async fn one_key(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let mut there = Vec::new();
    for name in ["a", "a/b", "ab", "a.b", "A"] {
        there.push(created(&store, &room.key(name), name).await?);
    }
    for entry in there {
        let scope = Scope::Key(entry.key.clone());
        room.lists(&store, &scope, &[entry]).await?;
    }
    Ok(())
}

/// Names whose order differs between bytes and the rules of most languages.
const ORDERED: [&str; 22] = [
    " ", "!", "-", "-a", ".", "10", "2", "A", "Ab", "B", "Z", "_", "a", "a b", "a-b", "a.b", "aB",
    "ab", "b", "z", "~", "é",
];

async fn sorted_by_bytes(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let mut there: Vec<Entry> = Vec::new();
    for (at, name) in ORDERED.iter().enumerate().rev() {
        // Some lie deeper: the slash is a byte like any other.
        let key = match at % 3 {
            0 => room.key(format!("{name}/deep")),
            _ => room.key(name),
        };
        there.push(created(&store, &key, *name).await?);
    }
    there.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
    room.lists(&store, &room.scope(), &there).await
}

/// Names that a pattern, a range or a collation could take for one another.
pub(super) const NEIGHBOURS: [&str; 30] = [
    "a",
    "A",
    "ab",
    "a.b",
    "a_b",
    "a%b",
    "a*b",
    "a>b",
    "axb",
    "a b",
    "a=b",
    "a\\b",
    "a.",
    "a..",
    // The byte after the slash, and some far after it.
    "a0",
    "a~",
    "a\u{7f}",
    "a\u{ff}",
    "a\u{10ffff}",
    "a-",
    "*",
    ">",
    "%",
    "_",
    "?",
    "a\u{301}",
    "\u{e1}",
    ".",
    "..",
    "$",
];

async fn neighbours_stay_apart(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let mut there = Vec::new();
    for name in NEIGHBOURS {
        for key in [
            name.to_owned(),
            format!("{name}/k"),
            format!("{name}/k/deep"),
        ] {
            there.push(created(&store, &room.key(&key), key).await?);
        }
    }
    there.sort_by(|a, b| a.key.cmp(&b.key));
    room.lists(&store, &room.scope(), &there).await?;
    for name in NEIGHBOURS {
        for scope in [
            room.under(name),
            room.under(format!("{name}/k")),
            Scope::Key(room.key(name)),
        ] {
            let own: Vec<Entry> = there
                .iter()
                .filter(|entry| scope.holds(&entry.key))
                .cloned()
                .collect();
            room.lists(&store, &scope, &own).await?;
            let observer = room.watch(&store, scope.clone()).await?;
            let mut told = observer.entries();
            told.sort_by(|a, b| a.key.cmp(&b.key));
            ensure!(
                told == own,
                "a watch of {scope:?} starts with {}",
                super::room::difference(&told, &own)
            );
        }
    }
    Ok(())
}

async fn what_was_deleted_is_gone(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut there = Vec::new();
    for name in ["a", "b", "c"] {
        there.push(created(&store, &room.key(name), name).await?);
    }
    room.lists(&other, &room.scope(), &there).await?;
    let gone = there.remove(1);
    store.delete(&gone.key, gone.revision).await?;
    room.lists(&other, &room.scope(), &there).await?;
    room.lists(&other, &Scope::Key(gone.key), &[]).await
}

async fn five_thousand(room: &Room<'_>) -> Result<(), Failure> {
    const MANY: usize = 5_000;
    let store = room.connect().await?;
    let keys: Vec<String> = (0..MANY).map(|n| room.key(format!("k{n:05}"))).collect();
    let batch = keys.iter().map(|key| create(key, key.clone())).collect();
    let outcomes = store.write(batch).await;
    let mut there = Vec::new();
    for (key, outcome) in keys.iter().zip(outcomes) {
        there.push(super::room::entry(key, outcome?, key.clone()));
    }
    ensure!(there.len() == MANY, "{} answers", there.len());
    room.lists(&store, &room.scope(), &there).await
}

/// What is written anew at the same time is there in its old or its new form, and never missing.
async fn whole_while_all_of_it_is_written_anew(room: &Room<'_>) -> Result<(), Failure> {
    const KEYS: usize = 16;
    const LOOKS: usize = 100;
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut there = Vec::new();
    for n in 0..KEYS {
        there.push(created(&store, &room.key(n), "first").await?);
    }
    let writing = async {
        loop {
            let batch = there
                .iter()
                .map(|now| update(&now.key, now.revision, "again"));
            let outcomes = other.write(batch.collect()).await;
            for (now, outcome) in there.iter_mut().zip(outcomes) {
                now.revision = outcome?;
            }
            // A store in memory never waits for anything.
            tokio::task::yield_now().await;
        }
    };
    let looking = async {
        for _ in 0..LOOKS {
            let list = store.list(&room.scope()).await?;
            ensure!(list.len() == KEYS, "{} of {KEYS} are listed", list.len());
            let told = room.watch(&store, room.scope()).await?.entries().len();
            ensure!(told == KEYS, "a watch starts with {told} of {KEYS}");
        }
        Ok(())
    };
    tokio::select! {
        looked = looking => looked,
        written = writing => written,
    }
}

async fn everything_there_is(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let plain = room.key("a");
    // The other kind of space, which a backend may keep elsewhere.
    let apart = format!("partitions/{plain}");
    let there = [
        created(&store, &plain, "plain").await?,
        created(&store, &apart, "apart").await?,
    ];
    // Others may write at the same time: only what is ours is compared, but all must be sorted.
    let everything = Scope::Under(String::new());
    let observer = room.watch(&store, everything.clone()).await?;
    let list = store.list(&everything).await?;
    let sorted = list.is_sorted_by(|a, b| a.key < b.key);
    ensure!(sorted, "the list of everything is not sorted by key");
    for entry in &there {
        ensure!(list.contains(entry), "{:?} is not listed", entry.key);
        ensure!(
            observer.entry(&entry.key) == Some(entry),
            "{:?} is not told by a watch of everything",
            entry.key
        );
    }
    Ok(())
}

async fn what_ends_within_a_segment_is_rejected(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    for scope in [
        Scope::Under(room.key("a")),
        Scope::Under("/".into()),
        Scope::Under(room.key("/")),
        Scope::Key(String::new()),
        Scope::Key(room.key("a\0")),
    ] {
        rejected(&format!("{scope:?}"), store.list(&scope).await)?;
        let told = futures_util::StreamExt::next(&mut store.watch(scope.clone())).await;
        let refused = matches!(
            told,
            Some(crate::store::Change::Interrupted(
                crate::store::Error::Rejected { .. }
            ))
        );
        ensure!(refused, "a watch of {scope:?} starts with {told:?}");
    }
    Ok(())
}

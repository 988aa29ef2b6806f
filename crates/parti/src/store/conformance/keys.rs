//! Odd keys: every text that the contract allows comes back as it was.

use super::room::{Failure, Room, created, entry, refused, rejected};
use super::{cases, ensure};
use crate::store::{Entry, MAX_KEY, Scope, StoreExt};

cases! { "keys", Nothing:
    BOTH odd_ones,
    BOTH long_ones,
    PLAIN what_cannot_be_one,
}

const ODD: [&str; 57] = [
    ".",
    "..",
    "...",
    ".a",
    "a.",
    "a..b",
    "a.b",
    ".a.",
    "*",
    ">",
    "a.*",
    "a.>",
    "*.a",
    "**",
    "$",
    "$JS",
    "_",
    "%",
    "%25",
    "%2F",
    "a%b",
    " ",
    "a b",
    " a",
    "a ",
    "\t",
    "\n",
    "\r\n",
    "'",
    "\"",
    "`",
    "\\",
    "\\x00",
    "a;b",
    "--",
    "=",
    "=2E",
    "a=2Eb",
    "==",
    "+",
    "?",
    "#",
    "&",
    "{}",
    "[a]",
    "(",
    "|",
    "^",
    "~",
    "\u{7f}",
    "ä",
    "日本語",
    "🦀",
    "\u{feff}",
    "\u{10ffff}",
    "A",
    "a",
];

async fn odd_ones(room: &Room<'_>) -> Result<(), Failure> {
    let (store, other) = (room.connect().await?, room.connect().await?);
    let mut observer = room.watch(&other, room.scope()).await?;
    let mut there: Vec<Entry> = Vec::new();
    for name in ODD {
        there.push(created(&store, &room.key(name), name).await?);
    }
    // Within a text, too, and below one.
    for (at, name) in ODD.iter().enumerate() {
        let key = room.key(format!("deep/x{name}/{name}y"));
        there.push(created(&store, &key, at.to_string()).await?);
    }
    there.sort_by(|a, b| a.key.cmp(&b.key));
    room.lists(&other, &room.scope(), &there).await?;
    observer.until(&there).await?;
    for now in &mut there {
        room.shows(&other, &now.key, Some(now)).await?;
        let outcome = store.create(&now.key, "late").await;
        refused(&format!("{:?}", now.key), outcome, Some(now))?;
        let one = room.watch(&other, Scope::Key(now.key.clone())).await?;
        ensure!(
            one.entries() == [now.clone()],
            "a watch of {:?} starts with {:?}",
            now.key,
            one.entries()
        );
        let revision = store.update(&now.key, now.revision, "two").await?;
        *now = entry(&now.key, revision, "two");
    }
    observer.until(&there).await?;
    for now in &there {
        store.delete(&now.key, now.revision).await?;
    }
    observer.until(&[]).await?;
    room.lists(&other, &room.scope(), &[]).await
}

async fn long_ones(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let mut observer = room.watch(&store, room.scope()).await?;
    let mut there = Vec::new();
    for length in [250, MAX_KEY - 1, MAX_KEY] {
        // Of one byte each, of four, and of such as grow most when they are escaped; in one
        // segment, and in as many as there can be.
        for filling in ["x", "🦀", "*", ".", "=", "/s"] {
            let mut key = room.key(format!("{}", filling.escape_unicode().count()));
            key.push_str(filling.trim_start_matches('/').get(..1).unwrap_or("u"));
            while key.len() + filling.len() <= length {
                key.push_str(filling);
            }
            key.push_str(&"e".repeat(length - key.len()));
            if there.iter().any(|now: &Entry| now.key == key) {
                continue;
            }
            there.push(created(&store, &key, length.to_string()).await?);
        }
    }
    there.sort_by(|a, b| a.key.cmp(&b.key));
    room.lists(&store, &room.scope(), &there).await?;
    observer.until(&there).await?;
    for now in &there {
        room.shows(&store, &now.key, Some(now)).await?;
        let revision = store.update(&now.key, now.revision, "two").await?;
        store.delete(&now.key, revision).await?;
    }
    observer.until(&[]).await?;
    Ok(())
}

async fn what_cannot_be_one(room: &Room<'_>) -> Result<(), Failure> {
    let store = room.connect().await?;
    let long = room.key("x".repeat(MAX_KEY));
    for key in [
        "",
        "/",
        &room.key(""),
        &room.key("/a"),
        &room.key("a/"),
        &room.key("a//b"),
        &format!("/{}", room.key("a")),
        &room.key("a\0b"),
        &long,
    ] {
        rejected(&format!("reading {key:?}"), store.read(key).await)?;
        rejected(&format!("creating {key:?}"), store.create(key, "x").await)?;
    }
    room.lists(&store, &room.scope(), &[]).await?;
    // Refusing leaves the store as good as it was.
    created(&store, &room.key("a"), "x").await?;
    Ok(())
}

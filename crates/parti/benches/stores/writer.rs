//! Who writes what a watch is to hear: another process, where the store can be shared.
//!
//! ```text
//!   measuring process ── a line ──▶ this program again, as a child ──▶ store ──▶ watch
//! ```
//!
//! A value is the time at which its write began, which both processes read from one clock.

use std::io::{BufRead, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parti::store::{Expect, Revision, Store, StoreExt, Write};
use tokio::runtime::Runtime;

use crate::backends::Backend;

const URL: &str = "PARTI_BENCH_URL";
const KEY: &str = "PARTI_BENCH_KEY";

/// Writes one key, again and again.
pub enum Writer {
    Here(Hand),
    There(Child),
}

/// The key and what is there.
pub struct Hand {
    store: Arc<dyn Store>,
    key: String,
    last: Option<Revision>,
}

impl Writer {
    pub fn of(backend: &Backend, key: String) -> Self {
        let Some(url) = &backend.url else {
            return Writer::Here(Hand {
                store: backend.store.clone(),
                key,
                last: None,
            });
        };
        let child = Command::new(std::env::current_exe().expect("this program"))
            .envs([(URL, url), (KEY, &key)])
            .stdin(Stdio::piped())
            .spawn();
        Writer::There(child.expect("started"))
    }

    /// Has one write done; whoever waits for it hears of it by the watch.
    pub async fn write(&mut self) {
        match self {
            Writer::Here(hand) => hand.write().await,
            Writer::There(child) => {
                let line = child.stdin.as_mut().expect("piped").write_all(b"\n");
                line.expect("the child reads");
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Writer::There(child) = self {
            drop(child.stdin.take());
            let ended = child.wait().expect("ended");
            assert!(ended.success() || std::thread::panicking(), "{ended}");
        }
    }
}

impl Hand {
    async fn write(&mut self) {
        let write = Write {
            key: self.key.clone(),
            expect: self.last.map_or(Expect::Absent, Expect::At),
            value: Some(now().as_nanos().to_string().into()),
        };
        self.last = Some(self.store.write_one(write).await.expect("a write"));
    }
}

/// The time, as both processes see it.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Whether this process is such a child; if so, it has done its work.
pub fn was_child(runtime: &Runtime) -> bool {
    let (Ok(url), Ok(key)) = (std::env::var(URL), std::env::var(KEY)) else {
        return false;
    };
    let store = runtime.block_on(parti::store::open(&url)).expect("a store");
    let mut hand = Hand {
        store,
        key,
        last: None,
    };
    for line in std::io::stdin().lock().lines() {
        line.expect("a line");
        runtime.block_on(hand.write());
    }
    true
}

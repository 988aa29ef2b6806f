//! A watch: what is there, then what becomes of it; anew after every break.
//!
//! ```text
//!          ┌──────────── wait ◀──────────────────────┐ Interrupted
//!          ▼                                         │
//!   begin: list at revision r, watch from r + 1 ──▶ live ──▶ Put, Deleted …
//!          ▲        [Restarted] Put* Synced          │
//!          └─────────────────────────────────────────┘ compacted
//! ```
//!
//! A break is never bridged by watching on from the last revision seen: that one may be compacted,
//! or lie in the future of an etcd that was restored from a backup, where such a watch would wait
//! in silence.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::Inner;
use super::client::{Live, random};
use super::fault::{Fault, broke};
use super::keys::revision;
use super::proto::{Event, EventKind, WatchCreateRequest, WatchResponse};
use crate::store::{Change, Error, Scope, Watch};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A watch that lived this long is no sign that the next one will break at once.
const LIVED: Duration = Duration::from_secs(10);

/// Watches a scope.
pub(super) fn watch(inner: Arc<Inner>, scope: Scope) -> Watch {
    if let Err(error) = scope.check() {
        return stream::once(async { Change::Interrupted(error) })
            .chain(stream::pending())
            .boxed();
    }
    let watching = Watching {
        inner,
        scope,
        phase: Phase::Begin,
        to_tell: VecDeque::new(),
        told_anything: false,
        told_trouble: None,
        failures: 0,
    };
    stream::unfold(watching, |mut watching| async {
        let change = watching.next().await;
        Some((change, watching))
    })
    .boxed()
}

struct Watching {
    inner: Arc<Inner>,
    scope: Scope,
    phase: Phase,
    to_tell: VecDeque<Change>,
    told_anything: bool,
    /// The trouble that was last told: while it lasts it is not told again.
    told_trouble: Option<Error>,
    /// How often it broke without having lived.
    failures: u32,
}

enum Phase {
    Begin,
    Live { live: Box<Live>, since: Instant },
    Wait { until: Instant },
}

impl Watching {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.to_tell.pop_front() {
                self.told_anything = true;
                return change;
            }
            match &mut self.phase {
                Phase::Begin => match self.begin().await {
                    Ok(()) => {}
                    Err(fault) => self.trouble(fault),
                },
                Phase::Live { live, since } => {
                    let (answer, since) = (live.stream.message().await, *since);
                    let fault = match answer {
                        Ok(Some(response)) if !response.canceled => {
                            self.tell(response.events);
                            continue;
                        }
                        Ok(Some(response)) => cancelled(&response),
                        Ok(None) => Fault::NotDone("etcd ended the watch".into()),
                        Err(status) => {
                            if broke(&status) {
                                self.inner.client.broke(live).await;
                            }
                            Fault::of(&status)
                        }
                    };
                    if since.elapsed() > LIVED {
                        self.failures = 0;
                    }
                    self.trouble(fault);
                }
                Phase::Wait { until } => {
                    sleep_until(*until).await;
                    self.phase = Phase::Begin;
                }
            }
        }
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        let (entries, at) = self.inner.list(&self.scope).await?;
        let (key, range_end) = self.inner.keys.range(&self.scope);
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: at + 1,
            fragment: true,
        };
        let mut live = self.inner.client.watch(create).await?;
        // A member that has not come as far as the list, or that was restored meanwhile.
        let header = live.first.header.take();
        if header.is_none_or(|header| header.revision < at) {
            return Err(Fault::NotDone(
                "the member is behind what was just read from its cluster".into(),
            ));
        }
        if self.told_anything {
            self.to_tell.push_back(Change::Restarted);
        }
        self.to_tell.extend(entries.into_iter().map(Change::Put));
        self.to_tell.push_back(Change::Synced);
        self.told_trouble = None;
        let events = std::mem::take(&mut live.first.events);
        self.tell(events);
        self.phase = Phase::Live {
            live: Box::new(live),
            since: Instant::now(),
        };
        Ok(())
    }

    fn tell(&mut self, events: Vec<Event>) {
        for event in events {
            let kind = event.kind();
            let Some(kv) = event.kv else { continue };
            let change = match kind {
                EventKind::Put => self.inner.keys.entry(kv).map(Change::Put),
                EventKind::Delete => self.inner.keys.own(&kv.key).map(|key| Change::Deleted {
                    key,
                    revision: revision(kv.mod_revision),
                }),
            };
            self.to_tell.extend(change);
        }
    }

    fn trouble(&mut self, fault: Fault) {
        self.failures += 1;
        let wait = wait(self.failures);
        self.phase = Phase::Wait {
            until: Instant::now() + wait,
        };
        // A compacted watch hears everything again at once: that is no interruption.
        if fault != Fault::Compacted {
            let error = fault.for_read();
            if self.told_trouble.as_ref() != Some(&error) {
                self.to_tell.push_back(Change::Interrupted(error.clone()));
                self.told_trouble = Some(error);
            }
        }
    }
}

fn cancelled(response: &WatchResponse) -> Fault {
    match response.compact_revision {
        0 => Fault::said(&response.cancel_reason),
        _ => Fault::Compacted,
    }
}

/// Longer from failure to failure, and never the same for all who wait.
fn wait(failures: u32) -> Duration {
    let longest = FIRST_WAIT
        .saturating_mul(1 << failures.min(10))
        .min(LONGEST_WAIT);
    let half = longest / 2;
    let span = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_micros(random() % span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreExt;
    use crate::store::etcd::Etcd;
    use crate::store::etcd::client::Kind;
    use crate::store::etcd::proto::{CompactionRequest, Done};

    const COMPACT: &str = "/etcdserverpb.KV/Compact";

    /// Whether a watch from this revision on is told that it is compacted.
    async fn is_compacted(store: &Etcd, from: i64) -> bool {
        let create = WatchCreateRequest {
            key: store.inner.keys.full("k"),
            start_revision: from,
            ..WatchCreateRequest::default()
        };
        let mut live = match store.inner.client.watch(create).await {
            Ok(live) => live,
            Err(fault) => return fault == Fault::Compacted,
        };
        // Some versions first say that it is open.
        match live.stream.message().await {
            Ok(Some(response)) if response.canceled => cancelled(&response) == Fault::Compacted,
            other => {
                assert!(other.is_ok_and(|told| told.is_some_and(|told| !told.events.is_empty())));
                false
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_compacted_watch_is_known_as_one() {
        let server = parti_servers::etcd::Server::start();
        let store = Etcd::open(&server.url()).await.expect("opens");
        let mut at = store.create("k", "0").await.expect("written");
        let first = i64::try_from(at.0).expect("small");
        for value in ["1", "2", "3"] {
            at = store.update("k", at, value).await.expect("written");
        }
        assert!(!is_compacted(&store, first).await);
        let last = i64::try_from(at.0).expect("small");
        let request = CompactionRequest {
            revision: last,
            physical: true,
        };
        let client = &store.inner.client;
        let done: Result<Done, Fault> = client.call(COMPACT, &request, Kind::Write).await;
        done.expect("compacted");
        assert!(is_compacted(&store, first).await);
        assert!(!is_compacted(&store, last).await);
    }

    #[test]
    fn waits_grow_up_to_a_limit() {
        for failures in [1, 2, 5, 30, u32::MAX] {
            assert!(wait(failures) >= FIRST_WAIT && wait(failures) <= LONGEST_WAIT);
        }
        assert!(wait(9) > wait(1));
    }
}

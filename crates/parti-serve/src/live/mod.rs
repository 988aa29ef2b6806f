//! Groups as they change, for everybody who looks: one follower of the store for each group that is
//! looked at, however many look.
//!
//! ```text
//!   follow, 10/s ─┐                      ┌─▶ latest: the whole, for who comes or was too slow
//!   bounds, 1/s ──┴─▶ Watcher ── change ─┤
//!                                        └─▶ changes: to all readers ──▶ SSE, SSE, …
//! ```
//!
//! A reader that falls behind loses changes, never holds up others, and goes on with the whole.

mod change;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use parti::PartitionId;
use parti::inspect::{self, Bounds, Group, Pace, Sight};
use parti::store::GroupStore;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::history::{NEWEST, newest};
use crate::places::Places;
use crate::sse::{self, Frames};

/// Changes that wait for a slow reader.
const WAITING: usize = 16;
/// The shortest time between two changes.
const REST: Duration = Duration::from_millis(100);
/// How often ends and lags are looked at.
const LOCATE: Duration = Duration::from_secs(1);

/// What there is to see.
#[derive(Clone, Debug)]
enum Seen {
    /// Nothing yet.
    Nothing,
    /// The group, whole.
    Group(Arc<Whole>),
    /// There is none, or none any more.
    Gone,
}

/// A group with its newest history.
#[derive(Debug)]
struct Whole {
    number: u64,
    group: Group,
    frame: OnceLock<Bytes>,
}

impl Whole {
    /// The event that tells it all; made once, for all readers.
    fn frame(&self) -> Bytes {
        let make = || {
            let mut value = serde_json::to_value(&self.group).unwrap_or(Value::Null);
            value["events"] = json!(newest(&self.group.history, NEWEST));
            sse::frame("group", &value)
        };
        self.frame.get_or_init(make).clone()
    }
}

/// What changed, as an event with its number.
type Changed = (u64, Bytes);

/// One group, watched.
#[derive(Debug)]
struct Feed {
    latest: watch::Receiver<Seen>,
    changes: broadcast::Sender<Changed>,
    _watching: AbortOnDropHandle<()>,
}

/// All groups that somebody looks at.
#[derive(Debug, Default)]
pub struct Live {
    feeds: Mutex<BTreeMap<String, Weak<Feed>>>,
}

impl Live {
    /// Begins to look at a group; `None` if there is none.
    pub async fn look(&self, places: &Arc<Places>, records: &GroupStore) -> Option<Reader> {
        let feed = self.feed(places, records);
        let mut latest = feed.latest.clone();
        let seen = latest.wait_for(|seen| !matches!(seen, Seen::Nothing)).await;
        match seen.as_deref() {
            Ok(Seen::Group(_)) => {}
            _ => return None,
        }
        drop(seen);
        Some(Reader {
            latest,
            changes: feed.changes.subscribe(),
            told: None,
            _feed: feed,
        })
    }

    fn feed(&self, places: &Arc<Places>, records: &GroupStore) -> Arc<Feed> {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        feeds.retain(|_, feed| feed.strong_count() > 0);
        if let Some(feed) = feeds.get(records.group()).and_then(Weak::upgrade) {
            return feed;
        }
        let (tell, latest) = watch::channel(Seen::Nothing);
        let (changes, _) = broadcast::channel(WAITING);
        let watcher = Watcher {
            places: places.clone(),
            records: records.clone(),
            seen: None,
            number: 0,
            tell,
            changes: changes.clone(),
        };
        let feed = Arc::new(Feed {
            latest,
            changes,
            _watching: AbortOnDropHandle::new(tokio::spawn(watcher.run())),
        });
        feeds.insert(records.group().to_owned(), Arc::downgrade(&feed));
        feed
    }
}

/// Where partitions begin and end, as far as the source was asked.
type Located = Arc<BTreeMap<PartitionId, Bounds>>;

/// Follows one group.
struct Watcher {
    places: Arc<Places>,
    records: GroupStore,
    seen: Option<Arc<Whole>>,
    number: u64,
    tell: watch::Sender<Seen>,
    changes: broadcast::Sender<Changed>,
}

impl Watcher {
    async fn run(mut self) {
        let mut sights = inspect::follow(&self.records, Pace::Close);
        let (find, mut found) = watch::channel(Located::default());
        let _locating = AbortOnDropHandle::new(tokio::spawn(locate(
            self.places.clone(),
            self.records.clone(),
            self.tell.subscribe(),
            find,
        )));
        let mut bounds = Located::default();
        let mut newer: Option<Group> = None;
        let mut due: Option<Instant> = None;
        let mut rested = Instant::now();
        loop {
            tokio::select! {
                Some(sight) = sights.next() => match sight {
                    Sight::Group(group) => newer = Some(*group),
                    Sight::NoGroup => {
                        self.gone();
                        newer = None;
                        continue;
                    }
                    Sight::Blind(error) => {
                        self.blind(&error.to_string());
                        continue;
                    }
                },
                Ok(()) = found.changed() => bounds = found.borrow_and_update().clone(),
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                    due = None;
                    let last = || self.seen.as_ref().map(|whole| whole.group.clone());
                    let Some(mut group) = newer.take().or_else(last) else {
                        continue;
                    };
                    // Whoever opens a page sees lags from the beginning.
                    if self.seen.is_none()
                        && let Some(first) = self.places.bounds(&self.records, &group).await
                    {
                        bounds = Arc::new(first);
                    }
                    group.locate(&bounds);
                    self.show(group);
                    rested = Instant::now() + REST;
                    continue;
                }
            }
            due.get_or_insert(rested.max(Instant::now()));
        }
    }

    fn show(&mut self, group: Group) {
        let change = match &self.seen {
            Some(before) => match change::between(&before.group, &group) {
                Some(change) => Some(sse::frame("change", &change)),
                None => return,
            },
            None => None,
        };
        self.number += 1;
        let now = Arc::new(Whole {
            number: self.number,
            group,
            frame: OnceLock::new(),
        });
        self.seen = Some(now.clone());
        // The whole first: whoever misses a change finds at least as much there.
        self.tell.send_replace(Seen::Group(now));
        if let Some(change) = change {
            let _ = self.changes.send((self.number, change));
        }
    }

    fn gone(&mut self) {
        self.seen = None;
        self.tell.send_replace(Seen::Gone);
        self.number += 1;
        let _ = self
            .changes
            .send((self.number, sse::end("the group was deleted")));
    }

    /// The store is not heard at the moment: what is shown may be old.
    fn blind(&mut self, why: &str) {
        self.number += 1;
        let trouble = sse::frame("trouble", &json!({ "why": why }));
        let _ = self.changes.send((self.number, trouble));
    }
}

/// Asks the source now and then, beside the rest: to ask it about thousands of partitions takes its
/// time, and the store goes on meanwhile.
async fn locate(
    places: Arc<Places>,
    records: GroupStore,
    latest: watch::Receiver<Seen>,
    find: watch::Sender<Located>,
) {
    let mut looking = interval(LOCATE);
    looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looking.tick().await;
        let seen = latest.borrow().clone();
        if let Seen::Group(whole) = seen
            && let Some(bounds) = places.bounds(&records, &whole.group).await
        {
            find.send_if_modified(|known| {
                let new = **known != bounds;
                if new {
                    *known = Arc::new(bounds);
                }
                new
            });
        }
    }
}

/// Somebody who looks.
pub struct Reader {
    latest: watch::Receiver<Seen>,
    changes: broadcast::Receiver<Changed>,
    /// Up to which number it knows everything; `None`: the whole comes next.
    told: Option<u64>,
    _feed: Arc<Feed>,
}

impl Frames for Reader {
    async fn next(&mut self) -> Result<Bytes, Bytes> {
        loop {
            let Some(told) = self.told else {
                // What waits is older than the whole, or is told again: skip it.
                self.changes = self.changes.resubscribe();
                let seen = self.latest.borrow().clone();
                let Seen::Group(whole) = seen else {
                    return Err(sse::end("the group was deleted"));
                };
                self.told = Some(whole.number);
                return Ok(whole.frame());
            };
            match self.changes.recv().await {
                Ok((number, _)) if number <= told => {}
                Ok((number, frame)) => {
                    self.told = Some(number);
                    if matches!(*self.latest.borrow(), Seen::Gone) {
                        return Err(frame);
                    }
                    return Ok(frame);
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.told = None,
                Err(broadcast::error::RecvError::Closed) => {
                    return Err(sse::end("the group is not watched any more"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(number: u64) -> Seen {
        let group = Group {
            name: format!("at {number}"),
            coordination: "leader".into(),
            stream: None,
            closed: false,
            leader: None,
            term: None,
            plan: None,
            workers: Vec::new(),
            handoffs: Vec::new(),
            requests: Vec::new(),
            partitions: Vec::new(),
            history: Vec::new(),
            unreadable: Vec::new(),
        };
        Seen::Group(Arc::new(Whole {
            number,
            group,
            frame: OnceLock::new(),
        }))
    }

    #[tokio::test]
    async fn who_is_too_slow_goes_on_with_the_whole() {
        let (tell, latest) = watch::channel(whole(1));
        let (changes, _) = broadcast::channel(2);
        let feed = Arc::new(Feed {
            latest: latest.clone(),
            changes: changes.clone(),
            _watching: AbortOnDropHandle::new(tokio::spawn(async {})),
        });
        let mut reader = Reader {
            latest,
            changes: changes.subscribe(),
            told: None,
            _feed: feed,
        };
        let change = |number: u64| {
            tell.send_replace(whole(number));
            let frame = sse::frame("change", &json!(number));
            changes.send((number, frame)).expect("somebody reads");
        };
        let text = |frame: Result<Bytes, Bytes>| {
            String::from_utf8(frame.expect("not the end").to_vec()).expect("text")
        };
        assert!(text(reader.next().await).contains("at 1"));
        change(2);
        assert_eq!(text(reader.next().await), "event: change\ndata: 2\n\n");
        for number in 3..=9 {
            change(number);
        }
        let skipped = text(reader.next().await);
        assert!(
            skipped.starts_with("event: group\n") && skipped.contains("at 9"),
            "{skipped}"
        );
        change(10);
        assert_eq!(text(reader.next().await), "event: change\ndata: 10\n\n");
        tell.send_replace(Seen::Gone);
        changes
            .send((11, sse::end("gone")))
            .expect("somebody reads");
        assert!(reader.next().await.is_err(), "and it ends with the group");
    }
}

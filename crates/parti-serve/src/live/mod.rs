//! Groups as they change, for everybody who looks: one follower of the store for each group that is
//! looked at, however many look.
//!
//! ```text
//!   follow, 10/s ─┐                      ┌─▶ latest: the whole, for who comes or was too slow
//!   bounds, 1/s ──┴─▶ Watcher ── change ─┤
//!                                        └─▶ changes: to all readers ──▶ SSE, SSE, …
//! ```
//!
//! A reader that falls behind loses changes, never holds up others, and goes on with the whole. While
//! the store is not heard, all of them know, also those that come meanwhile; then comes the whole.

mod change;

#[cfg(test)]
pub use change::between;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use parti::PartitionId;
use parti::inspect::{self, Bounds, Group, Pace, Sight};
use parti::store::{self, GroupStore};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::failure::{Failure, no_group};
use crate::history::{NEWEST, newest};
use crate::places::Places;
use crate::sse::{self, Frames};

/// Changes that wait for a slow reader.
const WAITING: usize = 16;
/// The shortest time between two changes.
const REST: Duration = Duration::from_millis(100);
/// How often ends and lags are looked at.
const LOCATE: Duration = Duration::from_secs(1);
/// A group that is not seen within this time cannot be.
const PATIENCE: Duration = Duration::from_secs(5);
/// Why a stream ends whose group is none any more.
const DELETED: &str = "the group was deleted";

/// What there is to see.
#[derive(Clone, Debug)]
enum Seen {
    /// Nothing yet.
    Nothing,
    /// Nothing yet, because the store is not heard.
    Unheard(store::Error),
    /// The group, whole.
    Group(Arc<Whole>),
    /// The group as it was when the store was last heard, and the event that says so.
    Blind(Arc<Whole>, Bytes),
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

/// An event that goes to all readers, with its number.
type Changed = (u64, News);

/// What happened.
#[derive(Clone, Debug)]
enum News {
    /// Something changed, or the store is not heard.
    Change(Bytes),
    /// There is no group any more: the last event.
    End(Bytes),
}

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
    /// Begins to look at a group. While the store is away, and nobody has seen it before, that is the
    /// answer: there is nothing to show, and nothing to wait for.
    pub async fn look(
        &self,
        places: &Arc<Places>,
        records: &GroupStore,
    ) -> Result<Reader, Failure> {
        let feed = self.feed(places, records);
        let mut latest = feed.latest.clone();
        let seeing = latest.wait_for(|seen| !matches!(seen, Seen::Nothing));
        let seen = tokio::time::timeout(PATIENCE, seeing).await;
        match seen.as_ref().map(Result::as_deref) {
            Ok(Ok(Seen::Group(_) | Seen::Blind(..))) => {}
            Ok(Ok(Seen::Unheard(error))) => return Err(error.clone().into()),
            Ok(Ok(Seen::Gone)) => {
                return Err(no_group(format!("there is no group {:?}", records.group())));
            }
            _ => return Err(Failure::unavailable("the store does not answer")),
        }
        drop(seen);
        Ok(Reader {
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
            told: Told {
                seen: None,
                number: 0,
                tell,
                changes: changes.clone(),
            },
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
    told: Told,
}

impl Watcher {
    async fn run(mut self) {
        let mut sights = inspect::follow(&self.records, Pace::Close);
        let (find, mut found) = watch::channel(Located::default());
        let _locating = AbortOnDropHandle::new(tokio::spawn(locate(
            self.places.clone(),
            self.records.clone(),
            self.told.tell.subscribe(),
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
                        self.told.gone();
                        newer = None;
                        continue;
                    }
                    Sight::Blind(error) => {
                        // It was seen before that: later it would look as if the store were heard.
                        if let Some(mut group) = newer.take() {
                            group.locate(&bounds);
                            self.told.show(group);
                        }
                        self.told.blind(error);
                        continue;
                    }
                },
                Ok(()) = found.changed() => bounds = found.borrow_and_update().clone(),
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                    due = None;
                    let last = || self.told.last().map(|whole| whole.group.clone());
                    let Some(mut group) = newer.take().or_else(last) else {
                        continue;
                    };
                    // Whoever opens a page sees lags from the beginning.
                    if self.told.seen.is_none()
                        && let Some(first) = self.places.bounds(&self.records, &group).await
                    {
                        bounds = Arc::new(first);
                    }
                    group.locate(&bounds);
                    self.told.show(group);
                    rested = Instant::now() + REST;
                    continue;
                }
            }
            due.get_or_insert(rested.max(Instant::now()));
        }
    }
}

/// What is told of a group to all who look.
struct Told {
    seen: Option<Arc<Whole>>,
    number: u64,
    tell: watch::Sender<Seen>,
    changes: broadcast::Sender<Changed>,
}

impl Told {
    fn is_blind(&self) -> bool {
        matches!(*self.tell.borrow(), Seen::Blind(..))
    }

    /// The group as it is, as far as that is known.
    fn last(&self) -> Option<&Arc<Whole>> {
        self.seen.as_ref().filter(|_| !self.is_blind())
    }

    /// This is how it is: the store is heard.
    fn show(&mut self, group: Group) {
        let heard_again = self.is_blind();
        let change = match self.last() {
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
        self.tell.send_replace(Seen::Group(now.clone()));
        // Whoever was told of trouble hears that it is over, also if nothing changed meanwhile.
        if let Some(change) = change.or_else(|| heard_again.then(|| now.frame())) {
            let _ = self.changes.send((self.number, News::Change(change)));
        }
    }

    fn gone(&mut self) {
        self.seen = None;
        self.tell.send_replace(Seen::Gone);
        self.number += 1;
        let end = News::End(sse::end(DELETED));
        let _ = self.changes.send((self.number, end));
    }

    /// The store is not heard at the moment: what is shown may be old.
    fn blind(&mut self, error: store::Error) {
        let Some(last) = self.seen.clone() else {
            // Nobody reads yet. Whoever waits need not wait for that.
            self.tell.send_replace(Seen::Unheard(error));
            return;
        };
        let trouble = sse::frame("trouble", &json!({ "why": error.to_string() }));
        if matches!(&*self.tell.borrow(), Seen::Blind(_, told) if *told == trouble) {
            return;
        }
        self.tell.send_replace(Seen::Blind(last, trouble.clone()));
        self.number += 1;
        let _ = self.changes.send((self.number, News::Change(trouble)));
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
                let (whole, frame) = match seen {
                    Seen::Group(whole) => (whole.clone(), whole.frame()),
                    Seen::Blind(whole, trouble) => {
                        let both = [whole.frame(), trouble].concat();
                        (whole, Bytes::from(both))
                    }
                    Seen::Nothing | Seen::Unheard(_) | Seen::Gone => {
                        return Err(sse::end(DELETED));
                    }
                };
                self.told = Some(whole.number);
                return Ok(frame);
            };
            match self.changes.recv().await {
                Ok((number, _)) if number <= told => {}
                Ok((number, News::Change(frame))) => {
                    self.told = Some(number);
                    return Ok(frame);
                }
                Ok((_, News::End(frame))) => return Err(frame),
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
    use parti::async_trait;
    use parti::inspect::Unreadable;
    use parti::store::{Entry, Revision, Scope, Store, Watch, Write};

    use super::*;

    fn group(number: u64) -> Group {
        Group {
            name: format!("at {number}"),
            coordination: "leader".into(),
            stream: parti::SourceId::Untold,
            strategy: None,
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
        }
    }

    fn whole(number: u64) -> Seen {
        Seen::Group(Arc::new(Whole {
            number,
            group: group(number),
            frame: OnceLock::new(),
        }))
    }

    fn told(seen: Seen) -> Told {
        Told {
            seen: None,
            number: 0,
            tell: watch::channel(seen).0,
            changes: broadcast::channel(2).0,
        }
    }

    fn reader(feed: &Told) -> Reader {
        let feed = Arc::new(Feed {
            latest: feed.tell.subscribe(),
            changes: feed.changes.clone(),
            _watching: AbortOnDropHandle::new(tokio::spawn(async {})),
        });
        Reader {
            latest: feed.latest.clone(),
            changes: feed.changes.subscribe(),
            told: None,
            _feed: feed,
        }
    }

    fn text(frame: Result<Bytes, Bytes>) -> String {
        String::from_utf8(frame.expect("not the end").to_vec()).expect("text")
    }

    #[tokio::test]
    async fn who_is_too_slow_goes_on_with_the_whole() {
        let told = told(whole(1));
        let mut reader = reader(&told);
        let Told { tell, changes, .. } = told;
        let change = |number: u64| {
            tell.send_replace(whole(number));
            let frame = sse::frame("change", &json!(number));
            changes
                .send((number, News::Change(frame)))
                .expect("somebody reads");
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
            .send((11, News::End(sse::end("gone"))))
            .expect("somebody reads");
        assert!(reader.next().await.is_err(), "and it ends with the group");
    }

    #[tokio::test]
    async fn what_changed_before_the_end_is_told_and_then_the_end() {
        let mut told = told(Seen::Nothing);
        told.show(group(1));
        let mut reader = reader(&told);
        text(reader.next().await);
        told.show(group(2));
        told.gone();
        assert!(text(reader.next().await).starts_with("event: change\n"));
        let last = reader.next().await.expect_err("the end");
        assert_eq!(last, sse::end(DELETED));
    }

    /// A store that never says anything.
    #[derive(Debug)]
    struct Silent;

    #[async_trait]
    impl Store for Silent {
        fn name(&self) -> &str {
            "silent"
        }

        async fn read(&self, _: &str) -> Result<Option<Entry>, store::Error> {
            std::future::pending().await
        }

        async fn list(&self, _: &Scope) -> Result<Vec<Entry>, store::Error> {
            std::future::pending().await
        }

        async fn write(&self, _: Vec<Write>) -> Vec<Result<Revision, store::Error>> {
            std::future::pending().await
        }

        fn watch(&self, _: Scope) -> Watch {
            futures_util::stream::pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_looks_first_does_not_wait_for_a_store_that_says_nothing() {
        let places = Arc::new(Places::new(Arc::new(Silent), None));
        let records = places.records("g").expect("a name");
        let Err(failure) = Live::default().look(&places, &records).await else {
            panic!("there is nothing to see");
        };
        assert!(failure.is_trouble(), "{failure:?}");
        assert_eq!(failure.message(), "the store does not answer");
    }

    #[tokio::test]
    async fn a_store_that_is_not_heard_is_told_and_that_it_is_heard_again() {
        let mut told = told(Seen::Nothing);
        told.show(group(1));
        let mut early = reader(&told);
        assert!(text(early.next().await).starts_with("event: group\n"));
        let no_answer = || store::Error::unavailable("no answer");
        let trouble = sse::frame("trouble", &json!({"why": no_answer().to_string()}));
        let trouble = std::str::from_utf8(&trouble).expect("text");
        told.blind(no_answer());
        told.blind(no_answer());
        assert_eq!(text(early.next().await), trouble);
        assert!(told.last().is_none(), "it is not known how the group is");
        // Who comes meanwhile is told what was seen last, and that it may be old.
        let mut late = reader(&told);
        let both = text(late.next().await);
        assert!(
            both.starts_with("event: group\n") && both.ends_with(trouble),
            "{both}"
        );
        // Nothing has changed meanwhile.
        told.show(group(1));
        for reader in [&mut early, &mut late] {
            let again = text(reader.next().await);
            assert!(again.starts_with("event: group\n"), "{again}");
            assert!(again.contains("at 1"), "{again}");
        }
        told.show(group(2));
        assert!(text(late.next().await).starts_with("event: change\n"));
    }

    #[tokio::test]
    async fn what_becomes_unreadable_is_told_as_a_change() {
        let mut told = told(Seen::Nothing);
        told.show(group(1));
        let mut reader = reader(&told);
        text(reader.next().await);
        let unreadable = vec![Unreadable {
            key: "workers/worker-1".into(),
            why: "no JSON".into(),
        }];
        told.show(Group {
            unreadable,
            ..group(1)
        });
        let change = text(reader.next().await);
        assert!(
            change.contains(r#""unreadable":[{"key":"workers/worker-1","why":"no JSON"}]"#),
            "{change}"
        );
        told.show(group(1));
        let mended = text(reader.next().await);
        assert!(mended.contains(r#""unreadable":[]"#), "{mended}");
    }
}

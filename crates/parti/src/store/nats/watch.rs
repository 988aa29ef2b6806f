//! A watch: feeds that are started anew whenever they may have missed something.
//!
//! ```text
//!             start: a snapshot of every feed
//!   Down ───────────────────────────────────────▶ Live ──▶ changes
//!    ▲  ◀── Interrupted(why), wait ── failed        │
//!    └──────────────────────────────────────────────┘
//!      a gap, a silence, another connection, a consumer or bucket that is gone
//! ```
//!
//! `Restarted` is said only together with a whole snapshot, which is collected first: a snapshot
//! that fails half-way is nobody's business. A snapshot is never older than what the same watch
//! told before: the stream's leader must have got that far, unless the stream is another one by
//! now, or stays behind for good (a restored backup).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::select_all;
use futures_util::stream;
use tokio::time::sleep;

use super::super::{Change, Entry, Error, Revision, Scope, Watch};
use super::Shared;
use super::feed::{Feed, News, Snapshot};
use super::keys::{self, Side};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a leader that knows less than we told is taken for one that has yet to catch up.
const BEHIND_TRIES: u32 = 10;

struct Watcher {
    shared: Shared,
    scope: Scope,
    places: Vec<Place>,
    phase: Phase,
    news: VecDeque<Change>,
    /// Something was said before: what comes next begins with `Restarted`.
    begun: bool,
    /// The last `Interrupted`: it is not repeated while it stays the same.
    told_error: Option<String>,
}

enum Phase {
    Down {
        pause: Duration,
    },
    /// Never empty; by place.
    Live {
        feeds: Vec<Feed>,
        connects: u64,
    },
    /// The scope itself is refused.
    Over,
}

/// One bucket of the scope, and what was told of it.
struct Place {
    side: Side,
    filter: String,
    created: String,
    told: u64,
    behind: u32,
}

/// Everything in a scope.
pub(super) async fn list(shared: &Shared, scope: &Scope) -> Result<Vec<Entry>, Error> {
    scope.check()?;
    let mut entries = Vec::new();
    for (side, filter) in keys::places(scope) {
        let (_, snapshot, _) = with_patience(shared, side, &filter).await?;
        entries.extend(entries_of(shared, side, snapshot));
    }
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(entries)
}

/// A snapshot is cheap to begin anew, and mostly a connection was lost in between.
async fn with_patience(
    shared: &Shared,
    side: Side,
    filter: &str,
) -> Result<(Feed, Snapshot, u64), Error> {
    let first = Feed::start(&shared.link, shared.bucket(side), filter).await;
    match first {
        Err(Error::Unavailable { .. }) => {
            Feed::start(&shared.link, shared.bucket(side), filter).await
        }
        other => other,
    }
}

fn entries_of(shared: &Shared, side: Side, snapshot: Snapshot) -> impl Iterator<Item = Entry> {
    snapshot.into_iter().map(move |(key, (sequence, value))| {
        shared.known(side).note(sequence);
        Entry {
            key,
            revision: Revision(sequence),
            value,
        }
    })
}

pub(super) fn watch(shared: Shared, scope: Scope) -> Watch {
    let places = keys::places(&scope)
        .into_iter()
        .map(|(side, filter)| Place {
            side,
            filter,
            created: String::new(),
            told: 0,
            behind: 0,
        });
    let watcher = Watcher {
        shared,
        places: places.collect(),
        scope,
        phase: Phase::Down {
            pause: Duration::ZERO,
        },
        news: VecDeque::new(),
        begun: false,
        told_error: None,
    };
    stream::unfold(watcher, |mut watcher| async move {
        let change = watcher.next().await;
        Some((change, watcher))
    })
    .boxed()
}

impl Watcher {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.news.pop_front() {
                return change;
            }
            match &mut self.phase {
                Phase::Over => std::future::pending().await,
                Phase::Live { .. } => self.listen().await,
                Phase::Down { pause } => {
                    let pause = *pause;
                    self.wait(pause).await;
                    self.start(pause).await;
                }
            }
        }
    }

    /// Waits before the next try; a new connection ends the wait.
    async fn wait(&self, pause: Duration) {
        let mut health = self.shared.link.health.clone();
        let connects = health.borrow_and_update().connects;
        tokio::select! {
            () = sleep(pause) => {}
            _ = health.wait_for(|health| health.connects != connects) => {}
        }
    }

    async fn start(&mut self, pause: Duration) {
        if let Err(error) = self.scope.check() {
            self.interrupted(error);
            self.phase = Phase::Over;
            return;
        }
        let begun = Instant::now();
        // Before the snapshot: a connection that is made during it counts as another one.
        let connects = match self.shared.link.connected().await {
            Ok(connects) => connects,
            Err(silence) => return self.failed(silence.of_read(), pause),
        };
        let mut feeds = Vec::new();
        let mut entries = Vec::new();
        for place in &mut self.places {
            match place.start(&self.shared).await {
                Ok((feed, snapshot)) => {
                    feeds.push(feed);
                    entries.extend(entries_of(&self.shared, place.side, snapshot));
                }
                Err(error) => {
                    if matches!(error, Error::Unavailable { .. }) {
                        self.shared.link.not_answered(begun);
                    }
                    return self.failed(error, pause);
                }
            }
        }
        if self.begun {
            self.news.push_back(Change::Restarted);
        }
        self.begun = true;
        self.told_error = None;
        self.news.extend(entries.into_iter().map(Change::Put));
        self.news.push_back(Change::Synced);
        self.phase = Phase::Live { feeds, connects };
    }

    fn failed(&mut self, error: Error, pause: Duration) {
        self.interrupted(error);
        let pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.phase = Phase::Down { pause };
    }

    fn interrupted(&mut self, error: Error) {
        let text = error.to_string();
        if self.told_error.as_ref() != Some(&text) {
            self.told_error = Some(text);
            self.begun = true;
            self.news.push_back(Change::Interrupted(error));
        }
    }

    async fn listen(&mut self) {
        let Phase::Live { feeds, connects } = &mut self.phase else {
            return;
        };
        let mut health = self.shared.link.health.clone();
        let connects = *connects;
        let next = select_all(feeds.iter_mut().map(|feed| Box::pin(feed.next())));
        let heard = tokio::select! {
            biased;
            // What has arrived counts, also if the connection is gone since.
            (news, number, _) = next => Some((news, number)),
            _ = health.wait_for(|health| !health.up || health.connects != connects) => None,
        };
        let Some((news, number)) = heard else {
            return self.reconnect();
        };
        match (news, self.places.get_mut(number)) {
            (News::Change(key, sequence, value), Some(place)) => {
                place.told = sequence;
                let revision = Revision(sequence);
                self.news.push_back(match value {
                    Some(value) => {
                        self.shared.known(place.side).note(sequence);
                        Change::Put(Entry {
                            key,
                            revision,
                            value,
                        })
                    }
                    None => Change::Deleted { key, revision },
                });
            }
            (News::Broken(why), _) => {
                self.interrupted(Error::unavailable(format!("the watch broke: {why}")));
                self.phase = Phase::Down {
                    pause: Duration::ZERO,
                };
            }
            _ => {}
        }
    }

    fn reconnect(&mut self) {
        if !self.shared.link.health.borrow().up {
            self.interrupted(Error::unavailable(self.shared.link.no_connection()));
        }
        self.phase = Phase::Down {
            pause: Duration::ZERO,
        };
    }
}

impl Place {
    async fn start(&mut self, shared: &Shared) -> Result<(Feed, Snapshot), Error> {
        let bucket = shared.bucket(self.side);
        let info = bucket
            .info(&shared.link)
            .await
            .map_err(|trouble| trouble.of_read(bucket))?;
        if info.created != self.created {
            self.created = info.created;
            self.told = 0;
            self.behind = 0;
        }
        if info.state.last_seq < self.told && self.behind < BEHIND_TRIES {
            self.behind += 1;
            return Err(Error::unavailable(format!(
                "the server's state of the bucket {} is older than what it told before",
                bucket.name
            )));
        }
        let (feed, snapshot, told) = Feed::start(&shared.link, bucket, &self.filter).await?;
        self.told = told;
        self.behind = 0;
        Ok((feed, snapshot))
    }
}

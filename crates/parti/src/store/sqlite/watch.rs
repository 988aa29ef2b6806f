//! A watch: it knows up to which revision it has told, and asks for what is above.
//!
//! ```text
//!   Lost ── snapshot ──▶ Following(revision) ── beat: what is new? ──▶ Following(later)
//!    ▲                        │
//!    └── an error, or a gap ──┘
//! ```
//!
//! Nothing is kept per key, and a slow reader makes nothing pile up: it asks later, and gets the
//! last state of each key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use super::Inner;
use super::records::{self, News};
use crate::store::{Change, Error, Scope, Watch};

/// How long to wait after an error before the next attempt.
const RETRY: Duration = Duration::from_millis(250);

/// Where a watch stands.
enum State {
    /// It has told nothing yet.
    New,
    /// It has lost track, for this reason if it is an error.
    Lost(Option<Error>),
    /// It has told everything up to this revision; there may be more at once.
    Following { revision: i64, complete: bool },
}

struct Watching {
    inner: Arc<Inner>,
    scope: Scope,
    beats: watch::Receiver<u64>,
    state: State,
    ready: VecDeque<Change>,
}

/// Watches a scope.
pub(super) fn watch(inner: Arc<Inner>, scope: Scope) -> Watch {
    if let Err(error) = scope.check() {
        return stream::iter([Change::Interrupted(error)])
            .chain(stream::pending())
            .boxed();
    }
    // Nothing happens before the first poll.
    stream::once(async move {
        let beats = inner.pulse.follow();
        let watching = Watching {
            inner,
            scope,
            beats,
            state: State::New,
            ready: VecDeque::new(),
        };
        stream::unfold(watching, |mut watching| async move {
            loop {
                if let Some(change) = watching.ready.pop_front() {
                    if watching.ready.is_empty() {
                        // A snapshot's room is large, and not needed any more.
                        watching.ready = VecDeque::new();
                    }
                    return Some((change, watching));
                }
                watching.step().await;
            }
        })
    })
    .flatten()
    .boxed()
}

impl Watching {
    async fn step(&mut self) {
        match &self.state {
            State::New | State::Lost(None) => self.start().await,
            State::Lost(Some(_)) => {
                tokio::time::sleep(RETRY).await;
                self.start().await;
            }
            State::Following { revision, complete } => {
                let (revision, complete) = (*revision, *complete);
                if !complete {
                    self.go_on(revision, None).await;
                } else if self.beats.changed().await.is_ok() {
                    let beat = *self.beats.borrow_and_update();
                    self.go_on(revision, Some(beat)).await;
                } else {
                    // The pulse lives as long as we hold the store; if its thread died, all that is
                    // left is to ask now and then.
                    tokio::time::sleep(RETRY).await;
                    self.go_on(revision, None).await;
                }
            }
        }
    }

    async fn start(&mut self) {
        // Before the snapshot: a change after it is then followed by a beat not yet seen.
        self.beats.mark_unchanged();
        let scope = self.scope.clone();
        let snapshot = self.inner.read(move |connection| {
            let counter = records::counter(connection)?;
            Ok((records::list(connection, &scope)?, counter.revision))
        });
        match snapshot.await {
            Ok((entries, revision)) => {
                if !matches!(self.state, State::New) {
                    self.ready.push_back(Change::Restarted);
                }
                self.ready.extend(entries.into_iter().map(Change::Put));
                self.ready.push_back(Change::Synced);
                self.state = State::Following {
                    revision,
                    complete: true,
                };
            }
            Err(error) => self.lose(error),
        }
    }

    /// What is new, as of a beat: of what was read for all, if it is there.
    async fn news(&self, since: i64, beat: Option<u64>) -> Result<News, Error> {
        let (inner, scope) = (&self.inner, self.scope.clone());
        if let Some(beat) = beat
            && let Some(news) = inner.recent.news(inner, &scope, since, beat).await?
        {
            return Ok(news);
        }
        inner
            .read(move |connection| records::news(connection, &scope, since))
            .await
    }

    async fn go_on(&mut self, since: i64, beat: Option<u64>) {
        match self.news(since, beat).await {
            Ok(News::Changes {
                changes,
                revision,
                complete,
            }) => {
                self.ready.extend(changes);
                self.state = State::Following { revision, complete };
            }
            Ok(News::Gap) => self.state = State::Lost(None),
            Err(error) => self.lose(error),
        }
    }

    /// Says why, once.
    fn lose(&mut self, error: Error) {
        if !matches!(&self.state, State::Lost(Some(known)) if *known == error) {
            self.ready.push_back(Change::Interrupted(error.clone()));
        }
        self.state = State::Lost(Some(error));
    }
}

//! How the store and the log did at their last real work: for `/readyz`, and for whoever waits for
//! a write that is refused again and again.
//!
//! ```text
//!   sessions, operators ──▶ Observed ──▶ the store
//!                              │ what became of each write
//!   produce, topics ──────────▶│ what became of the log's work
//!                              ▼
//!                           Standing ──▶ /readyz says no, and why
//!                              └───────▶ a request that waits is answered 503 store_refuses
//! ```
//!
//! Nobody works for this: no write is made only to know how it ends. So trouble counts until the
//! next work succeeds, and is forgotten after a while: an instance that nobody asks has no work.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parti::async_trait;
use parti::source::log::LogError;
use parti::store::{About, Entry, Error, Revision, Scope, Store, Watch, Write};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::failure::Failure;

/// Trouble is believed for so long, unless work succeeds before.
const BELIEVED: Duration = Duration::from_secs(30);
/// A write that nobody waits for any more, after so long, had no answer.
const UNANSWERED: Duration = Duration::from_secs(1);
/// Sessions and fetches of groups are refused: for everybody, so without their names.
const REPLACED: &str = "the store or the log is not the one that its groups began with: their \
                        sessions and fetches are refused here; what this service logs says more";
/// So many refusals, one after the other, and it is not tried again while somebody waits.
const REFUSALS: u64 = 2;

/// What was wrong with the last work.
#[derive(Clone, Debug)]
struct Trouble {
    since: Instant,
    /// For everybody: no names, no paths.
    told: &'static str,
}

#[derive(Debug, Default)]
struct State {
    store: Option<Trouble>,
    log: Option<Trouble>,
    /// A group's topic is gone. Beside the log's own work, because it is only looked for: a topic that
    /// is there shows nothing of what the log takes.
    topic: Option<Trouble>,
    /// Groups that this instance can do nothing for, because its store or log is not theirs.
    strangers: BTreeMap<String, Instant>,
    /// When some group was last found to have its own store and log here.
    served: Option<Instant>,
    /// How often the store refused to write, and how often since it last did.
    refusals: u64,
    in_a_row: u64,
    /// What it said then.
    why: String,
}

/// How the store and the log did at their last work.
#[derive(Debug, Default)]
pub struct Standing(watch::Sender<State>);

impl Standing {
    /// What is wrong, if something is.
    pub fn trouble(&self) -> Option<&'static str> {
        let state = self.0.borrow();
        let mut all = [&state.store, &state.log, &state.topic]
            .into_iter()
            .flatten();
        let fresh = |since: &Instant| since.elapsed() < BELIEVED;
        let found = all.find(|trouble| fresh(&trouble.since));
        let found = found.map(|trouble| trouble.told);
        // Whose topic was made anew is refused at every instance, and others are not: only where no
        // group at all is at home, another instance may do better.
        let serves = state.served.as_ref().is_some_and(fresh);
        let is_elsewhere = !serves && state.strangers.values().any(fresh);
        found.or(is_elsewhere.then_some(REPLACED))
    }

    /// Does something that ends with a write. If the store refuses to write meanwhile, again and
    /// again, that is the answer: whoever asked need not wait for a person to mend it.
    pub async fn unless_refused<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut states = self.0.subscribe();
        let before = states.borrow().refusals;
        let refused = states
            .wait_for(|state| state.in_a_row >= REFUSALS && state.refusals >= before + REFUSALS);
        tokio::select! {
            biased;
            done = work => done,
            // The sender is this one's own.
            Ok(state) = refused => Err(Failure::broken("store_refuses", &state.why)),
        }
    }

    /// The log did something, or did not.
    pub fn log_did<T>(&self, done: &Result<T, LogError>) {
        let told = match done {
            Err(LogError::Rejected(_)) => {
                "the log refuses: a full disk, a deleted file, or a right that is missing; what \
                 this service logs says which"
            }
            Err(LogError::Unavailable(_) | LogError::Unknown(_)) => "the log does not do its work",
            Err(LogError::Corrupt(_)) => "the log is damaged",
            // What the caller has wrong says nothing of the log.
            Err(
                LogError::NoSuchTopic { .. }
                | LogError::Mismatch { .. }
                | LogError::OtherLimit { .. }
                | LogError::Invalid(_),
            ) => {
                return;
            }
            Ok(_) => return self.set(|state| &mut state.log, None),
        };
        self.set(|state| &mut state.log, Some(told));
    }

    /// A topic is there that a group is about, or is gone.
    pub fn log_has(&self, topic: bool) {
        const GONE: &str = "a topic of the log is gone that a group is about";
        self.set(|state| &mut state.topic, (!topic).then_some(GONE));
    }

    /// A group is served with the store and the log that it began with, or refused because they are
    /// others.
    pub fn group_has_its_log(&self, group: &str, has: bool) {
        self.0.send_if_modified(|state| {
            if has {
                state.served = Some(Instant::now());
                return state.strangers.remove(group).is_some();
            }
            state
                .strangers
                .retain(|_, since| since.elapsed() < BELIEVED);
            state.strangers.insert(group.to_owned(), Instant::now());
            true
        });
    }

    fn set(&self, of: impl FnOnce(&mut State) -> &mut Option<Trouble>, told: Option<&'static str>) {
        self.0.send_if_modified(|state| {
            let trouble = of(state);
            let changes = trouble.is_some() || told.is_some();
            *trouble = told.map(Trouble::now);
            changes
        });
    }

    fn store_did(&self, outcomes: &[Result<Revision, Error>]) {
        // One that was done, or met another one, shows that the store writes.
        let answered = |outcome: &Result<Revision, Error>| {
            matches!(outcome, Ok(_) | Err(Error::Conflict { .. }))
        };
        if outcomes.iter().any(answered) {
            self.store_is(None);
        } else if let Some(Err(error)) = outcomes.first() {
            self.store_is(Some(error));
        }
    }

    fn store_is(&self, error: Option<&Error>) {
        self.0.send_if_modified(|state| {
            let (was, is) = (state.store.is_some(), error.is_some());
            match error {
                Some(error) if !was => tracing::warn!("the store does not write: {error}"),
                None if was => tracing::info!("the store writes again"),
                _ => {}
            }
            if let Some(Error::Rejected { .. }) = error {
                state.refusals += 1;
                state.in_a_row += 1;
            } else if error.is_none() {
                state.in_a_row = 0;
            }
            state.why = error.map_or_else(String::new, ToString::to_string);
            state.store = error.map(|error| Trouble::now(told(error)));
            was || is
        });
    }
}

impl Trouble {
    fn now(told: &'static str) -> Self {
        Self {
            since: Instant::now(),
            told,
        }
    }
}

fn told(error: &Error) -> &'static str {
    match error {
        Error::Rejected { .. } => {
            "the store refuses to write: a full disk, a deleted file, or a right that is missing; \
             what this service logs says which"
        }
        _ => "the store cannot be written now; what this service logs says why",
    }
}

/// A store whose writes are looked at.
pub struct Observed {
    inner: Arc<dyn Store>,
    standing: Arc<Standing>,
}

impl Observed {
    /// Tells this one.
    pub fn new(inner: Arc<dyn Store>, standing: Arc<Standing>) -> Self {
        Self { inner, standing }
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A write under way. Whoever waits for it may give up, and drop it.
struct Writing<'a> {
    standing: &'a Standing,
    began: Instant,
    answered: bool,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.answered && self.began.elapsed() >= UNANSWERED {
            let silent = Error::unknown("it did not answer in time");
            self.standing.store_is(Some(&silent));
        }
    }
}

#[async_trait]
impl Store for Observed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.inner.read(key).await
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        self.inner.list(scope).await
    }

    async fn about(&self) -> Result<About, Error> {
        self.inner.about().await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        let mut writing = Writing {
            standing: &self.standing,
            began: Instant::now(),
            answered: false,
        };
        let outcomes = self.inner.write(batch).await;
        writing.answered = true;
        self.standing.store_did(&outcomes);
        outcomes
    }

    fn watch(&self, scope: Scope) -> Watch {
        self.inner.watch(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Vec<Result<Revision, Error>> {
        vec![Err(Error::rejected("the disk is full"))]
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_of_the_second_refusal_in_a_row() {
        let standing = Standing::default();
        standing.store_did(&refused());
        standing.store_did(&refused());
        let mut waiting = Box::pin(standing.unless_refused::<()>(std::future::pending()));
        let mut waits = async || {
            let waited = tokio::time::timeout(Duration::from_millis(1), &mut waiting).await;
            waited.ok().map(|done| done.expect_err("refused"))
        };
        assert!(waits().await.is_none(), "what was before does not count");
        standing.store_did(&refused());
        standing.store_did(&[Ok(Revision(7))]);
        standing.store_did(&refused());
        assert!(waits().await.is_none(), "it was written in between");
        standing.store_did(&refused());
        let why = waits().await.expect("an answer");
        assert!(why.message().contains("the disk is full"), "{why:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_lasts_until_work_succeeds_or_is_long_ago() {
        let standing = Standing::default();
        assert!(standing.trouble().is_none());
        standing.store_did(&refused());
        let told = standing.trouble().expect("trouble");
        assert!(told.contains("refuses to write"), "{told}");
        standing.store_did(&[Err(Error::conflict(None))]);
        assert!(standing.trouble().is_none());
        standing.log_did::<()>(&Err(LogError::Rejected("full".into())));
        assert!(standing.trouble().is_some());
        standing.log_did::<()>(&Err(LogError::Invalid("no such partition".into())));
        assert!(standing.trouble().is_some());
        tokio::time::advance(BELIEVED).await;
        assert!(standing.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_that_is_there_shows_nothing_of_what_the_log_takes() {
        let standing = Standing::default();
        standing.log_did::<()>(&Err(LogError::Rejected("full".into())));
        standing.log_has(true);
        let told = standing.trouble().expect("nothing can be produced");
        assert!(told.contains("the log refuses"), "{told}");
        standing.log_has(false);
        standing.log_did(&Ok(()));
        let told = standing.trouble().expect("a topic is gone");
        assert!(told.contains("a topic of the log is gone"), "{told}");
        standing.log_has(true);
        assert!(standing.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_groups_are_refused_others_may_do_better() {
        let standing = Standing::default();
        standing.group_has_its_log("g", false);
        let told = standing.trouble().expect("trouble");
        assert!(told.contains("not the one that its groups"), "{told}");
        standing.group_has_its_log("h", true);
        assert!(standing.trouble().is_none(), "one of many is alone with it");
        tokio::time::advance(BELIEVED).await;
        standing.group_has_its_log("g", false);
        assert!(standing.trouble().is_some(), "and is the only one now");
        standing.group_has_its_log("g", true);
        assert!(standing.trouble().is_none());
        tokio::time::advance(BELIEVED).await;
        standing.group_has_its_log("g", false);
        tokio::time::advance(BELIEVED).await;
        assert!(standing.trouble().is_none(), "nobody asks any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_given_up_after_a_while_had_no_answer() {
        let standing = Standing::default();
        let writing = |standing| Writing {
            standing,
            began: Instant::now(),
            answered: false,
        };
        drop(writing(&standing));
        assert!(standing.trouble().is_none(), "somebody hung up");
        let late = writing(&standing);
        tokio::time::advance(UNANSWERED).await;
        drop(late);
        assert!(standing.trouble().is_some());
    }
}

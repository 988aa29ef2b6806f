//! Checkpoints that change though somebody serves their partitions.
//!
//! ```text
//!   served ──▶ pause ──▶ its owner lets go ──▶ compare-and-set on a record that nobody owns ──▶ resume
//!                │                                                                                ▲
//!                └── it does not in time ──▶ it would notice: compare-and-set all the same ───────┤
//!                                        └─▶ it would not (`evidence.rs`): left alone ────────────┘
//! ```
//!
//! Why not simply write over the owner: it would find out at its next commit, and while nothing
//! arrives it has none. A pause reaches it wherever it is, and lets it finish what it handles just
//! now. That nobody owns the partition is no belief: the compare-and-set is on that very record, so
//! whoever takes it next, for whatever reason, begins at the new place.
//!
//! Whoever is stopped half way waits for nobody any more, fences nobody, and resumes what it paused.
//! Whoever is killed leaves partitions paused. The group's history then says by whom, and that it was
//! for this.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parti_core::ids::PartitionId;
use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::checkpoint::{Fence, planned};
use super::evidence::{Evidence, Notices};
use super::pauses::Pauses;
use super::{Applied, Change, Checkpoints, Error, Patience, Reason, Rules, Verdict};
use crate::inspect::{Follower, Pace, Records};
use crate::store;

/// Whoever was stopped, or lost the store, is at its end after so long: with all partitions together.
const RESUMED_WITHIN: Duration = Duration::from_secs(10);
/// So long of it belongs to what was being changed; the rest is for resuming.
const CHANGED_WITHIN: Duration = Duration::from_secs(5);

/// Comes once nobody wants the rest to be done any more, and says since when.
type Stopped = Shared<BoxFuture<'static, Instant>>;

/// From what says so by a message, or by being dropped.
fn stopped(asked: Receiver<()>) -> Stopped {
    let asked = async move {
        let _ = asked.await;
        Instant::now()
    };
    asked.boxed().shared()
}

/// Comes so long after the stop.
async fn after(stopped: &Stopped, span: Duration) {
    let since = stopped.clone().await;
    sleep_until(since + span).await;
}

/// What comes of a change before a stop cuts it short: then it may have been done, or not.
async fn cut<T>(
    stopped: &Stopped,
    change: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        done = change => done,
        () = after(stopped, CHANGED_WITHIN) => {
            Err(store::Error::unknown("it did not answer in time").into())
        }
    }
}

impl Checkpoints {
    /// Changes what is at these places, once owners have let go of it, or after `patience`.
    pub(super) async fn force(
        self,
        places: Vec<usize>,
        rules: Rules,
        patience: Patience,
        reason: Reason,
        mut applied: Applied,
        asked: Receiver<()>,
    ) -> Result<Applied, Error> {
        let stopped = stopped(asked);
        let done = &mut applied.changes;
        let (mut waiting, free): (Vec<usize>, Vec<usize>) = places
            .into_iter()
            .partition(|place| done[*place].served_by.is_some());
        let first = self.write(free.clone(), rules, Fence::Never, &reason, done);
        cut(&stopped, first).await?;
        // Somebody has taken some of them meanwhile.
        waiting.extend(free.into_iter().filter(|place| is_served(&done[*place])));
        if waiting.is_empty() {
            return Ok(applied);
        }
        let mut follower = Follower::new(self.store.watch_all(), Pace::Close);
        let mut forcing = Forcing {
            checkpoints: &self,
            rules,
            reason: &reason,
            waiting,
            over: BTreeSet::new(),
            evidence: Evidence::new(patience.silence),
            pauses: Pauses::new(&self.store, &reason),
            done,
        };
        let change = forcing.change(&mut follower, patience, &stopped);
        let changed = cut(&stopped, change).await;
        // A store that is gone is not waited for as leaders are.
        let patience = match &changed {
            Err(Error::Store(_)) => RESUMED_WITHIN,
            _ => patience.effect.max(patience.silence),
        };
        let until = async {
            tokio::select! {
                () = tokio::time::sleep(patience) => {}
                () = after(&stopped, RESUMED_WITHIN) => {}
            }
        };
        let left = forcing.pauses.end(&mut follower, until).await;
        match changed {
            Err(cause) if !left.paused.is_empty() => Err(Error::LeftPaused {
                cause: Box::new(cause),
                partitions: left.paused,
            }),
            Err(error) => Err(error),
            Ok(()) => {
                applied.left_paused = left.paused;
                applied.trouble = left.trouble;
                Ok(applied)
            }
        }
    }
}

fn is_served(change: &Change) -> bool {
    change.verdict == Verdict::Served
}

/// Changes that wait for owners.
struct Forcing<'a> {
    checkpoints: &'a Checkpoints,
    rules: Rules,
    reason: &'a Reason,
    /// Those not yet changed.
    waiting: Vec<usize>,
    /// Those that are, or that cannot be.
    over: BTreeSet<PartitionId>,
    evidence: Evidence,
    pauses: Pauses<'a>,
    done: &'a mut [Change],
}

impl Forcing<'_> {
    async fn change(
        &mut self,
        follower: &mut Follower,
        patience: Patience,
        stopped: &Stopped,
    ) -> Result<(), Error> {
        let began = Instant::now();
        // What is changed waits so long for the end of its pause.
        let closing = began + patience.effect.max(patience.silence);
        let mut due = began + patience.effect;
        let mut is_asked = false;
        while !self.waiting.is_empty() || self.pauses.holds(&self.over) {
            let until = if self.waiting.is_empty() {
                closing
            } else {
                due
            };
            let heard = tokio::select! {
                biased;
                _ = stopped.clone() => {
                    self.stop();
                    return Ok(());
                }
                heard = timeout_at(until, follower.next(Records::clone)) => heard,
            };
            match heard {
                Ok(Some(Ok(records))) => {
                    if !std::mem::replace(&mut is_asked, true) {
                        let all = self.partitions(&self.waiting);
                        self.pauses.pause(all, &records).await?;
                    }
                    let all = std::mem::take(&mut self.waiting);
                    self.attempt(all, &records, Fence::Never).await?;
                    self.look(&records);
                }
                // The store is not heard for a while.
                Ok(Some(Err(_))) => self.evidence.blind(),
                Ok(None) => return Err(Error::Unfinished("the store's watch has ended".into())),
                Err(_) if self.waiting.is_empty() => break,
                Err(_) => due = self.judge(stopped).await?,
            }
        }
        Ok(())
    }

    /// Time is up: writes over those owners that will notice, and leaves alone those that would not.
    /// Answers when to look again at the others.
    async fn judge(&mut self, stopped: &Stopped) -> Result<Instant, Error> {
        let records = Records::read(&self.checkpoints.store).await?;
        let all = std::mem::take(&mut self.waiting);
        self.attempt(all, &records, Fence::Never).await?;
        self.look(&records);
        let now = Instant::now();
        let mut next = now + RESUMED_WITHIN;
        if stopped.clone().now_or_never().is_some() {
            return Ok(next);
        }
        let mut fenced = Vec::new();
        for place in std::mem::take(&mut self.waiting) {
            let change = &self.done[place];
            let notices = match &change.served_by {
                Some(owner) => self.evidence.of(&change.partition, owner, now),
                None => Notices::NotBefore(now),
            };
            match notices {
                Notices::Surely => fenced.push(place),
                Notices::NotBefore(at) => {
                    next = next.min(at);
                    self.waiting.push(place);
                }
                // It stays as it is.
                Notices::No => {}
            }
        }
        self.attempt(fenced, &records, Fence::Always).await?;
        Ok(next)
    }

    /// Takes note of what is known of those who serve what is waited for.
    fn look(&mut self, records: &Records) {
        let served = self.waiting.iter().filter_map(|place| {
            let change = &self.done[*place];
            Some((&change.partition, change.served_by.as_ref()?))
        });
        self.evidence.look(served, records, Instant::now());
    }

    /// Whoever has not let go by now is left alone.
    fn stop(&mut self) {
        for place in std::mem::take(&mut self.waiting) {
            self.done[place].verdict = Verdict::Served;
        }
    }

    /// Changes what of these may be changed now, and resumes it; the others wait.
    async fn attempt(
        &mut self,
        before: Vec<usize>,
        records: &Records,
        fence: Fence,
    ) -> Result<(), Error> {
        let wanted = before.iter().map(|place| self.done[*place].wanted.clone());
        let now = planned(records, wanted.collect(), self.rules, fence);
        for (place, change) in before.iter().zip(now) {
            self.done[*place] = change;
        }
        let may = |place: &usize| self.done[*place].verdict == Verdict::Change;
        let free: Vec<usize> = before.iter().copied().filter(may).collect();
        (self.checkpoints)
            .write(free, self.rules, fence, self.reason, self.done)
            .await?;
        let (waiting, over): (Vec<usize>, Vec<usize>) = before
            .into_iter()
            .partition(|place| is_served(&self.done[*place]));
        self.waiting.extend(waiting);
        self.over.extend(self.partitions(&over));
        self.pauses.look(records);
        self.pauses.resume(&self.over).await?;
        let waiting = self.partitions(&self.waiting);
        self.pauses.pause_again(waiting, records).await
    }

    fn partitions(&self, places: &[usize]) -> BTreeSet<PartitionId> {
        let id = |place: &usize| self.done[*place].partition.clone();
        places.iter().map(id).collect()
    }
}

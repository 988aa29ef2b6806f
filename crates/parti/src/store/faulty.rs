//! A wrapper that makes a store misbehave, within what the contract allows.
//!
//! ```text
//!             ┌ delay ─────────▶ later
//!             ├ error ─────────▶ Unavailable, nothing was done
//!   write ────┼ lost reply ────▶ done, but the answer is Unknown
//!             ├ late ──────────▶ Unknown at once, done later
//!             └ outage ────────▶ Unavailable, until it is healed
//!
//!   watch ────┬ duplicate ─────▶ the same change twice
//!             ├ drop ──────────▶ swallowed, and later Restarted with a fresh snapshot
//!             └ outage ────────▶ Interrupted, Restarted once it is healed
//! ```
//!
//! Faults happen by chance, from a seed ([`Faults`]), or on demand ([`Faulty::outage`],
//! [`Faulty::lose_next_reply`], …). Whoever is correct on a store is correct on its faulty twin.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parti_core::rng::Rng;
use tokio::sync::watch;

use super::{About, Change, Entry, Error, Revision, Scope, Store, Watch, Write, check_batch};

/// How likely each fault is, from 0 to 1. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// An operation or a change waits.
    pub delay: f64,
    /// The longest that anything waits: an operation, a late write, a watch that missed a change.
    pub longest: Duration,
    /// An operation fails without effect.
    pub error: f64,
    /// A write is done, and its answer is lost.
    pub lost_reply: f64,
    /// A write is answered as unknown, and done later.
    pub late_write: f64,
    /// A change is told twice.
    pub duplicate: f64,
    /// A change is not told; the watch starts anew.
    pub drop: f64,
}

/// How often each fault was injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Operations and changes that waited.
    pub delays: u64,
    /// Operations that failed without effect, outages included.
    pub errors: u64,
    /// Writes whose answer was lost.
    pub lost_replies: u64,
    /// Writes that were done later, or are held.
    pub late_writes: u64,
    /// Changes told twice.
    pub duplicates: u64,
    /// Changes not told.
    pub drops: u64,
}

/// A store that misbehaves. Clones share everything: the store beneath, the faults, the controls.
#[derive(Clone, Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    name: String,
    control: Arc<Mutex<Control>>,
    line: Arc<watch::Sender<Line>>,
}

#[derive(Debug)]
struct Control {
    faults: Faults,
    rng: Rng,
    lose: u32,
    fail: u32,
    hold: u32,
    held: Vec<Write>,
    injected: Injected,
}

/// What the watches see of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    down: bool,
    /// Grows with every break, so that a watch notices one that was healed before it looked.
    breaks: u64,
}

/// What becomes of one write.
enum Fate {
    Done,
    Failed,
    ReplyLost,
    Late(Duration),
    Held,
}

impl Faulty {
    /// Over this store, without faults until some are [set](Self::set) or asked for.
    pub fn new(inner: Arc<dyn Store>, seed: u64) -> Self {
        Self {
            name: format!("faulty {}", inner.name()),
            inner,
            control: Arc::new(Mutex::new(Control {
                faults: Faults::default(),
                rng: Rng::new(seed),
                lose: 0,
                fail: 0,
                hold: 0,
                held: Vec::new(),
                injected: Injected::default(),
            })),
            line: Arc::new(watch::Sender::new(Line::default())),
        }
    }

    /// The same, with these chances from the start.
    #[must_use]
    pub fn with(self, faults: Faults) -> Self {
        self.set(faults);
        self
    }

    /// Sets the chances from now on.
    pub fn set(&self, faults: Faults) {
        self.control().faults = faults;
    }

    /// Begins an outage, or ends it. Meanwhile everything fails, and watches are interrupted.
    pub fn outage(&self, down: bool) {
        self.line.send_modify(|line| {
            line.breaks += u64::from(down);
            line.down = down;
        });
    }

    /// Breaks every watch once: each starts anew.
    pub fn break_watches(&self) {
        self.line.send_modify(|line| line.breaks += 1);
    }

    /// The next operation fails without effect.
    pub fn fail_next(&self) {
        self.control().fail += 1;
    }

    /// The next write is done, but its answer is lost.
    pub fn lose_next_reply(&self) {
        self.control().lose += 1;
    }

    /// The next write is answered as unknown, and held back until [`release`](Self::release).
    pub fn hold_next_write(&self) {
        self.control().hold += 1;
    }

    /// Carries out what was held back, in order, and answers with what became of it.
    pub async fn release(&self) -> Vec<Result<Revision, Error>> {
        let held = std::mem::take(&mut self.control().held);
        let mut outcomes = Vec::new();
        // One at a time: two held writes may have the same key.
        for write in held {
            outcomes.extend(self.inner.write(vec![write]).await);
        }
        outcomes
    }

    /// How often each fault was injected so far.
    pub fn injected(&self) -> Injected {
        self.control().injected
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        // Each step leaves it whole.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, by chance.
    async fn delay(&self) {
        let wait = self.control().draw_delay();
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        }
    }

    /// Fails during an outage, on demand, or by chance.
    fn check(&self) -> Result<(), Error> {
        let down = self.line.borrow().down;
        let mut control = self.control();
        if down {
            control.injected.errors += 1;
            return Err(Error::unavailable("an injected outage"));
        }
        if control.draw_failure() {
            return Err(Error::unavailable("an injected error"));
        }
        Ok(())
    }

    fn land_later(&self, write: Write, after: Duration) {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // Its writer was told that its fate is open: nobody waits for the outcome.
            drop(inner.write(vec![write]).await);
        });
    }
}

impl Control {
    fn draw_delay(&mut self) -> Option<Duration> {
        let Faults { delay, longest, .. } = self.faults;
        if !self.rng.chance(delay) {
            return None;
        }
        self.injected.delays += 1;
        Some(longest.mul_f64(self.rng.unit()))
    }

    fn draw_failure(&mut self) -> bool {
        let fails = take_one(&mut self.fail) || self.rng.chance(self.faults.error);
        self.injected.errors += u64::from(fails);
        fails
    }

    fn draw_fate(&mut self) -> Fate {
        if self.draw_failure() {
            Fate::Failed
        } else if take_one(&mut self.lose) || self.rng.chance(self.faults.lost_reply) {
            self.injected.lost_replies += 1;
            Fate::ReplyLost
        } else if take_one(&mut self.hold) {
            self.injected.late_writes += 1;
            Fate::Held
        } else if self.rng.chance(self.faults.late_write) {
            self.injected.late_writes += 1;
            Fate::Late(self.faults.longest.mul_f64(self.rng.unit()))
        } else {
            Fate::Done
        }
    }
}

fn take_one(count: &mut u32) -> bool {
    let any = *count > 0;
    *count = count.saturating_sub(1);
    any
}

#[async_trait]
impl Store for Faulty {
    fn name(&self) -> &str {
        &self.name
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.delay().await;
        self.check()?;
        self.inner.read(key).await
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        self.delay().await;
        self.check()?;
        self.inner.list(scope).await
    }

    async fn about(&self) -> Result<About, Error> {
        self.delay().await;
        self.check()?;
        self.inner.about().await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        self.delay().await;
        let down = self.line.borrow().down;
        let mut answers: Vec<Option<Result<Revision, Error>>> = Vec::new();
        let mut sent = Vec::new();
        // What is refused is refused, whatever else happens.
        for (check, write) in check_batch(&batch).into_iter().zip(batch) {
            if let Err(error) = check {
                answers.push(Some(Err(error)));
                continue;
            }
            if down {
                self.control().injected.errors += 1;
                answers.push(Some(Err(Error::unavailable("an injected outage"))));
                continue;
            }
            let fate = self.control().draw_fate();
            answers.push(match fate {
                Fate::Failed => Some(Err(Error::unavailable("an injected error"))),
                Fate::Done => {
                    sent.push(write);
                    None
                }
                Fate::ReplyLost => {
                    sent.push(write);
                    Some(Err(Error::unknown("an injected loss of the reply")))
                }
                Fate::Late(after) => {
                    self.land_later(write, after);
                    Some(Err(Error::unknown("an injected late write")))
                }
                Fate::Held => {
                    self.control().held.push(write);
                    Some(Err(Error::unknown("an injected late write, held")))
                }
            });
        }
        let lost = |answer: &Option<_>| matches!(answer, Some(Err(Error::Unknown { why })) if why.ends_with("the reply"));
        let mut outcomes = self.inner.write(sent).await.into_iter();
        let answers = answers.into_iter().map(|answer| {
            if lost(&answer) {
                outcomes.next();
            }
            answer.or_else(|| outcomes.next()).unwrap_or_else(|| {
                let why = "the store beneath gave fewer answers than it had writes";
                Err(Error::unknown(why))
            })
        });
        answers.collect()
    }

    fn watch(&self, scope: Scope) -> Watch {
        let state = Watching {
            line: self.line.subscribe(),
            seen: *self.line.borrow(),
            store: self.clone(),
            scope,
            phase: Phase::Starting,
            pending: VecDeque::new(),
        };
        stream::unfold(state, |mut state| async move {
            let change = state.next().await?;
            Some((change, state))
        })
        .boxed()
    }
}

/// One watch.
struct Watching {
    store: Faulty,
    scope: Scope,
    line: watch::Receiver<Line>,
    seen: Line,
    phase: Phase,
    pending: VecDeque<Change>,
}

enum Phase {
    /// The watch beneath is not there yet.
    Starting,
    Running {
        beneath: Watch,
        synced: bool,
    },
    /// Nothing is heard until the outage is over.
    Down,
}

impl Watching {
    async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            match &mut self.phase {
                Phase::Starting if self.line.borrow().down => self.interrupt(),
                Phase::Starting => {
                    self.seen = *self.line.borrow();
                    let beneath = self.store.inner.watch(self.scope.clone());
                    let synced = false;
                    self.phase = Phase::Running { beneath, synced };
                }
                Phase::Down => {
                    // The sender lives in the store that this watch holds.
                    self.line.wait_for(|line| !line.down).await.ok()?;
                    self.restart();
                }
                Phase::Running { beneath, synced } => {
                    let seen = self.seen;
                    let change = tokio::select! {
                        biased;
                        broken = self.line.wait_for(|line| *line != seen) => {
                            broken.ok()?;
                            None
                        }
                        change = beneath.next() => Some(change?),
                    };
                    match change {
                        None => self.interrupt(),
                        Some(change) => {
                            match change {
                                Change::Synced => *synced = true,
                                Change::Restarted => *synced = false,
                                _ => {}
                            }
                            let synced = *synced;
                            self.pass_on(change, synced).await;
                        }
                    }
                }
            }
        }
    }

    fn interrupt(&mut self) {
        let error = Error::unavailable("an injected outage");
        self.pending.push_back(Change::Interrupted(error));
        self.phase = Phase::Down;
    }

    fn restart(&mut self) {
        self.pending.push_back(Change::Restarted);
        self.phase = Phase::Starting;
    }

    async fn pass_on(&mut self, change: Change, synced: bool) {
        let is_news = matches!(change, Change::Put(_) | Change::Deleted { .. });
        let (drops, twice, longest) = {
            let mut control = self.store.control();
            let Faults {
                drop,
                duplicate,
                longest,
                ..
            } = control.faults;
            // A snapshot is whole or is not told at all, so nothing of it is dropped.
            let drops = is_news && synced && control.rng.chance(drop);
            let twice = is_news && !drops && control.rng.chance(duplicate);
            control.injected.drops += u64::from(drops);
            control.injected.duplicates += u64::from(twice);
            (drops, twice, longest.mul_f64(control.rng.unit()))
        };
        if drops {
            // The gap is noticed some time later; what happens until then is missed too.
            tokio::time::sleep(longest).await;
            self.restart();
            return;
        }
        // Put away before the wait: a reader that gives up and comes back still gets it.
        if twice {
            self.pending.push_back(change.clone());
        }
        self.pending.push_back(change);
        self.store.delay().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Memory, StoreExt};

    fn faulty() -> Faulty {
        Faulty::new(Arc::new(Memory::new()), 1)
    }

    #[tokio::test]
    async fn what_was_asked_for_happens_once() {
        let store = faulty();
        store.fail_next();
        let failed = store.create("a", "1").await;
        assert!(matches!(failed, Err(Error::Unavailable { .. })));
        assert_eq!(store.read("a").await, Ok(None));

        store.lose_next_reply();
        let lost = store.create("a", "1").await;
        assert!(matches!(lost, Err(Error::Unknown { .. })));
        let there = store.read("a").await.expect("read").expect("it is there");

        store.hold_next_write();
        let held = store.update("a", there.revision, "2").await;
        assert!(matches!(held, Err(Error::Unknown { .. })));
        assert_eq!(store.read("a").await, Ok(Some(there.clone())));
        assert!(matches!(store.release().await[..], [Ok(_)]));
        let now = store.read("a").await.expect("read").expect("it is there");
        assert_eq!(now.value, "2");
        assert_eq!(store.injected().late_writes, 1);
        assert!(store.update("a", now.revision, "3").await.is_ok());
    }

    #[tokio::test]
    async fn a_held_write_conflicts_once_it_was_settled() {
        let store = faulty();
        store.hold_next_write();
        assert!(store.create("a", "late").await.is_err());
        assert!(store.create("a", "settled").await.is_ok());
        let outcomes = store.release().await;
        assert!(matches!(outcomes[..], [Err(Error::Conflict { .. })]));
    }

    #[tokio::test]
    async fn an_outage_fails_all_and_interrupts_watches() {
        let store = faulty();
        let mut watch = store.watch(Scope::Under(String::new()));
        assert_eq!(watch.next().await, Some(Change::Synced));
        store.outage(true);
        assert!(store.read("a").await.is_err() && store.create("a", "1").await.is_err());
        assert!(store.list(&Scope::Key("a".into())).await.is_err());
        let told = watch.next().await;
        assert!(matches!(told, Some(Change::Interrupted(_))), "{told:?}");
        store.outage(false);
        assert_eq!(watch.next().await, Some(Change::Restarted));
        assert_eq!(watch.next().await, Some(Change::Synced));
        assert!(store.create("a", "1").await.is_ok());
        assert!(matches!(watch.next().await, Some(Change::Put(_))));
    }

    #[tokio::test]
    async fn answers_stay_in_their_places() {
        let store = faulty().with(Faults {
            error: 0.2,
            lost_reply: 0.2,
            ..Faults::default()
        });
        let batch = (0..200).map(|n| Write {
            key: format!("k{n}"),
            expect: super::super::Expect::Absent,
            value: Some(format!("{n}").into()),
        });
        let outcomes = store.write(batch.collect()).await;
        store.set(Faults::default());
        let mut kinds = [0; 3];
        for (n, outcome) in outcomes.into_iter().enumerate() {
            let there = store.read(&format!("k{n}")).await.expect("read");
            let kind = match outcome {
                Ok(revision) => {
                    assert_eq!(there.expect("done").revision, revision);
                    0
                }
                Err(Error::Unknown { .. }) => {
                    assert!(there.is_some());
                    1
                }
                Err(_) => {
                    assert_eq!(there, None);
                    2
                }
            };
            kinds[kind] += 1;
        }
        assert!(kinds.iter().all(|count| *count > 10), "{kinds:?}");
    }
}

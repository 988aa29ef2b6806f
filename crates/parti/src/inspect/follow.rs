//! A group as it changes: one watch of the store, and a view whenever something is new.
//!
//! ```text
//!   watch ──▶ known: every record of the group ──▶ Group ──▶ rest ──┐
//!     ▲                                                             │
//!     └────────────── all that came meanwhile, at once ◀────────────┘
//! ```
//!
//! What a view costs grows with the group, so the rest after one does, too: whoever follows spends a
//! bounded share of a core on making views, however large the group and however busy. How large a
//! share is a matter of [`Pace`].

use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use parti_core::io::WatchEvent;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::{Group, Records};
use crate::store::{Error, GroupChange, GroupStore};

/// The longest time between two views, however long one takes.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// Changes that go into one view; a flood does not put it off for ever.
const CHANGES: usize = 50_000;

/// How often somebody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Four times a second at most, for about half a hundredth of a core: a group of thousands of
    /// partitions is looked at every other second.
    Sparing,
    /// Ten times a second at most, for up to a fifth of a core: also a group of thousands of
    /// partitions, for somebody who serves many that look.
    Close,
}

impl Pace {
    /// The shortest time between two views.
    fn shortest_rest(self) -> Duration {
        match self {
            Self::Sparing => Duration::from_millis(250),
            Self::Close => Duration::from_millis(100),
        }
    }

    /// A rest is so many times as long as the work before it.
    fn rest_for_work(self) -> u32 {
        match self {
            Self::Sparing => 200,
            Self::Close => 4,
        }
    }

    fn rest_after(self, work: Duration) -> Duration {
        let rest = work * self.rest_for_work();
        rest.clamp(self.shortest_rest(), LONGEST_REST)
    }
}

/// What is seen of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Sight {
    /// This is how it is.
    Group(Box<Group>),
    /// The store knows none of this name, or none any more.
    NoGroup,
    /// The store cannot be heard, for this reason. What was seen last may be old.
    Blind(Error),
}

/// The watch, and what it has told so far.
pub(crate) struct Follower {
    changes: BoxStream<'static, GroupChange>,
    pace: Pace,
    /// Every record; `None` before the first snapshot.
    known: Option<Records>,
    changed: bool,
    trouble: Option<Error>,
    rest: Instant,
}

/// Follows a group: its present state first, then again whenever something has changed, as often as
/// the pace has it. It never ends by itself.
///
/// It is one watch of the store, on the whole of it: records are kept by kind and then by group.
/// Those of other groups are dropped unread.
pub fn follow(store: &GroupStore, pace: Pace) -> BoxStream<'static, Sight> {
    let name = store.group().to_owned();
    let view = move |records: &Records| match records.exists() {
        true => Sight::Group(Box::new(Group::of(&name, records))),
        false => Sight::NoGroup,
    };
    stream::unfold(
        (Follower::new(store.watch_all(), pace), view),
        |(mut follower, view)| async move {
            let sight = follower.next(&view).await?.unwrap_or_else(Sight::Blind);
            Some((sight, (follower, view)))
        },
    )
    .boxed()
}

impl Follower {
    pub(crate) fn new(changes: BoxStream<'static, GroupChange>, pace: Pace) -> Self {
        Self {
            changes,
            pace,
            known: None,
            changed: false,
            trouble: None,
            rest: Instant::now(),
        }
    }

    /// The next view of all records, once something has changed; or why the store is not heard.
    pub(crate) async fn next<T>(
        &mut self,
        view: impl Fn(&Records) -> T,
    ) -> Option<Result<T, Error>> {
        sleep_until(self.rest).await;
        let mut began = Instant::now();
        loop {
            if let Some(error) = self.trouble.take() {
                return Some(Err(error));
            }
            if let Some(known) = self.known.as_ref().filter(|_| self.changed) {
                let seen = view(known);
                self.changed = false;
                self.rest = Instant::now() + self.pace.rest_after(began.elapsed());
                return Some(Ok(seen));
            }
            let change = self.changes.next().await?;
            began = Instant::now();
            self.take(change);
            for _ in 0..CHANGES {
                // Unconstrained: otherwise the runtime would say "nothing yet" after some of them.
                let next = unconstrained(self.changes.next()).now_or_never();
                let Some(change) = next else { break };
                self.take(change?);
            }
        }
    }

    fn take(&mut self, change: GroupChange) {
        match (change, &mut self.known) {
            (GroupChange::Interrupted(error), _) => self.trouble = Some(error),
            (GroupChange::Event(WatchEvent::Snapshot(all)), known) => {
                *known = Some(Records::of(all));
                self.changed = true;
                self.trouble = None;
            }
            (GroupChange::Event(WatchEvent::Changed(stored)), Some(known)) => {
                known.put(stored);
                self.changed = true;
            }
            (GroupChange::Event(WatchEvent::Removed(key, _)), Some(known)) => {
                self.changed |= known.remove(&key);
            }
            // Before the first snapshot there are no changes.
            (GroupChange::Event(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::inspect::tests::{Desk, partition};
    use crate::store::faulty::Faulty;
    use crate::store::{Entry, Memory, Revision, Scope, Store, Watch, Write};
    use parti_core::ids::Offset;
    use parti_core::key::Key;
    use parti_core::record::SessionStatus;

    /// What a store was asked for.
    #[derive(Debug)]
    struct Counted {
        inner: Faulty,
        watches: AtomicUsize,
        reads: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl Store for Counted {
        fn name(&self) -> &str {
            self.inner.name()
        }

        async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.inner.read(key).await
        }

        async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.inner.list(scope).await
        }

        async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
            self.inner.write(batch).await
        }

        fn watch(&self, scope: Scope) -> Watch {
            self.watches.fetch_add(1, Ordering::Relaxed);
            self.inner.watch(scope)
        }
    }

    /// `parti watch` and the dashboard live on this.
    #[tokio::test(start_paused = true)]
    async fn whoever_follows_costs_the_store_one_watch_and_no_reads() {
        let line = Faulty::new(Arc::new(Memory::new()), 1);
        let counted = Arc::new(Counted {
            inner: line.clone(),
            watches: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
        });
        // Others write past the one that is counted.
        let desk = Desk {
            store: GroupStore::new(Arc::new(line.clone()), "g").expect("a name"),
        };
        let looked_at = GroupStore::new(counted.clone(), "g").expect("a name");
        let mut sights = follow(&looked_at, Pace::Close);
        assert_eq!(sights.next().await, Some(Sight::NoGroup));
        desk.group().await;
        let life = desk.session("worker-0", SessionStatus::Live).await;
        desk.told("worker-0", life, &["0", "1"], &[]).await;
        for turn in 1..=20 {
            for id in ["0", "1"] {
                desk.owned(id, Some(("worker-0", life)), Some(turn)).await;
            }
            desk.decide(|overrides| overrides.pause(&partition("1")))
                .await;
            let last = async |sights: &mut BoxStream<'static, Sight>| {
                let seen = group(sights.next().await);
                seen.partitions.get(1).and_then(|one| one.offset)
            };
            while last(&mut sights).await != Some(Offset(turn)) {}
        }
        line.outage(true);
        while !matches!(sights.next().await, Some(Sight::Blind(_))) {}
        line.outage(false);
        while !matches!(sights.next().await, Some(Sight::Group(_))) {}
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        assert_eq!((count(&counted.watches), count(&counted.reads)), (1, 0));
    }

    fn group(sight: Option<Sight>) -> Group {
        match sight {
            Some(Sight::Group(group)) => *group,
            other => panic!("no group: {other:?}"),
        }
    }

    #[tokio::test]
    async fn what_changes_is_seen_and_other_groups_are_not() {
        let desk = Desk::new();
        let other = Desk {
            store: GroupStore::new(desk.store.store().clone(), "other").expect("a name"),
        };
        let mut sights = follow(&desk.store, Pace::Sparing);
        assert_eq!(sights.next().await, Some(Sight::NoGroup));
        desk.group().await;
        assert_eq!(group(sights.next().await).partitions, []);
        let life = desk.session("worker-0", SessionStatus::Live).await;
        desk.owned("3", Some(("worker-0", life)), Some(4)).await;
        let seen = group(sights.next().await);
        assert_eq!((seen.workers.len(), seen.workers[0].owns), (1, 1));
        assert_eq!(seen.partitions[0].next_offset, Some(Offset(5)));
        other.group().await;
        other.owned("9", None, None).await;
        desk.owned("3", None, Some(7)).await;
        let seen = group(sights.next().await);
        assert_eq!(seen.partition_ids(), [partition("3")]);
        assert_eq!(seen, desk.seen().await, "the same as one look has it");
    }

    /// The clock stands still while views are made, so only the shortest rests count.
    #[tokio::test(start_paused = true)]
    async fn whoever_looks_closely_sees_ten_changes_a_second_of_thousands_of_partitions() {
        let desk = Desk::new();
        desk.group().await;
        let life = desk.session("worker-0", SessionStatus::Live).await;
        for number in 0..5_000 {
            let id = number.to_string();
            desk.owned(&id, Some(("worker-0", life)), None).await;
        }
        for (pace, wait) in [(Pace::Close, 100), (Pace::Sparing, 250)] {
            let mut sights = follow(&desk.store, pace);
            assert_eq!(group(sights.next().await).partitions.len(), 5_000);
            for turn in 1..=10 {
                let began = Instant::now();
                desk.owned("4711", Some(("worker-0", life)), Some(turn))
                    .await;
                let seen = group(sights.next().await);
                assert_eq!(seen, desk.seen().await, "the same as one look has it");
                let waited = began.elapsed().as_millis();
                assert!((wait..wait + 5).contains(&waited), "{pace:?}: {waited}");
            }
        }
    }

    #[test]
    fn a_rest_is_longer_after_more_work() {
        let ms = Duration::from_millis;
        for (work, sparing, close) in [(0, 250, 100), (5, 1_000, 100), (50, 2_000, 200)] {
            assert_eq!(Pace::Sparing.rest_after(ms(work)), ms(sparing));
            assert_eq!(Pace::Close.rest_after(ms(work)), ms(close));
        }
        assert_eq!(Pace::Close.rest_after(ms(60_000)), ms(2_000));
    }

    #[tokio::test]
    async fn blindness_is_told_and_ends_with_a_whole_view() {
        let desk = Desk::new();
        desk.group().await;
        desk.owned("1", None, None).await;
        let read = |prefix| desk.store.list(prefix);
        let mut all = read(parti_core::key::Prefix::Partitions)
            .await
            .expect("a list");
        all.extend(desk.store.read(&Key::Group).await.expect("readable"));
        let snapshot = GroupChange::Event(WatchEvent::Snapshot(all));
        let lost = Error::unavailable("no answer");
        let heard = [
            snapshot.clone(),
            GroupChange::Interrupted(lost.clone()),
            GroupChange::Event(WatchEvent::Snapshot(Vec::new())),
        ];
        // One at a time, as they would come.
        let heard = stream::iter(heard).then(|change| async {
            tokio::task::yield_now().await;
            change
        });
        let mut follower = Follower::new(heard.chain(stream::pending()).boxed(), Pace::Sparing);
        let view = |records: &Records| records.exists().then(|| Group::of("g", records));
        assert_eq!(follower.next(view).await, Some(Ok(Some(desk.seen().await))));
        assert_eq!(follower.next(view).await, Some(Err(lost)));
        assert_eq!(follower.next(view).await, Some(Ok(None)));
    }
}

//! A group as it changes: one watch of the store, and a view whenever something is new.
//!
//! ```text
//!   watch ──▶ known: every record of the group ──▶ Group ──▶ rest ──┐
//!     ▲                                                             │
//!     └────────────── all that came meanwhile, at once ◀────────────┘
//! ```
//!
//! What a view costs grows with the group, so the rest after one does, too: whoever follows spends
//! about half a hundredth of a core on making views, however large the group and however busy.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use parti_core::io::{Stored, WatchEvent};
use parti_core::key::Key;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::{Group, Records};
use crate::store::{Error, GroupChange, GroupStore};

/// The shortest time between two views.
const SHORTEST_REST: Duration = Duration::from_millis(250);
/// The longest, however long a view takes.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// A rest is so many times as long as the work before it.
const REST_FOR_WORK: u32 = 200;
/// Changes that go into one view; a flood does not put it off for ever.
const CHANGES: usize = 50_000;

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
    /// Every record; `None` before the first snapshot.
    known: Option<BTreeMap<Key, Stored>>,
    changed: bool,
    trouble: Option<Error>,
    rest: Instant,
}

/// Follows a group: its present state first, then again whenever something has changed, a few times
/// a second at most. It never ends by itself.
///
/// It is one watch of the store, on the whole of it: records are kept by kind and then by group.
/// Those of other groups are dropped unread.
pub fn follow(store: &GroupStore) -> BoxStream<'static, Sight> {
    let name = store.group().to_owned();
    let view = move |records: &Records| match records.exists() {
        true => Sight::Group(Box::new(Group::of(&name, records))),
        false => Sight::NoGroup,
    };
    stream::unfold(
        (Follower::new(store.watch_all()), view),
        |(mut follower, view)| async move {
            let sight = follower.next(&view).await?.unwrap_or_else(Sight::Blind);
            Some((sight, (follower, view)))
        },
    )
    .boxed()
}

impl Follower {
    pub(crate) fn new(changes: BoxStream<'static, GroupChange>) -> Self {
        Self {
            changes,
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
                let seen = view(&Records::of(known.values()));
                self.changed = false;
                let rest = began.elapsed() * REST_FOR_WORK;
                self.rest = Instant::now() + rest.clamp(SHORTEST_REST, LONGEST_REST);
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
                let all = all.into_iter().map(|stored| (stored.key.clone(), stored));
                *known = Some(all.collect());
                self.changed = true;
                self.trouble = None;
            }
            (GroupChange::Event(WatchEvent::Changed(stored)), Some(known)) => {
                known.insert(stored.key.clone(), stored);
                self.changed = true;
            }
            (GroupChange::Event(WatchEvent::Removed(key, _)), Some(known)) => {
                self.changed |= known.remove(&key).is_some();
            }
            // Before the first snapshot there are no changes.
            (GroupChange::Event(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::{Desk, partition};
    use parti_core::ids::Offset;
    use parti_core::record::SessionStatus;

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
        let mut sights = follow(&desk.store);
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
        let mut follower = Follower::new(heard.chain(stream::pending()).boxed());
        let view = |records: &Records| records.exists().then(|| Group::of("g", records));
        assert_eq!(follower.next(view).await, Some(Ok(Some(desk.seen().await))));
        assert_eq!(follower.next(view).await, Some(Err(lost)));
        assert_eq!(follower.next(view).await, Some(Ok(None)));
    }
}

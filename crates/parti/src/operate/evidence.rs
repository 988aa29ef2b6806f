//! Whether an owner that has not let go would notice that it is written over.
//!
//! ```text
//!   told to let go, for as long as a lease ──▶ it does so by a write of its own, and meets the change
//!   silent, for as long as a lease         ──▶ frozen or dead: it confirms what it has as it wakes
//!   it renews, and nobody has told it      ──▶ while nothing arrives for it, it would not
//! ```
//!
//! An idle owner writes nothing. Written over all the same, it would keep to itself a partition that
//! nobody owns, until a message arrives there. Everything here is an argument, the time as well.

use std::collections::BTreeMap;
use std::time::Duration;

use parti_core::ids::{PartitionId, Revision, WorkerId};
use parti_core::key::Key;
use parti_core::record::AssignmentRecord;
use tokio::time::Instant;

use crate::inspect::Records;

/// Whether an owner would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notices {
    /// It would.
    Surely,
    /// That is not known before.
    NotBefore(Instant),
    /// It lives, and was not told to let go.
    No,
}

/// What is known of owners.
pub(super) struct Evidence {
    lease: Duration,
    /// Since when the group is looked at, without a gap.
    since: Option<Instant>,
    /// Since when owners are told to let go of these.
    told: BTreeMap<PartitionId, Instant>,
    /// Each owner's session as last heard, and since when it is that. One that is not there is as
    /// silent as one that is not renewed.
    heard: BTreeMap<WorkerId, (Option<Revision>, Instant)>,
}

impl Evidence {
    /// None yet.
    pub fn new(lease: Duration) -> Self {
        Self {
            lease,
            since: None,
            told: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    /// Takes note of what is known now of these partitions and who serves them.
    pub fn look<'a>(
        &mut self,
        served: impl Iterator<Item = (&'a PartitionId, &'a WorkerId)>,
        records: &Records,
        now: Instant,
    ) {
        self.since.get_or_insert(now);
        let told = records.told();
        let told: BTreeMap<&WorkerId, &AssignmentRecord> =
            told.into_iter().map(|(id, _, told)| (id, told)).collect();
        let sessions = records
            .workers
            .iter()
            .filter_map(|stored| match &stored.key {
                Key::Worker(id) => Some((id, stored.revision)),
                _ => None,
            });
        let sessions: BTreeMap<&WorkerId, Revision> = sessions.collect();
        let is_told = |partition: &PartitionId, owner: &WorkerId| {
            if records.is_leaderless() {
                return records.paused().binary_search(partition).is_ok();
            }
            let told = told.get(owner);
            told.is_some_and(|told| told.serve.binary_search(partition).is_err())
        };
        for (partition, owner) in served {
            if is_told(partition, owner) {
                self.told.entry(partition.clone()).or_insert(now);
            } else {
                self.told.remove(partition);
            }
            let revision = sessions.get(owner).copied();
            let heard = self.heard.entry(owner.clone());
            let heard = heard.or_insert((revision, now));
            if heard.0 != revision {
                *heard = (revision, now);
            }
        }
    }

    /// The store is not heard: silence says nothing, and nobody else may hear anything either.
    pub fn blind(&mut self) {
        self.since = None;
        self.told.clear();
        self.heard.clear();
    }

    /// Whether the owner of a partition would notice, if it were written over now.
    pub fn of(&self, partition: &PartitionId, owner: &WorkerId, now: Instant) -> Notices {
        let lease = self.lease;
        let Some(since) = self.since else {
            return Notices::NotBefore(now + lease);
        };
        match (self.told.get(partition), self.heard.get(owner)) {
            (Some(told), _) if now >= *told + lease => Notices::Surely,
            (_, Some((_, last))) if now >= *last + lease => Notices::Surely,
            (Some(told), _) => Notices::NotBefore(*told + lease),
            _ if now < since + lease => Notices::NotBefore(since + lease),
            _ => Notices::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::{Desk, partition, worker};
    use parti_core::record::SessionStatus;

    const LEASE: Duration = Duration::from_secs(10);

    async fn looked(evidence: &mut Evidence, desk: &Desk, now: Instant) -> Notices {
        let records = Records::read(&desk.store).await.expect("readable");
        let (partition, owner) = (partition("0"), worker("worker-0"));
        evidence.look([(&partition, &owner)].into_iter(), &records, now);
        evidence.of(&partition, &owner, now)
    }

    /// From the first look on, five seconds at a time.
    async fn after_each(
        evidence: &mut Evidence,
        desk: &Desk,
        began: Instant,
        life: Option<parti_core::ids::Incarnation>,
    ) -> Vec<Notices> {
        let mut all = Vec::new();
        for step in 0..3_u32 {
            if let Some(life) = life {
                let live = SessionStatus::Live;
                desk.renew("worker-0", Some(life), live, step.into()).await;
            }
            let now = began + step * LEASE / 2;
            all.push(looked(evidence, desk, now).await);
        }
        all
    }

    #[tokio::test]
    async fn whoever_was_told_or_is_silent_for_a_lease_notices_and_nobody_else() {
        let began = Instant::now();
        let later = Notices::NotBefore(began + LEASE);
        for (coordination, is_told, renews, at_last) in [
            ("leader", false, true, Notices::No),
            ("leader", false, false, Notices::Surely),
            ("leader", true, true, Notices::Surely),
            ("leaderless", false, true, Notices::No),
            ("leaderless", true, true, Notices::Surely),
        ] {
            let desk = Desk::new();
            desk.group_of(coordination).await;
            let life = desk.session("worker-0", SessionStatus::Live).await;
            desk.owned("0", Some(("worker-0", life)), None).await;
            let serve: &[&str] = if is_told { &[] } else { &["0"] };
            desk.told("worker-0", life, serve, &[]).await;
            if is_told {
                desk.decide(|overrides| overrides.pause(&partition("0")))
                    .await;
            }
            let mut evidence = Evidence::new(LEASE);
            let renewed = renews.then_some(life);
            let all = after_each(&mut evidence, &desk, began, renewed).await;
            assert_eq!(all, [later, later, at_last], "{coordination} {is_told}");
            // Whoever did not hear the store begins anew.
            evidence.blind();
            let again = began + 3 * LEASE;
            let all = looked(&mut evidence, &desk, again).await;
            assert_eq!(all, Notices::NotBefore(again + LEASE));
        }
    }
    /// What was lost with a part of the store never comes back.
    #[tokio::test]
    async fn an_owner_without_a_session_notices_as_one_that_is_silent() {
        let (desk, began) = (Desk::new(), Instant::now());
        desk.group().await;
        let gone = Some(("worker-0", parti_core::ids::Incarnation(7)));
        desk.owned("0", gone, None).await;
        let mut evidence = Evidence::new(LEASE);
        let later = Notices::NotBefore(began + LEASE);
        let all = after_each(&mut evidence, &desk, began, None).await;
        assert_eq!(all, [later, later, Notices::Surely]);
        // It was merely not heard of yet.
        desk.session("worker-0", SessionStatus::Live).await;
        let now = began + 2 * LEASE;
        assert_eq!(looked(&mut evidence, &desk, now).await, Notices::No);
    }
}

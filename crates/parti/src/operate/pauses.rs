//! Partitions that are paused for the time of a change, and resumed after it.
//!
//! ```text
//!   paused by others already ──▶ left alone, before and after
//!   else: pause ──▶ ours ── changed ──▶ resume, unless somebody else asked for a pause meanwhile
//! ```
//!
//! A leader carries out requests in the order in which they were made. So a resume that follows is
//! the end of a pause also where nobody has carried out that pause yet.

use std::collections::BTreeSet;
use std::time::Duration;

use parti_core::ids::PartitionId;
use parti_core::key::Key;
use parti_core::record::{EventKind, Outcome, Record, Request, RequestRecord};

use super::request::{answer, enter, put, record, within};
use super::{Error, Reason, history, named};
use crate::inspect::{Follower, Records};
use crate::store::GroupStore;

/// Why a partition is paused, for whoever finds it so.
const PAUSED: &str = "for a forced change of its checkpoint";
/// Why it is resumed.
const RESUMED: &str = "after a forced change of its checkpoint";

/// What was paused here, and how far that is.
pub(super) struct Pauses<'a> {
    store: &'a GroupStore,
    reason: &'a Reason,
    is_leaderless: bool,
    /// Paused by this, and not yet asked to be resumed.
    ours: BTreeSet<PartitionId>,
    /// Asked to be resumed.
    resuming: BTreeSet<PartitionId>,
    /// Others want these paused, too.
    of_others: BTreeSet<PartitionId>,
    /// Requests that say nothing new: those that were there before.
    known: BTreeSet<Key>,
    /// Our requests to pause.
    asked: BTreeSet<Key>,
    /// Whether a leader has looked at one of those.
    is_led: bool,
    /// Our newest request to resume.
    last: Option<(Key, Request)>,
}

impl<'a> Pauses<'a> {
    /// None yet.
    pub fn new(store: &'a GroupStore, reason: &'a Reason) -> Self {
        Self {
            store,
            reason,
            is_leaderless: false,
            ours: BTreeSet::new(),
            resuming: BTreeSet::new(),
            of_others: BTreeSet::new(),
            known: BTreeSet::new(),
            asked: BTreeSet::new(),
            is_led: false,
            last: None,
        }
    }

    /// Pauses those that nobody else has paused, or is about to.
    pub async fn pause(
        &mut self,
        partitions: BTreeSet<PartitionId>,
        records: &Records,
    ) -> Result<(), Error> {
        let under_way = pauses(records).filter(|(_, _, record)| !record.outcome.is_final());
        let of_others: BTreeSet<&PartitionId> = under_way
            .map(|(_, partition, _)| partition)
            .chain(records.paused())
            .collect();
        let wanted = partitions.into_iter().filter(|id| !of_others.contains(id));
        let wanted: BTreeSet<PartitionId> = wanted.collect();
        if wanted.is_empty() || records.is_closed() {
            return Ok(());
        }
        let pause = |partition| Request::Pause { partition };
        let requests: Vec<Request> = wanted.iter().cloned().map(pause).collect();
        let identity = records.identity();
        self.is_leaderless = identity.is_some_and(|group| group.coordination == "leaderless");
        if self.is_leaderless {
            // What cannot be paused is fenced in the end.
            if let Ok(entered) = enter(self.store, records.clone(), &requests).await? {
                let ours = wanted.into_iter().filter(|id| !entered.before.pauses(id));
                self.ours = ours.collect();
                self.tell("pause", PAUSED, "under way", &self.ours).await;
            }
            return Ok(());
        }
        let known = records.requests.iter().map(|stored| stored.key.clone());
        self.known = known.collect();
        // Also if not all of it can be written: some of them may be paused by it.
        self.ours = wanted;
        self.asked = self.ask(requests, PAUSED).await?.into_iter().collect();
        Ok(())
    }

    /// Takes note of what the leader and others did about it.
    pub fn look(&mut self, records: &Records) {
        for (key, partition, record) in pauses(records) {
            if self.asked.contains(key) {
                self.is_led |= record.outcome != Outcome::Open;
            } else if !self.known.contains(key)
                && !matches!(record.outcome, Outcome::Refused { .. })
            {
                self.of_others.insert(partition.clone());
            }
        }
        let paused = records.paused();
        self.is_led |= paused.iter().any(|id| self.ours.contains(id));
    }

    /// Resumes those of these that only this has paused.
    pub async fn resume(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), Error> {
        self.ours.retain(|id| !self.of_others.contains(id));
        let these: BTreeSet<PartitionId> = self.ours.intersection(partitions).cloned().collect();
        let resume = |partition| Request::Resume { partition };
        let requests: Vec<Request> = these.iter().cloned().map(resume).collect();
        let Some(last) = requests.last().cloned() else {
            return Ok(());
        };
        if self.is_leaderless {
            let records = Records::read(self.store).await?;
            enter(self.store, records, &requests)
                .await?
                .map_err(Error::Refused)?;
            self.tell("resume", RESUMED, "done", &these).await;
        } else {
            let keys = self.ask(requests, RESUMED).await?;
            self.last = keys.into_iter().last().map(|key| (key, last));
            self.resuming.extend(these.iter().cloned());
        }
        self.ours.retain(|id| !these.contains(id));
        Ok(())
    }

    /// Resumes what is left, and waits until all is. Answers what is not known to be.
    pub async fn end(mut self, follower: &mut Follower, patience: Duration) -> Vec<PartitionId> {
        let rest = self.ours.clone();
        if let Err(error) = self.resume(&rest).await {
            let group = self.store.group();
            tracing::warn!(group, %error, "partitions that were paused are not resumed");
        }
        let mut left = self.ours;
        // Where nobody carries out requests, nothing was paused, and nothing comes of waiting.
        if let Some((key, what)) = self.last.filter(|_| self.is_led) {
            let outcome = within(patience, answer(follower, &key, &what)).await;
            if !outcome.is_ok_and(|outcome| outcome.is_final()) {
                left.extend(self.resuming);
            }
        }
        left.into_iter().collect()
    }

    async fn ask(&self, requests: Vec<Request>, why: &str) -> Result<Vec<Key>, Error> {
        let reason = Reason {
            by: self.reason.by.clone(),
            why: self.because(why),
        };
        let asked = requests.into_iter().map(|one| record(one, &reason));
        put(self.store, asked.collect::<Result<_, _>>()?).await
    }

    /// Without a leader nobody else tells the history.
    async fn tell(&self, verb: &str, why: &str, so: &str, which: &BTreeSet<PartitionId>) {
        let ids: Vec<String> = which.iter().map(ToString::to_string).collect();
        if !ids.is_empty() {
            let (by, why, ids) = (&self.reason.by, self.because(why), named(&ids));
            let line = format!("{by} asked to {verb} partition {ids} ({why}): {so}");
            history::tell(self.store, EventKind::Request, by, line).await;
        }
    }

    fn because(&self, why: &str) -> String {
        match self.reason.why.as_str() {
            "" => why.to_owned(),
            given => format!("{why}: {given}"),
        }
    }
}

/// Every request to pause a partition.
fn pauses(records: &Records) -> impl Iterator<Item = (&Key, &PartitionId, &RequestRecord)> {
    records.requests.iter().filter_map(|stored| {
        let Record::Request(record) = &stored.record else {
            return None;
        };
        match &record.request {
            Request::Pause { partition } => Some((&stored.key, partition, record.as_ref())),
            _ => None,
        }
    })
}

//! Partitions that are paused for the time of a change, and resumed after it.
//!
//! ```text
//!   paused by others already ──▶ left alone, before and after
//!   else: pause ──▶ ours ── done, and changed ──▶ resume, unless others want it paused by now, too
//! ```
//!
//! A leader that still carries out a pause would tell that it was taken back: so its word that it is
//! done is waited for, while there is time. A leader carries out requests in the order in which they
//! were made. So a resume that follows is the end of a pause also where nobody has carried out that
//! pause yet.
//!
//! Other forced changes of the same partition are not "others" here: nobody wants it paused for their
//! sake once they are done, or were killed. Each pauses and resumes for itself: with a leader by
//! requests whose names tell what they are for, without one by the compare-and-set that paused it.
//! An operator's own pause outlives them: a leader refuses to end it for a forced change; without one
//! it is known by its mark (`marks.rs`).
//!
//! What somebody else has paused may be resumed before its time, by another forced change that is at
//! its end, or by an operator. Whoever still needs the pause then pauses it again, for itself. A
//! leader may end a pause before anybody has seen it: then its word about our request tells.

use std::collections::{BTreeMap, BTreeSet};

use parti_core::ids::{PartitionId, Revision};
use parti_core::io::Stored;
use parti_core::key::Key;
use parti_core::leader::requests::FORCED;
use parti_core::record::{EventKind, Outcome, Record, Request, RequestRecord};

use super::request::{Same, answer, enter, put, record};
use super::{Error, Reason, history, named};
use crate::inspect::{Follower, Records};
use crate::store::{self, GroupStore};

/// Why a partition is paused, for whoever finds it so.
const PAUSED: &str = "for a forced change of its checkpoint";
/// Why it is resumed.
const RESUMED: &str = "after a forced change of its checkpoint";

/// What is not known to be resumed.
pub(super) struct Left {
    pub paused: Vec<PartitionId>,
    /// What the store had to say to that, if it is the store.
    pub trouble: Option<store::Error>,
}

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
    /// Requests that say nothing new: those that were there before, and ours that are done.
    known: BTreeSet<Key>,
    /// Our requests to pause: where each was written, and for what.
    asked: BTreeMap<Key, (Revision, PartitionId)>,
    /// Those that are known to have been paused, by whomever.
    seen: BTreeSet<PartitionId>,
    /// Without a leader: the overrides as of our last pause.
    entered: Revision,
    /// Whether a leader has looked at one of those.
    is_led: bool,
    /// The newest request that was seen.
    newest: Revision,
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
            asked: BTreeMap::new(),
            seen: BTreeSet::new(),
            entered: Revision(0),
            is_led: false,
            newest: Revision(0),
            last: None,
        }
    }

    /// Pauses those that nobody else has paused, or is about to.
    pub async fn pause(
        &mut self,
        partitions: BTreeSet<PartitionId>,
        records: &Records,
    ) -> Result<(), Error> {
        self.is_leaderless = records.is_leaderless();
        if records.is_closed() {
            return Ok(());
        }
        if self.is_leaderless {
            return self.enter_pauses(partitions, records).await;
        }
        let known = records.requests.iter().map(|stored| stored.key.clone());
        self.known = known.collect();
        let forced = forced(records);
        let of_others: BTreeSet<&PartitionId> = of_operators(records)
            .filter(|(_, _, record)| !record.outcome.is_final())
            .map(|(_, partition, _)| partition)
            .chain(records.paused().iter().filter(|id| !forced.contains(id)))
            .collect();
        let wanted = partitions.into_iter().filter(|id| !of_others.contains(id));
        self.ask_to_pause(wanted.collect()).await
    }

    /// Without a leader: ours is what nobody else had paused when this did.
    async fn enter_pauses(
        &mut self,
        partitions: BTreeSet<PartitionId>,
        records: &Records,
    ) -> Result<(), Error> {
        let pause = |partition| Request::Pause { partition };
        let requests: Vec<Request> = partitions.iter().cloned().map(pause).collect();
        // Also if nobody knows whether it was written: they may be paused by it.
        let paused = records.paused();
        let maybe = partitions
            .iter()
            .filter(|id| paused.binary_search(id).is_err());
        self.ours.extend(maybe.cloned());
        let mut marks = BTreeMap::new();
        let entered = enter(self.store, records.clone(), Same::Stays, |records| {
            let found = of_operators(records);
            marks.extend(found.map(|(stored, id, _)| (stored.key.clone(), id.clone())));
            requests.clone()
        });
        let entered = entered.await?;
        self.ours.retain(|id| !partitions.contains(id));
        // What cannot be paused is judged by what else is known of its owner.
        if let Ok(entered) = entered {
            let ours = partitions.into_iter();
            let ours: BTreeSet<PartitionId> =
                ours.filter(|id| !entered.before.pauses(id)).collect();
            self.entered = entered.revision;
            // They are of pauses that were over.
            let over = marks.into_iter().filter(|(_, id)| ours.contains(id));
            self.known.extend(over.map(|(key, _)| key));
            self.ours.extend(ours.iter().cloned());
            self.tell("pause", PAUSED, "under way", &ours).await;
        }
        Ok(())
    }

    async fn ask_to_pause(&mut self, partitions: BTreeSet<PartitionId>) -> Result<(), Error> {
        if partitions.is_empty() {
            return Ok(());
        }
        // Also if not all of it can be written: some of them may be paused by it.
        self.ours.extend(partitions.iter().cloned());
        let pause = |partition| Request::Pause { partition };
        let requests = partitions.iter().cloned().map(pause).collect();
        let asked = self.ask(requests, PAUSED).await?.into_iter();
        let asked = asked.zip(partitions);
        let asked = asked.map(|((key, revision), partition)| (key, (revision, partition)));
        self.asked.extend(asked);
        Ok(())
    }

    /// Pauses again those of these that somebody has resumed before their time.
    pub async fn pause_again(
        &mut self,
        partitions: BTreeSet<PartitionId>,
        records: &Records,
    ) -> Result<(), Error> {
        let under_way = pauses(records)
            .filter(|(_, _, record)| !record.outcome.is_final())
            .map(|(_, partition, _)| partition);
        let asked = self.asked.values().map(|(_, partition)| partition);
        let paused: BTreeSet<&PartitionId> =
            (records.paused().iter().chain(under_way).chain(asked)).collect();
        let again = partitions.into_iter();
        let again = again.filter(|id| self.seen.contains(id) && !paused.contains(id));
        let again: BTreeSet<PartitionId> = again.collect();
        if again.is_empty() {
            return Ok(());
        }
        self.seen.retain(|id| !again.contains(id));
        if self.is_leaderless {
            return self.enter_pauses(again, records).await;
        }
        // Whatever else was asked about them is over.
        let of_these = pauses(records).filter(|(_, partition, _)| again.contains(*partition));
        self.known
            .extend(of_these.map(|(stored, _, _)| stored.key.clone()));
        self.of_others.retain(|id| !again.contains(id));
        self.ask_to_pause(again).await
    }

    /// Takes note of what the leader and others did about it.
    pub fn look(&mut self, records: &Records) {
        let mut under_way = BTreeSet::new();
        for (Stored { key, .. }, partition, record) in pauses(records) {
            if let Some((written, _)) = self.asked.get(key) {
                self.is_led |= record.outcome != Outcome::Open;
                if !record.outcome.is_final() {
                    under_way.insert(key);
                } else if record.outcome == Outcome::Done
                    || is_resumed(records, partition, *written)
                {
                    // Also if it was over before anybody could see it.
                    self.seen.insert(partition.clone());
                }
            } else if !self.is_leaderless
                && !self.known.contains(key)
                && !is_forced(key)
                && !matches!(record.outcome, Outcome::Refused { .. })
            {
                self.of_others.insert(partition.clone());
            }
        }
        let seen = records.requests.iter().map(|stored| stored.revision);
        self.newest = seen.max().unwrap_or(self.newest).max(self.newest);
        // A leader keeps only so many that are done: what is not there any more was one of them.
        let newest = self.newest;
        let is_done = |key: &Key, (written, _): &mut (Revision, PartitionId)| {
            *written <= newest && !under_way.contains(key)
        };
        let done = self.asked.extract_if(.., is_done);
        self.known.extend(done.map(|(key, _)| key));
        self.seen.extend(records.paused().iter().cloned());
        self.is_led |= !self.ours.is_disjoint(&self.seen);
        let overrides = records.overrides.as_ref().map(|stored| stored.revision);
        if self.is_leaderless && overrides >= Some(self.entered) {
            // What somebody has resumed, and perhaps paused again, is not ours any more.
            let paused = records.paused();
            self.ours.retain(|id| paused.binary_search(id).is_ok());
        }
    }

    /// Whether one of these is paused by this, and not yet asked to be resumed.
    pub fn holds(&self, partitions: &BTreeSet<PartitionId>) -> bool {
        !self.ours.is_disjoint(partitions)
    }

    /// Resumes those of these that only this has paused, and whose pause is done.
    pub async fn resume(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), Error> {
        self.ours.retain(|id| !self.of_others.contains(id));
        let open: BTreeSet<&PartitionId> = self.asked.values().map(|(_, id)| id).collect();
        let these = self.ours.intersection(partitions);
        let these = these.filter(|id| !open.contains(id)).cloned();
        let these: BTreeSet<PartitionId> = these.collect();
        if these.is_empty() {
            return Ok(());
        }
        if self.is_leaderless {
            return self.enter_resumes(these).await;
        }
        let resume = |partition| Request::Resume { partition };
        let requests: Vec<Request> = these.iter().cloned().map(resume).collect();
        let last = requests.last().cloned();
        let keys = self.ask(requests, RESUMED).await?;
        let last = keys.into_iter().last().zip(last);
        self.last = last.map(|((key, _), last)| (key, last));
        self.ours.retain(|id| !these.contains(id));
        self.resuming.extend(these);
        Ok(())
    }

    /// Without a leader: resumes those of these that no operator wants paused by now.
    async fn enter_resumes(&mut self, these: BTreeSet<PartitionId>) -> Result<(), Error> {
        let records = Records::read(self.store).await?;
        let mut free = BTreeSet::new();
        let entered = enter(self.store, records, Same::Stays, |records| {
            let marks =
                of_operators(records).filter(|(stored, _, _)| !self.known.contains(&stored.key));
            let marked: BTreeSet<&PartitionId> = marks.map(|(_, id, _)| id).collect();
            free = these
                .iter()
                .filter(|id| !marked.contains(id))
                .cloned()
                .collect();
            let resume = |partition| Request::Resume { partition };
            free.iter().cloned().map(resume).collect()
        });
        entered.await?.map_err(Error::Refused)?;
        // Before it is told: that may take longer than there is time.
        self.ours.retain(|id| !these.contains(id));
        self.tell("resume", RESUMED, "done", &free).await;
        Ok(())
    }

    /// Resumes what is left, and waits until all is: until then, and not longer, whatever the store
    /// does. Answers what is not known to be resumed.
    pub async fn end(mut self, follower: &mut Follower, until: impl Future<Output = ()>) -> Left {
        let mut trouble = None;
        let resumed = tokio::select! {
            biased;
            resumed = self.resume_all(follower, &mut trouble) => resumed,
            () = until => Ok(Outcome::Open),
        };
        let mut left = self.ours;
        if !left.is_empty() && resumed.is_ok() {
            // It was cut short before the store had taken what would resume them.
            trouble = Some(store::Error::unknown("it did not answer in time"));
        }
        if !resumed.as_ref().is_ok_and(Outcome::is_final) {
            left.extend(self.resuming);
        }
        if let Err(error) = resumed {
            let group = self.store.group();
            tracing::warn!(group, %error, "partitions that were paused are not resumed");
            if let Error::Store(error) = error {
                trouble = Some(error);
            }
        }
        Left {
            trouble: trouble.filter(|_| !left.is_empty()),
            paused: left.into_iter().collect(),
        }
    }

    /// Asks for the end of every pause; answers what became of the last one of these requests.
    async fn resume_all(
        &mut self,
        follower: &mut Follower,
        trouble: &mut Option<store::Error>,
    ) -> Result<Outcome, Error> {
        let rest = self.ours.clone();
        self.asked.clear();
        self.resume(&rest).await?;
        // Where nobody carries out requests, nothing was paused, and nothing comes of waiting.
        match self.last.as_ref().filter(|_| self.is_led) {
            Some((key, what)) => answer(follower, key, what, trouble).await,
            None => Ok(Outcome::Done),
        }
    }

    async fn ask(&self, requests: Vec<Request>, why: &str) -> Result<Vec<(Key, Revision)>, Error> {
        let reason = Reason {
            by: self.reason.by.clone(),
            why: self.because(why),
        };
        let asked = requests.into_iter().map(|one| record(one, &reason));
        put(self.store, FORCED, asked.collect::<Result<_, _>>()?).await
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
fn pauses(records: &Records) -> impl Iterator<Item = (&Stored, &PartitionId, &RequestRecord)> {
    records.requests.iter().filter_map(|stored| {
        let Record::Request(record) = &stored.record else {
            return None;
        };
        match &record.request {
            Request::Pause { partition } => Some((stored, partition, record.as_ref())),
            _ => None,
        }
    })
}

/// Those of them that are for no forced change.
pub(super) fn of_operators(
    records: &Records,
) -> impl Iterator<Item = (&Stored, &PartitionId, &RequestRecord)> {
    pauses(records).filter(|(stored, _, _)| !is_forced(&stored.key))
}

/// Whether somebody had it resumed after our request to pause it was written there. A leader refuses
/// a pause that was taken back while it was under way: what was refused for another reason is not
/// asked for again.
fn is_resumed(records: &Records, partition: &PartitionId, written: Revision) -> bool {
    records.requests.iter().any(|stored| match &stored.record {
        Record::Request(record) => {
            let is_resume =
                matches!(&record.request, Request::Resume { partition: of } if of == partition);
            is_resume && record.outcome == Outcome::Done && stored.revision > written
        }
        _ => false,
    })
}

/// Whether it is for a forced change: of this command, or of another one.
fn is_forced(key: &Key) -> bool {
    matches!(key, Key::Request(name) if name.starts_with(FORCED))
}

/// Partitions whose newest pause is for a forced change.
fn forced(records: &Records) -> BTreeSet<&PartitionId> {
    let mut newest: BTreeMap<&PartitionId, (Revision, bool)> = BTreeMap::new();
    for stored in &records.requests {
        if let Record::Request(record) = &stored.record
            && let Request::Pause { partition } = &record.request
            && !matches!(record.outcome, Outcome::Refused { .. })
        {
            let one = (stored.revision, is_forced(&stored.key));
            let known = newest.entry(partition).or_insert(one);
            *known = (*known).max(one);
        }
    }
    let forced = newest.into_iter().filter(|(_, (_, forced))| *forced);
    forced.map(|(partition, _)| partition).collect()
}

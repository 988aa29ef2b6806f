//! Checkpoints, moved by an operator.
//!
//! A change is one compare-and-set on the partition's record: the new place, no owner, and a higher
//! epoch. Whoever takes the partition next begins there. Whoever still owned it finds itself fenced
//! at its next commit, drops what it had, and takes it again at the new place if it is still to
//! serve it. An idle owner has no next commit: that is why a forced change first asks owners to let
//! go (see `force.rs`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use parti_core::ids::{Epoch, Offset, PartitionId, WorkerId};
use parti_core::io::{Expect, StoreError, Stored, Write, WriteOutcome};
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, PartitionRecord, Record};
use serde::Serialize;
use tokio::sync::oneshot;

use super::other_source::{OtherSource, TakeOver, quicker};
use super::{Error, Patience, Reason, history, named, nonce, of_core, wall_ms};
use crate::inspect::{OwnerSession, Records};
use crate::store::{self, GroupStore};

/// So many partitions are written at once.
const AT_ONCE: usize = 1_000;
/// How often a change is tried that meets others' commits, or a store in trouble.
const TRIES: u32 = 8;

/// A group's checkpoints, as read.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    pub(super) store: GroupStore,
    pub(super) records: Records,
    /// The topic that the group is recorded to be about, if it was made with one.
    pub(super) topics: Vec<Stored>,
    /// The source that the group is to take over, if it began with another one.
    pub(super) other: Option<OtherSource>,
}

/// Where a partition is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub partition: PartitionId,
    /// Where reading goes on: one past the last done offset.
    pub next: Offset,
    /// Offsets from there on that are done already, sorted.
    pub done_above: Vec<Offset>,
    /// The new epoch is higher than this one, and than the present one.
    pub above: Epoch,
    /// A checkpoint that comes further between plan and change stays.
    pub at_least: bool,
}

impl Wanted {
    /// Go on here.
    pub fn at(partition: PartitionId, next: Offset) -> Self {
        Self {
            partition,
            next,
            done_above: Vec::new(),
            above: Epoch(0),
            at_least: false,
        }
    }

    /// Go on at what was the end a moment ago. An owner that is asked to let go handles messages
    /// until it has: they are not handled again. The end is asked for after the checkpoints were
    /// read: one that is past it then is of a log that went back, and goes back with it.
    pub fn latest(partition: PartitionId, end: Offset) -> Self {
        Self {
            at_least: true,
            ..Self::at(partition, end)
        }
    }

    /// Where reading goes on, and what is done from there on, if this becomes of what is found.
    pub(super) fn from(&self, found: Option<&PartitionRecord>) -> (Offset, Vec<Offset>) {
        let Some(found) = found.filter(|_| self.at_least) else {
            return (self.next, self.done_above.clone());
        };
        if found.next_offset() >= self.next {
            return (found.next_offset(), found.done_above.clone());
        }
        let mut next = self.next;
        let mut above = Vec::new();
        for done in found.done_above.iter().filter(|done| **done >= self.next) {
            match *done == next {
                true => next = next.next(),
                false => above.push(*done),
            }
        }
        (next, above)
    }
}

/// What is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A partition that is being served may be changed: its owner is asked to let go of it, for so
    /// long, and is fenced if it does not. An owner that would not notice is never fenced: so each
    /// has at least [`Patience::silence`], and one that lives and could not be asked is left alone
    /// ([`Verdict::Served`]).
    pub force: Option<Patience>,
    /// A checkpoint may go back: messages are handled again.
    pub back: bool,
    /// Partitions that nobody knows may get a checkpoint.
    pub unknown: bool,
}

/// Whether a change may be written over a living owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// No: it is left alone until its owner has let go.
    Never,
    /// If an operator has paused the partition.
    OfPaused,
    /// Yes.
    Always,
}

impl Rules {
    fn fence(self) -> Fence {
        match self.force {
            Some(_) => Fence::Always,
            None => Fence::OfPaused,
        }
    }
}

impl Fence {
    /// The same, but for owners that nobody had in mind.
    fn of_others(self) -> Self {
        match self {
            Fence::Always => Fence::Never,
            fence => fence,
        }
    }
}

/// What became of changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// Each change, in order. One that is done over a living owner names it in
    /// [`Change::served_by`]: that owner is fenced at its next commit, or once its lease is back.
    pub changes: Vec<Change>,
    /// Partitions that were paused for this, and are not known to be resumed.
    pub left_paused: Vec<PartitionId>,
    /// What the store had to say when they were to be resumed, if it is the store.
    pub trouble: Option<store::Error>,
}

/// A checkpoint before or after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its epoch.
    pub epoch: Epoch,
    /// The last done offset.
    pub offset: Option<Offset>,
    /// Where reading goes on.
    pub next_offset: Offset,
}

impl Place {
    fn of(record: &PartitionRecord) -> Self {
        Self {
            epoch: record.epoch,
            offset: record.offset,
            next_offset: record.next_offset(),
        }
    }
}

/// One change, as it would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Which.
    pub partition: PartitionId,
    /// What is there now; `None` if nobody ever took it.
    pub before: Option<Place>,
    /// What would be there.
    pub after: Place,
    /// Who serves it now, if anybody does.
    pub served_by: Option<WorkerId>,
    /// Whether it may be done.
    pub verdict: Verdict,
    #[serde(skip)]
    pub(super) wanted: Wanted,
    /// What is done of what comes after it.
    #[serde(skip)]
    done_above: Vec<Offset>,
    #[serde(skip)]
    found: Option<Stored>,
}

/// Whether a change may be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may.
    Change,
    /// There is nothing to change.
    Same,
    /// Somebody serves it.
    Served,
    /// It would go back.
    Back,
    /// Nobody knows this partition.
    Unknown,
    /// Its record cannot be read, and is left alone.
    Unreadable(String),
}

impl Checkpoints {
    /// Reads a group's checkpoints. They may be there before the group is: see
    /// [`Checkpoints::has_group`].
    pub async fn read(store: &GroupStore) -> Result<Self, Error> {
        Ok(Self {
            records: Records::read(store).await?,
            topics: store.list(Prefix::Topics).await?,
            store: store.clone(),
            other: None,
        })
    }

    /// Whether there is a group of this name.
    pub fn has_group(&self) -> bool {
        self.records.exists()
    }

    /// What these wishes would change: one change for each partition, in order. Of several wishes
    /// for one partition the last counts.
    pub fn plan(&self, wanted: Vec<Wanted>, rules: Rules) -> Vec<Change> {
        let mut wanted = folded(wanted);
        let places: BTreeMap<&PartitionId, Offset> = (self.records.checkpoints())
            .map(|(id, _, record)| (id, record.next_offset()))
            .collect();
        for one in &mut wanted {
            // What is past the end already is of a log that went back, or of another one.
            let is_past = places.get(&one.partition).is_some_and(|at| *at > one.next);
            one.at_least &= !is_past && self.other.is_none();
        }
        planned(&self.records, wanted, rules, rules.fence())
    }

    /// Carries out every change that may be done; tells what became of each. What others wrote
    /// meanwhile is looked at again, by the same rules. By force, owners are asked to let go first:
    /// each partition is paused for it, and resumed unless somebody else had paused it. The group's
    /// history tells who did it and why.
    ///
    /// Dropped half way, a change by force fences nobody any more, and what was paused for it is
    /// resumed by a task of its own, as long as the runtime lives.
    pub async fn apply(
        &self,
        changes: Vec<Change>,
        rules: Rules,
        reason: &Reason,
    ) -> Result<Applied, Error> {
        self.apply_until(changes, rules, reason, std::future::pending())
            .await
    }

    /// The same, until somebody says `stop`: from then on no owner is waited for, and none is fenced.
    /// Partitions whose owner had not let go by then stay as they are ([`Verdict::Served`]), and what
    /// was paused is resumed before this ends: within ten seconds, or not at all. Then it stands in
    /// [`Applied::left_paused`], or in [`Error::LeftPaused`].
    pub async fn apply_until(
        &self,
        changes: Vec<Change>,
        rules: Rules,
        reason: &Reason,
        stop: impl Future<Output = ()>,
    ) -> Result<Applied, Error> {
        let mut reached = TakeOver::default();
        self.apply_noting(changes, rules, reason, stop, &mut reached)
            .await
    }

    /// The same; `reached` says how far a group came that is to go on with another source
    /// ([`Checkpoints::takes_over`]), also beside an error, and if this is dropped. From the moment
    /// that nobody can join it, that is not stopped any more.
    pub async fn apply_noting(
        &self,
        changes: Vec<Change>,
        rules: Rules,
        reason: &Reason,
        stop: impl Future<Output = ()>,
        reached: &mut TakeOver,
    ) -> Result<Applied, Error> {
        reason.check()?;
        match &self.other {
            Some(other) => {
                self.take_over(changes, rules, reason, other, stop, reached)
                    .await
            }
            None => self.carry_out(changes, rules, reason, stop).await,
        }
    }

    /// The same, on the source that the group began with.
    pub(super) async fn carry_out(
        &self,
        changes: Vec<Change>,
        rules: Rules,
        reason: &Reason,
        stop: impl Future<Output = ()>,
    ) -> Result<Applied, Error> {
        let may = |place: &usize| changes[*place].verdict == Verdict::Change;
        let places: Vec<usize> = (0..changes.len()).filter(may).collect();
        let mut applied = Applied {
            changes,
            left_paused: Vec::new(),
            trouble: None,
        };
        let Some(patience) = rules.force else {
            let done = &mut applied.changes;
            self.write(places, rules, Fence::OfPaused, reason, done)
                .await?;
            return Ok(applied);
        };
        let (asker, stopped) = oneshot::channel();
        let forced = self
            .clone()
            .force(places, rules, patience, reason.clone(), applied, stopped);
        // In a task of its own: whoever drops this future drops `asker`, and so stops it.
        let mut forced = tokio::spawn(forced);
        let done = tokio::select! {
            done = &mut forced => done,
            () = stop => {
                drop(asker);
                forced.await
            }
        };
        done.unwrap_or_else(|_| Err(Error::Unfinished("the program ends".into())))
    }

    /// Writes the changes at these places, as planned, and tells the history.
    pub(super) async fn write(
        &self,
        places: Vec<usize>,
        rules: Rules,
        fence: Fence,
        reason: &Reason,
        done: &mut [Change],
    ) -> Result<(), Error> {
        let first = |place: &usize| Try::new(*place, done[*place].clone(), 1);
        let mut open: Vec<Try> = places.iter().map(first).collect::<Result<_, _>>()?;
        while !open.is_empty() {
            let rest = open.split_off(open.len().min(AT_ONCE));
            let batch = std::mem::replace(&mut open, rest);
            self.write_batch(batch, rules, fence, &mut open, done)
                .await?;
        }
        let written = places.iter().map(|place| &done[*place]);
        if let Some(line) = told(written, reason) {
            history::tell(&self.store, EventKind::Request, &reason.by, line).await;
        }
        Ok(())
    }

    async fn write_batch(
        &self,
        batch: Vec<Try>,
        rules: Rules,
        fence: Fence,
        open: &mut Vec<Try>,
        done: &mut [Change],
    ) -> Result<(), Error> {
        let writes: Vec<Write> = batch.iter().map(|one| one.write.clone()).collect();
        let outcomes = self.store.write(&writes).await;
        let conflict = |outcome: &WriteOutcome| matches!(outcome, WriteOutcome::Conflict(_));
        // Sessions may have come and gone: whoever is in the way is looked at as of now.
        let mut now = None;
        if outcomes.iter().any(conflict) {
            now = Some(Records::read(&self.store).await?);
        }
        let records = now.as_ref().unwrap_or(&self.records);
        for (one, outcome) in batch.into_iter().zip(outcomes) {
            match outcome {
                WriteOutcome::Done(_) => done[one.place] = one.change,
                WriteOutcome::Conflict(Some(found)) if one.put(&found) => {
                    done[one.place] = one.change;
                }
                // Owners raise no epoch by what they do: this is somebody who does the same.
                WriteOutcome::Conflict(found)
                    if self.other.is_some() && epoch_of(found.as_ref()) != one.change.epoch() =>
                {
                    return Err(Error::Unfinished(quicker(&one.change.partition)));
                }
                WriteOutcome::Conflict(found) => {
                    let known = Known {
                        found,
                        assigned: true,
                        paused: records.paused().contains(&one.change.partition),
                    };
                    // Another owner is another matter.
                    let fence = match known.owner() == one.change.served_by.as_ref() {
                        true => fence,
                        false => fence.of_others(),
                    };
                    let change = known.change(one.change.wanted, rules, fence, records);
                    if change.verdict != Verdict::Change {
                        done[one.place] = change;
                    } else if one.tries < TRIES {
                        open.push(Try::new(one.place, change, one.tries + 1)?);
                    } else {
                        return Err(Error::Unfinished(format!(
                            "partition {} is written by others all the time; stop its owner, or \
                             pause it",
                            change.partition
                        )));
                    }
                }
                WriteOutcome::Failed(error) => {
                    let hopeless = matches!(error, StoreError::Rejected(_));
                    if hopeless || one.tries >= TRIES {
                        return Err(of_core(&error).into());
                    }
                    // The same write: if its fate is open, it lands now, or meets itself.
                    let tries = one.tries + 1;
                    open.push(Try { tries, ..one });
                }
            }
        }
        Ok(())
    }
}

/// One wish for each partition: a batch that writes a record twice is refused half way.
fn folded(wanted: Vec<Wanted>) -> Vec<Wanted> {
    let (mut places, mut folded) = (BTreeMap::new(), Vec::<Wanted>::new());
    for one in wanted {
        match places.entry(one.partition.clone()) {
            Entry::Occupied(place) => folded[*place.get()] = one,
            Entry::Vacant(place) => {
                place.insert(folded.len());
                folded.push(one);
            }
        }
    }
    folded
}

/// What wishes would change in a group as these records have it.
pub(super) fn planned(
    records: &Records,
    wanted: Vec<Wanted>,
    rules: Rules,
    fence: Fence,
) -> Vec<Change> {
    let found: BTreeMap<&Key, &Stored> = (records.partitions.iter())
        .map(|stored| (&stored.key, stored))
        .collect();
    let told = records.told();
    let assigned = |id: &PartitionId| {
        let mut told = told.iter();
        told.any(|(_, _, told)| told.serve.binary_search(id).is_ok())
    };
    let paused = records.paused();
    let plan = |wanted: Wanted| {
        let key = Key::Partition(wanted.partition.clone());
        let known = Known {
            found: found.get(&key).copied().cloned(),
            assigned: assigned(&wanted.partition),
            paused: paused.binary_search(&wanted.partition).is_ok(),
        };
        known.change(wanted, rules, fence, records)
    };
    wanted.into_iter().map(plan).collect()
}

/// The line of the group's history about what was changed; none if nothing was.
fn told<'a>(done: impl Iterator<Item = &'a Change>, reason: &Reason) -> Option<String> {
    let changed = done.filter(|one| one.verdict == Verdict::Change);
    let places: Vec<String> = changed
        .map(|one| {
            let before = one.before.map_or(Offset(0), |before| before.next_offset);
            let (id, after) = (&one.partition, one.after.next_offset);
            format!("{id} from {before} to {after}")
        })
        .collect();
    if places.is_empty() {
        return None;
    }
    let why = match reason.why.as_str() {
        "" => String::new(),
        why => format!(" ({why})"),
    };
    Some(format!(
        "{} set the checkpoint of {}{why}: done",
        reason.by,
        named(&places)
    ))
}

/// A change on its way.
struct Try {
    place: usize,
    change: Change,
    write: Write,
    tries: u32,
}

impl Try {
    fn new(place: usize, change: Change, tries: u32) -> Result<Self, Error> {
        Ok(Self {
            place,
            write: change.write()?,
            change,
            tries,
        })
    }

    /// Whether what was found is what this has written.
    fn put(&self, found: &Stored) -> bool {
        self.write.value.as_ref() == Some(&found.record)
    }
}

/// The epoch of a partition's record, if it can be read.
fn epoch_of(found: Option<&Stored>) -> Option<Epoch> {
    match &found?.record {
        Record::Partition(record) => Some(record.epoch),
        _ => None,
    }
}

impl Change {
    /// The epoch that it goes over.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.before.map(|before| before.epoch)
    }

    /// The record that does it.
    fn write(&self) -> Result<Write, Error> {
        let before = match self.found.as_ref().map(|stored| &stored.record) {
            Some(Record::Partition(record)) => (**record).clone(),
            _ => PartitionRecord::default(),
        };
        let record = PartitionRecord {
            epoch: self.after.epoch,
            owner: None,
            start: match self.after.offset {
                Some(_) => before.start,
                None => self.after.next_offset,
            },
            offset: self.after.offset,
            done_above: self.done_above.clone(),
            begun: None,
            nonce: nonce()?,
            claimed_at: before.claimed_at,
            updated_at: wall_ms(),
        };
        Ok(Write {
            key: Key::Partition(self.partition.clone()),
            expect: match &self.found {
                Some(stored) => Expect::At(stored.revision),
                None => Expect::Absent,
            },
            value: Some(Record::Partition(Arc::new(record))),
        })
    }
}

/// What is known of a partition that is to be changed.
struct Known {
    found: Option<Stored>,
    /// Somebody is told to serve it.
    assigned: bool,
    paused: bool,
}

impl Known {
    fn owner(&self) -> Option<&WorkerId> {
        match &self.found.as_ref()?.record {
            Record::Partition(record) => record.owner.as_ref().map(|(owner, _)| owner),
            _ => None,
        }
    }

    fn change(self, wanted: Wanted, rules: Rules, fence: Fence, records: &Records) -> Change {
        let record = match self.found.as_ref().map(|stored| &stored.record) {
            Some(Record::Partition(record)) => Some(record.clone()),
            _ => None,
        };
        let before = record.as_deref().map(Place::of);
        let epoch = before.map_or(Epoch(0), |before| before.epoch);
        let (next, done_above) = wanted.from(record.as_deref());
        let after = Place {
            epoch: epoch.max(wanted.above).next(),
            // Nothing lies before offset 0.
            offset: next.0.checked_sub(1).map(Offset),
            next_offset: next,
        };
        let served_by = record.as_ref().and_then(|record| {
            let (owner, life) = record.owner.as_ref()?;
            let session = records.owner_session(owner, *life);
            (session != OwnerSession::Over).then(|| owner.clone())
        });
        // An owner may be further than its record says: then only a new epoch makes it true, unless
        // further is as good.
        let same = (served_by.is_none() || wanted.at_least)
            && before.is_some_and(|before| before.next_offset == next)
            && wanted.above <= epoch
            && record.is_some_and(|record| record.done_above == done_above);
        let back = before.is_some_and(|before| next < before.next_offset);
        let unreadable = match self.found.as_ref().map(|stored| &stored.record) {
            Some(Record::Unreadable(why)) => Some(why.to_string()),
            _ => None,
        };
        let may_fence = match fence {
            Fence::Never => false,
            Fence::OfPaused => self.paused,
            Fence::Always => true,
        };
        let verdict = if let Some(why) = unreadable {
            Verdict::Unreadable(why)
        } else if before.is_none() && !self.assigned && !rules.unknown {
            Verdict::Unknown
        } else if same {
            Verdict::Same
        } else if served_by.is_some() && !may_fence {
            Verdict::Served
        } else if back && !rules.back {
            Verdict::Back
        } else {
            Verdict::Change
        };
        Change {
            partition: wanted.partition.clone(),
            before,
            after,
            served_by,
            verdict,
            wanted,
            done_above,
            found: self.found,
        }
    }
}

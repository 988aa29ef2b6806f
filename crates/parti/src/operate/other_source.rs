//! A group that goes on with another source: the topic or stream was made anew, or another one was
//! named.
//!
//! ```text
//!   sessions ── one lives: refused ──▶ all silent: ended
//!                                        ▼
//!                              checkpoints of all partitions, as read now
//!                                        ▼
//!                              `group` with a source that nobody has, by compare-and-set
//!                                        ▼
//!                              all records ── a worker came, or a checkpoint: `group` as it was,
//!                                        ▼                                    refused
//!                              checkpoints of all partitions, each with a higher epoch
//!                                        ▼        └─ somebody else raised one: unfinished
//!                              all records ── a worker came, or a checkpoint: unfinished
//!                                        ▼
//!                              `group` with the new source, by compare-and-set
//! ```
//!
//! Offsets of one source mean nothing in another one. So nobody may live who reads the old one, and
//! every checkpoint has to be set: those that are left would be believed. In between nobody can
//! join, whichever source he has, and whoever tries is told to set all checkpoints: interrupted at
//! any point, the same command again does the rest. A checkpoint that is right as it is gets a
//! higher epoch all the same: a worker of the old source may be frozen in the middle of a commit.
//!
//! Two at once do not mix their checkpoints. What one of them writes goes over records that it read
//! before it held the group; the next one can hold it only after that, and reads only then. So of
//! two writes of one checkpoint the later one conflicts, and finds an epoch that it did not plan
//! over. No owner raises one by a commit or a release: whoever finds that ends unfinished, and never
//! writes over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parti_core::ids::{Epoch, PartitionId, Revision, SourceId, WorkerId};
use parti_core::io::{Expect, Stored, Write};
use parti_core::key::Key;
use parti_core::record::{EventKind, GroupRecord, Record};
use parti_core::worker::Fatal;

use super::delete::{check_readable, end_silent, living, settled};
use super::{Applied, Change, Checkpoints, Error, Reason, Rules, Verdict, Wanted, history, nonce};
use crate::inspect::Group;
#[cfg(all(feature = "nats", feature = "sqlite"))]
use crate::source::place::{Located, PlaceError};
use crate::store;

/// How far a group came that is to go on with another source, whether or not it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeOver {
    /// The group is as it was, but for sessions that were silent; or it goes on with its own source.
    #[default]
    Untouched,
    /// No checkpoint was changed, and nobody knows whether the group can be joined: the write that
    /// prevents that got no answer.
    Holding,
    /// Nobody can join it, and some checkpoints may be set: the same change again does the rest.
    Held,
    /// All checkpoints are set, and it goes on with the other source.
    Adopted,
}

/// A source that a group did not begin with.
#[derive(Clone, Debug)]
pub(super) struct OtherSource {
    pub identity: u64,
    /// Its name, if it is a topic.
    pub topic: Option<String>,
    /// How many partitions it was made with, if it was made with a number.
    pub partitions: Option<u32>,
}

impl Checkpoints {
    /// The same checkpoints, seen from this source. If the group began with another one, changes have
    /// to be of all partitions, and the group takes this source over.
    #[cfg(all(feature = "nats", feature = "sqlite"))]
    pub async fn of_source(self, source: &Located) -> Result<Self, PlaceError> {
        Ok(self.seen_from(OtherSource {
            identity: source.identity().await?,
            topic: source.topic().map(str::to_owned),
            partitions: source.partitions(),
        }))
    }

    pub(super) fn seen_from(mut self, source: OtherSource) -> Self {
        let known = self.records.identity().map(|group| group.stream);
        let is_other = known.is_some_and(|known| known.is_other(source.identity.into()));
        self.other = is_other.then_some(source);
        self
    }

    /// Whether the group was made without a log: no source says anything about its checkpoints, and
    /// it takes none over.
    pub fn has_no_log(&self) -> bool {
        let known = self.records.identity().map(|group| group.stream);
        known == Some(SourceId::NoLog)
    }

    /// All partitions that there are: what the group names, and, if it is to take another source
    /// over, what that one was made with.
    pub fn all(&self) -> Vec<PartitionId> {
        let mut all: BTreeSet<PartitionId> = Group::of(self.store.group(), &self.records)
            .partition_ids()
            .into_iter()
            .collect();
        let made_with = self.other.as_ref().and_then(|other| other.partitions);
        let numbered = parti_core::partition::numbered(made_with.unwrap_or(0));
        all.extend(numbered.iter().map(|partition| partition.id.clone()));
        all.into_iter().collect()
    }

    /// Who lives, as far as it was read, and keeps the group from going on with another source.
    pub fn keeps_source(&self) -> Option<WorkerId> {
        self.other.as_ref()?;
        living(&self.records.workers).into_keys().next()
    }

    /// Whether the source that is to be taken over has no such partition: nobody will serve it.
    pub fn is_gone(&self, partition: &PartitionId) -> bool {
        let made_with = self.other.as_ref().and_then(|other| other.partitions);
        made_with.is_some_and(|count| !parti_core::partition::is_numbered(partition, count))
    }

    /// Whether these changes make the group take over a source that is not the one it began with;
    /// refused if they are not of all partitions, if the group was made without a log, or if it is recorded to be about another
    /// topic, or another number of partitions: whoever serves it goes by that.
    pub fn takes_over(&self, changes: &[Change]) -> Result<bool, Error> {
        let Some(other) = &self.other else {
            return Ok(false);
        };
        if self.has_no_log() {
            return Err(Error::Refused(format!(
                "the group {:?} was made without a log, and takes no source over: what it commits \
                 are no offsets of any",
                self.store.group()
            )));
        }
        for recorded in &self.topics {
            other.check(recorded)?;
        }
        let set: BTreeSet<&PartitionId> = changes.iter().map(|change| &change.partition).collect();
        let is_set = |id: &PartitionId| set.contains(id);
        match self.all().into_iter().find(|id| !is_set(id)) {
            None => Ok(true),
            Some(left) => Err(Error::Refused(format!(
                "the checkpoint of partition {left} would go on meaning the old source: {}",
                Fatal::StreamReplaced
            ))),
        }
    }

    /// Carries out these changes, and has the group go on with the other source. `reached` says how
    /// far that came, also beside an error, and if this is dropped.
    pub(super) async fn take_over(
        &self,
        mut changes: Vec<Change>,
        rules: Rules,
        reason: &Reason,
        other: &OtherSource,
        stop: impl Future<Output = ()>,
        reached: &mut TakeOver,
    ) -> Result<Applied, Error> {
        self.takes_over(&changes)?;
        if self.records.is_closed() {
            return Err(Error::Refused("the group is being deleted".into()));
        }
        let stopped = tokio::select! {
            ended = self.end_old(rules) => { ended?; false }
            () = stop => true,
        };
        if stopped {
            for change in &mut changes {
                change.verdict = Verdict::Served;
            }
            return Ok(Applied {
                changes,
                left_paused: Vec::new(),
                trouble: None,
            });
        }
        // Nobody serves anything any more, or knows of what nobody has taken yet.
        let rules = Rules {
            force: None,
            unknown: true,
            ..rules
        };
        let wanted: Vec<Wanted> = changes.into_iter().map(|change| change.wanted).collect();
        // Before the group is held: see above.
        let (now, planned) = self.anew(wanted, rules).await?;
        if let Some(left) = left(&planned) {
            return Err(Error::Refused(format!(
                "the checkpoint of partition {} would be left as it is ({:?}), and a group goes on \
                 with another source only with all of them set; nothing was changed",
                left.partition, left.verdict
            )));
        }
        let held = self.hold(reached).await?;
        if let Some(came) = self.reread().await?.came(&planned, Change::epoch) {
            self.put_back(held, reached).await?;
            return Err(Error::Refused(format!("{came}; nothing was changed")));
        }
        let never = std::future::pending();
        let applied = now.carry_out(planned, rules, reason, never).await?;
        if let Some(left) = left(&applied.changes) {
            return Err(Error::Unfinished(format!(
                "the checkpoint of partition {} was left as it is ({:?}); the same command again \
                 does the rest",
                left.partition, left.verdict
            )));
        }
        self.adopt(held, other, &applied.changes, reason, reached)
            .await?;
        Ok(applied)
    }

    /// The same, as it is now.
    async fn reread(&self) -> Result<Self, Error> {
        Ok(Self {
            other: self.other.clone(),
            ..Self::read(&self.store).await?
        })
    }

    /// Checkpoints as they are now, and what these wishes change in them: each, at least by an epoch
    /// that no record has.
    async fn anew(
        &self,
        mut wanted: Vec<Wanted>,
        rules: Rules,
    ) -> Result<(Self, Vec<Change>), Error> {
        let now = self.reread().await?;
        let epochs = now.epochs();
        for one in &mut wanted {
            if let Some(epoch) = epochs.get(&one.partition) {
                one.above = one.above.max(epoch.next());
            }
        }
        let planned = now.plan(wanted, rules);
        Ok((now, planned))
    }

    fn epochs(&self) -> BTreeMap<&PartitionId, Epoch> {
        let checkpoints = self.records.checkpoints();
        checkpoints
            .map(|(id, _, record)| (id, record.epoch))
            .collect()
    }

    /// What came in between, by these records: somebody who reads the old source, a partition that is
    /// not among the changes, or a newer epoch than is known of one. What is not seen here still
    /// conflicts.
    fn came(&self, changes: &[Change], known: fn(&Change) -> Option<Epoch>) -> Option<String> {
        if let Some(worker) = living(&self.records.workers).into_keys().next() {
            return Some(format!(
                "{worker} joined meanwhile, and reads another source: stop all workers first"
            ));
        }
        if let Err(left) = self.takes_over(changes) {
            return Some(left.to_string());
        }
        let epochs = self.epochs();
        let newer = changes
            .iter()
            .find(|change| epochs.get(&change.partition).copied() > known(change))?;
        Some(quicker(&newer.partition))
    }

    /// Sees to it that no session is left of those who read the old source.
    async fn end_old(&self, rules: Rules) -> Result<(), Error> {
        let workers = self.records.workers.clone();
        check_readable(&workers)?;
        match (living(&workers).into_keys().next(), rules.force) {
            (None, _) => Ok(()),
            (Some(worker), None) => Err(Error::Refused(format!(
                "the session of {worker} is not over, and it reads another source: stop all \
                 workers, or give --force if they are gone"
            ))),
            (Some(_), Some(patience)) => {
                end_silent(&self.store, workers, patience.silence).await?;
                Ok(())
            }
        }
    }

    /// Has the group go on with a source that nobody has: from then on nobody joins. Answers the
    /// record's revision.
    async fn hold(&self, reached: &mut TakeOver) -> Result<Revision, Error> {
        let (Some(found), Some(group)) = (&self.records.group, self.records.identity()) else {
            return Err(self.changed().await);
        };
        let nobody = nonce()?.0;
        *reached = TakeOver::Holding;
        let held = self.name(group, found.revision, nobody.into()).await;
        *reached = match &held {
            Ok(_) => TakeOver::Held,
            Err(Error::Store(store::Error::Unknown { .. })) => TakeOver::Holding,
            Err(_) => TakeOver::Untouched,
        };
        held
    }

    /// Has the group, held until now, go on as it was: nothing was changed.
    async fn put_back(&self, held: Revision, reached: &mut TakeOver) -> Result<(), Error> {
        let Some(group) = self.records.identity() else {
            return Err(self.changed().await);
        };
        self.name(group, held, group.stream).await?;
        *reached = TakeOver::Untouched;
        Ok(())
    }

    /// Has the group, held until now, go on with this source, if its checkpoints are those that were
    /// set.
    async fn adopt(
        &self,
        held: Revision,
        other: &OtherSource,
        set: &[Change],
        reason: &Reason,
        reached: &mut TakeOver,
    ) -> Result<(), Error> {
        let Some(group) = self.records.identity() else {
            return Err(self.changed().await);
        };
        let after = |change: &Change| Some(change.after.epoch);
        if let Some(came) = self.reread().await?.came(set, after) {
            return Err(Error::Unfinished(format!(
                "{came}; after that, the same command again does the rest"
            )));
        }
        self.name(group, held, other.identity.into()).await?;
        *reached = TakeOver::Adopted;
        let why = match reason.why.as_str() {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let line = format!(
            "{} had the group go on with another source{why}: done",
            reason.by
        );
        history::tell(&self.store, EventKind::Request, &reason.by, line).await;
        Ok(())
    }

    /// Writes a source's identity into the group's record.
    async fn name(
        &self,
        group: &GroupRecord,
        at: Revision,
        stream: SourceId,
    ) -> Result<Revision, Error> {
        let record = GroupRecord {
            stream,
            nonce: nonce()?,
            ..group.clone()
        };
        let write = Write {
            key: Key::Group,
            expect: Expect::At(at),
            value: Some(Record::Group(Arc::new(record))),
        };
        match settled(&self.store, write).await? {
            Some(revision) => Ok(revision),
            None => Err(self.changed().await),
        }
    }

    /// Why the group's record is not as it was.
    async fn changed(&self) -> Error {
        match self.store.read(&Key::Group).await {
            Err(error) => error.into(),
            Ok(None) => Error::NoGroup(self.store.group().to_owned()),
            Ok(Some(Stored {
                key,
                record: Record::Unreadable(why),
                ..
            })) => unreadable(&key, &why),
            Ok(Some(_)) => Error::Unfinished(
                "another operator was quicker: somebody changed the group's record just now; look at the \
                 group (`parti group history`), and give the command again if it is still needed"
                    .into(),
            ),
        }
    }
}

impl OtherSource {
    /// Refused if a group that is recorded to be about this topic cannot go on with the source.
    fn check(&self, recorded: &Stored) -> Result<(), Error> {
        let (Key::Topic(name), Record::Topic(record)) = (&recorded.key, &recorded.record) else {
            return match &recorded.record {
                Record::Unreadable(why) => Err(unreadable(&recorded.key, why)),
                _ => Ok(()),
            };
        };
        if self.topic.as_deref() != Some(&**name) {
            return Err(Error::Refused(format!(
                "the group was made for topic {name}, and goes on with no other: name that one, or \
                 make another group"
            )));
        }
        if self.partitions != Some(record.partitions) {
            return Err(Error::Refused(format!(
                "the group was made for {} of topic {name}, which now has another number: delete \
                 the group (`parti group delete`), and make it anew",
                parti_core::text::count(u64::from(record.partitions), "partition")
            )));
        }
        Ok(())
    }
}

/// Somebody else set this checkpoint, or took the partition: stopping workers may not be what helps.
pub(super) fn quicker(partition: &PartitionId) -> String {
    format!(
        "another operator was quicker, or a worker took it: partition {partition} has a newer epoch by \
         now; look at the group (`parti group history`) before you try again"
    )
}

/// The first change that is not one.
fn left(changes: &[Change]) -> Option<&Change> {
    let mut changes = changes.iter();
    changes.find(|change| change.verdict != Verdict::Change)
}

fn unreadable(key: &Key, why: &str) -> Error {
    Error::Refused(format!(
        "{key} cannot be read ({why}), so nobody can say what this group is about; mend or remove it \
         with the store's own tools first"
    ))
}

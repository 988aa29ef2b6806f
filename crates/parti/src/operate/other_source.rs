//! A group that goes on with another source: the topic or stream was made anew, or another one was
//! named.
//!
//! ```text
//!   sessions ── one lives: refused ──▶ all silent: ended
//!                                        ▼
//!                              `group` with a source that nobody has, by compare-and-set
//!                                        ▼
//!                              sessions ── one came: `group` as it was, refused
//!                                        ▼
//!                              checkpoints of all partitions, each with a higher epoch
//!                                        ▼
//!                              sessions ── one came: unfinished
//!                                        ▼
//!                              `group` with the new source, by compare-and-set
//! ```
//!
//! Offsets of one source mean nothing in another one. So nobody may live who reads the old one, and
//! every checkpoint has to be set: those that are left would be believed. In between nobody can
//! join, whichever source he has, and whoever tries is told to set all checkpoints: interrupted at
//! any point, the same command again does the rest. A checkpoint that is right as it is gets a
//! higher epoch all the same: a worker of the old source may be frozen in the middle of a commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parti_core::ids::{Epoch, PartitionId, Revision, WorkerId};
use parti_core::io::{Expect, Write};
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, GroupRecord, Record};
use parti_core::worker::Fatal;

use super::delete::{check_readable, end_silent, living, settled};
use super::{Applied, Change, Checkpoints, Error, Reason, Rules, Verdict, Wanted, history, nonce};
use crate::inspect::{Group, Records, is_other_source};
#[cfg(all(feature = "nats", feature = "sqlite"))]
use crate::source::place::{Located, PlaceError};

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
        self.other = is_other_source(known, source.identity).then_some(source);
        self
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
    /// refused if they are not of all partitions, or if the group is recorded to be about another
    /// topic, or another number of partitions: whoever serves it goes by that.
    pub fn takes_over(&self, changes: &[Change]) -> Result<bool, Error> {
        let Some(other) = &self.other else {
            return Ok(false);
        };
        if let Some((recorded, count)) = &self.topic {
            if other.topic.as_deref() != Some(&**recorded) {
                return Err(Error::Refused(format!(
                    "the group was made for topic {recorded}, and goes on with no other: name that \
                     one, or make another group"
                )));
            }
            if other.partitions != Some(*count) {
                return Err(Error::Refused(format!(
                    "the group was made for {} of topic {recorded}, which now has another number: \
                     delete the group (`parti group delete`), and make it anew",
                    parti_core::text::count(u64::from(*count), "partition")
                )));
            }
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

    /// Carries out these changes, and has the group go on with the other source.
    pub(super) async fn take_over(
        &self,
        mut changes: Vec<Change>,
        rules: Rules,
        reason: &Reason,
        other: &OtherSource,
        stop: impl Future<Output = ()>,
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
        let (_, planned) = self.anew(wanted.clone(), rules).await?;
        if let Some(left) = planned.iter().find(|one| one.verdict != Verdict::Change) {
            return Err(Error::Refused(format!(
                "the checkpoint of partition {} would be left as it is ({:?}), and a group goes on \
                 with another source only with all of them set; nothing was changed",
                left.partition, left.verdict
            )));
        }
        let held = self.hold().await?;
        let (now, planned) = self.anew(wanted, rules).await?;
        let never = std::future::pending();
        let applied = now.carry_out(planned, rules, reason, never).await?;
        let is_set = |change: &Change| change.verdict == Verdict::Change;
        if applied.changes.iter().all(is_set) {
            self.adopt(held, other.identity, reason).await?;
        }
        Ok(applied)
    }

    /// Checkpoints as they are now, and what these wishes change in them: each, at least by an epoch
    /// that no record has.
    async fn anew(
        &self,
        mut wanted: Vec<Wanted>,
        rules: Rules,
    ) -> Result<(Self, Vec<Change>), Error> {
        let now = Self {
            records: Records::read(&self.store).await?,
            other: None,
            ..self.clone()
        };
        let checkpoints = now.records.checkpoints();
        let epochs: BTreeMap<&PartitionId, Epoch> = checkpoints
            .map(|(id, _, record)| (id, record.epoch))
            .collect();
        for one in &mut wanted {
            if let Some(epoch) = epochs.get(&one.partition) {
                one.above = one.above.max(epoch.next());
            }
        }
        let planned = now.plan(wanted, rules);
        Ok((now, planned))
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
    async fn hold(&self) -> Result<Revision, Error> {
        let (Some(found), Some(group)) = (&self.records.group, self.records.identity()) else {
            return Err(changed());
        };
        let held = self.name(group, found.revision, nonce()?.0).await?;
        if let Some(worker) = self.living().await? {
            self.name(group, held, group.stream).await?;
            return Err(Error::Refused(format!(
                "{worker} joined just now, and reads another source: stop all workers first"
            )));
        }
        Ok(held)
    }

    /// Has the group, held until now, go on with this source.
    async fn adopt(&self, held: Revision, other: u64, reason: &Reason) -> Result<(), Error> {
        let group = self.records.identity().ok_or_else(changed)?;
        if let Some(worker) = self.living().await? {
            return Err(Error::Unfinished(format!(
                "{worker} joined meanwhile, and reads the old source; stop it, then the same \
                 command again does the rest"
            )));
        }
        self.name(group, held, other).await?;
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
        stream: u64,
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
        settled(&self.store, write).await?.ok_or_else(changed)
    }

    /// A worker whose session is not over. While the group is held nobody joins: it began before.
    async fn living(&self) -> Result<Option<WorkerId>, Error> {
        let workers = self.store.list(Prefix::Workers).await?;
        Ok(living(&workers).into_keys().next())
    }
}

fn changed() -> Error {
    Error::Unfinished(
        "somebody else changed the group's record just now; the same command again does the rest"
            .into(),
    )
}

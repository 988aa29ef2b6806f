//! A group that goes on with another source: the topic or stream was made anew, or another one was
//! named.
//!
//! ```text
//!   sessions ── one lives: refused ──▶ all silent: ended
//!                                        ▼
//!                              checkpoints of all partitions ── sessions ── one came: unfinished
//!                                        ▼
//!                              `group` with the new source, by compare-and-set
//!                                        ▼
//!                              sessions ── one that came before: unfinished
//! ```
//!
//! Offsets of one source mean nothing in another one. So nobody may live who reads the old one, and
//! every checkpoint has to be set: those that are left would be believed. Until the group's record
//! says so, no worker of the new source can join; from then on, none of the old one can.

use std::sync::Arc;

use parti_core::ids::{PartitionId, Revision, WorkerId};
use parti_core::io::{Expect, Write};
use parti_core::key::{Key, Prefix};
use parti_core::record::{EventKind, GroupRecord, Record};
use parti_core::worker::Fatal;

use super::delete::{end_silent, living, settled};
use super::{Applied, Change, Checkpoints, Error, Reason, Rules, Verdict, history, nonce};
use crate::inspect::Records;

impl Checkpoints {
    /// The same checkpoints, seen from a source with this identity. If the group began with another
    /// one, changes have to be of all its partitions, and the group takes this source over.
    pub fn of_source(mut self, identity: u64) -> Self {
        let group = self.records.identity();
        let known = group.map(|group| group.stream).filter(|id| *id != 0);
        self.other =
            (identity != 0 && known.is_some_and(|known| known != identity)).then_some(identity);
        self
    }

    /// Whether these changes make the group take over a source that is not the one it began with;
    /// refused if they are not of all its partitions.
    pub fn takes_over(&self, changes: &[Change]) -> Result<bool, Error> {
        if self.other.is_none() {
            return Ok(false);
        }
        let is_set = |id: &PartitionId| changes.iter().any(|change| change.partition == *id);
        let mut left = self.records.partitions.iter().filter_map(|stored| {
            let Key::Partition(id) = &stored.key else {
                return None;
            };
            (!is_set(id)).then_some(id)
        });
        match left.next() {
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
        other: u64,
        stop: impl Future<Output = ()>,
    ) -> Result<Applied, Error> {
        self.takes_over(&changes)?;
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
        // Nobody serves anything any more.
        let now = Self {
            records: Records::read(&self.store).await?,
            other: None,
            ..self.clone()
        };
        let rules = Rules {
            force: None,
            ..rules
        };
        let wanted = changes.into_iter().map(|change| change.wanted);
        let changes = now.plan(wanted.collect(), rules);
        let never = std::future::pending();
        let applied = now.carry_out(changes, rules, reason, never).await?;
        let is_set = |change: &Change| matches!(change.verdict, Verdict::Change | Verdict::Same);
        if applied.changes.iter().all(is_set) {
            now.adopt(other, reason).await?;
        }
        Ok(applied)
    }

    /// Sees to it that no session is left of those who read the old source.
    async fn end_old(&self, rules: Rules) -> Result<(), Error> {
        let workers = self.records.workers.clone();
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

    /// Writes into the group's record that it goes on with this source.
    async fn adopt(&self, other: u64, reason: &Reason) -> Result<(), Error> {
        self.nobody_came(None).await?;
        let (Some(found), Some(group)) = (&self.records.group, self.records.identity()) else {
            return Err(changed());
        };
        let record = GroupRecord {
            stream: other,
            nonce: nonce()?,
            ..group.clone()
        };
        let write = Write {
            key: Key::Group,
            expect: Expect::At(found.revision),
            value: Some(Record::Group(Arc::new(record))),
        };
        let written = settled(&self.store, write).await?.ok_or_else(changed)?;
        let why = match reason.why.as_str() {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let line = format!(
            "{} had the group go on with another source{why}: done",
            reason.by
        );
        history::tell(&self.store, EventKind::Request, &reason.by, line).await;
        self.nobody_came(Some(written)).await
    }

    /// An error if a worker of the old source came after all: before this revision of the group's
    /// record no other could.
    async fn nobody_came(&self, before: Option<Revision>) -> Result<(), Error> {
        let workers = self.store.list(Prefix::Workers).await?;
        let came = living(&workers)
            .into_iter()
            .find(|(_, (revision, record))| {
                before.is_none_or(|before| record.incarnation_at(*revision).0 < before.0)
            });
        match came {
            None => Ok(()),
            Some((worker, _)) => Err(came_meanwhile(&worker)),
        }
    }
}

fn changed() -> Error {
    Error::Unfinished(
        "somebody else changed the group's record just now; the same command again does the rest"
            .into(),
    )
}

fn came_meanwhile(worker: &WorkerId) -> Error {
    Error::Unfinished(format!(
        "{worker} joined meanwhile, and reads the old source; stop it, then the same command again \
         does the rest"
    ))
}

//! Records to bytes and back.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AssignmentRecord, Drained, EventRecord, GroupRecord, LeaderRecord, OverridesRecord,
    PartitionRecord, PlanRecord, Record, Request, RequestRecord, TopicRecord, WorkerRecord,
};
use crate::codec;
use crate::ids::{Offset, PartitionId, WorkerId};
use crate::key::Key;
use crate::problem::shown_up_to;

/// The format version that this build writes, and the newest that it reads.
pub const FORMAT: u64 = 1;

/// Counters stay below this, so that counting on from whatever was read cannot overflow.
const LIMIT: u64 = 1 << 63;

/// The most characters of a reason.
const REASON: usize = 300;

#[derive(Serialize)]
struct Written<'a, T> {
    v: u64,
    #[serde(flatten)]
    body: &'a T,
}

/// Only the version, whatever else there is.
#[derive(Deserialize)]
struct Head {
    v: Option<Value>,
}

impl Record {
    /// The record as JSON.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Record::Group(record) => write(record.as_ref()),
            Record::Leader(record) => write(record.as_ref()),
            Record::Plan(record) => write(record.as_ref()),
            Record::Worker(record) => write(record.as_ref()),
            Record::Assignment(record) => write(record.as_ref()),
            Record::Partition(record) => write(record.as_ref()),
            Record::Overrides(record) => write(record.as_ref()),
            Record::Request(record) => write(record.as_ref()),
            Record::Event(record) => write(record.as_ref()),
            Record::Topic(record) => write(record.as_ref()),
            // Nobody writes these; if somebody did, they would stay unreadable.
            Record::Unreadable(why) => serde_json::json!({ "v": 0, "unreadable": why.as_ref() })
                .to_string()
                .into_bytes(),
        }
    }

    /// The record found at a key. What cannot be read becomes [`Record::Unreadable`].
    pub fn decode(key: &Key, bytes: &[u8]) -> Record {
        let read = match key {
            Key::Group => read(bytes).map(Record::Group),
            Key::Leader => read(bytes).map(Record::Leader),
            Key::Plan => read(bytes).map(Record::Plan),
            Key::Worker(_) => read(bytes).map(Record::Worker),
            Key::Assignment(_) => read(bytes).map(Record::Assignment),
            Key::Partition(_) => read(bytes).map(Record::Partition),
            Key::Overrides => read(bytes).map(Record::Overrides),
            Key::Request(_) => read(bytes).map(Record::Request),
            Key::Event(_) => read(bytes).map(Record::Event),
            Key::Topic(_) => read(bytes).map(Record::Topic),
        };
        read.unwrap_or_else(|why| Record::Unreadable(shown_up_to(&why, REASON).into()))
    }
}

fn write<T: Serialize>(body: &T) -> Vec<u8> {
    // Strings, numbers and lists only: serialising them to memory has no way to fail.
    serde_json::to_vec(&Written { v: FORMAT, body }).unwrap_or_default()
}

fn read<T: Body>(bytes: &[u8]) -> Result<Arc<T>, String> {
    let head: Head = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => format!("not a record: {error}"),
        _ => format!("not JSON: {error}"),
    })?;
    match head.v {
        None => return Err("it has no format version v".into()),
        Some(v) => match v.as_u64() {
            Some(FORMAT) => {}
            Some(v) if v > FORMAT => {
                return Err(format!(
                    "its format version {v} is newer than this program reads ({FORMAT}); upgrade the program"
                ));
            }
            _ => return Err(format!("its format version {v} is none")),
        },
    }
    let body: T = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    body.check()?;
    Ok(Arc::new(body))
}

/// A record's content, and what must hold beyond its types.
pub(super) trait Body: DeserializeOwned {
    /// Limits and canonical names: whatever passes is safe to count on and to build keys from.
    fn check(&self) -> Result<(), String>;
}

fn below_limit(counters: &[(&str, u64)]) -> Result<(), String> {
    match counters.iter().find(|(_, value)| *value >= LIMIT) {
        Some((name, value)) => Err(format!("{name} is {value}, beyond any number ever written")),
        None => Ok(()),
    }
}

fn partitions<'a>(ids: impl IntoIterator<Item = &'a PartitionId>) -> Result<(), String> {
    ids.into_iter()
        .try_for_each(|id| canonical("partition id", id.as_str()))
}

fn worker(id: &WorkerId) -> Result<(), String> {
    canonical("worker id", id.as_str())
}

fn canonical(kind: &str, name: &str) -> Result<(), String> {
    if codec::is_canonical(name) {
        Ok(())
    } else {
        Err(format!("{name:?} is no {kind}"))
    }
}

impl Body for GroupRecord {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Body for LeaderRecord {
    fn check(&self) -> Result<(), String> {
        let incarnation = self
            .holder
            .as_ref()
            .map_or(0, |(_, incarnation)| incarnation.0);
        below_limit(&[
            ("term", self.term.0),
            ("beat", self.beat),
            ("incarnation", incarnation),
        ])?;
        self.holder.iter().try_for_each(|(id, _)| worker(id))
    }
}

impl Body for PlanRecord {
    fn check(&self) -> Result<(), String> {
        below_limit(&[("version", self.version.0), ("term", self.term.0)])?;
        partitions(self.unserved.iter().map(|(id, _)| id).chain(&self.added))
    }
}

impl Body for WorkerRecord {
    fn check(&self) -> Result<(), String> {
        below_limit(&[
            ("incarnation", self.incarnation.unwrap_or_default().0),
            ("beat", self.beat),
            ("released", self.released.0),
            ("applied", self.applied.0),
            ("ready.version", self.ready.version.0),
            ("heeds", self.heeds.0),
        ])?;
        if self.state > 8 {
            return Err(format!("state is {}, not 0 to 8", self.state));
        }
        partitions(&self.ready.partitions)?;
        self.blocked_by.iter().try_for_each(|blocked| {
            below_limit(&[("blocked_by.incarnation", blocked.incarnation.0)])?;
            partitions([&blocked.partition])?;
            worker(&blocked.owner)
        })
    }
}

impl Body for AssignmentRecord {
    fn check(&self) -> Result<(), String> {
        below_limit(&[
            ("version", self.version.0),
            ("term", self.term.0),
            ("incarnation", self.incarnation.0),
        ])?;
        let prepared = self.prepare.iter().map(|(id, _)| id);
        partitions(
            self.serve
                .iter()
                .chain(prepared)
                .chain(&self.release)
                .chain(&self.added),
        )?;
        self.prepare.iter().try_for_each(|(_, owner)| worker(owner))
    }
}

impl Body for PartitionRecord {
    fn check(&self) -> Result<(), String> {
        let incarnation = self
            .owner
            .as_ref()
            .map_or(0, |(_, incarnation)| incarnation.0);
        below_limit(&[
            ("epoch", self.epoch.0),
            ("incarnation", incarnation),
            ("start", self.start.0),
            ("offset", self.offset.unwrap_or_default().0),
            ("begun.offset", self.begun.map_or(0, |begun| begun.offset.0)),
            (
                "done_above",
                self.done_above.last().map_or(0, |last: &Offset| last.0),
            ),
        ])?;
        let ascending = self.done_above.is_sorted_by(|a, b| a < b);
        let above = self
            .done_above
            .first()
            .is_none_or(|first| Some(*first) > self.offset);
        if !ascending || !above {
            return Err("done_above must be sorted and lie above offset".into());
        }
        self.owner.iter().try_for_each(|(id, _)| worker(id))
    }
}

impl Body for OverridesRecord {
    fn check(&self) -> Result<(), String> {
        below_limit(&[("term", self.term.0)])?;
        for Drained {
            worker: id,
            incarnation,
        } in &self.drained
        {
            below_limit(&[("drained.incarnation", incarnation.0)])?;
            worker(id)?;
        }
        for pinned in &self.pinned {
            below_limit(&[(
                "pinned.incarnation",
                pinned.incarnation.unwrap_or_default().0,
            )])?;
            worker(&pinned.worker)?;
        }
        let pinned = self.pinned.iter().map(|pinned| &pinned.partition);
        partitions(self.paused.iter().chain(pinned))?;
        let sorted = self.paused.is_sorted_by(|a, b| a < b)
            && self.pinned.is_sorted_by(|a, b| a.partition < b.partition);
        if sorted {
            Ok(())
        } else {
            Err("paused and pinned must be sorted, each partition once".into())
        }
    }
}

impl Body for RequestRecord {
    fn check(&self) -> Result<(), String> {
        match &self.request {
            Request::Drain { worker: id }
            | Request::Undrain { worker: id }
            | Request::Evict { worker: id, .. } => worker(id),
            Request::Move {
                partition,
                worker: id,
            }
            | Request::Pin {
                partition,
                worker: id,
            } => {
                partitions([partition])?;
                worker(id)
            }
            Request::Unpin { partition }
            | Request::Pause { partition }
            | Request::Resume { partition } => partitions([partition]),
            Request::Rebalance => Ok(()),
        }
    }
}

impl Body for EventRecord {
    fn check(&self) -> Result<(), String> {
        worker(&self.worker)
    }
}

impl Body for TopicRecord {
    fn check(&self) -> Result<(), String> {
        if self.partitions == 0 {
            return Err("partitions is 0".into());
        }
        match &self.subject {
            Some(subject) => codec::Template::parse(subject)
                .map(drop)
                .map_err(|p| p.to_string()),
            None => Ok(()),
        }
    }
}

//! A whole group.

use std::collections::BTreeMap;

use parti_core::ids::{PartitionId, SourceId, Term, Version, WorkerId};
use parti_core::record::{Fingerprint, Lifecycle, PlanState, Record};
use serde::Serialize;

use super::history::{Happening, happenings};
use super::partition::partitions;
use super::request::{RequestView, requests};
use super::worker::workers;
use super::{Bounds, PartitionView, Records, WorkerView};

/// A group at about one moment: each record is as of its own read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Its name.
    #[serde(rename = "group")]
    pub name: String,
    /// Who decides: `leader` or `leaderless`.
    pub coordination: String,
    /// Which log or stream it is about, as its source told.
    #[serde(skip)]
    pub stream: SourceId,
    /// By which strategy, with its parameters; `None` where that is not recorded yet.
    #[serde(skip)]
    pub strategy: Option<String>,
    /// Whether an operator is deleting it.
    pub closed: bool,
    /// Who leads, if somebody does.
    pub leader: Option<WorkerId>,
    /// The newest term, also after its leader has resigned.
    pub term: Option<Term>,
    /// What the leader is doing.
    pub plan: Option<Plan>,
    /// Every worker with a session, by id; also those whose session is over.
    pub workers: Vec<WorkerView>,
    /// What is moving, by partition.
    pub handoffs: Vec<Handoff>,
    /// What operators asked for and is not carried out yet, oldest first.
    pub requests: Vec<RequestView>,
    /// Every partition that was ever taken or that somebody is told to serve, by id.
    pub partitions: Vec<PartitionView>,
    /// Records that this program cannot read.
    pub unreadable: Vec<Unreadable>,
    /// What happened, oldest first: about the newest thousand lines.
    #[serde(skip)]
    pub history: Vec<Happening>,
}

/// What the leader is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Grows with every plan.
    pub version: Version,
    /// Where the group is in its life.
    pub lifecycle: Lifecycle,
    /// What is going on.
    pub state: PlanState,
    /// Why.
    pub reason: String,
    /// When that began, in milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// How many workers it counts on.
    pub workers: u64,
    /// How many partitions there are.
    pub partitions: u64,
    /// Partitions on the move.
    pub moving: u64,
    /// Partitions that nobody serves, and why (the first few).
    pub unserved: Vec<(PartitionId, String)>,
    /// What every worker must agree on.
    pub fingerprint: Fingerprint,
}

/// A partition on its way to another worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Handoff {
    /// Which.
    pub partition: PartitionId,
    /// Who owns it now; nobody if it was free.
    pub from: Option<WorkerId>,
    /// Who is to have it.
    pub to: WorkerId,
    /// How far it is.
    pub stage: Stage,
}

/// How far a handoff is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The next owner gets ready; the present one goes on.
    Preparing,
    /// The next owner is ready; the present one goes on until it is told to let go.
    Ready,
    /// The present owner is not to serve it any more: it finishes what it has in hand.
    Releasing,
    /// Nobody holds it any more, and the next owner has not taken it yet.
    Taking,
}

/// Partitions that nobody serves, though workers live: all of those are drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stranded {
    /// How many partitions.
    pub partitions: usize,
    /// Who lives.
    pub workers: Vec<WorkerId>,
}

/// A record that cannot be read. It is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Where, within the group.
    pub key: String,
    /// Why.
    pub why: String,
}

impl Group {
    pub(crate) fn of(name: &str, records: &Records) -> Self {
        let (leader, term) = match records.leader.as_ref().map(|stored| &stored.record) {
            Some(Record::Leader(leader)) => {
                let holder = leader.holder.as_ref().map(|(id, _)| id.clone());
                (holder, Some(leader.term))
            }
            _ => (None, None),
        };
        let partitions = partitions(records);
        let identity = records.identity();
        let mut group = Self {
            name: name.to_owned(),
            coordination: identity.map_or_else(String::new, |group| group.coordination.clone()),
            stream: identity.map(|group| group.stream).unwrap_or_default(),
            strategy: strategy(records),
            closed: records.is_closed(),
            plan: plan(records),
            workers: workers(records, leader.as_ref()),
            requests: requests(records),
            handoffs: handoffs(records, &partitions),
            partitions,
            unreadable: unreadable(records),
            history: happenings(&records.events),
            leader,
            term,
        };
        group.say_why_stranded();
        group
    }

    /// The plan says why for a few of them, and a group without a leader has none.
    fn say_why_stranded(&mut self) {
        if self.stranded().is_some() {
            for partition in self.partitions.iter_mut().filter(|own| own.is_idle()) {
                partition.unserved = Some("all living workers are drained: undrain one".into());
            }
        }
    }

    /// What nobody serves because every worker that lives is drained; none if that is not so.
    pub fn stranded(&self) -> Option<Stranded> {
        let mut there = self.workers.iter().filter(|own| !own.status.is_over());
        let partitions = self.partitions.iter().filter(|own| own.is_idle()).count();
        let workers: Vec<WorkerId> = there.clone().map(|own| own.id.clone()).collect();
        let all_drained = there.all(|own| own.drained) && !workers.is_empty();
        (all_drained && partitions > 0).then_some(Stranded {
            partitions,
            workers,
        })
    }

    /// Whether it began with another source than the one of this identity.
    pub fn is_of_other(&self, identity: u64) -> bool {
        self.stream.is_other(identity.into())
    }

    /// Whether it was made without a log: offsets of any say nothing about its checkpoints.
    pub fn has_no_log(&self) -> bool {
        self.stream == SourceId::NoLog
    }

    /// Takes over where the source says that partitions begin and end.
    pub fn locate(&mut self, bounds: &BTreeMap<PartitionId, Bounds>) {
        for partition in &mut self.partitions {
            if let Some(bounds) = bounds.get(&partition.id) {
                partition.locate(bounds);
            }
        }
    }

    /// The ids of all partitions.
    pub fn partition_ids(&self) -> Vec<PartitionId> {
        self.partitions.iter().map(|p| p.id.clone()).collect()
    }

    /// One partition.
    pub fn partition(&self, id: &PartitionId) -> Option<&PartitionView> {
        self.partitions.iter().find(|partition| partition.id == *id)
    }

    /// What is left to do in all partitions, if the source was asked.
    pub fn lag(&self) -> Option<u64> {
        let lags: Vec<u64> = self.partitions.iter().filter_map(|p| p.lag).collect();
        (!lags.is_empty()).then(|| lags.into_iter().fold(0, u64::saturating_add))
    }
}

/// With a leader its plan says so; without one the group's own record.
fn strategy(records: &Records) -> Option<String> {
    let everybodys = records.identity().and_then(|group| group.strategy.clone());
    match records.plan.as_ref().map(|stored| &stored.record) {
        Some(Record::Plan(plan)) if everybodys.is_none() => Some(plan.fingerprint.strategy.clone()),
        _ => everybodys,
    }
}

fn plan(records: &Records) -> Option<Plan> {
    let Record::Plan(plan) = &records.plan.as_ref()?.record else {
        return None;
    };
    Some(Plan {
        version: plan.version,
        lifecycle: plan.lifecycle,
        state: plan.state,
        reason: plan.reason.clone(),
        started_ms: plan.started_at,
        workers: plan.workers,
        partitions: plan.partitions,
        moving: plan.moving,
        unserved: plan.unserved.clone(),
        fingerprint: plan.fingerprint.clone(),
    })
}

/// What the leader told workers, against who owns what.
fn handoffs(records: &Records, partitions: &[PartitionView]) -> Vec<Handoff> {
    let prepared: BTreeMap<&PartitionId, &PartitionView> = (partitions.iter())
        .filter(|own| own.prepared_by.is_some())
        .map(|own| (&own.id, own))
        .collect();
    let mut handoffs = Vec::new();
    for (to, session, told) in records.told() {
        let ready = &session.ready;
        for (partition, from) in &told.prepare {
            let is_ready = ready.version == told.version && ready.partitions.contains(partition);
            // Once the owner is to let go, whether the next one is ready does not matter any more.
            let left = (prepared.get(partition)).filter(|own| own.assigned.as_ref() != Some(from));
            handoffs.push(Handoff {
                partition: partition.clone(),
                from: Some(from.clone()),
                to: to.clone(),
                stage: match left {
                    Some(own) => stage_of_left(own, to),
                    None if is_ready => Stage::Ready,
                    None => Stage::Preparing,
                },
            });
        }
    }
    for partition in partitions {
        if let Some(to) = &partition.assigned
            && partition.owner.as_ref() != Some(to)
        {
            handoffs.push(Handoff {
                partition: partition.id.clone(),
                from: partition.owner.clone(),
                to: to.clone(),
                stage: stage_of_left(partition, to),
            });
        }
    }
    handoffs.sort_by(|a, b| a.partition.cmp(&b.partition));
    handoffs
}

/// How far a handoff is whose partition its owner is not to serve any more.
fn stage_of_left(partition: &PartitionView, to: &WorkerId) -> Stage {
    if partition.is_served() && partition.owner.as_ref() != Some(to) {
        Stage::Releasing
    } else {
        Stage::Taking
    }
}

fn unreadable(records: &Records) -> Vec<Unreadable> {
    let unreadable = records.all().filter_map(|stored| match &stored.record {
        Record::Unreadable(why) => Some(Unreadable {
            key: stored.key.to_string(),
            why: why.to_string(),
        }),
        _ => None,
    });
    unreadable.collect()
}

//! One partition.

use std::collections::BTreeMap;

use parti_core::ids::{Epoch, Incarnation, Offset, PartitionId, WorkerId};
use parti_core::key::Key;
use parti_core::record::{Begun, PartitionRecord, Pinned, Record};
use serde::Serialize;

use super::records::session_of;
use super::{Bounds, Records};

/// What is known of an owner's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerSession {
    /// It lives, as far as is known: nothing says that it is over.
    Live,
    /// It lives, and hands over what it has.
    Leaving,
    /// It is over: whoever is told to can take the partition.
    Over,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionView {
    /// Its id.
    #[serde(rename = "partition")]
    pub id: PartitionId,
    /// Who owns it.
    pub owner: Option<WorkerId>,
    /// In which life it was taken.
    pub incarnation: Option<Incarnation>,
    /// What is known of the owner's session in that life.
    pub owner_session: Option<OwnerSession>,
    /// Whom the leader told to serve it.
    pub assigned: Option<WorkerId>,
    /// Who gets ready to serve it next.
    pub prepared_by: Option<WorkerId>,
    /// Its epoch; 0 if nobody ever took it.
    pub epoch: Epoch,
    /// The last done offset.
    pub offset: Option<Offset>,
    /// Where handling goes on; `None` if nobody ever took it.
    pub next_offset: Option<Offset>,
    /// Offsets above the last done one that are done, too.
    pub done_above: Vec<Offset>,
    /// What an owner in suspicion was about to handle.
    pub begun: Option<Begun>,
    /// The oldest offset that its source still has, if the source was asked.
    pub first: Option<Offset>,
    /// One past its newest message, if the source was asked.
    pub end: Option<Offset>,
    /// What is left to do, if the source was asked. All partitions of a stream share its offsets:
    /// there it is an upper bound.
    pub lag: Option<u64>,
    /// Whether an operator has paused it.
    pub paused: bool,
    /// Where an operator put it, to stay there while that worker is there.
    pub pinned_to: Option<WorkerId>,
    /// Why nobody serves it, if the leader says so.
    pub unserved: Option<String>,
    /// When its owner took it, in milliseconds since the Unix epoch; 0: never.
    pub claimed_ms: u64,
    /// When its checkpoint was last written, in milliseconds since the Unix epoch; 0: never.
    pub updated_ms: u64,
}

impl PartitionView {
    fn new(id: PartitionId) -> Self {
        Self {
            id,
            owner: None,
            incarnation: None,
            owner_session: None,
            assigned: None,
            prepared_by: None,
            epoch: Epoch(0),
            offset: None,
            next_offset: None,
            done_above: Vec::new(),
            begun: None,
            first: None,
            end: None,
            lag: None,
            paused: false,
            pinned_to: None,
            unserved: None,
            claimed_ms: 0,
            updated_ms: 0,
        }
    }

    fn recorded(id: &PartitionId, record: &PartitionRecord) -> Self {
        let owner = record.owner.as_ref();
        Self {
            owner: owner.map(|(owner, _)| owner.clone()),
            incarnation: owner.map(|(_, life)| *life),
            epoch: record.epoch,
            offset: record.offset,
            next_offset: Some(record.next_offset()),
            done_above: record.done_above.clone(),
            begun: record.begun,
            claimed_ms: record.claimed_at,
            updated_ms: record.updated_at,
            ..Self::new(id.clone())
        }
    }

    /// Whether its owner may be handling messages of it just now.
    pub fn is_served(&self) -> bool {
        matches!(
            self.owner_session,
            Some(OwnerSession::Live | OwnerSession::Leaving)
        )
    }

    /// Whether nobody serves it, though nobody paused it.
    pub fn is_idle(&self) -> bool {
        !self.is_served() && !self.paused
    }

    /// Takes over what the source says.
    pub(super) fn locate(&mut self, bounds: &Bounds) {
        self.first = Some(bounds.first);
        self.end = Some(bounds.head);
        self.lag = self.next_offset.map(|next| {
            let from = next.max(bounds.first);
            bounds.head.0.saturating_sub(from.0)
        });
    }
}

/// Every partition that was ever taken, or that somebody was told to serve, by id.
pub(super) fn partitions(records: &Records) -> Vec<PartitionView> {
    let mut views: BTreeMap<PartitionId, PartitionView> = BTreeMap::new();
    let sessions: BTreeMap<&WorkerId, _> = records
        .workers
        .iter()
        .filter_map(|stored| match &stored.key {
            Key::Worker(id) => Some((id, stored)),
            _ => None,
        })
        .collect();
    for (id, _, record) in records.checkpoints() {
        let mut view = PartitionView::recorded(id, record);
        let owner = record.owner.as_ref();
        view.owner_session =
            owner.map(|(owner, life)| session_of(sessions.get(owner).copied(), *life));
        views.insert(id.clone(), view);
    }
    let mut known = |id: &PartitionId, change: &dyn Fn(&mut PartitionView)| {
        let view = views.entry(id.clone());
        change(view.or_insert_with(|| PartitionView::new(id.clone())));
    };
    for (worker, _, told) in records.told() {
        for id in &told.serve {
            known(id, &|view| view.assigned = Some(worker.clone()));
        }
        for (id, _) in &told.prepare {
            known(id, &|view| view.prepared_by = Some(worker.clone()));
        }
    }
    if let Some(Record::Plan(plan)) = records.plan.as_ref().map(|stored| &stored.record) {
        for (id, why) in &plan.unserved {
            known(id, &|view| view.unserved = Some(why.clone()));
        }
    }
    let paused = records.paused();
    // What was moved to a life that is over stays nowhere any more.
    let holds = |pin: &&Pinned| {
        pin.incarnation.is_none_or(|life| {
            session_of(sessions.get(&pin.worker).copied(), life) != OwnerSession::Over
        })
    };
    let mut views: Vec<PartitionView> = views.into_values().collect();
    for view in &mut views {
        view.paused = paused.binary_search(&view.id).is_ok();
        let pin = records.overrides().and_then(|all| all.pin_of(&view.id));
        view.pinned_to = pin.filter(holds).map(|pin| pin.worker.clone());
    }
    sort(&mut views);
    views
}

/// By id; numbers by their value, so that 10 comes after 9.
fn sort(views: &mut [PartitionView]) {
    views.sort_by_cached_key(|view| {
        let number = view.id.as_str().parse::<u64>();
        (number.unwrap_or(u64::MAX), view.id.clone())
    });
}

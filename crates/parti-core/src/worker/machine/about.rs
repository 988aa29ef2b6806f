//! What the worker says about itself: its session's body, and its state.

use crate::ids::{Nonce, Offset, PartitionId, Term, Version};
use crate::leader::Leader;
use crate::record::{PlanState, Ready, SessionStatus, WorkerRecord};
use crate::worker::numbers::Numbers;
use crate::worker::{Report, State};

use super::{Life, Worker};

impl Worker {
    pub(super) fn body(&mut self) -> WorkerRecord {
        let status = match self.stopping {
            None => SessionStatus::Live,
            Some(_) if self.may_go() => SessionStatus::Goodbye,
            Some(_) => SessionStatus::Leaving,
        };
        let mut ready = Ready::default();
        let mut term = Term(0);
        if self.leaderless.is_some() {
            self.told.released = Version(self.holdings.releases());
            if self.holdings.all_released()
                && let Some(leaderless) = &self.leaderless
            {
                self.told.heeds = leaderless.heeding();
            }
        } else if let Some(told) = &self.told.assignment {
            term = told.term;
            ready.version = told.version;
            ready.partitions = self.holdings.ready(&self.lanes);
            if self.holdings.all_released() {
                self.told.released = told.version;
                if self.holdings.all_taken() {
                    self.told.applied = told.version;
                }
            }
        }
        WorkerRecord {
            incarnation: None,
            beat: 0,
            status,
            state: self.state as u8,
            term,
            released: self.told.released,
            applied: self.told.applied,
            ready,
            blocked_by: self.holdings.blocked(),
            load: self.holdings.load(),
            degraded: self.lanes.degraded(),
            partitions: self.partitions_hash,
            heeds: self.told.heeds,
            renewed_at: 0,
            badge: self.session.belongs().badge(),
            nonce: Nonce(0),
        }
    }

    pub(super) fn step_state(&mut self) {
        let state = self.present_state();
        if state != self.state {
            self.out.report(Report::State {
                from: self.state,
                to: state,
            });
            self.state = state;
        }
    }

    pub(super) fn present_state(&self) -> State {
        if self.stopping.is_some() || self.life == Life::Ended {
            return State::Shutdown;
        }
        match self.life {
            Life::Init => return State::Init,
            Life::Joining => return State::ClaimingId,
            _ => {}
        }
        if self.leaderless.is_some() {
            return match (self.told.applied > Version(0), self.holdings.all_taken()) {
                (false, _) => State::WaitingAssignment,
                (true, false) => State::Rebalancing,
                (true, true) => State::Stable,
            };
        }
        if self.told.assignment.is_none() {
            return if self.election.is_decided() {
                State::WaitingAssignment
            } else {
                State::Election
            };
        }
        match self
            .told
            .plan
            .as_ref()
            .map(|plan| plan.state)
            .unwrap_or_default()
        {
            PlanState::Stable => State::Stable,
            PlanState::Scaling => State::Scaling,
            PlanState::Rebalancing => State::Rebalancing,
            PlanState::Emergency => State::Emergency,
        }
    }

    /// What the source refuses until a person mends something, if anything.
    pub fn source_refuses(&self) -> Option<String> {
        self.lanes.refused()
    }

    /// What it did so far and is like now, for metrics.
    pub fn numbers(&self) -> Numbers {
        let (heartbeats, heartbeat_failures) = self.heartbeats;
        Numbers {
            heartbeats,
            heartbeat_failures,
            takes: self.holdings.take_numbers(),
            feed: self.lanes.numbers(),
            plan: match &self.leaderless {
                // Who has no lease looks at nothing, and would show for ever what it saw last.
                Some(leaderless) => self.lease_alive.then(|| leaderless.numbers()),
                None => self.leader.as_ref().map(Leader::numbers),
            },
        }
    }

    /// Every partition that is handled, with the first offset that is not done.
    pub fn positions(&self) -> impl Iterator<Item = (&PartitionId, Offset)> {
        self.lanes.positions()
    }

    /// Everything that is owned now, for tests and views.
    pub fn held(&self) -> impl Iterator<Item = &PartitionId> {
        self.holdings.held()
    }
}

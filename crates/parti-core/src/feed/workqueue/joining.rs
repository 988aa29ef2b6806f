//! Lanes on their way in: who has their subject is put out, and the stream's end is compared with what
//! they need.

use crate::feed::Context;
use crate::feed::refusals::Asked;
use crate::feed::went_back::WentBack;
use crate::feed::workqueue::{Flow, Proof, WorkQueue};
use crate::ids::{PartitionId, WorkerId};
use crate::io::{Ask, Bounds, ConsumerState, SourceError, SourceRequest};
use crate::lane::LaneNote;
use crate::time::Time;
use crate::worker::Trouble;

impl WorkQueue {
    /// The owner of a partition may have anybody put out who still has its subject: a dead owner
    /// before the last one, whose successor ended before it came to that; or one that was forced to
    /// stop.
    pub(super) fn evict(&mut self, worker: &WorkerId, partition: &PartitionId) {
        if let Some(flow @ (Flow::Joining | Flow::Flowing)) = self.flows.get_mut(partition) {
            *flow = Flow::Evicting {
                worker: worker.clone(),
                ask: None,
            };
        }
    }

    /// The durable is deleted: what is asked for lanes from now on proves something.
    pub(super) fn prove(&mut self) {
        if self.proof == Proof::Wanted {
            self.proof = Proof::Given;
            self.lanes_not_before = Time::ZERO;
            for flow in self.flows.values_mut() {
                if let Flow::Checking { ask, .. } = flow {
                    *ask = None;
                }
            }
        }
    }

    pub(super) fn evicted(
        &mut self,
        cx: &mut Context<'_>,
        ask: Ask,
        result: &Result<ConsumerState, SourceError>,
    ) {
        let mut failed = false;
        for flow in self.flows.values_mut() {
            if let Flow::Evicting { worker, ask: asked } = flow
                && *asked == Some(ask)
            {
                let eviction = Asked::Eviction(worker.clone());
                cx.out.answered(cx.now, eviction, result.as_ref().err());
                if result.is_ok() {
                    *flow = Flow::check(false);
                } else {
                    *asked = None;
                    failed = true;
                }
            }
        }
        if failed {
            self.lanes_not_before = cx.now + self.lanes_backoff.next(&mut self.rng);
        }
    }

    pub(super) fn head_answered(
        &mut self,
        cx: &mut Context<'_>,
        ask: Ask,
        result: &Result<Bounds, SourceError>,
    ) {
        let mut failed = false;
        for (partition, flow) in &mut self.flows {
            let Flow::Checking {
                ask: asked,
                went_back,
                ..
            } = flow
            else {
                continue;
            };
            if *asked != Some(ask) {
                continue;
            }
            *asked = None;
            let Some(next) = cx.lanes.next_of(partition) else {
                *flow = Flow::Idle;
                continue;
            };
            match result {
                Ok(bounds) if next <= bounds.last.next() => {
                    self.lanes_backoff.reset();
                    *flow = Flow::Joining;
                    self.rewind = true;
                    if !self.durable.planner.wants(partition) {
                        self.durable.planner.want(partition);
                    }
                }
                Ok(bounds) if went_back.is_told(cx.now) && self.proof == Proof::Given => {
                    let (end, name) = (bounds.last.next(), partition.clone());
                    *flow = Flow::Idle;
                    self.durable.planner.unwant(&name);
                    cx.lanes.halt(&name, cx.out);
                    let trouble = Trouble::LogWentBack {
                        partition: name,
                        end,
                        next,
                    };
                    cx.out.note(LaneNote::Trouble(trouble));
                }
                _ => {
                    if result.is_err() {
                        *went_back = WentBack::default();
                    } else if went_back.is_sure(cx.now) && self.proof == Proof::None {
                        self.proof = Proof::Wanted;
                    }
                    failed = true;
                }
            }
        }
        if failed {
            // Once for all lanes: it was one answer.
            self.lanes_not_before = cx.now + self.lanes_backoff.next(&mut self.rng);
        }
        self.drop_idle_proof();
    }

    /// A proof is for the lanes that are being checked, and for none that come later.
    pub(super) fn drop_idle_proof(&mut self) {
        let checking = |flow: &Flow| matches!(flow, Flow::Checking { .. });
        if !self.flows.values().any(checking) {
            self.proof = Proof::None;
        }
    }

    /// Asks what lanes on their way in wait for.
    pub(super) fn ask_for_lanes(&mut self, cx: &mut Context<'_>) {
        if !cx.lease || self.lanes_not_before > cx.now {
            return;
        }
        let mut head = None;
        for (partition, flow) in &mut self.flows {
            match flow {
                Flow::Evicting {
                    worker,
                    ask: asked @ None,
                } => {
                    let ask = cx.out.ask();
                    *asked = Some(ask);
                    let (worker, partition) = (worker.clone(), partition.clone());
                    cx.out.source(SourceRequest::EvictConsumer {
                        ask,
                        worker,
                        partition,
                    });
                }
                Flow::Checking {
                    ask: asked @ None, ..
                } => {
                    *asked = Some(*head.get_or_insert_with(|| cx.out.ask()));
                }
                _ => {}
            }
        }
        if let Some(ask) = head {
            cx.out.source(SourceRequest::Bounds { ask });
        }
    }

    pub(super) fn lanes_wait(&self) -> bool {
        self.flows.values().any(|flow| {
            matches!(
                flow,
                Flow::Evicting { ask: None, .. } | Flow::Checking { ask: None, .. }
            )
        })
    }
}

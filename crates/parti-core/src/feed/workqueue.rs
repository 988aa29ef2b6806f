//! The feed of a work queue: one durable for all lanes, and no overlap with anyone.
//!
//! ```text
//!  open ──▶ Evicting (a dead owner's durable) ──▶ Checking (Head) ──▶ Joining ──sequence──▶ Flowing
//!                ▲                                                      │ update: occupied
//!                └──────────────────────────────────────────────────────┘
//!  close ──▶ Leaving ──update without it answered──▶ gone: the next owner can add it
//!  reconnected, a gap, or another durable: Joining, Flowing ──▶ Checking, as the stream may have
//!                                                             gone back
//!  Checking ──the end is said to be lower, again and again──▶ the durable is deleted ──▶ still lower:
//!                                                             the lane is halted
//!
//!  the sequence:  stop pulling ──▶ reset ──▶ update ──▶ pull      (for a gap: without the update)
//! ```
//!
//! Adding first and rewinding afterwards loses the backlog if the durable's leader changes in
//! between; so it is always reset first, with no pull open. The reset is the splice: it brings back
//! exactly what is not acked, in order, and the lanes know what they have or have done. Nothing is
//! ever acked that was not handled.
//!
//! A slow lane cannot give its share of the window back here: the server counts what is not acked.

mod joining;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::Config;
use crate::feed::backoff::Backoff;
use crate::feed::durable::{Arrival, Durable, News};
use crate::feed::refusals::Asked;
use crate::feed::went_back::WentBack;
use crate::feed::{Context, Feed, FeedNumbers};
use crate::ids::{PartitionId, WorkerId};
use crate::io::{Ask, ConsumerState, Message, SourceError, SourceEvent, SourceRequest};
use crate::lane::Opening;
use crate::lane::map::{Lane, LaneMap};
use crate::lane::outbox::Delivery;
use crate::lane::serving::{Placed, Serving};
use crate::rng::Rng;
use crate::time::Time;

#[derive(Debug, PartialEq, Eq)]
enum Flow {
    /// Prepared: nothing happens on the server before the partition is owned.
    Idle,
    /// Taking the subject from a dead worker's durable.
    Evicting { worker: WorkerId, ask: Option<Ask> },
    /// Making sure that the log did not go back below the cursor. `again`: it was on its way in, or
    /// there, before.
    Checking {
        ask: Option<Ask>,
        went_back: WentBack,
        again: bool,
    },
    /// Wanted; waits for a sequence of its own.
    Joining,
    /// Deliveries go to the lane.
    Flowing,
    /// Closed; the subject is on its way out.
    Leaving,
}

impl Flow {
    fn check(again: bool) -> Self {
        Flow::Checking {
            ask: None,
            went_back: WentBack::default(),
            again,
        }
    }
}

/// Where the sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sequence {
    /// Nowhere: normal running.
    Rest,
    /// Waiting for open pulls to end.
    Stopping,
    /// The reset is in flight.
    Resetting(Ask),
    /// A deletion is in flight, because a reset is not possible: the update creates it anew.
    Deleting,
    /// The update is in flight. `rewound`: after a reset or a fresh creation.
    Updating { rewound: bool },
}

/// Whether what is said of the stream's end is more than hearsay. A server that was cut off goes on
/// answering questions, but no change: so a change comes first, and the one that is always sound is
/// to delete the durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Nobody needs one.
    None,
    /// A lower end was told again and again: the durable is to be deleted.
    Wanted,
    /// It was deleted: what is asked from then on, a server says that is not cut off.
    Given,
}

/// What it means that nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// Something came, or may come.
    None,
    /// A pull ended with less than it asked for. But what it brought may have been lost.
    Heard,
    /// And the durable says that all it handed out has come: the queue is empty.
    Proved,
}

/// The feed of a work queue.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    durable: Durable,
    flows: BTreeMap<PartitionId, Flow>,
    sequence: Sequence,
    /// Deliveries were lost: nothing is taken in until the reset.
    lossy: bool,
    /// A reset is wanted for another reason.
    rewind: bool,
    /// A reset is not possible: delete and create instead.
    recreate: bool,
    /// No reset before this time.
    not_before: Time,
    backoff: Backoff,
    /// No eviction and no question for the stream's end before this time.
    lanes_not_before: Time,
    lanes_backoff: Backoff,
    min_interval: Duration,
    /// Whether the queue is empty, as far as that can be known.
    silence: Silence,
    proof: Proof,
    rng: Rng,
}

impl WorkQueue {
    pub(crate) fn new(config: &Config, rng: Rng) -> Self {
        Self {
            durable: Durable::new(config),
            flows: BTreeMap::new(),
            sequence: Sequence::Rest,
            lossy: false,
            rewind: false,
            // What an earlier life left behind is taken away first: its position is unknown, and
            // its subjects are in everybody's way.
            recreate: true,
            not_before: Time::ZERO,
            backoff: Backoff::new(Duration::from_millis(50), config.retry.max_delay),
            lanes_not_before: Time::ZERO,
            lanes_backoff: Backoff::new(Duration::from_millis(50), config.retry.max_delay),
            min_interval: config.jetstream.min_update_interval,
            silence: Silence::None,
            proof: Proof::None,
            rng,
        }
    }

    fn delivered(
        &mut self,
        cx: &mut Context<'_>,
        delivery: Delivery,
        partition: &PartitionId,
        message: Message,
    ) {
        match self.durable.arrive(delivery) {
            Arrival::Stale => return,
            Arrival::InOrder => {}
            Arrival::Gap => self.is_lossy(),
            Arrival::Foreign => self.is_foreign(),
        }
        self.silence = Silence::None;
        if self.lossy && planted!(LateDeliverySkippedAndAcked) {
            cx.out.ack(Some(delivery));
        }
        // Whatever is not taken in stays unacked: the reset brings it again.
        if self.lossy || self.flows.get(partition) != Some(&Flow::Flowing) {
            if !self.flows.contains_key(partition) {
                self.durable.wonder(cx.now);
            }
            return;
        }
        let Some(serving) = cx.lanes.open_mut(partition) else {
            return;
        };
        match serving.place(message, Some(delivery)) {
            Placed::Queued => self.durable.hold(cx.now, delivery, cx.out),
            Placed::Known(earlier) => {
                cx.out.drop_unhandled(earlier);
                self.durable.hold(cx.now, delivery, cx.out);
            }
            // Handled, but the ack was lost, or an earlier owner's was.
            Placed::DoneBefore => cx.out.ack(Some(delivery)),
        }
        cx.out.wake(partition);
    }

    /// Deliveries are missing, or the durable went back.
    fn is_lossy(&mut self) {
        if !std::mem::replace(&mut self.lossy, true) {
            self.check_anew();
        }
    }

    /// The durable is not the one that was left there.
    fn is_foreign(&mut self) {
        let known = self.lossy && self.recreate;
        (self.lossy, self.recreate) = (true, true);
        if !known {
            self.check_anew();
        }
    }

    /// The stream may be an older state of itself, restored: what comes then under an offset that is
    /// done may be another message, which must not be acked for one whose ack was lost.
    fn check_anew(&mut self) {
        self.proof = Proof::None;
        // An answer that is on its way may be of before.
        for flow in self.flows.values_mut() {
            if matches!(flow, Flow::Checking { .. } | Flow::Joining | Flow::Flowing) {
                *flow = Flow::check(true);
                self.lanes_not_before = Time::ZERO;
            }
        }
    }

    /// Whether lanes are checked anew: one reset then serves all of them.
    fn is_rechecking(&self) -> bool {
        let mut flows = self.flows.values();
        flows.any(|flow| matches!(flow, Flow::Checking { again: true, .. }))
    }

    /// Moves the sequence on.
    fn advance_sequence(&mut self, cx: &mut Context<'_>) {
        if !cx.lease {
            return;
        }
        let rests = self.sequence == Sequence::Rest;
        if rests && self.proof == Proof::Wanted {
            if self.not_before <= cx.now {
                self.recreate = true;
                self.durable.stop_pulls(cx.out);
                self.sequence = Sequence::Stopping;
            }
        } else if rests && !self.is_rechecking() && self.is_sequence_due(cx.now) {
            self.begin_sequence(cx);
        }
        if self.sequence == Sequence::Stopping && !self.durable.is_pulling() {
            let ask = cx.out.ask();
            self.not_before = cx.now + self.min_interval;
            if self.recreate || self.durable.identity == 0 {
                let request = self.durable.planner.send_delete(cx.now, ask);
                cx.out.source(request);
                self.sequence = Sequence::Deleting;
            } else {
                cx.out.source(SourceRequest::ResetConsumer { ask });
                self.sequence = Sequence::Resetting(ask);
            }
        }
    }

    fn is_sequence_due(&self, now: Time) -> bool {
        let planner = &self.durable.planner;
        let due = planner.is_due(now);
        let waits = planner.next_deadline() != Time::NEVER && !due;
        let rewinds = self.lossy || self.recreate || (self.rewind && !waits);
        due || (rewinds && self.not_before <= now)
    }

    fn begin_sequence(&mut self, cx: &mut Context<'_>) {
        let planner = &self.durable.planner;
        let exists = self.durable.identity != 0 || planner.is_unknown();
        let rewinds = self.lossy || self.recreate || self.rewind || planner.adds();
        let due = planner.is_due(cx.now);
        let add_first = planted!(WorkQueueAddBeforeReset) && due;
        if exists && rewinds && !planner.wants_nothing() && !add_first {
            self.durable.stop_pulls(cx.out);
            self.sequence = Sequence::Stopping;
        } else if due && exists && !planner.wants_nothing() {
            if self.durable.may_change(cx.out) {
                self.send_update(cx, false);
            }
        } else {
            // Created at the beginning, or deleted: either way nothing is left to rewind.
            (self.lossy, self.rewind) = (false, false);
            if due {
                self.send_update(cx, true);
            } else if exists && self.recreate {
                let ask = cx.out.ask();
                cx.out.source(self.durable.planner.send_delete(cx.now, ask));
                self.sequence = Sequence::Deleting;
            }
        }
    }

    fn send_update(&mut self, cx: &mut Context<'_>, rewound: bool) {
        let ask = cx.out.ask();
        let request = self.durable.planner.send(cx.now, ask);
        // Where nothing is wanted, that is a deletion like any other.
        self.sequence = if matches!(request, SourceRequest::DeleteConsumer { .. }) {
            Sequence::Deleting
        } else {
            Sequence::Updating { rewound }
        };
        cx.out.source(request);
    }

    /// The durable stands at the beginning, and no pull is open.
    fn rewound(&mut self, cx: &mut Context<'_>) {
        (self.lossy, self.rewind, self.recreate) = (false, false, false);
        self.backoff.reset();
        if self.is_rechecking() {
            // Who is to be in it is known only then.
            self.finish(false);
        } else if self.durable.planner.needs_update() {
            self.send_update(cx, true);
        } else {
            self.finish(true);
        }
    }

    fn finish(&mut self, rewound: bool) {
        self.sequence = Sequence::Rest;
        self.silence = Silence::None;
        for (partition, flow) in &mut self.flows {
            if *flow == Flow::Joining && self.durable.planner.delivers(partition) {
                if rewound || planted!(WorkQueueAddBeforeReset) {
                    *flow = Flow::Flowing;
                } else {
                    self.rewind = true;
                }
            }
        }
    }

    fn consumer(
        &mut self,
        cx: &mut Context<'_>,
        ask: Ask,
        result: Result<ConsumerState, SourceError>,
    ) {
        if self.sequence == Sequence::Resetting(ask) {
            return self.reset_answered(cx, result);
        }
        match self.durable.answer(cx, ask, &result, &mut self.rng) {
            News::Updated { recreated } => match self.sequence {
                Sequence::Deleting => {
                    self.prove();
                    self.rewound(cx);
                }
                Sequence::Updating { rewound } => {
                    // A recreated durable stands at the beginning.
                    self.finish(rewound || recreated);
                    if recreated && !rewound {
                        self.check_anew();
                    }
                }
                _ => {}
            },
            News::Foreign => self.is_foreign(),
            // The last good filter goes on; the planner waits, then the whole sequence runs again.
            News::Failed if self.sequence != Sequence::Rest && !self.is_resetting() => {
                if let Err(SourceError::Occupied { by, partition }) = &result {
                    self.evict(by, partition);
                    self.durable.planner.forgive();
                }
                // Nobody knows whether it is gone, nor whether its pulls are: only another deletion tells.
                self.recreate |= self.sequence == Sequence::Deleting;
                self.rewind = true;
                self.not_before = cx.now + self.backoff.next(&mut self.rng);
                self.sequence = Sequence::Rest;
            }
            News::Sound => {
                if self.silence == Silence::Heard && self.durable.is_whole() {
                    self.silence = Silence::Proved;
                    cx.out.woken.extend(self.flows.keys().cloned());
                }
            }
            News::Failed | News::Unseen => {}
            News::NotMine => self.evicted(cx, ask, &result),
        }
    }

    fn is_resetting(&self) -> bool {
        matches!(self.sequence, Sequence::Resetting(_) | Sequence::Stopping)
    }

    fn reset_answered(&mut self, cx: &mut Context<'_>, result: Result<ConsumerState, SourceError>) {
        match result {
            Ok(state) => {
                self.durable.adopt(cx.now, &state);
                self.rewound(cx);
            }
            Err(error) => {
                // Too old a server, or no such durable any more.
                self.recreate |= matches!(error, SourceError::Rejected(_));
                self.rewind = true;
                self.not_before = cx.now + self.backoff.next(&mut self.rng);
                self.sequence = Sequence::Rest;
            }
        }
    }

    /// The lane serves no more: the subject leaves the filter, what is unhandled stays unacked.
    fn leave(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        if let Some(Flow::Evicting { worker, .. }) = self.flows.get(partition) {
            cx.out.refusals.forget(&Asked::Eviction(worker.clone()));
        }
        self.durable.planner.unwant(partition);
        if let Some(serving) = cx
            .lanes
            .lanes
            .get_mut(partition)
            .and_then(|l| l.serving_mut())
        {
            let freed = serving.let_go_unstarted();
            // The server would count them against this worker until the next owner is done.
            self.rewind |= !freed.is_empty();
            cx.out.dropped.extend(freed);
        }
    }
}

impl Feed for WorkQueue {
    fn attach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        if !self.flows.contains_key(partition) {
            self.flows.insert(partition.clone(), Flow::Idle);
            cx.out.ready_changed = true;
        }
    }

    fn detach(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        self.leave(cx, partition);
        cx.out.ready_changed |= self.flows.remove(partition).is_some();
        self.drop_idle_proof();
    }

    fn open(&mut self, _cx: &mut Context<'_>, partition: &PartitionId, opening: &Opening) {
        let flow = match &opening.seized_from {
            Some(worker) => Flow::Evicting {
                worker: worker.clone(),
                ask: None,
            },
            None => Flow::check(false),
        };
        self.flows.insert(partition.clone(), flow);
    }

    fn close(&mut self, cx: &mut Context<'_>, partition: &PartitionId) {
        self.leave(cx, partition);
        self.flows.insert(partition.clone(), Flow::Leaving);
        self.drop_idle_proof();
    }

    fn ready(&self, partition: &PartitionId) -> bool {
        self.flows.contains_key(partition)
    }

    fn is_gone(&self, partition: &PartitionId) -> bool {
        !self.durable.planner.may_deliver(partition)
    }

    fn is_caught_up(&self, _lanes: &LaneMap, partition: &PartitionId) -> bool {
        let flowing = self.flows.get(partition) == Some(&Flow::Flowing);
        flowing && !self.lossy && self.silence == Silence::Proved
    }

    fn source(&mut self, cx: &mut Context<'_>, event: SourceEvent) {
        match event {
            SourceEvent::Delivered {
                consumer,
                sequence,
                partition,
                message,
                ..
            } => {
                self.delivered(cx, Delivery { consumer, sequence }, &partition, message);
            }
            SourceEvent::Consumer { ask, result } => self.consumer(cx, ask, result),
            SourceEvent::Bounds { ask, result } => {
                cx.out
                    .answered(cx.now, Asked::Bounds, result.as_ref().err());
                self.head_answered(cx, ask, &result);
            }
            SourceEvent::PullEnded { ask } => {
                let short = self.durable.pull_ended(ask);
                if short && self.sequence == Sequence::Rest && self.silence != Silence::Proved {
                    self.silence = Silence::Heard;
                    // Only suspicion wants to know for sure whether the lag is gone.
                    let mut lanes = cx.lanes.lanes.values().filter_map(Lane::serving);
                    if lanes.any(Serving::suspicious) {
                        self.durable.look_soon(cx.now);
                    }
                }
            }
            SourceEvent::Reconnected => {
                // The server may not know yet that the old connection is gone. A pull left open there
                // would move the position on between a reset and an update, past everything of the
                // partitions to be added: only a deletion ends it for sure.
                let exists = self.durable.identity != 0;
                self.recreate |= exists && self.durable.is_pulling();
                self.durable.reconnected(cx.now);
                self.lossy |= exists;
                self.check_anew();
            }
            SourceEvent::Read { .. }
            | SourceEvent::Swept { .. }
            | SourceEvent::Grew { .. }
            | SourceEvent::Resolved { .. }
            | SourceEvent::DeadLettered { .. }
            | SourceEvent::External { .. }
            | SourceEvent::Replaced => {}
        }
    }

    fn touch(&mut self, _partition: &PartitionId) {}

    fn handled(&mut self) {
        self.durable.batch.handled();
    }

    fn pump(&mut self, cx: &mut Context<'_>) {
        if self.durable.is_short(cx.now) {
            self.is_lossy();
        }
        self.ask_for_lanes(cx);
        self.advance_sequence(cx);
        self.durable.look_away();
    }

    fn pull(&mut self, cx: &mut Context<'_>, _idle: bool) {
        if self.is_rechecking() {
            // In a stream that went back, an ack of before may be of another message. What is done
            // comes again with the reset, and is acked then.
            cx.out.dropped.append(&mut cx.out.acks);
        }
        self.durable.settle(cx.out);
        self.durable.extend(cx.now, cx.out);
        if !cx.lease || self.lossy {
            return;
        }
        match self.sequence {
            // The position must not move between the reset and the update.
            Sequence::Stopping
            | Sequence::Resetting(_)
            | Sequence::Deleting
            | Sequence::Updating { rewound: true } => {}
            Sequence::Rest | Sequence::Updating { rewound: false } => {
                self.durable.inspect(cx.now, cx.out);
                self.durable.pull(cx.now, cx.out);
            }
        }
    }

    fn next_deadline(&self, now: Time) -> Time {
        let wanted = self.lossy || self.rewind || self.recreate || self.proof == Proof::Wanted;
        let resets = self.sequence == Sequence::Rest && wanted;
        let reset = if resets { self.not_before } else { Time::NEVER };
        let lanes = if self.lanes_wait() {
            self.lanes_not_before
        } else {
            Time::NEVER
        };
        reset
            .after(now)
            .min(lanes.after(now))
            .min(self.durable.next_deadline(now))
    }

    fn degraded(&self) -> Option<String> {
        self.durable.planner.degraded()
    }

    fn refused(&self) -> Option<String> {
        self.durable.planner.refused()
    }

    fn numbers(&self) -> FeedNumbers {
        self.durable.numbers()
    }
}

//! Reads past the durable: a little of each lane at first, then much of one, or of many at once.
//!
//! ```text
//!   behind ──Read, a few──▶ answered ──all of it: done
//!                               └──more is there: deep ──▶ few such lanes: a long Read for each
//!                                                     └──▶ many: one Sweep, chunk after chunk
//! ```
//!
//! A lane that a sweep brought nothing to is not deep any more: so nobody's quiet partition makes
//! this worker read a whole stream.

use std::collections::BTreeMap;

use crate::feed::Context;
use crate::feed::limits::{Limits, OPEN_READS};
use crate::feed::refusals::Asked;
use crate::feed::sweep::{self, Behind, Choice};
use crate::ids::PartitionId;
use crate::io::{Ask, Message, ReadBatch, SourceError, SourceRequest, Swath};
use crate::lane::LaneNote;
use crate::lane::map::LaneMap;
use crate::worker::Trouble;

/// The first read of a lane asks for no more than this, because most have little to read.
const PROBE: u32 = 2;
/// Long reads that may be in flight at once: each is a consumer of its own.
const LONG_READS: usize = 16;
/// Sweeps that may fail in a row before each lane reads for itself.
const SWEEP_FAILURES: u32 = 3;

impl Limits {
    /// What a lane wants to have read, if it wants it now.
    fn wish(&self, cx: &Context<'_>, partition: &PartitionId) -> Option<Behind> {
        let splice = self.splices.get(partition)?;
        let serving = cx.lanes.open(partition)?;
        let (next, upto) = (serving.next(), splice.to_read(serving.next())?);
        let room = serving.room(&cx.lanes.rules);
        let enough_room =
            room > 0 && (room >= cx.lanes.rules.lane_buffer / 2 || serving.is_empty());
        let now = splice.reading.is_none() && splice.retry_at <= cx.now && enough_room;
        now.then(|| Behind {
            next,
            upto,
            room: u32::try_from(room).unwrap_or(u32::MAX),
            partition: partition.clone(),
        })
    }

    /// Reads what lanes want: a little of each at first, then much of one, or of many at once.
    pub(super) fn read_on(&mut self, cx: &mut Context<'_>) {
        for partition in std::mem::take(&mut self.behind) {
            let Some(mut lane) = self.wish(cx, &partition) else {
                continue;
            };
            if self.splices.get(&partition).is_some_and(|s| s.deep) {
                self.deep.insert(partition);
            } else if self.reads.len() < OPEN_READS {
                lane.room = lane.room.min(PROBE);
                let ask = self.read(cx, lane);
                self.probes.insert(ask);
            } else {
                self.behind.insert(partition);
            }
        }
        // Who has much to read waits until it is known who else has.
        if self.deep.is_empty() || !self.probes.is_empty() || self.sweep.is_some() {
            return;
        }
        let deep = std::mem::take(&mut self.deep);
        let mut deep: Vec<_> = deep.iter().filter_map(|p| self.wish(cx, p)).collect();
        deep.sort_by(|a, b| (a.next, &a.partition).cmp(&(b.next, &b.partition)));
        let choice = sweep::choose(&deep, self.sweep_partitions);
        let patient = self.sweep_failures < SWEEP_FAILURES;
        if choice.is_some() && patient && self.sweep_not_before > cx.now {
            self.deep
                .extend(deep.into_iter().map(|lane| lane.partition));
            return;
        }
        if let Some(choice) = choice.filter(|_| self.sweep_not_before <= cx.now) {
            let reached = deep.partition_point(|lane| lane.next < choice.from);
            let ahead = deep.split_off(reached);
            let ahead = ahead.into_iter().map(|lane| lane.partition);
            self.deep
                .extend(ahead.filter(|p| choice.partitions.binary_search(p).is_err()));
            self.sweep(cx, choice);
        }
        for lane in deep {
            if self.reads.len() < LONG_READS {
                self.read(cx, lane);
            } else {
                self.deep.insert(lane.partition);
            }
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, lane: Behind) -> Ask {
        let ask = cx.out.ask();
        if let Some(splice) = self.splices.get_mut(&lane.partition) {
            splice.reading = Some(ask);
        }
        self.reads.insert(ask, lane.partition.clone());
        cx.out.source(SourceRequest::Read {
            ask,
            partition: lane.partition,
            from: lane.next,
            upto: Some(lane.upto),
            limit: lane.room,
        });
        ask
    }

    fn sweep(&mut self, cx: &mut Context<'_>, choice: Choice) {
        let ask = cx.out.ask();
        for partition in &choice.partitions {
            if let Some(splice) = self.splices.get_mut(partition) {
                splice.reading = Some(ask);
            }
        }
        cx.out.source(SourceRequest::Sweep {
            ask,
            partitions: choice.partitions.clone(),
            from: choice.from,
            upto: choice.upto,
            limit: choice.limit,
        });
        self.sweep = Some((ask, choice));
    }

    /// A sweep is, for each of its lanes, a read.
    pub(super) fn swept(
        &mut self,
        cx: &mut Context<'_>,
        ask: Ask,
        result: Result<Swath, SourceError>,
    ) {
        let Some((_, choice)) = self.sweep.take_if(|(asked, _)| *asked == ask) else {
            return;
        };
        cx.out.answered(cx.now, Asked::Sweep, result.as_ref().err());
        let mut swath = match result {
            Ok(swath) if swath.next > choice.from || swath.first > choice.from => swath,
            _ => {
                self.sweep_failures += 1;
                self.sweep_not_before = cx.now + self.sweep_backoff.next(&mut self.rng);
                for partition in &choice.partitions {
                    self.reads_no_more(partition, ask);
                }
                return;
            }
        };
        if planted!(SweepTrustsShortAnswer) {
            swath.next = choice.upto.next();
        }
        self.sweep_backoff.reset();
        self.sweep_failures = 0;
        let mut parts: BTreeMap<PartitionId, Vec<Message>> = BTreeMap::new();
        for (partition, message) in swath.messages {
            parts.entry(partition).or_default().push(message);
        }
        for partition in &choice.partitions {
            let ahead = cx.lanes.next_of(partition) >= Some(swath.next.max(swath.first));
            if ahead {
                // The sweep ended before it: that says nothing about this lane.
                self.reads_no_more(partition, ask);
                continue;
            }
            let batch = ReadBatch {
                messages: parts.remove(partition).unwrap_or_default(),
                next: swath.next,
                first: swath.first,
                end: swath.next,
            };
            self.take_in(cx, partition, ask, Ok(batch));
        }
    }

    fn reads_no_more(&mut self, partition: &PartitionId, ask: Ask) {
        if let Some(splice) = self.splices.get_mut(partition) {
            splice.reading.take_if(|asked| *asked == ask);
        }
        self.dirty.insert(partition.clone());
    }

    pub(super) fn read_answered(
        &mut self,
        cx: &mut Context<'_>,
        ask: Ask,
        result: Result<ReadBatch, SourceError>,
    ) {
        self.probes.remove(&ask);
        if let Some(partition) = self.reads.remove(&ask) {
            self.take_in(cx, &partition, ask, result);
        }
    }

    /// Takes over what was read for a lane.
    fn take_in(
        &mut self,
        cx: &mut Context<'_>,
        partition: &PartitionId,
        ask: Ask,
        result: Result<ReadBatch, SourceError>,
    ) {
        let Some(splice) = self.splices.get_mut(partition) else {
            return;
        };
        if splice.reading.take_if(|asked| *asked == ask).is_none() {
            return;
        }
        self.dirty.insert(partition.clone());
        let LaneMap { rules, .. } = &*cx.lanes;
        let room = cx.lanes.open(partition).map_or(0, |s| s.room(rules));
        let Some(serving) = cx.lanes.open_mut(partition) else {
            return;
        };
        let before = serving.next();
        let asked = Asked::Read(partition.clone());
        cx.out.answered(cx.now, asked, result.as_ref().err());
        if let Ok(batch) = result {
            let tail_from = splice.from();
            if batch.first > before {
                // What is in the tail has been saved from retention.
                let first = batch.first.min(tail_from.max(before));
                let (lost, partition) = (first.0 - before.0, partition.clone());
                serving.nothing_below(first);
                if lost > 0 {
                    let trouble = Trouble::RetentionOvertook {
                        partition,
                        first,
                        lost,
                    };
                    cx.out.note(LaneNote::Trouble(trouble));
                }
            }
            splice.deep = !batch.messages.is_empty();
            let mut taken = 0;
            for message in &batch.messages {
                // Beyond the base it comes by the durable, and beyond the room it is read again.
                if message.offset >= tail_from || taken == room {
                    break;
                }
                if message.offset >= serving.next() {
                    serving.place(message.clone(), None);
                    self.seen = self.seen.max(message.offset);
                    taken += 1;
                }
            }
            if taken < room || batch.messages.len() <= taken {
                serving.nothing_below(batch.next.min(tail_from));
            }
            if planted!(ReaderTrustsEmptyAnswer) && batch.messages.is_empty() {
                serving.nothing_below(tail_from);
            }
        }
        if serving.next() > before {
            splice.backoff.reset();
            cx.out.wake(partition);
        } else {
            // Failed, or a replica that lags behind: no proof of anything.
            splice.retry_at = cx.now + splice.backoff.next(&mut self.rng);
            cx.out.wake_at(splice.retry_at, partition);
        }
    }
}

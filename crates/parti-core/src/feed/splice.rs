//! One lane's splice: how its reader and the durable's flow become one sequence.
//!
//! ```text
//!   offsets ──▶   done │ in the lane │ to be read      │ tail: from the durable, whole
//!                      ┴             ┴ next            ┴ from
//!
//!  Outside ──update answered──▶ NeedHead ──asked──▶ HeadAsked ──s──▶ Based: from = s + 1
//!     (arrivals dropped)          ▲    (arrivals to the tail)          │ next < from: read up to it
//!                                 └──────────── gap ───────────────────┘ next ≥ from: tail to lane
//! ```
//!
//! The one promise: while based, the tail holds every message of the partition from `from` on that
//! the flow has brought. Dropping messages therefore only means raising `from` above them: the
//! reader brings them later.

use std::collections::VecDeque;

use crate::feed::backoff::Backoff;
use crate::ids::Offset;
use crate::io::{Ask, Message};
use crate::lane::outbox::{Delivery, Outbox};
use crate::lane::serving::Serving;
use crate::time::Time;

/// How sound a lane's tail is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The durable does not deliver this partition for sure.
    Outside,
    /// The stream's last offset is to be asked.
    NeedHead,
    /// The stream's last offset was asked, after the last gap.
    HeadAsked(Ask),
    /// Known: everything from `from` on comes by the durable.
    Known,
}

/// One lane's splice.
#[derive(Debug)]
pub(crate) struct Splice {
    pub(crate) base: Base,
    /// The tail begins here; while the base is unknown, it will not begin below.
    from: Offset,
    tail: VecDeque<(Message, Delivery)>,
    capacity: usize,
    /// The read or sweep in flight.
    pub(crate) reading: Option<Ask>,
    /// The last read brought something and did not reach its end: there is more to expect.
    pub(crate) deep: bool,
    /// No read before this time.
    pub(crate) retry_at: Time,
    pub(crate) backoff: Backoff,
    /// A delivery has it looked at with the next pump: it need not be asked for once more.
    pub(crate) dirty: bool,
}

impl Splice {
    pub(crate) fn new(capacity: usize, backoff: Backoff) -> Self {
        Self {
            base: Base::Outside,
            from: Offset(0),
            tail: VecDeque::new(),
            capacity: capacity.max(1),
            reading: None,
            deep: false,
            retry_at: Time::ZERO,
            backoff,
            dirty: false,
        }
    }

    /// Where the tail begins.
    pub(crate) fn from(&self) -> Offset {
        self.from
    }

    /// Messages in the tail.
    pub(crate) fn tail_len(&self) -> usize {
        self.tail.len()
    }

    /// A delivery arrived. True: it is kept in the tail; otherwise it can be acked and forgotten.
    pub(crate) fn arrive(
        &mut self,
        message: Message,
        delivery: Delivery,
        out: &mut Outbox,
    ) -> bool {
        let late = message.offset < self.from
            || self
                .tail
                .back()
                .is_some_and(|(last, _)| message.offset <= last.offset);
        if self.base == Base::Outside || late {
            return false;
        }
        if self.tail.len() >= self.capacity {
            if planted!(OverflowDropsNewest) {
                return false;
            }
            // The oldest goes, so that what stays is still everything from `from` on.
            if let Some((oldest, freed)) = self.tail.pop_front() {
                self.from = oldest.offset.next();
                out.ack(Some(freed));
            }
        }
        self.tail.push_back((message, delivery));
        true
    }

    /// Something was lost: the tail is not whole any more.
    pub(crate) fn gap(&mut self, out: &mut Outbox) {
        if self.base == Base::Outside {
            return;
        }
        for (_, freed) in self.tail.drain(..) {
            out.ack(Some(freed));
        }
        self.base = Base::NeedHead;
        self.deep = false;
    }

    /// The stream ended at `last` after the flow was sound: from there on, the flow is whole.
    pub(crate) fn based_on(&mut self, last: Offset, out: &mut Outbox) {
        self.base = Base::Known;
        self.start_tail_at(self.from.max(last.next()), out);
    }

    /// The log went back: what was known about higher offsets is void.
    pub(crate) fn rebased_on(&mut self, last: Offset, out: &mut Outbox) {
        self.from = Offset(0);
        self.based_on(last, out);
    }

    /// Everything below `from` is the reader's (or nobody's) business.
    pub(crate) fn start_tail_at(&mut self, from: Offset, out: &mut Outbox) {
        self.from = self.from.max(from);
        while let Some((_, freed)) = self.tail.pop_front_if(|(m, _)| m.offset < self.from) {
            out.ack(Some(freed));
        }
    }

    /// Drops the whole tail: the reader brings it later.
    pub(crate) fn drop_tail(&mut self, out: &mut Outbox) {
        if let Some((last, _)) = self.tail.back() {
            self.start_tail_at(last.offset.next(), out);
        }
    }

    /// Hands the tail over to the lane, as far as it reaches and has room. True: some went over.
    pub(crate) fn hand_over(&mut self, lane: &mut Serving, room: usize, out: &mut Outbox) -> bool {
        if self.base != Base::Known || lane.next() < self.from {
            return false;
        }
        self.start_tail_at(lane.next(), out);
        let count = room.min(self.tail.len());
        for (message, delivery) in self.tail.drain(..count) {
            self.from = message.offset.next();
            if lane.place(message, Some(delivery)) != crate::lane::serving::Placed::Queued {
                out.ack(Some(delivery));
            }
        }
        count > 0
    }

    /// Up to where (inclusive) the reader must go for a lane that needs `next`; `None`: nowhere.
    pub(crate) fn to_read(&self, next: Offset) -> Option<Offset> {
        (self.base == Base::Known && next < self.from).then(|| Offset(self.from.0 - 1))
    }

    /// Whether an open lane has everything that came.
    pub(crate) fn is_caught_up(&self, next: Offset) -> bool {
        self.base == Base::Known && next >= self.from && self.tail.is_empty()
    }
}

//! Whether retention came past the durable while it lagged.
//!
//! ```text
//!   at the end ──more is pending, or the window full──▶ a span: whole up to here, since now
//!       ▲                                                 │ each second: where does the stream begin?
//!       └── nothing is pending: the span ends ────────────┤
//!                                                         ├─ not after the span's beginning: whole
//!                                                         └─ after it: what did not come may be gone
//! ```
//!
//! A server passes over what it removed without a word: its own sequence has no gap there. So
//! whoever lags proves, piece by piece, that what came was all there was. Offsets are the whole
//! stream's: those between that never came may be of other workers' partitions, or were removed. The
//! bound that is told is theirs.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::ids::{Offset, PartitionId};
use crate::io::Ask;
use crate::time::Time;

/// So often the beginning is asked for; also, what is gone sooner was never meant to be kept.
const EVERY: Duration = Duration::from_secs(1);
/// Once losses were told, those that follow are told together, so often.
const SELDOM: Duration = Duration::from_secs(10);
/// After so long without any, the next one is the first again.
const QUIET: Duration = Duration::from_secs(60);
/// So many offsets of a span are remembered. Later ones count as if they had not come: what is told
/// is an upper bound.
const REMEMBERED: usize = 1 << 16;
/// So many spans wait for an answer, at the most.
const ENDED: usize = 8;

/// Watches for it.
#[derive(Debug)]
pub(super) struct Overtaken {
    /// The highest offset that came since the last gap.
    last: Option<Offset>,
    /// What comes now, unless the durable is at the stream's end.
    open: Option<Span>,
    /// What came before, still to be judged.
    ended: Vec<Span>,
    asked: Option<Asked>,
    /// Partitions that were given away since then.
    left: BTreeSet<PartitionId>,
    ask_at: Time,
    /// When losses were last told.
    told_at: Option<Time>,
}

/// What came in a row, and may have holes.
#[derive(Debug)]
struct Span {
    /// When the lag began.
    since: Time,
    /// Everything up to here came.
    whole: Offset,
    /// What came after that, in order.
    came: VecDeque<Offset>,
    highest: Offset,
}

/// A question in flight.
#[derive(Debug)]
struct Asked {
    ask: Ask,
    spans: Vec<Span>,
    left: BTreeSet<PartitionId>,
}

/// What may be gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// From where, up to but not with what, and how many offsets of that did not come.
    pub(super) spans: Vec<(Offset, Offset, u64)>,
    /// Partitions that this may be about though they are not here any more.
    pub(super) left: BTreeSet<PartitionId>,
}

impl Span {
    fn new(since: Time, whole: Offset) -> Self {
        Self {
            since,
            whole,
            came: VecDeque::new(),
            highest: whole,
        }
    }

    fn delivered(&mut self, offset: Offset) {
        if offset > self.highest {
            self.highest = offset;
            if self.came.len() < REMEMBERED {
                self.came.push_back(offset);
            }
        }
    }

    /// Takes in another one, and what lies between.
    fn reach(&mut self, other: &Span) {
        self.whole = self.whole.min(other.whole);
        self.highest = self.highest.max(other.highest);
    }

    /// What is gone of it, if the stream begins at `first`.
    fn lost(&self, first: Offset) -> Option<(Offset, Offset, u64)> {
        let after_whole = (1..).map(|n| Offset(self.whole.0 + n));
        let in_a_row = self.came.iter().zip(after_whole);
        let in_a_row = in_a_row.take_while(|(came, next)| *came == next).count() as u64;
        let from = Offset(self.whole.0 + 1 + in_a_row);
        let upto = first.min(self.highest.next());
        let came = self.came.partition_point(|offset| *offset < upto) as u64;
        let gone = upto.0.checked_sub(from.0)? - (came - in_a_row);
        (gone > 0).then_some((from, upto, gone))
    }
}

impl Overtaken {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            open: None,
            ended: Vec::new(),
            asked: None,
            left: BTreeSet::new(),
            ask_at: Time::NEVER,
            told_at: None,
        }
    }

    /// A delivery came, with so many still to come.
    pub(super) fn delivered(&mut self, now: Time, offset: Offset, pending: u64) {
        self.last = self.last.max(Some(offset));
        let Some(span) = &mut self.open else {
            if pending > 0 {
                self.begin(now, offset);
            }
            return;
        };
        span.delivered(offset);
        let long = now.since(span.since) >= EVERY;
        if pending == 0
            && let Some(span) = self.open.take().filter(|_| long)
        {
            self.end(span);
        }
    }

    /// The window is full: nothing more is asked for.
    pub(super) fn held_back(&mut self, now: Time) {
        if let (None, Some(last)) = (&self.open, self.last) {
            self.begin(now, last);
        }
    }

    fn begin(&mut self, now: Time, whole: Offset) {
        self.open = Some(Span::new(now, whole));
        if self.ended.is_empty() {
            self.ask_at = now + self.every(now);
        }
    }

    fn every(&self, now: Time) -> Duration {
        match self.told_at {
            Some(told) if now.since(told) < QUIET => SELDOM,
            _ => EVERY,
        }
    }

    /// The flow is not whole any more: what comes from now on is another one. What lies between is
    /// read by the lanes.
    pub(super) fn gap(&mut self) {
        self.last = None;
        let brought = |span: &Span| span.highest > span.whole;
        if let Some(span) = self.open.take().filter(brought) {
            self.end(span);
        }
    }

    fn end(&mut self, span: Span) {
        match self.ended.get_mut(ENDED - 1) {
            // Nobody answers for long: what lies between is taken for lost, too.
            Some(last) => last.reach(&span),
            None => self.ended.push(span),
        }
    }

    /// A partition is about to be given away: what is to be told is asked for while somebody is there to
    /// tell it.
    pub(super) fn hurry(&mut self, now: Time) {
        self.ask_at = self.ask_at.min(now);
    }

    /// The partition is given away. What it got before is judged all the same.
    pub(super) fn detach(&mut self, partition: &PartitionId) {
        if self.open.is_some() || !self.ended.is_empty() {
            self.left.insert(partition.clone());
        }
        if let Some(asked) = &mut self.asked {
            asked.left.insert(partition.clone());
        }
    }

    fn is_waiting(&self) -> bool {
        let waits = self.open.is_some() || !self.ended.is_empty();
        waits && self.asked.is_none() && !planted!(OvertakenForgotten)
    }

    /// Whether it is time to ask where the stream begins.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.is_waiting() && self.ask_at <= now
    }

    /// It is asked. What comes meanwhile is for the next time.
    pub(super) fn asks(&mut self, ask: Ask) {
        let mut spans = std::mem::take(&mut self.ended);
        if let Some(open) = &mut self.open {
            let next = Span::new(open.since, open.highest);
            spans.push(std::mem::replace(open, next));
        }
        let left = std::mem::take(&mut self.left);
        self.asked = Some(Asked { ask, spans, left });
    }

    /// Where the stream begins; none: not known. No answer: nobody asked for this.
    pub(super) fn answered(
        &mut self,
        now: Time,
        ask: Ask,
        first: Option<Offset>,
    ) -> Option<Losses> {
        let asked = self.asked.take_if(|asked| asked.ask == ask)?;
        let Some(first) = first else {
            // What came since is judged with it.
            self.ended.splice(..0, asked.spans);
            self.left.extend(asked.left);
            self.ask_at = now + EVERY;
            return Some(Losses::default());
        };
        let spans: Vec<_> = asked.spans.iter().filter_map(|s| s.lost(first)).collect();
        if !spans.is_empty() {
            self.told_at = Some(now);
        }
        self.ask_at = now + self.every(now);
        Some(Losses {
            spans,
            left: asked.left,
        })
    }

    /// When to ask.
    pub(super) fn next_deadline(&self) -> Time {
        match self.is_waiting() {
            true => self.ask_at,
            false => Time::NEVER,
        }
    }
}

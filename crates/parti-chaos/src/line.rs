//! What a worker process says, one JSON object per line.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One line: when, by the clock that all processes of a machine share, and what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Nanoseconds of the monotonic clock.
    pub t: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened in a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A handler call ended well.
    Handled {
        /// Which partition.
        partition: u32,
        /// The message's number in its partition, from 0.
        number: u64,
        /// Its place in the stream.
        offset: u64,
        /// Under which epoch.
        epoch: u64,
        /// 1 for the first try.
        attempt: u32,
    },
    /// A message went to the dead letters.
    DeadLettered {
        /// Which partition.
        partition: u32,
        /// Its place in the stream.
        offset: u64,
        /// After how many attempts.
        attempts: u32,
    },
    /// The worker has an id.
    Claimed {
        /// Which.
        worker: String,
    },
    /// The first assignment is there.
    Started,
    /// The session is lost.
    SessionLost,
    /// It leads, or leads no more.
    Leading {
        /// Which of the two.
        leads: bool,
    },
    /// A new assignment.
    Assigned {
        /// Its version.
        version: u64,
        /// How many partitions to serve.
        serve: usize,
        /// How many to prepare.
        prepare: usize,
    },
    /// A partition was taken.
    Taken {
        /// Which.
        partition: u32,
        /// Under which epoch.
        epoch: u64,
        /// The last offset that is done, as the store had it.
        offset: Option<u64>,
        /// From an owner whose session is over.
        seized: bool,
    },
    /// A partition was released.
    Released {
        /// Which.
        partition: u32,
        /// Under which epoch it was held.
        epoch: u64,
        /// The last offset that is done.
        offset: Option<u64>,
    },
    /// Somebody else owns a partition now.
    Fenced {
        /// Which.
        partition: u32,
        /// The epoch that is over.
        epoch: u64,
    },
    /// Something is wrong.
    Trouble {
        /// What.
        what: String,
    },
    /// How many tasks the runtime has.
    Vitals {
        /// So many.
        tasks: usize,
    },
    /// The end, and why if nobody asked for it.
    Ended {
        /// Why.
        error: Option<String>,
    },
}

/// Now, by the clock that all processes of a machine share.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    seconds * 1_000_000_000 + nanos
}

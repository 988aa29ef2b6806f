//! The public conformance suite: what every backend must do, as cases that it is run through.
//!
//! ```text
//!   Subject ── connect ──▶ connections to one store
//!      │                        │
//!      │      each case in its own room (a part of the key space that nobody else uses)
//!      │                        ▼
//!      └─ disturb ─▶ races writes lists watches batches keys values script outages ─▶ Report
//! ```
//!
//! The contract that it checks is written down in [`store`](super). To check a backend of your
//! own, say how to connect to it, and how to break its connections if it has any:
//!
//! ```
//! use std::sync::Arc;
//! use parti::store::conformance::{self, Subject};
//! use parti::store::{Error, Memory, Store};
//!
//! /// Each connection is a clone: they share their content.
//! struct Mine(Memory);
//!
//! #[async_trait::async_trait]
//! impl Subject for Mine {
//!     fn name(&self) -> &str {
//!         "mine"
//!     }
//!
//!     async fn connect(&self) -> Result<Arc<dyn Store>, Error> {
//!         Ok(Arc::new(self.0.clone()))
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let report = conformance::run(&Mine(Memory::new())).await;
//! println!("{report}");
//! report.assert();
//! # }
//! ```
//!
//! The store need not be empty, and other programs may use it meanwhile: every case keeps to keys
//! that start with a text made for it. What it wrote stays behind, so use a store for tests. Reads
//! are allowed to be stale for a while, as the contract says; the suite then asks again.

mod batches;
mod keys;
mod lists;
mod observer;
mod outages;
mod races;
mod report;
mod room;
mod script;
mod values;
mod watches;
mod writes;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Error, Store};
use room::{Failure, Room};

pub use observer::Observer;
pub use report::{Line, Outcome, Report};

/// A case that takes longer than this is taken to hang.
const LIMIT: Duration = Duration::from_secs(240);

/// A store to be examined.
#[async_trait]
pub trait Subject: Send + Sync {
    /// What to call it in the report.
    fn name(&self) -> &str;

    /// A new connection to the store, independent of the others: always the same store.
    async fn connect(&self) -> Result<Arc<dyn Store>, Error>;

    /// Whether [`disturb`](Self::disturb) can be called. Where it cannot, the cases of an outage
    /// are listed as not applicable.
    fn can_disturb(&self) -> bool {
        false
    }

    /// Breaks every connection there is, and returns once the store can be reached again with all
    /// that it had acknowledged: kill its server, and start it anew.
    async fn disturb(&self) -> Result<(), Error> {
        Err(Error::rejected("this store cannot be disconnected"))
    }
}

/// Runs every case.
pub async fn run(subject: &dyn Subject) -> Report {
    Suite::new(subject).run().await
}

/// The names of all cases, in the order in which they run.
pub fn names() -> Vec<String> {
    plan().map(|(case, space)| space.title(case)).collect()
}

/// A run of the suite with choices.
pub struct Suite<'s> {
    subject: &'s dyn Subject,
    only: Option<String>,
    seed: u64,
    limit: Duration,
}

impl<'s> Suite<'s> {
    /// All cases, with the usual seed.
    pub fn new(subject: &'s dyn Subject) -> Self {
        Self {
            subject,
            only: None,
            seed: 1,
            limit: LIMIT,
        }
    }

    /// Runs only the cases whose name holds this text.
    #[must_use]
    pub fn only(mut self, text: impl Into<String>) -> Self {
        self.only = Some(text.into());
        self
    }

    /// Draws the randomised cases from another seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Takes a case to hang after this time. It is a guard: nothing is measured against it.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the cases one after the other, whatever becomes of each.
    pub async fn run(self) -> Report {
        let run = unique();
        let mut lines = Vec::new();
        for (number, (case, space)) in plan().enumerate() {
            let title = space.title(case);
            if self.only.as_ref().is_some_and(|only| !title.contains(only)) {
                continue;
            }
            let began = Instant::now();
            let outcome = if case.needs == Needs::Disturbance && !self.subject.can_disturb() {
                Outcome::NotApplicable("it cannot be disconnected")
            } else {
                let space = space.prefix(&format!("{run}-{number}"));
                let room = Room::new(self.subject, space, self.seed);
                self.carry_out(case, &room).await
            };
            tracing::debug!(store = self.subject.name(), case = title, ?outcome);
            lines.push(Line {
                case: title,
                outcome,
                took: began.elapsed(),
            });
        }
        Report::new(self.subject.name(), lines)
    }

    async fn carry_out(&self, case: &Case, room: &Room<'_>) -> Outcome {
        let guarded = AssertUnwindSafe((case.run)(room)).catch_unwind();
        match tokio::time::timeout(self.limit, guarded).await {
            Ok(Ok(Ok(()))) => Outcome::Passed,
            Ok(Ok(Err(failure))) => Outcome::Failed(failure.to_string()),
            Ok(Err(panic)) => Outcome::Failed(format!("a panic: {}", panic_text(&*panic))),
            Err(_) => Outcome::Failed(format!("it hangs: no end after {:?}", self.limit)),
        }
    }
}

/// One thing to check.
struct Case {
    name: &'static str,
    spaces: &'static [Space],
    needs: Needs,
    run: for<'r> fn(&'r Room<'r>) -> BoxFuture<'r, Result<(), Failure>>,
}

/// What a subject must be able to do for a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Disturbance,
}

/// Where a case's keys are. A backend may keep `partitions/` apart from the rest, so what matters
/// is checked in both.
#[derive(Clone, Copy)]
enum Space {
    Plain,
    Partitions,
}

const PLAIN: &[Space] = &[Space::Plain];
const BOTH: &[Space] = &[Space::Plain, Space::Partitions];

impl Space {
    fn title(self, case: &Case) -> String {
        match self {
            Space::Plain => case.name.to_owned(),
            Space::Partitions => format!("{} (partitions/)", case.name),
        }
    }

    fn prefix(self, unique: &str) -> String {
        match self {
            Space::Plain => format!("{unique}/"),
            Space::Partitions => format!("partitions/{unique}/"),
        }
    }
}

fn plan() -> impl Iterator<Item = (&'static Case, Space)> {
    let subjects = [
        writes::CASES,
        races::CASES,
        lists::CASES,
        batches::CASES,
        keys::CASES,
        values::CASES,
        watches::CASES,
        script::CASES,
        outages::CASES,
    ];
    let cases = subjects.into_iter().flatten();
    cases.flat_map(|case| case.spaces.iter().map(move |space| (case, *space)))
}

/// A text that no other run uses, on this machine or another.
fn unique() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    format!("conformance-{now:x}-{:x}-{run}", std::process::id())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text")
}

/// Declares the cases of a file.
macro_rules! cases {
    ($subject:literal, $needs:ident: $($spaces:ident $name:ident,)+) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: concat!($subject, "::", stringify!($name)),
            spaces: super::$spaces,
            needs: super::Needs::$needs,
            run: |room| Box::pin($name(room)),
        }),+];
    };
}
use cases;

/// Fails the case, with a text that says what was wrong.
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(super::room::Failure::new(format!($($why)+)));
        }
    };
}
use ensure;

//! The pure core of Parti: every decision of a consumer group, and nothing else.
//!
//! Nothing here does I/O, reads a clock or draws randomness: time and entropy come in as
//! arguments, effects go out as values. The same code therefore runs in production, in the
//! simulator and in unit tests.
//!
//! ```text
//!            Event                     worker::Worker                     Action
//!  store reply ─────┐   ┌──────────────────────────────────────────┐   ┌──▶ store request
//!  watch change ────┤   │ session   id claim, heartbeat, lease     │   ├──▶ source request
//!  deadline ────────┼──▶│ election  who leads, under which term    │──▶├──▶ handle a message
//!  source message ──┤   │ leader    who should serve what          │   ├──▶ report
//!  handler result ──┘   │ holding   take, commit, release          │   └──▶ …
//!                       │ lane/feed order, retry, splice, progress │
//!                       └──────────────────────────────────────────┘
//! ```
//!
//! Safety lives in one record per partition, [`record::PartitionRecord`], and in the one rule that
//! every write of it is a compare-and-set. Everything else only decides how fast things go.
//!
//! # A plan, and a worker's first step
//!
//! ```
//! use parti_core::config::Config;
//! use parti_core::ids::WorkerId;
//! use parti_core::io::{SourceKind, StoreOp};
//! use parti_core::key::Key;
//! use parti_core::leader::election::Agent;
//! use parti_core::strategy::{self, Input};
//! use parti_core::time::Time;
//! use parti_core::worker::{Action, Event, Options, State, Worker};
//! use parti_core::partition;
//!
//! // Settings: whatever is not said has its default, and every mistake is reported at once.
//! let config = Config::from_yaml("heartbeat_interval: 3s\nheartbeat_ttl: 12s\n")?;
//! let problems = Config::from_yaml("heartbeat_intervall: 3s\nrestart_detection_ratio: 7\n");
//! assert_eq!(problems.expect_err("two mistakes").len(), 2);
//!
//! // A strategy is a function: workers and partitions in, an owner for each partition out.
//! let workers = ["worker-0", "worker-1", "worker-2"].map(WorkerId::new);
//! let partitions = partition::numbered(12);
//! let strategy = strategy::from_choice(&config.strategy);
//! let input = Input { workers: &workers, partitions: &partitions, previous: &[], capacity: None };
//! let answer = strategy.assign(input);
//! assert_eq!(answer.unserved().count(), 0);
//! assert_eq!(answer.balance(input).by_weight(), 1.0); // four each
//!
//! // A worker is fed events, and says what to do. It starts by asking who the store is.
//! let mut worker = Worker::new(Options {
//!     config,
//!     strategy,
//!     source: SourceKind::Log,
//!     stream: 1.into(),
//!     preferred: None,
//!     belongs: Default::default(),
//!     agent: Agent::Store,
//!     seed: 42,
//! });
//! let mut actions = Vec::new();
//! worker.handle(Time::ZERO, Event::Start, &mut actions);
//! let reads_group = |action: &Action| {
//!     matches!(action, Action::Store(request) if request.op == StoreOp::Read(Key::Group))
//! };
//! assert!(actions.iter().any(reads_group));
//! assert!(actions.contains(&Action::ListPartitions));
//! assert_eq!(worker.state(), State::ClaimingId);
//! # Ok::<(), parti_core::problem::Problems>(())
//! ```
//!
//! A driver carries the actions out, brings their outcomes back as events, and comes back with
//! [`worker::Event::Tick`] at [`worker::Worker::next_deadline`].

#[macro_use]
pub mod planted;

pub mod codec;
pub mod config;
pub mod feed;
pub mod ids;
pub mod io;
pub mod key;
pub mod lane;
pub mod leader;
pub mod partition;
pub mod problem;
pub mod record;
pub mod rng;
pub mod session;
pub mod strategy;
pub mod text;
pub mod time;
pub mod worker;

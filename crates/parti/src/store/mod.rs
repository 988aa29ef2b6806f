//! Where a group's records live: one small contract, several backends.
//!
//! ```text
//!                       ┌ memory:            one process, for tests and embedding
//!   driver              │ sqlite:PATH        one file, several processes of one machine
//!     │  typed keys     │ nats://…           NATS KV
//!     ▼                 │ etcd://…           etcd v3
//!  GroupStore ─▶ Store ─┤ postgres://…       PostgreSQL
//!     text and bytes    │
//!                       └ Faulty, Metered    wrappers of any of them
//! ```
//!
//! The contract, which [`conformance`] checks on every backend (and on yours):
//!
//! - Every write carries an expectation ([`Expect`]); there is no unconditional one. Of several
//!   writers with the same expectation exactly one wins.
//! - A batch is a list of independent writes, not a transaction: each fares on its own, a conflict
//!   of one leaves the others alone. Each is atomic by itself. One key appears once in a batch.
//! - Revisions grow strictly from write to write, also across delete and re-create, over all keys
//!   below `partitions/`, and over all others; the two may be counted apart. They are never 0.
//! - A read may be stale, but never of the future and never torn. [`Error::Conflict`] carries what
//!   the one who refused the write has, never a replica's older view.
//! - A write whose answer did not come is [`Error::Unknown`]: it may have happened, and may still
//!   happen later. The same holds for a write whose future was dropped.
//! - A watch never misses the last state of a key: see [`Change`].
//!
//! Keys are text of up to [`MAX_KEY`] bytes, made of segments between slashes; what is listed or
//! watched is one key, or everything below a segment ([`Scope`]). A backend that cannot store such
//! a text as it is escapes it, reversibly. Values are up to [`MAX_VALUE`] bytes, and may be empty.

mod about;
mod address;
pub mod conformance;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod ext;
pub mod faulty;
mod group;
mod memory;
pub mod metered;
#[cfg(feature = "nats")]
pub mod nats;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
mod scope;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::fmt;

use async_trait::async_trait;
pub use bytes::Bytes;
use futures_util::stream::BoxStream;

pub use about::About;
pub use address::{Address, Secret};
pub use error::Error;
pub use ext::StoreExt;
pub(crate) use group::for_core;
pub use group::{GroupChange, GroupStore};
pub use memory::Memory;
pub use open::{check_url, open, open_existing};
pub use parti_core::ids::Revision;
pub use parti_core::io::Expect;
pub use scope::{Scope, check_batch, check_key};

/// The longest key, in bytes of its text.
pub const MAX_KEY: usize = 512;

/// The largest value, in bytes. What is larger is refused before it is sent, on every backend.
pub const MAX_VALUE: usize = 512 * 1024;

/// A place for records. See the [module](self) for what an implementation promises.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What to call it in messages: its kind and place, without secrets.
    fn name(&self) -> &str;

    /// What is at a key. May be stale: good for preparing a write, never for deciding.
    async fn read(&self, key: &str) -> Result<Option<Entry>, Error>;

    /// Everything in a scope, sorted by key. May be stale.
    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error>;

    /// What it says of itself: its server, versions, clock. By default nothing.
    async fn about(&self) -> Result<About, Error> {
        Ok(About::default())
    }

    /// Carries out each write whose expectation holds. The answer has one outcome for each, in
    /// order: the new revision, or why not. However many they are, they take few round trips.
    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>>;

    /// Tells of everything in a scope, and of what becomes of it, until the stream is dropped: it
    /// never ends by itself. Losing the connection is the watch's own business (it comes back, and
    /// says so); nothing happens before the stream is polled.
    fn watch(&self, scope: Scope) -> Watch;
}

/// The stream of a watch.
pub type Watch = BoxStream<'static, Change>;

/// A value as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub key: String,
    /// By which write.
    pub revision: Revision,
    /// What.
    pub value: Bytes,
}

/// One conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub key: String,
    /// What must be there now.
    pub expect: Expect,
    /// What to put there; `None` deletes. Deleting what must be absent is refused: it would be no
    /// write at all.
    pub value: Option<Bytes>,
}

/// News of a watch, in this order:
///
/// ```text
///   Put* Synced (Put | Deleted)*  ( Interrupted* Restarted Put* Synced (Put | Deleted)* )*
/// ```
///
/// Between `Restarted` (or the start) and `Synced` comes everything that is there; what is not
/// among it is gone. After `Synced` the changes of a key come in the order of its revisions; a
/// change may come twice, and a state that was soon overwritten may be left out, but the last
/// state of every key always comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This is there.
    Put(Entry),
    /// A key was deleted, by the write with this revision.
    Deleted {
        /// Where.
        key: String,
        /// The delete's own revision.
        revision: Revision,
    },
    /// Everything there is has been told: from here on it is changes.
    Synced,
    /// Changes may have been missed: forget everything, it is told anew.
    Restarted,
    /// The watch does not hear anything at the moment, for this reason. It keeps trying, and says
    /// `Restarted` once it is back.
    Interrupted(Error),
}

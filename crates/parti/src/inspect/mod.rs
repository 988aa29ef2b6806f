//! A group as it is: one read-only view for everything that shows groups.
//!
//! ```text
//!   store ──▶ Records ──▶ Group ─┬─ workers      sessions, and what each owns and prepares
//!                                ├─ leader, plan
//!                                ├─ partitions   owner, epoch, checkpoint ──┐
//!                                └─ handoffs     who gets what from whom    │
//!     └── watch ──▶ follow: the same again whenever something changed
//!     └── whatif: what strategies would do with it
//!   source ──▶ Bounds ─────────────────────────────────── locate ──▶ lag ◀──┘
//! ```
//!
//! Every record is as of its own read, and a read may be stale: this is for looking, never for
//! deciding. Times are the wall clocks of whoever wrote them, for people; whether a session lives
//! is decided by its silence on the observer's own clock, which takes longer than one look.

mod bounds;
mod follow;
mod group;
mod history;
mod partition;
mod records;
mod request;
pub mod whatif;
mod worker;

pub use bounds::Bounds;
pub(crate) use follow::Follower;
pub use follow::{Pace, Sight, follow};
pub use group::{Group, Handoff, Plan, Stage, Stranded, Unreadable};
pub use history::{Happening, history};
pub use partition::{OwnerSession, PartitionView};
pub(crate) use records::{CLOSED, Records};
pub use request::{Progress, RequestView};
pub use worker::WorkerView;

use crate::store::{Error, GroupStore};

/// Reads a group; `None` if the store knows none of this name.
///
/// ```
/// use parti::inspect;
/// use parti::store::{self, GroupStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), store::Error> {
/// let billing = GroupStore::new(store::open("memory:").await?, "billing")?;
/// if let Some(group) = inspect::group(&billing).await? {
///     for worker in &group.workers {
///         println!("{} owns {}", worker.id, worker.owns);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub async fn group(store: &GroupStore) -> Result<Option<Group>, Error> {
    let records = Records::read(store).await?;
    Ok(records.exists().then(|| Group::of(store.group(), &records)))
}

/// Checkpoints that wait for their group: an import came before its first worker. `None` if there are
/// none, or if the group is there.
pub async fn waiting(store: &GroupStore) -> Result<Option<Group>, Error> {
    let records = Records::read(store).await?;
    let waits = !records.exists() && !records.partitions.is_empty();
    Ok(waits.then(|| Group::of(store.group(), &records)))
}

#[cfg(test)]
pub(crate) mod tests;

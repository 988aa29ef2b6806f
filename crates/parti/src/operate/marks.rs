//! An operator's own pause in a group without a leader, written down as such.
//!
//! The overrides say what is paused, and not for whom. So a forced change could not tell at its end
//! whether somebody else wants paused by now what it had paused. With a leader, requests tell; here
//! one is left for that, which is done.
//!
//! ```text
//!   an operator's pause:   a mark ──▶ the overrides anew, also where they say so already
//!   a forced change's end: both are read ──▶ resume by compare-and-set, unless marked
//!   an operator's resume:  the overrides ──▶ its marks go
//! ```
//!
//! A forced change that has read before the mark was there meets the overrides that were written
//! after it, and looks again. A mark that was there before the forced change paused is of a pause
//! that has ended since, and counts for nothing: so nobody depends on marks being removed.

use parti_core::ids::{PartitionId, Revision};
use parti_core::io::{Expect, Write};
use parti_core::key::Key;
use parti_core::record::{Outcome, Request, RequestRecord};

use super::pauses::of_operators;
use super::request::{Entered, Same, TRIES, busy, enter, put};
use super::{Error, nonce};
use crate::inspect::Records;
use crate::store::GroupStore;

/// Pauses a partition for an operator. The inner error is the reason why that is refused.
pub(super) async fn pause(
    store: &GroupStore,
    mut records: Records,
    asked: &RequestRecord,
    partition: &PartitionId,
) -> Result<Result<Entered, String>, Error> {
    for _ in 0..TRIES {
        let before = of(&records, partition);
        let mark = RequestRecord {
            outcome: Outcome::Done,
            nonce: nonce()?,
            ..asked.clone()
        };
        let made = put(store, "", vec![mark]).await?;
        let mut tries = 0;
        let entered = enter(store, records, Same::Written, |_| {
            tries += 1;
            vec![asked.request.clone()]
        });
        let entered = entered.await?;
        let gone = if entered.is_ok() { before } else { made };
        remove(store, gone).await;
        // Whoever came between the mark and this may have paused it, and have seen the mark before.
        if entered.is_err() || tries == 1 {
            return Ok(entered);
        }
        records = Records::read(store).await?;
    }
    Err(busy())
}

/// Resumes a partition for an operator: for whomever it was paused.
pub(super) async fn resume(
    store: &GroupStore,
    records: Records,
    partition: &PartitionId,
) -> Result<Result<Entered, String>, Error> {
    let before = of(&records, partition);
    let request = Request::Resume {
        partition: partition.clone(),
    };
    let entered = enter(store, records, Same::Stays, |_| vec![request.clone()]).await?;
    if entered.is_ok() {
        remove(store, before).await;
    }
    Ok(entered)
}

/// The marks of one partition.
fn of(records: &Records, partition: &PartitionId) -> Vec<(Key, Revision)> {
    let marks = of_operators(records).filter(|(_, of, _)| *of == partition);
    let marks = marks.map(|(stored, _, _)| (stored.key.clone(), stored.revision));
    marks.collect()
}

/// Removes marks. What stays, because the store does not do it, does no harm.
async fn remove(store: &GroupStore, marks: Vec<(Key, Revision)>) {
    let writes = marks.into_iter().map(|(key, revision)| Write {
        key,
        expect: Expect::At(revision),
        value: None,
    });
    let writes: Vec<Write> = writes.collect();
    if !writes.is_empty() {
        store.write(&writes).await;
    }
}

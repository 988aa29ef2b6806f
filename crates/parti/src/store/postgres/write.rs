//! A batch of conditional writes as one statement.
//!
//! ```text
//!   batch ──▶ chunks ─┬ of checkpoints that go on ──▶ COMMIT ─┬─▶ written: number, revision
//!                     └ of anything else ───────────▶ WRITE ──┤
//!                                                             │
//!        Conflict with what is there ◀── CURRENT ◀── the others were refused
//!                           again ◀────────┘ the expectation holds now
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::{Entry, Error, Expect, Revision, Write, check_batch};
use super::fault::{During, is_worth_repeating};
use super::pool::{Lanes, Lease};
use super::rows;
use super::session::{Session, Trouble};

/// Parameters: keys, values (NULL deletes), expected revisions (0: nothing may be there).
///
/// - An update is a candidate only if its row is as expected in the statement's snapshot; a revision
///   never comes back, so what is refused there is refused for good. Whether it is still so is
///   decided again on the locked row.
/// - An update that finds its row gone altogether (someone removed it by hand just then) inserts
///   revision 0, and the division undoes it all. A constraint of the table would not do: it is
///   checked on what is proposed, before it becomes an update.
/// - The keys go out as one notification, between double slashes, which no key contains; or as an
///   empty one, which means anything, if they are too long for it.
pub(super) const WRITE: &str = r#"
WITH written AS (
    INSERT INTO {schema}.records AS r (key, value, revision, replaced)
    SELECT i.key, i.value,
           CASE i.expected WHEN 0 THEN nextval('{schema}.revisions') ELSE 0 END,
           i.expected
      FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS i(key, value, expected)
      LEFT JOIN {schema}.records AS old ON old.key = i.key
     WHERE i.expected = 0 OR (old.revision = i.expected AND old.value IS NOT NULL)
     ORDER BY i.key COLLATE "C"
    ON CONFLICT (key) DO UPDATE
       SET value = excluded.value, revision = nextval('{schema}.revisions'),
           replaced = excluded.replaced, transaction = pg_current_xact_id(), updated_at = now()
     WHERE CASE excluded.replaced
           WHEN 0 THEN r.value IS NULL
           ELSE r.revision = excluded.replaced AND r.value IS NOT NULL END
    RETURNING r.key, r.revision
), told AS (
    SELECT pg_notify('{channel}', CASE WHEN sum(octet_length(key) + 2) > 7900 THEN ''
                                       ELSE string_agg(key, '//') END)
      FROM written WHERE NOT starts_with(key, 'partitions/') HAVING count(*) > 0
)
SELECT i.at, w.revision, 1 / w.revision, (SELECT count(*) FROM told)
  FROM written AS w JOIN unnest($1::text[]) WITH ORDINALITY AS i(key, at) ON i.key = w.key"#;

/// The same for checkpoints that are there already: no other write comes thousands at a time. An
/// update is about twice as fast as an insert that turns into one, and nobody is notified.
///
/// - They share one revision. Whoever expects a revision has seen it, so the one that is drawn now
///   is higher; only an insert can meet a row that was written after its own draw.
/// - Rows are locked in the order in which the planner comes across them. Two batches that meet in
///   many keys can block each other; the server ends one of them after a second, and it is
///   repeated.
pub(super) const COMMIT: &str = "
UPDATE {schema}.records AS r
   SET value = i.value, revision = (SELECT nextval('{schema}.revisions')), replaced = i.expected,
       transaction = pg_current_xact_id(), updated_at = now()
  FROM unnest($1::text[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS i(key, value, expected, at)
 WHERE r.key = i.key AND r.revision = i.expected AND r.value IS NOT NULL
RETURNING i.at, r.revision";

/// The rows of some keys.
pub(super) const CURRENT: &str = "
SELECT key, revision, value FROM {schema}.records
 WHERE key = ANY($1::text[]) AND value IS NOT NULL";

/// Removes what is left of keys that were deleted an hour ago. By then no watch is waiting to hear
/// of it, and no statement is running that drew a number before.
pub(super) const FORGET: &str = "
DELETE FROM {schema}.records WHERE value IS NULL AND key IN (
    SELECT key FROM {schema}.records
     WHERE value IS NULL AND updated_at < now() - interval '1 hour'
       FOR UPDATE SKIP LOCKED)";

/// How often to look for the traces of old deletes, as long as there are new ones.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// What one statement carries, at most.
const CHUNK_ROWS: usize = 10_000;
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// How often a write is tried that is refused although its expectation holds, or undone because
/// of what others do at the same time.
const ATTEMPTS: usize = 10;

type Outcome = Result<Revision, Error>;

/// By which statement.
#[derive(Clone, Copy, Debug)]
enum How {
    Write,
    Commit,
}

/// Whether a write is of a checkpoint that is there already.
fn is_commit(write: &Write) -> bool {
    matches!(write.expect, Expect::At(_)) && write.key.starts_with("partitions/")
}

/// Carries out each write whose expectation holds.
pub(super) async fn write(lanes: &Arc<Lanes>, batch: Vec<Write>) -> Vec<Outcome> {
    let deletes = batch.iter().any(|write| write.value.is_none());
    let mut outcomes: Vec<Option<Outcome>> = check_batch(&batch)
        .into_iter()
        .map(|check| check.err().map(Err))
        .collect();
    let good = (0..batch.len()).filter(|at| outcomes[*at].is_none());
    let (commits, others) = good.partition(|at| is_commit(&batch[*at]));
    for (how, good) in [(How::Commit, commits), (How::Write, others)] {
        for chunk in chunks(&batch, good) {
            write_chunk(lanes, &batch, how, chunk, &mut outcomes).await;
        }
    }
    if deletes {
        forget_in_time(lanes);
    }
    let lost = || Err(Error::unknown("the server gave no answer for it"));
    outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap_or_else(lost))
        .collect()
}

fn chunks(batch: &[Write], good: Vec<usize>) -> Vec<Vec<usize>> {
    let mut chunks: Vec<Vec<usize>> = Vec::new();
    let mut bytes = usize::MAX;
    for at in good {
        let size = batch[at].key.len() + batch[at].value.as_ref().map_or(0, |value| value.len());
        match chunks.last_mut() {
            Some(last) if last.len() < CHUNK_ROWS && bytes + size <= CHUNK_BYTES => {
                bytes += size;
                last.push(at);
            }
            _ => {
                bytes = size;
                chunks.push(vec![at]);
            }
        }
    }
    chunks
}

async fn write_chunk(
    lanes: &Lanes,
    batch: &[Write],
    how: How,
    mut open: Vec<usize>,
    outcomes: &mut [Option<Outcome>],
) {
    let mut why = Error::unavailable("others kept writing the same keys at the same time");
    for _ in 0..ATTEMPTS {
        let session = match lanes.lease().await {
            Ok(session) => session,
            Err(error) => {
                why = error;
                break;
            }
        };
        let written = match send(&session, batch, how, &open).await {
            Ok(written) => written,
            Err(Trouble::Failed(failure)) if is_worth_repeating(&failure) => continue,
            Err(trouble) => {
                why = trouble.told(During::Writing);
                break;
            }
        };
        for (at, revision) in written {
            outcomes[at] = Some(Ok(revision));
        }
        open.retain(|at| outcomes[*at].is_none());
        if open.is_empty() {
            return;
        }
        // They were refused: nothing was done to them, whatever happens to this question. It is
        // answered by whoever refused, and later: never by an older view.
        let current = match current(&session, batch, &open).await {
            Ok(current) => current,
            Err(error) => {
                why = error;
                break;
            }
        };
        open.retain(|at| {
            let write = &batch[*at];
            let there = current.get(&write.key);
            if holds(write.expect, there) {
                return true;
            }
            outcomes[*at] = Some(Err(Error::conflict(there.cloned())));
            false
        });
        if open.is_empty() {
            return;
        }
    }
    for at in open {
        outcomes[at] = Some(Err(why.clone()));
    }
}

/// Sends what is open; the answer is what was done of it, and under which revision.
async fn send(
    session: &Lease,
    batch: &[Write],
    how: How,
    open: &[usize],
) -> Result<Vec<(usize, Revision)>, Trouble> {
    let keys: Vec<&str> = open.iter().map(|at| batch[*at].key.as_str()).collect();
    let values: Vec<Option<&[u8]>> = open.iter().map(|at| batch[*at].value.as_deref()).collect();
    let expected: Vec<i64> = open.iter().map(|at| expected(batch[*at].expect)).collect();
    let statement = match how {
        How::Write => &session.statements.write,
        How::Commit => &session.statements.commit,
    };
    let rows = session
        .query(statement, &[&keys, &values, &expected])
        .await?;
    let mut written = Vec::with_capacity(rows.len());
    for row in rows {
        // The server counts from 1.
        let number: i64 = row.try_get(0).map_err(Trouble::Failed)?;
        let revision: i64 = row.try_get(1).map_err(Trouble::Failed)?;
        let at = usize::try_from(number - 1).ok().and_then(|at| open.get(at));
        written.extend(at.map(|at| (*at, Revision(revision.unsigned_abs()))));
    }
    Ok(written)
}

/// An expectation as the number that the statement takes. No revision is 0 or negative.
fn expected(expect: Expect) -> i64 {
    match expect {
        Expect::Absent => 0,
        Expect::At(Revision(0)) => -1,
        Expect::At(Revision(number)) => i64::try_from(number).unwrap_or(-1),
    }
}

fn holds(expect: Expect, there: Option<&Entry>) -> bool {
    match (expect, there) {
        (Expect::Absent, None) => true,
        (Expect::At(revision), Some(entry)) => entry.revision == revision,
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    }
}

async fn current(
    session: &Lease,
    batch: &[Write],
    open: &[usize],
) -> Result<HashMap<String, Entry>, Error> {
    let keys: Vec<&str> = open.iter().map(|at| batch[*at].key.as_str()).collect();
    let rows = session
        .query(&session.statements.current, &[&keys])
        .await
        .map_err(|trouble| trouble.told(During::Asking))?;
    rows.iter()
        .map(|row| rows::entry(row, 0).map(|entry| (entry.key.clone(), entry)))
        .collect()
}

/// Removes the traces of old deletes. That it fails matters to nobody.
pub(super) async fn forget_old_deletes(session: &Session) {
    if let Err(trouble) = session.query(&session.statements.forget, &[]).await {
        let error = trouble.told(During::Asking);
        tracing::debug!("traces of old deletes stay for now: {error}");
    }
}

/// Removes them a while after a delete, once for all deletes until then.
fn forget_in_time(lanes: &Arc<Lanes>) {
    if lanes.forgetting.swap(true, Ordering::Relaxed) {
        return;
    }
    let lanes = Arc::downgrade(lanes);
    tokio::spawn(async move {
        tokio::time::sleep(FORGET_EVERY).await;
        let Some(lanes) = lanes.upgrade() else { return };
        lanes.forgetting.store(false, Ordering::Relaxed);
        if let Ok(session) = lanes.lease().await {
            forget_old_deletes(&session).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Bytes, MAX_VALUE};

    fn write(key: usize, bytes: usize) -> Write {
        Write {
            key: key.to_string(),
            expect: Expect::Absent,
            value: Some(Bytes::from(vec![0; bytes])),
        }
    }

    #[test]
    fn chunks_are_bounded_and_nothing_is_left_out() {
        let small: Vec<Write> = (0..CHUNK_ROWS + 1).map(|key| write(key, 1)).collect();
        let found = chunks(&small, (0..small.len()).collect());
        assert_eq!(
            found.iter().map(Vec::len).collect::<Vec<_>>(),
            [CHUNK_ROWS, 1]
        );
        let large: Vec<Write> = (0..20).map(|key| write(key, MAX_VALUE)).collect();
        let found = chunks(&large, (0..large.len()).collect());
        assert!(found.iter().all(|chunk| chunk.len() < 8), "{found:?}");
        assert_eq!(found.concat(), (0..20).collect::<Vec<_>>());
        assert_eq!(chunks(&large, vec![3, 5]), [[3, 5]]);
        assert!(chunks(&large, vec![]).is_empty());
    }

    #[test]
    fn no_revision_can_be_taken_for_absence() {
        assert_eq!(expected(Expect::Absent), 0);
        assert_eq!(expected(Expect::At(Revision(7))), 7);
        assert_eq!(expected(Expect::At(Revision(0))), -1);
        assert_eq!(expected(Expect::At(Revision(u64::MAX))), -1);
    }
}

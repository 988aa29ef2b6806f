//! Batches of conditional writes.
//!
//! etcd's transaction is all or nothing, while each write of a batch fares on its own. So many of
//! them go into one transaction in the hope that all hold, which is the rule; if one does not,
//! etcd answers with what each of the keys has, from the same moment. Whoever is refuted by that
//! is a conflict, and the others go again without it:
//!
//! ```text
//!   if a is at 3, b absent, c at 7:  put a, b, c       ─▶ all done, at the answer's revision
//!   else:                            read a, b, c      ─▶ b is there: conflict; a and c go again
//! ```
//!
//! Each round removes at least one write, so it ends; nearly always there is no second, and
//! several transactions are under way at once. (One transaction with a nested one per write would
//! need no second round, but etcd does not count what nested ones write against its quota.)

use futures_util::{StreamExt, stream};

use super::Inner;
use super::client::Kind;
use super::fault::Fault;
use super::keys::revision;
use super::proto::{
    Compare, CompareTarget, CompareWith, DeleteRangeRequest, PutRequest, RangeRequest, Request,
    RequestOp, Response, ResponseOp, TXN, TxnRequest, TxnResponse,
};
use crate::store::{Entry, Error, Expect, Revision, Write, check_batch};

/// etcd's default limit of operations in a transaction.
const MOST_WRITES: usize = 128;
/// Well below etcd's default limit of a request, 1.5 MiB; the largest value has half a MiB.
const MOST_BYTES: usize = 1 << 20;
/// How many transactions are under way at once.
const AT_ONCE: usize = 16;

type Outcome = Result<Revision, Error>;

/// A write and its place in the batch.
type Numbered = (usize, Write);

/// Carries out a batch; one outcome for each write, in order.
pub(super) async fn write(inner: &Inner, batch: Vec<Write>) -> Vec<Outcome> {
    let checks = check_batch(&batch);
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
    let mut good = Vec::with_capacity(batch.len());
    for (number, (write, check)) in batch.into_iter().zip(checks).enumerate() {
        // What is not overwritten below was forgotten, and nobody knows what became of it.
        outcomes.push(Err(check.err().unwrap_or_else(|| {
            good.push((number, write));
            Error::unknown("etcd gave no answer for this write")
        })));
    }
    let mut done = stream::iter(
        chunks(good)
            .into_iter()
            .map(|chunk| carry_out(inner, chunk)),
    )
    .buffer_unordered(AT_ONCE);
    while let Some(some) = done.next().await {
        for (number, outcome) in some {
            outcomes[number] = outcome;
        }
    }
    outcomes
}

/// Parts that etcd takes. Deletes are apart: an etcd without space still carries them out.
fn chunks(writes: Vec<Numbered>) -> Vec<Vec<Numbered>> {
    let (puts, deletes): (Vec<_>, Vec<_>) = writes
        .into_iter()
        .partition(|(_, write)| write.value.is_some());
    let mut chunks = Vec::new();
    for writes in [puts, deletes] {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        for (number, write) in writes {
            // The key is there three times: to compare, to write, to read.
            let size = 3 * write.key.len() + write.value.as_ref().map_or(0, |value| value.len());
            if chunk.len() == MOST_WRITES || (bytes + size > MOST_BYTES && !chunk.is_empty()) {
                chunks.push(std::mem::take(&mut chunk));
                bytes = 0;
            }
            bytes += size;
            chunk.push((number, write));
        }
        if !chunk.is_empty() {
            chunks.push(chunk);
        }
    }
    chunks
}

async fn carry_out(inner: &Inner, chunk: Vec<Numbered>) -> Vec<(usize, Outcome)> {
    let mut outcomes = Vec::with_capacity(chunk.len());
    let mut to_do = vec![chunk];
    while let Some(mut chunk) = to_do.pop() {
        let request = transaction(inner, &chunk);
        match inner.client.call(TXN, &request, Kind::Write).await {
            Ok(TxnResponse {
                succeeded: true,
                header,
                ..
            }) => {
                let outcome = header
                    .map(|header| revision(header.revision))
                    .ok_or_else(|| Error::unknown("etcd answered without a revision"));
                outcomes.extend(chunk.into_iter().map(|(n, _)| (n, outcome.clone())));
            }
            Ok(TxnResponse { responses, .. }) => {
                let before = chunk.len();
                let mut again = Vec::new();
                for ((number, write), response) in chunk.into_iter().zip(responses) {
                    match refuted(&write, response) {
                        Some(conflict) => outcomes.push((number, Err(conflict))),
                        None => again.push((number, write)),
                    }
                }
                if again.len() == before {
                    let error = Error::unavailable("etcd refuses a transaction that should pass");
                    outcomes.extend(again.into_iter().map(|(n, _)| (n, Err(error.clone()))));
                } else if !again.is_empty() {
                    to_do.push(again);
                }
            }
            Err(Fault::RefusedWhole(_)) if chunk.len() > 1 => {
                let half = chunk.split_off(chunk.len() / 2);
                to_do.extend([half, chunk]);
            }
            Err(fault) => {
                let error = fault.for_write();
                outcomes.extend(chunk.into_iter().map(|(n, _)| (n, Err(error.clone()))));
            }
        }
    }
    outcomes
}

fn transaction(inner: &Inner, chunk: &[Numbered]) -> TxnRequest {
    let mut txn = TxnRequest::default();
    for (_, write) in chunk {
        let key = inner.keys.full(&write.key);
        txn.compare.push(expectation(key.clone(), write.expect));
        txn.failure.push(operation(Request::Range(RangeRequest {
            key: key.clone(),
            ..RangeRequest::default()
        })));
        txn.success.push(operation(match &write.value {
            Some(value) => Request::Put(PutRequest {
                key,
                value: value.clone(),
            }),
            None => Request::DeleteRange(DeleteRangeRequest { key }),
        }));
    }
    txn
}

fn operation(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

fn expectation(key: Vec<u8>, expect: Expect) -> Compare {
    let (target, with) = match expect {
        Expect::Absent => (CompareTarget::Create, CompareWith::CreateRevision(0)),
        // To etcd, what is absent is at revision 0. Nobody has seen a value there, nor at one
        // beyond etcd's numbers: compare with what nothing ever has.
        Expect::At(Revision(0)) => (CompareTarget::Mod, CompareWith::ModRevision(-1)),
        Expect::At(Revision(at)) => {
            let at = i64::try_from(at).unwrap_or(-1);
            (CompareTarget::Mod, CompareWith::ModRevision(at))
        }
    };
    Compare {
        target: target as i32,
        key,
        with: Some(with),
    }
}

/// The conflict that what is there means for a write, if it means one.
fn refuted(write: &Write, response: ResponseOp) -> Option<Error> {
    let kv = match response.response {
        Some(Response::Range(range)) => range.kvs.into_iter().next(),
        _ => None,
    };
    let current = kv.map(|kv| Entry {
        key: write.key.clone(),
        revision: revision(kv.mod_revision),
        value: kv.value,
    });
    let holds = match (write.expect, &current) {
        (Expect::Absent, None) => true,
        (Expect::At(at), Some(entry)) => entry.revision == at,
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    };
    (!holds).then(|| Error::conflict(current))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Bytes;

    fn put(size: usize) -> Write {
        Write {
            key: "k".into(),
            expect: Expect::Absent,
            value: Some(Bytes::from(vec![0; size])),
        }
    }

    #[test]
    fn chunks_keep_within_what_etcd_takes() {
        let delete = Write {
            value: None,
            ..put(0)
        };
        let mut writes: Vec<Write> = vec![put(1); 300];
        writes.insert(150, delete);
        writes.extend([put(400 << 10), put(512 << 10), put(512 << 10), put(1)]);
        let chunks = chunks(writes.into_iter().enumerate().collect());
        let sizes: Vec<usize> = chunks.iter().map(Vec::len).collect();
        assert_eq!(sizes, [128, 128, 46, 2, 1]);
        assert_eq!(chunks[4][0].0, 150);
        let mut numbers: Vec<usize> = chunks.iter().flatten().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..305).collect::<Vec<_>>());
    }

    #[test]
    fn no_revision_is_taken_for_absence() {
        let with = |expect| expectation(b"k".to_vec(), expect).with;
        let never = Some(CompareWith::ModRevision(-1));
        assert_eq!(with(Expect::At(Revision(0))), never);
        assert_eq!(with(Expect::At(Revision(u64::MAX))), never);
        assert_eq!(
            with(Expect::At(Revision(5))),
            Some(CompareWith::ModRevision(5))
        );
        assert_eq!(with(Expect::Absent), Some(CompareWith::CreateRevision(0)));
    }
}

//! The thread that writes: whatever waits goes to the disk together.
//!
//! ```text
//!   write(batch) ─┐                      ┌ one transaction, one fsync ┐
//!   write(batch) ─┼─▶ queue ─▶ all that ─┤ each write fares on its own├─▶ each batch its answer
//!   write(batch) ─┘           waits      └────────────────────────────┘        │
//!                                                                          wake the pulse
//! ```

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use tokio::sync::oneshot;

use super::records;
use crate::sqlite::{Database, Pulse, WriteFault};
use crate::store::{Error, Revision, Write, check_batch};

/// More batches than this do not wait: something is wrong, and memory is finite.
const QUEUE: usize = 16_384;

/// A transaction takes up to this many writes and bytes, so that other processes get their turn.
const WRITES: usize = 10_000;
const BYTES: usize = 16 * 1024 * 1024;

type Outcome = Result<Revision, Error>;

/// A batch on its way.
pub(super) struct Job {
    batch: Vec<Write>,
    // What is refused from the start has its outcome already.
    outcomes: Vec<Option<Outcome>>,
    reply: oneshot::Sender<Vec<Outcome>>,
}

/// The way to the thread, which ends when this is dropped and the queue is empty.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: SyncSender<Job>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(database: Database, pulse: Arc<Pulse>) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("parti-sqlite-write".into())
            .spawn(move || run(database, &queue, &pulse))?;
        Ok(Self { jobs })
    }

    /// Carries out a batch.
    pub(super) async fn write(&self, batch: Vec<Write>) -> Vec<Outcome> {
        let count = batch.len();
        let outcomes: Vec<_> = check_batch(&batch)
            .into_iter()
            .map(|check| check.err().map(Err))
            .collect();
        if outcomes.iter().all(Option::is_some) {
            return outcomes.into_iter().flatten().collect();
        }
        let (reply, answer) = oneshot::channel();
        let job = Job {
            batch,
            outcomes,
            reply,
        };
        let error = match self.jobs.try_send(job) {
            Ok(()) => match answer.await {
                Ok(outcomes) => return outcomes,
                Err(_) => Error::unknown("the thread that writes has ended"),
            },
            Err(TrySendError::Full(_)) => {
                Error::unavailable(format!("{QUEUE} batches are waiting to be written"))
            }
            Err(TrySendError::Disconnected(_)) => {
                Error::unavailable("the thread that writes has ended")
            }
        };
        vec![Err(error); count]
    }
}

fn run(mut database: Database, queue: &Receiver<Job>, pulse: &Pulse) {
    while let Ok(first) = queue.recv() {
        let mut jobs = vec![first];
        let mut waiting = jobs[0].batch.len();
        while waiting < WRITES
            && let Ok(next) = queue.try_recv()
        {
            waiting += next.batch.len();
            jobs.push(next);
        }
        carry_out(&mut database, &mut jobs);
        pulse.wake();
        for job in jobs {
            let missing = || Err(Error::unknown("the write got no outcome"));
            let outcomes = job.outcomes.into_iter();
            // Nobody may be waiting any more.
            let _ = job.reply.send(
                outcomes
                    .map(|outcome| outcome.unwrap_or_else(missing))
                    .collect(),
            );
        }
    }
}

/// Carries out what waits, in as many transactions as its size asks for.
fn carry_out(database: &mut Database, jobs: &mut [Job]) {
    let mut pending = jobs
        .iter_mut()
        .flat_map(|job| job.batch.iter().zip(&mut job.outcomes))
        .filter(|(_, outcome)| outcome.is_none())
        .peekable();
    while pending.peek().is_some() {
        let mut bytes = 0;
        let mut share = Vec::new();
        while share.len() < WRITES
            && bytes < BYTES
            && let Some((write, outcome)) = pending.next()
        {
            bytes += write.key.len() + write.value.as_ref().map_or(0, |value| value.len());
            share.push((write, outcome));
        }
        transaction(database, share);
    }
}

fn transaction(database: &mut Database, mut share: Vec<(&Write, &mut Option<Outcome>)>) {
    let outcome = database.write(|connection| {
        let before = records::counter(connection)?;
        let mut now = before;
        let mut writing = records::Writing::new(connection)?;
        for (write, outcome) in &mut share {
            let next = now.revision + 1;
            **outcome = Some(match writing.apply(write, next)? {
                Ok(()) => {
                    now.revision = next;
                    Ok(Revision(next.unsigned_abs()))
                }
                Err(current) => Err(Error::conflict(current)),
            });
        }
        if now != before {
            records::advance(connection, now)?;
        }
        Ok(())
    });
    let Err(fault) = outcome else { return };
    for (_, outcome) in share {
        let lost = match (&fault, outcome.as_ref()) {
            (WriteFault::NotDone(fault), _) => super::error(fault.clone()),
            // What it ran into may be a write of this very transaction. It did nothing, at any rate.
            (WriteFault::Open(why), Some(Err(_))) => Error::unavailable(why),
            (WriteFault::Open(why), _) => Error::unknown(why),
        };
        *outcome = Some(Err(lost));
    }
}

//! The thread that appends: whatever waits goes to the disk together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use parti_core::ids::{Offset, PartitionId};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::block::{self, Filling};
use super::rows::{self, MAX_OFFSET, Part};
use super::{LogError, NewRecord, TopicSettings, retention};
use crate::clock::{Clock, SystemClock};
use crate::sqlite::{Database, Pulse};

/// More batches than this do not wait: something is wrong, and memory is finite.
const QUEUE: usize = 4_096;

/// A transaction takes up to so many messages and bytes.
const MESSAGES: usize = 10_000;
const BYTES: u64 = 16 * 1024 * 1024;

type Placed = Result<Vec<(u32, u64)>, LogError>;

/// Messages with their partitions' numbers, on their way.
pub(super) struct Job {
    pub(super) records: Vec<(u32, NewRecord)>,
    /// A dead letter is kept once: where it came from.
    pub(super) origin: Option<(PartitionId, Offset)>,
    pub(super) reply: oneshot::Sender<Placed>,
}

impl Job {
    fn bytes(&self) -> u64 {
        self.records
            .iter()
            .map(|(_, record)| block::size(record))
            .sum()
    }
}

/// The way to the thread, which ends when this is dropped and the queue is empty.
#[derive(Debug)]
pub(super) struct Appender {
    jobs: SyncSender<Job>,
}

impl Appender {
    /// Starts the thread.
    pub(super) fn start(
        database: Database,
        settings: TopicSettings,
        pulse: Arc<Pulse>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("parti-log-append".into())
            .spawn(move || run(database, &settings, &queue, &pulse))?;
        Ok(Self { jobs })
    }

    /// Appends a batch; it is on the disk once this returns.
    pub(super) async fn append(
        &self,
        records: Vec<(u32, NewRecord)>,
        origin: Option<(PartitionId, Offset)>,
    ) -> Placed {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            records,
            origin,
            reply,
        };
        match self.jobs.try_send(job) {
            Ok(()) => answer.await.unwrap_or_else(|_| {
                Err(LogError::Unknown(
                    "the thread that appends has ended".into(),
                ))
            }),
            Err(TrySendError::Full(_)) => Err(LogError::Unavailable(format!(
                "{QUEUE} batches are waiting to be appended"
            ))),
            Err(TrySendError::Disconnected(_)) => Err(LogError::Unavailable(
                "the thread that appends has ended".into(),
            )),
        }
    }
}

fn run(mut database: Database, settings: &TopicSettings, queue: &Receiver<Job>, pulse: &Pulse) {
    let mut swept: Option<Instant> = None;
    while let Ok(first) = queue.recv() {
        let (mut count, mut bytes) = (first.records.len(), first.bytes());
        let mut jobs = vec![first];
        while count < MESSAGES
            && bytes < BYTES
            && let Ok(next) = queue.try_recv()
        {
            count += next.records.len();
            bytes += next.bytes();
            jobs.push(next);
        }
        let now_ms = SystemClock.wall_ms();
        let done = database.write(|connection| {
            let mut tails = BTreeMap::new();
            let placed = jobs
                .iter()
                .map(|job| place(connection, &mut tails, job, now_ms))
                .collect::<rusqlite::Result<Vec<_>>>()?;
            for (number, mut tail) in tails {
                tail.write(connection, number)?;
                rows::save_part(connection, number, tail.part)?;
            }
            Ok(placed)
        });
        pulse.wake();
        match done {
            Ok(placed) => {
                for (job, placed) in jobs.into_iter().zip(placed) {
                    let _ = job.reply.send(placed);
                }
            }
            Err(fault) => {
                let error = LogError::from(fault);
                for job in jobs {
                    let _ = job.reply.send(Err(error.clone()));
                }
            }
        }
        if swept.is_none_or(|at| at.elapsed() >= retention::EVERY) {
            swept = Some(Instant::now());
            retention::sweep(&mut database, settings, now_ms);
        }
    }
}

/// A partition's end, and what is about to lie there.
struct Tail {
    part: Part,
    block: Filling,
}

impl Tail {
    fn of(connection: &Connection, number: u32) -> rusqlite::Result<Option<Self>> {
        let part = rows::part(connection, number)?;
        Ok(part.map(|part| Self {
            part,
            block: Filling::default(),
        }))
    }

    /// Puts a message at the end; says its offset.
    fn push(
        &mut self,
        connection: &Connection,
        number: u32,
        record: &NewRecord,
    ) -> rusqlite::Result<u64> {
        let offset = self.part.next;
        self.block.push(record);
        self.part.next += 1;
        self.part.bytes += block::size(record);
        if self.block.is_full() {
            self.write(connection, number)?;
        }
        Ok(offset)
    }

    /// Writes what was not written.
    fn write(&mut self, connection: &Connection, number: u32) -> rusqlite::Result<()> {
        if !self.block.is_empty() {
            let last = rows::row(number, self.part.next - 1);
            rows::insert(connection, last, self.part.last_ms, &self.block)?;
            self.block.clear();
        }
        Ok(())
    }
}

/// Appends one job's messages. What is refused here is refused whole.
fn place(
    connection: &Connection,
    tails: &mut BTreeMap<u32, Tail>,
    job: &Job,
    now_ms: u64,
) -> rusqlite::Result<Placed> {
    let mut more: BTreeMap<u32, u64> = BTreeMap::new();
    for (number, _) in &job.records {
        *more.entry(*number).or_default() += 1;
    }
    for (number, more) in &more {
        if !tails.contains_key(number) {
            let Some(mut tail) = Tail::of(connection, *number)? else {
                let why = format!("the topic's partition {number} is missing");
                return Ok(Err(LogError::Corrupt(why)));
            };
            // Times never go back within a partition, so that they can be searched.
            tail.part.last_ms = tail.part.last_ms.max(now_ms);
            tails.insert(*number, tail);
        }
        let next = tails.get(number).map_or(0, |tail| tail.part.next);
        if next + more >= MAX_OFFSET {
            let why = format!("partition {number} has no offsets left");
            return Ok(Err(LogError::Rejected(why)));
        }
    }
    if let Some((partition, offset)) = &job.origin {
        let new = connection
            .prepare_cached("INSERT OR IGNORE INTO origins (partition, offset) VALUES (?1, ?2)")?
            .execute(params![partition.as_str(), offset.0.cast_signed()])?;
        if new == 0 {
            return Ok(Ok(Vec::new()));
        }
    }
    let mut placed = Vec::with_capacity(job.records.len());
    for (number, record) in &job.records {
        if let Some(tail) = tails.get_mut(number) {
            placed.push((*number, tail.push(connection, *number, record)?));
        }
    }
    Ok(Ok(placed))
}

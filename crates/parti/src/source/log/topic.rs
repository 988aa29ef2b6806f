//! One topic: appended to, read by partition and offset, followed as it grows.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64;

use super::appender::Appender;
use super::block;
use super::rows::{self, LAYOUT, unsigned};
use super::{LogError, MAX_MESSAGE, NewRecord, PartitionInfo, TopicInfo, TopicSettings};
use crate::clock::{Clock, SystemClock};
use crate::source::{
    Batch, DeadLetter, Growth, Offset, PartitionId, Source, SourceError, StartPosition,
};
use crate::sqlite::{Database, Pulse};
use crate::trace::Publishing;

/// The most bytes that one read yields, unless a single message is larger.
const READ_BYTES: usize = 8 * 1024 * 1024;

/// A topic of a [`super::Log`]. Clones share their threads.
#[derive(Clone)]
pub struct Topic {
    inner: Arc<Inner>,
}

struct Inner {
    topic: Arc<str>,
    shown: String,
    path: PathBuf,
    about: About,
    /// Connections that nobody reads with at the moment.
    readers: Mutex<Vec<Database>>,
    /// The first connection: further ones are made from it.
    root: Mutex<Database>,
    appender: Appender,
    pulse: Arc<Pulse>,
    /// Whose turn it is, among messages without a key.
    turn: AtomicU32,
}

#[derive(Clone, Debug)]
struct About {
    identity: u64,
    created_ms: u64,
    settings: TopicSettings,
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({})", self.inner.shown)
    }
}

fn gone(error: impl ToString) -> LogError {
    LogError::Unavailable(error.to_string())
}

impl Topic {
    /// Opens the file; with settings it makes the topic if there is none.
    pub(super) async fn open(
        path: PathBuf,
        name: &str,
        wanted: Option<TopicSettings>,
    ) -> Result<Self, LogError> {
        let name = name.to_owned();
        let opened = tokio::task::spawn_blocking(move || Inner::open(path, name, wanted)).await;
        let inner = opened.map_err(gone)??;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.topic
    }

    /// How many partitions it has.
    pub fn partitions(&self) -> u32 {
        self.inner.about.settings.partitions
    }

    fn number_of(&self, key: &[u8]) -> u32 {
        // The remainder is below the number of partitions, which is 32 bits wide.
        (xxh3_64(key) % u64::from(self.partitions())) as u32
    }

    /// The partition that a key's messages go to.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        PartitionId::new(self.number_of(key).to_string())
    }

    fn parse(&self, partition: &PartitionId) -> Result<u32, LogError> {
        let number: Option<u32> = partition.as_str().parse().ok();
        number
            .filter(|number| {
                *number < self.partitions() && number.to_string() == partition.as_str()
            })
            .ok_or_else(|| {
                LogError::Invalid(format!(
                    "topic {:?} has no partition {partition}: it has \"0\" to \"{}\"",
                    self.inner.topic,
                    self.partitions() - 1
                ))
            })
    }

    /// Appends messages, all with one sync. Once this returns they are on the disk; the answer says
    /// where each one is.
    pub async fn append(
        &self,
        records: Vec<NewRecord>,
    ) -> Result<Vec<(PartitionId, Offset)>, LogError> {
        let mut spans = Publishing::wanted();
        if let Some(spans) = &mut spans {
            for (place, record) in records.iter().enumerate() {
                let headers = record.headers.iter();
                let headers = headers.map(|(name, value)| (name.as_ref(), value.as_ref()));
                spans.begin(place, headers, &self.inner.topic);
            }
        }
        let numbered = records.into_iter().map(|record| {
            let size = block::size(&record);
            if size > MAX_MESSAGE as u64 {
                return Err(LogError::Invalid(format!(
                    "a message of {size} bytes is too large; the most is {MAX_MESSAGE}"
                )));
            }
            let number = match (&record.partition, &record.key) {
                (Some(partition), _) => self.parse(partition)?,
                (None, Some(key)) => self.number_of(key),
                (None, None) => self.inner.turn.fetch_add(1, Ordering::Relaxed) % self.partitions(),
            };
            Ok((number, record))
        });
        let numbered = numbered.collect::<Result<Vec<_>, _>>()?;
        if numbered.is_empty() {
            return Ok(Vec::new());
        }
        let placed = self.inner.appender.append(numbered, None).await?;
        // One name for each partition, not for each message.
        let mut names = BTreeMap::new();
        let named = placed.into_iter().map(|(number, offset)| {
            let name = names
                .entry(number)
                .or_insert_with(|| PartitionId::new(number.to_string()));
            (name.clone(), Offset(offset))
        });
        let named: Vec<_> = named.collect();
        if let Some(spans) = spans {
            spans.stored(&named);
        }
        Ok(named)
    }

    /// Messages of a partition from an offset on, in order: up to so many, and up to so many bytes of
    /// keys and payloads; the first one comes, however large it is.
    pub async fn read_within(
        &self,
        partition: &PartitionId,
        from: Offset,
        limit: usize,
        bytes: usize,
    ) -> Result<Batch, LogError> {
        let number = self.parse(partition)?;
        // A copy of its own: a count that all readers and handlers change is slow to change.
        let name: Arc<str> = Arc::from(&*self.inner.topic);
        let reading = self.inner.read(move |connection| {
            let part = rows::part(connection, number)?;
            let from = from.0.max(part.map_or(0, |part| part.first));
            let found = rows::messages(connection, &name, number, from, limit, bytes)?;
            Ok((part, found))
        });
        let (part, found) = reading.await?;
        let Some(part) = part else {
            return Err(missing(number));
        };
        let start = from.0.max(part.first);
        if let Some(until) = found.damaged_until
            && found.records.is_empty()
        {
            return Err(damaged(partition, start, until));
        }
        Ok(Batch {
            next: Offset(start + found.records.len() as u64),
            records: found.records,
            first: Offset(part.first),
            end: Offset(part.next),
        })
    }

    /// How the topic is now.
    pub async fn describe(&self) -> Result<TopicInfo, LogError> {
        let partitions = self.inner.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT number, first, next, bytes FROM partitions ORDER BY number",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(PartitionInfo {
                    id: PartitionId::new(unsigned(row, 0)?.to_string()),
                    first: Offset(unsigned(row, 1)?),
                    end: Offset(unsigned(row, 2)?),
                    bytes: unsigned(row, 3)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        let about = &self.inner.about;
        Ok(TopicInfo {
            name: self.inner.topic.to_string(),
            created_ms: about.created_ms,
            settings: about.settings.clone(),
            partitions: partitions.await?,
        })
    }

    /// Makes sure that messages can be appended, and that dead letters could have a topic beside this
    /// one. Nothing is left.
    pub async fn check_writable(&self) -> Result<(), LogError> {
        let inner = self.inner.clone();
        let checked = tokio::task::spawn_blocking(move || {
            lock(&inner.root).write(|_| Ok(()))?;
            make_and_remove(&inner.path)
        });
        checked.await.map_err(gone)?
    }

    /// The topic of what could not be handled.
    async fn letters(&self) -> Result<Topic, LogError> {
        let folder = self.inner.path.parent().unwrap_or(&self.inner.path);
        let log = super::Log {
            folder: folder.to_owned(),
        };
        let settings = TopicSettings::partitions(self.partitions());
        // Beside a topic that is there, whatever it is called.
        let name = format!("{}.dlq", self.inner.topic);
        Topic::open(log.file(&name)?, &name, Some(settings)).await
    }
}

impl Inner {
    fn open(path: PathBuf, name: String, wanted: Option<TopicSettings>) -> Result<Self, LogError> {
        let mut root = Database::open(&path, &LAYOUT)?;
        if let Some(settings) = &wanted {
            let identity = getrandom::u64().map_err(gone)?;
            root.write(|connection| create(connection, &name, settings, identity))?;
        }
        let Some(about) = root.read(about)? else {
            return Err(LogError::NoSuchTopic {
                topic: name,
                known: Vec::new(),
            });
        };
        if let Some(wanted) = wanted {
            check(&name, &about.settings, &wanted)?;
        }
        let pulse = Arc::new(Pulse::start(root.again(&LAYOUT)?).map_err(gone)?);
        let writing = root.again(&LAYOUT)?;
        let appender = Appender::start(writing, about.settings.clone(), pulse.clone());
        Ok(Self {
            shown: path.display().to_string(),
            topic: name.into(),
            path,
            about,
            readers: Mutex::default(),
            root: Mutex::new(root),
            appender: appender.map_err(gone)?,
            pulse,
            turn: AtomicU32::new(0),
        })
    }

    /// Reads in one transaction, on a thread that may block.
    fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T, LogError>> + Send + 'static {
        let inner = self.clone();
        async move {
            let read = tokio::task::spawn_blocking(move || {
                let idle = lock(&inner.readers).pop();
                let mut reader = match idle {
                    Some(reader) => reader,
                    None => lock(&inner.root).again(&LAYOUT)?,
                };
                let found = reader.read(work);
                lock(&inner.readers).push(reader);
                Ok(found?)
            });
            read.await.map_err(gone)?
        }
    }
}

/// A file beside this one, which is no topic's.
fn make_and_remove(beside: &Path) -> Result<(), LogError> {
    let number = getrandom::u64().map_err(gone)?;
    let scratch = beside.with_file_name(format!("=doctor-{number:x}"));
    let made = fs::File::create_new(&scratch).and_then(|_| fs::remove_file(&scratch));
    made.map_err(|error| {
        let folder = beside.parent().unwrap_or(beside).display();
        LogError::Rejected(format!(
            "no file can be made in {folder}, as the first dead letter does ({error}); give this user \
             the right to write the folder, on a file system that is not read-only"
        ))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn about(connection: &Connection) -> rusqlite::Result<Option<About>> {
    let sql =
        "SELECT identity, created_ms, partitions, retention_age_ms, retention_bytes FROM topic";
    connection
        .query_row(sql, [], |row| {
            Ok(About {
                identity: unsigned(row, 0)?,
                created_ms: unsigned(row, 1)?,
                settings: TopicSettings {
                    partitions: row.get(2)?,
                    retention_age: row
                        .get::<_, Option<i64>>(3)?
                        .map(|ms| Duration::from_millis(ms.cast_unsigned())),
                    retention_bytes: row.get::<_, Option<i64>>(4)?.map(i64::cast_unsigned),
                },
            })
        })
        .optional()
}

/// Refuses what a topic was not made with. A limit that is not asked for may be any.
fn check(topic: &str, has: &TopicSettings, asked: &TopicSettings) -> Result<(), LogError> {
    if has.partitions != asked.partitions {
        return Err(LogError::Mismatch {
            topic: topic.to_owned(),
            has: has.partitions,
            asked: asked.partitions,
        });
    }
    let other = |has: Option<String>, asked| LogError::OtherLimit {
        topic: topic.to_owned(),
        has: has.unwrap_or_else(|| "without such a limit".to_owned()),
        asked,
    };
    // As far as the file holds them.
    let age = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    if let Some(asked) = asked.retention_age
        && has.retention_age.map(age) != Some(age(asked))
    {
        let told = |age: Duration| format!("for {age:?}");
        return Err(other(has.retention_age.map(told), told(asked)));
    }
    if let Some(asked) = asked.retention_bytes
        && has.retention_bytes != Some(asked.min(i64::MAX.unsigned_abs()))
    {
        let told = |bytes: u64| format!("up to {bytes} bytes");
        return Err(other(has.retention_bytes.map(told), told(asked)));
    }
    Ok(())
}

/// Makes the topic, unless somebody was faster.
fn create(
    connection: &Connection,
    name: &str,
    settings: &TopicSettings,
    identity: u64,
) -> rusqlite::Result<()> {
    if about(connection)?.is_some() {
        return Ok(());
    }
    let age = settings
        .retention_age
        .map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let bytes = settings
        .retention_bytes
        .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    connection.execute(
        "INSERT INTO topic (name, partitions, identity, created_ms, retention_age_ms, retention_bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            name,
            settings.partitions,
            identity.cast_signed(),
            SystemClock.wall_ms().cast_signed(),
            age,
            bytes
        ],
    )?;
    let mut statement = connection.prepare(
        "INSERT INTO partitions (number, first, next, bytes, last_ms) VALUES (?1, 0, 0, 0, 0)",
    )?;
    for number in 0..settings.partitions {
        statement.execute([number])?;
    }
    Ok(())
}

#[async_trait]
impl Source for Topic {
    fn name(&self) -> &str {
        &self.inner.shown
    }

    async fn identity(&self) -> Result<u64, SourceError> {
        Ok(self.inner.about.identity)
    }

    fn partitions(&self) -> Option<u32> {
        Some(Topic::partitions(self))
    }

    async fn read(
        &self,
        partition: &PartitionId,
        from: Offset,
        limit: usize,
    ) -> Result<Batch, SourceError> {
        let reading = self.read_within(partition, from, limit, READ_BYTES);
        Ok(reading.await?)
    }

    async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, SourceError> {
        let number = self.parse(partition)?;
        let reading = self.inner.read(move |connection| {
            let Some(part) = rows::part(connection, number)? else {
                return Ok(None);
            };
            Ok(Some(match start {
                StartPosition::Latest => part.next,
                StartPosition::Earliest => part.first,
                StartPosition::Offset(offset) => offset.clamp(part.first, part.next),
                StartPosition::Time(ms) => rows::first_since(connection, number, part, ms)?,
            }))
        });
        match reading.await? {
            Some(offset) => Ok(Offset(offset)),
            None => Err(missing(number).into()),
        }
    }

    fn growth(&self) -> BoxStream<'static, Growth> {
        let following = Following {
            topic: self.clone(),
            beats: self.inner.pulse.follow(),
            ends: None,
            grown: VecDeque::new(),
        };
        stream::unfold(following, |mut following| async move {
            let growth = following.next().await?;
            Some((growth, following))
        })
        .boxed()
    }

    async fn dead_letter(&self, letter: DeadLetter) -> Result<(), SourceError> {
        let number = self.parse(&letter.partition)?;
        let letters = self.letters().await?;
        let mut headers = Vec::from(letter.record.headers);
        let about = [
            ("parti-topic", self.inner.topic.to_string()),
            ("parti-partition", letter.partition.to_string()),
            ("parti-offset", letter.record.offset.to_string()),
            ("parti-attempts", letter.attempts.to_string()),
            ("parti-error", letter.error),
        ];
        headers.extend(about.map(|(name, value)| (name.to_owned(), Bytes::from(value))));
        let record = NewRecord {
            key: letter.record.key,
            headers,
            payload: letter.record.payload,
            partition: None,
        };
        let origin = Some((letter.partition, letter.record.offset));
        letters
            .inner
            .appender
            .append(vec![(number, record)], origin)
            .await?;
        Ok(())
    }
}

fn missing(number: u32) -> LogError {
    LogError::Corrupt(format!("partition {number} is missing"))
}

fn damaged(partition: &PartitionId, from: u64, until: u64) -> LogError {
    LogError::Corrupt(format!(
        "partition {partition} has no sound message from offset {from} to {}; restore the topic's \
         file from a backup, or set the checkpoint to {until}, which skips them",
        until.saturating_sub(1)
    ))
}

/// Which partitions grew, told one by one.
struct Following {
    topic: Topic,
    beats: watch::Receiver<u64>,
    ends: Option<Vec<u64>>,
    grown: VecDeque<u32>,
}

impl Following {
    async fn next(&mut self) -> Option<Growth> {
        loop {
            if let Some(number) = self.grown.pop_front() {
                return Some(Growth::Partition(PartitionId::new(number.to_string())));
            }
            self.beats.changed().await.ok()?;
            match self.topic.inner.read(rows::ends).await {
                Ok(ends) => {
                    let before = self.ends.replace(ends.clone());
                    let grew = |number: usize| {
                        let before = before.as_ref().and_then(|before| before.get(number));
                        before != ends.get(number)
                    };
                    let numbers = (0..ends.len()).filter(|number| grew(*number));
                    self.grown
                        .extend(numbers.filter_map(|n| u32::try_from(n).ok()));
                }
                // Reads will say what is wrong; whoever waits should look.
                Err(_) => return Some(Growth::Any),
            }
        }
    }
}

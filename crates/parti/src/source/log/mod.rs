//! The embedded log: topics in a folder, one SQLite file each.
//!
//! ```text
//!   log:DIR ─┬─ orders.topic      N fixed partitions, offsets from 0 without gaps in each
//!            └─ orders=2Edlq.topic  what could not be handled
//!
//!   append(batch) ─┐
//!   append(batch) ─┴▶ appender: all that waits in one transaction, one sync ──▶ acknowledged
//!   read ──▶ a few threads, one short transaction each
//!   growth ◀── pulse: a look at shared memory every few milliseconds, while somebody follows
//! ```
//!
//! Several processes of one machine may append and read at once. What was acknowledged is on the
//! disk: a crash at any moment leaves a readable log with all of it. What was appended to a partition
//! at once lies there as one block with one checksum.
//! The number of partitions is recorded with the topic, and never changes: a key's messages would
//! then be in two partitions.

mod appender;
mod block;
mod error;
mod retention;
mod rows;
#[cfg(test)]
mod tests;
mod topic;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use parti_core::codec;
use parti_core::ids::{Offset, PartitionId};

pub use error::LogError;
pub use topic::Topic;

/// The most partitions of a topic.
pub const MAX_PARTITIONS: u32 = 1 << 20;
/// The largest message: key, headers and payload together, in bytes.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

const EXTENSION: &str = "topic";

/// A folder with topics.
///
/// ```
/// use parti::source::log::{Log, NewRecord, TopicSettings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let log = Log::open(folder.path().join("data")).await?;
/// let orders = log.create_topic("orders", TopicSettings::partitions(12)).await?;
/// let placed = orders.append(vec![NewRecord::new("one").with_key("customer-7")]).await?;
/// assert_eq!(placed[0].0, orders.partition_of(b"customer-7"));
///
/// // Another number of partitions is refused.
/// assert!(log.create_topic("orders", TopicSettings::partitions(13)).await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    folder: PathBuf,
}

/// What a topic is made with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicSettings {
    /// How many partitions, for good.
    pub partitions: u32,
    /// Messages older than this are removed.
    pub retention_age: Option<Duration>,
    /// A partition's oldest messages are removed beyond this size, in bytes.
    pub retention_bytes: Option<u64>,
}

impl TopicSettings {
    /// So many partitions that keep everything.
    pub fn partitions(partitions: u32) -> Self {
        Self {
            partitions,
            ..Self::default()
        }
    }
}

/// A message to append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord {
    /// Messages with one key go to one partition, in order.
    pub key: Option<Bytes>,
    /// Headers, in order.
    pub headers: Vec<(String, Bytes)>,
    /// What it carries.
    pub payload: Bytes,
    /// A partition of the producer's own choice; by default the key decides, or the turn.
    pub partition: Option<PartitionId>,
}

impl NewRecord {
    /// A message with this payload.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: payload.into(),
            ..Self::default()
        }
    }

    /// The same with a key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// A topic as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// What it was made with.
    pub settings: TopicSettings,
    /// Its partitions, by number.
    pub partitions: Vec<PartitionInfo>,
}

/// A partition of a topic as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its id: its number.
    pub id: PartitionId,
    /// The oldest offset that retention has kept.
    pub first: Offset,
    /// One past the newest offset.
    pub end: Offset,
    /// Bytes of keys, headers and payloads.
    pub bytes: u64,
}

impl Log {
    /// The log in this folder. If there is none, the first topic makes it.
    pub async fn open(folder: impl Into<PathBuf>) -> Result<Self, LogError> {
        let log = Self {
            folder: folder.into(),
        };
        log.on_disk(|folder| match fs::metadata(folder) {
            Ok(found) if !found.is_dir() => Err("it is not a folder; name another".to_owned()),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(unreadable(&error)),
            _ => Ok(()),
        })
        .await?;
        Ok(log)
    }

    /// Whether its folder is there.
    pub async fn is_there(&self) -> Result<bool, LogError> {
        let folder = self.folder.clone();
        match tokio::task::spawn_blocking(move || folder.try_exists()).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(refused(&self.folder, &error)),
            Err(error) => Err(LogError::Unavailable(error.to_string())),
        }
    }

    /// Something with the folder that may take its time.
    async fn on_disk(
        &self,
        work: impl FnOnce(&Path) -> Result<(), String> + Send + 'static,
    ) -> Result<(), LogError> {
        let folder = self.folder.clone();
        match tokio::task::spawn_blocking(move || work(&folder)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(LogError::Rejected(format!(
                "log:{}: {why}",
                self.folder.display()
            ))),
            Err(error) => Err(LogError::Unavailable(error.to_string())),
        }
    }

    fn file(&self, topic: &str) -> Result<PathBuf, LogError> {
        let token = codec::escape(topic);
        if token.is_empty() || token.len() > codec::MAX_TOPIC {
            return Err(LogError::Invalid(format!(
                "a topic's name has from 1 to {} bytes once escaped, this one has {}",
                codec::MAX_TOPIC,
                token.len()
            )));
        }
        Ok(self.folder.join(token).with_added_extension(EXTENSION))
    }

    /// Makes a topic. If there is one of this name already, it must have as many partitions, and
    /// the limits that are asked for.
    pub async fn create_topic(
        &self,
        name: &str,
        settings: TopicSettings,
    ) -> Result<Topic, LogError> {
        if settings.partitions == 0 || settings.partitions > MAX_PARTITIONS {
            return Err(LogError::Invalid(format!(
                "topic {name:?} cannot have {} partitions; give from 1 to {MAX_PARTITIONS}",
                settings.partitions
            )));
        }
        let nothing = match (settings.retention_age, settings.retention_bytes) {
            (Some(Duration::ZERO), _) => Some("an age of 0s"),
            (_, Some(0)) => Some("a size of 0 bytes"),
            _ => None,
        };
        if let Some(limit) = nothing {
            return Err(LogError::Invalid(format!(
                "topic {name:?} cannot keep messages up to {limit}: nobody would ever see one; \
                 give more, or no limit"
            )));
        }
        let file = self.file(name)?;
        if !is_file(&file)? {
            codec::check_readable("topic", name)
                .map_err(|problem| LogError::Invalid(problem.to_string()))?;
        }
        self.on_disk(|folder| match fs::create_dir(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(format!(
                "the folder cannot be made: {error}; give one in a folder that is there, and that this \
                 user may write to"
            )),
            _ => Ok(()),
        })
        .await?;
        Topic::open(file, name, Some(settings)).await
    }

    /// A topic that is there.
    pub async fn topic(&self, name: &str) -> Result<Topic, LogError> {
        let file = self.file(name)?;
        let missing = || match self.names() {
            Ok(known) => LogError::NoSuchTopic {
                topic: name.to_owned(),
                known,
            },
            // What cannot be looked at may hold it.
            Err(error) => error,
        };
        if !is_file(&file)? {
            return Err(missing());
        }
        match Topic::open(file, name, None).await {
            Err(LogError::NoSuchTopic { .. }) => Err(missing()),
            other => other,
        }
    }

    /// The names of all topics.
    pub async fn topics(&self) -> Result<Vec<String>, LogError> {
        let log = self.clone();
        tokio::task::spawn_blocking(move || log.names())
            .await
            .map_err(|error| LogError::Unavailable(error.to_string()))?
    }

    fn names(&self) -> Result<Vec<String>, LogError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(refused(&self.folder, &error)),
        };
        let names: BTreeSet<String> = entries
            .filter_map(|entry| name_of(&entry.ok()?.path()))
            .collect();
        Ok(names.into_iter().collect())
    }
}

/// Whether there is such a file; an error if that cannot be seen.
fn is_file(path: &Path) -> Result<bool, LogError> {
    path.try_exists().map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &io::Error) -> LogError {
    LogError::Rejected(format!("log:{}: {}", path.display(), unreadable(error)))
}

/// Why something cannot be looked at, and what to do.
fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("{error}; let this user read the folder and what is in it")
        }
        _ => error.to_string(),
    }
}

/// The topic that a file holds, by its name.
fn name_of(file: &Path) -> Option<String> {
    if file.extension()? != EXTENSION {
        return None;
    }
    codec::unescape(file.file_stem()?.to_str()?)
}

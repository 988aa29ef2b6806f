//! Where the list of partitions comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use parti_core::ids::PartitionId;
pub use parti_core::partition::Partition;
use parti_core::problem::{Problem, Problems};

use crate::handler::HandlerError;
use crate::store::{Change, Scope, Store};

/// Lists the partitions of a group. Every worker of a group must list the same, and of a source that
/// was made with a number of partitions ([`Source::partitions`](crate::source::Source::partitions))
/// all of them: what nobody lists, nobody handles.
#[async_trait]
pub trait PartitionSource: fmt::Debug + Send + Sync + 'static {
    /// All partitions there are. A failed listing leaves the last list in force.
    async fn list(&self) -> Result<Vec<Partition>, HandlerError>;

    /// The same list, sorted, and refused if it has duplicates. A source that has it in this form
    /// shares it, so that many workers of one process do not have a copy each.
    async fn shared(&self) -> Result<Arc<[Partition]>, HandlerError> {
        Ok(parti_core::partition::list(self.list().await?)?)
    }

    /// Tells when the list may have changed. By default only a refresh does.
    fn changes(&self) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }
}

/// A list that does not change.
#[derive(Clone, Debug)]
pub struct StaticPartitions(Arc<[Partition]>);

impl StaticPartitions {
    /// These partitions; duplicates are refused, all of them at once.
    pub fn new(partitions: Vec<Partition>) -> Result<Self, Problems> {
        parti_core::partition::list(partitions).map(Self)
    }

    /// `count` partitions with the ids `0` to `count - 1`.
    pub fn numbered(count: u32) -> Self {
        Self(parti_core::partition::numbered(count))
    }
}

#[async_trait]
impl PartitionSource for StaticPartitions {
    async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
        Ok(self.0.to_vec())
    }

    async fn shared(&self) -> Result<Arc<[Partition]>, HandlerError> {
        Ok(self.0.clone())
    }
}

/// Parses a list as people write it: a JSON or YAML array of `{keys: [...], weight: n}`, or plain
/// lines with one id's keys each, separated by dots. Whatever is there twice is refused.
fn parse(text: &str) -> Result<Vec<Partition>, HandlerError> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let named = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut named = named.peekable();
    if let Some((_, first)) = named.peek()
        && (first.starts_with('[')
            || ["-", "---"].contains(first)
            || ["- ", "--- ", "%YAML "]
                .iter()
                .any(|start| first.starts_with(start)))
    {
        let partitions = parti_core::partition::from_yaml(text)?;
        parti_core::partition::list(partitions.clone())?;
        return Ok(partitions);
    }
    let mut partitions = Vec::new();
    let mut lines: BTreeMap<PartitionId, usize> = BTreeMap::new();
    for (number, line) in named {
        let partition = of_line(line).map_err(|problem| format!("line {number}: {problem}"))?;
        if let Some(first) = lines.insert(partition.id.clone(), number) {
            return Err(format!(
                "line {number}: partition {} is in line {first} already; list each partition once",
                partition.id
            )
            .into());
        }
        partitions.push(partition);
    }
    Ok(partitions)
}

/// The partition of a plain line.
fn of_line(line: &str) -> Result<Partition, Problem> {
    if line.starts_with(['{', '[']) || line.ends_with(':') || line.contains(": ") {
        return Err(Problem::new(
            "partition",
            line,
            "is a setting, and no partition's keys",
            "write one partition a line, such as tool001.chamber1, or a list: - keys: [tool001, \
             chamber1]",
        ));
    }
    Partition::new(line.split('.'), None)
}

/// A list in a file: JSON, YAML, or a line for each. Read anew at every listing.
#[derive(Clone, Debug)]
pub struct FilePartitions(PathBuf);

impl FilePartitions {
    /// The list in this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

#[async_trait]
impl PartitionSource for FilePartitions {
    async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
        let path = self.0.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await?;
        let text = read.map_err(|error| format!("{}: {error}", self.0.display()))?;
        parse(&text).map_err(|error| format!("{}: {error}", self.0.display()).into())
    }
}

/// A list under a key of a store, in the same forms as a file's; whoever writes it there changes
/// the group at once.
#[derive(Clone, Debug)]
pub struct StoredPartitions {
    store: Arc<dyn Store>,
    key: String,
}

impl StoredPartitions {
    /// The list at this key.
    pub fn new(store: Arc<dyn Store>, key: impl Into<String>) -> Self {
        Self {
            store,
            key: key.into(),
        }
    }
}

#[async_trait]
impl PartitionSource for StoredPartitions {
    async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
        let Some(entry) = self.store.read(&self.key).await? else {
            return Err(format!("there is no list of partitions at {}", self.key).into());
        };
        let text = std::str::from_utf8(&entry.value)?;
        parse(text).map_err(|error| format!("{}: {error}", self.key).into())
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let changes = self.store.watch(Scope::Key(self.key.clone()));
        changes
            .filter_map(|change| {
                let told = matches!(change, Change::Put(_)).then_some(());
                async move { told }.boxed()
            })
            .boxed()
    }
}

/// The list of a log that was made with so many partitions: no other one passes.
#[derive(Debug)]
pub(crate) struct PartitionsOf {
    pub log: String,
    pub count: u32,
    pub listed: Arc<dyn PartitionSource>,
}

#[async_trait]
impl PartitionSource for PartitionsOf {
    async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
        Ok(self.shared().await?.to_vec())
    }

    async fn shared(&self) -> Result<Arc<[Partition]>, HandlerError> {
        let listed = self.listed.shared().await?;
        parti_core::partition::made_with(&listed, &self.log, self.count)?;
        Ok(listed)
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        self.listed.changes()
    }
}

#[async_trait]
impl PartitionSource for Box<dyn PartitionSource> {
    async fn list(&self) -> Result<Vec<Partition>, HandlerError> {
        self.as_ref().list().await
    }

    async fn shared(&self) -> Result<Arc<[Partition]>, HandlerError> {
        self.as_ref().shared().await
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        self.as_ref().changes()
    }
}

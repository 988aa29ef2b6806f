//! Where groups and messages are.
//!
//! ```text
//!   group ──▶ topics/<group>/<topic> in the store, else by the identity of its log ──▶ Topic
//!         └─▶ made without a log: its topic is only a name, and its messages are elsewhere
//!   topic ──▶ opened once, shared by all requests ──▶ append, read, growth
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use futures_util::StreamExt;
use parti::core::key::{Key, Prefix};
use parti::core::record::{GroupRecord, Record, TopicRecord};
use parti::inspect::{self, Bounds, Group};
use parti::source::log::{Log, LogError, Topic};
use parti::source::place::{Located, Place, PlaceError};
use parti::source::{Growth, JetStream, Source as _, SourceError};
use parti::store::{GroupStore, Store};
use parti::{Offset, PartitionId, SourceId, StartPosition};
use tokio::sync::{Mutex, broadcast};
use tokio_util::task::AbortOnDropHandle;

use crate::failure::{Failure, no_group};
use crate::standing::{Observed, Standing};

/// News of growth that wait for a slow listener.
const GROWTHS: usize = 1_024;

/// Where messages come from.
#[derive(Debug)]
pub enum Source {
    /// A folder with topics: the only kind that can be produced to and fetched from here.
    Log(Log),
    /// A stream, for what is known of ends and lag.
    Stream(Box<JetStream>),
}

/// A topic that is open.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The topic.
    pub topic: Topic,
    /// Tells which partitions grew.
    pub growth: broadcast::Sender<Growth>,
    /// Where partitions end, as last seen: they only grow. One for all sessions, because a thousand
    /// would have a thousand of the same.
    ends: Arc<StdMutex<BTreeMap<PartitionId, Bounds>>>,
    _listening: Arc<AbortOnDropHandle<()>>,
}

impl Opened {
    fn new(topic: Topic) -> Self {
        let (growth, _) = broadcast::channel(GROWTHS);
        let (mut grown, tell) = (topic.growth(), growth.clone());
        let listening = tokio::spawn(async move {
            while let Some(news) = grown.next().await {
                // Nobody may be listening.
                let _ = tell.send(news);
            }
        });
        Self {
            topic,
            growth,
            ends: Arc::default(),
            _listening: Arc::new(AbortOnDropHandle::new(listening)),
        }
    }
}

impl Opened {
    /// Whether the log has each of these messages, as far as is known: it is asked again if one
    /// seems to be missing.
    pub async fn has(&self, messages: &[(PartitionId, Offset)]) -> Result<Vec<bool>, Failure> {
        let ends = || self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let look = |ends: &BTreeMap<PartitionId, Bounds>| {
            let has = |(partition, offset): &(PartitionId, Offset)| {
                let bounds = ends.get(partition);
                bounds.is_some_and(|bounds| *offset < bounds.end)
            };
            messages.iter().map(has).collect::<Vec<bool>>()
        };
        let known = look(&ends());
        if known.iter().all(|has| *has) {
            return Ok(known);
        }
        let now = self.topic.bounds().await?;
        let known = look(&now);
        *ends() = now;
        Ok(known)
    }
}

/// Where the messages of a group are.
#[derive(Clone, Debug)]
pub enum Messages {
    /// In a topic of the log that is here.
    Here(Opened),
    /// Where only its consumers know.
    Elsewhere,
}

impl Messages {
    /// Which log it is.
    pub async fn identity(&self) -> Result<SourceId, Failure> {
        match self {
            Self::Here(opened) => Ok(opened.topic.identity().await?.into()),
            Self::Elsewhere => Ok(SourceId::NoLog),
        }
    }

    /// Whether there are these messages. Of those elsewhere, consumers know best.
    pub async fn has(&self, messages: &[(PartitionId, Offset)]) -> Result<Vec<bool>, Failure> {
        match self {
            Self::Here(opened) => opened.has(messages).await,
            Self::Elsewhere => Ok(vec![true; messages.len()]),
        }
    }

    /// The offset that a start position stands for.
    pub async fn resolve(
        &self,
        partition: &PartitionId,
        start: StartPosition,
    ) -> Result<Offset, SourceError> {
        match (self, start) {
            (Self::Here(opened), start) => opened.topic.resolve(partition, start).await,
            (Self::Elsewhere, StartPosition::Earliest) => Ok(Offset(0)),
            (Self::Elsewhere, StartPosition::Offset(offset)) => Ok(Offset(offset)),
            (Self::Elsewhere, StartPosition::Latest | StartPosition::Time(_)) => Err(
                SourceError::Rejected("the group was made without a log that has an end".into()),
            ),
        }
    }
}

/// Where groups and messages are.
#[derive(Debug)]
pub struct Places {
    store: Arc<dyn Store>,
    /// How its store and log did at their last work.
    pub standing: Arc<Standing>,
    source: Option<Source>,
    topics: Mutex<BTreeMap<String, Opened>>,
}

impl Places {
    /// On this store, with this source.
    pub fn new(store: Arc<dyn Store>, source: Option<Source>) -> Self {
        let standing = Arc::new(Standing::default());
        Self {
            store: Arc::new(Observed::new(store, standing.clone())),
            standing,
            source,
            topics: Mutex::default(),
        }
    }

    /// The store beneath.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// A group's records, whether there is one or not.
    pub fn records(&self, group: &str) -> Result<GroupStore, Failure> {
        let records = GroupStore::new(self.store.clone(), group);
        records.map_err(|error| {
            Failure::bad(
                error,
                "give the name of a group: GET /v1/groups has all of them",
            )
        })
    }

    /// A group that is there.
    pub async fn group(&self, records: &GroupStore) -> Result<Group, Failure> {
        let found = inspect::group(records).await?;
        found.ok_or_else(|| no_group(format!("there is no group {:?}", records.group())))
    }

    /// The log with topics.
    pub fn log(&self) -> Result<&Log, Failure> {
        match &self.source {
            Some(Source::Log(log)) => Ok(log),
            _ => Err(Failure::conflict(
                "this service has no log to produce to or fetch from",
                "start it with --source log:FOLDER",
            )),
        }
    }

    /// Whether groups that are made here have their messages in its log. Over a stream there are
    /// none to be made: what its consumers read is not here, and has an identity all the same.
    pub fn makes_topics(&self) -> Result<bool, Failure> {
        match &self.source {
            None => Ok(false),
            Some(Source::Log(_)) => Ok(true),
            Some(Source::Stream(_)) => Err(Failure::conflict(
                "this service is over a stream, and makes no groups",
                "start it with --source log:FOLDER, or without a source for groups whose consumers \
                 read their messages elsewhere",
            )),
        }
    }

    /// What a group was made with, if it is there.
    pub async fn made_with(
        &self,
        records: &GroupStore,
    ) -> Result<Option<Arc<GroupRecord>>, Failure> {
        match records.read(&Key::Group).await?.map(|stored| stored.record) {
            None => Ok(None),
            Some(Record::Group(record)) => Ok(Some(record)),
            Some(_) => Err(Failure::broken(
                "store_refuses",
                format!(
                    "the record of the group {:?} cannot be read",
                    records.group()
                ),
            )),
        }
    }

    /// Where the messages of a group are. What it was made with decides that, and not what there is
    /// here: over a log it goes on with that log alone.
    pub async fn messages_of(
        &self,
        records: &GroupStore,
        topic: &str,
    ) -> Result<Messages, Failure> {
        let made = self.made_with(records).await?;
        if made.is_some_and(|made| made.stream == SourceId::NoLog) {
            return Ok(Messages::Elsewhere);
        }
        if !matches!(self.source, Some(Source::Log(_))) {
            self.standing.group_has_its_log(records.group(), false);
            return Err(Failure::replaced(
                "the group is about a topic of a log, and this instance has no log: start it with \
                 --source log:FOLDER",
            ));
        }
        Ok(Messages::Here(self.topic_of_group(topic).await?))
    }

    /// Whether the log is where it was. One without topics need not be there yet.
    pub async fn keeps_its_log(&self) -> Result<bool, LogError> {
        let Some(Source::Log(log)) = &self.source else {
            return Ok(true);
        };
        let has_none = self.topics.lock().await.is_empty();
        Ok(has_none || log.is_there().await?)
    }

    /// A topic of the log, by the name that somebody gave.
    pub async fn topic(&self, name: &str) -> Result<Opened, Failure> {
        Ok(self.look_up(name).await??)
    }

    /// The same, if there is one.
    pub async fn topic_if_any(&self, name: &str) -> Result<Option<Opened>, Failure> {
        Ok(self.look_up(name).await?.ok())
    }

    /// The inner error is that there is no such topic.
    async fn look_up(&self, name: &str) -> Result<Result<Opened, LogError>, Failure> {
        let mut topics = self.topics.lock().await;
        if let Some(topic) = topics.get(name) {
            return Ok(Ok(topic.clone()));
        }
        let opened = match self.log()?.topic(name).await {
            Ok(topic) => Opened::new(topic),
            Err(error @ LogError::NoSuchTopic { .. }) => return Ok(Err(error)),
            Err(error) => return Err(error.into()),
        };
        topics.insert(name.to_owned(), opened.clone());
        Ok(Ok(opened))
    }

    /// The topic that a group is recorded to be about: if it is missing, somebody removed it.
    pub async fn topic_of_group(&self, name: &str) -> Result<Opened, Failure> {
        let found = self.look_up(name).await?;
        self.standing.log_has(found.is_ok());
        found.map_err(|error| {
            let why = format!("the group is about a topic that is gone: {error}");
            Failure::broken("source_refuses", why)
        })
    }

    /// What is recorded of a group's topic: its name, and how it is split.
    pub async fn recorded(
        &self,
        records: &GroupStore,
    ) -> Result<Option<(Arc<str>, Arc<TopicRecord>)>, Failure> {
        let all = records.list(Prefix::Topics).await?;
        Ok(all
            .into_iter()
            .find_map(|stored| match (stored.key, stored.record) {
                (Key::Topic(name), Record::Topic(record)) => Some((name, record)),
                _ => None,
            }))
    }

    /// The topic that a group is about, if the log has it.
    async fn topic_of(
        &self,
        records: &GroupStore,
        group: &Group,
    ) -> Result<Option<Topic>, Failure> {
        // Without a log its topic is only a name.
        let SourceId::Told(identity) = group.stream else {
            return Ok(None);
        };
        if let Some((name, _)) = self.recorded(records).await? {
            return Ok(Some(self.topic_of_group(&name).await?.topic));
        }
        for name in self.log()?.topics().await? {
            // One that cannot be opened is none of this group's business.
            let Ok(opened) = self.topic(&name).await else {
                continue;
            };
            if opened.topic.identity().await? == identity.get() {
                return Ok(Some(opened.topic));
            }
        }
        Ok(None)
    }

    /// What a group's messages are in, if that is known here.
    pub async fn located(
        &self,
        records: &GroupStore,
        group: &Group,
    ) -> Result<Option<Located>, Failure> {
        Ok(match &self.source {
            None => None,
            Some(Source::Stream(stream)) => Some(Located::Stream(stream.clone())),
            Some(Source::Log(_)) => self.topic_of(records, group).await?.map(Located::Topic),
        })
    }

    /// Where a group's partitions begin and end, as far as that is known here and now.
    pub async fn bounds(
        &self,
        records: &GroupStore,
        group: &Group,
    ) -> Option<BTreeMap<PartitionId, Bounds>> {
        let bounds = async {
            match self.located(records, group).await? {
                // Its offsets say nothing about these checkpoints.
                Some(source) if group.is_of_other(source.identity().await?) => Ok(None),
                Some(source) => Ok(Some(source.bounds(&group.partition_ids()).await?)),
                None => Ok(None),
            }
        };
        bounds.await.unwrap_or_else(|error: Failure| {
            tracing::debug!(group = records.group(), "no lag: {}", error.message());
            None
        })
    }

    /// Tells the group where its partitions begin and end. What cannot be known now is left out:
    /// whoever looks sees the rest.
    pub async fn locate(&self, records: &GroupStore, group: &mut Group) {
        if let Some(bounds) = self.bounds(records, group).await {
            group.locate(&bounds);
        }
    }
}

/// The source that a URL names: `log:FOLDER` or `jetstream://HOST:PORT/STREAM`.
pub async fn open_source(url: &str) -> Result<Source, PlaceError> {
    Ok(match Place::of(url).await? {
        Place::Log(log) => Source::Log(log),
        Place::Stream(url) => Source::Stream(Box::new(JetStream::connect(&url).await?)),
    })
}

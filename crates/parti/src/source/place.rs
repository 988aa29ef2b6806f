//! Sources by their URL, for programs that serve or look at whatever they are given.
//!
//! ```text
//!   log:FOLDER              ──▶ Place::Log ── a topic ──┐
//!   jetstream://HOST/STREAM ──▶ Place::Stream ──────────┴▶ Located ──▶ bounds, ranges, offsets
//! ```

use std::collections::BTreeMap;

use super::log::{Log, LogError, Topic};
use super::{JetStream, Offset, PartitionId, Source as _, SourceError, StartPosition};
use crate::inspect::Bounds;

/// What a URL names. Nothing is connected yet.
#[derive(Clone, Debug)]
pub enum Place {
    /// A folder with topics.
    Log(Log),
    /// The URL of a stream.
    Stream(String),
}

impl Place {
    /// What this URL names: `log:FOLDER` or `jetstream://HOST:PORT/STREAM`.
    pub async fn of(url: &str) -> Result<Self, PlaceError> {
        match url.split_once(':') {
            Some(("log", folder)) if !folder.is_empty() => Ok(Self::Log(Log::open(folder).await?)),
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("jetstream") => {
                match JetStream::check_url(url) {
                    Ok(()) => Ok(Self::Stream(url.to_owned())),
                    Err(SourceError::Rejected(why)) => Err(PlaceError::Url(why.to_string())),
                    Err(other) => Err(other.into()),
                }
            }
            _ => Err(PlaceError::Url(
                "this is neither a log nor a stream: give it as log:FOLDER, such as log:data, or as \
                 jetstream://HOST:4222/STREAM"
                    .into(),
            )),
        }
    }
}

/// Why a place, or what is there, cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PlaceError {
    /// It is no URL of a source, for this reason.
    #[error("{0}")]
    Url(String),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The stream cannot be used.
    #[error(transparent)]
    Stream(#[from] SourceError),
}

/// What a group's messages are in.
#[derive(Clone, Debug)]
pub enum Located {
    /// A topic of a log.
    Topic(Topic),
    /// A stream.
    Stream(Box<JetStream>),
}

impl Located {
    /// Which log this is.
    pub async fn identity(&self) -> Result<u64, PlaceError> {
        Ok(match self {
            Self::Topic(topic) => topic.identity().await?,
            Self::Stream(stream) => stream.identity(),
        })
    }

    /// How many partitions it was made with, if it was made with a number: `0` to one less.
    pub fn partitions(&self) -> Option<u32> {
        match self {
            Self::Topic(topic) => Some(topic.partitions()),
            Self::Stream(stream) => stream.partitions(),
        }
    }

    /// The topic's name, if it is one.
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::Topic(topic) => Some(topic.name()),
            Self::Stream(_) => None,
        }
    }

    /// Where partitions begin and end.
    pub async fn bounds(
        &self,
        partitions: &[PartitionId],
    ) -> Result<BTreeMap<PartitionId, Bounds>, PlaceError> {
        Ok(match self {
            Self::Topic(topic) => topic.bounds().await?,
            Self::Stream(stream) => stream.bounds(partitions).await?,
        })
    }

    /// Where partitions can go on, without asking where the messages of each are.
    pub async fn ranges(
        &self,
        partitions: &[PartitionId],
    ) -> Result<BTreeMap<PartitionId, Bounds>, PlaceError> {
        match self {
            Self::Topic(_) => self.bounds(partitions).await,
            Self::Stream(stream) => {
                let (first, end) = stream.range().await?;
                let head = end;
                let range = |id: &PartitionId| (id.clone(), Bounds { first, end, head });
                Ok(partitions.iter().map(range).collect())
            }
        }
    }

    /// The offset that a position stands for.
    pub async fn resolve(
        &self,
        partition: &PartitionId,
        position: StartPosition,
    ) -> Result<Offset, PlaceError> {
        Ok(match self {
            Self::Topic(topic) => topic.resolve(partition, position).await?,
            Self::Stream(stream) => stream.resolve(partition, position).await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_names_a_log_or_a_stream_and_what_is_neither_says_how() {
        assert!(matches!(Place::of("log:data").await, Ok(Place::Log(_))));
        let stream = "JetStream://127.0.0.1:4222/ORDERS";
        assert!(matches!(Place::of(stream).await, Ok(Place::Stream(url)) if url == stream));
        for wrong in ["", "data", "log:", "nats://127.0.0.1", "file:data"] {
            let refused = Place::of(wrong).await.expect_err(wrong);
            let PlaceError::Url(why) = refused else {
                panic!("{wrong}: {refused:?}");
            };
            assert!(why.contains("give it as log:FOLDER"), "{wrong}: {why}");
        }
        let refused = Place::of("jetstream://127.0.0.1:4222").await;
        assert!(matches!(refused, Err(PlaceError::Url(_))), "{refused:?}");
    }
}

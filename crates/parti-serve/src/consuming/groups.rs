//! Groups that are made over HTTP: a topic with a fixed number of partitions, and how they are
//! spread. Recorded in the group's own records, so that every instance knows it.
//!
//! ```text
//!   names, numbers ──▶ what is there already? ──▶ the topic ──▶ group, topics/<topic>
//!        400                409: nothing is made   │            written if absent: this decides
//!                                                  └ without a log it is only a name
//! ```

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use parti::core::codec;
use parti::core::config::{Config, Coordination, StrategyChoice};
use parti::core::ids::Nonce;
use parti::core::io::{Expect, StoreError, Stored, Write, WriteOutcome};
use parti::core::key::Key;
use parti::core::record::{GroupRecord, Layout, Record, TopicRecord};
use parti::core::strategy::from_choice;
use parti::core::text::count;
use parti::inspect;
use parti::source::Source as _;
use parti::source::log::TopicSettings;
use parti::store::{self, GroupStore};
use parti::{PartitionId, SourceId, StartPosition};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::Object;

use super::names;
use crate::App;
use crate::extract::{Body, within};
use crate::failure::{ErrorBody, Failure, no_group, other_topic};
use crate::looking::StrategyName;
use crate::places::{Messages, Places};

/// How often a write is tried whose fate is open.
const TRIES: u32 = 5;

/// A group to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    /// Its name.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_-]+$")]
    group: String,
    /// The topic of the log; made if there is none. Without a log only a name, for whatever the
    /// group's consumers read elsewhere.
    #[schema(schema_with = topic_schema)]
    topic: String,
    /// How many partitions, for good.
    #[schema(minimum = 1, maximum = 100000)]
    partitions: u32,
    /// How they are spread; fair_share by default.
    strategy: Option<StrategyName>,
}

fn topic_schema() -> Object {
    let described = "The topic of the log; made if there is none. Without a log only a name, for \
                     whatever the group's consumers read elsewhere.";
    names::schema(described).min_length(Some(1)).build()
}

/// A group that was made over HTTP.
#[derive(Serialize, ToSchema)]
pub struct Made {
    group: String,
    topic: String,
    partitions: u32,
    strategy: StrategyName,
    /// Whether its messages are in a log that is produced to and fetched from here. If not, its
    /// consumers know where they are, and commits are not checked against an end.
    log: bool,
}

/// Who decides in a group, and by what if everybody does: nobody gets a session who is set up
/// otherwise, and the sessions of this service are set up by its own configuration.
struct Mode {
    coordination: &'static str,
    strategy: Option<String>,
}

impl Mode {
    fn of(config: &Config, strategy: StrategyName) -> Result<Self, Failure> {
        let computed = match config.coordination {
            Coordination::Leader => None,
            Coordination::Leaderless => Some(from_choice(&choice(strategy.as_str())?).name()),
        };
        Ok(Self {
            coordination: config.coordination.name(),
            strategy: computed,
        })
    }

    fn is_of(&self, found: &GroupRecord) -> Result<(), Failure> {
        if found.coordination != self.coordination {
            return Err(Failure::conflict(
                format!(
                    "the group's coordination is {}, and this service's is {}",
                    found.coordination, self.coordination
                ),
                "give this service the same in its --config, or make another group",
            ));
        }
        match (&found.strategy, &self.strategy) {
            (Some(theirs), Some(ours)) if theirs != ours => Err(Failure::conflict(
                format!("the group goes by {theirs}, and this would be {ours}"),
                "give the same, or make another group",
            )),
            _ => Ok(()),
        }
    }
}

/// The strategy of this name, as a configuration has it.
fn choice(name: &str) -> Result<StrategyChoice, Failure> {
    let chosen = Config::from_tree(&json!({ "strategy": name }));
    let chosen = chosen.map_err(|problems| Failure::conflict(problems, "use a newer program"))?;
    Ok(chosen.strategy)
}

/// Makes a group. The same again is fine; something else under the same name is refused.
#[utoipa::path(post, path = "/v1/groups", tag = "consuming",
    request_body = NewGroup,
    responses(
        (status = 201, description = "It is made", body = Made),
        (status = 200, description = "It was there", body = Made),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn create(
    State(app): State<Arc<App>>,
    Body(new): Body<NewGroup>,
) -> Result<(StatusCode, Json<Made>), Failure> {
    codec::check_group(&new.group)?;
    // A few times the most consumers there will ever be is enough.
    within("partitions", new.partitions.into(), 1..=100_000)?;
    let strategy = new.strategy.unwrap_or(StrategyName::FairShare);
    let records = app.places.records(&new.group)?;
    let mode = Mode::of(app.sessions.config(), strategy)?;
    let log = check(&app.places, &records, &new, strategy, &mode).await?;
    let identity = if log {
        let settings = TopicSettings::partitions(new.partitions);
        let topic = app.places.log()?.create_topic(&new.topic, settings).await?;
        topic.identity().await?.into()
    } else {
        SourceId::NoLog
    };
    let made = put_group(&records, &new, identity, mode).await?;
    let told = put_topic(&records, &new, strategy).await?;
    let status = if made || told {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((
        status,
        Json(Made {
            group: new.group,
            topic: new.topic,
            partitions: new.partitions,
            strategy,
            log,
        }),
    ))
}

/// Refuses what does not fit what is there, before anything is made for it. The answer is whether its
/// messages are in the log: what is there already decides that, or else what this service has.
async fn check(
    places: &Places,
    records: &GroupStore,
    new: &NewGroup,
    strategy: StrategyName,
    mode: &Mode,
) -> Result<bool, Failure> {
    check_length(&new.topic)?;
    let made = places.made_with(records).await?;
    let log = match &made {
        Some(made) => made.stream != SourceId::NoLog,
        None => places.makes_topics()?,
    };
    let topic = match log {
        true => places.topic_if_any(&new.topic).await?,
        false => {
            codec::check_readable("topic", &new.topic)?;
            None
        }
    };
    if let Some(opened) = &topic {
        // Its file may be gone since it was opened; another one of this name would be empty, and
        // producers would not notice.
        let first = PartitionId::new("0");
        opened.topic.resolve(&first, StartPosition::Latest).await?;
    }
    let Some(group) = inspect::group(records).await? else {
        return Ok(log);
    };
    if let Some((name, record)) = places.recorded(records).await? {
        if *name != *new.topic {
            return Err(other_topic(&new.group, &name, &new.topic));
        }
        agree(&record, new, strategy)?;
        if log {
            // It had one: another of this name would be empty, and its offsets would mean nothing.
            places.topic_of_group(&name).await?;
        }
    }
    let identity = match &topic {
        Some(opened) => SourceId::from(opened.topic.identity().await?),
        None => SourceId::Untold,
    };
    if matches!(group.stream, SourceId::Told(_)) && group.stream != identity {
        return Err(made_anew(&new.group, &new.topic, topic.is_some()));
    }
    if let Some(made) = &made {
        mode.is_of(made)?;
    }
    // Members that are there already may go by another strategy.
    match group.plan {
        Some(plan) if !plan.fingerprint.strategy.starts_with(strategy.as_str()) => {
            Err(Failure::conflict(
                format!("the group goes by {}", plan.fingerprint.strategy),
                "give the same, or stop its workers first",
            ))
        }
        _ => Ok(log),
    }
}

/// Checks how long the name of a topic is: also one that is in no log.
fn check_length(topic: &str) -> Result<(), Failure> {
    match codec::escape(topic).len() {
        1..=codec::MAX_TOPIC => Ok(()),
        long => Err(Failure::bad(
            format!(
                "topic: its name has from 1 to {} bytes once escaped, this one has {long}",
                codec::MAX_TOPIC
            ),
            match long {
                0 => "give it a name",
                _ => "give it a shorter name",
            },
        )),
    }
}

/// The group began with something else than what goes by the topic's name now, if anything does.
fn made_anew(group: &str, topic: &str, there: bool) -> Failure {
    if !there {
        return Failure::conflict(
            format!("the group {group:?} is there, and began with another topic than {topic:?}"),
            "give another name, or the topic that it began with",
        );
    }
    Failure::conflict(
        format!(
            "the group {group:?} began with another topic or stream than the {topic:?} that is here \
             now: its offsets mean nothing in this one, which has its name and was made anew, or is \
             in another log"
        ),
        "bring back the topic as it was (or start this service with the log that has it), give the \
         group another name, or have it begin anew: `parti checkpoint reset --all`",
    )
}

/// Whether a group is split as somebody wants it.
fn agree(found: &TopicRecord, new: &NewGroup, strategy: StrategyName) -> Result<(), Failure> {
    if found.partitions == new.partitions && found.strategy.as_deref() == Some(strategy.as_str()) {
        return Ok(());
    }
    Err(Failure::conflict(
        format!(
            "the group is there with {}, spread by {}",
            count(found.partitions, "partition"),
            found.strategy.as_deref().unwrap_or("its own strategy")
        ),
        "give the same",
    ))
}

/// The group's own record, which decides whose group it is; true if it is new.
async fn put_group(
    records: &GroupStore,
    new: &NewGroup,
    identity: SourceId,
    mode: Mode,
) -> Result<bool, Failure> {
    let nonce = nonce()?;
    let record = GroupRecord {
        store: nonce,
        stream: identity,
        coordination: mode.coordination.into(),
        strategy: mode.strategy.clone(),
        nonce,
    };
    let Some(found) = put(records, Key::Group, Record::Group(Arc::new(record))).await? else {
        return Ok(true);
    };
    match &found.record {
        Record::Group(found) if found.nonce == nonce => Ok(true),
        Record::Group(found) if found.stream == identity => mode.is_of(found).map(|()| false),
        Record::Group(_) => Err(made_anew(&new.group, &new.topic, true)),
        _ => Err(Failure::conflict(
            "the group's record cannot be read",
            "run `parti doctor`",
        )),
    }
}

/// How the group is split; true if that is new.
async fn put_topic(
    records: &GroupStore,
    new: &NewGroup,
    strategy: StrategyName,
) -> Result<bool, Failure> {
    let nonce = nonce()?;
    let record = TopicRecord {
        partitions: new.partitions,
        layout: Layout::Xxh3Modulo,
        subject: None,
        strategy: Some(strategy.as_str().to_owned()),
        nonce,
    };
    let key = Key::Topic(new.topic.as_str().into());
    let Some(found) = put(records, key, Record::Topic(Arc::new(record))).await? else {
        return Ok(true);
    };
    match &found.record {
        Record::Topic(found) if found.nonce == nonce => Ok(true),
        Record::Topic(found) => agree(found, new, strategy).map(|()| false),
        _ => Err(Failure::conflict(
            "the topic's record cannot be read",
            "run `parti doctor`",
        )),
    }
}

/// Writes what must not be there yet; the answer is what was there instead.
async fn put(records: &GroupStore, key: Key, value: Record) -> Result<Option<Stored>, Failure> {
    let write = Write {
        key,
        expect: Expect::Absent,
        value: Some(value),
    };
    for _ in 0..TRIES {
        match records.write(std::slice::from_ref(&write)).await.pop() {
            Some(WriteOutcome::Done(_)) => return Ok(None),
            Some(WriteOutcome::Conflict(Some(found))) => return Ok(Some(found)),
            Some(WriteOutcome::Failed(StoreError::Rejected(why))) => {
                return Err(store::Error::rejected(why).into());
            }
            // Its fate is open: the very same write lands now, or meets itself.
            Some(WriteOutcome::Conflict(None) | WriteOutcome::Failed(_)) | None => {}
        }
    }
    Err(Failure::unavailable("the store did not take it"))
}

fn nonce() -> Result<Nonce, Failure> {
    let drawn = getrandom::u64();
    drawn
        .map(Nonce)
        .map_err(|_| Failure::unavailable("the system has no random numbers"))
}

/// What a session needs to know of its group.
pub struct Setup {
    /// What its topic is called.
    pub name: Arc<str>,
    /// Where its messages are.
    pub messages: Messages,
    /// Into how many partitions they are split.
    pub partitions: u32,
    /// The service's settings, with what the group decides itself.
    pub config: Config,
}

impl Setup {
    /// As recorded.
    pub async fn read(places: &Places, group: &str, base: &Config) -> Result<Self, Failure> {
        let records = places.records(group)?;
        let Some((name, record)) = places.recorded(&records).await? else {
            return match inspect::group(&records).await? {
                None => Err(no_group(format!("there is no group {group:?}"))),
                Some(_) => Err(Failure::conflict(
                    "nobody has said which topic this group is about",
                    "POST /v1/groups says it, with its topic, partitions and strategy",
                )),
            };
        };
        let strategy = record.strategy.as_deref().unwrap_or("fair_share");
        let strategy = choice(strategy)?;
        let messages = places.messages_of(&records, &name).await?;
        let start = base.processing.start;
        if matches!(messages, Messages::Elsewhere)
            && matches!(start, StartPosition::Latest | StartPosition::Time(_))
        {
            return Err(Failure::conflict(
                "the group was made without a log: nobody here knows where `processing.start` of \
                 this service would be",
                "give this service `earliest` or an offset there, or make the group at one with a log",
            ));
        }
        let by = from_choice(&strategy).name();
        tracing::debug!(group, strategy = by, "a session joins");
        Ok(Self {
            partitions: record.partitions,
            config: Config {
                strategy,
                ..base.clone()
            },
            messages,
            name,
        })
    }

    /// Refuses whoever would work on another topic: what it then commits would count for messages
    /// that nobody has seen.
    pub fn is_about(&self, group: &str, topic: Option<&str>) -> Result<(), Failure> {
        match topic {
            Some(topic) if *topic != *self.name => Err(other_topic(group, &self.name, topic)),
            _ => Ok(()),
        }
    }
}

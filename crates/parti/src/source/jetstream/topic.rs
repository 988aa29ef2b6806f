//! Streams of fixed virtual partitions: made with N subjects `<prefix>.<n>`, for good.
//!
//! ```text
//!   ORDERS: subjects orders.*   metadata parti.partitions=12, parti.subject=orders.{0},
//!                                        parti.layout=xxh3_modulo
//! ```
//!
//! The number is recorded in the stream's metadata, where every producer and consumer finds it: with
//! another number, messages of one key would be in two partitions.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use parti_core::codec::Template;
use parti_core::partition::MAX_PARTITIONS;
use parti_core::problem::Problem;
use parti_core::text;
use serde_json::{Value, json};

use super::JetStream;
use super::address::Target;
use super::api::{Api, StreamConfig, StreamInfo, error, rejected};
use super::check::{LAYOUT, PARTITIONS, SUBJECT, XXH3_MODULO};
use super::subjects::subject;
use crate::nats::link::{Trouble, code};
use crate::source::{Offset, PartitionId, SourceError};

/// Subjects that are asked for at once.
const ASK_AT_ONCE: usize = 32;

/// No age is longer, in nanoseconds.
const AGE_LIMIT: u64 = u64::MAX >> 1;

/// No server keeps a stream on more servers than so.
pub const MAX_REPLICAS: u32 = 5;

/// How a stream of virtual partitions is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// How many partitions, for good.
    pub partitions: u32,
    /// Whether a message goes away once it is handled (workqueue retention); by default it stays
    /// for its age.
    pub work_queue: bool,
    /// Messages that are older go away; never by default.
    pub max_age: Option<Duration>,
    /// The oldest messages beyond this size go away; never by default.
    pub max_bytes: Option<u64>,
    /// How many servers keep it, up to [`MAX_REPLICAS`]; one by default.
    pub replicas: u32,
}

impl StreamSettings {
    /// So many partitions, limits retention, kept for good.
    pub fn partitions(partitions: u32) -> Self {
        Self {
            partitions,
            work_queue: false,
            max_age: None,
            max_bytes: None,
            replicas: 1,
        }
    }
}

impl JetStream {
    /// Makes the stream that a URL names, with virtual partitions. One that is there must have as
    /// many, and what else is asked for; it is left as it is. The parameter `subject` of the URL
    /// says how a partition becomes a subject, as in `orders.{0}`; by default it is the stream's
    /// name.
    pub async fn create(url: &str, settings: &StreamSettings) -> Result<Self, SourceError> {
        let count = settings.partitions;
        if count == 0 || count as usize > MAX_PARTITIONS {
            return Err(rejected(format!(
                "a stream cannot have {count} partitions; give from 1 to {MAX_PARTITIONS}"
            )));
        }
        if settings.replicas > MAX_REPLICAS {
            return Err(rejected(format!(
                "a stream cannot have {} replicas; give from 1 to {MAX_REPLICAS}",
                settings.replicas
            )));
        }
        let target = Target::parse(url)?;
        let body = stream_config(&target, settings)?;
        let link = Self::link(&target).await?;
        let call = format!("STREAM.CREATE.{}", target.stream);
        let is_other = match link.api::<Value>(&call, body).await {
            Ok(_) => false,
            Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NAME_IN_USE => true,
            Err(trouble) => return Err(error(trouble)),
        };
        let found = Self::open(link, &target).await?;
        match found.partitions {
            Some(has) if has == count && !is_other => Ok(found),
            Some(has) if has == count => {
                found.check_made_with(settings).await?;
                Ok(found)
            }
            Some(has) => Err(rejected(format!(
                "the stream {} has {}, for good: with {count}, messages of one key would be in two \
                 partitions; use another stream",
                target.stream,
                text::count(has, "partition")
            ))),
            None => Err(rejected(format!(
                "the stream {} is there already, and was not made with virtual partitions; use \
                 another name",
                target.stream
            ))),
        }
    }

    /// Refuses what the stream was not made with.
    async fn check_made_with(&self, settings: &StreamSettings) -> Result<(), SourceError> {
        let call = format!("STREAM.INFO.{}", self.api.stream);
        let info = self.api.link.api::<StreamInfo>(&call, json!({})).await;
        match other(&info.map_err(error)?.config, settings) {
            None => Ok(()),
            Some((has, asked)) => Err(rejected(format!(
                "the stream {} has {has}, as it was made, and not {asked}; leave that out, change \
                 the stream (nats stream edit), or use another",
                self.api.stream
            ))),
        }
    }

    /// One past the newest message of each of these partitions, as the stream's leader knows it; 0
    /// where the stream has none.
    /// Offsets are shared by all partitions of a stream: what lies between a checkpoint and here is
    /// an upper bound of what is left to do.
    pub async fn ends(
        &self,
        partitions: &[PartitionId],
    ) -> Result<Vec<(PartitionId, Offset)>, SourceError> {
        let asked = partitions.iter().cloned();
        let asked = asked.map(|partition| async move {
            let subject = subject(&self.template, &partition)?;
            let last = last_of(&self.api, &subject).await?;
            let end = last.map_or(0, |last| last + 1);
            Ok((partition, Offset(end)))
        });
        let asked = futures_util::stream::iter(asked);
        asked.buffered(ASK_AT_ONCE).try_collect().await
    }
}

/// What a stream has, and what was asked for instead. What is as by default was not asked for.
fn other(config: &StreamConfig, asked: &StreamSettings) -> Option<(String, String)> {
    let limit = |name: &str, has: Option<String>, asked: String| {
        let has = has.map_or_else(|| format!("no {name}"), |has| format!("{name} {has}"));
        (has, format!("{name} {asked}"))
    };
    let age = |nanos: u64| format!("{:?}", Duration::from_nanos(nanos));
    let nanos = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(AGE_LIMIT);
    if let Some(asked) = asked.max_age.map(nanos)
        && asked != config.max_age
    {
        let has = (config.max_age > 0).then(|| age(config.max_age));
        return Some(limit("max_age", has, age(asked)));
    }
    if let Some(asked) = asked.max_bytes
        && i64::try_from(asked) != Ok(config.max_bytes)
    {
        let has = (config.max_bytes > 0).then(|| config.max_bytes.to_string());
        return Some(limit("max_bytes", has, asked.to_string()));
    }
    if asked.work_queue && config.retention != "workqueue" {
        let has = format!("{} retention", config.retention);
        return Some((has, "workqueue retention".into()));
    }
    let (has, wanted) = (config.num_replicas, asked.replicas);
    (wanted > 1 && has != wanted as usize)
        .then(|| (text::count(has as u64, "replica"), wanted.to_string()))
}

/// The sequence of a subject's newest message.
async fn last_of(api: &Api, subject: &str) -> Result<Option<u64>, SourceError> {
    let call = format!("STREAM.MSG.GET.{}", api.stream);
    let body = json!({ "last_by_subj": subject });
    match api.link.api::<Value>(&call, body).await {
        Ok(found) => Ok(found["message"]["seq"].as_u64()),
        Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NO_MESSAGE => Ok(None),
        Err(trouble) => Err(error(trouble)),
    }
}

/// The template of the subjects of virtual partitions, which have a number each.
pub fn numbered_template(text: &str) -> Result<Template, Problem> {
    let template = Template::parse(text)?;
    let tokens = super::subjects::pattern(&template);
    let one_key = tokens.iter().filter(|token| **token == "*").count() == 1;
    if !one_key || !template.is_exact() || tokens.contains(&">") {
        let what = "names something else than a number, which is all that virtual partitions have";
        return Err(Problem::new(
            "subject",
            text,
            what,
            "give one such as orders.{0}",
        ));
    }
    Ok(template)
}

fn stream_config(target: &Target, settings: &StreamSettings) -> Result<Value, SourceError> {
    let default = format!("{}.{{0}}", target.stream);
    let text = target.subject.as_deref().unwrap_or(&default);
    let template = numbered_template(text).map_err(|problem| rejected(problem.to_string()))?;
    let tokens = super::subjects::pattern(&template);
    let retention = if settings.work_queue {
        "workqueue"
    } else {
        "limits"
    };
    let age = settings.max_age.map_or(0, |age| age.as_nanos());
    let bytes = settings.max_bytes.map(i64::try_from);
    Ok(json!({
        "name": target.stream,
        "subjects": [tokens.join(".")],
        "retention": retention,
        "storage": "file",
        "num_replicas": settings.replicas.max(1),
        "max_age": u64::try_from(age).unwrap_or(AGE_LIMIT),
        "max_bytes": bytes.transpose().unwrap_or(None).unwrap_or(-1),
        "metadata": {
            PARTITIONS: settings.partitions.to_string(),
            SUBJECT: template.as_str(),
            LAYOUT: XXH3_MODULO,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_virtual_partitions_records_its_number() {
        let target = Target::parse("jetstream://h/ORDERS?subject=o.x.p{0}").expect("good");
        let settings = StreamSettings {
            max_age: Some(Duration::from_secs(60)),
            ..StreamSettings::partitions(12)
        };
        let config = stream_config(&target, &settings).expect("good");
        assert_eq!(config["subjects"], json!(["o.x.*"]));
        assert_eq!(config["metadata"][PARTITIONS], "12");
        assert_eq!(config["metadata"][SUBJECT], "o.x.p{0}");
        assert_eq!(config["max_age"], 60_000_000_000_u64);
        let plain = Target::parse("jetstream://h/ORDERS").expect("good");
        let config = stream_config(&plain, &settings).expect("good");
        assert_eq!(config["subjects"], json!(["ORDERS.*"]));
        let has = StreamConfig {
            retention: "limits".into(),
            num_replicas: 1,
            max_age: 60_000_000_000,
            max_bytes: -1,
            ..StreamConfig::default()
        };
        let told = |asked: StreamSettings| other(&has, &asked).map(|(_, asked)| asked);
        let none = StreamSettings::partitions(12);
        assert_eq!(told(none.clone()), None, "nothing was asked for");
        assert_eq!(told(settings.clone()), None, "the same");
        for (asked, why) in [
            (
                StreamSettings {
                    max_age: Some(Duration::from_secs(1)),
                    ..none.clone()
                },
                "max_age 1s",
            ),
            (
                StreamSettings {
                    max_bytes: Some(5),
                    ..none.clone()
                },
                "max_bytes 5",
            ),
            (
                StreamSettings {
                    work_queue: true,
                    ..none.clone()
                },
                "workqueue retention",
            ),
            (
                StreamSettings {
                    replicas: 3,
                    ..none
                },
                "3",
            ),
        ] {
            assert_eq!(told(asked).as_deref(), Some(why));
        }
        for odd in ["o.{0}.{1}", "o.{id}", "o", "o.*.{0}", "o.{0}.>"] {
            assert!(numbered_template(odd).is_err(), "{odd}");
        }
    }
}

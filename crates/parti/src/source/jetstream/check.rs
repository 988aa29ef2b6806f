//! Checks at the start: a stream that cannot be served safely is refused, with the remedy.

use std::time::Duration;

use parti_core::codec::{self, Template};
use parti_core::config::{AckMode, Config, show_duration};
use parti_core::io::Retention;
use parti_core::problem::Problem;

use super::api::{ConsumerLimits, StreamConfig, rejected};
use super::reader;
use super::settings::Settings;
use super::subjects::{overlap, pattern};
use crate::source::SourceError;

/// Where a stream's metadata keeps how it was made for Parti.
pub(super) const PARTITIONS: &str = "parti.partitions";
pub(super) const SUBJECT: &str = "parti.subject";
pub(super) const LAYOUT: &str = "parti.layout";
/// XXH3-64 of the key, modulo the number of partitions: the only layout there is.
pub(super) const XXH3_MODULO: &str = "xxh3_modulo";

/// The longest name that servers take.
const LONGEST_NAME: usize = 255;

/// How the stream forgets messages, if that is a way that loses nothing.
pub(super) fn retention(stream: &str, config: &StreamConfig) -> Result<Retention, SourceError> {
    match config.retention.as_str() {
        "limits" => Ok(Retention::Limits),
        "workqueue" => Ok(Retention::WorkQueue),
        "interest" => Err(rejected(format!(
            "the stream {stream} has interest retention: the server deletes what no consumer needs \
             any more, also what is not handled yet when a partition moves; use limits retention \
             with a max age, or workqueue"
        ))),
        other => Err(rejected(format!(
            "the stream {stream} has {other} retention, which Parti does not know; use limits \
             with a max age, or workqueue"
        ))),
    }
}

/// Whether this stream can be consumed with these settings.
pub(super) fn settings(
    stream: &str,
    limits: ConsumerLimits,
    own: &Settings,
    config: &Config,
) -> Result<(), SourceError> {
    if own.retention == Retention::WorkQueue && own.jetstream.ack == AckMode::None {
        return Err(rejected(format!(
            "the stream {stream} is a work queue, where only an ack removes a message; set \
             jetstream.ack to explicit"
        )));
    }
    let refused = |problem: Problem| rejected(problem.to_string());
    consumer_name(own, config).map_err(refused)?;
    consumer_limits(stream, limits, own).map_err(refused)
}

/// Whether every worker's durable can have its name.
fn consumer_name(own: &Settings, config: &Config) -> Result<(), Problem> {
    let worker = codec::worker_id(&config.worker_id_prefix, config.worker_id_max);
    let longest = own.name(&worker).len();
    if longest <= LONGEST_NAME {
        return Ok(());
    }
    Err(Problem::new(
        "jetstream.consumer_prefix",
        &own.jetstream.consumer_prefix,
        format!(
            "makes consumers' names of up to {longest} bytes, with the group's name (in which each \
             byte but A-Z a-z 0-9 _ - takes three) and the worker's id; servers take {LONGEST_NAME}"
        ),
        "shorten it, the group's name, or worker_id_prefix",
    ))
}

/// Whether the stream allows its consumers what they are to have.
fn consumer_limits(stream: &str, limits: ConsumerLimits, own: &Settings) -> Result<(), Problem> {
    let settings = &own.jetstream;
    let longest = Duration::from_nanos(limits.inactive_threshold);
    if !longest.is_zero() && own.retention == Retention::Limits && longest < reader::KEPT {
        return Err(Problem::new(
            "consumer_limits.inactive_threshold",
            show_duration(longest),
            format!(
                "of the stream {stream} is less than the {} that readers of a backlog need",
                show_duration(reader::KEPT)
            ),
            "raise it, or leave it out",
        ));
    }
    if !longest.is_zero() && settings.inactive_threshold > longest {
        return Err(Problem::new(
            "jetstream.inactive_threshold",
            show_duration(settings.inactive_threshold),
            format!(
                "is more than the {} that the stream {stream} allows its consumers",
                show_duration(longest)
            ),
            "lower it, or raise the stream's consumer_limits.inactive_threshold",
        ));
    }
    let most = u64::try_from(limits.max_ack_pending).unwrap_or(0);
    let window = u64::from(settings.max_ack_pending);
    if settings.ack == AckMode::Explicit && most > 0 && window > most {
        return Err(Problem::new(
            "jetstream.max_ack_pending",
            window.to_string(),
            format!("is more than the {most} that the stream {stream} allows its consumers"),
            "lower it, or raise the stream's consumer_limits.max_ack_pending",
        ));
    }
    Ok(())
}

/// How many virtual partitions the stream was made with, if it was made for them.
pub(super) fn partitions(stream: &str, config: &StreamConfig) -> Result<Option<u32>, SourceError> {
    let Some(recorded) = config.metadata.get(PARTITIONS) else {
        return Ok(None);
    };
    let layout = config.metadata.get(LAYOUT).map_or("", String::as_str);
    match recorded.parse::<u32>() {
        Ok(count) if count > 0 && layout == XXH3_MODULO => Ok(Some(count)),
        _ => Err(rejected(format!(
            "the metadata of the stream {stream} cannot be read ({PARTITIONS} {recorded:?}, \
             {LAYOUT} {layout:?}); update this program, or mend it with `nats stream edit`"
        ))),
    }
}

/// The template to go by: given, recorded with the stream, or made of the stream's one subject.
pub(super) fn template(
    stream: &str,
    given: Option<&str>,
    config: &StreamConfig,
) -> Result<Template, SourceError> {
    let recorded = config.metadata.get(SUBJECT).map(String::as_str);
    let guessed = match config.subjects.as_slice() {
        [one] => guess(one),
        _ => None,
    };
    let Some(text) = given.or(recorded).map(str::to_owned).or(guessed) else {
        return Err(rejected(format!(
            "how a partition becomes a subject of the stream {stream} ({}) is not known; say it, \
             as in --subject 'dc.{{0}}.{{1}}.completion' or ?subject=…",
            config.subjects.join(", ")
        )));
    };
    let template = Template::parse(&text).map_err(|problem| rejected(problem.to_string()))?;
    fits(stream, &template, config)?;
    Ok(template)
}

/// `orders.*` has partitions of one key, `orders.>` of any number.
fn guess(subject: &str) -> Option<String> {
    let (prefix, last) = subject.rsplit_once('.')?;
    if prefix.contains(['*', '>']) {
        return None;
    }
    match last {
        "*" => Some(format!("{prefix}.{{0}}")),
        ">" => Some(format!("{prefix}.{{id}}")),
        _ => None,
    }
}

/// Whether messages with such subjects can be in the stream at all.
fn fits(stream: &str, template: &Template, config: &StreamConfig) -> Result<(), SourceError> {
    // A transform stores another subject than was published to; `{{…}}` stands for some token.
    let stored: Vec<&str> = match &config.subject_transform {
        Some(transform) if !transform.dest.is_empty() => vec![&transform.dest],
        _ => config.subjects.iter().map(String::as_str).collect(),
    };
    let wanted = pattern(template);
    // A mirror, or a stream of sources alone, has no subjects of its own.
    if stored.is_empty() || stored.iter().any(|s| overlap(&tokens(s), &wanted)) {
        return Ok(());
    }
    Err(rejected(format!(
        "no message of the stream {stream} has a subject like {template}: it stores {}; give \
         another template",
        stored.join(", ")
    )))
}

/// The tokens of a subject; what a transform fills in can be anything.
fn tokens(subject: &str) -> Vec<&str> {
    let wild = |token| match token {
        made if str::contains(made, "{{") => "*",
        token => token,
    };
    subject.split('.').map(wild).collect()
}

#[cfg(test)]
mod tests {
    use super::super::api::Transform;
    use super::*;

    fn stream(subjects: &[&str]) -> StreamConfig {
        StreamConfig {
            subjects: subjects.iter().map(|s| (*s).into()).collect(),
            retention: "limits".into(),
            ..StreamConfig::default()
        }
    }

    #[test]
    fn what_would_lose_messages_is_refused_with_the_remedy() {
        let mut config = stream(&["o.*"]);
        assert_eq!(retention("S", &config), Ok(Retention::Limits));
        config.retention = "workqueue".into();
        assert_eq!(retention("S", &config), Ok(Retention::WorkQueue));
        config.retention = "interest".into();
        let error = retention("S", &config).expect_err("interest").to_string();
        assert!(error.contains("limits retention") && error.contains("workqueue"));
        let mut unacked = Config::default();
        unacked.jetstream.ack = AckMode::None;
        let any = ConsumerLimits::default();
        assert!(checked(Retention::WorkQueue, any, &unacked).is_err());
        assert_eq!(checked(Retention::Limits, any, &unacked), Ok(()));
        assert_eq!(
            checked(Retention::WorkQueue, any, &Config::default()),
            Ok(())
        );
    }

    fn checked(
        retention: Retention,
        limits: ConsumerLimits,
        config: &Config,
    ) -> Result<(), SourceError> {
        group_checked("billing", retention, limits, config)
    }

    fn group_checked(
        group: &str,
        retention: Retention,
        limits: ConsumerLimits,
        config: &Config,
    ) -> Result<(), SourceError> {
        let own = Settings {
            group: group.into(),
            retention,
            template: Template::parse("o.{0}").expect("valid"),
            partitions: None,
            jetstream: config.jetstream.clone(),
        };
        settings("S", limits, &own, config)
    }

    #[test]
    fn what_the_stream_does_not_allow_its_consumers_is_refused_by_name() {
        let config = Config::default();
        let limits = |seconds: u64, max_ack_pending: i64| ConsumerLimits {
            inactive_threshold: seconds * 1_000_000_000,
            max_ack_pending,
        };
        let said = |limits, config: &Config| {
            let refused = checked(Retention::Limits, limits, config);
            refused.expect_err("too much").to_string()
        };
        let day = 24 * 60 * 60;
        assert_eq!(
            checked(Retention::Limits, limits(day, 500), &config),
            Ok(())
        );
        assert_eq!(checked(Retention::Limits, limits(0, -1), &config), Ok(()));
        let told = said(limits(3_600, 0), &config);
        let expected = "jetstream.inactive_threshold: 24h is more than the 1h that";
        assert!(told.contains(expected), "{told}");
        let told = said(limits(day, 499), &config);
        let expected = "jetstream.max_ack_pending: 500 is more than the 499 that";
        assert!(told.contains(expected), "{told}");
        let told = said(limits(9, 0), &config);
        let expected = "consumer_limits.inactive_threshold: 9s of the stream S is less";
        assert!(told.contains(expected), "{told}");
        // Nothing is read past a work queue's durable.
        let mut short = config.clone();
        short.jetstream.inactive_threshold = Duration::from_secs(9);
        assert_eq!(checked(Retention::WorkQueue, limits(9, 0), &short), Ok(()));
        let mut unacked = config;
        unacked.jetstream.ack = AckMode::None;
        assert_eq!(
            checked(Retention::Limits, limits(day, 499), &unacked),
            Ok(())
        );
    }

    #[test]
    fn a_consumers_name_that_servers_do_not_take_is_refused_by_name() {
        let mut config = Config::default();
        config.jetstream.consumer_prefix = "p".repeat(64);
        config.worker_id_prefix = "w".repeat(64);
        let any = ConsumerLimits::default();
        let named =
            |group: &str, config: &Config| group_checked(group, Retention::Limits, any, config);
        assert_eq!(named(&"g".repeat(64), &config), Ok(()));
        // Each byte of it takes three.
        let group = "\u{e9}".repeat(20);
        let fits = 255 - (64 + 1 + 120 + 1 + 1 + 2);
        config.worker_id_prefix = "w".repeat(fits);
        assert_eq!(named(&group, &config), Ok(()));
        config.worker_id_max = 100;
        let told = named(&group, &config).expect_err("too long").to_string();
        assert!(told.contains("jetstream.consumer_prefix: ppp"), "{told}");
        assert!(told.contains("up to 256 bytes"), "{told}");
    }

    #[test]
    fn the_template_is_given_or_recorded_or_obvious() {
        fn text(given: Option<&str>, config: &StreamConfig) -> Result<String, SourceError> {
            template("S", given, config).map(|template| template.to_string())
        }
        let mut config = stream(&["o.*"]);
        assert_eq!(text(None, &config).as_deref(), Ok("o.{0}"));
        config.metadata.insert(SUBJECT.into(), "o.p{0}".into());
        assert_eq!(text(None, &config).as_deref(), Ok("o.p{0}"));
        assert_eq!(text(Some("o.{id}"), &config).as_deref(), Ok("o.{id}"));
        assert_eq!(text(None, &stream(&["a.b.>"])).as_deref(), Ok("a.b.{id}"));
        for unclear in [&["a.>", "b.>"][..], &["a.*.*"], &["orders"], &[">"], &[]] {
            let error = text(None, &stream(unclear)).expect_err("unclear");
            assert!(error.to_string().contains("--subject"), "{error}");
        }
    }

    #[test]
    fn a_template_that_no_message_can_have_is_refused() {
        let config = stream(&["dc.*.*.completion"]);
        assert!(template("S", Some("dc.{0}.{1}.completion"), &config).is_ok());
        assert!(template("S", Some("dc.{0}.{1}.completed"), &config).is_err());
        assert!(template("S", Some("dc.{0}"), &config).is_err());
        assert!(
            template("S", Some("any.{0}"), &stream(&[])).is_ok(),
            "mirror"
        );
        let mut transformed = stream(&["orders.*"]);
        transformed.subject_transform = Some(Transform {
            dest: "o.{{partition(10,1)}}.{{wildcard(1)}}".into(),
        });
        assert!(template("S", Some("orders.{0}"), &transformed).is_err());
        assert!(template("S", Some("o.{0}.{1}"), &transformed).is_ok());
    }

    #[test]
    fn the_recorded_number_of_partitions_is_read_or_refused() {
        let mut config = stream(&["o.*"]);
        assert_eq!(partitions("S", &config), Ok(None));
        config.metadata.insert(PARTITIONS.into(), "12".into());
        assert!(partitions("S", &config).is_err(), "an unknown layout");
        config.metadata.insert(LAYOUT.into(), XXH3_MODULO.into());
        assert_eq!(partitions("S", &config), Ok(Some(12)));
        config.metadata.insert(PARTITIONS.into(), "0".into());
        assert!(partitions("S", &config).is_err());
    }
}

//! Checks at the start: a stream that cannot be served safely is refused, with the remedy.

use parti_core::codec::Template;
use parti_core::config::{AckMode, Config};
use parti_core::io::Retention;

use super::api::{StreamConfig, rejected};
use super::subjects::{overlap, pattern};
use crate::source::SourceError;

/// Where a stream's metadata keeps how it was made for Parti.
pub(super) const PARTITIONS: &str = "parti.partitions";
pub(super) const SUBJECT: &str = "parti.subject";
pub(super) const LAYOUT: &str = "parti.layout";
/// XXH3-64 of the key, modulo the number of partitions: the only layout there is.
pub(super) const XXH3_MODULO: &str = "xxh3_modulo";

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
    retention: Retention,
    config: &Config,
) -> Result<(), SourceError> {
    if retention == Retention::WorkQueue && config.jetstream.ack == AckMode::None {
        return Err(rejected(format!(
            "the stream {stream} is a work queue, where only an ack removes a message; set \
             jetstream.ack to explicit"
        )));
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
        assert!(settings("S", Retention::WorkQueue, &unacked).is_err());
        assert!(settings("S", Retention::Limits, &unacked).is_ok());
        assert!(settings("S", Retention::WorkQueue, &Config::default()).is_ok());
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

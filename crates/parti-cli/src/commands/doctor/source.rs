//! The source: reached, permitted, and set up so that nothing is lost.

use parti::Config;
use parti::core::config::{HintFor, show_duration};
use parti::core::text;
use parti::source::jetstream::StreamLimits;
use parti::source::place::Located;

use super::{Findings, clock};
use crate::flags::SourceFlags;
use crate::places;
use crate::show::{count, now_ms};

/// Checks the source, if one is named.
pub async fn check(
    flags: &SourceFlags,
    group: Option<&str>,
    config: &Config,
    findings: &mut Findings,
) -> Option<Located> {
    match places::opened(flags).await {
        Ok(Some(opened)) => {
            match &opened {
                Located::Topic(_) => log(&opened, findings).await,
                Located::Stream(_) => {
                    stream(&opened, config, findings).await;
                    permissions(&opened, group, config, findings).await;
                }
            }
            Some(opened)
        }
        Ok(None) => None,
        Err(failure) => {
            findings.fail("source", failure.line);
            None
        }
    }
}

async fn log(opened: &Located, findings: &mut Findings) {
    let Located::Topic(topic) = opened else {
        return;
    };
    let info = match topic.describe().await {
        Ok(info) => info,
        Err(error) => {
            findings.fail("source", error);
            return;
        }
    };
    let partitions = count(info.partitions.len(), "partition");
    findings.ok("source", format!("topic {} has {partitions}", info.name));
    match topic.check_writable().await {
        Ok(()) => findings.ok("permissions", "messages and dead letters can be written"),
        Err(error) => findings.fail("permissions", error),
    }
    let settings = &info.settings;
    match (settings.retention_age, settings.retention_bytes) {
        (None, None) => findings.warn(
            "retention",
            "the log keeps everything for good: its disk will be full one day; make topics with \
             --keep-for or --keep-bytes",
        ),
        (Some(age), _) => {
            let text = format!("messages are kept for {}", show_duration(age));
            findings.ok("retention", text);
        }
        (None, Some(bytes)) => {
            findings.ok(
                "retention",
                format!("{bytes} bytes of each partition are kept"),
            );
        }
    }
}

async fn stream(opened: &Located, config: &Config, findings: &mut Findings) {
    let Located::Stream(stream) = opened else {
        return;
    };
    let before = now_ms();
    let about = match stream.about().await {
        Ok(about) => about,
        Err(error) => {
            findings.fail("source", error);
            return;
        }
    };
    let after = now_ms();
    findings.ok(
        "source",
        format!(
            "stream {} has {}, subjects {}",
            stream.stream(),
            text::count(about.messages, "message"),
            stream.template()
        ),
    );
    let version = format!("nats-server {}", about.server);
    if older(&about.server, (2, 14)) && about.retention == "workqueue" {
        findings.warn(
            "source version",
            format!(
                "{version} cannot rewind a consumer: on a work queue each move makes it anew, \
                 which takes longer; upgrade to 2.14"
            ),
        );
    } else {
        findings.ok("source version", version);
    }
    match retention(&about.retention, &about.limits) {
        Ok(fine) => findings.ok("retention", fine),
        Err(trouble) => findings.warn("retention", trouble),
    }
    if about.clustered && about.replicas < 3 {
        findings.warn(
            "replicas",
            format!(
                "{} of the cluster's servers keep the stream: while one of them is away nothing \
                 is read; raise it (nats stream edit {} --replicas 3)",
                about.replicas,
                stream.stream()
            ),
        );
    } else if about.storage == "memory" && about.replicas == 1 {
        findings.warn(
            "replicas",
            "the stream is in the memory of one server: a restart loses it; use file storage",
        );
    } else {
        let text = format!("{} on {}", count(about.replicas, "server"), about.storage);
        findings.ok("replicas", text);
    }
    for hint in config.hints() {
        if hint.applies == HintFor::JetStream {
            findings.warn(
                "settings",
                format!("{} {} {}", hint.field, hint.value, hint.advice),
            );
        }
    }
    clock::check(about.clock.as_deref(), before, after, findings);
}

/// What workers will do, by whoever looks.
async fn permissions(
    opened: &Located,
    group: Option<&str>,
    config: &Config,
    findings: &mut Findings,
) {
    let Located::Stream(stream) = opened else {
        return;
    };
    for tried in stream.try_out(group, config).await {
        let what = tried.what;
        match tried.outcome {
            Ok(()) => findings.ok("permissions", what),
            Err(error) => findings.fail("permissions", format!("not known that {what}: {error}")),
        }
    }
}

/// What goes away by itself: as it should, or without a word of it.
fn retention(kind: &str, limits: &StreamLimits) -> Result<String, String> {
    let mut removed: Vec<String> = Vec::new();
    if let Some(age) = limits.max_age {
        removed.push(format!("older than {}", show_duration(age)));
    }
    if !limits.refuses_new {
        let most = |most: u64, word| format!("the oldest of more than {}", text::count(most, word));
        removed.extend(limits.max_messages.map(|n| most(n, "message")));
        removed.extend(limits.max_bytes.map(|n| most(n, "byte")));
    }
    let removed = removed.join(", ");
    let replaced = limits
        .max_messages_per_subject
        .filter(|_| !limits.refuses_new);
    match (kind, replaced) {
        (_, Some(newest)) => Err(format!(
            "{kind}, and of each subject only the newest {}: one that is replaced before it is \
             handled is gone, and nobody can tell; remove that limit (max_msgs_per_subject) where \
             each message counts",
            text::count(newest, "message")
        )),
        ("limits", None) if removed.is_empty() => Ok("limits, without any".into()),
        ("limits", None) => Ok(format!(
            "limits: what is {removed} goes away; a group that lags by as much loses messages, and \
             says so"
        )),
        (_, None) if removed.is_empty() => Ok(format!("{kind}: handled messages go away")),
        (_, None) => Err(format!(
            "{kind}: handled messages go away, but also what is {removed}, handled or not, and \
             nobody can tell; take the age away, and have a full stream refuse new messages \
             (discard: new)"
        )),
    }
}

fn older(version: &str, than: (u32, u32)) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < than,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(older("2.9.25", (2, 14)) && older("2.10.26", (2, 14)));
        assert!(
            !older("2.14.0", (2, 14)) && !older("3.0.0-RC.1", (2, 14)) && !older("dev", (2, 14))
        );
    }

    #[test]
    fn what_goes_without_a_word_is_a_warning() {
        let none = StreamLimits::default();
        let aged = StreamLimits {
            max_age: Some(Duration::from_secs(60)),
            ..none.clone()
        };
        let few = StreamLimits {
            max_messages: Some(50),
            ..none.clone()
        };
        let full = StreamLimits {
            refuses_new: true,
            ..few.clone()
        };
        let newest = StreamLimits {
            max_messages_per_subject: Some(1),
            ..none.clone()
        };
        let fine = |kind, limits, what: &str| {
            let said = retention(kind, limits);
            assert!(said.as_ref().is_ok_and(|s| s.contains(what)), "{said:?}");
        };
        let warns = |kind, limits, what: &str| {
            let said = retention(kind, limits);
            assert!(said.as_ref().is_err_and(|s| s.contains(what)), "{said:?}");
        };
        fine("limits", &none, "limits, without any");
        fine("limits", &aged, "older than 1m");
        fine("limits", &few, "the oldest of more than 50 messages");
        fine("limits", &full, "limits, without any");
        fine("workqueue", &none, "handled messages go away");
        fine("workqueue", &full, "handled messages go away");
        warns("workqueue", &aged, "older than 1m");
        warns("workqueue", &few, "more than 50 messages, handled or not");
        warns("limits", &newest, "only the newest 1 message:");
        warns("workqueue", &newest, "max_msgs_per_subject");
    }
}

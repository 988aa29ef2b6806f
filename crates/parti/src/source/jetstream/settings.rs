//! What a worker's durable should be like: its name, its filter, its settings; and what is to be done
//! where somebody changed them.

use std::collections::BTreeSet;

use parti_core::codec::{self, Template};
use parti_core::config::{AckMode, JetStreamConfig};
use parti_core::ids::{PartitionId, WorkerId};
use parti_core::io::Retention;
use serde_json::{Value, json};

use super::subjects::{pattern, subject};
use crate::source::SourceError;

/// Where a durable's metadata names its owner.
pub(super) const GROUP: &str = "parti.group";
pub(super) const WORKER: &str = "parti.worker";

/// What no update can put back: where it differs, the durable is made anew. (`max_deliver` could be
/// changed, but deliveries that it has stopped would not come back.)
const FIXED: [&str; 9] = [
    "durable_name",
    "ack_policy",
    "deliver_policy",
    "opt_start_seq",
    "opt_start_time",
    "replay_policy",
    "max_deliver",
    "max_waiting",
    "deliver_subject",
];

/// Whose it is, in its metadata.
const MARKS: [&str; 2] = [GROUP, WORKER];

/// What may be otherwise than we left it, but for [`MARKS`]: nothing in it says what is delivered, or how. Filters are
/// compared by themselves, and a pause is ended by a call of its own.
const FREE: [&str; 8] = [
    "filter_subject",
    "filter_subjects",
    "pause_until",
    "metadata",
    "description",
    "num_replicas",
    "mem_storage",
    "sample_freq",
];

/// What every durable of a group has in common.
#[derive(Debug)]
pub(super) struct Settings {
    pub group: String,
    pub retention: Retention,
    pub template: Template,
    /// How many virtual partitions the stream was made with, if it was.
    pub partitions: Option<u32>,
    pub jetstream: JetStreamConfig,
}

impl Settings {
    /// The name of a worker's durable.
    pub fn name(&self, worker: &WorkerId) -> String {
        let group = codec::escape(&self.group);
        format!("{}-{group}-{worker}", self.jetstream.consumer_prefix)
    }

    /// The filter that delivers exactly these partitions.
    ///
    /// All virtual partitions of a stream together are one wildcard: for each message that a durable
    /// is behind, the server looks through all of its subjects. Not so in a work queue, where a
    /// subject that is no partition's could never be acked.
    pub fn filters(&self, partitions: &[PartitionId]) -> Result<BTreeSet<String>, SourceError> {
        let subjects = partitions
            .iter()
            .map(|partition| subject(&self.template, partition));
        let subjects = subjects.collect::<Result<BTreeSet<String>, SourceError>>()?;
        let all = self.partitions.is_some_and(|count| {
            let one_of_them = |partition: &PartitionId| {
                let number = partition.as_str().parse::<u32>();
                number.is_ok_and(|number| number < count)
            };
            count > 0 && subjects.len() == count as usize && partitions.iter().all(one_of_them)
        });
        if all && self.retention == Retention::Limits {
            return Ok(BTreeSet::from([pattern(&self.template).join(".")]));
        }
        Ok(subjects)
    }

    /// A new durable. `start`: where it begins; the beginning of the stream if none is given.
    pub fn fresh(
        &self,
        worker: &WorkerId,
        filters: &BTreeSet<String>,
        start: Option<u64>,
    ) -> Value {
        let settings = &self.jetstream;
        let nanos = |duration: std::time::Duration| {
            u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX >> 1)
        };
        let name = self.name(worker);
        let mut config = json!({
            "name": name,
            "durable_name": name,
            "description": format!("{worker} of the group {}", self.group),
            "replay_policy": "instant",
            "deliver_policy": "all",
            // Counted by lanes: the server would drop a message silently.
            "max_deliver": -1,
            "max_waiting": settings.max_waiting,
            "inactive_threshold": nanos(settings.inactive_threshold),
            "filter_subjects": filters,
            "metadata": { GROUP: self.group, WORKER: worker.as_str() },
        });
        if let Some(start) = start {
            config["deliver_policy"] = json!("by_start_sequence");
            config["opt_start_seq"] = json!(start);
        }
        match settings.ack {
            AckMode::Explicit => {
                config["ack_policy"] = json!("explicit");
                config["ack_wait"] = json!(nanos(settings.ack_wait));
                config["max_ack_pending"] = json!(settings.max_ack_pending);
            }
            AckMode::None => config["ack_policy"] = json!("none"),
        }
        config
    }
}

/// Whether an update can put back what was told.
pub(super) fn can_be_mended(there: &Value, told: &Value) -> bool {
    FIXED.iter().all(|field| there[*field] == told[*field])
}

/// A setting that is there as good as not at all: servers leave it out, or not.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "none",
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The settings that are not as they were told, by name; without the filter.
pub(super) fn changed<'a>(there: &'a Value, told: &'a Value) -> BTreeSet<&'a str> {
    let names = |config: &'a Value| config.as_object().into_iter().flatten();
    let mut changed: BTreeSet<&str> = names(there)
        .chain(names(told))
        .map(|(name, _)| name.as_str())
        .filter(|name| !FREE.contains(name))
        .filter(|name| {
            let (there, told) = (&there[*name], &told[*name]);
            there != told && !(is_unset(there) && is_unset(told))
        })
        .collect();
    // Without them, it is nobody's that anybody knows.
    if MARKS
        .iter()
        .any(|mark| there["metadata"][*mark] != told["metadata"][*mark])
    {
        changed.insert("metadata");
    }
    changed
}

/// What was told, with another filter, and with what is free as it is there.
pub(super) fn with_filter(there: &Value, told: &Value, filters: &BTreeSet<String>) -> Value {
    let mut config = told.clone();
    if let Some(fields) = config.as_object_mut() {
        for name in FREE {
            fields.remove(name);
            if !there[name].is_null() {
                fields.insert(name.into(), there[name].clone());
            }
        }
        fields.remove("filter_subject");
        fields.insert("filter_subjects".into(), json!(filters));
    }
    for mark in MARKS {
        config["metadata"][mark] = told["metadata"][mark].clone();
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use parti_core::config::Config;

    fn settings(retention: Retention) -> Settings {
        Settings {
            group: "billing".into(),
            retention,
            template: Template::parse("o.{0}").expect("valid"),
            partitions: None,
            jetstream: Config::default().jetstream,
        }
    }

    fn filters(subjects: &[&str]) -> BTreeSet<String> {
        subjects.iter().map(|subject| (*subject).into()).collect()
    }

    #[test]
    fn a_group_of_any_name_has_a_durable_of_a_safe_one() {
        let mut odd = settings(Retention::Limits);
        odd.group = "a.b >*/c".into();
        let name = odd.name(&WorkerId::new("worker-3"));
        assert_eq!(name, "parti-a=2Eb=20=3E=2A=2Fc-worker-3");
    }

    #[test]
    fn all_virtual_partitions_together_are_one_filter() {
        let ids = |ids: &[&str]| {
            ids.iter()
                .copied()
                .map(PartitionId::new)
                .collect::<Vec<_>>()
        };
        let mut settings = settings(Retention::Limits);
        let filter =
            |settings: &Settings, list: &[&str]| settings.filters(&ids(list)).expect("fits");
        assert_eq!(filter(&settings, &["0", "1"]), filters(&["o.0", "o.1"]));
        settings.partitions = Some(2);
        assert_eq!(filter(&settings, &["0", "1"]), filters(&["o.*"]));
        assert_eq!(filter(&settings, &["1"]), filters(&["o.1"]));
        assert_eq!(filter(&settings, &["1", "2"]), filters(&["o.1", "o.2"]));
        assert_eq!(filter(&settings, &[]), filters(&[]));
        settings.partitions = Some(0);
        assert_eq!(
            filter(&settings, &[]),
            filters(&[]),
            "never the whole stream"
        );
        settings.partitions = Some(2);
        settings.retention = Retention::WorkQueue;
        assert_eq!(filter(&settings, &["0", "1"]), filters(&["o.0", "o.1"]));
    }

    #[test]
    fn a_new_durable_has_every_default_of_the_settings() {
        let settings = settings(Retention::Limits);
        let worker = WorkerId::new("worker-3");
        let config = settings.fresh(&worker, &filters(&["o.1", "o.2"]), Some(17));
        assert_eq!(
            config,
            json!({
                "name": "parti-billing-worker-3",
                "durable_name": "parti-billing-worker-3",
                "description": "worker-3 of the group billing",
                "replay_policy": "instant",
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": 17,
                "ack_policy": "explicit",
                "ack_wait": 30_000_000_000_u64,
                "max_ack_pending": 500,
                "max_deliver": -1,
                "max_waiting": 256,
                "inactive_threshold": 86_400_000_000_000_u64,
                "filter_subjects": ["o.1", "o.2"],
                "metadata": { GROUP: "billing", WORKER: "worker-3" },
            })
        );
        let whole = settings.fresh(&worker, &filters(&["o.1"]), None);
        assert_eq!(whole["deliver_policy"], "all");
        assert!(whole["opt_start_seq"].is_null());
    }

    /// As a server shows it: with defaults of its own, and one filter in the other field.
    fn told() -> Value {
        let mut told = settings(Retention::Limits).fresh(
            &WorkerId::new("worker-3"),
            &filters(&["o.1"]),
            Some(17),
        );
        told["num_replicas"] = json!(0);
        told["filter_subject"] = json!("o.1");
        told
    }

    #[test]
    fn an_update_changes_the_filter_and_nothing_else() {
        let told = told();
        let sent = with_filter(&told, &told, &filters(&["o.2", "o.3"]));
        let mut expected = told.clone();
        expected["filter_subjects"] = json!(["o.2", "o.3"]);
        let fields = expected.as_object_mut().expect("an object");
        fields.remove("filter_subject");
        assert_eq!(sent, expected);
    }

    #[test]
    fn what_somebody_else_changed_is_noticed_and_put_back() {
        let told = told();
        for (field, other) in [
            ("ack_wait", json!(1_000_000_000_u64)),
            ("max_ack_pending", json!(1)),
            ("inactive_threshold", json!(5_000_000_000_u64)),
            ("headers_only", json!(true)),
            ("backoff", json!([1_000_000_000_u64])),
            ("max_batch", json!(1)),
        ] {
            let mut there = told.clone();
            there[field] = other;
            assert_eq!(changed(&there, &told), BTreeSet::from([field]));
            assert!(can_be_mended(&there, &told), "{field}");
            let sent = with_filter(&there, &told, &filters(&["o.1"]));
            assert_eq!(sent[field], told[field], "{field}");
        }
    }

    #[test]
    fn who_has_it_is_put_back_with_all_other_metadata_as_it_is() {
        let told = told();
        let mut there = told.clone();
        for metadata in [json!(null), json!({"team": "blue"})] {
            there["metadata"] = metadata;
            assert_eq!(changed(&there, &told), BTreeSet::from(["metadata"]));
            assert!(can_be_mended(&there, &told));
            let sent = with_filter(&there, &told, &filters(&["o.1"]));
            assert_eq!(sent["metadata"][GROUP], "billing");
            assert_eq!(sent["metadata"][WORKER], "worker-3");
            assert_eq!(sent["metadata"]["team"], there["metadata"]["team"]);
        }
    }

    #[test]
    fn what_is_no_matter_of_delivery_stays_as_somebody_wants_it() {
        let told = told();
        let mut there = told.clone();
        there["num_replicas"] = json!(3);
        there["description"] = json!("ours");
        there["metadata"]["team"] = json!("blue");
        // Unset, in the words of another version.
        there["headers_only"] = json!(false);
        there["priority_policy"] = json!("none");
        assert_eq!(changed(&there, &told), BTreeSet::new());
        let sent = with_filter(&there, &told, &filters(&["o.1"]));
        for field in ["num_replicas", "description", "metadata"] {
            assert_eq!(sent[field], there[field], "{field}");
        }
    }

    #[test]
    fn what_no_update_can_put_back_is_made_anew() {
        let told = told();
        for (field, other) in [
            ("ack_policy", json!("none")),
            ("deliver_policy", json!("new")),
            ("opt_start_seq", json!(5)),
            ("deliver_subject", json!("push.me")),
            ("max_deliver", json!(3)),
        ] {
            let mut there = told.clone();
            there[field] = other;
            assert_eq!(changed(&there, &told), BTreeSet::from([field]));
            assert!(!can_be_mended(&there, &told), "{field}");
        }
    }
}

//! The worker's durable: made, changed, rewound, looked at, deleted; one such operation at a time.
//!
//! ```text
//!   update ──▶ info ──┬─ none, left by an earlier life, ──▶ (delete) ──▶ create, at the stream's end
//!                     │  or changed past mending                         (work queue: at its beginning)
//!                     └─ ours ──▶ as we left it, with another filter ──▶ update ──▶ (resume)
//! ```
//!
//! The checkpoint is the truth, so a limits stream's durable starts at the end: whatever is older
//! is read past it. Only the filter ever changes by us. What the server answered to our last change
//! is remembered (`told`): a look that finds other settings, or a pause, is drift, and an update
//! puts back what was told.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parti_core::codec::{self, Template};
use parti_core::config::{AckMode, JetStreamConfig};
use parti_core::ids::{PartitionId, WorkerId};
use parti_core::io::{ConsumerState, Retention};
use serde_json::{Value, json};

use super::api::{Action, Api, ConsumerInfo, error, refusal, rejected, unavailable};
use super::subjects::{self, overlap, partition, pattern, subject};
use crate::nats::link::{Silence, Trouble};
use crate::source::SourceError;

/// Where a durable's metadata names its owner.
pub(super) const GROUP: &str = "parti.group";
pub(super) const WORKER: &str = "parti.worker";

/// The server can rewind a consumer from this version on.
const RESETS: (u32, u32) = (2, 14);

/// From this share of `subject_cap` on, updates come with a warning.
const NEAR_CAP: f64 = 0.9;

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

/// There is no consumer.
const ABSENT: ConsumerState = ConsumerState {
    identity: 0,
    delivered: 0,
    as_wanted: false,
};

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
    fn filters(&self, partitions: &[PartitionId]) -> Result<BTreeSet<String>, SourceError> {
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
    fn fresh(&self, worker: &WorkerId, filters: &BTreeSet<String>, start: Option<u64>) -> Value {
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
fn can_be_mended(there: &Value, told: &Value) -> bool {
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
fn changed<'a>(there: &'a Value, told: &'a Value) -> BTreeSet<&'a str> {
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
fn with_filter(there: &Value, told: &Value, filters: &BTreeSet<String>) -> Value {
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

/// Which life of which durable this worker is in.
#[derive(Debug, Default)]
struct Life {
    worker: Option<WorkerId>,
    /// Its settings, as the server told them when we last made or changed it. None: whatever is
    /// there is not of our making.
    told: Option<Value>,
    /// The creation stamp that goes with the identity.
    created: String,
    identity: u64,
}

/// The worker's durable.
#[derive(Debug)]
pub(super) struct Consumer {
    api: Api,
    settings: Arc<Settings>,
    life: Mutex<Life>,
    turn: tokio::sync::Mutex<()>,
    tell: Box<dyn Tell>,
}

/// Whoever pulls from the durable is told of its lives, before anybody else is.
pub(super) trait Tell: std::fmt::Debug + Send + Sync {
    /// The durable has this name and this identity now; `None`: there is none to pull from.
    fn life(&self, life: Option<(String, u64)>);
}

impl Consumer {
    /// No durable yet.
    pub fn new(api: Api, settings: Arc<Settings>, tell: Box<dyn Tell>) -> Self {
        Self {
            api,
            settings,
            life: Mutex::default(),
            turn: tokio::sync::Mutex::new(()),
            tell,
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This worker has a session under this id now, or none.
    pub fn claimed(&self, worker: Option<&WorkerId>) {
        let mut life = self.life();
        life.worker = worker.cloned();
        life.told = None;
        life.created.clear();
        self.tell.life(None);
    }

    fn worker(&self) -> Result<WorkerId, SourceError> {
        let worker = self.life().worker.clone();
        worker.ok_or_else(|| unavailable("this worker has no session"))
    }

    /// Nobody pulls from the durable that was, and nothing of it counts any more.
    fn forget(&self) {
        self.tell.life(None);
        let mut life = self.life();
        life.created.clear();
        life.told = None;
    }

    /// Takes note of what the server says of the durable. `rewound`: its sequences began anew.
    fn state(&self, info: &ConsumerInfo, as_wanted: bool, rewound: bool) -> ConsumerState {
        let mut life = self.life();
        if life.created != info.created || rewound {
            life.identity += 1;
            life.created.clone_from(&info.created);
            if let Some(worker) = &life.worker {
                self.tell
                    .life(Some((self.settings.name(worker), life.identity)));
            }
        }
        ConsumerState {
            identity: life.identity,
            delivered: info.delivered.consumer_seq,
            as_wanted,
        }
    }

    /// Somebody else's consumer is left alone, whatever its name.
    fn check_owner(&self, info: &ConsumerInfo) -> Result<(), SourceError> {
        let is_the_one_we_made = {
            let life = self.life();
            life.told.is_some() && life.created == info.created
        };
        match info.about(GROUP) {
            Some(group) if group == self.settings.group => Ok(()),
            None if is_the_one_we_made => Ok(()),
            owner => Err(rejected(format!(
                "the consumer {} belongs to {}; set jetstream.consumer_prefix to another name",
                info.name,
                owner.map_or("nobody that Parti knows".into(), |group| format!(
                    "the group {group}"
                )),
            ))),
        }
    }

    /// Makes it deliver exactly these partitions.
    pub async fn update(&self, partitions: &[PartitionId]) -> Result<ConsumerState, SourceError> {
        let _turn = self.turn.lock().await;
        let worker = self.worker()?;
        let filters = self.settings.filters(partitions)?;
        if filters.is_empty() {
            // It would get the whole stream.
            return Err(rejected("an empty filter is never sent"));
        }
        self.warn_near_cap(partitions.len());
        let name = self.settings.name(&worker);
        let there = self.api.consumer_info(&name).await?;
        if let Some(info) = &there {
            self.check_owner(info)?;
        }
        let start = self.start().await?;
        let told = self.life().told.clone();
        let ours = there
            .zip(told)
            .filter(|(info, told)| can_be_mended(&info.config, told));
        let mut put = None;
        if let Some((info, told)) = ours {
            let config = with_filter(&info.config, &told, &filters);
            let update = self.api.put_consumer(&name, config, Action::Update).await;
            // Somebody changed what cannot be put back: it is made anew.
            let refused = matches!(&update, Err(Trouble::Refusal(why)) if why.err_code == refusal::NOT_CHANGED);
            put = (!refused).then_some(update);
        }
        let put = match put {
            Some(put) => put,
            None => {
                // Whoever pulls from an earlier one gets nothing more, and neither do we.
                self.forget();
                let fresh = self.settings.fresh(&worker, &filters, start);
                self.api.delete_consumer(&name).await?;
                self.api.put_consumer(&name, fresh, Action::Create).await
            }
        };
        match put {
            Ok(info) => {
                if info.paused {
                    self.api.resume_consumer(&name).await?;
                }
                self.life().told = Some(info.config.clone());
                Ok(self.state(&info, true, false))
            }
            Err(Trouble::Refusal(why))
                if matches!(why.err_code, refusal::NOT_UNIQUE | refusal::WHOLE_STREAM) =>
            {
                Err(self.who_has(&name, &filters).await?)
            }
            Err(trouble) => Err(error(trouble)),
        }
    }

    fn warn_near_cap(&self, subjects: usize) {
        let cap = self.settings.jetstream.subject_cap;
        if subjects as f64 >= f64::from(cap) * NEAR_CAP {
            tracing::warn!(
                subjects,
                cap,
                "the durable is near its cap of subjects; add workers or raise jetstream.subject_cap"
            );
        }
    }

    /// Where a new durable starts; also makes sure that the stream is still the same.
    async fn start(&self) -> Result<Option<u64>, SourceError> {
        let end = self.api.stream_info().await?.state.end();
        Ok((self.settings.retention == Retention::Limits).then_some(end))
    }

    /// Who has a subject of a work queue that this worker should have.
    async fn who_has(
        &self,
        name: &str,
        filters: &BTreeSet<String>,
    ) -> Result<SourceError, SourceError> {
        let consumers = self.api.consumers().await?;
        for other in consumers.iter().filter(|other| other.name != name) {
            let theirs = other.filters();
            let shared = filters.iter().find(|mine| {
                let mine: Vec<&str> = mine.split('.').collect();
                let same = |their: &&str| overlap(&mine, &their.split('.').collect::<Vec<_>>());
                theirs.is_empty() || theirs.iter().any(same)
            });
            let Some(shared) = shared else { continue };
            let ours = other.about(GROUP) == Some(self.settings.group.as_str());
            let partition = partition(&self.settings.template, shared);
            return Ok(match (other.about(WORKER), partition) {
                (Some(worker), Some(partition)) if ours => SourceError::Occupied {
                    by: WorkerId::new(worker),
                    partition,
                },
                _ => rejected(format!(
                    "on a work queue a subject has one consumer, and {shared} is the consumer {}'s, \
                     which is none of this group; delete it, or use a stream with limits retention",
                    other.name
                )),
            });
        }
        Ok(unavailable("somebody had the subject, and has it no more"))
    }

    /// Deletes it.
    pub async fn delete(&self) -> Result<ConsumerState, SourceError> {
        let _turn = self.turn.lock().await;
        let name = self.settings.name(&self.worker()?);
        self.forget();
        self.api.delete_consumer(&name).await?;
        Ok(ABSENT)
    }

    /// Makes it begin anew, with the filter that it has: at the beginning of a work queue, at the end
    /// of any other stream. Where the server does not say whether it did, the durable is to be made
    /// anew: that is always sound.
    pub async fn reset(&self) -> Result<ConsumerState, SourceError> {
        let _turn = self.turn.lock().await;
        let worker = self.worker()?;
        let name = self.settings.name(&worker);
        let Some(there) = self.api.consumer_info(&name).await? else {
            return Err(rejected(format!("there is no consumer {name}")));
        };
        self.check_owner(&there)?;
        let start = self.start().await?;
        let version = self.api.link.client.server_info().version;
        if resets(&version) {
            // Its settings stay, so what was told stays what it should be.
            let reset = self.api.reset_consumer(&name, start.unwrap_or(1)).await;
            return self.rewound(reset);
        }
        if start.is_some() {
            let filters: BTreeSet<String> =
                there.filters().into_iter().map(str::to_owned).collect();
            if filters.is_empty() {
                return Err(rejected("an empty filter is never sent"));
            }
            let fresh = self.settings.fresh(&worker, &filters, start);
            self.forget();
            self.api.delete_consumer(&name).await?;
            let made = self.api.put_consumer(&name, fresh, Action::Create).await;
            if let Ok(info) = &made {
                self.life().told = Some(info.config.clone());
            }
            return self.rewound(made);
        }
        Err(rejected(format!("NATS {version} cannot rewind a consumer")))
    }

    /// What became of a durable that was to begin anew.
    fn rewound(&self, done: Result<ConsumerInfo, Trouble>) -> Result<ConsumerState, SourceError> {
        match done {
            Ok(info) => Ok(self.state(&info, true, true)),
            Err(Trouble::Silence(Silence::Open(why))) => Err(rejected(why)),
            Err(trouble) => Err(error(trouble)),
        }
    }

    /// Compares it with what is wanted.
    pub async fn inspect(&self, partitions: &[PartitionId]) -> Result<ConsumerState, SourceError> {
        let _turn = self.turn.lock().await;
        let name = self.settings.name(&self.worker()?);
        let wanted = self.settings.filters(partitions)?;
        let Some(info) = self.api.consumer_info(&name).await? else {
            // It goes away with its stream, too.
            self.api.stream_info().await?;
            return Ok(ABSENT);
        };
        let there: BTreeSet<String> = info.filters().into_iter().map(str::to_owned).collect();
        let as_wanted = there == wanted && self.is_as_told(&info);
        Ok(self.state(&info, as_wanted, false))
    }

    /// Whether everything but its filter is as we left it. What is not is logged by name.
    fn is_as_told(&self, info: &ConsumerInfo) -> bool {
        let Some(told) = self.life().told.clone() else {
            // An earlier process left it behind.
            return false;
        };
        let changed = changed(&info.config, &told);
        let untouched = changed.is_empty() && !info.paused;
        if !untouched {
            let (consumer, paused) = (&info.name, info.paused);
            tracing::warn!(
                %consumer, ?changed, paused,
                "somebody else changed the durable; it is put back as it was"
            );
        }
        untouched
    }

    /// Deletes another worker's durable, if it still delivers this partition.
    pub async fn evict(
        &self,
        worker: &WorkerId,
        partition: &PartitionId,
    ) -> Result<ConsumerState, SourceError> {
        let name = self.settings.name(worker);
        let subject = subjects::subject(&self.settings.template, partition)?;
        let Some(info) = self.api.consumer_info(&name).await? else {
            return Ok(ABSENT);
        };
        self.check_owner(&info)?;
        let theirs = info.filters();
        if theirs.is_empty() || theirs.contains(&subject.as_str()) {
            self.api.delete_consumer(&name).await?;
            return Ok(ABSENT);
        }
        Ok(ConsumerState {
            identity: 1,
            delivered: info.delivered.consumer_seq,
            as_wanted: true,
        })
    }
}

/// Whether a server of this version can rewind consumers.
fn resets(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= RESETS,
        // A build of somebody's own: it says so if it cannot.
        _ => true,
    }
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

    #[test]
    fn rewinding_is_for_newer_servers() {
        for (version, can) in [
            ("2.10.26", false),
            ("2.13.9", false),
            ("2.14.0-RC.1", true),
            ("2.15.1", true),
            ("3.0.0", true),
            ("dev", true),
        ] {
            assert_eq!(resets(version), can, "{version}");
        }
    }
}

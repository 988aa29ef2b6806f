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

use parti_core::ids::{PartitionId, WorkerId};
use parti_core::io::{ConsumerState, Retention};
use serde_json::Value;

use super::api::{Action, Api, ConsumerInfo, error, refusal, rejected, unavailable};
use super::settings::{GROUP, Settings, WORKER, can_be_mended, changed, with_filter};
use super::subjects::{overlap, partition, subject};
use crate::nats::link::{Silence, Trouble};
use crate::source::SourceError;

/// The server can rewind a consumer from this version on.
const RESETS: (u32, u32) = (2, 14);

/// From this share of `subject_cap` on, updates come with a warning.
const NEAR_CAP: f64 = 0.9;

/// There is no consumer.
const ABSENT: ConsumerState = ConsumerState {
    identity: 0,
    delivered: 0,
    as_wanted: false,
};

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
            other => Err(rejected(format!(
                "the consumer {} belongs to {}; set jetstream.consumer_prefix to another name",
                info.name,
                owner(other),
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
        let subject = subject(&self.settings.template, partition)?;
        let Some(info) = self.api.consumer_info(&name).await? else {
            return Ok(ABSENT);
        };
        let theirs = info.filters();
        if theirs.is_empty() || theirs.contains(&subject.as_str()) {
            // That it has the name of one of ours proves nothing.
            let group = info.about(GROUP);
            if group != Some(self.settings.group.as_str()) {
                let stream = &self.api.stream;
                return Err(rejected(format!(
                    "the consumer {name} has {subject}, and by its metadata it belongs to {}, so it \
                     is left alone; delete it, as by `nats consumer rm {stream} {name}`",
                    owner(group),
                )));
            }
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

/// Whose a consumer is, by what its metadata says of a group.
fn owner(group: Option<&str>) -> String {
    group.map_or("nobody that Parti knows".into(), |group| {
        format!("the group {group}")
    })
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

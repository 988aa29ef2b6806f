//! What a client holds, and what it is still to be told.
//!
//! ```text
//!   Live ──▶ (goodbye, or silence for a TTL) ──▶ Deaf ──▶ Over
//!     │ service stops: revoked in good order ──────────────▲
//!     └ session lost to others ────────────────────────────┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::join_all;
use parti::inspect::Bounds;
use parti::source::log::Topic;
use parti::{CommitRefused, Config, Epoch, Grant, Offset, PartitionId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::failure::Failure;
use crate::sse::{self, Frames};

/// News that wait for a slow stream; then it is ended, and a new one starts from what is held.
const WAITING: usize = 10_000;

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client said goodbye.
    Goodbye,
    /// The client gave no sign of life.
    Silent,
    /// The group gave the session up.
    Lost,
    /// This instance stops.
    Service,
}

impl End {
    /// For people and programs.
    pub fn why(self) -> &'static str {
        match self {
            Self::Goodbye => "deregistered",
            Self::Silent => "no sign of life for the session's TTL",
            Self::Lost => "the group gave this session up",
            Self::Service => "the service stops",
        }
    }
}

/// How far a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Live,
    /// Nothing more is heard from the client: what it has is taken as it is.
    Deaf,
    Over(String),
}

struct Held {
    grant: Grant,
    checkpoint: Option<Offset>,
    /// Until when it is to be released, in milliseconds since the Unix epoch.
    revoked: Option<u64>,
    released: bool,
}

struct State {
    phase: Phase,
    end: Option<End>,
    /// The group has given the session up, whatever it was to end for.
    lost: bool,
    held: BTreeMap<PartitionId, Held>,
    /// The last done offsets, as they were when partitions were taken.
    taken: BTreeMap<PartitionId, (Epoch, Option<Offset>)>,
    /// What the open stream is to tell.
    news: VecDeque<Bytes>,
    /// Which stream is open; 0: none.
    stream: u64,
    streams: u64,
    /// When the client was last heard.
    heard: Instant,
}

impl State {
    fn tell(&mut self, event: &str, data: &Value) {
        if self.stream == 0 {
            return;
        }
        if self.news.len() >= WAITING {
            self.stream = 0;
            self.news.clear();
            return;
        }
        self.news.push_back(sse::frame(event, data));
    }

    fn tell_assigned(&mut self, partition: &PartitionId) {
        let Some(held) = self.held.get(partition) else {
            return;
        };
        let assigned = json!({
            "partition": partition,
            "epoch": held.grant.epoch,
            "checkpoint": held.checkpoint,
            "next_offset": held.grant.next_offset,
        });
        self.tell("assigned", &assigned);
    }

    fn tell_revoked(&mut self, partition: &PartitionId) {
        let Some(held) = self.held.get(partition) else {
            return;
        };
        if let Some(deadline) = held.revoked {
            let revoke = json!({
                "partition": partition,
                "epoch": held.grant.epoch,
                "deadline_ms": deadline,
            });
            self.tell("revoke", &revoke);
        }
    }

    fn tell_lost(&mut self, partition: &PartitionId, epoch: Epoch, why: &str) {
        let lost = json!({ "partition": partition, "epoch": epoch, "why": why });
        self.tell("lost", &lost);
    }
}

/// One session of a client.
pub struct Seat {
    /// What the client calls itself.
    pub consumer: String,
    /// What else it said of itself.
    pub metadata: Value,
    /// No sign of life for so long ends it.
    pub ttl: Duration,
    /// A revoke waits for so long.
    revoke_within: Duration,
    /// Where its messages are.
    topic: Topic,
    /// Where partitions end, as last seen. They only grow.
    ends: Mutex<BTreeMap<PartitionId, Bounds>>,
    state: Mutex<State>,
    /// Grows with every change of the state.
    changes: watch::Sender<u64>,
}

impl Seat {
    /// A seat that holds nothing.
    pub fn new(consumer: String, metadata: Value, config: &Config, topic: Topic) -> Self {
        Self {
            consumer,
            metadata,
            ttl: config.session_ttl(),
            revoke_within: config.handoff.release_warning,
            topic,
            ends: Mutex::default(),
            state: Mutex::new(State {
                phase: Phase::Live,
                end: None,
                lost: false,
                held: BTreeMap::new(),
                taken: BTreeMap::new(),
                news: VecDeque::new(),
                stream: 0,
                streams: 0,
                heard: Instant::now(),
            }),
            changes: watch::Sender::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let result = work(&mut self.lock());
        self.changes.send_modify(|changes| *changes += 1);
        result
    }

    /// The client is there.
    pub fn hear(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        match &state.phase {
            Phase::Live => {
                state.heard = Instant::now();
                Ok(())
            }
            Phase::Deaf => Err(Failure::session_gone("this session is ending")),
            Phase::Over(why) => Err(Failure::session_gone(format!(
                "this session is over: {why}"
            ))),
        }
    }

    /// How many partitions it holds.
    pub fn holds(&self) -> usize {
        self.lock().held.len()
    }

    /// A partition was taken, with this as its last done offset.
    pub fn taken(&self, partition: &PartitionId, epoch: Epoch, offset: Option<Offset>) {
        let mut state = self.lock();
        state.taken.insert(partition.clone(), (epoch, offset));
    }

    /// A partition is the client's.
    pub fn granted(&self, grant: Grant) {
        self.change(|state| {
            let partition = grant.partition.clone();
            let checkpoint = match state.taken.remove(&partition) {
                Some((epoch, offset)) if epoch == grant.epoch => offset,
                // Told again: the same grant, or one whose take was told before.
                _ => grant.next_offset.0.checked_sub(1).map(Offset),
            };
            let held = Held {
                grant,
                checkpoint,
                revoked: None,
                released: false,
            };
            state.held.insert(partition.clone(), held);
            state.tell_assigned(&partition);
        });
    }

    /// The client is to let go of a partition: waits until it has, for a while.
    pub async fn revoked(&self, partition: &PartitionId, epoch: Epoch) {
        let mut changes = self.changes.subscribe();
        let until = Instant::now() + self.revoke_within;
        let deadline = wall_ms().saturating_add(self.revoke_within.as_millis() as u64);
        self.change(|state| {
            // Who is not listened to any more is not asked either.
            if state.phase == Phase::Live
                && let Some(held) = state.held.get_mut(partition)
                && held.grant.epoch == epoch
            {
                held.revoked.get_or_insert(deadline);
                state.tell_revoked(partition);
            }
        });
        loop {
            {
                let mut state = self.lock();
                let live = state.phase == Phase::Live;
                let held = state
                    .held
                    .get(partition)
                    .filter(|held| held.grant.epoch == epoch);
                match held {
                    None => return,
                    Some(held) if held.released || !live => {
                        state.held.remove(partition);
                        return;
                    }
                    Some(_) if Instant::now() >= until => {
                        state.held.remove(partition);
                        state.tell_lost(partition, epoch, "it was not released in time");
                        drop(state);
                        self.changes.send_modify(|changes| *changes += 1);
                        return;
                    }
                    Some(_) => {}
                }
            }
            // The sender is this seat's own.
            let _ = tokio::time::timeout_at(until, changes.changed()).await;
        }
    }

    /// A partition is somebody else's.
    pub fn lost(&self, partition: &PartitionId, epoch: Epoch) {
        self.change(|state| {
            let held = state.held.get(partition);
            if held.is_some_and(|held| held.grant.epoch == epoch) {
                state.held.remove(partition);
                state.tell_lost(
                    partition,
                    epoch,
                    "somebody else has it, or the session is lost",
                );
            }
        });
    }

    /// The session is to end; the first reason stays.
    pub fn end(&self, end: End) {
        self.change(|state| {
            state.lost |= end == End::Lost;
            state.end.get_or_insert(end);
        });
    }

    /// Waits for the reason to end: one that was given, or silence.
    pub async fn ending(&self) -> End {
        let mut changes = self.changes.subscribe();
        loop {
            let silent_at = {
                let mut state = self.lock();
                if let Some(end) = state.end {
                    return end;
                }
                if state.stream != 0 {
                    // An open stream is a sign of life: the kernel closes it when nobody is there.
                    state.heard = Instant::now();
                }
                let silent_at = state.heard + self.ttl;
                if Instant::now() >= silent_at {
                    state.end = Some(End::Silent);
                    return End::Silent;
                }
                silent_at
            };
            tokio::select! {
                () = tokio::time::sleep_until(silent_at) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// From now on nothing is taken from the client, and nothing is waited for.
    pub fn deafen(&self) {
        self.change(|state| state.phase = Phase::Deaf);
    }

    /// It is over.
    pub fn over(&self, why: &str) {
        self.change(|state| {
            state.held.clear();
            state.phase = Phase::Over(why.to_owned());
        });
    }

    /// Whether the group gave it up: it was ended, or goes on elsewhere.
    pub fn was_lost(&self) -> bool {
        self.lock().lost
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        matches!(self.lock().phase, Phase::Over(_))
    }

    /// Waits until it is over.
    pub async fn is_over(&self) {
        let mut changes = self.changes.subscribe();
        // The sender is this seat's own.
        let over = |_: &u64| matches!(self.lock().phase, Phase::Over(_));
        let _ = changes.wait_for(over).await;
    }

    /// Where the messages of its partitions are.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Whether the log has a message at an offset, as far as is known: nobody can have handled what
    /// is not there, and a checkpoint past the end would stop the partition.
    async fn has(&self, commits: &[Commit]) -> Result<Vec<bool>, Failure> {
        let look = |ends: &BTreeMap<PartitionId, Bounds>| {
            let has = |commit: &Commit| {
                let bounds = ends.get(&PartitionId::new(commit.partition.as_str()));
                bounds.is_some_and(|bounds| commit.offset < bounds.end.0)
            };
            commits.iter().map(has).collect::<Vec<bool>>()
        };
        let ends = || self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let known = look(&ends());
        if known.iter().all(|has| *has) {
            return Ok(known);
        }
        let now = self.topic.bounds().await?;
        let known = look(&now);
        *ends() = now;
        Ok(known)
    }

    /// A commit of the client: what became of each, in order.
    pub async fn commit(&self, commits: &[Commit]) -> Result<Vec<Committed>, Failure> {
        let there = self.has(commits).await?;
        let grants: Vec<Option<Grant>> = {
            let state = self.lock();
            let grant = |commit: &Commit| {
                let id = PartitionId::new(commit.partition.as_str());
                let held = state.held.get(&id)?;
                (held.grant.epoch.0 == commit.epoch && !held.released).then(|| held.grant.clone())
            };
            commits.iter().map(grant).collect()
        };
        let each = commits.iter().zip(grants).zip(there);
        let each = each.map(|((commit, grant), there)| async move {
            let (result, why) = match grant {
                Some(_) if !there => refused("the log has no such message"),
                Some(grant) => verdict(grant.commit_stored(Offset(commit.offset)).await),
                None => not_held(),
            };
            Committed {
                partition: commit.partition.clone(),
                result,
                why,
            }
        });
        Ok(join_all(each).await)
    }

    /// The client has let go of a partition that was revoked, with this much done.
    pub async fn release(&self, release: &Release) -> Result<Released, Failure> {
        let id = PartitionId::new(release.partition.as_str());
        let revoked = {
            let state = self.lock();
            let held = state.held.get(&id);
            held.filter(|held| held.grant.epoch.0 == release.epoch)
                .map(|held| held.revoked.is_some())
        };
        let (result, why) = match (revoked, release.offset) {
            (None, _) => not_held(),
            (Some(false), _) => refused("nobody asked for it; deregister to give up everything"),
            (Some(true), None) => (Verdict::Ok, None),
            (Some(true), Some(offset)) => {
                let commit = Commit {
                    partition: release.partition.clone(),
                    epoch: release.epoch,
                    offset,
                };
                let committed = self.commit(&[commit]).await?.pop();
                committed.map_or_else(not_held, |committed| (committed.result, committed.why))
            }
        };
        if result == Verdict::Ok {
            self.change(|state| {
                if let Some(held) = state.held.get_mut(&id)
                    && held.grant.epoch.0 == release.epoch
                {
                    held.released = true;
                }
            });
        }
        Ok(Released { result, why })
    }

    /// Opens the stream of this session, in place of any other.
    pub fn open(self: &Arc<Self>, about: &Value) -> Stream {
        let number = self.change(|state| {
            state.streams += 1;
            state.stream = state.streams;
            state.news.clear();
            let held = state.held.iter();
            let held: Vec<Value> = held
                .map(|(id, held)| json!({ "partition": id, "epoch": held.grant.epoch }))
                .collect();
            let mut about = about.clone();
            about["held"] = Value::Array(held);
            state.tell("session", &about);
            let ids: Vec<PartitionId> = state.held.keys().cloned().collect();
            for id in &ids {
                state.tell_assigned(id);
                state.tell_revoked(id);
            }
            state.stream
        });
        Stream {
            number,
            changes: self.changes.subscribe(),
            seat: self.clone(),
        }
    }
}

/// One commit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Which partition.
    pub partition: String,
    /// The epoch that it was assigned under.
    pub epoch: u64,
    /// Everything up to and with this offset is done.
    pub offset: u64,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It counts.
    Ok,
    /// The partition is not this session's under this epoch: stop working on it.
    Fenced,
    /// It cannot be, for the reason given; the partition stays.
    Refused,
}

/// What became of one commit.
#[derive(Debug, Serialize, ToSchema)]
pub struct Committed {
    /// Which partition.
    pub partition: String,
    /// What became of it.
    pub result: Verdict,
    /// Why, if it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A partition that was let go of.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Which partition.
    pub partition: String,
    /// The epoch that it was assigned under.
    pub epoch: u64,
    /// Everything up to and with this offset is done, if more is done than was committed.
    pub offset: Option<u64>,
}

/// What became of a release.
#[derive(Debug, Serialize, ToSchema)]
pub struct Released {
    /// What became of it.
    pub result: Verdict,
    /// Why, if it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

fn not_held() -> (Verdict, Option<String>) {
    let why = "this session does not hold the partition under this epoch";
    (Verdict::Fenced, Some(why.to_owned()))
}

fn refused(why: impl ToString) -> (Verdict, Option<String>) {
    (Verdict::Refused, Some(why.to_string()))
}

fn verdict(committed: Result<(), CommitRefused>) -> (Verdict, Option<String>) {
    match committed {
        // Done already, under this very epoch: the same commit came twice, or late.
        Ok(()) | Err(CommitRefused::GoesBack { .. }) => (Verdict::Ok, None),
        Err(why @ (CommitRefused::NotOwned | CommitRefused::Fenced { .. })) => {
            (Verdict::Fenced, Some(why.to_string()))
        }
        Err(why @ CommitRefused::NoneFollows) => refused(why),
    }
}

/// The open stream of a session.
pub struct Stream {
    seat: Arc<Seat>,
    number: u64,
    changes: watch::Receiver<u64>,
}

impl Frames for Stream {
    async fn next(&mut self) -> Result<Bytes, Bytes> {
        loop {
            {
                let mut state = self.seat.lock();
                if state.stream != self.number {
                    return Err(sse::end(
                        "another stream took over, or this one was too slow",
                    ));
                }
                if let Some(news) = state.news.pop_front() {
                    return Ok(news);
                }
                if let Phase::Over(why) = &state.phase {
                    return Err(sse::end(why));
                }
            }
            // The sender lives as long as the seat, which is held here.
            let _ = self.changes.changed().await;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.seat.change(|state| {
            if state.stream == self.number {
                state.stream = 0;
                state.news.clear();
                state.heard = Instant::now();
            }
        });
    }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

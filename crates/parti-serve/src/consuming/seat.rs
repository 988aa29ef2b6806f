//! What a client holds, and what it is still to be told.
//!
//! ```text
//!   Live ──▶ (goodbye, or silence for a TTL) ──▶ Deaf ──▶ Over
//!     │ service stops: revoked in good order ──────────────▲
//!     └ session lost to others ────────────────────────────┘
//! ```

mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::join_all;
use parti::{Config, Epoch, Grant, Offset, PartitionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::ended::{End, Ended};
use super::events::{Assigned, Lost, Revoke, SessionEvent};
use super::progress::{Commit, Committed, Release, Released, Verdict, not_held, refused, verdict};
use crate::failure::Failure;
use crate::places::Messages;

/// What a client hears whose instance cannot know any more what is its own.
pub const CUT_OFF: &str = "this instance does not reach its store";
/// News that wait for a slow stream, besides what every stream begins with.
const WAITING: usize = 1_000;
/// What shows that a consumer is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// Its requests, or its open stream: for clients that only listen. While such a client is
    /// frozen, its kernel goes on taking the stream for it, and it keeps what it has.
    #[default]
    Stream,
    /// Its requests alone.
    Heartbeat,
}

/// Whose session it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// What it calls itself.
    pub consumer: String,
    /// What else it said of itself.
    pub metadata: Value,
    /// What shows that it is there.
    pub liveness: Liveness,
}

/// How far a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Live,
    /// Nothing more is heard from the client: what it has is taken as it is.
    Deaf,
    Over(Ended),
}

/// What becomes of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ear {
    /// No stream is open.
    Closed,
    /// The newest stream tells them.
    Open,
    /// It is open, but was too slow, and missed some: it ends, and another one starts from what is
    /// held.
    Behind,
}

struct Held {
    grant: Grant,
    /// The last done offset, and where reading goes on.
    checkpoint: Option<Offset>,
    next: Offset,
    /// Until when it is to be released, in milliseconds since the Unix epoch.
    revoked: Option<u64>,
    released: bool,
}

struct State {
    phase: Phase,
    end: Option<End>,
    /// The group has given the session up, whatever it was to end for.
    lost: bool,
    /// Whether the member's lease is alive: else this instance does not reach its store.
    leased: bool,
    held: BTreeMap<PartitionId, Held>,
    /// The last done offsets, as they were when partitions were taken.
    taken: BTreeMap<PartitionId, (Epoch, Option<Offset>)>,
    /// What the open stream is to tell.
    news: VecDeque<Bytes>,
    ear: Ear,
    /// How many streams there have been: the newest counts.
    streams: u64,
    /// When the client was last heard.
    heard: Instant,
}

impl State {
    /// Whether the store has not answered for so long that others may take over, and not because the
    /// session ends: then it has no lease either.
    fn is_cut_off(&self) -> bool {
        !self.leased && self.end.is_none()
    }

    fn tell(&mut self, event: &SessionEvent) {
        if self.ear != Ear::Open {
            return;
        }
        // A stream begins with what is held, and what of that is to be released: that always fits,
        // however much it is.
        if self.news.len() < WAITING + 2 * self.held.len() {
            self.news.push_back(event.frame());
        } else {
            self.ear = Ear::Behind;
            self.news.clear();
        }
    }

    /// Whoever opens the stream anew goes on after this.
    fn committed(&mut self, commit: &Commit) {
        let held = self
            .held
            .get_mut(&PartitionId::new(commit.partition.as_str()));
        let done = Offset(commit.offset);
        if let Some(held) = held
            && held.grant.epoch.0 == commit.epoch
            && held.next <= done
        {
            (held.checkpoint, held.next) = (Some(done), done.next());
        }
    }

    fn tell_assigned(&mut self, partition: &PartitionId) {
        let Some(held) = self.held.get(partition) else {
            return;
        };
        let assigned = Assigned {
            checkpoint: held.checkpoint,
            epoch: held.grant.epoch,
            next_offset: held.next,
            partition: partition.clone(),
        };
        self.tell(&SessionEvent::Assigned(assigned));
    }

    fn tell_revoked(&mut self, partition: &PartitionId) {
        let Some(held) = self.held.get(partition) else {
            return;
        };
        if let Some(deadline) = held.revoked {
            let revoke = Revoke {
                deadline_ms: deadline,
                epoch: held.grant.epoch,
                partition: partition.clone(),
            };
            self.tell(&SessionEvent::Revoke(revoke));
        }
    }

    fn tell_lost(&mut self, partition: &PartitionId, epoch: Epoch, why: &str) {
        self.tell(&SessionEvent::Lost(Lost {
            epoch,
            partition: partition.clone(),
            why: why.to_owned(),
        }));
    }
}

/// One session of a client.
pub struct Seat {
    /// Whose it is.
    pub client: Client,
    /// No sign of life for so long ends it.
    pub ttl: Duration,
    /// A revoke waits for so long.
    revoke_within: Duration,
    /// What the group's topic is called.
    pub topic: Arc<str>,
    /// Where the messages of its partitions are.
    pub messages: Messages,
    state: Mutex<State>,
    /// Grows with every change of the state.
    changes: watch::Sender<u64>,
    /// Somebody wants its member to list partitions again.
    refresh: Notify,
}

impl Seat {
    /// A seat that holds nothing.
    pub fn new(client: Client, config: &Config, topic: Arc<str>, messages: Messages) -> Self {
        Self {
            client,
            ttl: config.session_ttl(),
            revoke_within: config.handoff.release_warning,
            topic,
            messages,
            state: Mutex::new(State {
                phase: Phase::Live,
                end: None,
                lost: false,
                leased: true,
                held: BTreeMap::new(),
                taken: BTreeMap::new(),
                news: VecDeque::new(),
                ear: Ear::Closed,
                streams: 0,
                heard: Instant::now(),
            }),
            changes: watch::Sender::new(0),
            refresh: Notify::new(),
        }
    }

    /// Its member is to list partitions again.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Waits until its member is to list partitions again.
    pub async fn is_to_refresh(&self) {
        self.refresh.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let result = work(&mut self.lock());
        self.changes.send_modify(|changes| *changes += 1);
        result
    }

    /// The client is there. An answer tells it for how long what it holds is certainly its own: so
    /// there is none while this instance cannot know that.
    pub fn hear(&self) -> Result<Duration, Failure> {
        let mut state = self.lock();
        match &state.phase {
            Phase::Live => {
                state.heard = Instant::now();
                let left = match state.held.values().next() {
                    Some(held) => held.grant.leased_for(),
                    // Whatever comes was taken from a store that was reached at that time, when the
                    // lease was at most a heartbeat old, of which there are three in it.
                    None => self.ttl / 2,
                };
                if left.is_zero() || !state.leased {
                    return Err(Failure::unavailable(format!(
                        "{CUT_OFF}, and others may take over what the session holds: handle \
                         nothing, until this or another instance answers"
                    )));
                }
                Ok(left)
            }
            // Whether it may register again is known in a moment.
            Phase::Deaf if state.lost => {
                Err(Failure::unavailable("the group has given this session up"))
            }
            Phase::Deaf => Err(Failure::session_gone("this session is ending")),
            Phase::Over(ended) => Err(ended.failure()),
        }
    }

    /// Does something that ends with a write of this session. If the lease lapses meanwhile, the store
    /// has not answered for so long that others may take over: that is the answer then, and not that
    /// the request took too long. The write may be in the store, or get there, or not.
    pub async fn unless_cut_off<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.cut_off() => Err(Failure::open(
                format!(
                    "{CUT_OFF}, and whether this was written is not known: handle nothing, until \
                     this or another instance answers"
                ),
                "send the same again: what counts already does so once, and is ok; where the session \
                 goes on at another instance, `assigned` says with next_offset what was written",
            )),
        }
    }

    /// Waits until the store has not answered for so long that others may take over.
    pub async fn cut_off(&self) {
        let mut changes = self.changes.subscribe();
        // The sender is this seat's own.
        let _ = changes.wait_for(|_| self.lock().is_cut_off()).await;
    }

    /// The member's lease has lapsed, or is alive again.
    pub fn leased(&self, alive: bool) {
        self.change(|state| state.leased = alive);
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
                next: grant.next_offset,
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
                if self.hears_stream(&state) {
                    // The kernel closes it when nobody is there.
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

    /// Whether a stream is open that is a sign of life.
    fn hears_stream(&self, state: &State) -> bool {
        state.ear != Ear::Closed && self.client.liveness == Liveness::Stream
    }

    /// From now on nothing is taken from the client, and nothing is waited for.
    pub fn deafen(&self) {
        self.change(|state| state.phase = Phase::Deaf);
    }

    /// It is over.
    pub fn over(&self, ended: Ended) {
        self.change(|state| {
            state.held.clear();
            state.phase = Phase::Over(ended);
        });
    }

    /// Whether the group gave it up: it was ended, or goes on elsewhere.
    pub fn was_lost(&self) -> bool {
        self.lock().lost
    }

    /// How it has ended, once it is over.
    pub fn ended(&self) -> Option<Ended> {
        match &self.lock().phase {
            Phase::Over(ended) => Some(ended.clone()),
            Phase::Live | Phase::Deaf => None,
        }
    }

    /// Waits until it is over.
    pub async fn is_over(&self) {
        let mut changes = self.changes.subscribe();
        // The sender is this seat's own.
        let over = |_: &u64| matches!(self.lock().phase, Phase::Over(_));
        let _ = changes.wait_for(over).await;
    }

    /// A commit of the client: what became of each, in order.
    pub async fn commit(self: &Arc<Self>, commits: Vec<Commit>) -> Result<Vec<Committed>, Failure> {
        // Nobody can have handled what is not there, and a checkpoint past the end would stop the
        // partition.
        let message = |commit: &Commit| {
            let partition = PartitionId::new(commit.partition.as_str());
            (partition, Offset(commit.offset))
        };
        let messages: Vec<_> = commits.iter().map(message).collect();
        let there = self.messages.has(&messages).await?;
        let grants: Vec<Option<Grant>> = {
            let state = self.lock();
            let grant = |(commit, (id, _)): (&Commit, &(PartitionId, Offset))| {
                let held = state.held.get(id)?;
                (held.grant.epoch.0 == commit.epoch && !held.released).then(|| held.grant.clone())
            };
            commits.iter().zip(&messages).map(grant).collect()
        };
        // Not dropped with its request: who hangs up has what is stored all the same, and opens its
        // stream again after that.
        let storing = self.clone().store(commits, grants, there);
        let stored = tokio::spawn(storing).await;
        stored.map_err(|_| Failure::unavailable("the service ended before all was committed"))
    }

    async fn store(
        self: Arc<Self>,
        commits: Vec<Commit>,
        grants: Vec<Option<Grant>>,
        there: Vec<bool>,
    ) -> Vec<Committed> {
        let seat = &self;
        let each = commits.into_iter().zip(grants).zip(there);
        let each = each.map(|((commit, grant), there)| async move {
            let (result, why) = match grant {
                Some(_) if !there => refused("the log has no such message"),
                Some(grant) => verdict(grant.commit_stored(Offset(commit.offset)).await),
                None => not_held(),
            };
            if result == Verdict::Ok {
                seat.lock().committed(&commit);
            }
            Committed {
                partition: commit.partition,
                result,
                why,
            }
        });
        join_all(each).await
    }

    /// The client has let go of a partition that was revoked, with this much done.
    pub async fn release(self: &Arc<Self>, release: &Release) -> Result<Released, Failure> {
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
                let committed = self.commit(vec![commit]).await?.pop();
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
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A seat that holds nothing.
    pub fn seat() -> Arc<Seat> {
        let client = Client {
            consumer: "c".into(),
            metadata: Value::Null,
            liveness: Liveness::Stream,
        };
        let config = Config::default();
        Arc::new(Seat::new(client, &config, "t".into(), Messages::Elsewhere))
    }
}

//! What an operator asks of a group, and what became of it.
//!
//! ```text
//!   with a leader:     requests/<id>: open ──▶ the leader judges it, carries it out ──▶ done, refused
//!   without a leader:  judged here ──▶ overrides, or a session: compare-and-set ──▶ its effect shows
//! ```
//!
//! Both ways judge by the same rules (`parti_core::leader::requests`), end when the effect is there,
//! and are told in the group's history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parti_core::ids::{Incarnation, PartitionId, Revision, WorkerId};
use parti_core::io::{Expect, StoreError, Write, WriteOutcome};
use parti_core::key::Key;
use parti_core::leader::requests::{self, Sight};
use parti_core::record::{
    EventKind, Outcome, OverridesRecord, Record, Request, RequestRecord, SessionStatus,
    WorkerRecord,
};
use parti_core::text::{count, is_unseen};
use serde::Serialize;

use super::evict::{end_silent, revoke};
use super::{Error, history, marks, nonce, of_core, wall_ms};
use crate::inspect::{Follower, OwnerSession, Pace, Records};
use crate::store::{self, GroupStore};

/// How often a write is tried that meets others' writes, or a store in trouble.
pub(super) const TRIES: u32 = 16;
/// So many requests are written at once.
const AT_ONCE: usize = 1_000;
/// The wait before it is tried again on a store in trouble.
const PAUSE: Duration = Duration::from_millis(250);

/// Who asks, and why: both stand in the group's history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// Who asks.
    pub by: String,
    /// Why.
    pub why: String,
}

/// The longest texts of a [`Reason`], in bytes.
const LONGEST: usize = 500;

impl Reason {
    /// Both end in a line of the history, which nobody may forge or garble: one plain line each, of
    /// up to 500 bytes. Everything here that takes a reason checks it.
    pub fn check(&self) -> Result<(), Error> {
        if self.by.trim().is_empty() {
            let why = "who asks is empty: give a name (--by)";
            return Err(Error::Refused(why.into()));
        }
        for (what, text) in [("who asks (--by)", &self.by), ("why (--why)", &self.why)] {
            if text.len() > LONGEST {
                let long = text.len();
                return Err(Error::Refused(format!(
                    "{what} has {long} bytes; give up to {LONGEST}"
                )));
            }
            if text.chars().any(is_unseen) {
                return Err(Error::Refused(format!(
                    "{what} has line breaks, control or invisible characters; give one plain line"
                )));
            }
        }
        Ok(())
    }
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the effect of a request, or for owners to let go.
    pub effect: Duration,
    /// How long a worker must have been silent to count as frozen or dead: for its eviction from a
    /// group without a leader, where no other is there to end its session, and for a change of its
    /// checkpoints by force. Longer than its lease: the group's `heartbeat_ttl`, or
    /// `leaderless.lease_ttl`.
    pub silence: Duration,
}

/// The usual silence: longer than the default leases.
const SILENCE: Duration = Duration::from_secs(10);

impl From<Duration> for Patience {
    fn from(effect: Duration) -> Self {
        Self {
            effect,
            silence: SILENCE,
        }
    }
}

/// A request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CarriedOut {
    /// What was asked for.
    pub request: Request,
    /// How long it took until its effect was there, in milliseconds.
    pub took_ms: u64,
}

/// Asks a group for something, and waits until its effect is there, up to `patience`.
///
/// What cannot be done is [`Error::Refused`], with the reason. [`Error::Unfinished`] means that it was
/// asked for and is still under way: nothing takes it back.
///
/// ```no_run
/// use parti::WorkerId;
/// use parti::core::record::Request;
/// use parti::operate::{self, Reason};
/// use parti::store::{self, GroupStore};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let billing = GroupStore::new(store::open("sqlite:group.db").await?, "billing")?;
/// let reason = Reason { by: "alice".into(), why: "new disk".into() };
/// let drain = Request::Drain { worker: WorkerId::new("worker-1") };
/// let done = operate::request(&billing, drain, reason, Duration::from_secs(30)).await?;
/// println!("drained in {} ms", done.took_ms);
/// # Ok(())
/// # }
/// ```
pub async fn request(
    store: &GroupStore,
    request: Request,
    reason: Reason,
    patience: impl Into<Patience>,
) -> Result<CarriedOut, Error> {
    reason.check()?;
    let patience = patience.into();
    let began = Instant::now();
    let records = Records::read(store).await?;
    if records.identity().is_none() {
        return Err(Error::NoGroup(store.group().to_owned()));
    }
    if records.is_closed() {
        let why = format!("group {:?} is being deleted", store.group());
        return Err(Error::Refused(why));
    }
    let leaderless = records.is_leaderless();
    let is_there = |(_, _, session): (_, _, &WorkerRecord)| !session.status.is_over();
    // Without a leader nobody is needed for an eviction.
    let by_hand = leaderless && matches!(request, Request::Evict { .. });
    if !by_hand && !records.sessions().any(is_there) {
        return Err(Error::Refused(format!(
            "group {:?} has no workers that could {request}; start one first",
            store.group()
        )));
    }
    let asked = record(request.clone(), &reason)?;
    // Only the wait for the effect is cut short: what was begun to be written is written, so that
    // "it stays" is true.
    let outcome = if leaderless {
        Leaderless { store, asked }
            .carry_out(records, patience)
            .await?
    } else {
        of_leader(store, asked, patience.effect).await?
    };
    match outcome {
        Outcome::Open | Outcome::Accepted => Err(Error::Unfinished(format!(
            "the request to {request} is not carried out after {:?}, and stays: it will be when the \
             group can",
            patience.effect
        ))),
        Outcome::Refused { why } => Err(Error::Refused(format!("cannot {request}: {why}"))),
        Outcome::Overtaken { by } => {
            let left = match &request {
                Request::Drain { worker } => left_behind(store, worker).await?,
                _ => String::new(),
            };
            Err(Error::Overtaken(format!(
                "the request to {request} was overtaken: {by}{left}"
            )))
        }
        Outcome::Done => Ok(CarriedOut {
            request,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }),
    }
}

/// A request, as it is written down.
pub(super) fn record(request: Request, reason: &Reason) -> Result<RequestRecord, Error> {
    let asked = RequestRecord {
        request,
        by: reason.by.clone(),
        why: reason.why.clone(),
        at: wall_ms(),
        outcome: Outcome::Open,
        nonce: nonce()?,
    };
    // What no leader could read would stay for good, and be shown to nobody.
    let key = Key::Request(String::new().into());
    let written = Record::Request(Arc::new(asked.clone())).encode();
    match Record::decode(&key, &written) {
        Record::Request(_) => Ok(asked),
        _ => Err(Error::Refused(format!(
            "{} names what cannot be a worker or a partition; see `parti group describe` for those \
             of the group",
            asked.request
        ))),
    }
}

/// What became of the partitions of a worker that is gone.
async fn left_behind(store: &GroupStore, worker: &WorkerId) -> Result<String, Error> {
    let records = Records::read(store).await?;
    let still = records.checkpoints().filter(|(_, _, record)| {
        let owner = record.owner.as_ref().filter(|(owner, _)| owner == worker);
        owner.is_some_and(|(_, life)| records.owner_session(worker, *life) == OwnerSession::Over)
    });
    Ok(match still.count() {
        0 => "; others have all that it had".to_owned(),
        still => format!(
            "; others take over what it had from the last checkpoints, {} so far without an owner",
            count(still as u64, "partition")
        ),
    })
}

/// Asks the leader, and waits for its answer.
async fn of_leader(
    store: &GroupStore,
    asked: RequestRecord,
    patience: Duration,
) -> Result<Outcome, Error> {
    let mut follower = Follower::new(store.watch_all(), Pace::Close);
    let what = asked.request.clone();
    let Some((key, _)) = put(store, "", vec![asked]).await?.pop() else {
        return Ok(Outcome::Open);
    };
    within(patience, answer(&mut follower, &key, &what, &mut None)).await
}

/// Puts requests before the leader, under names that begin so; answers where each is. It carries out
/// first what was put first.
pub(super) async fn put(
    store: &GroupStore,
    name: &str,
    asked: Vec<RequestRecord>,
) -> Result<Vec<(Key, Revision)>, Error> {
    let mut writes = Vec::new();
    for asked in asked {
        writes.push(Write {
            key: Key::Request(format!("{name}{:016x}", nonce()?.0).into()),
            expect: Expect::Absent,
            value: Some(Record::Request(Arc::new(asked))),
        });
    }
    let outcomes = persistent(store, &writes).await;
    let keys = writes.into_iter().map(|write| write.key);
    let placed = keys.zip(outcomes).map(|(key, outcome)| match outcome {
        WriteOutcome::Done(revision) => Ok((key, revision)),
        // Only this request has its name: whatever is there is it, or what became of it.
        WriteOutcome::Conflict(found) => {
            Ok((key, found.map_or(Revision(0), |found| found.revision)))
        }
        WriteOutcome::Failed(error) => Err(of_core(&error).into()),
    });
    placed.collect()
}

/// Waits for what becomes of a request that was put before the leader. `trouble` is why the store is
/// not heard meanwhile, while it is not.
pub(super) async fn answer(
    follower: &mut Follower,
    key: &Key,
    what: &Request,
    trouble: &mut Option<store::Error>,
) -> Result<Outcome, Error> {
    let mut seen = false;
    let outcome = |records: &Records| {
        let found = records.requests.iter().find(|stored| stored.key == *key)?;
        let Record::Request(record) = &found.record else {
            return None;
        };
        // A leader that was evicted itself may leave nobody who could say that it is done.
        if let Request::Evict {
            worker,
            incarnation,
            ..
        } = what
            && !record.outcome.is_final()
            && records.owner_session(worker, *incarnation) == OwnerSession::Over
        {
            return Some(Outcome::Done);
        }
        Some(record.outcome.clone())
    };
    loop {
        let found = match follower.next(outcome).await {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                *trouble = Some(error);
                continue;
            }
            None => return Err(Error::Unfinished("the store's watch has ended".into())),
        };
        *trouble = None;
        match found {
            Some(outcome) if outcome.is_final() => return Ok(outcome),
            Some(_) => seen = true,
            None if seen => {
                return Err(Error::Unfinished(format!(
                    "somebody removed the request to {what}"
                )));
            }
            // Not there yet.
            None => {}
        }
    }
}

/// What comes in time; otherwise it is under way.
pub(super) async fn within(
    patience: Duration,
    answer: impl Future<Output = Result<Outcome, Error>>,
) -> Result<Outcome, Error> {
    let answered = tokio::time::timeout(patience, answer).await;
    answered.unwrap_or(Ok(Outcome::Accepted))
}

/// Writes, again where the store is in trouble: the same write lands once, or meets itself.
pub(super) async fn persistent(store: &GroupStore, writes: &[Write]) -> Vec<WriteOutcome> {
    let in_trouble = |outcome: &WriteOutcome| {
        let failed = WriteOutcome::Failed(StoreError::Unavailable);
        *outcome == failed || *outcome == WriteOutcome::Failed(StoreError::Unknown)
    };
    let mut outcomes = vec![WriteOutcome::Failed(StoreError::Unavailable); writes.len()];
    for tries in 1..=TRIES {
        let open: Vec<usize> = (0..writes.len())
            .filter(|place| in_trouble(&outcomes[*place]))
            .collect();
        if open.is_empty() {
            break;
        }
        if tries > 1 {
            tokio::time::sleep(PAUSE).await;
        }
        for places in open.chunks(AT_ONCE) {
            let batch: Vec<Write> = places.iter().map(|place| writes[*place].clone()).collect();
            for (place, outcome) in places.iter().zip(store.write(&batch).await) {
                outcomes[*place] = outcome;
            }
        }
    }
    outcomes
}

/// One write of this kind.
pub(super) async fn persistent_one(store: &GroupStore, write: Write) -> WriteOutcome {
    let outcome = persistent(store, std::slice::from_ref(&write)).await.pop();
    outcome.unwrap_or(WriteOutcome::Failed(StoreError::Unavailable))
}

/// An operator of a group without a leader: writes by itself what a leader would.
struct Leaderless<'a> {
    store: &'a GroupStore,
    asked: RequestRecord,
}

impl Leaderless<'_> {
    async fn carry_out(&self, records: Records, patience: Patience) -> Result<Outcome, Error> {
        let outcome = self.decide(records, patience).await?;
        let line = self.asked.told(&outcome);
        history::tell(self.store, EventKind::Request, &self.asked.by, line).await;
        Ok(outcome)
    }

    async fn decide(&self, records: Records, patience: Patience) -> Result<Outcome, Error> {
        let request = &self.asked.request;
        if *request == Request::Rebalance {
            return Ok(Outcome::Refused {
                why: "there is no leader: every worker always goes by the strategy".into(),
            });
        }
        let mut follower = Follower::new(self.store.watch_all(), Pace::Close);
        let decided = match request {
            Request::Evict { .. } => revoke(self.store, records, request).await?,
            _ => self
                .enter(records)
                .await?
                .map(|entered| Some(entered.revision)),
        };
        let heeded = match decided {
            Ok(heeded) => heeded,
            Err(why) => return Ok(Outcome::Refused { why }),
        };
        let outcome = |records: &Records| {
            let overrides = records.overrides().cloned().unwrap_or_default();
            let known = records.overrides.as_ref().map(|stored| stored.revision);
            // A view from before the decision says nothing.
            if heeded.is_some_and(|heeded| known.is_none_or(|known| known < heeded)) {
                return None;
            }
            requests::outcome(request, &overrides, &Seen { records, heeded })
        };
        let effect = async {
            loop {
                match follower.next(outcome).await {
                    Some(Ok(Some(outcome))) => return Ok(outcome),
                    Some(_) => {}
                    None => return Err(Error::Unfinished("the store's watch has ended".into())),
                }
            }
        };
        // Peers end the session once it is silent; if all are gone, there is only the operator.
        let end = async {
            match request {
                Request::Evict {
                    worker,
                    incarnation,
                    ..
                } => end_silent(self.store, worker, *incarnation, patience.silence).await,
                _ => std::future::pending().await,
            }
        };
        let effect = async {
            tokio::pin!(effect);
            tokio::select! {
                outcome = &mut effect => outcome,
                ended = end => {
                    ended?;
                    effect.await
                }
            }
        };
        within(patience.effect, effect).await
    }

    async fn enter(&self, records: Records) -> Result<Result<Entered, String>, Error> {
        let request = &self.asked.request;
        match request {
            Request::Pause { partition } => {
                marks::pause(self.store, records, &self.asked, partition).await
            }
            Request::Resume { partition } => marks::resume(self.store, records, partition).await,
            _ => enter(self.store, records, Same::Stays, |_| vec![request.clone()]).await,
        }
    }
}

/// What becomes of overrides that have all that is asked for already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Same {
    /// They stay as they are.
    Stays,
    /// They are written anew: whoever means to change what it has read looks again.
    Written,
}

/// Requests that stand in the overrides of a group without a leader.
pub(super) struct Entered {
    /// What stood there before.
    pub before: OverridesRecord,
    /// Whoever heeds this revision goes by them.
    pub revision: Revision,
}

/// Enters requests into the overrides of a group without a leader: those that are `asked` for by
/// what was read, each time that it is. The inner error is the reason why they are refused.
pub(super) async fn enter(
    store: &GroupStore,
    mut records: Records,
    same: Same,
    mut asked: impl FnMut(&Records) -> Vec<Request>,
) -> Result<Result<Entered, String>, Error> {
    for _ in 0..TRIES {
        if let Some(found) = &records.overrides
            && records.overrides().is_none()
        {
            return Err(Error::Refused(format!(
                "the record overrides cannot be read ({:?}): update this program, or delete the \
                 record if it is damaged",
                found.record
            )));
        }
        let before = records.overrides().cloned().unwrap_or_default();
        let mut next = before.clone();
        let sight = Seen {
            records: &records,
            heeded: None,
        };
        next.forget_lives(|worker, life| sight.is_over(worker, life));
        for request in asked(&records) {
            if let Err(why) = requests::enter(&request, &mut next, &sight) {
                return Ok(Err(why));
            }
        }
        let found = records.overrides.as_ref().map(|stored| stored.revision);
        if next == before
            && same == Same::Stays
            && let Some(revision) = found
        {
            return Ok(Ok(Entered { before, revision }));
        }
        let record = Record::Overrides(Arc::new(OverridesRecord {
            nonce: nonce()?,
            ..next
        }));
        let write = Write {
            key: Key::Overrides,
            expect: found.map_or(Expect::Absent, Expect::At),
            value: Some(record.clone()),
        };
        let revision = match persistent_one(store, write).await {
            WriteOutcome::Done(revision) => revision,
            // An earlier try of this very write.
            WriteOutcome::Conflict(Some(found)) if found.record == record => found.revision,
            WriteOutcome::Conflict(_) => {
                records = Records::read(store).await?;
                continue;
            }
            WriteOutcome::Failed(error) => return Err(of_core(&error).into()),
        };
        return Ok(Ok(Entered { before, revision }));
    }
    Err(busy())
}

pub(super) fn busy() -> Error {
    Error::Unfinished("others write the same record all the time; try again".into())
}

/// A group without a leader, as an operator sees it.
pub(super) struct Seen<'a> {
    pub records: &'a Records,
    /// Nobody counts as done before it goes by the overrides of this revision.
    pub heeded: Option<Revision>,
}

impl Seen<'_> {
    fn lives(&self, stays: bool) -> impl Iterator<Item = (&WorkerId, Incarnation, &WorkerRecord)> {
        self.records.sessions().filter(move |(_, _, session)| {
            session.status == SessionStatus::Live
                || (!stays && session.status == SessionStatus::Leaving)
        })
    }

    fn heeds(&self, session: &WorkerRecord) -> bool {
        self.heeded.is_none_or(|heeded| session.heeds >= heeded)
    }

    fn owner_of(&self, partition: &PartitionId) -> Option<&(WorkerId, Incarnation)> {
        let mut all = self.records.checkpoints();
        all.find_map(|(id, _, record)| (id == partition).then_some(record.owner.as_ref())?)
    }
}

impl Sight for Seen<'_> {
    fn lists(&self, partition: &PartitionId) -> bool {
        self.records.checkpoints().any(|(id, _, _)| id == partition)
    }

    fn life_of(&self, worker: &WorkerId) -> Option<Incarnation> {
        let mut lives = self.lives(true);
        lives.find_map(|(id, life, _)| (id == worker).then_some(life))
    }

    fn present_life(&self, worker: &WorkerId) -> Option<Incarnation> {
        // Also if it was told to end: it is there until it has.
        let mut sessions = self.records.sessions();
        sessions.find_map(|(id, life, session)| {
            (id == worker && !session.status.is_over()).then_some(life)
        })
    }

    fn is_over(&self, worker: &WorkerId, life: Incarnation) -> bool {
        self.records.owner_session(worker, life) == OwnerSession::Over
    }

    fn staying(&self) -> Vec<(WorkerId, Incarnation)> {
        let staying = self.lives(true);
        staying.map(|(id, life, _)| (id.clone(), life)).collect()
    }

    fn is_free(&self, partition: &PartitionId) -> bool {
        let all_heed = self.lives(false).all(|(_, _, session)| self.heeds(session));
        let owner = self.owner_of(partition);
        all_heed && owner.is_none_or(|(owner, life)| self.is_over(owner, *life))
    }

    fn holds_nothing(&self, worker: &WorkerId, life: Incarnation) -> bool {
        let mut lives = self.lives(false);
        let heeds =
            lives.any(|(id, own, session)| id == worker && own == life && self.heeds(session));
        let owner = Some((worker.clone(), life));
        heeds && !(self.records.checkpoints()).any(|(_, _, record)| record.owner == owner)
    }

    fn serves(&self, worker: &WorkerId, partition: &PartitionId) -> bool {
        let owner = self.owner_of(partition);
        owner.is_some_and(|(owner, life)| owner == worker && self.life_of(worker) == Some(*life))
    }
}

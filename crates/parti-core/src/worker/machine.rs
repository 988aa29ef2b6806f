//! The worker machine: takes events, lets its parts decide, hands out their actions.
//!
//! Every event ends in one pass over the parts, in the order of the flow:
//!
//! ```text
//! identity ▶ session ▶ election ▶ leader │ leaderless ▶ holdings ⇄ lanes ▶ stop ▶ session (news)
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Coordination};
use crate::ids::{Incarnation, Nonce, PartitionId, Term, Version, WorkerId};
use crate::io::{Scope, SourceKind, StoreReply, WatchEvent};
use crate::key::{Key, Prefix};
use crate::lane::{LaneAction, LaneNote, Lanes};
use crate::leader::election::{self, Election};
use crate::leader::{Leader, Sessions};
use crate::partition::{self, Partition};
use crate::record::{
    AssignmentRecord, PlanRecord, PlanState, Ready, Record, SessionStatus, WorkerRecord,
};
use crate::rng::Rng;
use crate::session::silence::Silence;
use crate::session::{self, Session};
use crate::strategy::Strategy;
use crate::time::Time;
use crate::worker::holding::Holdings;
use crate::worker::identity::Identity;
use crate::worker::leaderless::Leaderless;
use crate::worker::outbox::{Answered, Outbox, Purpose};
use crate::worker::stop::{Step, Stopping};
use crate::worker::{Action, Event, Fatal, Options, Report, State, Trouble};

#[derive(Debug, PartialEq, Eq)]
enum Life {
    /// Not started.
    Init,
    /// The identity is being checked, then an id is claimed.
    Joining,
    /// A session is alive.
    Joined,
    /// Said goodbye, or ended against its will.
    Ended,
}

/// What the group last told this worker.
#[derive(Debug, Default)]
struct Told {
    assignment: Option<Arc<AssignmentRecord>>,
    plan: Option<Arc<PlanRecord>>,
    highest_term: Term,
    released: Version,
    applied: Version,
}

/// One worker of a group.
#[derive(Debug)]
pub struct Worker {
    config: Arc<Config>,
    strategy: Arc<dyn Strategy>,
    capacity: Option<u32>,
    out: Outbox,
    life: Life,
    state: State,
    lease_alive: bool,
    identity: Identity,
    session: Session,
    silence: Silence,
    sessions: Sessions,
    election: Election,
    leader: Option<Leader>,
    /// The leader before us, and since when it was silent.
    deposed: Option<(WorkerId, Incarnation, Duration)>,
    leaderless: Option<Leaderless>,
    holdings: Holdings,
    lanes: Lanes,
    told: Told,
    partitions: Option<Arc<[Partition]>>,
    partitions_hash: u64,
    listing: Listing,
    /// Lists of other members that made this leader list again.
    heeded: BTreeSet<u64>,
    disagreeing_since: Option<Time>,
    stopping: Option<Stopping>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Idle,
    Asked,
    AskedAgain,
    RetryAt(Time),
}

impl Worker {
    /// A worker that has not started.
    pub fn new(options: Options) -> Self {
        let config = Arc::new(options.config);
        let mut rng = Rng::new(options.seed);
        let capacity = match options.source {
            SourceKind::Log => None,
            SourceKind::Stream(_) => Some(config.jetstream.subject_cap),
        };
        let leaderless = (config.coordination == Coordination::Leaderless)
            .then(|| Leaderless::new(&config, options.strategy.clone(), capacity));
        Self {
            lanes: Lanes::new(&config, options.source, rng.fork()),
            out: Outbox::new(rng),
            life: Life::Init,
            state: State::Init,
            lease_alive: false,
            identity: Identity::new(options.stream, config.operation_timeout),
            session: Session::new(&config, options.preferred),
            silence: Silence::new(Time::ZERO, config.heartbeat()),
            sessions: Sessions::default(),
            election: Election::new(&config, options.agent),
            leader: None,
            deposed: None,
            leaderless,
            holdings: Holdings::new(&config),
            told: Told::default(),
            partitions: None,
            partitions_hash: 0,
            listing: Listing::Idle,
            heeded: BTreeSet::new(),
            disagreeing_since: None,
            stopping: None,
            strategy: options.strategy,
            capacity,
            config,
        }
    }

    /// Tells what the wall clock showed at this process's time zero, in milliseconds.
    pub fn set_wall_offset(&mut self, ms: u64) {
        self.out.set_wall_offset(ms);
    }

    /// The state, 0 to 8.
    pub fn state(&self) -> State {
        self.state
    }

    /// The claimed id, while there is a session.
    pub fn id(&self) -> Option<&WorkerId> {
        self.session.id().map(|(id, _)| id)
    }

    /// Whether this worker leads.
    pub fn is_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// What the worker was last told to serve and prepare.
    pub fn assignment(&self) -> Option<&AssignmentRecord> {
        self.told.assignment.as_deref()
    }

    /// When to come back with [`Event::Tick`], if nothing else happens.
    pub fn next_deadline(&self) -> Time {
        if matches!(self.life, Life::Init | Life::Ended) {
            return Time::NEVER;
        }
        let now = self.out.now();
        let mut next = self.identity.next_deadline().min(self.session.next_deadline());
        if let Listing::RetryAt(at) = self.listing {
            next = next.min(at);
        }
        if let Some(stopping) = &self.stopping {
            next = next.min(stopping.next_deadline(now));
        }
        if let Some((me, _)) = self.session.id() {
            next = next.min(self.holdings.next_deadline()).min(self.lanes.next_deadline());
            if self.lease_alive {
                next = next.min(self.session.lease_until());
                match &self.leaderless {
                    Some(leaderless) => {
                        next = next.min(leaderless.next_deadline(
                            me,
                            &self.sessions,
                            &self.silence,
                        ));
                    }
                    None => next = next.min(self.election.next_deadline(&self.silence)),
                }
                if let Some(leader) = &self.leader {
                    next = next.min(leader.next_deadline(&self.sessions, &self.silence));
                }
            }
        }
        next
    }

    /// Takes in an event; actions are appended to `actions`.
    pub fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        self.out.set_now(now);
        if self.life != Life::Ended {
            if let Err(fatal) = self.event(event).and_then(|()| self.step()) {
                self.end(Err(fatal));
            }
        }
        self.out.take_actions(actions);
    }

    fn event(&mut self, event: Event) -> Result<(), Fatal> {
        let now = self.out.now();
        match event {
            Event::Start => {
                if self.life == Life::Init {
                    self.life = Life::Joining;
                    self.silence = Silence::new(now, self.config.heartbeat());
                    self.identity.check(&mut self.out);
                    self.list_partitions();
                }
            }
            Event::Stop => self.stop(),
            Event::Tick => {}
            Event::Store(id, reply) => {
                if let Some(answered) = self.out.answered(id, reply) {
                    return self.answered(answered);
                }
            }
            Event::Watch(scope, event) => self.watched(&scope, &event),
            Event::Partitions(result) => self.listed(result),
            Event::RefreshPartitions => self.list_partitions(),
            Event::Elected(elected) => self.election.agent_says(elected),
            Event::Flush => self.holdings.flush(now),
            Event::ClockJumped => self.session.clock_jumped(&mut self.out),
            Event::Source(event) => self.lanes.source(now, event),
            Event::Handled { partition, epoch, offset, result } => {
                self.lanes.handled(now, &partition, epoch, offset, result);
            }
        }
        Ok(())
    }

    // ---- replies ----------------------------------------------------------------------------

    fn answered(&mut self, answered: Answered) -> Result<(), Fatal> {
        let Answered { purpose, sent, reply } = answered;
        if self.out.store_went_back() && !planted!(IgnoreStoreWentBack) {
            return Err(Fatal::StoreWentBack);
        }
        match purpose {
            Purpose::Identity => {
                self.identity.answered(reply, &mut self.out)?;
                if self.identity.is_known() && self.life == Life::Joining && self.session.is_gone() {
                    self.session.claim(&mut self.out);
                }
            }
            Purpose::Session => return self.session_answered(sent, reply),
            Purpose::Election => self.election_answered(sent, reply),
            Purpose::RecoverAssignments => {
                if let Some(leader) = &mut self.leader {
                    leader.recovered_assignments(reply, &mut self.out);
                }
            }
            Purpose::RecoverPlan => {
                if let Some(leader) = &mut self.leader {
                    leader.recovered_plan(reply, &mut self.out);
                }
            }
            Purpose::Publish(keys) => {
                if let Some(leader) = &mut self.leader
                    && leader.published(keys, reply, &mut self.out)
                {
                    self.step_down();
                }
            }
            Purpose::EndSessions(ids) => {
                let (sessions, silence) = (&mut self.sessions, &mut self.silence);
                if let Some(leader) = &mut self.leader {
                    leader.sessions_ended(ids, reply, sessions, silence, &mut self.out);
                } else if let Some(leaderless) = &mut self.leaderless {
                    leaderless.sessions_ended(ids, reply, sessions, silence, &mut self.out);
                }
                self.learn_lives();
            }
            Purpose::ReadPartition(id) => self.holdings.read_answered(&id, reply, &mut self.out),
            Purpose::ReadOwner(owner) => self.holdings.owner_answered(owner, reply, &mut self.out),
            Purpose::Partitions(ids) => {
                if let Some((me, life)) = self.session.id() {
                    let lanes = &mut self.lanes;
                    self.holdings.answered(ids, reply, me, life, lanes, &mut self.out);
                }
            }
            Purpose::LookAround => {
                if let (Some(leaderless), Some((me, _)), Some(list)) =
                    (&mut self.leaderless, self.session.id(), &self.partitions)
                {
                    leaderless.looked(reply, me, list, &mut self.holdings, &mut self.out);
                }
            }
        }
        Ok(())
    }

    fn session_answered(&mut self, sent: Time, reply: StoreReply) -> Result<(), Fatal> {
        match self.session.answered(sent, reply, &mut self.out) {
            session::Outcome::Nothing => {}
            session::Outcome::Claimed => self.joined(),
            session::Outcome::Renewed => self.silence.succeeded(self.out.now()),
            session::Outcome::Lost => self.session_lost(),
            session::Outcome::Gone => self.end(Ok(())),
            session::Outcome::Failed(fatal) => return Err(fatal),
        }
        Ok(())
    }

    fn joined(&mut self) {
        let Some((me, incarnation)) = self.session.id() else {
            return;
        };
        self.life = Life::Joined;
        self.silence.succeeded(self.out.now());
        self.out.report(Report::Claimed(me.clone(), incarnation));
        if self.leaderless.is_some() {
            self.out.push(Action::Watch(Scope::Prefix(Prefix::Workers)));
        } else {
            for key in [Key::Leader, Key::Plan, Key::Assignment(me.clone())] {
                self.out.push(Action::Watch(Scope::Key(key)));
            }
        }
    }

    fn session_lost(&mut self) {
        self.out.report(Report::SessionLost);
        if let Some(assignment) = self.told.assignment.take() {
            drop(assignment);
        }
        self.told = Told { highest_term: self.told.highest_term, ..Told::default() };
        if !planted!(KeepServingAfterSessionLoss) {
            self.holdings.abandon(&mut self.lanes, &mut self.out);
        }
        self.step_down();
        self.election.reset();
        self.out.forget_pending();
        if let Some(leaderless) = &mut self.leaderless {
            *leaderless = Leaderless::new(&self.config, self.strategy.clone(), self.capacity);
        }
        self.sessions = Sessions::default();
        if self.stopping.is_some() {
            self.end(Ok(()));
            return;
        }
        self.life = Life::Joining;
        self.session.claim(&mut self.out);
    }

    fn election_answered(&mut self, sent: Time, reply: StoreReply) {
        let before = self.election.holder().cloned();
        let silent_since = self.silence.since(&Key::Leader);
        let outcome = self.election.answered(sent, reply, &mut self.silence, &mut self.out);
        match outcome {
            election::Outcome::Won(term) => {
                self.silence.succeeded(self.out.now());
                self.deposed = match (before, silent_since) {
                    (Some((worker, life)), Some(since)) => Some((worker, life, since)),
                    _ => None,
                };
                self.lead(term);
            }
            election::Outcome::Renewed => self.silence.succeeded(self.out.now()),
            election::Outcome::Lost => self.step_down(),
            election::Outcome::Nothing => {}
        }
    }

    // ---- leading ----------------------------------------------------------------------------

    fn lead(&mut self, term: Term) {
        let Some((me, _)) = self.session.id() else {
            return;
        };
        let me = me.clone();
        self.sessions = Sessions::default();
        self.out.report(Report::Leading(Some(term)));
        let leader = Leader::begin(
            self.config.clone(),
            self.strategy.clone(),
            self.capacity,
            term,
            me,
            &mut self.out,
        );
        self.leader = Some(leader);
        self.heeded.clear();
    }

    fn step_down(&mut self) {
        if self.leader.take().is_some() {
            self.out.push(Action::Unwatch(Scope::Prefix(Prefix::Workers)));
            self.out.report(Report::Leading(None));
            self.deposed = None;
        }
    }

    // ---- watches ----------------------------------------------------------------------------

    fn watched(&mut self, scope: &Scope, event: &WatchEvent) {
        for stored in stored_in(event) {
            self.out.seen(stored.revision);
        }
        if self.life != Life::Joined {
            return;
        }
        // A watch that starts anew may be talking to another store.
        let restarted = matches!(event, WatchEvent::Snapshot(_));
        let main = if self.leaderless.is_some() {
            Scope::Prefix(Prefix::Workers)
        } else {
            Scope::Key(Key::Leader)
        };
        if restarted && *scope == main {
            self.identity.check(&mut self.out);
        }
        match scope {
            Scope::Key(Key::Leader) => {
                self.election.watched(event, &mut self.silence, &mut self.out);
                self.told.highest_term = self.told.highest_term.max(self.election.term());
            }
            Scope::Key(Key::Plan) => {
                for stored in stored_in(event) {
                    if let Record::Plan(plan) = &stored.record
                        && plan.term >= self.told.highest_term
                    {
                        self.told.highest_term = plan.term;
                        self.told.plan = Some(plan.clone());
                    }
                }
            }
            Scope::Key(Key::Assignment(_)) => {
                for stored in stored_in(event) {
                    if let Record::Assignment(record) = &stored.record {
                        self.assigned(record.clone());
                    }
                }
            }
            Scope::Prefix(Prefix::Workers) => self.sessions_watched(event),
            _ => {}
        }
    }

    fn sessions_watched(&mut self, event: &WatchEvent) {
        let now = self.out.now();
        self.sessions.watched(event, &mut self.silence, now);
        if matches!(event, WatchEvent::Snapshot(_))
            && let Some((worker, life, since)) = self.deposed.take()
            && let Some((revision, record)) = self.sessions.get(&worker)
            && record.incarnation_at(revision) == life
        {
            self.silence.inherit(&Key::Worker(worker), revision, since);
        }
        for stored in stored_in(event) {
            if let (Key::Worker(id), Record::Worker(record)) = (&stored.key, &stored.record) {
                self.holdings.learn_session(id, stored.revision, record);
            }
        }
        if let Some(leader) = &mut self.leader {
            leader.sessions_changed();
            self.heed_other_lists();
        }
        if let Some(leaderless) = &mut self.leaderless {
            leaderless.changed();
            self.holdings.nudge(now);
        }
    }

    fn learn_lives(&mut self) {
        for (id, revision, record) in self.sessions.iter() {
            self.holdings.learn_session(id, revision, record);
        }
    }

    /// A member with another partition list may have newer news than the leader.
    fn heed_other_lists(&mut self) {
        let mine = self.partitions_hash;
        let other = self.sessions.iter().find_map(|(_, _, record)| {
            let hash = record.partitions;
            (record.status == SessionStatus::Live
                && hash != 0
                && hash != mine
                && !self.heeded.contains(&hash))
            .then_some(hash)
        });
        if let Some(hash) = other {
            self.heeded.insert(hash);
            self.list_partitions();
        }
    }

    fn assigned(&mut self, record: Arc<AssignmentRecord>) {
        let Some((_, life)) = self.session.id() else {
            return;
        };
        let known = self.told.assignment.as_ref().map(|told| (told.term, told.version));
        let newer = known.is_none_or(|known| (record.term, record.version) > known);
        let lower = record.term < self.told.highest_term && !planted!(AcceptLowerTerm);
        if record.incarnation != life || lower || !newer {
            return;
        }
        self.told.highest_term = self.told.highest_term.max(record.term);
        self.out.report(Report::Assigned {
            version: record.version,
            term: record.term,
            serve: record.serve.clone(),
            prepare: record.prepare.iter().map(|(id, _)| id.clone()).collect(),
        });
        let alone = self.stopping.is_some_and(|s| s.step(self.out.now()) >= Step::Alone);
        if !alone {
            self.holdings.want(
                record.serve.iter().cloned(),
                record.prepare.iter().map(|(id, _)| id.clone()),
                &record.added,
                &mut self.lanes,
                &mut self.out,
            );
        }
        for id in &record.release {
            self.holdings.check(id);
        }
        self.told.assignment = Some(record);
    }

    // ---- partitions -------------------------------------------------------------------------

    fn list_partitions(&mut self) {
        self.listing = match self.listing {
            Listing::Asked | Listing::AskedAgain => Listing::AskedAgain,
            _ => {
                self.out.push(Action::ListPartitions);
                Listing::Asked
            }
        };
    }

    fn listed(&mut self, result: Result<Arc<[Partition]>, Arc<str>>) {
        let again = self.listing == Listing::AskedAgain;
        self.listing = Listing::Idle;
        match result {
            Ok(list) => {
                let hash = partition::hash(&list);
                if self.partitions.is_none() || hash != self.partitions_hash {
                    self.partitions_hash = hash;
                    if let Some(leader) = &mut self.leader {
                        leader.partitions_changed(&list, self.out.now());
                    }
                    if let Some(leaderless) = &mut self.leaderless {
                        leaderless.changed();
                    }
                    self.partitions = Some(list);
                }
            }
            Err(why) => {
                // The last list stays.
                self.out.trouble(Trouble::Listing(why.to_string()));
                let wait = self.config.retry.initial_delay;
                self.listing = Listing::RetryAt(self.out.now() + wait);
            }
        }
        if again {
            self.list_partitions();
        }
    }

    /// Everybody must agree on the strategy, the mode and the partitions.
    fn check_agreement(&mut self) -> Result<(), Fatal> {
        let (Some(plan), None) = (&self.told.plan, &self.leader) else {
            self.disagreeing_since = None;
            return Ok(());
        };
        let theirs = &plan.fingerprint;
        let ours = self.strategy.name();
        if theirs.strategy != ours {
            return Err(Fatal::Disagreement(format!(
                "the group's strategy is {}, this worker's is {ours}",
                theirs.strategy
            )));
        }
        if self.partitions.is_none()
            || theirs.partitions == self.partitions_hash
            || self.told.assignment.is_some()
        {
            self.disagreeing_since = None;
            return Ok(());
        }
        // The leader lists again when it sees our list's hash. Give it time.
        let now = self.out.now();
        let since = *self.disagreeing_since.get_or_insert(now);
        if now.since(since) > self.config.operation_timeout * 2 {
            let count = self.partitions.as_ref().map_or(0, |list| list.len());
            return Err(Fatal::Disagreement(format!(
                "the group's partition list ({} partitions) is another than this worker's \
                 ({count}); give all workers the same list",
                plan.partitions
            )));
        }
        Ok(())
    }

    // ---- the pass over the parts ------------------------------------------------------------

    fn step(&mut self) -> Result<(), Fatal> {
        if matches!(self.life, Life::Init | Life::Ended) {
            return Ok(());
        }
        self.identity.tick(&mut self.out);
        if let Listing::RetryAt(at) = self.listing
            && self.out.now() >= at
        {
            self.list_partitions();
        }
        self.step_session()?;
        if self.life == Life::Joined {
            self.check_agreement()?;
            self.step_stop();
            if self.life == Life::Ended {
                return Ok(());
            }
            self.step_lease();
            self.step_leading();
            self.step_leaderless();
            self.step_holdings();
            self.step_stop();
            if self.life == Life::Ended {
                return Ok(());
            }
            self.step_session()?;
        } else {
            self.pump_lanes();
        }
        self.step_state();
        Ok(())
    }

    fn step_session(&mut self) -> Result<(), Fatal> {
        let body = self.body();
        match self.session.step(&body, &mut self.out) {
            session::Outcome::Failed(fatal) => Err(fatal),
            _ => Ok(()),
        }
    }

    fn lease(&self) -> bool {
        self.out.now() < self.session.lease_until()
    }

    fn step_lease(&mut self) {
        let alive = self.lease();
        if alive != self.lease_alive {
            self.lease_alive = alive;
            self.out.report(Report::Lease { alive });
        }
        self.lanes.lease(self.out.now(), self.session.lease_until());
    }

    fn step_leading(&mut self) {
        if self.leaderless.is_some() {
            return;
        }
        let lease = self.lease();
        let Some((me, life)) = self.session.id() else {
            return;
        };
        let me = me.clone();
        match self.election.step(&me, life, lease, &self.silence, &mut self.out) {
            election::Outcome::Won(term) => self.lead(term),
            election::Outcome::Lost => self.step_down(),
            _ => {}
        }
        if lease && let Some(leader) = &mut self.leader {
            let list = self.partitions.as_ref();
            leader.step(&self.sessions, &self.silence, list, &mut self.out);
        }
    }

    fn step_leaderless(&mut self) {
        let fit = self.stopping.is_none() && self.lanes.degraded().is_none();
        let lease = self.lease();
        let (Some(leaderless), Some((me, _)), Some(list)) =
            (&mut self.leaderless, self.session.id(), &self.partitions)
        else {
            return;
        };
        if !lease {
            return;
        }
        let serve = leaderless.step(
            me,
            fit,
            list,
            &self.sessions,
            &self.silence,
            &self.holdings,
            &mut self.out,
        );
        if let Some(serve) = serve
            && self.stopping.is_none()
        {
            self.told.applied = self.told.applied.next();
            self.out.report(Report::Assigned {
                version: self.told.applied,
                term: Term(0),
                serve: serve.clone(),
                prepare: Vec::new(),
            });
            self.holdings.want(serve, [], &[], &mut self.lanes, &mut self.out);
        }
    }

    fn step_holdings(&mut self) {
        let lease = self.lease();
        self.lanes.tick(self.out.now());
        self.pump_lanes();
        // Opening a lane may make it act, its notes may make a holding act: until both are quiet.
        loop {
            let Some((me, life)) = self.session.id() else {
                return;
            };
            self.holdings.step(me, life, lease, &mut self.lanes, &mut self.out);
            if !self.pump_lanes() {
                return;
            }
        }
    }

    /// Passes on what the lanes want. True when a holding has reason to act.
    fn pump_lanes(&mut self) -> bool {
        let mut news = false;
        for action in self.lanes.take_actions() {
            match action {
                LaneAction::Source(request) => self.out.push(Action::Source(request)),
                LaneAction::Handle(job) => self.out.push(Action::Handle(job)),
                LaneAction::Note(note) => {
                    news = true;
                    self.noted(note);
                }
            }
        }
        news
    }

    fn noted(&mut self, note: LaneNote) {
        match note {
            LaneNote::Begin { partition, epoch, begun } => {
                self.holdings.begin(&partition, epoch, begun);
            }
            LaneNote::Commit { partition } => self.holdings.commit_now(&partition),
            LaneNote::Drained { partition } => self.holdings.drained(&partition),
            LaneNote::ReadyChanged => {}
            LaneNote::Trouble(trouble) => self.out.trouble(trouble),
            LaneNote::DeadLettered { partition, offset, attempts } => {
                self.out.report(Report::DeadLettered { partition, offset, attempts });
            }
            LaneNote::Resolved { partition, next } => self.holdings.resolved(&partition, next),
        }
    }

    // ---- stopping ---------------------------------------------------------------------------

    fn stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let mut stopping = Stopping::new(self.out.now(), self.config.shutdown_timeout);
        if self.life != Life::Joined {
            self.session.leave();
            self.end(Ok(()));
            return;
        }
        let relieved_by_others = match (&self.leaderless, &self.leader) {
            (Some(_), _) => false,
            (None, Some(leader)) => leader.has_successor(&self.sessions),
            (None, None) => self.told.assignment.is_some(),
        };
        if !relieved_by_others {
            stopping.go_alone();
        }
        self.election.resign();
        self.step_down();
        self.session.leave();
        self.stopping = Some(stopping);
    }

    fn step_stop(&mut self) {
        let Some(stopping) = self.stopping else {
            return;
        };
        let step = stopping.step(self.out.now());
        if step >= Step::Alone {
            self.holdings.want([], [], &[], &mut self.lanes, &mut self.out);
        }
        if step >= Step::Forced {
            self.holdings.force_release(&mut self.lanes, &mut self.out);
        }
        if step == Step::Over {
            self.out.report(Report::History("stopped by its time limit".into()));
            self.end(Ok(()));
        }
    }

    /// Whether everything is handed over, so that the goodbye can be said.
    fn may_go(&self) -> bool {
        let Some(stopping) = self.stopping else {
            return false;
        };
        let relieved = stopping.step(self.out.now()) >= Step::Alone
            || self.told.assignment.as_ref().is_none_or(|told| told.serve.is_empty());
        relieved && self.holdings.is_empty() && !self.election.is_resigning()
    }

    fn end(&mut self, result: Result<(), Fatal>) {
        if self.life == Life::Ended {
            return;
        }
        self.life = Life::Ended;
        self.holdings.abandon(&mut self.lanes, &mut self.out);
        self.pump_lanes();
        self.step_down();
        self.step_state();
        self.out.forget_pending();
        self.out.push(Action::Stopped(result));
    }

    // ---- what the worker says about itself --------------------------------------------------

    fn body(&mut self) -> WorkerRecord {
        let status = match self.stopping {
            None => SessionStatus::Live,
            Some(_) if self.may_go() => SessionStatus::Goodbye,
            Some(_) => SessionStatus::Leaving,
        };
        let mut ready = Ready::default();
        let mut term = Term(0);
        if self.leaderless.is_some() {
            self.told.released = Version(self.holdings.releases());
        } else if let Some(told) = &self.told.assignment {
            term = told.term;
            ready.version = told.version;
            ready.partitions = self.holdings.ready(&self.lanes);
            if self.holdings.all_released() {
                self.told.released = told.version;
                if self.holdings.all_taken() {
                    self.told.applied = told.version;
                }
            }
        }
        WorkerRecord {
            incarnation: None,
            beat: 0,
            status,
            state: self.state as u8,
            term,
            released: self.told.released,
            applied: self.told.applied,
            ready,
            blocked_by: self.holdings.blocked(),
            load: self.holdings.load(),
            degraded: self.lanes.degraded(),
            partitions: self.partitions_hash,
            nonce: Nonce(0),
        }
    }

    fn step_state(&mut self) {
        let state = self.present_state();
        if state != self.state {
            self.out.report(Report::State { from: self.state, to: state });
            self.state = state;
        }
    }

    fn present_state(&self) -> State {
        if self.stopping.is_some() || self.life == Life::Ended {
            return State::Shutdown;
        }
        match self.life {
            Life::Init => return State::Init,
            Life::Joining => return State::ClaimingId,
            _ => {}
        }
        if self.leaderless.is_some() {
            return match (self.told.applied > Version(0), self.holdings.all_taken()) {
                (false, _) => State::WaitingAssignment,
                (true, false) => State::Rebalancing,
                (true, true) => State::Stable,
            };
        }
        if self.told.assignment.is_none() {
            return if self.election.is_decided() {
                State::WaitingAssignment
            } else {
                State::Election
            };
        }
        match self.told.plan.as_ref().map(|plan| plan.state).unwrap_or_default() {
            PlanState::Stable => State::Stable,
            PlanState::Scaling => State::Scaling,
            PlanState::Rebalancing => State::Rebalancing,
            PlanState::Emergency => State::Emergency,
        }
    }

    /// Everything that is owned now, for tests and views.
    pub fn held(&self) -> impl Iterator<Item = &PartitionId> {
        self.holdings.held()
    }
}

fn stored_in(event: &WatchEvent) -> &[crate::io::Stored] {
    match event {
        WatchEvent::Snapshot(records) => records,
        WatchEvent::Changed(stored) => std::slice::from_ref(stored),
        WatchEvent::Removed(..) => &[],
    }
}

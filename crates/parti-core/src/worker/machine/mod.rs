//! The worker machine: takes events, lets its parts decide, hands out their actions.
//!
//! Every event ends in one pass over the parts, in the order of the flow (a burst of messages, and
//! of what became of them, in one for all):
//!
//! ```text
//! identity ▶ session ▶ election ▶ leader │ leaderless ▶ holdings ⇄ lanes ▶ stop ▶ session (news)
//!   ▶ chronicle
//! ```

mod about;
mod ending;
mod news;
mod pass;
mod replies;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Coordination};
use crate::ids::{Offset, PartitionId, Revision, Term, Version, WorkerId};
use crate::io::{CommitRefused, SourceEvent, SourceKind};
use crate::lane::Lanes;
use crate::leader::election::Election;
use crate::leader::{Leader, Sessions};
use crate::partition::Partition;
use crate::record::{AssignmentRecord, PlanRecord, WorkerRecord};
use crate::rng::Rng;
use crate::session::Session;
use crate::session::silence::Silence;
use crate::strategy::Strategy;
use crate::time::Time;
use crate::worker::chronicle::Chronicle;
use crate::worker::holding::Holdings;
use crate::worker::identity::Identity;
use crate::worker::leaderless::Leaderless;
use crate::worker::outbox::Outbox;
use crate::worker::stop::Stopping;
use crate::worker::{Action, Answer, Event, Fatal, Options, State};

/// How soon a deadline that has passed is looked at again.
const SOON: Duration = Duration::from_millis(10);

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
    /// Without a leader: up to which revision of the overrides nothing forbidden is held.
    heeds: Revision,
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
    /// Renewals that landed, and that did not.
    heartbeats: (u64, u64),
    identity: Identity,
    session: Session,
    silence: Silence,
    sessions: Sessions,
    election: Election,
    leader: Option<Leader>,
    /// Whose session is watched because it leads: a leader that dies is silent there too.
    observed: Option<WorkerId>,
    leaderless: Option<Leaderless>,
    holdings: Holdings,
    /// When holdings have to act by themselves.
    holdings_wake: Time,
    /// Whether holdings, or what is said about them, may have changed in this pass. Messages that
    /// merely flow stir nothing, so they cost the same however many partitions are held.
    stirred: bool,
    /// What the session says about this worker.
    said: Option<WorkerRecord>,
    lanes: Lanes,
    told: Told,
    partitions: Option<Arc<[Partition]>>,
    partitions_hash: u64,
    listing: Listing,
    /// How often it failed in a row.
    listings_failed: u32,
    /// Not before then for a mere disagreement.
    list_again_at: Time,
    disagreement: Disagreement,
    stopping: Option<Stopping>,
    /// The messages whose handling a stop gave up half way.
    cut_off: Vec<(PartitionId, Offset)>,
    chronicle: Chronicle,
}

/// Whether this worker's partition list is another than the plan's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disagreement {
    None,
    Since(Time),
    Told,
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
            SourceKind::Log | SourceKind::External => None,
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
            heartbeats: (0, 0),
            identity: Identity::new(&config, options.stream, &*options.strategy),
            session: Session::new(&config, options.preferred, options.belongs),
            silence: Silence::new(Time::ZERO, config.heartbeat()),
            sessions: Sessions::default(),
            election: Election::new(&config, options.agent),
            leader: None,
            observed: None,
            leaderless,
            holdings: Holdings::new(&config, options.source),
            holdings_wake: Time::NEVER,
            stirred: true,
            said: None,
            told: Told::default(),
            partitions: None,
            partitions_hash: 0,
            listing: Listing::Idle,
            listings_failed: 0,
            list_again_at: Time::ZERO,
            disagreement: Disagreement::None,
            stopping: None,
            cut_off: Vec::new(),
            chronicle: Chronicle::new(config.operation_timeout),
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

    /// Until when the lease lasts, by this worker's own clock: nothing may be handled after that,
    /// unless it is renewed. A lease that came back counts only once all that is held is confirmed.
    pub fn lease_until(&self) -> Time {
        if self.holdings.in_doubt() {
            return Time::ZERO;
        }
        self.session.lease_until()
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
        let mut next = self
            .identity
            .next_deadline()
            .min(self.session.next_deadline());
        if let Listing::RetryAt(at) = self.listing {
            next = next.min(at);
        }
        if let Some(stopping) = &self.stopping {
            next = next.min(stopping.next_deadline(now));
        }
        if let Some((me, _)) = self.session.id() {
            next = next
                .min(self.holdings_wake)
                .min(self.lanes.next_deadline())
                .min(self.chronicle.next_deadline());
            if self.lease_alive {
                next = next.min(self.session.lease_until());
                match &self.leaderless {
                    Some(leaderless) => {
                        next =
                            next.min(leaderless.next_deadline(me, &self.sessions, &self.silence));
                    }
                    None => next = next.min(self.election.next_deadline(&self.silence)),
                }
                if let Some(leader) = &self.leader {
                    next = next.min(leader.next_deadline(&self.sessions, &self.silence));
                }
            }
        }
        // Whatever is due now was just looked at: if it still waits, something else must happen
        // first. Looking again soon costs little, looking again at once would spin.
        if next <= now { now + SOON } else { next }
    }

    /// Takes in an event; actions are appended to `actions`.
    pub fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        self.handle_all(now, [event], actions);
    }

    /// Takes in events that are there together, in their order. Those by which messages merely
    /// flow share a pass.
    pub fn handle_all(
        &mut self,
        now: Time,
        events: impl IntoIterator<Item = Event>,
        actions: &mut Vec<Action>,
    ) {
        self.out.set_now(now);
        let mut events = events.into_iter().peekable();
        while let Some(event) = events.next() {
            if self.life == Life::Ended {
                break;
            }
            let shares = event.flows() && events.peek().is_some_and(Event::flows);
            let taken_in = self.event(event);
            let done = match taken_in {
                Ok(()) if !shares => self.step(),
                other => other,
            };
            if let Err(fatal) = done {
                self.end(Err(fatal));
            }
        }
        self.out.take_actions(actions);
    }

    fn event(&mut self, event: Event) -> Result<(), Fatal> {
        let now = self.out.now();
        self.stirred |= !matches!(
            event,
            Event::Tick | Event::Source(_) | Event::Handled { .. } | Event::Commit { .. }
        );
        match event {
            Event::Start => {
                if self.life == Life::Init {
                    self.life = Life::Joining;
                    self.silence = Silence::new(now, self.config.heartbeat());
                    self.identity.check(&mut self.out);
                    self.list_partitions();
                }
            }
            Event::Stop { within } => self.stop(within),
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
            // Its checkpoints mean nothing any more: going on would skip or repeat at random.
            Event::Source(SourceEvent::Replaced) => return Err(Fatal::StreamReplaced),
            Event::Source(event) => self.lanes.source(now, event),
            Event::Commit {
                ask,
                partition,
                epoch,
                offset,
                answer,
            } => {
                let result = self.lanes.commit(now, &partition, epoch, offset);
                match (result, answer) {
                    // More is done already: whether so much is stored is still to be seen.
                    (Ok(()) | Err(CommitRefused::GoesBack { .. }), Answer::Stored) => {
                        self.holdings
                            .tell_when_stored(&partition, epoch, offset, ask);
                        self.stirred = true;
                    }
                    (result, _) => self.out.push(Action::Committed(ask, result)),
                }
            }
            Event::Handled {
                partition,
                epoch,
                ran,
            } => self.lanes.handled(now, &partition, epoch, ran),
        }
        Ok(())
    }
}

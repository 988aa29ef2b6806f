//! Replies of the store find the part that asked; leading begins and ends here.

use crate::ids::{Term, Version, WorkerId};
use crate::io::{Scope, StoreReply};
use crate::key::{Key, Prefix};
use crate::leader::{self, Leader, Sessions, election};
use crate::record::EventKind;
use crate::session::{self, Belonging};
use crate::time::Time;
use crate::worker::chronicle::Chronicle;
use crate::worker::leaderless::Leaderless;
use crate::worker::outbox::{Answered, Purpose};
use crate::worker::{Action, Fatal, Report};

use super::{Life, Told, Worker};

impl Worker {
    pub(super) fn answered(&mut self, answered: Answered) -> Result<(), Fatal> {
        let Answered {
            purpose,
            sent,
            reply,
        } = answered;
        match purpose {
            Purpose::Identity => {
                self.identity.answered(reply, &mut self.out)?;
                if self.identity.is_known() && self.life == Life::Joining && self.session.is_idle()
                {
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
            Purpose::ReadOverrides => {
                let found = |leader: &mut Leader| leader.overrides_read(reply, &mut self.out);
                if let Some(term) = self.leader.as_mut().and_then(found) {
                    self.outdone(term);
                }
            }
            Purpose::WriteOverrides => {
                if let Some(leaderless) = &mut self.leaderless {
                    leaderless.overrides_proved(reply, &mut self.out);
                    return Ok(());
                }
                let found = |leader: &mut Leader| leader.overrides_written(reply, &mut self.out);
                if let Some(term) = self.leader.as_mut().and_then(found) {
                    self.outdone(term);
                }
            }
            Purpose::AnswerRequests(ids) => {
                if let Some(leader) = &mut self.leader {
                    leader.requests_answered(ids, reply, &mut self.out);
                }
            }
            Purpose::ReadEvents => self.chronicle.listed(reply, &mut self.out),
            Purpose::WriteEvents(keys) => self.chronicle.written(keys, reply, &mut self.out),
            Purpose::Publish(keys) => {
                if let Some(leader) = &mut self.leader
                    && let Some(term) = leader.published(keys, reply, &mut self.out)
                {
                    self.outdone(term);
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
                    self.holdings
                        .answered(ids, reply, me, life, lanes, &mut self.out);
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

    pub(super) fn session_answered(&mut self, sent: Time, reply: StoreReply) -> Result<(), Fatal> {
        match self.session.answered(sent, reply, &mut self.out) {
            session::Outcome::Nothing => {}
            session::Outcome::Claimed => self.joined(),
            session::Outcome::Renewed => {
                self.heartbeats.0 += 1;
                self.silence.succeeded(self.out.now());
            }
            session::Outcome::Missed => self.heartbeats.1 += 1,
            session::Outcome::Lost => {
                self.session_lost();
                // Whoever it was hosted for works elsewhere, or is to ask for another one.
                if self.session.belongs() != Belonging::Own {
                    return Err(Fatal::SessionOver);
                }
            }
            session::Outcome::Dismissed => {
                self.session_lost();
                return Err(Fatal::Dismissed);
            }
            session::Outcome::Gone => self.end(Ok(())),
            session::Outcome::Failed(fatal) => return Err(fatal),
        }
        Ok(())
    }

    pub(super) fn joined(&mut self) {
        let Some((me, incarnation)) = self.session.id() else {
            return;
        };
        self.life = Life::Joined;
        self.silence.succeeded(self.out.now());
        self.out.report(Report::Claimed(me.clone(), incarnation));
        if self.leaderless.is_some() {
            // Nobody else is there whose business it were to tell. Who was told to stop meanwhile
            // only gives its id back.
            if self.stopping.is_none() {
                let line = format!("{me} joined");
                self.out.tell(EventKind::Join, line);
            }
            for scope in [Scope::Prefix(Prefix::Workers), Scope::Key(Key::Overrides)] {
                self.out.push(Action::Watch(scope));
            }
        } else {
            for key in [Key::Leader, Key::Plan, Key::Assignment(me.clone())] {
                self.out.push(Action::Watch(Scope::Key(key)));
            }
        }
    }

    pub(super) fn session_lost(&mut self) {
        self.out.report(Report::SessionLost);
        self.told = Told {
            highest_term: self.told.highest_term,
            // Without a leader, versions are this process's own, and go on.
            applied: match self.leaderless {
                Some(_) => self.told.applied,
                None => Version(0),
            },
            ..Told::default()
        };
        if !planted!(KeepServingAfterSessionLoss) {
            self.holdings.abandon(&mut self.lanes, &mut self.out);
        }
        self.step_down();
        self.election.reset();
        self.out.forget_pending();
        self.chronicle = Chronicle::new(self.config.operation_timeout);
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

    pub(super) fn election_answered(&mut self, sent: Time, reply: StoreReply) {
        match self
            .election
            .answered(sent, reply, &mut self.silence, &mut self.out)
        {
            election::Outcome::Won(term) => {
                self.silence.succeeded(self.out.now());
                self.lead(term);
            }
            election::Outcome::Renewed => self.silence.succeeded(self.out.now()),
            election::Outcome::Lost => self.step_down(),
            election::Outcome::Nothing => {}
        }
    }

    /// Followers watch the leader's session too, so that a new leader knows since when it is
    /// silent.
    pub(super) fn observe_leader(&mut self) {
        let leader = match self.election.holder() {
            Some((leader, _)) if self.id() != Some(leader) => Some(leader.clone()),
            _ => None,
        };
        if leader == self.observed {
            return;
        }
        let session = |id: WorkerId| Scope::Key(Key::Worker(id));
        if let Some(before) = std::mem::replace(&mut self.observed, leader.clone()) {
            self.out.push(Action::Unwatch(session(before)));
        }
        if let Some(leader) = leader {
            self.out.push(Action::Watch(session(leader)));
        }
    }

    pub(super) fn lead(&mut self, term: Term) {
        let Some((me, _)) = self.session.id() else {
            return;
        };
        let me = me.clone();
        self.sessions = Sessions::default();
        self.out.report(Report::Leading(Some(term)));
        let line = format!("{me} leads under term {term}");
        self.out.tell(EventKind::Election, line);
        let leader = Leader::begin(
            self.config.clone(),
            self.strategy.clone(),
            self.capacity,
            (term, self.election.revision()),
            me,
            &mut self.out,
        );
        self.leader = Some(leader);
    }

    /// A term above the own one was met.
    pub(super) fn outdone(&mut self, by: Term) {
        self.step_down();
        self.election.outdone(by);
    }

    pub(super) fn step_down(&mut self) {
        if self.leader.take().is_some() {
            for prefix in leader::WATCHED {
                self.out.push(Action::Unwatch(Scope::Prefix(prefix)));
            }
            self.out.report(Report::Leading(None));
        }
    }
}

//! The pass over the parts that ends every event.

use crate::ids::Term;
use crate::lane::{LaneAction, LaneNote};
use crate::leader::election;
use crate::record::EventKind;
use crate::session;
use crate::worker::{Action, Fatal, Report};

use super::{Life, Listing, Worker};

impl Worker {
    pub(super) fn step(&mut self) -> Result<(), Fatal> {
        if matches!(self.life, Life::Init | Life::Ended) {
            return Ok(());
        }
        if self.out.store_went_back() {
            return Err(Fatal::StoreWentBack);
        }
        self.identity.tick(&mut self.out);
        if let Listing::RetryAt(at) = self.listing
            && self.out.now() >= at
        {
            self.list_partitions();
        }
        self.step_session()?;
        self.step_lease();
        self.step_stop();
        if self.life == Life::Ended {
            return Ok(());
        }
        if self.life == Life::Joined {
            self.check_agreement()?;
            self.step_leading();
            self.step_leaderless();
            self.step_holdings();
            self.step_stop();
            if self.life == Life::Ended {
                return Ok(());
            }
            self.step_session()?;
            let seized = self.out.take_seized();
            // With a leader, its plan tells.
            if let Some(leaderless) = &mut self.leaderless {
                leaderless.seized(seized);
            }
            if let Some((me, _)) = self.session.id() {
                self.chronicle.step(me, &mut self.out);
            }
        } else {
            self.pump_lanes();
        }
        self.step_state();
        self.stirred = false;
        Ok(())
    }

    pub(super) fn step_session(&mut self) -> Result<(), Fatal> {
        let said = match self.said.take() {
            Some(said) if !self.stirred && self.stopping.is_none() => said,
            _ => self.body(),
        };
        let outcome = self.session.step(&said, &mut self.out);
        self.said = Some(said);
        match outcome {
            session::Outcome::Failed(fatal) => Err(fatal),
            _ => Ok(()),
        }
    }

    pub(super) fn lease(&self) -> bool {
        self.out.now() < self.session.lease_until()
    }

    pub(super) fn step_lease(&mut self) {
        let alive = self.lease();
        if alive != self.lease_alive {
            self.lease_alive = alive;
            self.stirred = true;
            self.out.report(Report::Lease { alive });
            if alive {
                self.holdings.lease_regained(self.out.now());
            }
        }
        self.lanes.lease(self.out.now(), self.lease_until());
    }

    pub(super) fn step_leading(&mut self) {
        if self.leaderless.is_some() {
            return;
        }
        let lease = self.lease();
        let Some((me, life)) = self.session.id() else {
            return;
        };
        let me = me.clone();
        // Both beats go out together, so that they fall silent together.
        if let Some(sent) = self.session.last_sent() {
            self.election.beat_with(sent);
        }
        match self
            .election
            .step(&me, life, lease, &self.silence, &mut self.out)
        {
            election::Outcome::Won(term) => self.lead(term),
            election::Outcome::Lost => self.step_down(),
            _ => {}
        }
        self.observe_leader();
        let may_lead = lease || planted!(OldLeaderPublishes);
        if may_lead && let Some(leader) = &mut self.leader {
            let list = self.partitions.as_ref();
            if let Some(term) = leader.step(&self.sessions, &self.silence, list, &mut self.out) {
                self.outdone(term);
            }
        }
    }

    pub(super) fn step_leaderless(&mut self) {
        let stays = self.stopping.is_none();
        let lease = self.lease();
        let (Some(leaderless), Some((me, life)), Some(list)) =
            (&mut self.leaderless, self.session.id(), &self.partitions)
        else {
            return;
        };
        if !lease {
            return;
        }
        let fit = stays && self.lanes.degraded().is_none() && !leaderless.drains(me, life);
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
            self.holdings
                .want(serve, [], &[], &mut self.lanes, &mut self.out);
        }
    }

    pub(super) fn step_holdings(&mut self) {
        let lease = self.lease();
        self.lanes.tick(self.out.now());
        self.stirred |= self.pump_lanes();
        if !self.stirred && self.out.now() < self.holdings_wake {
            return;
        }
        self.stirred = true;
        // Opening a lane may make it act, its notes may make a holding act: until both are quiet.
        loop {
            let Some((me, life)) = self.session.id() else {
                return;
            };
            let was_in_doubt = self.holdings.in_doubt();
            self.holdings
                .step(me, life, lease, &mut self.lanes, &mut self.out);
            if was_in_doubt && !self.holdings.in_doubt() {
                self.lanes.lease(self.out.now(), self.lease_until());
                self.lanes.tick(self.out.now());
            }
            if !self.pump_lanes() {
                break;
            }
        }
        self.holdings_wake = self.holdings.next_deadline();
    }

    /// Passes on what the lanes want. True when a holding has reason to act.
    pub(super) fn pump_lanes(&mut self) -> bool {
        let mut news = false;
        for action in self.lanes.take_actions() {
            match action {
                LaneAction::Source(request) => self.out.push(Action::Source(request)),
                LaneAction::Handle(run) => self.out.push(Action::Handle(run)),
                LaneAction::Halt(partition) => self.out.push(Action::Halt(partition)),
                LaneAction::Note(note) => {
                    news = true;
                    self.noted(note);
                }
            }
        }
        news
    }

    pub(super) fn noted(&mut self, note: LaneNote) {
        match note {
            LaneNote::Begin {
                partition,
                epoch,
                begun,
            } => {
                self.holdings.begin(&partition, epoch, begun);
            }
            LaneNote::Commit { partition } => self.holdings.commit_now(&partition),
            LaneNote::Drained { partition } => self.holdings.drained(&partition),
            LaneNote::ReadyChanged => {}
            LaneNote::Trouble(trouble) => self.out.trouble(trouble),
            LaneNote::RefusedNoMore => {
                let line = "the source refuses nothing any more".to_owned();
                self.out.tell(EventKind::Trouble, line);
            }
            LaneNote::DeadLettered {
                partition,
                offset,
                attempts,
            } => {
                self.out.report(Report::DeadLettered {
                    partition,
                    offset,
                    attempts,
                });
            }
            LaneNote::Resolved { partition, next } => self.holdings.resolved(&partition, next),
        }
    }
}

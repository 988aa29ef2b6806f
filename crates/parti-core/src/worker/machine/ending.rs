//! The graceful stop, and the end.

use std::time::Duration;

use crate::io::Scope;
use crate::key::Prefix;
use crate::leader::Sessions;
use crate::record::EventKind;
use crate::worker::stop::{Step, Stopping};
use crate::worker::{Action, Fatal};

use super::{Life, Worker};

impl Worker {
    pub(super) fn stop(&mut self, within: Option<Duration>) {
        if self.stopping.is_some() {
            return;
        }
        let limit = self.config.shutdown_timeout;
        let limit = within.map_or(limit, |within| within.min(limit));
        let mut stopping = Stopping::new(self.out.now(), limit, self.config.heartbeat());
        if self.life != Life::Joined {
            if self.session.may_be_claimed() {
                // Wait for the claim, then give the id back.
                stopping.go_alone();
                self.stopping = Some(stopping);
            } else {
                self.end(Ok(()));
            }
            return;
        }
        if self.leaderless.is_some()
            && let Some((me, _)) = self.session.id()
        {
            self.out.tell(EventKind::Leave, format!("{me} leaves"));
        }
        let relieved_by_others = match (&self.leaderless, &self.leader) {
            (Some(_), _) => false,
            (None, Some(leader)) => self.sessions.anyone_stays_but(leader.me()),
            (None, None) => self.told.assignment.is_some(),
        };
        if !relieved_by_others {
            stopping.go_alone();
        }
        self.election.resign();
        self.step_down();
        self.stopping = Some(stopping);
    }

    /// Sees whether anybody is left who could relieve this worker. If not, it lets go by itself:
    /// a whole group that stops at once waits for nobody.
    fn step_relief(&mut self) {
        let now = self.out.now();
        let (Some(stopping), Some((me, _))) = (&mut self.stopping, self.session.id()) else {
            return;
        };
        if stopping.step(now) != Step::Relief || planted!(StopWaitsForNobody) {
            return;
        }
        let led = !self.election.is_vacant(now, &self.silence);
        stopping.is_led(now, led);
        if led {
            return;
        }
        if !stopping.looks_around {
            stopping.looks_around = true;
            self.sessions = Sessions::default();
            self.out.push(Action::Watch(Scope::Prefix(Prefix::Workers)));
        }
        if self.sessions.synced && !self.sessions.anyone_stays_but(me) {
            stopping.go_alone();
        }
    }

    pub(super) fn step_stop(&mut self) {
        self.step_relief();
        let Some(stopping) = self.stopping else {
            return;
        };
        let step = stopping.step(self.out.now());
        if self.life == Life::Joining && !self.session.may_be_claimed() {
            self.end(Ok(()));
            return;
        }
        self.holdings.hurry(stopping.patience());
        if step >= Step::Alone {
            self.holdings
                .want([], [], &[], &mut self.lanes, &mut self.out);
        }
        if step >= Step::Forced {
            let cut_off = self.holdings.force_release(&mut self.lanes, &mut self.out);
            self.cut_off.extend(cut_off);
        }
        if step == Step::Over {
            self.end(Err(self.out_of_time()));
        }
    }

    /// Whether everything is handed over, so that the goodbye can be said.
    pub(super) fn may_go(&self) -> bool {
        let Some(stopping) = self.stopping else {
            return false;
        };
        let relieved = stopping.step(self.out.now()) >= Step::Alone
            || self
                .told
                .assignment
                .as_ref()
                .is_none_or(|told| told.serve.is_empty());
        relieved && self.holdings.is_empty() && !self.election.is_resigning()
    }

    fn out_of_time(&self) -> Fatal {
        Fatal::StopTimedOut {
            cut_off: self.cut_off.clone(),
            not_released: self.holdings.not_released(),
        }
    }

    pub(super) fn end(&mut self, mut result: Result<(), Fatal>) {
        if self.life == Life::Ended {
            return;
        }
        self.life = Life::Ended;
        // All is handed over, and yet something will be repeated.
        if result.is_ok() && !self.cut_off.is_empty() {
            result = Err(self.out_of_time());
        }
        self.holdings.abandon(&mut self.lanes, &mut self.out);
        self.pump_lanes();
        self.step_down();
        self.step_state();
        self.out.forget_pending();
        self.out.push(Action::Stopped(result));
    }
}

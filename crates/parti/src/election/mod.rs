//! An election agent of the user's: it decides who leads, the store still decides under which term.
//!
//! ```text
//!            request: yes                     renew: error, late, or no leader any more
//!  not elected ────────▶ elected ──renew, every heartbeat──▶ elected ────▶ not elected
//!       ▲ asked every heartbeat                                                │
//!       └──────────────────────────────────────────────────────────────────────┘
//!  stop, or another worker id ──▶ release
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parti_core::config::Config;
use parti_core::ids::WorkerId;
use parti_core::worker::{Event, State};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::call::{CallError, within};
use crate::driver::Status;
use crate::handler::HandlerError;
use crate::hooks::{Failure, Reporter};

/// Decides who leads, in place of the store's own election.
///
/// Whatever it says, nothing can be lost by it: two leaders at once only cost time. Every call is
/// given up after `election_timeout`, and calls never overlap.
#[async_trait]
pub trait ElectionAgent: Send + Sync + 'static {
    /// Asks for leadership for so long. Asking again, while one has it, is fine.
    async fn request_leadership(
        &self,
        worker: &WorkerId,
        lease: Duration,
    ) -> Result<bool, HandlerError>;

    /// Renews the lease. An error means that this worker does not lead.
    async fn renew_leadership(&self) -> Result<(), HandlerError>;

    /// Gives leadership back, so that others need not wait for the lease to end. Also called when it
    /// is not known whether leadership was granted: it must not take it from others.
    async fn release_leadership(&self) -> Result<(), HandlerError>;

    /// Whether this worker has the leadership now.
    async fn is_leader(&self) -> bool;
}

/// What asks an agent, every heartbeat.
pub(crate) struct Candidate {
    agent: Arc<dyn ElectionAgent>,
    status: watch::Receiver<Status>,
    /// Weak: the event loop ends when everyone outside has gone.
    events: mpsc::WeakUnboundedSender<Event>,
    reporter: Reporter,
    heartbeat: Duration,
    lease: Duration,
    timeout: Duration,
    elected: bool,
    /// Whether the agent may have granted leadership, as far as known.
    may_have_it: bool,
    /// For whom it was last asked.
    worker: Option<WorkerId>,
}

impl Candidate {
    pub(crate) fn new(
        agent: Arc<dyn ElectionAgent>,
        config: &Config,
        status: watch::Receiver<Status>,
        events: &mpsc::UnboundedSender<Event>,
        reporter: Reporter,
    ) -> Self {
        Self {
            agent,
            status,
            events: events.downgrade(),
            reporter,
            heartbeat: config.heartbeat_interval,
            lease: config.heartbeat_ttl,
            timeout: config.election_timeout,
            elected: false,
            may_have_it: false,
            worker: None,
        }
    }

    /// Until the worker stops; then gives back what it has.
    pub(crate) async fn run(mut self) {
        let mut status = self.status.clone();
        let stopped =
            status.wait_for(|status| status.state == State::Shutdown || status.end.is_some());
        tokio::select! {
            // A stop interrupts whatever the agent is asked: others wait for the leadership.
            biased;
            _ = stopped => {}
            () = self.stand() => {}
        }
        self.give_back().await;
    }

    async fn stand(&mut self) {
        let mut beat = tokio::time::interval(self.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let known = self.worker.clone();
            tokio::select! {
                _ = beat.tick() => {}
                // A worker with another id is another candidate.
                changed = self.status.wait_for(|status| status.id != known && status.id.is_some()) => {
                    if changed.is_err() {
                        return;
                    }
                    beat.reset();
                }
            }
            let id = self.status.borrow().id.clone();
            if self.worker != id {
                self.give_back().await;
                self.worker.clone_from(&id);
            }
            let elected = match id {
                None => false,
                Some(_) if self.elected => self.renew().await,
                Some(id) => self.request(id).await,
            };
            self.tell(elected);
        }
    }

    async fn request(&mut self, id: WorkerId) -> bool {
        // If no answer comes, it may have been granted all the same.
        self.may_have_it = true;
        let asked = within(self.timeout, self.agent.request_leadership(&id, self.lease)).await;
        let granted = self.settle("request_leadership", asked);
        self.may_have_it = granted != Some(false);
        granted.unwrap_or(false)
    }

    async fn renew(&self) -> bool {
        let renewed = within(self.timeout, self.agent.renew_leadership()).await;
        if self.settle("renew_leadership", renewed).is_none() {
            return false;
        }
        let leads = within(self.timeout, async { Ok(self.agent.is_leader().await) }).await;
        self.settle("is_leader", leads).unwrap_or(false)
    }

    async fn give_back(&mut self) {
        self.tell(false);
        if std::mem::take(&mut self.may_have_it) {
            let released = within(self.timeout, self.agent.release_leadership()).await;
            self.settle("release_leadership", released);
        }
    }

    fn settle<T>(&self, call: &'static str, result: Result<T, CallError>) -> Option<T> {
        result
            .map_err(|error| {
                self.reporter
                    .failure(Failure::ElectionFailed { call, error });
            })
            .ok()
    }

    fn tell(&mut self, elected: bool) {
        if std::mem::replace(&mut self.elected, elected) != elected
            && let Some(events) = self.events.upgrade()
        {
            let _ = events.send(Event::Elected(elected));
        }
    }
}

#[cfg(test)]
mod tests;

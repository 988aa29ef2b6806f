//! The one place that makes and drives a worker machine.

use std::sync::Arc;

use parti_core::ids::WorkerId;
use parti_core::leader::election::Agent;
use parti_core::session::Belonging;
use parti_core::strategy::Strategy;
use parti_core::time::Time;
use parti_core::worker::{Action, Event, Options, Worker};

use crate::setup::Setup;

/// A worker, as the simulated process that runs it sees it.
pub struct Machine {
    worker: Worker,
}

impl Machine {
    /// A worker that has not started.
    pub fn new(
        setup: &Setup,
        strategy: Arc<dyn Strategy>,
        stream: u64,
        preferred: Option<u64>,
        belongs: Belonging,
        seed: u64,
    ) -> Self {
        let worker = Worker::new(Options {
            config: setup.config.clone(),
            strategy,
            source: setup.source,
            stream: stream.into(),
            preferred,
            belongs,
            agent: Agent::Store,
            seed,
        });
        Self { worker }
    }

    /// Lets the worker handle events that are there together; its actions are appended.
    pub fn handle(&mut self, now: Time, events: Vec<Event>, actions: &mut Vec<Action>) {
        self.worker.handle_all(now, events, actions);
    }

    /// When the worker wants a tick.
    pub fn next_deadline(&self) -> Time {
        self.worker.next_deadline()
    }

    /// Until when it may begin to handle messages, by its own clock.
    pub fn lease_until(&self) -> Time {
        self.worker.lease_until()
    }

    /// The id it holds.
    pub fn id(&self) -> Option<&WorkerId> {
        self.worker.id()
    }
}

//! Whole workers with an election agent, with time that stands still unless all wait for it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::clock::TestClock;
use crate::source::MemoryLog;
use crate::store::Memory;
use crate::{Hooks, Message, StaticPartitions, Worker, WorkerBuilder, WorkerError};

/// What all agents of a group know.
#[derive(Default)]
struct Office {
    holder: Option<WorkerId>,
    /// Whose agents get no answer.
    mute: BTreeSet<WorkerId>,
    calls: Vec<String>,
}

/// One worker's way to it.
#[derive(Clone, Default)]
struct Agent {
    office: Arc<Mutex<Office>>,
    me: Arc<Mutex<Option<WorkerId>>>,
}

impl Agent {
    /// Another worker's way to the same office.
    fn peer(&self) -> Self {
        Self {
            office: self.office.clone(),
            me: Arc::default(),
        }
    }

    fn office(&self) -> MutexGuard<'_, Office> {
        self.office.lock().expect("no panic")
    }

    fn me(&self) -> Option<WorkerId> {
        self.me.lock().expect("no panic").clone()
    }

    async fn reach(&self, call: &str) {
        let me = self.me();
        let mute = {
            let mut office = self.office();
            let name = me.as_ref().map_or("nobody", |me| me.as_str());
            office.calls.push(format!("{name} {call}"));
            me.is_some_and(|me| office.mute.contains(&me))
        };
        if mute {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl ElectionAgent for Agent {
    async fn request_leadership(
        &self,
        worker: &WorkerId,
        lease: Duration,
    ) -> Result<bool, HandlerError> {
        assert_eq!(lease, Config::default().heartbeat_ttl);
        *self.me.lock().expect("no panic") = Some(worker.clone());
        self.reach("request").await;
        let mut office = self.office();
        let holder = office.holder.get_or_insert_with(|| worker.clone());
        Ok(holder == worker)
    }

    async fn renew_leadership(&self) -> Result<(), HandlerError> {
        self.reach("renew").await;
        if self.office().holder == self.me() {
            return Ok(());
        }
        Err("somebody else holds it".into())
    }

    async fn release_leadership(&self) -> Result<(), HandlerError> {
        self.reach("release").await;
        let me = self.me();
        let mut office = self.office();
        if office.holder == me {
            office.holder = None;
        }
        Ok(())
    }

    async fn is_leader(&self) -> bool {
        self.office().holder == self.me()
    }
}

/// Passes failures on.
struct Failures(mpsc::UnboundedSender<String>);

#[async_trait]
impl Hooks for Failures {
    async fn error(&self, failure: &Failure) -> Result<(), HandlerError> {
        Ok(self.0.send(failure.to_string())?)
    }
}

fn builder(store: &Memory, agent: &Agent) -> WorkerBuilder {
    let partitions = StaticPartitions::numbered(4);
    Worker::builder("g", store.clone(), MemoryLog::new(), partitions)
        .clock(TestClock::new())
        .election_agent(agent.clone())
}

async fn nothing(_: Message) -> Result<(), HandlerError> {
    Ok(())
}

#[track_caller]
fn until(wanted: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let looks = async {
            while !wanted() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        // An hour of the test's own time: a test that waits in vain fails instead of hanging.
        let hour = tokio::time::timeout(Duration::from_secs(3600), looks);
        assert!(hour.await.is_ok(), "it never came: {place}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_the_agent_elects_leads_and_a_stop_releases() {
    let (store, agent) = (Memory::new(), Agent::default());
    let (first, second) = (agent.peer(), agent.peer());
    let first = builder(&store, &first).start(nothing).await;
    let first = first.expect("starts");
    let second = builder(&store, &second).start(nothing).await;
    let second = second.expect("starts");
    until(|| second.assignment().serve.len() == 2).await;
    assert!(first.is_leader() && !second.is_leader());
    assert_eq!(agent.office().holder, first.id());
    // Somebody decides otherwise: the store's own record is no reason to stay.
    agent.office().holder = second.id();
    until(|| second.is_leader() && !first.is_leader()).await;
    second.stop().await.expect("stops");
    let calls = agent.office().calls.clone();
    assert!(calls.iter().any(|c| c == "worker-1 release"), "{calls:#?}");
    until(|| first.is_leader() && first.assignment().serve.len() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_is_given_up_and_means_not_elected() {
    let (store, agent) = (Memory::new(), Agent::default());
    let (failures, mut failed) = mpsc::unbounded_channel();
    let first = agent.peer();
    let first = builder(&store, &first).hooks(Failures(failures));
    let first = first.start(nothing).await.expect("starts");
    assert!(first.is_leader());
    agent.office().mute.extend(first.id());
    let failure = failed.recv().await.expect("told");
    assert_eq!(
        failure,
        "leader election failed: renew_leadership: no answer within 5s"
    );
    until(|| !first.is_leader()).await;
    // It is asked again and again, and comes back.
    agent.office().mute.clear();
    until(|| first.is_leader()).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_without_a_leader_fails_and_gives_the_id_back() {
    let (store, agent) = (Memory::new(), Agent::default());
    agent.office().holder = Some(WorkerId::new("somebody-else"));
    let error = builder(&store, &agent).start(nothing).await;
    let error = error.expect_err("nobody leads");
    let state = State::Election;
    assert!(
        matches!(error, WorkerError::StartTimeout { state: at, .. } if at == state),
        "{error}"
    );
    let calls = agent.office().calls.clone();
    assert!(!calls.iter().any(|c| c.ends_with("release")), "{calls:#?}");
    agent.office().holder = None;
    let worker = builder(&store, &agent).start(nothing).await;
    let worker = worker.expect("starts");
    assert_eq!(worker.id(), Some(WorkerId::new("worker-0")));
}

#[tokio::test(start_paused = true)]
async fn an_agent_in_a_group_without_a_leader_is_refused_by_name() {
    let (store, agent) = (Memory::new(), Agent::default());
    let config = Config {
        coordination: parti_core::config::Coordination::Leaderless,
        ..Config::default()
    };
    let builder = builder(&store, &agent).config(config);
    let error = builder.start(nothing).await.expect_err("nobody to elect");
    assert!(matches!(error, WorkerError::Config(_)));
    assert!(error.to_string().contains("election agent"), "{error}");
}

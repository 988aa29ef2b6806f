//! Whole managers on the memory store, with time that stands still unless all wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use parti_core::config::Config;
use parti_core::io::{Expect, Write, WriteOutcome};
use parti_core::key::Key;
use tokio::sync::mpsc;

use super::*;
use crate::clock::TestClock;
use crate::inspect;
use crate::store::GroupStore;
use crate::store::faulty::Faulty;
use crate::store::{Memory, Store, StoreExt};
use crate::{AssignmentChange, Failure, Hooks, StaticPartitions};

/// What a consumer or its hooks were told, in order.
#[derive(Clone, Debug)]
enum Told {
    Hook,
    Failure(String),
    Update(ConsumerUpdate),
    Start,
    Revoke,
    Lost(PartitionId, Epoch),
}

#[derive(Default)]
struct Shared {
    told: Mutex<Vec<Told>>,
    grants: Mutex<BTreeMap<PartitionId, Grant>>,
    /// Whether updates fail.
    fails: AtomicBool,
    /// Whether revokes never end.
    hangs: AtomicBool,
}

/// A consumer in memory that handles three messages of everything it starts.
#[derive(Clone, Default)]
struct Fake(Arc<Shared>);

impl Fake {
    fn note(&self, told: Told) {
        self.0.told.lock().expect("no panic").push(told);
    }

    fn told(&self) -> Vec<Told> {
        self.0.told.lock().expect("no panic").clone()
    }

    fn grants(&self) -> BTreeMap<PartitionId, Grant> {
        self.0.grants.lock().expect("no panic").clone()
    }

    fn drop_grant(&self, partition: &PartitionId, epoch: Epoch) {
        let grant = self.0.grants.lock().expect("no panic").remove(partition);
        assert_eq!(grant.map(|grant| grant.epoch), Some(epoch));
    }

    fn failures(&self) -> Vec<String> {
        let failure = |told| match told {
            Told::Failure(failure) => Some(failure),
            _ => None,
        };
        self.told().into_iter().filter_map(failure).collect()
    }

    /// Waits until it has so many partitions.
    #[track_caller]
    fn has(&self, count: usize) -> impl Future<Output = ()> {
        until(move || self.grants().len() == count)
    }
}

#[async_trait]
impl ConsumerUpdater for Fake {
    async fn update(&self, update: &ConsumerUpdate) -> Result<(), HandlerError> {
        self.note(Told::Update(update.clone()));
        if self.0.fails.load(Ordering::SeqCst) {
            return Err("out of order".into());
        }
        Ok(())
    }

    async fn start(&self, grant: Grant) -> Result<(), HandlerError> {
        self.note(Told::Start);
        assert!(grant.may_handle());
        grant.commit(Offset(grant.next_offset.0 + 2)).await?;
        let mut grants = self.0.grants.lock().expect("no panic");
        let before = grants.insert(grant.partition.clone(), grant);
        assert!(before.is_none(), "started twice");
        Ok(())
    }

    async fn revoke(&self, partition: &PartitionId, epoch: Epoch) -> Result<(), HandlerError> {
        if self.0.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.note(Told::Revoke);
        self.drop_grant(partition, epoch);
        Ok(())
    }

    async fn lost(&self, partition: &PartitionId, epoch: Epoch) -> Result<(), HandlerError> {
        self.note(Told::Lost(partition.clone(), epoch));
        self.drop_grant(partition, epoch);
        Ok(())
    }

    async fn resolve(&self, _: &PartitionId, start: StartPosition) -> Result<Offset, HandlerError> {
        match start {
            StartPosition::Latest => Ok(Offset(10)),
            StartPosition::Earliest => Ok(Offset(0)),
            other => Err(format!("{other:?} was not configured").into()),
        }
    }
}

#[async_trait]
impl Hooks for Fake {
    async fn assignment_changed(&self, _: &AssignmentChange) -> Result<(), HandlerError> {
        // Long enough for an update to overtake it.
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.note(Told::Hook);
        Err("not amused".into())
    }

    async fn error(&self, failure: &Failure) -> Result<(), HandlerError> {
        self.note(Told::Failure(failure.to_string()));
        Ok(())
    }
}

fn builder(store: impl IntoStore, fake: &Fake) -> ManagerBuilder {
    Manager::builder("g", store, StaticPartitions::numbered(8))
        .clock(TestClock::new())
        .hooks(fake.clone())
}

async fn manager(store: impl IntoStore, fake: &Fake) -> Manager {
    let started = builder(store, fake).start(fake.clone()).await;
    started.expect("starts")
}

#[track_caller]
fn until(wanted: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let looks = async {
            while !wanted() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        // An hour of the test's own time: a test that waits in vain fails instead of hanging.
        let hour = tokio::time::timeout(Duration::from_secs(3600), looks);
        assert!(hour.await.is_ok(), "it never came: {place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_goes_on_exactly_after_the_last_commit_and_old_epochs_are_refused() {
    let (store, a, b) = (Memory::new(), Fake::default(), Fake::default());
    let first = manager(store.clone(), &a).await;
    a.has(8).await;
    let of_first = a.grants();
    let second = manager(store.clone(), &b).await;
    b.has(4).await;
    a.has(4).await;
    for (id, grant) in b.grants() {
        assert_eq!((grant.epoch, grant.next_offset), (Epoch(2), Offset(13)));
        let refused = of_first[&id].commit(Offset(99)).await;
        assert_eq!(refused, Err(CommitRefused::NotOwned));
        assert!(grant.may_handle() && !of_first[&id].may_handle());
    }
    let of_second = b.grants();
    second.stop().await.expect("stops");
    assert_eq!(b.grants().len(), 0, "everything was revoked");
    a.has(8).await;
    for (id, grant) in &of_second {
        let now = &a.grants()[id];
        assert_eq!((now.epoch, now.next_offset), (Epoch(3), Offset(16)));
        let current = Epoch(3);
        let refused = of_first[id].commit(Offset(99)).await;
        assert_eq!(refused, Err(CommitRefused::Fenced { current }));
        let refused = grant.commit(Offset(99)).await;
        assert_eq!(refused, Err(CommitRefused::NotOwned), "it has stopped");
        let refused = first.commit(id, Epoch(3), Offset(17)).await;
        let next = Offset(19);
        assert_eq!(refused, Err(CommitRefused::GoesBack { next }));
        first.commit(id, Epoch(3), Offset(18)).await.expect("again");
    }
    first.stop().await.expect("stops");
    let lost = |told: &Told| matches!(told, Told::Lost(..));
    assert!(!a.told().iter().any(lost) && !b.told().iter().any(lost));
    let third = Fake::default();
    let _third = manager(store, &third).await;
    third.has(8).await;
    let next = |grant: &Grant| grant.next_offset.0;
    let starts: BTreeSet<u64> = third.grants().values().map(next).collect();
    assert_eq!(starts, [13, 19].into(), "kept across the stop");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nobody_can_read_begins_no_group_and_ends_none() {
    let (store, fake) = (Memory::new(), Fake::default());
    let odd = "a\u{200b}";
    let started = || {
        Manager::builder(odd, store.clone(), StaticPartitions::numbered(8))
            .clock(TestClock::new())
            .start(fake.clone())
    };
    let refused = started().await.expect_err("refused").to_string();
    let why = r#"group: "a\u{200b}" contains the invisible character '\u{200b}'; leave it out"#;
    assert_eq!(refused, why);
    let names = || async { GroupStore::names(&store).await.expect("names") };
    assert!(names().await.is_empty(), "nothing was written");
    // One that an older program began.
    manager(store.clone(), &fake)
        .await
        .stop()
        .await
        .expect("ends");
    let records = |group| GroupStore::new(store.clone().into_store(), group).expect("a name");
    let found = records("g").read(&Key::Group).await.expect("a store");
    let write = Write {
        key: Key::Group,
        expect: Expect::Absent,
        value: found.map(|stored| stored.record),
    };
    let written = records(odd).write(&[write]).await;
    assert!(
        matches!(written[..], [WriteOutcome::Done(_)]),
        "{written:?}"
    );
    let goes_on = started().await.expect("goes on");
    fake.has(8).await;
    assert_eq!(names().await, [odd, "g"]);
    goes_on.stop().await.expect("stops");
}

#[tokio::test(start_paused = true)]
async fn the_hook_comes_first_its_error_is_told_and_the_updater_runs_all_the_same() {
    let (store, fake) = (Memory::new(), Fake::default());
    let manager = manager(store, &fake).await;
    fake.has(8).await;
    let told = fake.told();
    let at = |wanted: &dyn Fn(&Told) -> bool| told.iter().position(wanted).expect("told");
    let hook = at(&|told| matches!(told, Told::Hook));
    let failure = at(
        &|told| matches!(told, Told::Failure(why) if why == "hook assignment_changed failed: not amused"),
    );
    let update = at(&|told| matches!(told, Told::Update(_)));
    let start = at(&|told| matches!(told, Told::Start));
    assert!(
        hook < failure && failure < update && update < start,
        "{told:#?}"
    );
    let Told::Update(update) = &told[update] else {
        panic!("{told:#?}")
    };
    let assignment = manager.assignment();
    let expected = ConsumerUpdate {
        worker: WorkerId::new("worker-0"),
        version: assignment.version,
        serve: assignment.serve,
        prepare: Vec::new(),
    };
    assert_eq!((update.serve.len(), update), (8, &expected));
    manager.stop().await.expect("stops");
}

#[tokio::test(start_paused = true)]
async fn an_updater_that_fails_is_told_tried_again_and_nothing_moves_to_it() {
    let (store, a, b) = (Memory::new(), Fake::default(), Fake::default());
    let _first = manager(store.clone(), &a).await;
    a.has(8).await;
    b.0.fails.store(true, Ordering::SeqCst);
    let second = manager(store, &b).await;
    // Prepared, failed, taken back.
    until(|| !second.assignment().prepare.is_empty()).await;
    until(|| second.assignment().prepare.is_empty()).await;
    assert_eq!((a.grants().len(), b.grants().len()), (8, 0));
    let why = "consumer updater: update failed: out of order";
    let times = b.failures().iter().filter(|told| *told == why).count();
    assert!(times >= 2, "tried again: {:#?}", b.failures());
    assert!(!a.told().iter().any(|told| matches!(told, Told::Revoke)));
    b.0.fails.store(false, Ordering::SeqCst);
    b.has(4).await;
    a.has(4).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_loses_everything_at_once_and_begins_anew() {
    let (store, a, b) = (Memory::new(), Fake::default(), Fake::default());
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    let line = Faulty::new(shared, 1);
    let first = manager(line.clone(), &a).await;
    let _second = manager(store.clone(), &b).await;
    b.has(4).await;
    a.has(4).await;
    let before = a.grants();
    first.flush();
    let group = GroupStore::new(Arc::new(store.clone()), "g").expect("a good name");
    let flushed = async {
        loop {
            let seen = inspect::group(&group).await.expect("readable");
            let seen = seen.expect("there is a group").partitions;
            if seen.iter().all(|partition| partition.offset.is_some()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let hour = tokio::time::timeout(Duration::from_secs(3600), flushed);
    hour.await.expect("flushed");
    assert!(before.values().all(|grant| !grant.leased_for().is_zero()));
    line.outage(true);
    until(|| before.values().all(|grant| !grant.may_handle())).await;
    assert!(before.values().all(|grant| grant.leased_for().is_zero()));
    b.has(8).await;
    line.outage(false);
    until(|| a.grants().is_empty()).await;
    for (id, grant) in &before {
        let lost = |told: &Told| matches!(told, Told::Lost(of, e) if of == id && *e == grant.epoch);
        assert!(a.told().iter().any(lost), "{id}");
        assert!(grant.commit(Offset(99)).await.is_err() && !grant.may_handle());
        let next = b.grants()[id].next_offset;
        assert_eq!(next, Offset(13), "flushed before the outage");
    }
    let failures = a.failures();
    for why in [
        "the connection to the store is lost",
        "the session was ended",
    ] {
        let told = failures.iter().any(|told| told.starts_with(why));
        assert!(told, "{why}: {failures:#?}");
    }
    a.has(4).await;
    let again = a.grants();
    assert!(again.values().all(Grant::may_handle), "under new epochs");
    assert!(before.values().all(|grant| !grant.may_handle()));
    first.stop().await.expect("stops");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_limit_of_the_caller_wins_over_a_revoke_that_hangs() {
    let (store, fake) = (Memory::new(), Fake::default());
    let manager = manager(store.clone(), &fake).await;
    fake.has(8).await;
    fake.0.hangs.store(true, Ordering::SeqCst);
    let asked = tokio::time::Instant::now();
    let limit = Duration::from_secs(2);
    manager.stop_within(limit).await.expect("stops");
    // Time is the test's own here: it moves only to the next deadline.
    assert!(asked.elapsed() <= limit, "{:?}", asked.elapsed());
    let next = Fake::default();
    let started = builder(store, &next).start(next.clone()).await;
    let manager = started.expect("starts");
    assert_eq!(manager.id(), Some(WorkerId::new("worker-0")));
    next.has(8).await;
    assert!(next.grants().values().all(|g| g.next_offset == Offset(13)));
}

#[tokio::test(start_paused = true)]
async fn an_empty_assignment_counts_as_a_start_and_a_new_list_is_told() {
    let (store, fake) = (Memory::new(), Fake::default());
    let list = Memory::new();
    let revision = list.create("list", "[]").await.expect("written");
    let partitions = crate::StoredPartitions::new(Arc::new(list.clone()), "list");
    let manager = Manager::builder("g", store, partitions)
        .clock(TestClock::new())
        .start(fake.clone())
        .await
        .expect("starts");
    assert_eq!(manager.assignment().serve, []);
    let written = list.update("list", revision, "a\nb").await;
    written.expect("written");
    fake.has(2).await;
    let grants = fake.grants();
    let starts: Vec<_> = grants
        .values()
        .map(|g| (g.partition.as_str(), g.next_offset.0))
        .collect();
    assert_eq!(
        starts,
        [("a", 0), ("b", 0)],
        "what is added starts at its beginning"
    );
    manager.stop().await.expect("stops");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_gives_its_id_back_and_so_does_a_drop() {
    let (store, fake) = (Memory::new(), Fake::default());
    let start = || builder(store.clone(), &fake).start(fake.clone());
    let early = tokio::time::timeout(Duration::from_secs(1), start()).await;
    assert!(early.is_err(), "a group waits for its members first");
    for _ in 0..2 {
        let manager = start().await.expect("starts");
        assert_eq!(manager.id(), Some(WorkerId::new("worker-0")));
        fake.has(8).await;
        drop(manager);
        fake.has(0).await;
        // Its goodbye is under way.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn states_can_be_waited_for_and_an_end_against_its_will_is_told() {
    let (store, fake) = (Memory::new(), Fake::default());
    let manager = manager(store.clone(), &fake).await;
    manager.wait_for(crate::State::Stable).await.expect("runs");
    let (reports, mut seen) = mpsc::unbounded_channel();
    let config = Config {
        worker_id_max: 0,
        ..Config::default()
    };
    let other = builder(store, &fake)
        .config(config)
        .observer(move |report: &crate::Report| drop(reports.send(report.clone())));
    let error = other.start(fake.clone()).await.expect_err("no id left");
    let exhausted = matches!(
        error,
        WorkerError::Fatal(crate::Fatal::StableIdExhausted(1))
    );
    assert!(exhausted, "{error}");
    assert!(seen.recv().await.is_some(), "observers are told as well");
}

#[tokio::test(start_paused = true)]
async fn managers_without_a_leader_share_and_hand_over_as_well() {
    let (store, a, b) = (Memory::new(), Fake::default(), Fake::default());
    let config = Config {
        coordination: parti_core::config::Coordination::Leaderless,
        ..Config::default()
    };
    let start = |fake: &Fake| {
        let builder = builder(store.clone(), fake).config(config.clone());
        builder.start(fake.clone())
    };
    let first = start(&a).await.expect("starts");
    a.has(8).await;
    let _second = start(&b).await.expect("starts");
    until(|| !b.grants().is_empty() && a.grants().len() + b.grants().len() == 8).await;
    let moved = b.grants();
    assert!(moved.values().all(|grant| grant.next_offset == Offset(13)));
    first.stop().await.expect("stops");
    b.has(8).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_returns_holds_back_the_update_and_that_is_told() {
    struct Stuck;

    #[async_trait]
    impl Hooks for Stuck {
        async fn assignment_changed(&self, _: &AssignmentChange) -> Result<(), HandlerError> {
            std::future::pending().await
        }
    }

    let (store, fake) = (Memory::new(), Fake::default());
    let (reports, mut seen) = mpsc::unbounded_channel();
    let manager = Manager::builder("g", store, StaticPartitions::numbered(8))
        .clock(TestClock::new())
        .hooks(Stuck)
        .observer(move |report: &crate::Report| drop(reports.send(report.clone())))
        .start(fake.clone())
        .await
        .expect("starts");
    let told = async {
        loop {
            if let Some(crate::Report::Trouble(trouble)) = seen.recv().await {
                return trouble.to_string();
            }
        }
    };
    let hour = tokio::time::timeout(Duration::from_secs(3600), told).await;
    let why = "the consumer cannot be updated: the source is not available: no answer within 10s";
    assert_eq!(hour.expect("told"), why);
    assert!(fake.told().is_empty(), "neither updated nor started");
    manager.stop().await.expect("stops");
}

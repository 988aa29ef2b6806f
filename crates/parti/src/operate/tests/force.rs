//! Forced changes, with owners and leaders that a test plays.

use std::sync::Arc;

use parti_core::record::{Outcome, RequestRecord};
use tokio::sync::Notify;

use super::*;
use crate::operate::checkpoint::Fence;
use crate::store::faulty::{Faults, Faulty};
use crate::store::{Entry, GroupStore, Memory, Revision, Scope, Store, Watch};

/// Partitions 0 and 1 of one worker that lives.
pub(super) async fn served(coordination: &str) -> (Desk, Incarnation) {
    let desk = Desk::new();
    let life = populate(&desk, coordination).await;
    (desk, life)
}

pub(super) async fn populate(desk: &Desk, coordination: &str) -> Incarnation {
    desk.group_of(coordination).await;
    let life = desk.session("worker-0", SessionStatus::Live).await;
    desk.owned("0", Some(("worker-0", life)), Some(9)).await;
    desk.owned("1", Some(("worker-0", life)), Some(9)).await;
    life
}

pub(super) fn forced() -> Rules {
    Rules {
        force: Some(Duration::from_secs(30).into()),
        back: true,
        unknown: false,
    }
}

pub(super) async fn apply(desk: &Desk, ids: &[&str]) -> Applied {
    apply_by(desk, ids, forced()).await
}

async fn apply_by(desk: &Desk, ids: &[&str], rules: Rules) -> Applied {
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let wanted = ids.iter().map(|id| Wanted::at(partition(id), Offset(5)));
    let planned = checkpoints.plan(wanted.collect(), rules);
    let applied = checkpoints.apply(planned, rules, &reason()).await;
    applied.expect("writable")
}

pub(super) async fn paused(desk: &Desk) -> Vec<String> {
    let seen = desk.seen().await;
    let paused = seen.partitions.iter().filter(|one| one.paused);
    paused.map(|one| one.id.to_string()).collect()
}

pub(super) async fn until_paused(desk: &Desk, ids: &[&str]) {
    while paused(desk).await != ids {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The lines of the history, in order.
pub(super) async fn told(desk: &Desk) -> Vec<String> {
    let history = desk.seen().await.history;
    history.into_iter().map(|line| line.text).collect()
}

#[tokio::test(start_paused = true)]
async fn an_owner_lets_go_before_its_checkpoint_changes() {
    let (desk, _) = served("leaderless").await;
    let letting_go = async {
        until_paused(&desk, &["0", "1"]).await;
        // Its last commit comes with the release, and counts.
        desk.owned("0", None, Some(20)).await;
        until_paused(&desk, &["1"]).await;
        desk.owned("1", None, Some(20)).await;
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0", "1"]), letting_go);
    assert_eq!(applied.left_paused, []);
    for change in &applied.changes {
        assert_eq!(
            (&change.verdict, &change.served_by),
            (&Verdict::Change, &None)
        );
        assert_eq!(
            change.before.map(|before| before.next_offset),
            Some(Offset(21))
        );
    }
    let why = "forced change of its checkpoint: to see";
    assert_eq!(
        told(&desk).await,
        [
            format!("alice asked to pause partition 0, 1 (for a {why}): under way"),
            "alice set the checkpoint of 0 from 21 to 5 (to see): done".into(),
            format!("alice asked to resume partition 0 (after a {why}): done"),
            "alice set the checkpoint of 1 from 21 to 5 (to see): done".into(),
            format!("alice asked to resume partition 1 (after a {why}): done"),
        ]
    );
    assert_eq!(paused(&desk).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_does_not_let_go_is_fenced_and_named() {
    let (desk, _) = served("leaderless").await;
    let applied = apply(&desk, &["0"]).await;
    let change = &applied.changes[0];
    assert_eq!(change.verdict, Verdict::Change);
    assert_eq!(change.served_by, Some(worker("worker-0")));
    let seen = desk.seen().await;
    let now = seen.partition(&partition("0")).expect("there");
    assert_eq!((now.epoch, &now.owner), (Epoch(4), &None));
    assert_eq!(paused(&desk).await, [""; 0]);
}

/// Keeps a session alive.
async fn renewing(desk: &Desk, life: Incarnation) {
    for beat in 1.. {
        tokio::time::sleep(Duration::from_secs(2)).await;
        desk.renew("worker-0", Some(life), SessionStatus::Live, beat)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_has_as_long_as_its_lease_however_short_the_patience() {
    let (desk, life) = served("leaderless").await;
    let rules = Rules {
        force: Some(Duration::from_millis(5).into()),
        ..forced()
    };
    let letting_go = async {
        until_paused(&desk, &["0"]).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        desk.owned("0", None, Some(20)).await;
        std::future::pending::<()>().await;
    };
    let applied = tokio::select! {
        applied = apply_by(&desk, &["0"], rules) => applied,
        () = renewing(&desk, life) => panic!("it lives"),
        () = letting_go => panic!("it is done before"),
    };
    assert_eq!(applied.changes[0].verdict, Verdict::Change);
    assert_eq!(applied.changes[0].served_by, None, "nobody was fenced");
    assert_eq!(applied.left_paused, []);
    assert_eq!(paused(&desk).await, [""; 0]);
}

/// Nobody leads: while nothing arrives, the owner would not notice that it was written over.
#[tokio::test(start_paused = true)]
async fn an_owner_that_lives_and_was_not_told_is_left_alone() {
    let (desk, life) = served("leader").await;
    let applied = tokio::select! {
        applied = apply(&desk, &["0"]) => applied,
        () = renewing(&desk, life) => panic!("it lives"),
    };
    assert_eq!(applied.changes[0].verdict, Verdict::Served);
    assert_eq!(applied.changes[0].served_by, Some(worker("worker-0")));
    let seen = desk.seen().await;
    let left_alone = seen.partition(&partition("0")).expect("there");
    assert_eq!(left_alone.owner, Some(worker("worker-0")));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_lives_and_does_not_do_as_told_is_fenced() {
    let (desk, life) = served("leader").await;
    let telling = async {
        until_asked(&desk, 1).await;
        desk.told("worker-0", life, &["1"], &[]).await;
        renewing(&desk, life).await;
    };
    let applied = tokio::select! {
        applied = apply(&desk, &["0"]) => applied,
        () = telling => panic!("it lives"),
    };
    assert_eq!(applied.changes[0].verdict, Verdict::Change);
    assert_eq!(applied.changes[0].served_by, Some(worker("worker-0")));
}

#[tokio::test]
async fn whoever_took_it_from_an_owner_that_is_fenced_is_not() {
    let (desk, _) = served("leader").await;
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let mut changes = checkpoints.plan(vec![Wanted::at(partition("0"), Offset(5))], forced());
    assert_eq!(changes[0].served_by, Some(worker("worker-0")));
    let life = desk.session("worker-1", SessionStatus::Live).await;
    desk.owned("0", Some(("worker-1", life)), Some(12)).await;
    let (always, why) = (Fence::Always, reason());
    let written = checkpoints.write(vec![0], forced(), always, &why, &mut changes);
    written.await.expect("writable");
    assert_eq!(changes[0].verdict, Verdict::Served);
    assert_eq!(changes[0].served_by, Some(worker("worker-1")));
}

#[tokio::test(start_paused = true)]
async fn what_others_have_paused_stays_paused() {
    let (desk, _) = served("leaderless").await;
    desk.decide(|overrides| overrides.pause(&partition("0")))
        .await;
    let letting_go = async {
        until_paused(&desk, &["0", "1"]).await;
        desk.owned("0", None, Some(20)).await;
        desk.owned("1", None, Some(20)).await;
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0", "1"]), letting_go);
    assert_eq!(applied.changes[0].served_by, None);
    assert_eq!(paused(&desk).await, ["0"]);
}

/// Carries out requests as a leader does, and lets go of what is paused.
async fn lead(desk: &Desk, requests: usize) {
    let mut done = 0;
    while done < requests {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut found = desk.store.list(Prefix::Requests).await.expect("readable");
        found.sort_by_key(|stored| stored.revision);
        for stored in found {
            let Record::Request(record) = &stored.record else {
                continue;
            };
            if record.outcome != Outcome::Open {
                continue;
            }
            match &record.request {
                Request::Pause { partition } => {
                    desk.decide(|overrides| overrides.pause(partition)).await;
                    desk.owned(partition.as_str(), None, Some(20)).await;
                }
                Request::Resume { partition } => {
                    desk.decide(|overrides| overrides.resume(partition)).await;
                }
                other => panic!("nobody asked for {other}"),
            }
            let mut answer = (**record).clone();
            answer.outcome = Outcome::Done;
            desk.put(stored.key.clone(), Record::Request(answer.into()))
                .await;
            done += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_asked_to_pause_and_to_resume() {
    let (desk, _) = served("leader").await;
    let (applied, ()) = tokio::join!(apply(&desk, &["0", "1"]), lead(&desk, 4));
    assert_eq!(applied.left_paused, []);
    assert!(applied.changes.iter().all(|one| one.served_by.is_none()));
    assert_eq!(paused(&desk).await, [""; 0]);
    let found = desk.store.list(Prefix::Requests).await.expect("readable");
    let whys = found.iter().filter_map(|stored| match &stored.record {
        Record::Request(record) => Some((record.request.to_string(), record.why.clone())),
        _ => None,
    });
    let mut whys: Vec<(String, String)> = whys.collect();
    whys.sort();
    assert_eq!(
        whys[0],
        (
            "pause partition 0".into(),
            "for a forced change of its checkpoint: to see".into()
        )
    );
}

/// A leader that comes to its end with a pause only later is not told to take it back before.
#[tokio::test(start_paused = true)]
async fn a_pause_is_done_before_it_is_taken_back() {
    let (desk, _) = served("leader").await;
    let leading = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        desk.owned("0", None, Some(20)).await;
        // It could be changed by now; its leader is not done with the pause.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let seen = desk.seen().await;
        let changed = seen.partition(&partition("0")).expect("there");
        assert_eq!(changed.next_offset, Some(Offset(5)));
        let asked = |text: &str| seen.requests.iter().filter(|one| one.text == text).count();
        assert_eq!(asked("pause partition 0"), 1);
        assert_eq!(asked("resume partition 0"), 0, "not yet");
        let (key, mut request) = open_request(&desk).await;
        request.outcome = Outcome::Done;
        desk.put(key, Record::Request(request.into())).await;
        lead(&desk, 1).await;
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0"]), leading);
    assert_eq!(applied.left_paused, []);
    assert_eq!(applied.changes[0].served_by, None);
}

async fn open_request(desk: &Desk) -> (Key, RequestRecord) {
    let found = desk.store.list(Prefix::Requests).await.expect("readable");
    let open = found.iter().find_map(|stored| match &stored.record {
        Record::Request(record) if record.outcome == Outcome::Open => {
            Some((stored.key.clone(), (**record).clone()))
        }
        _ => None,
    });
    open.expect("an open request")
}

#[tokio::test(start_paused = true)]
async fn what_others_want_paused_meanwhile_stays_paused() {
    let (desk, _) = served("leader").await;
    let leading = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, mut request) = open_request(&desk).await;
        // Whatever he says why: it is no forced change.
        request.by = "bob".into();
        let key = Key::Request("bobs".into());
        desk.put(key, Record::Request(request.into())).await;
        lead(&desk, 2).await;
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0"]), leading);
    assert_eq!(applied.left_paused, []);
    assert_eq!(applied.changes[0].served_by, None);
    assert_eq!(desk.seen().await.requests, [], "nobody asks to resume it");
    assert_eq!(paused(&desk).await, ["0"]);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_leads_the_pause_and_its_end_are_left_in_order() {
    let (desk, _) = served("leader").await;
    let began = tokio::time::Instant::now();
    let applied = apply(&desk, &["0"]).await;
    assert!(began.elapsed() < 2 * Duration::from_secs(30), "once");
    assert_eq!(applied.changes[0].served_by, Some(worker("worker-0")));
    assert_eq!(applied.left_paused, [], "nobody has paused it");
    let requests = desk.seen().await.requests;
    let asked: Vec<&str> = requests.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(asked, ["pause partition 0", "resume partition 0"]);
}

/// Nobody takes another one's pause for one of an operator: two of them would leave it paused.
#[tokio::test(start_paused = true)]
async fn what_another_forced_change_paused_too_is_resumed() {
    let (desk, _) = served("leader").await;
    let leading = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, mut request) = open_request(&desk).await;
        request.by = "bob".into();
        let key = Key::Request("forced-bobs".into());
        desk.put(key, Record::Request(request.into())).await;
        lead(&desk, 3).await;
    };
    let both = async { tokio::join!(apply(&desk, &["0"]), leading) };
    let both = tokio::time::timeout(Duration::from_secs(300), both).await;
    let (applied, ()) = both.expect("it is resumed");
    assert_eq!(applied.left_paused, []);
    assert_eq!(paused(&desk).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_another_one_resumes_too_early_is_paused_again() {
    let (desk, _) = served("leader").await;
    let leading = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // It is paused, and its owner takes its time.
        let (key, mut request) = open_request(&desk).await;
        desk.decide(|overrides| overrides.pause(&partition("0")))
            .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        request.outcome = Outcome::Done;
        desk.put(key, Record::Request(request.into())).await;
        desk.decide(|overrides| overrides.resume(&partition("0")))
            .await;
        lead(&desk, 2).await;
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0"]), leading);
    assert_eq!(applied.left_paused, []);
    assert_eq!(applied.changes[0].served_by, None, "nobody was fenced");
    assert_eq!(paused(&desk).await, [""; 0]);
}

/// A leader says this of a pause, though nobody has seen the partition paused: another one resumed
/// it between two looks.
async fn answered_unseen(outcome: Outcome, resumed: bool) -> (Applied, usize) {
    let (desk, _) = served("leader").await;
    let leading = async {
        until_asked(&desk, 1).await;
        let (key, mut request) = open_request(&desk).await;
        if resumed {
            let resume = RequestRecord {
                request: Request::Resume {
                    partition: partition("0"),
                },
                outcome: Outcome::Done,
                ..request.clone()
            };
            let bobs = Key::Request("forced-bobs".into());
            desk.put(bobs, Record::Request(resume.into())).await;
        }
        request.outcome = outcome;
        desk.put(key, Record::Request(request.into())).await;
        lead(&desk, if resumed { 2 } else { 1 }).await;
    };
    let both = async { tokio::join!(apply(&desk, &["0"]), leading) };
    let both = tokio::time::timeout(Duration::from_secs(300), both).await;
    let (applied, ()) = both.expect("all that is asked for");
    let found = desk.store.list(Prefix::Requests).await.expect("readable");
    (applied, found.len())
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_nobody_saw_is_asked_for_again() {
    let why = "partition 0 was resumed meanwhile".into();
    for outcome in [Outcome::Done, Outcome::Refused { why }] {
        let (applied, _) = answered_unseen(outcome, true).await;
        assert_eq!(applied.changes[0].verdict, Verdict::Change);
        assert_eq!(applied.changes[0].served_by, None, "nobody was fenced");
        assert_eq!(applied.left_paused, []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_cannot_be_is_asked_for_once() {
    let why = "there is no partition 0 in this group".into();
    let (_, requests) = answered_unseen(Outcome::Refused { why }, false).await;
    assert_eq!(requests, 2, "a pause, and its end");
}

/// Somebody else had paused it, and resumes it before its owner has let go: another forced change
/// that is stopped, or an operator.
async fn resumed_by_others(coordination: &str, requests: usize) {
    let (desk, _) = served(coordination).await;
    desk.decide(|overrides| overrides.pause(&partition("0")))
        .await;
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        desk.decide(|overrides| overrides.resume(&partition("0")))
            .await;
        lead(&desk, requests).await;
        if requests == 0 {
            until_paused(&desk, &["0"]).await;
            desk.owned("0", None, Some(20)).await;
        }
    };
    let both = async { tokio::join!(apply(&desk, &["0"]), others) };
    let both = tokio::time::timeout(Duration::from_secs(300), both).await;
    let (applied, ()) = both.expect("it is paused again");
    assert_eq!(applied.changes[0].verdict, Verdict::Change);
    assert_eq!(applied.changes[0].served_by, None, "nobody was fenced");
    assert_eq!(applied.left_paused, []);
    assert_eq!(
        paused(&desk).await,
        [""; 0],
        "and resumed by whoever paused it last"
    );
}

#[tokio::test(start_paused = true)]
async fn what_others_had_paused_and_resume_too_early_is_paused_again() {
    resumed_by_others("leader", 2).await;
}

#[tokio::test(start_paused = true)]
async fn what_others_had_paused_and_resume_too_early_is_paused_again_without_a_leader() {
    resumed_by_others("leaderless", 0).await;
}

/// Two forced changes of one partition; the first one is stopped.
#[tokio::test(start_paused = true)]
async fn a_forced_change_outlives_another_one_without_a_leader() {
    let (desk, _) = served("leaderless").await;
    let (checkpoints, planned, rules) = patient(&desk).await;
    let why = reason();
    let first = async {
        let stop = tokio::time::sleep(Duration::from_secs(3));
        let stopped = checkpoints.apply_until(planned, rules, &why, stop).await;
        assert_eq!(stopped.expect("writable").left_paused, []);
        until_paused(&desk, &["0"]).await;
        desk.owned("0", None, Some(20)).await;
    };
    let second = async {
        until_paused(&desk, &["0", "1"]).await;
        apply(&desk, &["0"]).await
    };
    let both = async { tokio::join!(first, second) };
    let both = tokio::time::timeout(Duration::from_secs(300), both).await;
    let ((), applied) = both.expect("it is paused again");
    assert_eq!(applied.changes[0].verdict, Verdict::Change);
    assert_eq!(applied.changes[0].served_by, None, "nobody was fenced");
    assert_eq!(paused(&desk).await, [""; 0]);
}

/// A change of both partitions that would wait for their owner for an hour.
async fn patient(desk: &Desk) -> (Checkpoints, Vec<Change>, Rules) {
    let rules = Rules {
        force: Some(Duration::from_secs(3600).into()),
        ..forced()
    };
    let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
    let wanted = ["0", "1"].map(|id| Wanted::at(partition(id), Offset(5)));
    let planned = checkpoints.plan(wanted.into(), rules);
    (checkpoints, planned, rules)
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_half_way_resumes_what_it_paused() {
    let (desk, _) = served("leaderless").await;
    let (checkpoints, planned, rules) = patient(&desk).await;
    let began = tokio::time::Instant::now();
    let stop = async {
        until_paused(&desk, &["0", "1"]).await;
        desk.owned("1", None, Some(20)).await;
        until_paused(&desk, &["0"]).await;
    };
    let why = reason();
    let applied = checkpoints.apply_until(planned, rules, &why, stop);
    let applied = applied.await.expect("writable");
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "it does not wait"
    );
    let verdicts: Vec<&Verdict> = applied.changes.iter().map(|one| &one.verdict).collect();
    assert_eq!(verdicts, [&Verdict::Served, &Verdict::Change]);
    assert_eq!(applied.left_paused, []);
    assert_eq!(paused(&desk).await, [""; 0]);
    let seen = desk.seen().await;
    let left_alone = seen.partition(&partition("0")).expect("there");
    assert_eq!(left_alone.owner, Some(worker("worker-0")));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_dropped_resumes_what_it_paused() {
    let (desk, _) = served("leaderless").await;
    let (checkpoints, planned, rules) = patient(&desk).await;
    let why = reason();
    tokio::select! {
        applied = checkpoints.apply(planned, rules, &why) => panic!("{applied:?}"),
        () = until_paused(&desk, &["0", "1"]) => {}
    }
    until_paused(&desk, &[]).await;
    let seen = desk.seen().await;
    for id in ["0", "1"] {
        let left_alone = seen.partition(&partition(id)).expect("there");
        assert_eq!(left_alone.owner, Some(worker("worker-0")));
    }
}

/// What is served on a store that can be taken away.
async fn on_a_line(coordination: &str) -> (Desk, Faulty) {
    let line = Faulty::new(Arc::new(Memory::new()), 1);
    let store = GroupStore::new(Arc::new(line.clone()), "g").expect("a name");
    let desk = Desk { store };
    populate(&desk, coordination).await;
    (desk, line)
}

/// Every call takes long, and comes to nothing.
fn cut_off(line: &Faulty) {
    line.set(Faults {
        delay: 1.0,
        longest: Duration::from_secs(3600),
        ..Faults::default()
    });
    line.outage(true);
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_without_a_store_ends_in_time_and_says_what_may_be_left_paused() {
    for coordination in ["leader", "leaderless"] {
        let (desk, line) = on_a_line(coordination).await;
        let (checkpoints, planned, rules) = patient(&desk).await;
        let stop = async {
            match coordination {
                "leader" => until_asked(&desk, 2).await,
                _ => until_paused(&desk, &["0", "1"]).await,
            }
            cut_off(&line);
        };
        let why = reason();
        let applied = checkpoints.apply_until(planned, rules, &why, stop);
        let applied = tokio::time::timeout(Duration::from_secs(60), applied).await;
        let applied = applied.expect("an end").expect("nothing was being changed");
        assert_eq!(applied.left_paused, ["0", "1"].map(partition));
        let verdicts: Vec<&Verdict> = applied.changes.iter().map(|one| &one.verdict).collect();
        assert_eq!(verdicts, [&Verdict::Served, &Verdict::Served]);
        assert!(applied.trouble.is_some(), "it is the store");
    }
}

/// A store that never answers a write of a checkpoint.
#[derive(Debug)]
pub(super) struct Mute {
    inner: Arc<dyn Store>,
    asked: Notify,
}

impl Mute {
    pub(super) fn new(desk: &Desk) -> Self {
        Self {
            inner: desk.store.store().clone(),
            asked: Notify::new(),
        }
    }
}

#[async_trait::async_trait]
impl Store for Mute {
    fn name(&self) -> &str {
        self.inner.name()
    }
    async fn read(&self, key: &str) -> Result<Option<Entry>, store::Error> {
        self.inner.read(key).await
    }
    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, store::Error> {
        self.inner.list(scope).await
    }
    async fn write(&self, batch: Vec<store::Write>) -> Vec<Result<Revision, store::Error>> {
        if batch.iter().any(|one| one.key.starts_with("partitions/")) {
            self.asked.notify_one();
            std::future::pending::<()>().await;
        }
        self.inner.write(batch).await
    }
    fn watch(&self, scope: Scope) -> Watch {
        self.inner.watch(scope)
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_in_the_middle_of_a_write_ends_in_time_too() {
    let (desk, _) = served("leaderless").await;
    let mute = Arc::new(Mute::new(&desk));
    let store = GroupStore::new(mute.clone(), "g").expect("a name");
    let (checkpoints, planned, rules) = patient(&Desk { store }).await;
    let stop = async {
        until_paused(&desk, &["0", "1"]).await;
        desk.owned("0", None, Some(20)).await;
        mute.asked.notified().await;
    };
    let why = reason();
    let applied = checkpoints.apply_until(planned, rules, &why, stop);
    let applied = tokio::time::timeout(Duration::from_secs(60), applied).await;
    let applied = applied.expect("an end");
    let unknown = matches!(applied, Err(Error::Store(store::Error::Unknown { .. })));
    assert!(
        unknown,
        "nobody knows what became of the write: {applied:?}"
    );
    assert_eq!(paused(&desk).await, [""; 0], "there was time left for that");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_is_the_reason_and_what_may_be_left_paused_is_named() {
    for coordination in ["leader", "leaderless"] {
        let (desk, line) = on_a_line(coordination).await;
        let going = async {
            match coordination {
                "leader" => until_asked(&desk, 1).await,
                _ => until_paused(&desk, &["0"]).await,
            }
            cut_off(&line);
        };
        let changes = async {
            let checkpoints = Checkpoints::read(&desk.store).await.expect("readable");
            let wanted = vec![Wanted::at(partition("0"), Offset(5))];
            let planned = checkpoints.plan(wanted, forced());
            checkpoints.apply(planned, forced(), &reason()).await
        };
        let (applied, ()) = tokio::join!(changes, going);
        let Err(Error::LeftPaused { cause, partitions }) = applied else {
            panic!("{applied:?}")
        };
        assert!(matches!(*cause, Error::Store(_)), "{cause:?}");
        assert_eq!(partitions, [partition("0")]);
    }
}

/// All is changed, and the store goes before it is resumed.
#[tokio::test(start_paused = true)]
async fn a_store_that_goes_at_the_end_is_named_beside_what_was_changed() {
    let (desk, line) = on_a_line("leader").await;
    let leading = async {
        lead(&desk, 2).await;
        until_asked(&desk, 2).await;
        line.outage(true);
    };
    let (applied, ()) = tokio::join!(apply(&desk, &["0", "1"]), leading);
    assert!(
        applied
            .changes
            .iter()
            .all(|one| one.verdict == Verdict::Change)
    );
    assert_eq!(applied.left_paused, ["0", "1"].map(partition));
    assert!(applied.trouble.is_some());
}

async fn until_asked(desk: &Desk, requests: usize) {
    while desk.seen().await.requests.len() != requests {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

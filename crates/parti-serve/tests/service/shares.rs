//! Who gets what: the tables and the scenarios of the virtual-partitioning proposal.

use std::collections::BTreeSet;

use serde_json::json;

use crate::client::{Events, PATIENCE};
use crate::scene::{Consumer, Held, Manner, Scene, settings};
use parti_serve::Service;

/// Waits until the consumers, in the order of their ids, hold so many partitions each, and together
/// every one exactly once.
async fn shared(consumers: &[&Consumer], counts: &[usize], total: u32) {
    let mut sorted: Vec<&&Consumer> = consumers.iter().collect();
    sorted.sort_by_key(|consumer| consumer.worker.clone());
    for (consumer, count) in sorted.iter().zip(counts) {
        consumer.holds(|held| held.len() == *count).await;
    }
    let mut all = BTreeSet::new();
    for consumer in &sorted {
        for partition in consumer.held.borrow().keys() {
            assert!(all.insert(partition.clone()), "{partition} has two owners");
        }
    }
    let expected: BTreeSet<String> = (0..total).map(|number| number.to_string()).collect();
    assert_eq!(all, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_to_five_consumers_share_eight_partitions_by_the_table() {
    share_by_the_table(&Scene::new().await).await;
}

/// One after the other joins a new group, and leaves.
pub async fn share_by_the_table(scene: &Scene) {
    scene.make_group(8).await;
    let table: [&[usize]; 5] = [&[8], &[4, 4], &[3, 3, 2], &[2, 2, 2, 2], &[2, 2, 2, 1, 1]];
    let mut consumers = Vec::new();
    for counts in table {
        consumers.push(scene.consumer(Manner::Polite).await);
        let all: Vec<&Consumer> = consumers.iter().collect();
        shared(&all, counts, 8).await;
    }
    // And back, when they leave.
    for counts in table.iter().rev().skip(1) {
        let last = consumers.pop().expect("one");
        assert_eq!(last.leave().await.ok(200)["result"], "ok");
        assert_eq!(last.hears("end").await["why"], "deregistered");
        assert_eq!(last.leave().await.code(), "session_gone");
        let all: Vec<&Consumer> = consumers.iter().collect();
        shared(&all, counts, 8).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joiner_goes_on_where_the_one_before_stopped() {
    let scene = Scene::new().await;
    scene.make_group(8).await;
    scene.produce(8, 20).await;
    let first = scene.consumer(Manner::Polite).await;
    let held = first.holds(|held| held.len() == 8).await;
    let done = |partition: &str| 5 + partition.parse::<u64>().expect("a number");
    for (partition, (epoch, next)) in &held {
        assert_eq!(*next, 0, "a new group starts at the beginning");
        assert_eq!(first.commit(partition, *epoch, done(partition)).await, "ok");
        assert_eq!(
            first.commit(partition, *epoch, done(partition)).await,
            "ok",
            "again"
        );
        assert_eq!(
            first.commit(partition, *epoch, 20).await,
            "refused",
            "past the end"
        );
        assert_eq!(first.commit(partition, epoch + 1, 6).await, "fenced");
    }
    assert_eq!(first.commit("99", 1, 6).await, "fenced");
    let second = scene.consumer(Manner::Polite).await;
    shared(&[&first, &second], &[4, 4], 8).await;
    let moved: Held = second.held.borrow().clone();
    for (partition, (epoch, next)) in &moved {
        let (old, _) = held[partition];
        assert_eq!(
            (*epoch, *next),
            (old + 1, done(partition) + 1),
            "{partition}"
        );
        assert_eq!(
            first.commit(partition, old, done(partition) + 1).await,
            "fenced"
        );
        let record = scene.partition(partition).await;
        assert_eq!(
            record["offset"],
            done(partition),
            "a late commit changes nothing"
        );
        assert_eq!(record["owner"], second.worker.as_str());
    }
    let assigned = second.hears("assigned").await;
    let partition = assigned["partition"].as_str().expect("an id");
    assert_eq!(assigned["checkpoint"], done(partition));
    let messages = format!("/v1/topics/t/partitions/{partition}/messages?from=");
    let messages = scene
        .get(&format!("{messages}{}", assigned["next_offset"]))
        .await
        .ok(200);
    assert_eq!(
        messages["messages"][0]["payload"],
        format!("m{}", done(partition) + 1)
    );
    assert_eq!(
        (&messages["next"], &messages["end"]),
        (&json!(20), &json!(20))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_consumers_share_goes_to_the_others_from_its_checkpoints() {
    let scene = Scene::new().await;
    scene.make_group(8).await;
    scene.produce(8, 50).await;
    let a = scene.consumer(Manner::Polite).await;
    let b = scene.consumer(Manner::Polite).await;
    let c = scene.consumer(Manner::Polite).await;
    shared(&[&a, &b, &c], &[3, 3, 2], 8).await;
    let had = b.held.borrow().clone();
    for (partition, (epoch, _)) in &had {
        assert_eq!(b.commit(partition, *epoch, 40).await, "ok");
    }
    b.crash();
    shared(&[&a, &c], &[4, 4], 8).await;
    for (partition, (epoch, _)) in &had {
        let owner = [&a, &c]
            .into_iter()
            .find(|one| one.held.borrow().contains_key(partition));
        let now = owner.expect("an owner").held.borrow()[partition];
        assert_eq!(
            now,
            (epoch + 1, 41),
            "{partition} goes on after its checkpoint"
        );
    }
    // Back from the dead: its session is over, whatever it says under its old epochs.
    let (partition, (epoch, _)) = had.iter().next().expect("some");
    let late = json!({"commits": [{"partition": partition, "epoch": epoch, "offset": 49}]});
    assert_eq!(b.post("commits", &late).await.code(), "session_gone");
    assert_eq!(b.post("heartbeat", &json!({})).await.code(), "session_gone");
    assert_eq!(scene.partition(partition).await["offset"], 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_release_in_time_is_fenced() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    scene.produce(2, 10).await;
    let stubborn = scene.consumer(Manner::Stubborn).await;
    let held = stubborn.holds(|held| held.len() == 2).await;
    for (partition, (epoch, _)) in &held {
        assert_eq!(stubborn.commit(partition, *epoch, 3).await, "ok");
        let unasked = json!({"partition": partition, "epoch": epoch});
        let reply = stubborn.post("released", &unasked).await.ok(200);
        assert_eq!(reply["result"], "refused", "nobody asked for it");
    }
    let next = scene.consumer(Manner::Polite).await;
    let revoke = stubborn.hears("revoke").await;
    assert!(revoke["deadline_ms"].as_u64().is_some_and(|at| at > 0));
    let lost = stubborn.hears("lost").await;
    let partition = lost["partition"].as_str().expect("an id");
    assert_eq!(lost["partition"], revoke["partition"]);
    let taken = next.holds(|held| held.len() == 1).await;
    let (old, _) = held[partition];
    assert_eq!(taken[partition], (old + 1, 4));
    assert_eq!(stubborn.commit(partition, old, 9).await, "fenced");
    assert_eq!(next.commit(partition, old + 1, 9).await, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_comes_back_in_time_keeps_its_epochs() {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 4).await;
    consumer.crash();
    let path = format!("/v1/groups/g/sessions/{}/events", consumer.session);
    let auth = format!("Bearer {}", consumer.token);
    let headers = [("authorization", auth.as_str())];
    let mut events = crate::client::Events::open(scene.address(), &path, &headers).await;
    let (event, session) = events.next().await.expect("an event");
    assert_eq!(
        (event.as_str(), session["held"].as_array().map(Vec::len)),
        ("session", Some(4))
    );
    for _ in 0..4 {
        let (event, data) = events.next().await.expect("an event");
        assert_eq!(event, "assigned");
        let (epoch, _) = held[data["partition"].as_str().expect("an id")];
        assert_eq!(data["epoch"], epoch, "the same epoch");
    }
    // A second stream takes over, and the first is told.
    let mut second = crate::client::Events::open(scene.address(), &path, &headers).await;
    assert_eq!(second.next().await.expect("an event").0, "session");
    assert_eq!(events.next().await.expect("an event").0, "end");
    assert!(events.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_share_a_group_and_one_stops_gracefully() {
    let scene = Scene::new().await;
    scene.make_group(8).await;
    scene.produce(8, 10).await;
    let other = settings(scene.store.clone(), &scene.folder).await;
    let other = Service::start(other).await.expect("a second instance");
    let here = scene.consumer(Manner::Polite).await;
    here.holds(|held| held.len() == 8).await;
    let there = Consumer::join(other.address(), Manner::Polite).await;
    shared(&[&here, &there], &[4, 4], 8).await;
    let held = there.held.borrow().clone();
    for (partition, (epoch, _)) in &held {
        assert_eq!(there.commit(partition, *epoch, 7).await, "ok");
    }
    other.stop().await;
    assert_eq!(there.hears("end").await["why"], "the service stops");
    assert!(
        there
            .told
            .lock()
            .expect("no panic")
            .iter()
            .any(|(event, _)| event == "revoke")
    );
    let all = here.holds(|held| held.len() == 8).await;
    for (partition, (epoch, _)) in &held {
        assert_eq!(all[partition], (epoch + 1, 8), "nothing done is repeated");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_made_once() {
    let scene = Scene::new().await;
    let group = json!({"group": "g", "topic": "t", "partitions": 8, "strategy": "round_robin"});
    assert_eq!(
        scene.post("/v1/groups", &group).await.ok(201)["strategy"],
        "round_robin"
    );
    scene.post("/v1/groups", &group).await.ok(200);
    for other in [
        json!({"group": "g", "topic": "t", "partitions": 9, "strategy": "round_robin"}),
        json!({"group": "g", "topic": "t", "partitions": 8}),
        json!({"group": "g", "topic": "u", "partitions": 8, "strategy": "round_robin"}),
    ] {
        assert_eq!(
            scene.post("/v1/groups", &other).await.status,
            409,
            "{other}"
        );
    }
    let groups = scene.get("/v1/groups").await.ok(200);
    assert_eq!(groups["groups"][0]["group"], "g");
    assert_eq!(groups["groups"].as_array().map(Vec::len), Some(1));
    let nobody = json!({"consumer": "x"});
    let unknown = scene.post("/v1/groups/other/sessions", &nobody).await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "not_found")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_opened_anew_says_what_was_committed_meanwhile() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    scene.produce(2, 10).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 2).await;
    let (epoch, _) = held["1"];
    assert_eq!(consumer.commit("1", epoch, 6).await, "ok");
    assert_eq!(consumer.commit("1", epoch, 4).await, "ok", "it came late");
    let path = format!("/v1/groups/g/sessions/{}/events", consumer.session);
    let auth = format!("Bearer {}", consumer.token);
    let headers = [("authorization", auth.as_str())];
    let mut events = Events::open(scene.address(), &path, &headers).await;
    let mut assigned = Vec::new();
    while assigned.len() < 2 {
        let (event, data) = events.next().await.expect("one more event");
        if event == "assigned" {
            assigned.push((data["checkpoint"].clone(), data["next_offset"].clone()));
        }
    }
    assert_eq!(assigned, [(json!(null), json!(0)), (json!(6), json!(7))]);
}

/// It is more than may wait for a slow stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_begins_with_all_that_is_held_however_much_that_is() {
    const MANY: usize = 1_500;
    let scene = Scene::new().await;
    scene.make_group(MANY as u32).await;
    let consumer = scene.consumer(Manner::Polite).await;
    consumer.holds(|held| held.len() == MANY).await;
    consumer.crash();
    let path = format!("/v1/groups/g/sessions/{}/events", consumer.session);
    let auth = format!("Bearer {}", consumer.token);
    let telling = async {
        let headers = [("authorization", auth.as_str())];
        let mut events = Events::open(scene.address(), &path, &headers).await;
        let (event, about) = events.next().await.expect("the stream begins");
        assert_eq!(event, "session");
        assert_eq!(about["held"].as_array().map(Vec::len), Some(MANY));
        let mut told = BTreeSet::new();
        while told.len() < MANY {
            let (event, data) = events.next().await.expect("the stream goes on");
            assert_eq!(event, "assigned");
            told.insert(data["partition"].to_string());
        }
    };
    // A stream that tells nothing still beats.
    let told = tokio::time::timeout(PATIENCE, telling).await;
    told.expect("all of it is told");
}

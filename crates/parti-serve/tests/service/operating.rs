//! What an operator does over HTTP, and members of other kinds in the same group.

use std::time::Duration;

use parti::core::config::StrategyChoice;
use parti::source::log::Log;
use parti::{Config, HandlerError, Message, StaticPartitions, Worker};
use parti_serve::Service;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::{PATIENCE, send};
use crate::scene::{CONFIG, Manner, Scene, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_move_and_plans_tell() {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    scene.produce(4, 10).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 4).await;
    let (epoch, _) = held["1"];
    assert_eq!(consumer.commit("1", epoch, 7).await, "ok");
    let path = "/v1/groups/g/checkpoints";
    let reset = |extra: Value| {
        let mut body = json!({"partitions": ["1"], "to": {"offset": 3}, "why": "a test"});
        for (name, value) in extra.as_object().expect("fields") {
            body[name] = value.clone();
        }
        body
    };
    let dry = scene
        .post(path, &reset(json!({"dry_run": true})))
        .await
        .ok(200);
    let change = &dry["changes"][0];
    assert_eq!(
        (&change["partition"], &change["done"]),
        (&json!("1"), &json!(false))
    );
    assert!(
        change["note"]
            .as_str()
            .is_some_and(|note| note.contains(&consumer.worker))
    );
    assert_eq!(scene.post(path, &reset(json!({}))).await.code(), "conflict");
    let beyond = scene
        .post(path, &reset(json!({"to": {"offset": 11}})))
        .await;
    assert_eq!(
        (beyond.status, beyond.code().as_str()),
        (416, "offset_out_of_range")
    );
    for wrong in [
        json!({"to": "nowhere"}),
        json!({"partitions": ["a b"]}),
        json!({"partitions": 7}),
    ] {
        assert_eq!(
            scene.post(path, &reset(wrong.clone())).await.status,
            400,
            "{wrong}"
        );
    }
    let stranger = reset(json!({"partitions": ["9"]}));
    assert_eq!(scene.post(path, &stranger).await.status, 404);
    let forced = scene
        .post(path, &reset(json!({"force": true})))
        .await
        .ok(200);
    assert_eq!(forced["changes"][0]["done"], true);
    assert_eq!(forced["changes"][0]["to"], 3);
    assert_eq!(
        forced["changes"][0]["note"],
        json!(null),
        "its owner let go"
    );
    // It gets it again at the new place without committing anything.
    let again = consumer
        .holds(|held| held.get("1").is_some_and(|(new, _)| *new > epoch))
        .await;
    assert_eq!(again["1"].1, 3);
    assert_eq!(consumer.commit("1", epoch, 8).await, "fenced");
    assert_eq!(scene.partition("1").await["paused"], false);
    assert_eq!(consumer.commit("1", epoch, 9).await, "fenced");

    let what_if = json!({"add": 1, "strategies": ["fair_share"]});
    let outcomes = scene.post("/v1/groups/g/plan", &what_if).await.ok(200);
    assert_eq!(outcomes.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&outcomes[0]["strategy"], &outcomes[0]["moved"]),
        (&json!("fair_share"), &json!(2))
    );
    let nobody = json!({"remove": ["worker-77"]});
    assert_eq!(scene.post("/v1/groups/g/plan", &nobody).await.status, 400);
    let events = scene.get("/v1/groups/g/events?limit=1000").await.ok(200);
    let events = events["events"].as_array().expect("a list").clone();
    assert!(events.is_sorted_by_key(|event| event["n"].as_u64()));
    let tells = |event: &Value| {
        event["text"]
            .as_str()
            .is_some_and(|text| text.contains("a test"))
    };
    assert!(events.iter().any(tells), "{events:?}");
    assert_eq!(scene.get("/v1/groups/none/events").await.status, 404);
    // Who lists again, and who does not, is for those who can see it: the registry's own tests.
    scene.post("/v1/groups/g/refresh", &json!({})).await.ok(200);
    let nobody = scene.post("/v1/groups/none/refresh", &json!({})).await;
    assert_eq!(nobody.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_done_when_they_are_answered() {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    let path = "/v1/groups/g/requests";
    let drain = json!({"request": {"kind": "drain", "worker": "worker-0"}, "why": "a test"});
    assert_eq!(
        scene.post(path, &drain).await.code(),
        "conflict",
        "there is nobody"
    );
    let first = scene.consumer(Manner::Polite).await;
    first.holds(|held| held.len() == 4).await;
    let second = scene.consumer(Manner::Polite).await;
    second.holds(|held| held.len() == 2).await;
    let drained = scene.post(path, &drain).await.ok(200);
    assert_eq!(drained["outcome"], "done");
    let (there, _) = if first.worker == "worker-0" {
        (&second, &first)
    } else {
        (&first, &second)
    };
    there.holds(|held| held.len() == 4).await;
    let pause = json!({"request": {"kind": "pause", "partition": "2"}});
    scene.post(path, &pause).await.ok(200);
    there.holds(|held| held.len() == 3).await;
    assert_eq!(scene.partition("2").await["paused"], true);
    for wrong in [
        json!({"kind": "explode"}),
        json!("rebalance"),
        json!({"kind": "move"}),
    ] {
        let wrong = json!({ "request": wrong });
        assert_eq!(scene.post(path, &wrong).await.status, 400, "{wrong}");
    }
    let nobody = json!({"request": {"kind": "drain", "worker": "worker-77"}});
    assert_eq!(scene.post(path, &nobody).await.code(), "conflict");
    // What cannot be a worker is refused before anybody writes it down.
    let markup = json!({"request": {"kind": "drain", "worker": "<b>"}});
    let refused = scene.post(path, &markup).await;
    assert_eq!(refused.code(), "conflict", "{refused:?}");
    assert!(refused.body.contains("cannot be a worker"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_named_with_what_could() {
    let scene = Scene::new().await;
    let refused = scene
        .post("/v1/groups", &json!(["sarr", "ts", 8, null]))
        .await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(
        refused.body.contains("an object with named fields"),
        "{refused:?}"
    );
    assert_eq!(scene.get("/v1/groups/sarr").await.status, 404);
    scene.make_group(4).await;
    scene.produce(4, 2).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 4).await;
    let (epoch, _) = held["3"];
    let refused = consumer
        .post("commits", &json!({"commits": [["3", epoch, 1]]}))
        .await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("commits[0]: "), "{refused:?}");
    assert!(
        refused.body.contains("an object with named fields"),
        "{refused:?}"
    );
    let unknown = json!({"commits": [{"partition": "3", "epoch": epoch, "ofset": 1}]});
    let refused = consumer.post("commits", &unknown).await;
    assert!(
        refused.body.contains("there are: partition, epoch, offset"),
        "{refused:?}"
    );
    let requests = "/v1/groups/g/requests";
    for life in [0, 1_000_000] {
        let evict = json!({"kind": "evict", "worker": consumer.worker, "incarnation": life});
        let refused = scene.post(requests, &json!({"request": evict})).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (409, "conflict"),
            "{life}"
        );
    }
    let list = json!({"request": ["drain", consumer.worker]});
    assert_eq!(scene.post(requests, &list).await.status, 400);
    for to in [
        json!({"offset": 5, "time_ms": 1}),
        json!({}),
        json!(["offset", 5]),
        json!("newest"),
        json!({"offset": -1}),
        json!({"offset": 1.5}),
        json!(7),
    ] {
        let refused = scene
            .post("/v1/groups/g/checkpoints", &json!({"to": to}))
            .await;
        assert_eq!(refused.status, 400, "{refused:?}");
        for part in ["to: ", "time_ms", "earliest", "is no place"] {
            assert!(refused.body.contains(part), "{part}: {refused:?}");
        }
    }
}

/// Whoever listens to nothing hears it from its next request, at any instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_evicted_can_tell() {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    let leader = scene.consumer(Manner::Polite).await;
    leader.holds(|held| held.len() == 4).await;
    let other = settings(scene.store.clone(), &scene.folder).await;
    let other = Service::start(other).await.expect("a second instance");
    for (stay_away, here, elsewhere) in [
        (false, "evicted", "evicted"),
        // Only the instance that held it knows that it is to stay away.
        (true, "dismissed", "evicted"),
    ] {
        let registered = scene
            .post("/v1/groups/g/sessions", &json!({"consumer": "silent"}))
            .await
            .ok(201);
        let text = |name: &str| registered[name].as_str().expect("text").to_owned();
        let (worker, auth) = (text("worker"), format!("Bearer {}", text("token")));
        let session = text("session");
        let (_, incarnation) = session.rsplit_once('.').expect("a life");
        let incarnation: u64 = incarnation.parse().expect("a number");
        let evict = json!({"request": {
            "kind": "evict", "worker": worker, "incarnation": incarnation, "stay_away": stay_away,
        }});
        scene.post("/v1/groups/g/requests", &evict).await.ok(200);
        let path = format!("/v1/groups/g/sessions/{session}/heartbeat");
        let headers = [("authorization", auth.as_str())];
        for (address, code) in [(scene.address(), here), (other.address(), elsewhere)] {
            let over = async {
                loop {
                    let reply = send(address, "POST", &path, &headers, None).await;
                    if reply.status == 410 {
                        return reply;
                    }
                    // Until it is known why it ends.
                    assert!([200, 421, 503].contains(&reply.status), "{reply:?}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            let reply = tokio::time::timeout(PATIENCE, over).await.expect("in time");
            assert_eq!(reply.code(), code, "{reply:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rust_worker_shares_the_group_and_takes_over() {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    scene.produce(4, 10).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 4).await;
    for (partition, (epoch, _)) in &held {
        assert_eq!(consumer.commit(partition, *epoch, 5).await, "ok");
    }
    let log = Log::open(scene.folder.path().join("log"))
        .await
        .expect("the log");
    let topic = log.topic("t").await.expect("the topic");
    let config = Config {
        strategy: StrategyChoice::FairShare,
        ..Config::from_yaml(CONFIG).expect("settings")
    };
    let (tell, mut handled) = mpsc::unbounded_channel();
    let partitions = StaticPartitions::numbered(4);
    let worker = Worker::builder("g", scene.store.clone(), topic, partitions)
        .config(config)
        .start(move |message: Message| {
            let tell = tell.clone();
            async move {
                let _ = tell.send((message.partition.to_string(), message.offset.0));
                Ok::<(), HandlerError>(())
            }
        })
        .await
        .expect("a worker");
    consumer.holds(|held| held.len() == 2).await;
    consumer.crash();
    let mut seen: Vec<(String, u64)> = Vec::new();
    while seen.len() < 16 {
        let next = tokio::time::timeout(PATIENCE, handled.recv()).await;
        seen.push(next.expect("in time").expect("a message"));
    }
    seen.sort();
    let expected = (0..4).flat_map(|number: u32| (6..10).map(move |at| (number.to_string(), at)));
    assert_eq!(
        seen,
        expected.collect::<Vec<_>>(),
        "all that is left, and nothing twice"
    );
    worker.stop().await.expect("a goodbye");
}

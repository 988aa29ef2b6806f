//! A group is about one topic of one log: whoever works on another one is refused before it commits
//! what nobody has seen.

use std::net::SocketAddr;

use parti::core::ids::Nonce;
use parti::core::io::{Expect, Write, WriteOutcome};
use parti::core::key::Key;
use parti::core::record::{GroupRecord, Record};
use parti::store::GroupStore;
use parti_serve::Service;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::client::{Events, Reply, send};
use crate::clients::{Process, committed};
use crate::scene::{Manner, Scene, settings};

/// What is said of a log that is another one.
const REPLACED: &str = "not the one that this group began with";

/// A second instance over the same store, with another log that has a topic of the same name, and
/// messages in it.
async fn with_another_log(scene: &Scene) -> (Service, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let other = settings(scene.store.clone(), &folder).await;
    let other = Service::start(other).await.expect("a second instance");
    let group = json!({"group": "h", "topic": "t", "partitions": 2});
    post(&other, "/v1/groups", &group).await.ok(201);
    let wrong = |partition: usize| json!({"partition": partition.to_string(), "payload": "wrong"});
    let wrong: Vec<_> = (0..20).map(|number| wrong(number % 2)).collect();
    let wrong = json!({ "messages": wrong });
    post(&other, "/v1/topics/t/messages", &wrong).await.ok(200);
    (other, folder)
}

async fn post(service: &Service, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    send(service.address(), "POST", path, &[], Some(&body)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_groups_topic_is_told_and_another_one_is_refused() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    let path = "/v1/groups/g/sessions";
    let clicks = json!({"consumer": "x", "topic": "clicks"});
    let refused = scene.post(path, &clicks).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "conflict"));
    for part in ["topic: ", "\\\"t\\\"", "\\\"clicks\\\""] {
        assert!(refused.body.contains(part), "{part}: {refused:?}");
    }
    let group = scene.get("/v1/groups/g").await.ok(200);
    assert_eq!(group["workers"].as_array().map(Vec::len), Some(0));
    for body in [
        json!({"consumer": "x"}),
        json!({"consumer": "x", "topic": "t"}),
    ] {
        let opened = scene.post(path, &body).await.ok(201);
        assert_eq!(opened["topic"], "t");
        let text = |name: &str| opened[name].as_str().expect("text").to_owned();
        let auth = format!("Bearer {}", text("token"));
        let headers = [("authorization", auth.as_str())];
        let stream = format!("{path}/{}/events", text("session"));
        let mut events = Events::open(scene.address(), &stream, &headers).await;
        let (event, data) = events.next().await.expect("the first event");
        assert_eq!((event.as_str(), &data["topic"]), ("session", &json!("t")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_for_a_group_is_of_its_topic_and_its_log() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    scene.produce(2, 3).await;
    let other_topic = json!({"group": "c", "topic": "clicks", "partitions": 2});
    scene.post("/v1/groups", &other_topic).await.ok(201);
    let fetch = "/v1/topics/t/partitions/0/messages?group=";
    for _ in 0..3 {
        let found = scene.get(&format!("{fetch}g")).await.ok(200);
        assert_eq!(found["end"], 3);
    }
    let clicks = "/v1/topics/clicks/partitions/0/messages?group=g";
    let refused = scene.get(clicks).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "conflict"));
    assert_eq!(scene.get(&format!("{fetch}none")).await.status, 404);
    // Another instance that is as it should be answers the same; one with another log does not.
    let (other, _folder) = with_another_log(&scene).await;
    let get = async |path: &str| send(other.address(), "GET", path, &[], None).await;
    let ready = get("/readyz").await;
    assert_eq!(
        ready.status, 200,
        "nobody of that group has asked: {ready:?}"
    );
    for _ in 0..3 {
        let refused = get(&format!("{fetch}g")).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "replaced"));
        assert!(
            refused
                .body
                .contains("not the one that this group began with")
        );
    }
    let session = json!({"consumer": "x"});
    let refused = post(&other, "/v1/groups/g/sessions", &session).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "replaced"));
    let not_ready = get("/readyz").await;
    assert_eq!(
        (not_ready.status, not_ready.code().as_str()),
        (503, "not_ready")
    );
    assert!(
        not_ready
            .body
            .contains("not the one that its groups began with")
    );
    get(&format!("{fetch}h")).await.ok(200);
    assert_eq!(get("/readyz").await.status, 200, "some group is at home");
    // Who makes the group there hears what is different: not the name.
    let again = json!({"group": "g", "topic": "t", "partitions": 2});
    let refused = post(&other, "/v1/groups", &again).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "conflict"));
    for part in ["was made anew", "parti checkpoint reset --all"] {
        assert!(refused.body.contains(part), "{part}: {refused:?}");
    }
    let clicks = json!({"group": "g", "topic": "clicks", "partitions": 2});
    let refused = scene.post("/v1/groups", &clicks).await;
    assert!(refused.body.contains("is about"), "{refused:?}");
    assert_eq!(scene.get("/readyz").await.status, 200);
    // Whoever means it is told what it means before.
    let reset = json!({"to": "earliest", "dry_run": true});
    let would = post(&other, "/v1/groups/g/checkpoints", &reset)
        .await
        .ok(200);
    assert_eq!(would["takes_over"], true, "{would}");
    let would = scene.post("/v1/groups/g/checkpoints", &reset).await.ok(200);
    assert_eq!(would["takes_over"], false, "{would}");
    let reset = json!({"to": "earliest"});
    let done = post(&other, "/v1/groups/g/checkpoints", &reset)
        .await
        .ok(200);
    assert_eq!(done["takes_over"], true, "{done}");
    let again = post(&other, "/v1/groups/g/checkpoints", &reset)
        .await
        .ok(200);
    assert_eq!(again["takes_over"], false, "it is its own by now: {again}");
}

/// Writes a group's own record by hand.
async fn write_group(scene: &Scene, name: &str, record: Record) {
    let store = GroupStore::new(scene.store.clone(), name).expect("a name");
    let write = Write {
        key: Key::Group,
        expect: Expect::Absent,
        value: Some(record),
    };
    let outcome = store.write(&[write]).await.pop();
    assert!(
        matches!(outcome, Some(WriteOutcome::Done(_))),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_for_a_group_of_another_source_is_the_callers_mistake() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    let elsewhere = GroupRecord {
        store: Nonce(1),
        stream: 7.into(),
        coordination: "leader".into(),
        strategy: None,
        nonce: Nonce(1),
    };
    write_group(&scene, "away", Record::Group(elsewhere.into())).await;
    let fetch = "/v1/topics/t/partitions/0/messages?group=away";
    for _ in 0..2 {
        let refused = scene.get(fetch).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, "conflict"));
    }
    assert_eq!(scene.get("/readyz").await.status, 200, "it can do its work");
}

/// A client that works on another topic than its group ends at once, and has handled nothing.
async fn refuse_another_topic(program: &str, example: &str) {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    let group = json!({"group": "c", "topic": "clicks", "partitions": 2});
    scene.post("/v1/groups", &group).await.ok(201);
    let message = json!({"messages": [{"payload": "a click"}]});
    scene
        .post("/v1/topics/clicks/messages", &message)
        .await
        .ok(200);
    for topic in ["clicks", "nowhere"] {
        let url = scene.service.url();
        let (said, told) = Process::start_on(&url, program, example, topic)
            .ends()
            .await;
        assert!(said.is_empty(), "{said:?}");
        assert!(told.contains(topic) && told.contains("is about"), "{told}");
    }
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 2).await;
    assert!(held.values().all(|(_, next)| *next == 0), "{held:?}");
}

/// What is no URL is told at once, and not tried for ever.
async fn refuse_a_url_without_scheme(program: &str, example: &str) {
    let process = Process::start_on("127.0.0.1:7070", program, example, "t");
    let (said, told) = process.ends().await;
    assert!(said.is_empty(), "{said:?}");
    assert!(
        told.contains("127.0.0.1:7070") && told.contains("no URL"),
        "{told}"
    );
}

/// A way to an instance that can be cut, while the instance goes on.
struct Way {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    _leading: AbortOnDropHandle<()>,
}

impl Way {
    async fn to(instance: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let cut = watch::Sender::new(false);
        let cuts = cut.subscribe();
        let leading = tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                if *cuts.borrow_and_update() {
                    continue;
                }
                tokio::spawn(async move {
                    let mut to = TcpStream::connect(instance).await.expect("a connection");
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = cuts.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self {
            address,
            cut,
            _leading: AbortOnDropHandle::new(leading),
        }
    }
}

/// The way to the session's instance is cut, and the other instance has another log: nothing of that
/// is handled, though the session lives, and goes on once the way is there again.
async fn handle_nothing_of_another_log(program: &str, example: &str) {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    scene.produce(2, 5).await;
    let (other, _folder) = with_another_log(&scene).await;
    let way = Way::to(scene.address()).await;
    let urls = format!("http://{},{}", way.address, other.url());
    let mut process = Process::start_at(&urls, program, example);
    process.says("message", 10).await;
    committed(&scene, 2, 5).await;
    way.cut.send_replace(true);
    // Long enough for fetches to be tried again, and short enough for the lease to last.
    process.says_trouble_times("listen", REPLACED, 4).await;
    way.cut.send_replace(false);
    scene.produce(2, 1).await;
    let messages = process.says("message", 12).await;
    let wrong = |one: &&Value| one["payload"] == "wrong";
    assert_eq!(messages.iter().find(wrong), None, "{messages:?}");
    for partition in ["0", "1"] {
        assert_eq!(process.handled(partition), [0, 1, 2, 3, 4, 5]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_refuses_another_topic() {
    refuse_another_topic("python3", "python/example.py").await;
    refuse_a_url_without_scheme("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_refuses_another_topic() {
    refuse_another_topic("node", "node/example.mjs").await;
    refuse_a_url_without_scheme("node", "node/example.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_handles_nothing_of_another_log() {
    handle_nothing_of_another_log("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_handles_nothing_of_another_log() {
    handle_nothing_of_another_log("node", "node/example.mjs").await;
}

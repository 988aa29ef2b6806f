//! Groups without a log: a topic that is only a name, and consumers that read their own queue.

use parti::StartPosition;
use parti_serve::{Service, Settings};
use serde_json::{Value, json};

use crate::client::{Events, Reply, send};
use crate::scene::{Consumer, Manner, Scene, settings};

/// A service without a log.
async fn without_log() -> Scene {
    Scene::with(|settings| settings.source = None).await
}

/// Another instance over the same store.
async fn another(scene: &Scene, change: impl FnOnce(&mut Settings)) -> Service {
    let mut other = settings(scene.store.clone(), &scene.folder).await;
    change(&mut other);
    Service::start(other).await.expect("another instance")
}

async fn post(service: &Service, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    send(service.address(), "POST", path, &[], Some(&body)).await
}

#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str, why: &str) {
    let found = (reply.status, reply.code());
    assert_eq!(found, (status, code.to_owned()), "{reply:?}");
    assert!(reply.body.contains(why), "{why}: {reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_a_log_is_assigned_commits_and_fences() {
    let scene = without_log().await;
    let group = json!({"group": "g", "topic": "orders", "partitions": 4});
    let made = scene.post("/v1/groups", &group).await.ok(201);
    assert_eq!(made["log"], false);
    scene.post("/v1/groups", &group).await.ok(200);
    let more = json!({"group": "g", "topic": "orders", "partitions": 5});
    refused(
        &scene.post("/v1/groups", &more).await,
        409,
        "conflict",
        "4 partitions",
    );
    for (wrong, remedy) in [
        (" ", "give it a name"),
        ("a\u{200b}", "leave it out"),
        ("", "give it a name"),
        (&"x".repeat(300), "give it a shorter name"),
    ] {
        let wrong = json!({"group": "h", "topic": wrong, "partitions": 4});
        let reply = scene.post("/v1/groups", &wrong).await;
        refused(&reply, 400, "bad_request", "topic");
        assert!(reply.body.contains(remedy), "{reply:?}");
    }
    let nameless = json!({"group": "", "topic": "orders", "partitions": 4});
    let reply = scene.post("/v1/groups", &nameless).await;
    refused(&reply, 400, "bad_request", "give it a name of 1 to 64");
    assert_eq!(scene.get("/v1/groups/h").await.status, 404);

    let mut mover = scene.consumer(Manner::Polite).await;
    let held = mover.holds(|held| held.len() == 4).await;
    assert!(held.values().all(|(_, next)| *next == 0), "{held:?}");
    let (epoch, _) = held["2"];
    // Whatever it has read, wherever that is.
    assert_eq!(mover.commit("2", epoch, 1_000_000).await, "ok");
    assert_eq!(mover.commit("2", epoch + 1, 1_000_001).await, "fenced");
    assert_eq!(scene.partition("2").await["offset"], 1_000_000);
    // No file, store or language could carry it.
    let commit = json!({"partition": "2", "epoch": epoch, "offset": i64::MAX});
    let commits = json!({ "commits": [commit] });
    let told = mover.post("commits", &commits).await.ok(200)["results"][0].clone();
    assert_eq!(told["result"], "refused");
    let why = told["why"].as_str().expect("a reason");
    for part in ["offset: 9223372036854775807", "up to 9223372036854775806"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(scene.partition("2").await["offset"], 1_000_000);

    // Somebody takes over; what comes late counts no more.
    let other = another(&scene, |settings| settings.source = None).await;
    mover.crash();
    let path = format!("/v1/groups/g/sessions/{}/events", mover.session);
    let auth = format!("Bearer {}", mover.token);
    let headers = [("authorization", auth.as_str())];
    let mut events = Events::open(other.address(), &path, &headers).await;
    let (event, session) = events.next().await.expect("an event");
    assert_eq!(
        (event.as_str(), &session["topic"]),
        ("session", &json!("orders"))
    );
    loop {
        let (event, data) = events.next().await.expect("the stream goes on");
        if event == "assigned" && data["partition"] == "2" {
            assert_eq!(data["epoch"], epoch + 1);
            assert_eq!(data["next_offset"], 1_000_001);
            break;
        }
    }
    mover.address = other.address();
    assert_eq!(mover.commit("2", epoch, 1_000_002).await, "fenced");
    assert_eq!(mover.commit("2", epoch + 1, 1_000_001).await, "ok");
    assert_eq!(scene.partition("2").await["offset"], 1_000_001);

    let reset = json!({"to": "earliest", "dry_run": true});
    let reset = scene.post("/v1/groups/g/checkpoints", &reset).await;
    refused(&reset, 409, "conflict", "made without a log");

    // Without a log nothing is produced or fetched.
    let fetch = "/v1/topics/orders/partitions/0/messages";
    let message = json!({"messages": [{"payload": "x"}]});
    let remedy = "--source log:FOLDER";
    let produced = scene.post("/v1/topics/orders/messages", &message).await;
    refused(&produced, 409, "conflict", remedy);
    refused(&scene.get(fetch).await, 409, "conflict", remedy);
    assert_eq!(scene.get("/readyz").await.status, 200);
}

/// What a group was made with decides, not what an instance has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_goes_on_with_what_it_was_made_with() {
    let scene = without_log().await;
    let log = another(&scene, |_| {}).await;
    let bare = json!({"group": "g", "topic": "t", "partitions": 2});
    scene.post("/v1/groups", &bare).await.ok(201);
    let logged = json!({"group": "l", "topic": "t", "partitions": 2});
    assert_eq!(post(&log, "/v1/groups", &logged).await.ok(201)["log"], true);

    // Where there is a log with a topic of that very name, it is not this group's.
    assert_eq!(post(&log, "/v1/groups", &bare).await.ok(200)["log"], false);
    let consumer = Consumer::join(log.address(), Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 2).await;
    assert_eq!(consumer.commit("0", held["0"].0, 77).await, "ok");
    let fetch = "/v1/topics/t/partitions/0/messages?group=";
    let get = async |path: &str| send(log.address(), "GET", path, &[], None).await;
    let fetched = get(&format!("{fetch}g")).await;
    refused(&fetched, 409, "conflict", "made without a log");
    get(&format!("{fetch}l")).await.ok(200);
    let shown = get("/v1/groups/g").await.ok(200);
    assert_eq!(shown["partitions"][0]["lag"], json!(null));

    // And where there is none, nobody goes on with a group that has one.
    let consumer = json!({"consumer": "x"});
    let session = scene.post("/v1/groups/l/sessions", &consumer).await;
    refused(&session, 503, "replaced", "--source log:FOLDER");
    refused(
        &scene.post("/v1/groups", &logged).await,
        409,
        "conflict",
        "--source log:FOLDER",
    );
    let shown = scene.get("/v1/groups/l").await.ok(200);
    assert_eq!(shown["workers"].as_array().map(Vec::len), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_log_nobody_knows_where_its_end_is() {
    let scene = Scene::with(|settings| {
        settings.source = None;
        settings.config.processing.start = StartPosition::Latest;
    })
    .await;
    scene.make_group(2).await;
    let consumer = json!({"consumer": "x"});
    let session = scene.post("/v1/groups/g/sessions", &consumer).await;
    refused(&session, 409, "conflict", "processing.start");
}

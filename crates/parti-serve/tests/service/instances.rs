//! Several instances over one store: a session goes on wherever its consumer opens the stream.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use parti::store::faulty::Faulty;
use parti::store::{Entry, Error, Revision, Scope, Store, Watch, Write};
use parti::{Config, async_trait};
use parti_serve::Service;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::client::{Events, PATIENCE, send};
use crate::clients::Process;
use crate::scene::{CONFIG, Consumer, Held, Manner, Scene, settings};

/// A store that takes nothing from one life of a worker: it learns nothing by its writes.
#[derive(Debug)]
struct Withholding {
    inner: Arc<dyn Store>,
    life: Mutex<Option<u64>>,
}

#[async_trait]
impl Store for Withholding {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.inner.read(key).await
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        self.inner.list(scope).await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        let life = *self.life.lock().expect("no panic");
        let is_of_it = |write: &Write| {
            let value = write.value.as_deref().unwrap_or_default();
            let record: Value = serde_json::from_slice(value).unwrap_or_default();
            life.is_some_and(|life| record["incarnation"] == life)
        };
        if batch.iter().any(is_of_it) {
            let withheld = |_| Err(Error::unavailable("withheld"));
            return batch.iter().map(withheld).collect();
        }
        self.inner.write(batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        self.inner.watch(scope)
    }
}

/// A second instance.
async fn second(scene: &Scene) -> Service {
    let other = settings(scene.store.clone(), &scene.folder).await;
    Service::start(other).await.expect("a second instance")
}

/// A store that keeps whoever reads a worker's record next waiting.
#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Store>,
    shut: AtomicBool,
    waits: Semaphore,
    open: Semaphore,
}

#[async_trait]
impl Store for Gated {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        let found = self.inner.read(key).await;
        if key.contains("worker-0") && self.shut.swap(false, Ordering::SeqCst) {
            self.waits.add_permits(1);
            self.open.acquire().await.expect("open for ever").forget();
        }
        found
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        self.inner.list(scope).await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        self.inner.write(batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        self.inner.watch(scope)
    }
}

/// An instance whose store can be cut off, and another one that keeps it.
async fn severed() -> (Scene, Arc<Faulty>, Service) {
    let mut link = None;
    let scene = Scene::with(|settings| {
        let faulty = Arc::new(Faulty::new(settings.store.clone(), 1));
        link = Some(faulty.clone());
        settings.store = faulty;
    })
    .await;
    let other = second(&scene).await;
    (scene, link.expect("a link"), other)
}

/// The next events of a stream that assign partitions.
pub async fn assigned(events: &mut Events, count: usize) -> Held {
    let mut held = BTreeMap::new();
    while held.len() < count {
        let (event, data) = events.next().await.expect("the stream goes on");
        if event == "assigned" {
            let number = |name: &str| data[name].as_u64().expect("a number");
            let partition = data["partition"].as_str().expect("an id").to_owned();
            held.insert(partition, (number("epoch"), number("next_offset")));
        }
    }
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_where_its_consumer_opens_the_stream() {
    let scene = Scene::new().await;
    scene.make_group(8).await;
    scene.produce(8, 10).await;
    let other = second(&scene).await;
    let neighbour = scene.consumer(Manner::Polite).await;
    neighbour.holds(|held| held.len() == 8).await;
    let mut mover = Consumer::join(other.address(), Manner::Polite).await;
    let had = mover.holds(|held| held.len() == 4).await;
    let neighbours = neighbour.holds(|held| held.len() == 4).await;
    for (partition, (epoch, _)) in &had {
        assert_eq!(mover.commit(partition, *epoch, 6).await, "ok");
        // What is answered is stored, whatever becomes of who answered.
        assert_eq!(scene.partition(partition).await["offset"], 6);
    }

    // A request alone moves nothing: it is told where it belongs.
    let old = mover.address;
    mover.address = scene.address();
    let reply = mover.post("heartbeat", &json!({})).await;
    assert_eq!((reply.status, reply.code().as_str()), (421, "not_here"));
    mover.crash();

    // The stream does. Everything comes along, under the next epoch, and from nobody else.
    let path = format!("/v1/groups/g/sessions/{}/events", mover.session);
    let auth = format!("Bearer {}", mover.token);
    let headers = [("authorization", auth.as_str())];
    let mut events = Events::open(scene.address(), &path, &headers).await;
    let has = assigned(&mut events, 4).await;
    let expected: Held = had
        .iter()
        .map(|(partition, (epoch, _))| (partition.clone(), (epoch + 1, 7)))
        .collect();
    assert_eq!(has, expected);
    assert_eq!(
        *neighbour.held.borrow(),
        neighbours,
        "others notice nothing"
    );
    let (partition, (epoch, _)) = has.first_key_value().expect("some");
    assert_eq!(mover.commit(partition, epoch - 1, 7).await, "fenced");
    assert_eq!(mover.commit(partition, *epoch, 7).await, "ok");
    assert_eq!(
        scene.partition(partition).await["owner"],
        mover.worker.as_str()
    );

    // The old instance has nothing to say any more.
    mover.address = old;
    let late = json!({"commits": [{"partition": partition, "epoch": epoch - 1, "offset": 9}]});
    let reply = mover.post("commits", &late).await;
    assert!([410, 421].contains(&reply.status) || reply.json()["results"][0]["result"] == "fenced");
    assert_eq!(scene.partition(partition).await["offset"], 7);

    // Who leaves does so where the stream is, and that is final everywhere.
    let reply = mover.leave().await;
    assert_eq!((reply.status, reply.code().as_str()), (421, "not_here"));
    mover.address = scene.address();
    assert_eq!(mover.leave().await.ok(200)["result"], "ok");
    neighbour.holds(|held| held.len() == 8).await;
    for address in [old, scene.address()] {
        let reply = send(address, "GET", &path, &headers, None).await;
        assert_eq!((reply.status, reply.code().as_str()), (410, "session_gone"));
    }
}

/// The instance that it comes back to has not noticed that it was away: what it would tell is old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_comes_back_goes_on_after_what_it_did_elsewhere() {
    // Nobody is taken for silent, however long this takes.
    let patient = CONFIG.replace("heartbeat_ttl: 5s", "heartbeat_ttl: 600s");
    let patient = patient.replace("worker_id_ttl: 6s", "worker_id_ttl: 601s");
    let patient = Config::from_yaml(&patient).expect("settings");
    let mut withholding = None;
    let scene = Scene::with(|settings| {
        settings.config = patient.clone();
        let store = Arc::new(Withholding {
            inner: settings.store.clone(),
            life: Mutex::default(),
        });
        withholding = Some(store.clone());
        settings.store = store;
    })
    .await;
    let withholding = withholding.expect("a store");
    let mut other = settings(scene.store.clone(), &scene.folder).await;
    other.config = patient;
    let other = Service::start(other).await.expect("a second instance");
    scene.make_group(4).await;
    scene.produce(4, 10).await;
    let neighbour = Consumer::join(other.address(), Manner::Polite).await;
    neighbour.holds(|held| held.len() == 4).await;
    let mut mover = scene.consumer(Manner::Polite).await;
    let had = mover.holds(|held| held.len() == 2).await;
    for (partition, (epoch, _)) in &had {
        assert_eq!(mover.commit(partition, *epoch, 3).await, "ok");
    }
    let (_, life) = mover.session.rsplit_once('.').expect("a life");
    let life = life.parse().expect("a number");
    *withholding.life.lock().expect("no panic") = Some(life);
    mover.crash();

    let path = format!("/v1/groups/g/sessions/{}/events", mover.session);
    let auth = format!("Bearer {}", mover.token);
    let headers = [("authorization", auth.as_str())];
    let mut events = Events::open(other.address(), &path, &headers).await;
    let away = assigned(&mut events, 2).await;
    mover.address = other.address();
    for (partition, (epoch, next)) in &away {
        assert_eq!((*epoch, *next), (had[partition].0 + 1, 4), "{partition}");
        assert_eq!(mover.commit(partition, *epoch, 6).await, "ok");
    }
    drop(events);

    let mut events = Events::open(scene.address(), &path, &headers).await;
    let back = assigned(&mut events, 2).await;
    mover.address = scene.address();
    for (partition, (epoch, next)) in &back {
        assert_eq!((*epoch, *next), (had[partition].0 + 2, 7), "{partition}");
        assert_eq!(mover.commit(partition, *epoch, 8).await, "ok");
    }
    // What was left behind here notices, and takes nothing along.
    *withholding.life.lock().expect("no panic") = None;
    let path = "/v1/groups/g/sessions";
    let listed = scene.get(path).await.ok(200);
    assert_eq!(listed["sessions"][0]["session"], mover.session.as_str());
    mover.post("heartbeat", &json!({})).await.ok(200);
    assert_eq!(mover.leave().await.ok(200)["result"], "ok");
    neighbour.holds(|held| held.len() == 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_goes_on_with_a_session_without_its_secret() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let scene = Scene::new().await;
    scene.make_group(2).await;
    let mut full = settings(scene.store.clone(), &scene.folder).await;
    full.limits.sessions = 0;
    let other = Service::start(full).await.expect("a second instance");
    let owner = scene.consumer(Manner::Polite).await;
    let held = owner.holds(|held| held.len() == 2).await;
    let token = URL_SAFE_NO_PAD.decode(&owner.token).expect("base64");
    let token: serde_json::Value = serde_json::from_slice(&token).expect("JSON");
    let path = format!("/v1/groups/g/sessions/{}/events", owner.session);
    let forged = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut token = token.clone();
        change(&mut token);
        let token = URL_SAFE_NO_PAD.encode(token.to_string());
        format!("Bearer {token}")
    };
    let other_secret = forged(&|token| token["s"] = json!(URL_SAFE_NO_PAD.encode([7; 32])));
    let other_group = forged(&|token| token["g"] = json!("h"));
    let other_worker = forged(&|token| token["w"] = json!("somebody"));
    let long_name = forged(&|token| token["n"] = json!("x".repeat(10_000)));
    let own = forged(&|_| {});
    for (auth, status) in [
        // A member begins for the session's own client alone, and here there is no room for one.
        (own.as_str(), 429),
        (other_secret.as_str(), 410),
        (other_group.as_str(), 401),
        (other_worker.as_str(), 401),
        (long_name.as_str(), 401),
        ("Bearer e30", 401),
    ] {
        let headers = [("authorization", auth)];
        let reply = send(other.address(), "GET", &path, &headers, None).await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
    for (partition, (epoch, _)) in &held {
        let record = scene.partition(partition).await;
        assert_eq!(
            (&record["owner"], &record["epoch"]),
            (&json!(owner.worker), &json!(epoch))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_at_once_bring_a_session_over_once() {
    let scene = Scene::new().await;
    scene.make_group(4).await;
    let other = second(&scene).await;
    let mover = Consumer::join(other.address(), Manner::Polite).await;
    let had = mover.holds(|held| held.len() == 4).await;
    mover.crash();
    let path = format!("/v1/groups/g/sessions/{}/heartbeat", mover.session);
    let stream = format!("/v1/groups/g/sessions/{}/events", mover.session);
    let auth = format!("Bearer {}", mover.token);
    let headers = [("authorization", auth.as_str())];
    let opening = (0..8).map(|_| Events::open(scene.address(), &stream, &headers));
    let opened = futures_util::future::join_all(opening).await;
    let came = |one: &&Events| one.head.starts_with("HTTP/1.1 200");
    assert!(opened.iter().filter(came).count() > 0, "one brings it over");
    drop(opened);
    let mut events = Events::open(scene.address(), &stream, &headers).await;
    let has = assigned(&mut events, 4).await;
    for (partition, (epoch, _)) in &has {
        assert_eq!(*epoch, had[partition].0 + 1, "{partition}: once");
    }
    let reply = send(scene.address(), "POST", &path, &headers, None).await;
    reply.ok(200);
}

/// It looked before the other one had brought the session over, and goes on after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_slow_to_open_takes_a_session_as_another_one_brought_it() {
    let mut gated = None;
    let scene = Scene::with(|settings| {
        let store = Arc::new(Gated {
            inner: settings.store.clone(),
            shut: AtomicBool::new(false),
            waits: Semaphore::new(0),
            open: Semaphore::new(0),
        });
        gated = Some(store.clone());
        settings.store = store;
    })
    .await;
    let gated = gated.expect("a gate");
    scene.make_group(4).await;
    let other = second(&scene).await;
    let mover = Consumer::join(other.address(), Manner::Polite).await;
    let had = mover.holds(|held| held.len() == 4).await;
    mover.crash();
    let path = format!("/v1/groups/g/sessions/{}/events", mover.session);
    let auth = format!("Bearer {}", mover.token);
    let headers = [("authorization", auth.as_str())];
    gated.shut.store(true, Ordering::SeqCst);
    let slow = Events::open(scene.address(), &path, &headers);
    let quick = async {
        gated
            .waits
            .acquire()
            .await
            .expect("somebody waits")
            .forget();
        let mut events = Events::open(scene.address(), &path, &headers).await;
        let has = assigned(&mut events, 4).await;
        gated.open.add_permits(1);
        (events, has)
    };
    let (mut slow, (_quick, has)) = tokio::join!(slow, quick);
    assert!(slow.head.starts_with("HTTP/1.1 200"), "{}", slow.head);
    let still = assigned(&mut slow, 4).await;
    for (partition, (epoch, _)) in &has {
        assert_eq!(*epoch, had[partition].0 + 1, "{partition}: once");
        assert_eq!(*epoch, still[partition].0, "{partition}: as it was");
    }
}

/// An open stream would tell its consumer that all is well, while others take over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_its_instance_is_cut_off_and_the_session_goes_on_elsewhere() {
    let (scene, link, other) = severed().await;
    scene.make_group(4).await;
    let body = json!({"consumer": "listens"});
    let opened = scene.post("/v1/groups/g/sessions", &body).await.ok(201);
    let text = |name: &str| opened[name].as_str().expect("text").to_owned();
    let path = format!("/v1/groups/g/sessions/{}/events", text("session"));
    let auth = format!("Bearer {}", text("token"));
    let headers = [("authorization", auth.as_str())];
    let mut events = Events::open(scene.address(), &path, &headers).await;
    let had = assigned(&mut events, 4).await;
    link.outage(true);
    let told = tokio::time::timeout(PATIENCE, events.next()).await;
    assert_eq!(
        told.expect("in time"),
        None,
        "it ends, and the session does not"
    );
    let reply = send(scene.address(), "GET", &path, &headers, None).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"));
    let mut events = Events::open(other.address(), &path, &headers).await;
    let has = assigned(&mut events, 4).await;
    let expected: Held = had
        .iter()
        .map(|(partition, (epoch, next))| (partition.clone(), (epoch + 1, *next)))
        .collect();
    assert_eq!(has, expected);
}

/// A client that knows several instances goes on at another one when its own is cut off.
async fn go_on_elsewhere(program: &str, example: &str) {
    let (scene, link, other) = severed().await;
    scene.make_group(2).await;
    scene.produce(2, 5).await;
    let urls = format!("{},{}", scene.service.url(), other.url());
    let mut process = Process::start_at(&urls, program, example);
    process.says("message", 10).await;
    link.outage(true);
    let assigned = process.says("assigned", 4).await;
    for again in &assigned[2..] {
        let mut before = assigned[..2].iter();
        let before = before.find(|one| one["partition"] == again["partition"]);
        let epoch = |one: &serde_json::Value| one["epoch"].as_u64().expect("an epoch");
        assert_eq!(epoch(again), epoch(before.expect("it had it")) + 1);
    }
    let message = |partition: &str| json!({"partition": partition, "payload": "late"});
    let late = json!({"messages": [message("0"), message("1")]}).to_string();
    let produced = send(
        other.address(),
        "POST",
        "/v1/topics/t/messages",
        &[],
        Some(&late),
    )
    .await;
    produced.ok(200);
    process.says("message", 12).await;
    for partition in ["0", "1"] {
        assert_eq!(process.handled(partition), [0, 1, 2, 3, 4, 5], "each once");
    }
    assert_eq!(process.says("registered", 1).await.len(), 1, "it goes on");
    let trouble = process.says("trouble", 1).await;
    let listening = |one: &&serde_json::Value| one["doing"] == "listen";
    let why = trouble
        .iter()
        .find(listening)
        .expect("it says why it moves");
    let why = why["why"].as_str().expect("a reason");
    assert!(why.contains("does not reach its store"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_goes_on_elsewhere() {
    go_on_elsewhere("python3", "python/example.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_goes_on_elsewhere() {
    go_on_elsewhere("node", "node/example.mjs").await;
}

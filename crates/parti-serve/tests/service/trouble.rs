//! A store or a log that is full, or gone: the service says that it is its own trouble, what to mend,
//! and goes on once that is done.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use parti::async_trait;
use parti::store::{Entry, Error, Memory, Revision, Scope, Store, Watch, Write};
use parti_serve::Service;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::client::{Events, PATIENCE, Reply, request, send};
use crate::scene::{Consumer, Manner, Scene, settings};

/// What a full disk says.
pub const FULL: &str = "no space is left on the disk; make some";

/// How a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Well,
    /// It is read, and takes nothing.
    Full,
    /// It takes progress, and does not say so.
    Mum,
    /// It answers nothing, and takes nothing.
    Away,
}

/// A store that can be in trouble.
#[derive(Debug, Default)]
pub struct Moody {
    inner: Memory,
    mood: watch::Sender<Mood>,
    /// How often it took progress, and did not say so.
    untold: watch::Sender<u64>,
}

impl Moody {
    /// From now on.
    pub fn be(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    fn is(&self, mood: Mood) -> bool {
        *self.mood.borrow() == mood
    }

    /// Waits until it took progress, and did not say so.
    async fn kept_something_to_itself(&self) {
        let mut untold = self.untold.subscribe();
        let waiting = untold.wait_for(|times| *times > 0);
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        waited.expect("in time").expect("the sender lives");
    }

    async fn answer(&self) {
        if self.is(Mood::Away) {
            std::future::pending().await
        }
    }
}

#[async_trait]
impl Store for Moody {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.answer().await;
        self.inner.read(key).await
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        self.answer().await;
        self.inner.list(scope).await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        self.answer().await;
        if self.is(Mood::Full) {
            let full = |_| Err(Error::rejected(FULL));
            return batch.iter().map(full).collect();
        }
        let is_progress = |write: &Write| write.key.starts_with("partitions/");
        let untold = self.is(Mood::Mum) && batch.iter().any(is_progress);
        let outcomes = self.inner.write(batch).await;
        if untold {
            self.untold.send_modify(|times| *times += 1);
            std::future::pending::<()>().await;
        }
        outcomes
    }

    fn watch(&self, scope: Scope) -> Watch {
        self.inner.watch(scope)
    }
}

/// A service on a store that can be in trouble.
pub async fn moody() -> (Scene, Arc<Moody>) {
    let store = Arc::new(Moody::default());
    let scene = Scene::with(|settings| {
        settings.store = store.clone();
        // What is not answered is soon tried again.
        settings.config.operation_timeout = Duration::from_secs(2);
    });
    (scene.await, store)
}

/// It is the server's trouble, with this code; what is wrong is said, and that it may pass.
#[track_caller]
fn broken(reply: &Reply, code: &str, why: &str) {
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (503, code),
        "{reply:?}"
    );
    assert!(reply.body.contains(why), "{reply:?}");
    assert!(
        reply.head.to_ascii_lowercase().contains("retry-after"),
        "{reply:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_is_the_servers_trouble() {
    let (scene, store) = moody().await;
    scene.make_group(2).await;
    store.be(Mood::Full);
    let consumer = json!({"consumer": "x"});
    let refused = scene.post("/v1/groups/g/sessions", &consumer).await;
    broken(&refused, "store_refuses", FULL);
    let other = json!({"group": "h", "topic": "h", "partitions": 2});
    broken(
        &scene.post("/v1/groups", &other).await,
        "store_refuses",
        FULL,
    );
    // What the caller has wrong stays the caller's.
    let unknown = scene.post("/v1/groups/none/sessions", &consumer).await;
    assert_eq!(unknown.status, 404);
    let long = format!("/v1/groups/{}/sessions", "x".repeat(300));
    assert_eq!(scene.post(&long, &consumer).await.status, 400);
    let topic = json!({"group": "h", "topic": "x".repeat(300), "partitions": 2});
    assert_eq!(scene.post("/v1/groups", &topic).await.status, 400);
    let wish = json!({"request": {"kind": "drain", "worker": "x".repeat(600_000)}});
    assert_eq!(scene.post("/v1/groups/g/requests", &wish).await.status, 400);
    // Mended, it goes on.
    store.be(Mood::Well);
    scene.post("/v1/groups/g/sessions", &consumer).await.ok(201);
    scene.post("/v1/groups", &other).await.ok(201);
}

/// Asks until the answer has this status.
async fn until(status: u16, ask: impl AsyncFn() -> Reply) -> Reply {
    let asking = async {
        loop {
            let reply = ask().await;
            if reply.status == status {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answered = tokio::time::timeout(PATIENCE, asking).await;
    answered.unwrap_or_else(|_| panic!("nothing is answered with {status}"))
}

/// Waits until a sign of life is answered with this status.
async fn until_beat(consumer: &Consumer, status: u16) -> Reply {
    until(status, async || {
        consumer.post("heartbeat", &json!({})).await
    })
    .await
}

/// Somebody else may be about to take over, and the client could not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_without_its_store_tells_nobody_that_all_is_well() {
    let (scene, store) = moody().await;
    scene.make_group(2).await;
    let consumer = scene.consumer(Manner::Polite).await;
    consumer.holds(|held| held.len() == 2).await;
    until_beat(&consumer, 200).await;
    store.be(Mood::Full);
    let refused = until_beat(&consumer, 503).await;
    broken(&refused, "unavailable", "handle nothing");
    store.be(Mood::Well);
    let heard = until_beat(&consumer, 200).await.ok(200);
    assert!(heard["lease_ms"].as_u64().is_some_and(|left| left > 0));
}

/// Waits until `/readyz` answers with this status: a look serves all who ask within a second.
async fn until_ready(scene: &Scene, status: u16) -> Reply {
    until(status, async || scene.get("/readyz").await).await
}

/// Nobody waits for a person to make room on a disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_store_refuses_is_answered_and_readyz_says_no() {
    let (scene, store) = moody().await;
    scene.make_group(2).await;
    scene.produce(2, 3).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 2).await;
    until_ready(&scene, 200).await;
    let (epoch, _) = held["0"];
    let commit = json!({"commits": [{"partition": "0", "epoch": epoch, "offset": 1}]});
    store.be(Mood::Full);
    // Not the limit of the request, which says that it took too long.
    let refused = consumer.post("commits", &commit).await;
    broken(&refused, "store_refuses", FULL);
    let not_ready = until_ready(&scene, 503).await;
    broken(&not_ready, "not_ready", "the store refuses to write");
    assert!(!not_ready.body.contains(FULL), "nobody is told where");
    broken(&consumer.leave().await, "store_refuses", FULL);
    store.be(Mood::Well);
    until_ready(&scene, 200).await;
}

/// What was sent may be in the store: nobody claims that it is, or that it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_answer_is_told_once_the_lease_is_over() {
    let (scene, store) = moody().await;
    scene.make_group(2).await;
    scene.produce(2, 3).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 2).await;
    let (epoch, _) = held["0"];
    let commit = json!({"commits": [{"partition": "0", "epoch": epoch, "offset": 1}]});
    store.be(Mood::Mum);
    let goes_away = async {
        store.kept_something_to_itself().await;
        store.be(Mood::Away);
    };
    let (open, ()) = tokio::join!(consumer.post("commits", &commit), goes_away);
    broken(
        &open,
        "unavailable",
        "whether this was written is not known",
    );
    assert!(open.body.contains("send the same again"), "{open:?}");
    // Who asks now need not wait at all.
    let cut_off = consumer.post("commits", &commit).await;
    broken(&cut_off, "unavailable", "does not reach its store");
    store.be(Mood::Well);
    // The same again is done, or was.
    let again = until(200, async || consumer.post("commits", &commit).await).await;
    assert_eq!(again.json()["results"][0]["result"], "ok", "{again:?}");
    assert_eq!(scene.partition("0").await["next_offset"], 2);
}

/// What is stored counts, whether somebody waits for the answer or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_before_its_commit_is_answered_goes_on_after_it() {
    let (scene, store) = moody().await;
    scene.make_group(1).await;
    scene.produce(1, 3).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 1).await;
    let (epoch, _) = held["0"];
    store.be(Mood::Mum);
    let path = format!("/v1/groups/g/sessions/{}", consumer.session);
    let auth = format!("Bearer {}", consumer.token);
    let headers = [("authorization", auth.as_str())];
    let commit = json!({"commits": [{"partition": "0", "epoch": epoch, "offset": 1}]});
    let commits = format!("{path}/commits");
    let commit = commit.to_string();
    let asked = request(scene.address(), "POST", &commits, &headers, Some(&commit));
    let mut stream = TcpStream::connect(scene.address())
        .await
        .expect("a connection");
    stream.write_all(asked.as_bytes()).await.expect("sent");
    store.kept_something_to_itself().await;
    // The service has let go of the request once it hangs up, too.
    stream.shutdown().await.expect("half closed");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    store.be(Mood::Well);
    let goes_on = async {
        loop {
            let events = format!("{path}/events");
            let mut events = Events::open(scene.address(), &events, &headers).await;
            while let Some((event, data)) = events.next().await {
                if event == "assigned" {
                    if data["next_offset"] == 2 {
                        return data;
                    }
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, goes_on).await;
    let told = told.expect("the stream tells what the store has");
    assert_eq!(
        (&told["checkpoint"], &told["epoch"]),
        (&json!(1), &json!(epoch))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_store_is_the_servers_trouble_and_readyz_says_no() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("group.db");
    let url = format!("sqlite:{}", file.display());
    let store = parti::store::open(&url).await.expect("a store");
    let scene = Scene::with(|settings| settings.store = store).await;
    scene.make_group(2).await;
    let ready = scene.get("/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "ready\n"));
    for part in ["group.db", "group.db-wal", "group.db-shm"] {
        fs::remove_file(place.path().join(part)).expect("deleted");
    }
    let gone = "deleted or moved";
    broken(&scene.get("/v1/groups").await, "store_refuses", gone);
    broken(&scene.get("/v1/groups/g").await, "store_refuses", gone);
    let refused = scene
        .post("/v1/groups/g/sessions", &json!({"consumer": "x"}))
        .await;
    broken(&refused, "store_refuses", gone);
    let not_ready = until_ready(&scene, 503).await;
    broken(&not_ready, "not_ready", "the store cannot be used");
    let place = place.path().display().to_string();
    assert!(
        !not_ready.body.contains(&place),
        "nobody is told where: {not_ready:?}"
    );
    let alive = scene.get("/healthz").await;
    assert_eq!((alive.status, alive.body.as_str()), (200, "alive\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_log_is_the_servers_trouble() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    scene.produce(2, 3).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let held = consumer.holds(|held| held.len() == 2).await;
    let log = scene.folder.path().join("log");
    fs::rename(&log, scene.folder.path().join("away")).expect("moved");
    let gone = "deleted or moved";
    let fetched = scene.get("/v1/topics/t/partitions/0/messages").await;
    broken(&fetched, "source_refuses", gone);
    let produced = json!({"messages": [{"payload": "x"}]});
    let produced = scene.post("/v1/topics/t/messages", &produced).await;
    broken(&produced, "source_refuses", gone);
    let (epoch, _) = held["0"];
    let commit = json!({"commits": [{"partition": "0", "epoch": epoch, "offset": 1}]});
    broken(
        &consumer.post("commits", &commit).await,
        "source_refuses",
        gone,
    );
    broken(&until_ready(&scene, 503).await, "not_ready", "the log");
    // Nor is there an empty one in its place, for this group or another one.
    for group in ["g", "h"] {
        let again = json!({"group": group, "topic": "t", "partitions": 2});
        let refused = scene.post("/v1/groups", &again).await;
        broken(&refused, "source_refuses", gone);
    }
    assert!(!log.exists());
    // An instance that never had it says so, too, and makes no new one in its place.
    let other = settings(scene.store.clone(), &scene.folder).await;
    let other = Service::start(other).await.expect("a second instance");
    let body = json!({"consumer": "x"}).to_string();
    let path = "/v1/groups/g/sessions";
    let refused = send(other.address(), "POST", path, &[], Some(&body)).await;
    broken(&refused, "source_refuses", "a topic that is gone");
    let again = json!({"group": "g", "topic": "t", "partitions": 2}).to_string();
    let refused = send(other.address(), "POST", "/v1/groups", &[], Some(&again)).await;
    broken(&refused, "source_refuses", "a topic that is gone");
    assert!(!log.exists());
    // A name that nobody has is still the caller's mistake.
    let unknown = "/v1/topics/unknown/partitions/0/messages";
    assert_eq!(
        send(other.address(), "GET", unknown, &[], None)
            .await
            .status,
        404
    );
    let not_ready = send(other.address(), "GET", "/readyz", &[], None).await;
    broken(&not_ready, "not_ready", "a topic of the log is gone");
    fs::rename(scene.folder.path().join("away"), &log).expect("moved back");
    // The very same log is back: who had it open goes on.
    scene.produce(2, 1).await;
    let fetched = scene.get("/v1/topics/t/partitions/0/messages");
    assert_eq!(fetched.await.ok(200)["end"], 4);
    let committed = consumer.post("commits", &commit).await.ok(200);
    assert_eq!(committed["results"][0]["result"], "ok", "{committed}");
    until_ready(&scene, 200).await;
    send(other.address(), "POST", path, &[], Some(&body))
        .await
        .ok(201);
    let ready = send(other.address(), "GET", "/readyz", &[], None).await;
    assert_eq!(ready.status, 200, "{ready:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_refused_makes_no_topic() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    for refused in [
        json!({"group": "g", "topic": "u", "partitions": 2}),
        json!({"group": "g", "topic": "u", "partitions": 2, "strategy": "round_robin"}),
        json!({"group": "no/name", "topic": "u", "partitions": 2}),
    ] {
        let reply = scene.post("/v1/groups", &refused).await;
        assert!([400, 409].contains(&reply.status), "{reply:?}");
        let topic = scene.get("/v1/topics/u/partitions/0/messages").await;
        assert_eq!(topic.status, 404, "{refused}");
    }
    let new = json!({"group": "h", "topic": "u", "partitions": 2});
    scene.post("/v1/groups", &new).await.ok(201);
    scene
        .get("/v1/topics/u/partitions/0/messages")
        .await
        .ok(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_needs_no_token() {
    let access = parti_serve::Access::default().operate_token("a-token-for-everything");
    let scene = Scene::with(|settings| settings.access = access).await;
    for path in ["/healthz", "/readyz"] {
        let reply = scene.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(
            reply.head.to_ascii_lowercase().contains("no-store"),
            "{path}"
        );
    }
    assert_eq!(scene.get("/v1/about").await.status, 401);
}

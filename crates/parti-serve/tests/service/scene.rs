//! A service with a log in a folder, and consumers that talk to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use parti::Config;
use parti::store::{Memory, Store};
use parti_serve::{Access, Limits, Service, Settings, open_source};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::{Events, PATIENCE, Reply, send};

/// Short times, but a TTL that a busy machine keeps.
pub const CONFIG: &str = "\
heartbeat_interval: 500ms
heartbeat_ttl: 5s
worker_id_ttl: 6s
planned_scale_window: 300ms
settle_time: 200ms
checkpoint_flush_interval: 100ms
assignment: { rebalance_cooldown: 0s }
handoff: { release_warning: 2s }
processing: { start: earliest }
";

/// A service and what it is on.
pub struct Scene {
    pub service: Service,
    pub store: Arc<dyn Store>,
    pub folder: TempDir,
}

/// Settings of a service on this store and folder.
pub async fn settings(store: Arc<dyn Store>, folder: &TempDir) -> Settings {
    let log = format!("log:{}", folder.path().join("log").display());
    Settings {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        store,
        source: Some(open_source(&log).await.expect("a log")),
        config: Config::from_yaml(CONFIG).expect("settings"),
        access: Access::default(),
        hosts: Vec::new(),
        tls: None,
        limits: Limits::default(),
    }
}

impl Scene {
    /// An open service on loopback.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A service with other settings.
    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let mut settings = settings(store.clone(), &folder).await;
        change(&mut settings);
        let service = Service::start(settings).await.expect("a service");
        Self {
            service,
            store,
            folder,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    pub async fn get(&self, path: &str) -> Reply {
        send(self.address(), "GET", path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        let body = body.to_string();
        send(self.address(), "POST", path, &[], Some(&body)).await
    }

    /// The group g on the topic t, spread by fair share.
    pub async fn make_group(&self, partitions: u32) {
        let group = json!({"group": "g", "topic": "t", "partitions": partitions});
        self.post("/v1/groups", &group).await.ok(201);
    }

    /// So many messages in each of these partitions.
    pub async fn produce(&self, partitions: u32, count: usize) {
        let messages = (0..partitions).flat_map(|partition| {
            (0..count).map(move |number| {
                json!({"partition": partition.to_string(), "payload": format!("m{number}")})
            })
        });
        let messages: Vec<Value> = messages.collect();
        let produced = json!({ "messages": messages });
        self.post("/v1/topics/t/messages", &produced).await.ok(200);
    }

    /// A consumer of the group g.
    pub async fn consumer(&self, manner: Manner) -> Consumer {
        Consumer::join(self.address(), manner).await
    }

    /// A partition as the group shows it.
    pub async fn partition(&self, id: &str) -> Value {
        let group = self.get("/v1/groups/g").await.ok(200);
        let partitions = group["partitions"].as_array().expect("a list").iter();
        let mut found = partitions.filter(|one| one["partition"] == id);
        found.next().expect("the partition").clone()
    }
}

/// How a consumer takes a revoke.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Releases at once.
    Polite,
    /// Does nothing.
    Stubborn,
}

/// What a consumer holds: epoch and next offset by partition.
pub type Held = BTreeMap<String, (u64, u64)>;

/// A consumer with an open stream.
pub struct Consumer {
    pub address: SocketAddr,
    pub worker: String,
    pub session: String,
    pub token: String,
    pub held: watch::Receiver<Held>,
    pub told: Arc<Mutex<Vec<(String, Value)>>>,
    listening: JoinHandle<()>,
}

impl Consumer {
    pub async fn join(address: SocketAddr, manner: Manner) -> Self {
        let registration = json!({"consumer": "test", "metadata": {"language": "rust"}});
        let body = registration.to_string();
        let reply = send(address, "POST", "/v1/groups/g/sessions", &[], Some(&body)).await;
        let opened = reply.ok(201);
        let text = |name: &str| opened[name].as_str().expect("text").to_owned();
        let (session, token) = (text("session"), text("token"));
        let (tell, held) = watch::channel(Held::new());
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = Listener {
            address,
            path: format!("/v1/groups/g/sessions/{session}"),
            auth: format!("Bearer {token}"),
            manner,
            tell,
            told: told.clone(),
        };
        Self {
            address,
            worker: text("worker"),
            session,
            token,
            held,
            told,
            listening: tokio::spawn(listener.run()),
        }
    }

    /// A request of this session.
    pub async fn post(&self, what: &str, body: &Value) -> Reply {
        let path = format!("/v1/groups/g/sessions/{}/{what}", self.session);
        let auth = format!("Bearer {}", self.token);
        let body = body.to_string();
        let headers = [("authorization", auth.as_str())];
        send(self.address, "POST", &path, &headers, Some(&body)).await
    }

    /// Commits one offset; what became of it.
    pub async fn commit(&self, partition: &str, epoch: u64, offset: u64) -> String {
        let commit = json!({"partition": partition, "epoch": epoch, "offset": offset});
        let reply = self.post("commits", &json!({ "commits": [commit] })).await;
        let result = reply.ok(200)["results"][0]["result"].clone();
        result.as_str().expect("a result").to_owned()
    }

    /// Ends the session.
    pub async fn leave(&self) -> Reply {
        let path = format!("/v1/groups/g/sessions/{}", self.session);
        let auth = format!("Bearer {}", self.token);
        let headers = [("authorization", auth.as_str())];
        send(self.address, "DELETE", &path, &headers, None).await
    }

    /// Gives no sign of life any more.
    pub fn crash(&self) {
        self.listening.abort();
    }

    /// Waits until it holds what is wanted.
    pub async fn holds(&self, wanted: impl Fn(&Held) -> bool) -> Held {
        let mut held = self.held.clone();
        let waiting = held.wait_for(|held| wanted(held));
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(Ok(held)) => held.clone(),
            _ => panic!("{} holds {:?}", self.worker, *self.held.borrow()),
        }
    }

    /// Waits until it was told something.
    pub async fn hears(&self, event: &str) -> Value {
        let mut held = self.held.clone();
        let heard = || {
            let told = self.told.lock().expect("no panic");
            told.iter()
                .rev()
                .find(|(name, _)| name == event)
                .map(|(_, data)| data.clone())
        };
        let waiting = held.wait_for(|_| heard().is_some());
        let _ = tokio::time::timeout(PATIENCE, waiting).await;
        heard().unwrap_or_else(|| panic!("{} did not hear {event}", self.worker))
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

struct Listener {
    address: SocketAddr,
    path: String,
    auth: String,
    manner: Manner,
    tell: watch::Sender<Held>,
    told: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Listener {
    async fn run(self) {
        let headers = [("authorization", self.auth.as_str())];
        let path = format!("{}/events", self.path);
        let mut events = Events::open(self.address, &path, &headers).await;
        while let Some((event, data)) = events.next().await {
            let partition = data["partition"].as_str().unwrap_or_default().to_owned();
            let number = |name: &str| data[name].as_u64().unwrap_or_default();
            let mut released = None;
            if event == "revoke" && self.manner == Manner::Polite {
                let release = json!({"partition": partition, "epoch": number("epoch")});
                let path = format!("{}/released", self.path);
                let body = release.to_string();
                let reply = send(self.address, "POST", &path, &headers, Some(&body)).await;
                released = Some(reply.ok(200)["result"].clone());
            }
            let told = (event.clone(), data.clone());
            self.told.lock().expect("no panic").push(told);
            self.tell.send_modify(|held| match event.as_str() {
                "assigned" => {
                    held.insert(partition, (number("epoch"), number("next_offset")));
                }
                "revoke" if released.is_some() => {
                    held.remove(&partition);
                }
                "lost" => {
                    held.remove(&partition);
                }
                "end" => held.clear(),
                _ => {}
            });
        }
    }
}

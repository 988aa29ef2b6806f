//! Where facts are looked at: servers that tests share, and the JetStream API as it is on the wire.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_nats::{Client, HeaderMap, RequestErrorKind};
use parti_servers::install::{NATS_LATEST, NATS_OLDEST};
use parti_servers::nats::{Cluster, Server};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::pull::{Got, Pull};

/// How long anything may take that must come. A loaded machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// How long one request waits before it is sent again.
const ONE_TRY: Duration = Duration::from_secs(15);
/// The server's "not now": no leader yet, or nobody to ask.
const NOT_NOW: [u64; 5] = [10005, 10008, 10009, 10023, 10074];

/// What the tests share. It goes with the last test that uses it.
struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut there = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        there.upgrade().unwrap_or_else(|| {
            let new = Arc::new(start());
            *there = Arc::downgrade(&new);
            new
        })
    }

    /// Nobody else gets this one.
    fn forget(&self, given_up: &Arc<T>) {
        let mut there = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if there.ptr_eq(&Arc::downgrade(given_up)) {
            *there = Weak::new();
        }
    }
}

/// Newest and oldest.
static SERVERS: [Shared<Server>; 2] = [Shared::new(), Shared::new()];
static CLUSTERS: [Shared<Cluster>; 2] = [Shared::new(), Shared::new()];
const VERSIONS: [&str; 2] = [NATS_LATEST, NATS_OLDEST];

/// Keeps what runs behind a lab.
enum Site {
    Server(Arc<Server>),
    Cluster(Arc<Cluster>),
    /// The test keeps it itself.
    Elsewhere,
}

/// A connection to a server, or to a cluster.
pub struct Lab {
    pub client: Client,
    /// Major and minor version.
    pub version: (u32, u32),
    /// Replicas of streams that do not say otherwise.
    replicas: u32,
    site: Site,
}

/// Looks at a fact on a single server of each version.
pub async fn on_every_version(fact: impl AsyncFn(&Lab)) {
    // All at first: so they outlive this test if another one has begun by then.
    let mut servers = Vec::new();
    for (shared, version) in SERVERS.iter().zip(VERSIONS) {
        let start = move || shared.get(|| Server::start_version(version));
        servers.push(tokio::task::spawn_blocking(start).await.expect("starts"));
    }
    for server in servers.iter().cloned() {
        let lab = Lab::connect(&server.url(), 1, Site::Server(server)).await;
        println!("on nats-server {:?}", lab.version);
        fact(&lab).await;
    }
}

/// Looks at a fact on a cluster of three nodes of each version.
pub async fn on_every_cluster(fact: impl AsyncFn(&Lab)) {
    let mut labs = Vec::new();
    for (shared, version) in CLUSTERS.iter().zip(VERSIONS) {
        labs.push(cluster(shared, version).await);
    }
    for lab in &labs {
        println!("on a cluster of nats-server {:?}", lab.version);
        fact(lab).await;
    }
}

/// A cluster that takes streams of three replicas. One that has not found all its nodes in time is
/// given up: what we look at are facts of whole clusters.
async fn cluster(shared: &'static Shared<Cluster>, version: &'static str) -> Lab {
    for _ in 0..5 {
        let start = || Cluster::start_with(&Server::builder().version(version), 3);
        let start = move || shared.get(start);
        let cluster = tokio::task::spawn_blocking(start).await.expect("starts");
        let lab = Lab::connect(&cluster.url(), 3, Site::Cluster(cluster.clone())).await;
        if lab.is_whole().await {
            return lab;
        }
        shared.forget(&cluster);
    }
    panic!("no cluster of nats-server {version} becomes whole");
}

/// Why the API does not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u64,
    pub err_code: u64,
    pub description: String,
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Lab {
    /// A server of the test's own.
    pub async fn of(server: &Server) -> Self {
        Self::connect(&server.url(), 1, Site::Elsewhere).await
    }

    /// One node of a cluster of the test's own.
    pub async fn of_node(url: &str) -> Self {
        Self::connect(url, 3, Site::Elsewhere).await
    }

    async fn connect(url: &str, replicas: u32, site: Site) -> Self {
        let client = connect(url).await;
        let version = client.server_info().version;
        let mut numbers = version
            .split('.')
            .map(|number| number.parse().expect("a number"));
        let version = (
            numbers.next().expect("major"),
            numbers.next().expect("minor"),
        );
        Self {
            client,
            version,
            replicas,
            site,
        }
    }

    /// Whether a stream of three replicas finds its nodes.
    async fn is_whole(&self) -> bool {
        let name = unique("WHOLE");
        let config = json!({"name": name, "subjects": [name], "num_replicas": 3});
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Ok(Ok(_)) = self.ask(&format!("STREAM.CREATE.{name}"), &config).await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Where clients connect to: a single server's host and port.
    pub fn address(&self) -> String {
        match &self.site {
            Site::Server(server) => server.address(),
            Site::Cluster(_) | Site::Elsewhere => panic!("has no one address to tell"),
        }
    }

    /// The same server by another connection.
    pub async fn through(&self, url: &str) -> Self {
        let site = match &self.site {
            Site::Server(server) => Site::Server(server.clone()),
            Site::Cluster(cluster) => Site::Cluster(cluster.clone()),
            Site::Elsewhere => Site::Elsewhere,
        };
        Self::connect(url, self.replicas, site).await
    }

    /// Whether consumers can be reset.
    pub fn resets(&self) -> bool {
        self.version >= (2, 14)
    }

    /// Asks the API until it answers.
    pub async fn api(&self, call: &str, body: Value) -> Result<Value, Refusal> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(call, &body).await;
            if !matches!(&answer, Ok(Err(refusal)) if NOT_NOW.contains(&refusal.err_code))
                && let Ok(answer) = answer
            {
                return answer;
            }
            assert!(Instant::now() < deadline, "{call} {body}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ask(&self, call: &str, body: &Value) -> Result<Result<Value, Refusal>, String> {
        let payload = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let request = self
            .client
            .request(format!("$JS.API.{call}"), payload.into());
        let answer = match timeout(ONE_TRY, request).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("no answer".to_owned()),
        };
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        let Some(error) = answer.get("error") else {
            return Ok(Ok(answer));
        };
        Ok(Err(Refusal {
            code: error["code"].as_u64().expect("a code"),
            err_code: error["err_code"].as_u64().unwrap_or(0),
            description: error["description"].as_str().unwrap_or("").to_owned(),
        }))
    }

    /// Asks the API for something that it does.
    pub async fn does(&self, call: &str, body: Value) -> Value {
        let answer = self.api(call, body.clone()).await;
        answer.unwrap_or_else(|refusal| panic!("{call} {body}: {refusal:?}"))
    }

    /// Sends a request, then others that are answered, and says whether the first one was not.
    pub async fn stays_unanswered(&self, call: &str, body: Value, then: &str) -> bool {
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.expect("sent");
        let subject = format!("$JS.API.{call}");
        let sent = self
            .client
            .publish_with_reply(subject, inbox, body.to_string().into());
        sent.await.expect("sent");
        for _ in 0..50 {
            self.does(then, Value::Null).await;
        }
        use futures_util::{FutureExt, StreamExt};
        answers.next().now_or_never().is_none()
    }

    /// A stream of the test's own, with subjects `<name>.>`. It is kept in memory unless the
    /// options say otherwise.
    pub async fn stream(&self, options: Value) -> Stream<'_> {
        let name = unique("S");
        let mut config = json!({
            "name": name,
            "subjects": [format!("{name}.>")],
            "storage": "memory",
            "num_replicas": self.replicas,
        });
        merge(&mut config, options);
        let info = self.does(&format!("STREAM.CREATE.{name}"), config).await;
        Stream {
            lab: self,
            name,
            config: info["config"].clone(),
            created: info["created"].as_str().expect("a stamp").to_owned(),
        }
    }

    /// Publishes to any subject, once, however often it has to be sent. Answers the server's words.
    pub async fn publish(&self, subject: &str, headers: &[(&str, &str)], payload: &str) -> Value {
        let mut all = HeaderMap::new();
        all.insert("Nats-Msg-Id", unique("message-").as_str());
        for (name, value) in headers {
            all.insert(*name, *value);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sent = self.client.request_with_headers(
                subject.to_owned(),
                all.clone(),
                payload.to_owned().into(),
            );
            match timeout(ONE_TRY, sent).await {
                Ok(Ok(answer)) => {
                    return serde_json::from_slice(&answer.payload).expect("JSON");
                }
                other => assert!(Instant::now() < deadline, "{subject}: {other:?}"),
            }
        }
    }

    /// Whether nobody takes what is published to this subject.
    pub async fn nobody_takes(&self, subject: &str) -> bool {
        let sent = self.client.request(subject.to_owned(), "x".into());
        match timeout(PATIENCE, sent).await {
            Ok(Err(error)) => error.kind() == RequestErrorKind::NoResponders,
            other => panic!("{other:?}"),
        }
    }
}

/// Connects, however long that takes.
async fn connect(url: &str) -> Client {
    let deadline = Instant::now() + PATIENCE;
    let addresses: Vec<&str> = url.split(',').collect();
    loop {
        match async_nats::ConnectOptions::new().connect(&addresses).await {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < deadline, "{url}: {error}"),
        }
    }
}

fn merge(into: &mut Value, from: Value) {
    let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) else {
        panic!("options are objects");
    };
    into.extend(from);
}

/// A stream.
pub struct Stream<'a> {
    pub lab: &'a Lab,
    pub name: String,
    pub config: Value,
    pub created: String,
}

impl Stream<'_> {
    /// A subject of it.
    pub fn subject(&self, last: &str) -> String {
        format!("{}.{last}", self.name)
    }

    /// Publishes messages one after the other, and answers the last one's sequence.
    pub async fn publish(&self, last: &str, count: usize) -> u64 {
        let mut sequence = 0;
        for _ in 0..count {
            let answer = self.lab.publish(&self.subject(last), &[], "x").await;
            sequence = answer["seq"].as_u64().expect("a sequence");
        }
        sequence
    }

    /// What it says of itself.
    pub async fn info(&self) -> Value {
        let call = format!("STREAM.INFO.{}", self.name);
        self.lab.does(&call, Value::Null).await
    }

    /// How many messages it holds, the first and the last sequence.
    pub async fn holds(&self) -> (u64, u64, u64) {
        let state = &self.info().await["state"];
        let number = |name: &str| state[name].as_u64().expect("a number");
        (number("messages"), number("first_seq"), number("last_seq"))
    }

    /// Waits until it holds so many messages: what an ack or an update removes goes a moment later.
    pub async fn until_holds(&self, messages: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let held = self.holds().await.0;
            if held == messages {
                return;
            }
            assert!(Instant::now() < deadline, "{held} messages, not {messages}");
        }
    }

    /// Where a durable of these subjects is, which need not exist.
    pub fn durable_at(&self, name: &str, subjects: &[&str], options: Value) -> Consumer<'_> {
        let mut config = json!({
            "name": name,
            "durable_name": name,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "ack_wait": PATIENCE.as_nanos() as u64,
            "filter_subjects": self.subjects(subjects),
        });
        merge(&mut config, options);
        if config["ack_policy"] == "none" {
            config
                .as_object_mut()
                .map(|config| config.remove("ack_wait"));
        }
        Consumer {
            stream: self,
            name: name.to_owned(),
            config,
        }
    }

    /// A durable of these subjects, as a worker has one, with options.
    pub async fn durable_with(
        &self,
        name: &str,
        subjects: &[&str],
        options: Value,
    ) -> Consumer<'_> {
        let consumer = self.durable_at(name, subjects, options);
        consumer.create_again().await;
        consumer
    }

    /// A durable of these subjects.
    pub async fn durable(&self, name: &str, subjects: &[&str]) -> Consumer<'_> {
        self.durable_with(name, subjects, json!({})).await
    }

    fn subjects(&self, last: &[&str]) -> Vec<String> {
        last.iter().map(|last| self.subject(last)).collect()
    }

    /// Whatever is asked about a message, of the stream's leader.
    pub async fn message(&self, which: Value) -> Result<Value, Refusal> {
        let call = format!("STREAM.MSG.GET.{}", self.name);
        let got = self.lab.api(&call, which).await?;
        Ok(got["message"].clone())
    }
}

/// A durable pull consumer.
pub struct Consumer<'a> {
    pub stream: &'a Stream<'a>,
    pub name: String,
    pub config: Value,
}

impl Consumer<'_> {
    /// A call of the API about it.
    pub fn call(&self, what: &str) -> String {
        format!("CONSUMER.{what}.{}.{}", self.stream.name, self.name)
    }

    /// Makes or changes it. An empty action does either.
    pub async fn put(&self, action: &str, config: &Value) -> Result<Value, Refusal> {
        let body = json!({"stream_name": self.stream.name, "config": config, "action": action});
        self.stream.lab.api(&self.call("CREATE"), body).await
    }

    /// Changes some of its settings.
    pub async fn change(&self, options: Value) -> Result<Value, Refusal> {
        let mut config = self.config.clone();
        merge(&mut config, options);
        self.put("update", &config).await
    }

    /// Changes its filter.
    pub async fn try_filter(&self, subjects: &[&str]) -> Result<Value, Refusal> {
        let subjects = self.stream.subjects(subjects);
        self.change(json!({ "filter_subjects": subjects })).await
    }

    /// Changes its filter, which the server accepts.
    pub async fn filter(&self, subjects: &[&str]) -> Value {
        self.try_filter(subjects).await.expect("changed")
    }

    /// What it says of itself.
    pub async fn try_info(&self) -> Result<Value, Refusal> {
        self.stream.lab.api(&self.call("INFO"), Value::Null).await
    }

    /// What it says of itself.
    pub async fn info(&self) -> Value {
        self.try_info().await.expect("is there")
    }

    /// A number that it says of itself, as in `delivered/consumer_seq`.
    pub async fn number(&self, path: &str) -> u64 {
        let info = self.info().await;
        let found = path.split('/').fold(&info, |value, name| &value[name]);
        found.as_u64().unwrap_or_else(|| panic!("{path} of {info}"))
    }

    /// Waits until it says this of itself.
    pub async fn until(&self, path: &str, wanted: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.number(path).await;
            if found == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{path} is {found}, not {wanted}");
        }
    }

    /// Deletes it.
    pub async fn delete(&self) {
        let deleted = self.stream.lab.api(&self.call("DELETE"), Value::Null).await;
        // Perhaps by an earlier try that was not answered.
        let gone = |refusal: &Refusal| refusal.err_code == 10014;
        assert!(deleted.as_ref().err().is_none_or(gone), "{deleted:?}");
    }

    /// Makes it again, as it was at first.
    pub async fn create_again(&self) -> Value {
        let info = self.put("create", &self.config).await.expect("made");
        self.until_reachable().await;
        info
    }

    /// Waits until pulls reach it. In a cluster that may be a moment after it was made, or after it
    /// got another leader: its nodes have to tell each other first.
    pub async fn until_reachable(&self) {
        let deadline = Instant::now() + PATIENCE;
        // A pull that makes no sense changes nothing.
        let nonsense = json!({"batch": "many"});
        while self.pull(nonsense.clone()).await.status().await.code != 400 {
            assert!(Instant::now() < deadline, "{} is not reachable", self.name);
        }
    }

    /// Rewinds it.
    pub async fn reset(&self, sequence: u64) -> Result<Value, Refusal> {
        let body = json!({ "seq": sequence });
        self.stream.lab.api(&self.call("RESET"), body).await
    }

    /// Opens a pull of this connection.
    pub async fn pull(&self, request: Value) -> Pull {
        self.pull_by(self.stream.lab, request).await
    }

    /// Opens a pull of another connection.
    pub async fn pull_by(&self, lab: &Lab, request: Value) -> Pull {
        Pull::open(&lab.client, &self.call("MSG.NEXT"), &request).await
    }

    /// Opens a pull that waits.
    pub async fn waiting_pull(&self, batch: u32) -> Pull {
        let request = json!({"batch": batch, "expires": PATIENCE.as_nanos() as u64});
        self.pull(request).await
    }

    /// Pulls exactly so many messages, which are there or will come.
    pub async fn fetch(&self, count: usize) -> Vec<Got> {
        let mut pull = self.waiting_pull(count as u32).await;
        pull.messages(count).await
    }

    /// Pulls whatever comes at once.
    pub async fn fetch_all(&self) -> Vec<Got> {
        let mut pull = self.pull(json!({"batch": 1000, "no_wait": true})).await;
        pull.rest().await.0
    }

    /// Acks, and waits until the server took it.
    pub async fn ack(&self, message: &Got) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let client = &self.stream.lab.client;
            let sent = client.request(message.reply.clone(), "+ACK".into());
            match timeout(ONE_TRY, sent).await {
                Ok(Ok(_)) => return,
                other => assert!(Instant::now() < deadline, "{other:?}"),
            }
        }
    }
}

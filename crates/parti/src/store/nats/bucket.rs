//! The two buckets: made if they are not there, checked if they are, never made again later.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::{About, Bytes, Error};
use super::api::{Link, Refusal, Silence, Trouble, answer, code, no_jetstream, not_permitted};

const OPEN_WITHIN: Duration = Duration::from_secs(10);
const TRY_EVERY: Duration = Duration::from_millis(250);
const CLUSTER_REPLICAS: usize = 3;

/// A KV bucket, which is a stream with one message for each key.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub name: String,
    pub stream: String,
    /// Whether a message can have a time to live of its own (from 2.11 on).
    pub messages_expire: bool,
}

/// What the server says of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    pub created: String,
    pub state: State,
    config: Config,
    /// When the server answered, by its clock.
    #[serde(default)]
    ts: Option<String>,
    #[serde(default)]
    cluster: Option<Peers>,
}

/// Who keeps a stream, besides the one that answers.
#[derive(Debug, Deserialize)]
struct Peers {
    #[serde(default)]
    replicas: Vec<Peer>,
}

#[derive(Debug, Deserialize)]
struct Peer {
    #[serde(default)]
    name: String,
    #[serde(default)]
    current: bool,
    #[serde(default)]
    offline: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub last_seq: u64,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Config {
    subjects: Vec<String>,
    retention: String,
    discard: String,
    max_msgs_per_subject: i64,
    max_msgs: i64,
    max_bytes: i64,
    max_age: u64,
    num_replicas: usize,
    no_ack: bool,
    sealed: bool,
    allow_msg_ttl: bool,
    persist_mode: String,
    mirror: Option<Value>,
    sources: Option<Value>,
    subject_transform: Option<Value>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            subjects: Vec::new(),
            retention: "limits".into(),
            discard: "old".into(),
            max_msgs_per_subject: -1,
            max_msgs: -1,
            max_bytes: -1,
            max_age: 0,
            num_replicas: 1,
            no_ack: false,
            sealed: false,
            allow_msg_ttl: false,
            persist_mode: String::new(),
            mirror: None,
            sources: None,
            subject_transform: None,
        }
    }
}

/// What the servers say of themselves and of both buckets.
pub(super) async fn about(
    link: &Link,
    records: &Bucket,
    checkpoints: &Bucket,
) -> Result<About, Error> {
    let server = link.client.server_info();
    let clustered = server.cluster.is_some();
    let mut about = About {
        server: Some(format!("nats-server {}", server.version)),
        ..About::default()
    };
    for bucket in [records, checkpoints] {
        let info = bucket.info(link).await;
        let info = info.map_err(|trouble| trouble.of_read(bucket))?;
        let replicas = info.config.num_replicas;
        about.clock = info.ts.or(about.clock);
        about.replicas = Some(about.replicas.map_or(replicas, |least| least.min(replicas)));
        if clustered && replicas < CLUSTER_REPLICAS {
            about.concerns.push(format!(
                "the bucket {} is kept by {replicas} of the cluster's servers: while that is away \
                 the group stands still; raise it (nats stream edit {} --replicas {CLUSTER_REPLICAS})",
                bucket.name, bucket.stream
            ));
        }
        let peers = info.cluster.into_iter().flat_map(|peers| peers.replicas);
        for peer in peers.filter(|peer| peer.offline || !peer.current) {
            about.concerns.push(format!(
                "the server {} has not caught up with the bucket {}; see to it (nats server report \
                 jetstream)",
                peer.name, bucket.name
            ));
        }
    }
    Ok(about)
}

impl Bucket {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            stream: format!("KV_{name}"),
            messages_expire: false,
        }
    }

    /// The subject of a KV key, or of a filter of them.
    pub(super) fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name)
    }

    /// The KV key of a subject.
    pub(super) fn key<'a>(&self, subject: &'a str) -> Option<&'a str> {
        subject
            .strip_prefix("$KV.")?
            .strip_prefix(self.name.as_str())?
            .strip_prefix('.')
    }

    /// It was there at the start and is not any more.
    pub(super) fn gone(&self) -> Error {
        Error::rejected(format!(
            "the bucket {} is gone (stream {}); restore it from a backup, or open the store anew \
             to begin with an empty one",
            self.name, self.stream
        ))
    }

    /// What the stream's leader says of it.
    pub(super) async fn info(&self, link: &Link) -> Result<Info, Trouble> {
        link.api(&format!("STREAM.INFO.{}", self.stream), Value::Null)
            .await
    }

    /// Whether the server says that there is none of this name. In doubt it is for [`Bucket::open`]
    /// to say what is wrong.
    pub(super) async fn is_missing(link: &Link, name: &str) -> bool {
        let found = Self::new(name).info(link).await;
        matches!(found, Err(Trouble::Refusal(refusal)) if refusal.err_code == code::NO_STREAM)
    }

    /// Makes sure that it is there, is what we need, and can be written to. Many may do so at once.
    pub(super) async fn open(
        link: &Link,
        name: &str,
        replicas: Option<usize>,
    ) -> Result<Self, Error> {
        let give_up = Instant::now() + OPEN_WITHIN;
        loop {
            match Self::new(name).try_open(link, replicas).await {
                Err(error @ Error::Unavailable { .. }) if Instant::now() < give_up => {
                    tracing::debug!(bucket = name, %error, "not open yet");
                    sleep(TRY_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_open(mut self, link: &Link, replicas: Option<usize>) -> Result<Self, Error> {
        let Info { config, .. } = self.find_or_make(link, replicas).await?;
        self.check(&config)?;
        self.check_writable(link).await?;
        if let Some(asked) = replicas
            && asked != config.num_replicas
        {
            let (bucket, has) = (&self.name, config.num_replicas);
            tracing::warn!(bucket, has, asked, "an existing bucket keeps its replicas");
        }
        self.messages_expire = config.allow_msg_ttl;
        Ok(self)
    }

    async fn find_or_make(&self, link: &Link, replicas: Option<usize>) -> Result<Info, Error> {
        match self.info(link).await {
            Err(Trouble::Refusal(Refusal {
                err_code: code::NO_STREAM,
                ..
            })) => {}
            Err(trouble) => return Err(self.open_error(link, trouble)),
            Ok(info) => return Ok(info),
        }
        let clustered = link.client.server_info().cluster.is_some();
        let count = match replicas {
            Some(count) => count,
            None if clustered => CLUSTER_REPLICAS,
            None => 1,
        };
        match self.make(link, count).await {
            // A cluster by name only.
            Err(Trouble::Refusal(Refusal {
                err_code: code::NOT_CLUSTERED,
                ..
            })) if replicas.is_none() => self.make(link, 1).await,
            other => other,
        }
        .map_err(|trouble| match trouble {
            // Somebody else was faster, with other replicas, say. The next look shows what is there.
            Trouble::Refusal(refusal) if refusal.err_code == code::NAME_IN_USE => {
                Error::unavailable(refusal)
            }
            // Also said while a cluster is only just coming up.
            Trouble::Refusal(refusal) if refusal.err_code == code::NO_PEERS => {
                Error::unavailable(format!(
                    "the cluster has no room for {count} replicas of the bucket {}: {refusal}; \
                     bring up more servers, or name another number with ?replicas=",
                    self.name
                ))
            }
            trouble => self.open_error(link, trouble),
        })
    }

    async fn make(&self, link: &Link, replicas: usize) -> Result<Info, Trouble> {
        // As every KV client configures a bucket with a history of one. A server before 2.11
        // ignores the wish for expiring messages.
        let config = json!({
            "name": self.stream,
            "description": "records of Parti",
            "subjects": [self.subject(">")],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "max_msgs_per_subject": 1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msg_size": -1,
            "max_consumers": -1,
            "deny_delete": true,
            "allow_rollup_hdrs": true,
            "allow_direct": true,
            "allow_msg_ttl": true,
        });
        link.api(&format!("STREAM.CREATE.{}", self.stream), config)
            .await
    }

    fn open_error(&self, link: &Link, trouble: Trouble) -> Error {
        match trouble {
            Trouble::Silence(Silence::Nobody) if !link.client.server_info().jetstream => {
                no_jetstream()
            }
            Trouble::Refusal(refusal) if (400..500).contains(&refusal.code) => {
                Error::rejected(format!(
                    "the bucket {} cannot be made: {refusal}; make it by hand (nats kv add), or \
                     mend what the server complains of",
                    self.name
                ))
            }
            Trouble::Refusal(refusal)
                if [
                    code::INSUFFICIENT_RESOURCES,
                    code::STORAGE_EXCEEDED,
                    code::NOT_CLUSTERED,
                ]
                .contains(&refusal.err_code) =>
            {
                Error::rejected(format!(
                    "the bucket {} cannot be made: {refusal}; see to the server's limits, or ask \
                     for fewer replicas",
                    self.name
                ))
            }
            trouble => trouble.of_read(self),
        }
    }

    fn check(&self, config: &Config) -> Result<(), Error> {
        let limited = config.max_bytes > 0 || config.max_msgs > 0;
        let wrong = if config.subjects != [self.subject(">")] {
            "its subjects are not those of a KV bucket"
        } else if config.mirror.is_some()
            || config.sources.is_some()
            || config.subject_transform.is_some()
        {
            "it takes its content from elsewhere (mirror, sources or transform)"
        } else if config.max_msgs_per_subject != 1 {
            "its history is not 1"
        } else if config.max_age != 0 {
            "its values expire (TTL)"
        } else if config.retention != "limits" {
            "its retention is not limits"
        } else if config.discard != "new" && limited {
            "it drops old values when it is full (discard)"
        } else if config.no_ack {
            "it does not acknowledge writes (no_ack)"
        } else if config.sealed {
            "it is sealed"
        } else if config.persist_mode == "async" {
            "it acknowledges writes before they are stored (persist mode)"
        } else {
            return Ok(());
        };
        Err(Error::rejected(format!(
            "the bucket {} cannot hold Parti's records: {wrong}; change that (nats kv edit, nats \
             stream edit {}), or name another bucket in the URL",
            self.name, self.stream
        )))
    }

    /// Sends a write that the server cannot accept, as it names another stream: the complaint
    /// shows that writes get through, and nothing was written.
    async fn check_writable(&self, link: &Link) -> Result<(), Error> {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Expected-Stream", "none");
        let sent = link
            .request_or_forbidden(self.subject("probe"), Some(headers), Bytes::new())
            .await;
        match sent {
            Ok(message) => match answer::<Value>(&message.payload) {
                Err(Trouble::Refusal(refusal)) if refusal.err_code == code::OTHER_STREAM => Ok(()),
                Err(Trouble::Refusal(refusal)) => Err(Error::unavailable(refusal)),
                other => Err(Error::unavailable(format!(
                    "the bucket {} gives a strange answer: {other:?}",
                    self.name
                ))),
            },
            Err(Silence::Forbidden(text)) => Err(not_permitted(&text)),
            Err(silence) => Err(Error::unavailable(format!(
                "the bucket {} takes no writes: {silence:?}",
                self.name
            ))),
        }
    }
}

//! The store on NATS KV, readable and mendable with `nats kv`.
//!
//! ```text
//!   nats://[user:password@]host[:4222][,host…][/bucket][?creds=FILE&token=…&nkey=SEEDFILE
//!          &tls=true&ca=FILE&cert=FILE&key=FILE&replicas=N]            (tls:// means TLS)
//!
//!   workers/orders/worker-0 ─▶ bucket "parti",             key workers.orders.worker-0
//!   partitions/orders/p07   ─▶ bucket "parti-checkpoints", key partitions.orders.p07
//! ```
//!
//! Needs nats-server 2.10 or newer with JetStream. Both buckets are made when the store is opened,
//! with 3 replicas in a cluster and 1 elsewhere, unless the URL says otherwise. One that is there
//! is used as it is, or refused. One that goes away later is an error, and is never made again
//! silently: a group must notice that its records are lost.
//!
//! - A revision is the sequence of the bucket's stream, as `nats kv` shows it: it grows across
//!   deletes, too.
//! - A write is a publish that names the subject's last sequence and is acknowledged by the stream.
//! - A delete leaves a marker, as `nats kv del` does. From server 2.11 on it goes away after an
//!   hour; before, `nats kv` can clear them.
//! - A read asks the stream's leader. A watch is a consumer on any replica, see its module.

mod api;
mod bucket;
mod feed;
mod keys;
mod known;
mod target;
mod watch;
mod write;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::nats::connect::connect;

use super::{About, Entry, Error, Revision, Scope, Store, Watch, Write, check_key};
use api::Link;
use bucket::Bucket;
use keys::Side;
use known::Known;
use target::Target;

/// A store on NATS KV. Clones share one connection.
#[derive(Clone)]
pub struct Nats {
    shared: Shared,
}

#[derive(Clone)]
struct Shared {
    link: Link,
    records: Arc<Bucket>,
    checkpoints: Arc<Bucket>,
    known_records: Arc<Known>,
    known_checkpoints: Arc<Known>,
}

impl Shared {
    fn known(&self, side: Side) -> &Known {
        match side {
            Side::Records => &self.known_records,
            Side::Checkpoints => &self.known_checkpoints,
        }
    }

    fn bucket(&self, side: Side) -> &Bucket {
        match side {
            Side::Records => &self.records,
            Side::Checkpoints => &self.checkpoints,
        }
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nats({})", self.shared.link.name)
    }
}

/// Whether the URL can be used.
pub(super) fn check_url(url: &str) -> Result<(), Error> {
    Target::parse(url)?.servers.check_files()
}

impl Nats {
    /// Opens the store that a URL names (see the [module](self)): connects, makes the buckets if
    /// they are not there, and makes sure that they can be used. Takes bounded time.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let target = Target::parse(url)?;
        let link = Self::link(&target).await?;
        Self::on(link, &target).await
    }

    /// The same, unless the server has no bucket of this name: then nothing is made.
    pub(super) async fn open_existing(url: &str) -> Result<Option<Self>, Error> {
        let target = Target::parse(url)?;
        let link = Self::link(&target).await?;
        if Bucket::is_missing(&link, &target.bucket).await {
            return Ok(None);
        }
        Self::on(link, &target).await.map(Some)
    }

    async fn link(target: &Target) -> Result<Link, Error> {
        let (client, health) = connect(&target.servers).await?;
        Ok(Link::new(client, health, target.servers.name.clone()))
    }

    async fn on(link: Link, target: &Target) -> Result<Self, Error> {
        let checkpoints = format!("{}-checkpoints", target.bucket);
        let (records, checkpoints) = tokio::try_join!(
            Bucket::open(&link, &target.bucket, target.replicas),
            Bucket::open(&link, &checkpoints, target.replicas),
        )?;
        Ok(Self {
            shared: Shared {
                link,
                records: Arc::new(records),
                checkpoints: Arc::new(checkpoints),
                known_records: Arc::default(),
                known_checkpoints: Arc::default(),
            },
        })
    }
}

#[async_trait]
impl Store for Nats {
    fn name(&self) -> &str {
        &self.shared.link.name
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        check_key(key)?;
        let side = keys::side(key);
        let bucket = self.shared.bucket(side);
        let last = self.shared.link.last(bucket, &keys::encode(key)).await?;
        let found = last.and_then(|last| Some((last.sequence, last.value?)));
        Ok(found.map(|(sequence, value)| {
            self.shared.known(side).note(sequence);
            Entry {
                key: key.to_owned(),
                revision: Revision(sequence),
                value,
            }
        }))
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        match scope {
            Scope::Key(key) => Ok(self.read(key).await?.into_iter().collect()),
            Scope::Under(_) => watch::list(&self.shared, scope).await,
        }
    }

    async fn about(&self) -> Result<About, Error> {
        bucket::about(
            &self.shared.link,
            &self.shared.records,
            &self.shared.checkpoints,
        )
        .await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        write::batch(&self.shared, batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        watch::watch(self.shared.clone(), scope)
    }
}

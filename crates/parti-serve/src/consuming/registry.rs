//! All sessions that this instance holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parti::core::config::Config;
use parti::source::Source as _;
use parti::{Manager, StaticPartitions};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use super::groups::Setup;
use super::host::host;
use super::seat::{End, Seat};
use super::token::{self, Secret, SessionId};
use crate::access::Hashed;
use crate::failure::Failure;
use crate::places::Places;

/// A session that was registered.
pub struct Registered {
    /// Which.
    pub id: SessionId,
    /// What the client shows from now on.
    pub token: String,
    /// How long it may be silent.
    pub ttl: Duration,
}

struct Entry {
    seat: Arc<Seat>,
    secret: Hashed,
}

/// All sessions that this instance holds.
pub struct Registry {
    places: Arc<Places>,
    config: Config,
    most: usize,
    entries: Arc<Mutex<BTreeMap<SessionId, Entry>>>,
    /// Lists of partitions, by their length: shared, because a thousand sessions would have a
    /// thousand of the same.
    lists: Mutex<BTreeMap<u32, StaticPartitions>>,
    refresh: watch::Sender<u64>,
    hosts: TaskTracker,
}

impl Registry {
    /// None yet; so many at most.
    pub fn new(places: Arc<Places>, config: Config, most: usize) -> Self {
        Self {
            places,
            config,
            most,
            entries: Arc::default(),
            lists: Mutex::default(),
            refresh: watch::Sender::new(0),
            hosts: TaskTracker::new(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<SessionId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partitions(&self, count: u32) -> StaticPartitions {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.entry(count);
        list.or_insert_with(|| StaticPartitions::numbered(count))
            .clone()
    }

    /// Makes a client a member of the group; answers as soon as it has an id there.
    pub async fn register(
        &self,
        group: &str,
        consumer: String,
        metadata: Value,
    ) -> Result<Registered, Failure> {
        if self.hosts.is_closed() {
            return Err(Failure::unavailable("this instance stops"));
        }
        if self.hosts.len() >= self.most {
            return Err(Failure::too_many(
                "this instance holds as many sessions as it may",
            ));
        }
        let setup = Setup::read(&self.places, group, &self.config).await?;
        let secret = Secret::draw()?;
        let ttl = setup.config.session_ttl();
        let topic = setup.topic.clone();
        let seat = Arc::new(Seat::new(consumer, metadata, &setup.config, topic));
        let identity = setup.topic.identity().await?;
        let store = self.places.store().clone();
        let partitions = self.partitions(setup.partitions);
        let builder = Manager::builder(group, store, partitions)
            .config(setup.config)
            .log_identity(identity);
        let (claimed, claim) = oneshot::channel();
        let hosting = host(seat.clone(), builder, self.refresh.subscribe(), claimed);
        let (known, entries) = (watch::Sender::new(None::<SessionId>), self.entries.clone());
        let mut told = known.subscribe();
        let _host = self.hosts.spawn(async move {
            hosting.await;
            // Out of the list at once: whoever asks later hears that it is gone.
            if let Ok(Some(id)) = told.wait_for(Option::is_some).await.as_deref() {
                let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                entries.remove(id);
            }
        });
        let (worker, incarnation) = match claim.await {
            Ok(claim) => claim?,
            Err(_) => {
                return Err(Failure::unavailable(
                    "the session got no place in the group",
                ));
            }
        };
        let id = SessionId {
            group: group.to_owned(),
            worker,
            incarnation,
        };
        let token = token::write(&id, &secret);
        let entry = Entry {
            seat,
            secret: secret.hashed(),
        };
        self.entries().insert(id.clone(), entry);
        known.send_replace(Some(id.clone()));
        Ok(Registered { id, token, ttl })
    }

    /// The session that a token opens, and that the client names.
    pub fn find(&self, token: &str, group: &str, session: &str) -> Result<Arc<Seat>, Failure> {
        let Some((id, secret)) = token::read(token) else {
            return Err(wrong_token());
        };
        if id.group != group || id.to_string() != session {
            return Err(wrong_token());
        }
        match self.entries().get(&id) {
            Some(entry) if entry.secret.is(&secret) => Ok(entry.seat.clone()),
            Some(_) => Err(wrong_token()),
            // Another instance may have held it. Here it would be adopted: the token has the group,
            // the worker and its life, and the hash of its secret belongs into that life's record.
            None => Err(Failure::session_gone(
                "this instance does not hold that session",
            )),
        }
    }

    /// All of a group.
    pub fn of(&self, group: &str) -> Vec<(SessionId, Arc<Seat>)> {
        let entries = self.entries();
        let of_group = entries.iter().filter(|(id, _)| id.group == group);
        of_group
            .map(|(id, entry)| (id.clone(), entry.seat.clone()))
            .collect()
    }

    /// Has partitions listed again.
    pub fn refresh(&self) {
        self.refresh.send_modify(|number| *number += 1);
    }

    /// Ends all in good order: clients are told to release what they have.
    pub async fn stop(&self, within: Duration) {
        self.hosts.close();
        let seats: Vec<Arc<Seat>> = self.entries().values().map(|e| e.seat.clone()).collect();
        for seat in &seats {
            seat.end(End::Service);
        }
        if tokio::time::timeout(within, self.hosts.wait())
            .await
            .is_err()
        {
            tracing::warn!("some sessions did not end in time");
        }
    }
}

fn wrong_token() -> Failure {
    Failure::new(
        axum::http::StatusCode::UNAUTHORIZED,
        "unauthorized",
        "this needs the session's own token",
        "send the header Authorization: Bearer TOKEN, as registering answered",
    )
}

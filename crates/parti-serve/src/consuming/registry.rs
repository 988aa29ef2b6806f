//! All sessions that this instance holds.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parti::core::codec;
use parti::core::config::Config;
use parti::core::ids::Incarnation;
use parti::core::key::Key;
use parti::core::record::{Record, SessionStatus};
use parti::core::session::Belonging;
use parti::{Manager, StaticPartitions, WorkerId};
use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use super::ended::{End, Ended, Meaning};
use super::groups::Setup;
use super::host::host;
use super::names;
use super::seat::{CUT_OFF, Client, Seat};
use super::token::{self, Secret, SessionId, Shown};
use crate::access::Hashed;
use crate::failure::Failure;
use crate::places::Places;

/// So many sessions are remembered whose clients are to stay away.
const REMEMBERED: usize = 1_000;

/// A session that was registered.
pub struct Registered {
    /// Which.
    pub id: SessionId,
    /// What the client shows from now on.
    pub token: String,
    /// How long it may be silent.
    pub ttl: Duration,
    /// What the group's topic is called.
    pub topic: Arc<str>,
}

/// A session that somebody names and has the token of.
struct Known {
    shown: Shown,
    /// The number in its worker's id.
    number: u64,
    /// None: this instance does not hold it. Else in which life of the worker's id it does.
    seat: Option<(Arc<Seat>, Incarnation)>,
}

struct Listed {
    seat: Arc<Seat>,
    secret: Hashed,
    /// The life of the worker's id that this instance claimed for it.
    life: Incarnation,
}

/// Sessions whose clients are to stay away, which no record tells: whoever had no stream open hears
/// of it when it asks next. The oldest are forgotten first.
#[derive(Default)]
struct Dismissed(Mutex<VecDeque<(SessionId, Hashed)>>);

impl Dismissed {
    fn remember(&self, id: &SessionId, secret: Hashed) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED {
            all.pop_front();
        }
        all.push_back((id.clone(), secret));
    }

    fn has(&self, shown: &Shown) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .any(|(id, secret)| *id == shown.id && secret.is(&shown.secret))
    }
}

/// Tells a host under which name it is known here, once it is.
type Named = watch::Sender<Option<SessionId>>;

/// A session that comes here from another instance, until it is here.
struct Coming {
    all: Arc<Mutex<BTreeSet<SessionId>>>,
    id: SessionId,
}

impl Coming {
    /// None if it comes already.
    fn begin(all: &Arc<Mutex<BTreeSet<SessionId>>>, id: &SessionId) -> Option<Self> {
        let mut coming = all.lock().unwrap_or_else(PoisonError::into_inner);
        coming.insert(id.clone()).then(|| Self {
            all: all.clone(),
            id: id.clone(),
        })
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut coming = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        coming.remove(&self.id);
    }
}

/// All sessions that this instance holds.
pub struct Registry {
    places: Arc<Places>,
    config: Config,
    most: usize,
    entries: Arc<Mutex<BTreeMap<SessionId, Listed>>>,
    dismissed: Arc<Dismissed>,
    coming: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Lists of partitions, by their length: shared, because a thousand sessions would have a
    /// thousand of the same.
    lists: Mutex<BTreeMap<u32, StaticPartitions>>,
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
            dismissed: Arc::default(),
            coming: Arc::default(),
            lists: Mutex::default(),
            hosts: TaskTracker::new(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<SessionId, Listed>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partitions(&self, count: u32) -> StaticPartitions {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.entry(count);
        list.or_insert_with(|| StaticPartitions::numbered(count))
            .clone()
    }

    /// Settings of the sessions that it holds.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Makes a client a member of the group; answers as soon as it has an id there. It may say which
    /// topic it is going to work on.
    pub async fn register(
        &self,
        group: &str,
        client: Client,
        topic: Option<&str>,
    ) -> Result<Registered, Failure> {
        let secret = Secret::draw()?;
        let hashed = secret.hashed();
        let belongs = Belonging::Hosted(hashed.badge());
        let setup = Setup::read(&self.places, group, &self.config).await?;
        setup.is_about(group, topic)?;
        let (ttl, topic) = (setup.config.session_ttl(), setup.name.clone());
        let (seat, named, claim) = self.admit(group, setup, client, belongs).await?;
        let (worker, incarnation) = claim;
        let id = SessionId {
            group: group.to_owned(),
            worker,
            incarnation,
        };
        let token = token::write(&id, &secret, &seat.client);
        // Its time begins now, however long it took to get here.
        seat.hear()?;
        let consumer = seat.client.consumer.as_str();
        tracing::info!(group, session = %id, consumer, "a session begins");
        let listed = Listed {
            seat,
            secret: hashed,
            life: incarnation,
        };
        self.seat(&id, listed, &named);
        Ok(Registered {
            id,
            token,
            ttl,
            topic,
        })
    }

    /// Starts a member of the group, and waits until it has its id. Whoever calls gives it its name
    /// here, by which it is forgotten when it ends.
    async fn admit(
        &self,
        group: &str,
        setup: Setup,
        client: Client,
        belongs: Belonging,
    ) -> Result<(Arc<Seat>, Named, (WorkerId, Incarnation)), Failure> {
        if self.is_stopping() {
            return Err(Failure::unavailable("this instance stops"));
        }
        if self.hosts.len() >= self.most {
            return Err(Failure::too_many(
                "this instance holds as many sessions as it may",
            ));
        }
        let identity = setup.messages.identity().await?;
        let seat = Seat::new(client, &setup.config, setup.name, setup.messages);
        let seat = Arc::new(seat);
        let store = self.places.store().clone();
        let partitions = self.partitions(setup.partitions);
        let builder = Manager::builder(group, store, partitions)
            .config(setup.config)
            .log_identity(identity)
            .hosting(belongs);
        let (claimed, claim) = oneshot::channel();
        let hosting = host(seat.clone(), builder, claimed);
        let hosting = Box::pin(hosting);
        let (named, entries) = (Named::new(None), self.entries.clone());
        let dismissed = self.dismissed.clone();
        let (mut told, hosted) = (named.subscribe(), seat.clone());
        let _host = self.hosts.spawn(async move {
            hosting.await;
            // Out of the list at once: whoever asks later hears that it is gone.
            if let Ok(Some(id)) = told.wait_for(Option::is_some).await.as_deref() {
                let ended = hosted.ended();
                let why = ended.as_ref().map_or("", |ended| ended.why.as_str());
                tracing::info!(group = id.group, session = %id, why, "a session ends");
                let stays_away = ended.is_some_and(|ended| ended.meaning == Meaning::Dismissed);
                let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                // It may have come back meanwhile, under the same name.
                if let Entry::Occupied(listed) = entries.entry(id.clone())
                    && Arc::ptr_eq(&listed.get().seat, &hosted)
                {
                    let listed = listed.remove();
                    if stays_away {
                        dismissed.remember(id, listed.secret);
                    }
                }
            }
        });
        match claim.await {
            Ok(Ok(claim)) => {
                self.places.standing.group_has_its_log(group, true);
                Ok((seat, named, claim))
            }
            Ok(Err(error)) => {
                let failure = Failure::from(error);
                if failure.is_replaced() {
                    self.places.standing.group_has_its_log(group, false);
                }
                Err(failure)
            }
            Err(_) => Err(Failure::unavailable(
                "the session got no place in the group",
            )),
        }
    }

    fn seat(&self, id: &SessionId, listed: Listed, named: &Named) {
        let seat = listed.seat.clone();
        self.entries().insert(id.clone(), listed);
        named.send_replace(Some(id.clone()));
        // Whoever stops this instance may have looked before who is here.
        if self.is_stopping() {
            seat.end(End::Service);
        }
    }

    /// What a token tells, if it is the one of this session, and the seat if this instance holds it.
    fn known(&self, token: &str, group: &str, session: &str) -> Result<Known, Failure> {
        let shown = token::read(token).filter(|shown| {
            let named = shown.id.group == group && shown.id.to_string() == session;
            named && names::can_be_told(&shown.consumer)
        });
        let shown = shown.ok_or_else(wrong_token)?;
        let number = codec::worker_number(&self.config.worker_id_prefix, &shown.id.worker);
        let number = number.ok_or_else(wrong_token)?;
        let seat = match self.entries().get(&shown.id) {
            Some(listed) if !listed.secret.is(&shown.secret) => return Err(wrong_token()),
            Some(listed) => {
                let lives = listed.seat.ended().is_none();
                lives.then(|| (listed.seat.clone(), listed.life))
            }
            None => None,
        };
        Ok(Known {
            shown,
            number,
            seat,
        })
    }

    /// The session that a token opens, and that the client names, if this instance holds it.
    pub async fn find(
        &self,
        token: &str,
        group: &str,
        session: &str,
    ) -> Result<Arc<Seat>, Failure> {
        let known = self.known(token, group, session)?;
        if let Some((seat, _)) = known.seat {
            return Ok(seat);
        }
        Err(match self.how(&known.shown).await? {
            None => Failure::not_here(),
            Some(ended) => ended.failure(),
        })
    }

    /// Whether it ended here, and its client is to stay away. It leaves the list only once that is
    /// remembered.
    fn was_dismissed(&self, shown: &Shown) -> bool {
        let listed = self
            .entries()
            .get(&shown.id)
            .and_then(|listed| listed.seat.ended());
        let stays_away = listed.is_some_and(|ended| ended.meaning == Meaning::Dismissed);
        stays_away || self.dismissed.has(shown)
    }

    /// How the session has ended, as far as is known here; none: it lives, wherever that is.
    async fn how(&self, shown: &Shown) -> Result<Option<Ended>, Failure> {
        let key = Key::Worker(shown.id.worker.clone());
        let found = self.places.records(&shown.id.group)?.read(&key).await?;
        let badge = Hashed::of(&shown.secret).badge();
        let status = found.and_then(|stored| match &stored.record {
            Record::Worker(record) if record.badge == Some(badge) => Some(record.status),
            _ => None,
        });
        Ok(match status {
            Some(status) if !status.is_over() => None,
            _ if self.was_dismissed(shown) => Some(Ended::dismissed()),
            Some(SessionStatus::Evicted | SessionStatus::Free) => Some(Ended::evicted()),
            _ => Some(Ended::because("it ended some time ago")),
        })
    }

    /// Ends the session that a token opens.
    pub async fn end(&self, token: &str, group: &str, session: &str) -> Result<(), Failure> {
        let seat = self.find(token, group, session).await?;
        seat.hear()?;
        seat.end(End::Goodbye);
        seat.is_over().await;
        // It may have gone on elsewhere, and this instance had not noticed before.
        if seat.was_lost() {
            let known = self.known(token, group, session)?;
            if self.how(&known.shown).await?.is_none() {
                return Err(Failure::not_here());
            }
        }
        Ok(())
    }

    /// The session that a token opens. One that another instance has, or had, goes on here: the
    /// client is what decides where it is.
    pub async fn find_or_go_on(
        &self,
        token: &str,
        group: &str,
        session: &str,
    ) -> Result<Arc<Seat>, Failure> {
        let Known {
            shown,
            number,
            seat,
        } = self.known(token, group, session)?;
        if let Some((seat, life)) = seat {
            seat.hear()?;
            let moved = tokio::select! {
                biased;
                moved = self.has_moved(&shown, life) => moved?,
                () = seat.cut_off() => return Err(Failure::unavailable(CUT_OFF)),
            };
            if !moved {
                return Ok(seat);
            }
            self.leave_behind(&shown.id, &seat);
        }
        // Anybody can write a token. What begins a member of the group, and keeps the session's own
        // client waiting meanwhile, is only one whose secret the session's record knows.
        if let Some(ended) = self.how(&shown).await? {
            return Err(ended.failure());
        }
        let Some(_coming) = Coming::begin(&self.coming, &shown.id) else {
            return Err(Failure::unavailable("the session is on its way here"));
        };
        // Another request may have brought it here since the list was looked at. To bring it over
        // once more would take from the client what it is just working on.
        if let Some((seat, _)) = self.known(token, group, session)?.seat {
            seat.hear()?;
            return Ok(seat);
        }
        let setup = Setup::read(&self.places, group, &self.config).await?;
        let hashed = Hashed::of(&shown.secret);
        let belongs = Belonging::Continued(hashed.badge(), number);
        let client = Client {
            consumer: shown.consumer.clone(),
            metadata: Value::Object(Map::new()),
            liveness: shown.liveness,
        };
        let (seat, named, claim) = match self.admit(group, setup, client, belongs).await {
            Err(failure) if failure.is_over() => {
                let ended = self.how(&shown).await?;
                return Err(ended.map_or(failure, |ended| ended.failure()));
            }
            admitted => admitted?,
        };
        let consumer = seat.client.consumer.as_str();
        tracing::info!(group, session, consumer, "a session goes on here");
        let (_, life) = claim;
        let listed = Listed {
            seat: seat.clone(),
            secret: hashed,
            life,
        };
        self.seat(&shown.id, listed, &named);
        Ok(seat)
    }

    /// Whether the session has gone on elsewhere since it was claimed here, which this instance finds
    /// out by its next write: what it would tell a stream until then is no longer so, and whoever
    /// comes back from elsewhere would handle again what it did there. Lives only follow each other,
    /// so a later one can be believed from a read; an older one, or none, says nothing.
    async fn has_moved(&self, shown: &Shown, life: Incarnation) -> Result<bool, Failure> {
        let key = Key::Worker(shown.id.worker.clone());
        let found = self.places.records(&shown.id.group)?.read(&key).await?;
        Ok(found.is_some_and(|stored| match &stored.record {
            Record::Worker(record) => record.incarnation_at(stored.revision) > life,
            _ => false,
        }))
    }

    /// Gives up a seat whose session has moved: it holds nothing any more, and is in nobody's way.
    fn leave_behind(&self, id: &SessionId, seat: &Arc<Seat>) {
        if let Entry::Occupied(listed) = self.entries().entry(id.clone())
            && Arc::ptr_eq(&listed.get().seat, seat)
        {
            listed.remove();
        }
        seat.end(End::Lost);
    }

    /// All of a group.
    pub fn of(&self, group: &str) -> Vec<(SessionId, Arc<Seat>)> {
        let entries = self.entries();
        let of_group = entries.iter().filter(|(id, _)| id.group == group);
        of_group
            .map(|(id, listed)| (id.clone(), listed.seat.clone()))
            .collect()
    }

    /// Has the members of a group list its partitions again.
    pub fn refresh(&self, group: &str) {
        for (_, seat) in self.of(group) {
            seat.refresh();
        }
    }

    /// Whether it takes on no more.
    pub fn is_stopping(&self) -> bool {
        self.hosts.is_closed()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consuming::seat::tests::seat;
    use futures_util::FutureExt as _;
    use parti::store::Memory;

    #[tokio::test]
    async fn who_comes_while_the_instance_stops_is_told_too() {
        let seat = seat();
        let places = Arc::new(Places::new(Arc::new(Memory::new()), None));
        let registry = Registry::new(places, Config::default(), 1);
        registry.stop(Duration::from_secs(1)).await;
        let id = SessionId {
            group: "g".into(),
            worker: WorkerId::new("worker-0"),
            incarnation: Incarnation(1),
        };
        let named = watch::Sender::new(None);
        registry.seat(&id, listed(&seat), &named);
        assert_eq!(seat.ending().await, End::Service);
    }

    fn listed(seat: &Arc<Seat>) -> Listed {
        Listed {
            seat: seat.clone(),
            secret: Hashed::of(b"secret"),
            life: Incarnation(1),
        }
    }

    #[tokio::test]
    async fn only_members_of_the_group_are_to_list_again() {
        let places = Arc::new(Places::new(Arc::new(Memory::new()), None));
        let registry = Registry::new(places, Config::default(), 2);
        let mut seats = Vec::new();
        for group in ["g", "h"] {
            let seat = seat();
            let id = SessionId {
                group: group.into(),
                worker: WorkerId::new("worker-0"),
                incarnation: Incarnation(1),
            };
            registry.seat(&id, listed(&seat), &watch::Sender::new(None));
            seats.push(seat);
        }
        registry.refresh("g");
        let is_to = |seat: &Arc<Seat>| seat.is_to_refresh().now_or_never().is_some();
        let found: Vec<bool> = seats.iter().map(is_to).collect();
        assert_eq!(found, [true, false]);
    }
}

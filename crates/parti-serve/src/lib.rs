//! The coordinator service: consumer groups over HTTP, for every language, and a dashboard.
//!
//! ```text
//!   client ──▶ listen ──▶ guard ──▶ api ─┬─ looking    groups as they are, and as they change (live)
//!                                        ├─ operating  what an operator changes
//!                                        ├─ consuming  groups, sessions, commits
//!                                        ├─ topics     produce and fetch, on the embedded log, if it
//!                                        │             is the group's own (fits)
//!                                        ├─ health     whether it lives, whether it can work: by a
//!                                        │             look, and by how work went (standing)
//!                                        └─ ui         the dashboard's files
//! ```
//!
//! Any number of instances may run over one store: each holds the sessions that registered with it.

mod access;
mod api;
mod consuming;
mod extract;
mod failure;
mod fits;
mod guard;
mod health;
mod history;
mod listen;
mod live;
mod looking;
mod operating;
mod places;
mod refusals;
mod room;
mod sane;
mod shapes;
mod sse;
mod standing;
mod strict;
mod topics;
mod ui;
mod whole;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parti::Config;
use parti::store::Store;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use access::Access;
pub use api::openapi;
pub use listen::{Tls, TlsError};
pub use places::{Source, open_source};

use consuming::Registry;
use fits::Fits;
use health::Health;
use listen::Door;
use live::Live;
use places::Places;
use refusals::Refusals;
use room::Room;

/// Limits of one instance.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Bytes of all bodies that come, or whose requests are not answered yet, but for small ones.
    pub bodies: usize,
    /// Bytes of one answer with messages, unless a single message is larger.
    pub fetch: usize,
    /// Bytes of all such answers that are being made, or wait for their readers.
    pub fetches: usize,
    /// How long a request waits for room for its body, or its answer.
    pub patience: Duration,
    /// Connections at once.
    pub connections: usize,
    /// Live streams of groups at once.
    pub live_streams: usize,
    /// Sessions at once.
    pub sessions: usize,
    /// Time for one request, long polls included. Streams are no requests any more once they run.
    pub request: Duration,
    /// Time for sessions to hand over what they have on a stop.
    pub sessions_stop: Duration,
    /// Time for streams and connections to end after that.
    pub stop: Duration,
    /// Of refusals that are alike, one is logged in such a time, with the number of all others.
    pub alike: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 * 1024 * 1024,
            bodies: 128 * 1024 * 1024,
            fetch: topics::MOST_BYTES,
            fetches: 64 * 1024 * 1024,
            patience: Duration::from_secs(20),
            connections: 4_096,
            live_streams: 256,
            sessions: 2_000,
            request: Duration::from_secs(60),
            sessions_stop: Duration::from_secs(15),
            stop: Duration::from_secs(5),
            alike: Duration::from_secs(10),
        }
    }
}

/// What a service is made with.
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// Where records live.
    pub store: Arc<dyn Store>,
    /// Where messages come from, if that is known.
    pub source: Option<Source>,
    /// Settings of the sessions that this instance holds.
    pub config: Config,
    /// Who may do what.
    pub access: Access,
    /// Names, besides addresses and `localhost`, that this service goes by.
    pub hosts: Vec<String>,
    /// TLS, unless a proxy in front does that.
    pub tls: Option<Tls>,
    /// Limits.
    pub limits: Limits,
}

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Whoever reaches that address could do everything.
    #[error(
        "{0} can be reached from elsewhere: set a token (or trust a proxy's header), or listen on \
         127.0.0.1"
    )]
    Open(SocketAddr),
    /// Settings would let in others than was meant, or nobody.
    #[error("{0}")]
    Setting(String),
    /// The address cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Address {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The system has no randomness for secrets.
    #[error("no random numbers for secrets: {0}")]
    NoSecrets(getrandom::Error),
}

/// Everything that handlers share.
pub(crate) struct App {
    pub(crate) places: Arc<Places>,
    pub(crate) live: Live,
    pub(crate) access: Access,
    pub(crate) hosts: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) instance: String,
    /// Whether answers go out over TLS.
    pub(crate) secure: bool,
    pub(crate) sessions: Registry,
    pub(crate) health: Health,
    pub(crate) fits: Fits,
    pub(crate) refusals: Refusals,
    pub(crate) body_room: Room,
    pub(crate) fetch_room: Room,
    pub(crate) live_slots: Arc<Semaphore>,
    pub(crate) session_slots: Arc<Semaphore>,
    /// Plans are worked out by the processor alone: few at once.
    pub(crate) plan_slots: Arc<Semaphore>,
    /// Ends all streams.
    pub(crate) stop: CancellationToken,
}

/// A service that runs, until it is stopped or dropped.
pub struct Service {
    address: SocketAddr,
    secure: bool,
    app: Arc<App>,
    tasks: TaskTracker,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({})", self.address)
    }
}

impl Service {
    /// Listens, and serves from now on.
    pub async fn start(settings: Settings) -> Result<Self, ServeError> {
        let Settings { address, .. } = settings;
        if !address.ip().is_loopback() && settings.access.is_open() {
            return Err(ServeError::Open(address));
        }
        let unusable = |error| ServeError::Address { address, error };
        settings.access.check().map_err(ServeError::Setting)?;
        for host in &settings.hosts {
            sane::check_host(host).map_err(ServeError::Setting)?;
        }
        let listener = listen::bind(address).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let instance = getrandom::u64().map_err(ServeError::NoSecrets)?;
        let stop = CancellationToken::new();
        let secure = settings.tls.is_some();
        let unread = settings.config.session_ttl();
        let places = Arc::new(Places::new(settings.store, settings.source));
        let most = settings.limits.sessions;
        let Limits {
            bodies,
            fetches,
            patience,
            ..
        } = settings.limits;
        let app = Arc::new(App {
            sessions: Registry::new(places.clone(), settings.config, most),
            places,
            live: Live::default(),
            access: settings.access,
            hosts: settings.hosts,
            instance: format!("{instance:016x}"),
            secure,
            health: Health::default(),
            fits: Fits::default(),
            refusals: Refusals::new(settings.limits.alike),
            body_room: Room::new(
                bodies,
                patience,
                "too many large bodies are on their way here",
            ),
            fetch_room: Room::new(fetches, patience, "too many answers wait for their readers"),
            live_slots: Arc::new(Semaphore::new(settings.limits.live_streams)),
            // A stream that was replaced may still be open for a moment.
            session_slots: Arc::new(Semaphore::new(most * 2)),
            plan_slots: Arc::new(Semaphore::new(2)),
            limits: settings.limits,
            stop: stop.clone(),
        });
        let tasks = TaskTracker::new();
        let door = Door {
            router: api::router(app.clone()),
            tls: settings.tls,
            connections: app.limits.connections,
            unread,
            stop: stop.clone(),
            tasks: tasks.clone(),
        };
        tracing::info!(
            %address,
            secure,
            store = app.places.store().name(),
            instance = app.instance,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
        tasks.spawn(listen::listen(listener, door));
        let told = app.clone();
        tasks.spawn(async move { told.refusals.tell(stop).await });
        Ok(Self {
            address,
            secure,
            app,
            tasks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Ends everything in good order: sessions hand over what they have, streams are told, answers
    /// under way are given.
    pub async fn stop(self) {
        tracing::info!("stopping: sessions hand over what they have");
        self.app.sessions.stop(self.app.limits.sessions_stop).await;
        self.app.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.app.limits.stop, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some connections did not end in time");
        }
        tracing::info!("stopped");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.app.stop.cancel();
        self.app.refusals.end();
    }
}

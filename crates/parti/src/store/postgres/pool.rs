//! The few connections that operations share.
//!
//! PostgreSQL carries out the statements of one connection one after the other. Operations are
//! pipelined on the connection with the least to do; a second one is opened only when the first is
//! busy, so that a row that someone keeps locked does not hold up everything else.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::super::Error;
use super::fault::{self, During};
use super::session::{Session, Statements};
use super::settings::Settings;

/// The connections for operations.
pub(super) struct Lanes {
    settings: Arc<Settings>,
    lanes: Vec<Lane>,
    /// Whether someone removes the traces of old deletes just now; see [`super::write`].
    pub(super) forgetting: AtomicBool,
}

struct Lane {
    state: Mutex<State>,
    load: Arc<AtomicUsize>,
}

enum State {
    Up(Arc<Session>),
    Down(Backoff),
}

/// How long to leave a server alone that could not be reached, and what to say meanwhile.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
    last: Option<(Instant, Error)>,
}

impl Backoff {
    /// What went wrong last, as long as it is too early to try again.
    fn too_early(&self) -> Option<Error> {
        let (since, error) = self.last.as_ref()?;
        (since.elapsed() < self.pause()).then(|| error.clone())
    }

    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(25 << self.failures.min(5))
    }

    pub(super) fn failed(&mut self, error: &Error) {
        self.failures = self.failures.saturating_add(1);
        self.last = Some((Instant::now(), error.clone()));
    }
}

/// A connection in use.
pub(super) struct Lease {
    session: Arc<Session>,
    _busy: Busy,
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(load.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// With a first connection.
    pub(super) fn new(settings: Arc<Settings>, first: Session) -> Self {
        let lane = |state| Lane {
            state: Mutex::new(state),
            load: Arc::default(),
        };
        let more = (1..settings.connections).map(|_| lane(State::Down(Backoff::default())));
        let lanes = std::iter::once(lane(State::Up(Arc::new(first)))).chain(more);
        Self {
            lanes: lanes.collect(),
            settings,
            forgetting: AtomicBool::new(false),
        }
    }

    /// The connection with the least to do; the first of those with as little.
    pub(super) async fn lease(&self) -> Result<Lease, Error> {
        let mut order: Vec<&Lane> = self.lanes.iter().collect();
        order.sort_by_key(|lane| lane.load.load(Ordering::Relaxed));
        let Some((idlest, others)) = order.split_first() else {
            return Err(Error::unavailable("there is no connection"));
        };
        let busy = Busy::new(&idlest.load);
        let (session, busy) = match idlest.session(&self.settings).await {
            Ok(session) => (session, busy),
            // The server may allow no more connections: then those that are there have to do.
            Err(error) => match others.iter().find_map(|lane| lane.if_up()) {
                Some(up) => up,
                None => return Err(error),
            },
        };
        Ok(Lease {
            session,
            _busy: busy,
        })
    }

    /// Runs a prepared statement that changes nothing. If its connection turns out to be gone, it
    /// is asked again on a new one.
    pub(super) async fn ask(
        &self,
        which: fn(&Statements) -> &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let session = self.lease().await?;
        match session.query(which(&session.statements), parameters).await {
            Ok(rows) => return Ok(rows),
            Err(trouble) if !session.client.is_closed() => {
                return Err(trouble.told(During::Asking));
            }
            Err(_) => drop(session),
        }
        let session = self.lease().await?;
        session
            .query(which(&session.statements), parameters)
            .await
            .map_err(|trouble| trouble.told(During::Asking))
    }
}

impl Lane {
    fn if_up(&self) -> Option<(Arc<Session>, Busy)> {
        match &*self.state.try_lock().ok()? {
            State::Up(session) if !session.is_dead() => {
                Some((session.clone(), Busy::new(&self.load)))
            }
            State::Up(_) | State::Down(_) => None,
        }
    }

    async fn session(&self, settings: &Settings) -> Result<Arc<Session>, Error> {
        // Held while connecting: those who come meanwhile wait for the same connection.
        let mut state = self.state.lock().await;
        if let State::Up(session) = &*state {
            if !session.is_dead() {
                return Ok(session.clone());
            }
            *state = State::Down(Backoff::default());
        }
        let State::Down(backoff) = &mut *state else {
            return Err(Error::unavailable("there is no connection"));
        };
        if let Some(error) = backoff.too_early() {
            return Err(error);
        }
        match connect(settings).await {
            Ok(session) => {
                let session = Arc::new(session);
                *state = State::Up(session.clone());
                Ok(session)
            }
            Err(error) => {
                backoff.failed(&error);
                Err(error)
            }
        }
    }
}

async fn connect(settings: &Settings) -> Result<Session, Error> {
    let bare = Session::connect(settings, None)
        .await
        .map_err(fault::at_reconnect)?;
    bare.prepare(settings).await
}

//! The connection to one member, made when it is first needed and again after it broke.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tonic::transport::{Channel, Endpoint};

use super::fault::{Fault, root};

/// How long making a connection may take.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// The way to one member.
pub(super) struct Link {
    place: String,
    endpoint: Endpoint,
    state: Mutex<State>,
    made: AtomicU64,
}

enum State {
    /// There is none yet, or it broke.
    Down { last: Option<(Instant, Fault)> },
    /// It stood when we last looked.
    Up { connection: Connection },
}

/// A connection, and which one of this link it is.
#[derive(Clone)]
pub(super) struct Connection {
    pub channel: Channel,
    number: u64,
}

impl Link {
    /// To this place.
    pub fn new(place: String, endpoint: Endpoint) -> Self {
        Self {
            place,
            endpoint,
            state: Mutex::new(State::Down { last: None }),
            made: AtomicU64::new(0),
        }
    }

    /// Host and port.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The connection. Of many who ask while there is none, one makes it and all share what came
    /// of it: a batch must not wait for a dead member once per write.
    pub async fn connection(&self) -> Result<Connection, Fault> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        match &*state {
            State::Up { connection } => return Ok(connection.clone()),
            State::Down {
                last: Some((at, fault)),
            } if *at >= asked => return Err(fault.clone()),
            State::Down { .. } => {}
        }
        match self.connect().await {
            Ok(channel) => {
                let connection = Connection {
                    channel,
                    number: self.made.fetch_add(1, Ordering::Relaxed),
                };
                *state = State::Up {
                    connection: connection.clone(),
                };
                Ok(connection)
            }
            Err(fault) => {
                *state = State::Down {
                    last: Some((Instant::now(), fault.clone())),
                };
                Err(fault)
            }
        }
    }

    /// Forgets a connection that broke: the next one who asks makes a new one. Who is late to say
    /// so does not take the new one along.
    pub async fn forget(&self, broken: &Connection) {
        let mut state = self.state.lock().await;
        if matches!(&*state, State::Up { connection } if connection.number == broken.number) {
            *state = State::Down { last: None };
        }
    }

    async fn connect(&self) -> Result<Channel, Fault> {
        let why = match timeout(CONNECT_WITHIN, self.endpoint.connect()).await {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(error)) => root(&error),
            Err(_) => format!("no connection within {} s", CONNECT_WITHIN.as_secs()),
        };
        let told = format!("{}: {why}", self.place);
        // A certificate does not become good by trying again.
        match why.to_ascii_lowercase().contains("certificate") {
            true => Err(Fault::Refused(told)),
            false => Err(Fault::NotDone(told)),
        }
    }
}

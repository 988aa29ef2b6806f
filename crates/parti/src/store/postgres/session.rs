//! One connection, made ready: its settings, its prepared statements, its limits.
//!
//! ```text
//!   connect ──▶ Session<()> ── prepare ──▶ Session<Statements> ── late, closed ──▶ dead
//! ```

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, Error as Failure, Row, Socket, Statement};

use super::super::Error;
use super::fault::{self, During, NoSession};
use super::settings::Settings;

/// How long connecting may take, with all hosts and addresses.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an answer may take. Longer than the server's own limits in [`SETUP`], so that a server
/// that is only slow says itself that nothing was done.
const ANSWER: Duration = Duration::from_secs(10);

/// How long a session that nobody uses any more has to say goodbye.
const GOODBYE: Duration = Duration::from_secs(5);

/// Nothing waits for ever; nobody else's names can stand before PostgreSQL's own; a commit that is
/// acknowledged is on disk; a write that waited for another one looks at what that one left.
const SETUP: &str = "
    SET statement_timeout = '8s';
    SET lock_timeout = '4s';
    SET search_path = pg_catalog;
    SET client_min_messages = warning;
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') = 'off';";

/// A connection. Dropping it ends it.
pub(super) struct Session<S = Statements> {
    pub(super) client: Client,
    pub(super) statements: S,
    dead: AtomicBool,
    // Its end tells the task of the connection that nobody is left.
    in_use: oneshot::Sender<()>,
}

/// What is prepared on each connection.
pub(super) struct Statements {
    /// See [`super::write`].
    pub(super) write: Statement,
    /// The same, for checkpoints that are there already.
    pub(super) commit: Statement,
    /// The rows of some keys.
    pub(super) current: Statement,
    /// The rows of a range of keys.
    pub(super) list: Statement,
    /// See [`super::watch`].
    pub(super) changes: Statement,
    /// Removes the rows of keys that were deleted long ago.
    pub(super) forget: Statement,
}

/// Why a query has no rows to show.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No answer in time.
    Late,
    /// An answer that is a failure, or the connection's end.
    Failed(Failure),
}

impl Trouble {
    pub(super) fn told(&self, during: During) -> Error {
        match (self, during) {
            (Trouble::Failed(failure), _) => fault::of(failure, during),
            (Trouble::Late, During::Asking) => {
                Error::unavailable(format!("the server did not answer within {ANSWER:?}"))
            }
            (Trouble::Late, During::Writing) => {
                Error::unknown(format!("the server did not answer within {ANSWER:?}"))
            }
        }
    }
}

impl Session<()> {
    /// Connects. Notifications go to `notes`, whose other end learns of the connection's end too.
    pub(super) async fn connect(
        settings: &Settings,
        notes: Option<mpsc::UnboundedSender<String>>,
    ) -> Result<Self, NoSession> {
        let connected = timeout(CONNECT, settings.config.connect(settings.tls.clone()));
        let (client, connection) = match connected.await {
            Ok(Ok(connected)) => connected,
            Ok(Err(failure)) => return Err(fault::connecting(&failure).of(&settings.name)),
            Err(_) => {
                let why = format!("no server answered within {CONNECT:?}");
                return Err(NoSession::from(Error::unavailable(why)).of(&settings.name));
            }
        };
        let (in_use, unused) = oneshot::channel();
        tokio::spawn(serve(connection, notes, unused));
        let session = Self {
            client,
            statements: (),
            dead: AtomicBool::new(false),
            in_use,
        };
        session.run(SETUP).await?;
        Ok(session)
    }

    /// Makes it ready for operations.
    pub(super) async fn prepare(self, settings: &Settings) -> Result<Session, Error> {
        let text = |sql: &str| sql.replace("{schema}", &settings.schema);
        let channel = settings.channel.as_str();
        let write = text(super::write::WRITE).replace("{channel}", channel);
        let commit = text(super::write::COMMIT);
        let (current, forget) = (text(super::write::CURRENT), text(super::write::FORGET));
        let (list, changes) = (text(super::rows::LIST), text(super::watch::CHANGES));
        let prepared = async {
            // Together: one round trip.
            tokio::try_join!(
                self.client.prepare(&write),
                self.client.prepare(&commit),
                self.client.prepare(&current),
                self.client.prepare(&list),
                self.client.prepare(&changes),
                self.client.prepare(&forget),
            )
        };
        let (write, commit, current, list, changes, forget) = timeout(ANSWER, prepared)
            .await
            .map_err(|_| Trouble::Late.told(During::Asking))?
            .map_err(|failure| fault::of(&failure, During::Asking))?;
        Ok(Session {
            client: self.client,
            dead: self.dead,
            in_use: self.in_use,
            statements: Statements {
                write,
                commit,
                current,
                list,
                changes,
                forget,
            },
        })
    }
}

impl<S> Session<S> {
    /// Runs statements that answer with nothing, together one transaction.
    pub(super) async fn run(&self, sql: &str) -> Result<(), Error> {
        self.within(self.client.batch_execute(sql))
            .await
            .map_err(|trouble| trouble.told(During::Asking))
    }

    /// Runs a prepared statement.
    pub(super) async fn query(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Trouble> {
        self.within(self.client.query(statement, parameters)).await
    }

    pub(super) async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Trouble> {
        let trouble = match timeout(ANSWER, answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(failure)) => Trouble::Failed(failure),
            Err(_) => Trouble::Late,
        };
        let useless = match &trouble {
            Trouble::Late => true,
            Trouble::Failed(failure) => fault::ends_session(failure),
        };
        if useless {
            self.dead.store(true, Ordering::Relaxed);
        }
        Err(trouble)
    }

    /// Whether it is of no use any more.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) || self.client.is_closed() || self.in_use.is_closed()
    }
}

/// Moves bytes until the connection ends, or until nobody uses it any more.
async fn serve<T: TlsStream + Unpin>(
    mut connection: Connection<Socket, T>,
    notes: Option<mpsc::UnboundedSender<String>>,
    unused: oneshot::Receiver<()>,
) {
    let pass_on = |message| match (message, &notes) {
        // Nobody listens: the session is about to end.
        (AsyncMessage::Notification(note), Some(notes)) => {
            let _ = notes.send(note.payload().to_owned());
        }
        (AsyncMessage::Notice(notice), _) => tracing::debug!("{}", notice.message()),
        _ => {}
    };
    let traffic = async {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(message)) => pass_on(message),
                Some(Err(failure)) => {
                    tracing::debug!("a connection to PostgreSQL ended: {failure}");
                    return;
                }
                None => return,
            }
        }
    };
    tokio::pin!(traffic);
    tokio::select! {
        () = &mut traffic => {}
        // What is sent is still carried out, and a goodbye is said; a stuck server gets none.
        _ = unused => {
            let _ = timeout(GOODBYE, traffic).await;
        }
    }
}

//! Records in PostgreSQL, in plain tables that a person can query.
//!
//! ```text
//!   read, list, write ──▶ Lanes ──▶ 1 or 2 connections ──┐
//!                                                        ├──▶ schema parti
//!   watch ──▶ Hub ──▶ 1 connection: LISTEN, and a poll ──┘     records (key, value, revision, …)
//!                                                              records_readable, checkpoints: views
//! ```
//!
//! `postgres://[user:password@]host[:5432][,host…][/database][?…]` with these parameters:
//!
//! | parameter | what |
//! |---|---|
//! | `schema` | where the tables are; `parti` if not said |
//! | `sslmode` | `disable`; `prefer` (if not said): encrypt if the server can; `require` |
//! | `ca` | a file of certificates (PEM) to check the server by, instead of the system's |
//! | `cert`, `key` | files (PEM) with which to prove who we are |
//! | `application_name` | how the server lists our sessions; `parti` if not said |
//! | `connections` | how many to use at most for operations, 1 to 32; 2 if not said |
//!
//! - `require` always checks the server's certificate and its name. `prefer` does so only if `ca` is
//!   given; otherwise it protects from listeners, not from someone who answers in the server's place.
//! - Of several hosts, the first that can be written to is used: replicas are passed over.
//! - PostgreSQL 13 or newer, with a database whose encoding is UTF-8.
//! - Connect to the server itself, or to a pooler in session mode. A pooler in transaction mode
//!   breaks prepared statements, session settings and notifications.
//! - Commits are durable before they are acknowledged: a session that would find
//!   `synchronous_commit = off` turns it on for itself. Every other setting waits at least for the
//!   server's own disk and is left to the operator, who chose how many replicas a commit waits for.
//! - Rows must not be removed by hand, except those whose value is NULL.
//!
//! # How a batch is written
//!
//! A batch is one statement, one round trip and one commit (a large one is cut into several), and
//! each write in it fares on its own: `INSERT … ON CONFLICT DO UPDATE … WHERE` the row, in its newest
//! version and locked, is as expected. Rows are locked in the order of their keys, so batches do not
//! block each other in a circle. Revisions come from one sequence and are drawn while the row is
//! locked. A deleted key stays for an hour as a row without value: so a revision that was drawn
//! early cannot come to stand after a later one, and watchers learn of deletes.
//!
//! # How a watch works
//!
//! Transactions commit in another order than they draw numbers, so "everything above the last
//! number seen" would miss what commits late. Each row therefore carries its transaction's id. A
//! poll reads the rows whose transaction had not surely ended when the poll before it looked (its
//! snapshot's `xmin`): whatever was invisible then is among them. What comes twice is known by its
//! revision and dropped. Notifications, sent within the write's own transaction, only say which keys
//! to look at sooner than in a second; losing one costs a second, never a change. Checkpoints
//! (`partitions/…`) are not notified: hardly anyone watches them, and commits that notify queue behind
//! each other in PostgreSQL. Whoever does watch them polls five times a second.

mod fault;
mod layout;
mod pool;
mod rows;
mod session;
mod settings;
mod tls;
mod watch;
mod write;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use self::pool::Lanes;
use self::session::Session;
use self::settings::Settings;
use self::watch::Hub;
use super::{About, Entry, Error, Revision, Scope, Store, Watch, Write, check_key};

/// A store in PostgreSQL. Clones share their connections. See the [module](self).
#[derive(Clone)]
pub struct Postgres {
    settings: Arc<Settings>,
    lanes: Arc<Lanes>,
    hub: Arc<Hub>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.settings.name)
    }
}

/// Whether the URL can be used.
pub(super) fn check_url(url: &str) -> Result<(), Error> {
    Settings::parse(url).map(|_| ())
}

impl Postgres {
    /// Connects, and creates what is missing. Fails if the tables can neither be used nor made.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let settings = Arc::new(Settings::parse(url)?);
        let bare = Self::connect(&settings).await?;
        Self::on(bare, settings).await
    }

    /// The same, unless the database has no tables of Parti: then nothing is made.
    pub(super) async fn open_existing(url: &str) -> Result<Option<Self>, Error> {
        let settings = Arc::new(Settings::parse(url)?);
        let bare = Self::connect(&settings).await?;
        if !layout::is_there(&bare, &settings).await? {
            return Ok(None);
        }
        Self::on(bare, settings).await.map(Some)
    }

    async fn connect(settings: &Arc<Settings>) -> Result<Session<()>, Error> {
        let connected = Session::connect(settings, None).await;
        connected.map_err(fault::at_open)
    }

    async fn on(bare: Session<()>, settings: Arc<Settings>) -> Result<Self, Error> {
        layout::ensure(&bare, &settings).await?;
        let session = bare.prepare(&settings).await?;
        write::forget_old_deletes(&session).await;
        Ok(Self {
            lanes: Arc::new(Lanes::new(settings.clone(), session)),
            hub: Arc::new(Hub::new(settings.clone())),
            settings,
        })
    }
}

#[async_trait]
impl Store for Postgres {
    fn name(&self) -> &str {
        &self.settings.name
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, Error> {
        check_key(key)?;
        Ok(rows::list(&self.lanes, &Scope::Key(key.into()))
            .await?
            .pop())
    }

    async fn list(&self, scope: &Scope) -> Result<Vec<Entry>, Error> {
        scope.check()?;
        rows::list(&self.lanes, scope).await
    }

    async fn about(&self) -> Result<About, Error> {
        layout::about(&self.lanes).await
    }

    async fn write(&self, batch: Vec<Write>) -> Vec<Result<Revision, Error>> {
        write::write(&self.lanes, batch).await
    }

    fn watch(&self, scope: Scope) -> Watch {
        watch::watch(self.hub.clone(), scope)
    }
}

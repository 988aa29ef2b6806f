//! Whether this instance lives, and whether it can do its work: for whoever starts and balances
//! instances. The same words as a worker's own (`parti consume --metrics`).
//!
//! Nobody needs a token for this, so nothing is told of what this service holds; and nobody can make
//! the store work by asking often: one look serves all who ask within a second. A look only reads:
//! whether the store writes is known from those who had something to write.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use parti::core::key::Key;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::App;
use crate::failure::{ErrorBody, Failure};
use crate::places::Places;

/// A look serves those who ask within this time.
const FRESH: Duration = Duration::from_secs(1);
/// A store that does not answer within this time cannot be reached.
const PATIENCE: Duration = Duration::from_secs(5);
/// The records of a group that need not be there: reading one shows that the store answers.
const SOME_GROUP: &str = "readyz";

/// The last look at the store: when, and what was wrong.
#[derive(Debug, Default)]
pub struct Health(Mutex<Option<(Instant, Result<(), &'static str>)>>);

impl Health {
    async fn look(&self, places: &Places) -> Result<(), &'static str> {
        let mut last = self.0.lock().await;
        if let Some((at, found)) = *last
            && at.elapsed() < FRESH
        {
            return found;
        }
        let found = answers(places).await;
        *last = Some((Instant::now(), found));
        found
    }
}

async fn answers(places: &Places) -> Result<(), &'static str> {
    let Ok(records) = places.records(SOME_GROUP) else {
        return Ok(());
    };
    match tokio::time::timeout(PATIENCE, records.read(&Key::Group)).await {
        Ok(Ok(_)) => has_its_log(places).await,
        Ok(Err(error)) => {
            tracing::warn!("the store cannot be used: {error}");
            Err("the store cannot be used; the log of this service says why")
        }
        Err(_) => {
            tracing::warn!("the store does not answer");
            Err("the store does not answer")
        }
    }
}

async fn has_its_log(places: &Places) -> Result<(), &'static str> {
    match places.keeps_its_log().await {
        Ok(true) => Ok(()),
        Ok(false) => {
            tracing::warn!("the log's folder is gone");
            Err("the log's folder is gone")
        }
        Err(error) => {
            tracing::warn!("the log cannot be opened: {error}");
            Err("the log cannot be opened; what this service logs says why")
        }
    }
}

/// Whether the process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn healthz() -> &'static str {
    "alive\n"
}

/// Whether this instance can do its work: its store answers, took what was last written, its log is
/// there and took what was last produced, and it does not stop. Else the error says what is wrong.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody)
))]
pub async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, Failure> {
    let found = if app.sessions.is_stopping() {
        Err("this instance stops")
    } else {
        match app.places.standing.trouble() {
            Some(trouble) => Err(trouble),
            None => app.health.look(&app.places).await,
        }
    };
    found.map(|()| "ready\n").map_err(|why| {
        let remedy = "ask another instance, or this one later";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why, remedy)
    })
}

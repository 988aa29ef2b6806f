//! An endpoint for Prometheus, with health and readiness.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all metrics, as OpenMetrics if asked for, else as Prometheus text |
//! | `/healthz` | 200: the process answers |
//! | `/readyz` | 200 while every worker has its assignment and a live lease, and its source refuses nothing; else 503 and why |
//!
//! It is for whoever scrapes: it has no password, so leave it on loopback or behind something that
//! guards it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::Semaphore;
use tokio_util::sync::DropGuard;

use super::text::{self, open_metrics};
use super::{Metrics, handles};
use crate::driver::tasks::Tasks;
use crate::member::Readiness;

/// So many connections are answered at once.
const CONNECTIONS: usize = 64;
/// Whoever does not say within this time what it wants is hung up on.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often histograms are put in order, also when nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be used.
    #[error("metrics cannot be served on {address}: {error}")]
    Address {
        /// Which.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The process has a recorder already.
    #[error(
        "the process has a metrics recorder already; give the endpoint's own to the worker \
         instead, by Endpoint::metrics"
    )]
    Installed,
}

/// Serves metrics over HTTP, until it is dropped.
pub struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    recorder: Arc<PrometheusRecorder>,
    _guard: DropGuard,
}

struct Shared {
    handle: PrometheusHandle,
    workers: Mutex<Vec<Readiness>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.address)
    }
}

impl Endpoint {
    /// Listens here; port 0 is any that is free.
    pub async fn open(address: impl ToSocketAddrs + fmt::Display) -> Result<Self, EndpointError> {
        let name = address.to_string();
        let unusable = |error| EndpointError::Address {
            address: name.clone(),
            error,
        };
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let mut builder = PrometheusBuilder::new();
        for (metric, bounds) in text::buckets() {
            let matcher = Matcher::Full(metric.to_owned());
            builder = builder
                .set_buckets_for_metric(matcher, bounds)
                .map_err(|error| unusable(io::Error::other(error)))?;
        }
        let recorder = Arc::new(builder.build_recorder());
        handles::describe(recorder.as_ref());
        let shared = Arc::new(Shared {
            handle: recorder.handle(),
            workers: Mutex::default(),
        });
        let (tasks, guard) = Tasks::new();
        tasks.spawn(listen(listener, shared.clone(), tasks.clone()));
        let handle = recorder.handle();
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                handle.run_upkeep();
            }
        });
        Ok(Self {
            address,
            shared,
            recorder,
            _guard: guard,
        })
    }

    /// Makes this the recorder of the whole process, before workers are started: all of them, and
    /// whatever else uses the crate `metrics`, show here.
    pub fn install(self) -> Result<Self, EndpointError> {
        metrics::set_global_recorder(self.recorder.clone())
            .map_err(|_| EndpointError::Installed)?;
        Ok(self)
    }

    /// Metrics that show here, for the builder of a worker.
    pub fn metrics(&self) -> Metrics {
        Metrics::to(self.recorder.clone())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts this worker for `/readyz`. Without any, the answer is no.
    pub fn ready_when(&self, worker: Readiness) {
        let workers = self.shared.workers.lock();
        workers.unwrap_or_else(PoisonError::into_inner).push(worker);
    }

    /// What `/metrics` shows now, as Prometheus text.
    pub fn render(&self) -> String {
        self.shared.handle.render()
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>, tasks: Tasks) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                tasks.spawn(async move {
                    converse(stream, shared).await;
                    drop(slot);
                });
            }
            // Too many open files, say: that passes.
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics endpoint was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let answers = service_fn(move |request| {
        let response = shared.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), answers);
    // Whoever hangs up has what it wanted.
    let _ = conversation.await;
}

impl Shared {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".into());
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(ALLOW, allowed);
            return refused;
        }
        match request.uri().path() {
            "/metrics" => {
                let accepts = request.headers().get(ACCEPT);
                let accepts = accepts.and_then(|accepts| accepts.to_str().ok());
                let open =
                    accepts.is_some_and(|kinds| kinds.contains("application/openmetrics-text"));
                let text = self.handle.render();
                if open {
                    answer(StatusCode::OK, text::OPEN, open_metrics(&text))
                } else {
                    answer(StatusCode::OK, text::PLAIN, text)
                }
            }
            "/healthz" => plain(StatusCode::OK, "alive\n".into()),
            "/readyz" => match self.not_ready() {
                None => plain(StatusCode::OK, "ready\n".into()),
                Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            },
            _ => plain(
                StatusCode::NOT_FOUND,
                "here are /metrics, /healthz and /readyz\n".into(),
            ),
        }
    }

    fn not_ready(&self) -> Option<String> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if workers.is_empty() {
            return Some("no worker has started yet".to_owned());
        }
        workers.iter().find_map(Readiness::not_ready)
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    answer(status, "text/plain; charset=utf-8", text)
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

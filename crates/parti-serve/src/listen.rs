//! Connections: accepted up to a limit, given little time to say what they want, ended in good
//! order.
//!
//! ```text
//!   accept ──▶ slot ──▶ TLS, if configured ──▶ HTTP/1.1 ──▶ router
//!               │                                 │ stop: the answer under way, then the end
//!               └─ none is left: TLS, if configured, 503, and goodbye
//! ```
//!
//! A connection whose other side is gone, or takes nothing, is dropped by the kernel once what was
//! written has waited for too long.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Whoever does not say within this time what it wants is hung up on.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
pub(crate) const HEAD_BYTES: usize = 32 * 1024;
/// Headers of a request that are still read, so that it can be told that they are too many. A head
/// that is larger than its buffer, or has more headers than this, is refused without a body.
const HEADERS: usize = 256;
/// So many may come at once, before the first of them is looked at.
const ARRIVALS: u32 = 4_096;
/// So many are told at once that there is no room; more than that are hung up on without a word.
const REFUSALS: usize = 64;
/// Whoever is told so has this time to listen.
const REFUSAL: Duration = Duration::from_secs(2);

/// A certificate and its key, as files in PEM.
#[derive(Clone, Debug)]
pub struct Tls(Arc<rustls::ServerConfig>);

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be served with {file}: {why}")]
pub struct TlsError {
    file: String,
    why: String,
}

impl Tls {
    /// Reads both files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let wrong = |file: &Path, why: String| TlsError {
            file: file.display().to_string(),
            why,
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(certificate, error.to_string()))?;
        let key_file = key;
        let key = PrivateKeyDer::from_pem_file(key_file)
            .map_err(|error| wrong(key_file, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(certificate, error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| wrong(certificate, error.to_string()))?;
        Ok(Self(Arc::new(config)))
    }
}

/// What connections share.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) router: Router,
    pub(crate) tls: Option<Tls>,
    /// So many at once.
    pub(crate) connections: usize,
    /// What was written has to be taken within this time.
    pub(crate) unread: Duration,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Routes requests of one connection.
struct Routed {
    router: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for Routed {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.router.call(request)
    }
}

/// Takes the address, with room for those who all come at once.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // An instance that starts again need not wait until old connections are forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ARRIVALS)
}

/// Accepts until it is told to stop. Whoever comes when all slots are taken is told so at once:
/// nobody waits before a closed door.
pub(crate) async fn listen(listener: TcpListener, door: Door) {
    let slots = Arc::new(Semaphore::new(door.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    loop {
        let accepted = tokio::select! {
            () = door.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Ok(slot) = slots.clone().try_acquire_owned() {
                    let serving = door.clone().welcome(stream, peer);
                    door.tasks.spawn(async move {
                        serving.await;
                        drop(slot);
                    });
                } else if let Ok(slot) = refusals.clone().try_acquire_owned() {
                    let refusing = Box::pin(refuse(stream, door.tls.clone()));
                    door.tasks.spawn(async move {
                        let _ = tokio::time::timeout(REFUSAL, refusing).await;
                        drop(slot);
                    });
                }
            }
            // Too many open files, say: that passes.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Says that there is no room, in the words that the other side understands.
async fn refuse(stream: TcpStream, tls: Option<Tls>) -> io::Result<()> {
    match tls {
        None => say_no(stream).await,
        Some(tls) => say_no(TlsAcceptor::from(tls.0).accept(stream).await?).await,
    }
}

/// Takes what the other side still sends: closed too early, the answer would be lost.
async fn say_no(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let body = serde_json::json!({"error": {
        "code": "too_many",
        "message": "this instance has as many connections as it takes on",
        "remedy": "close some, ask another instance, or try again in a moment",
    }});
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut unheard = [0; 1024];
    while stream.read(&mut unheard).await? > 0 {}
    Ok(())
}

impl Door {
    async fn welcome(self, stream: TcpStream, peer: SocketAddr) {
        if let Err(error) = set_up(&stream, self.unread) {
            tracing::debug!(%peer, %error, "a connection could not be set up");
            return;
        }
        let Some(tls) = &self.tls else {
            // In a place of its own, so that nobody needs the room that TLS would.
            return Box::pin(self.converse(TokioIo::new(stream), peer)).await;
        };
        let shaking = Box::pin(TlsAcceptor::from(tls.0.clone()).accept(stream));
        match tokio::time::timeout(PATIENCE, shaking).await {
            Ok(Ok(stream)) => Box::pin(self.converse(TokioIo::new(stream), peer)).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS handshake"),
            Err(_) => tracing::debug!(%peer, "no TLS handshake in time"),
        }
    }

    async fn converse(self, io: impl Read + Write + Unpin, peer: SocketAddr) {
        let routed = Routed {
            router: TowerToHyperService::new(self.router),
            peer: Peer(peer),
        };
        let conversation = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_headers(HEADERS)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(io, routed);
        let mut conversation = pin!(conversation);
        let ended = tokio::select! {
            ended = conversation.as_mut() => ended,
            () = self.stop.cancelled() => {
                conversation.as_mut().graceful_shutdown();
                conversation.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection ended early");
        }
    }
}

/// Small answers go out at once; the kernel gives up on whoever takes nothing.
fn set_up(stream: &TcpStream, unread: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    {
        let limit = u32::try_from(unread.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(stream, limit)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = unread;
    Ok(())
}

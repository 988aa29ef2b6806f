//! The service over TLS, with a certificate of its own.

use std::process::Command;
use std::sync::Arc;

use parti_serve::{Service, Tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::{PATIENCE, request, send};
use crate::scene::{Scene, settings};

/// A service over TLS that takes on so many connections, and a client that knows its certificate.
async fn secure(connections: usize) -> (Scene, TlsConnector, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let made = Command::new("openssl")
        .current_dir(folder.path())
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '))
        .args("-keyout key.pem -out cert.pem -days 2 -subj /CN=localhost".split(' '))
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .output();
    let made = made.expect("openssl, to make a certificate: apt-get install openssl");
    assert!(made.status.success(), "{made:?}");
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    assert!(Tls::read(&key, &cert).is_err(), "the wrong way round");
    let tls = Tls::read(&cert, &key).expect("both");
    let scene = Scene::with(|settings| {
        settings.tls = Some(tls);
        settings.limits.connections = connections;
    })
    .await;
    assert!(scene.service.url().starts_with("https://"));
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(&cert).expect("PEM"))
        .expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (scene, TlsConnector::from(Arc::new(config)), folder)
}

async fn connect(scene: &Scene, connector: &TlsConnector) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(scene.address()).await;
    let name = ServerName::try_from("localhost").expect("a name");
    let shaking = connector.connect(name, stream.expect("a connection"));
    let shaken = tokio::time::timeout(PATIENCE, shaking).await;
    shaken.expect("in time").expect("a handshake")
}

async fn ask(stream: &mut TlsStream<TcpStream>, path: &str) {
    let headers = [("host", "localhost")];
    let address = stream.get_ref().0.peer_addr().expect("an address");
    let text = request(address, "GET", path, &headers, None);
    stream.write_all(text.as_bytes()).await.expect("sent");
}

async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = String::new();
    let reading = stream.read_to_string(&mut answer);
    // The server may close without a goodbye of TLS: what counts has been read by then.
    let _ = tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("in time");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_by_files() {
    let (scene, connector, _folder) = secure(8).await;
    let mut stream = connect(&scene, &connector).await;
    ask(&mut stream, "/v1/about").await;
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("strict-transport-security"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_too_many_is_told_so_over_tls() {
    let (scene, connector, _folder) = secure(1).await;
    let plain = settings(scene.store.clone(), &scene.folder).await;
    let plain = Service::start(plain).await.expect("a second instance");
    let group = json!({"group": "g", "topic": "t", "partitions": 1}).to_string();
    let made = send(plain.address(), "POST", "/v1/groups", &[], Some(&group)).await;
    made.ok(201);
    // One that is there for as long as it likes.
    let mut first = connect(&scene, &connector).await;
    ask(&mut first, "/v1/groups/g/live").await;
    let mut head = [0; 12];
    first.read_exact(&mut head).await.expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
    let refused = answer(&mut connect(&scene, &connector).await).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains(r#""code":"too_many""#), "{refused}");
}

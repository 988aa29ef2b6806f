//! Each server starts, answers, dies, comes back on its port with its data, pauses and goes on.

mod clients;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use clients::{Nats, Postgres, etcd_get, etcd_put};
use parti_servers::{Kind, Running, etcd, http, nats, postgres};

/// Kills a server and starts it again; the port stays.
fn kill_and_restart<K: Kind>(server: &mut Running<K>) {
    let (address, id) = (server.address(), server.id().unwrap());
    server.kill();
    assert!(!server.is_running());
    assert!(!Path::new(&format!("/proc/{id}")).exists());
    assert!(TcpStream::connect(&address).is_err(), "nobody listens");
    server.restart();
    assert_eq!(server.address(), address);
    assert_ne!(server.id().unwrap(), id);
}

/// The states of a process and its children, as one text of letters: T is stopped.
fn states(id: u32) -> String {
    let mut states = String::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = text.rsplit_once(") ") else {
            continue;
        };
        let parent = rest.split(' ').nth(1).unwrap();
        if parent == id.to_string() || entry.file_name() == *id.to_string() {
            states.push_str(&rest[..1]);
        }
    }
    states
}

fn ends_with_its_folder<K: Kind>(server: Running<K>) {
    let (address, folder) = (server.address(), server.folder().to_owned());
    assert!(folder.exists());
    drop(server);
    assert!(!folder.exists());
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
}

fn nats_lives_dies_and_comes_back(mut server: nats::Server) {
    assert_eq!(server.url(), format!("nats://{}", server.address()));
    let mut client = Nats::open(&server.address());
    let created = client.create_stream();
    assert!(!created.contains("\"error\""), "{created}");
    assert!(client.request("letter.a", "x").contains("\"seq\":1"));

    kill_and_restart(&mut server);
    let mut client = Nats::open(&server.address());
    assert_eq!(client.letters(), 1);

    server.pause();
    assert_eq!(states(server.id().unwrap()), "T");
    client.ask("letter.b", "y");
    server.resume();
    assert!(client.reply().contains("\"seq\":2"));
    ends_with_its_folder(server);
}

#[test]
fn nats_newest() {
    nats_lives_dies_and_comes_back(nats::Server::start());
}

#[test]
fn nats_oldest() {
    let server = nats::Server::start_version("2.10.26");
    let about = http::get(&server.monitor(), "/varz").unwrap();
    assert!(about.contains("\"version\": \"2.10.26\""), "{about}");
    nats_lives_dies_and_comes_back(server);
}

#[test]
fn nats_with_a_user_lets_nobody_else_in() {
    let server = nats::Server::builder().user("ann", "secret").start();
    let address = server.address();
    assert_eq!(server.url(), format!("nats://ann:secret@{address}"));
    assert!(Nats::open_with(&address, r#"{"user":"ann","pass":"secret"}"#).is_ok());
    assert!(Nats::open_with(&address, r#"{"user":"ann","pass":"wrong"}"#).is_err());
    assert!(Nats::open_with(&address, "{}").is_err());
}

#[test]
fn nats_with_a_token_lets_nobody_else_in() {
    let server = nats::Server::builder().token("secret").start();
    assert!(Nats::open_with(&server.address(), r#"{"auth_token":"secret"}"#).is_ok());
    assert!(Nats::open_with(&server.address(), r#"{"auth_token":"wrong"}"#).is_err());
}

#[test]
fn nats_with_a_credentials_file_lets_nobody_else_in() {
    let mut server = nats::Server::builder().credentials().start();
    let file = std::fs::read_to_string(server.credentials_file().unwrap()).unwrap();
    assert!(file.contains("USER NKEY SEED"));
    assert!(Nats::open_with(&server.address(), "{}").is_err());
    server.restart();
}

#[test]
fn nats_keeps_to_its_limits() {
    let server = nats::Server::builder().max_payload(2048).start();
    let about = http::get(&server.monitor(), "/varz").unwrap();
    assert!(about.contains("\"max_payload\": 2048"), "{about}");
    let server = nats::Server::builder().without_jetstream().start();
    let about = http::get(&server.monitor(), "/jsz").unwrap();
    assert!(about.contains("\"disabled\": true"), "{about}");
}

/// What the program openssl says of a certificate when it connects.
fn tls_handshake(address: &str, authority: &Path, protocol: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", address, "-verify_return_error"])
        .args(protocol)
        .arg("-CAfile")
        .arg(authority)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const VERIFIED: &str = "Verify return code: 0 (ok)";

#[test]
fn nats_with_tls() {
    let mut server = nats::Server::builder().tls().start();
    assert!(server.url().starts_with("tls://"));
    let about = http::get(&server.monitor(), "/varz").unwrap();
    assert!(about.contains("\"tls_required\": true"), "{about}");
    assert!(server.ca_certificate().unwrap().exists());
    server.restart();
    assert!(nats::Server::start().ca_certificate().is_none());
}

#[test]
fn etcd_lives_dies_and_comes_back() {
    let mut server = etcd::Server::start();
    assert_eq!(server.url(), format!("etcd://{}", server.address()));
    etcd_put(&server.address(), "Yg==", "eA==").unwrap();

    kill_and_restart(&mut server);
    let found = etcd_get(&server.address(), "Yg==").unwrap();
    assert!(found.contains("eA=="), "{found}");

    server.pause();
    assert_eq!(states(server.id().unwrap()), "T");
    // The kernel accepts the connection and takes the request; the answer comes later.
    let mut stream = clients::connect(&server.address());
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    server.resume();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"true\""), "{answer}");
    ends_with_its_folder(server);
}

#[test]
fn etcd_with_passwords_lets_nobody_else_in() {
    let mut server = etcd::Server::builder()
        .root_password("secret")
        .reader_password("public")
        .start();
    let address = server.address();
    assert_eq!(server.url(), format!("etcd://root:secret@{address}"));
    assert!(etcd_put(&address, "Yg==", "eA==").is_none());
    let login = |name: &str, password: &str| {
        let json = format!(r#"{{"name":"{name}","password":"{password}"}}"#);
        http::post(&address, "/v3/auth/authenticate", &json)
    };
    server.restart();
    assert!(login("root", "secret").is_some());
    assert!(login("reader", "public").is_some());
    assert!(login("root", "wrong").is_none());
}

#[test]
fn etcd_with_tls() {
    let server = etcd::Server::builder().root_password("x").tls().start();
    let authority = server.ca_certificate().unwrap();
    let said = tls_handshake(&server.address(), &authority, &[]);
    assert!(said.contains(VERIFIED), "{said}");
}

#[test]
fn postgres_lives_dies_and_comes_back() {
    let mut server = postgres::Server::start();
    let address = server.address();
    assert_eq!(server.url(), format!("postgres://parti@{address}/parti"));
    let mut client = Postgres::open(&address, "parti").unwrap();
    client.query("CREATE TABLE letter (text text)").unwrap();
    client.query("INSERT INTO letter VALUES ('x')").unwrap();

    kill_and_restart(&mut server);
    let mut client = Postgres::open(&address, "parti").unwrap();
    assert_eq!(client.query("SELECT text FROM letter").unwrap(), "x");

    server.pause();
    let states = states(server.id().unwrap());
    assert!(states.len() > 1, "it has children, one for our session");
    // One that had just ended, and that its frozen parent cannot clear away, does not run either.
    assert!(states.chars().all(|state| "TZ".contains(state)), "{states}");
    client.ask("SELECT 'y'");
    server.resume();
    assert_eq!(client.answer().unwrap(), "y");

    let mut reader = Postgres::open(&address, "reader").unwrap();
    assert_eq!(reader.query("SELECT text FROM letter").unwrap(), "x");
    let denied = reader.query("DELETE FROM letter").unwrap_err();
    assert!(denied.contains("C42501"), "{denied}");
    let mut replica = Postgres::open(&address, "replica").unwrap();
    let denied = replica.query("DELETE FROM letter").unwrap_err();
    assert!(denied.contains("C25006"), "{denied}");
    ends_with_its_folder(server);
}

#[test]
fn postgres_with_a_password_lets_nobody_else_in() {
    let server = postgres::Server::builder().password("it's").start();
    let refused = Postgres::open(&server.address(), "parti").err();
    assert_eq!(refused.as_deref(), Some("asks for a password"));
    assert!(server.url_of_reader().contains("reader:it's@"));
}

#[test]
fn postgres_with_tls() {
    let mut server = postgres::Server::builder().tls().start();
    let authority = server.ca_certificate().unwrap();
    let said = tls_handshake(&server.address(), &authority, &["-starttls", "postgres"]);
    assert!(said.contains(VERIFIED), "{said}");
    let refused = Postgres::open(&server.address(), "parti").err().unwrap();
    assert!(refused.contains("C28000"), "{refused}");
    server.restart();
}

/// Starts a nats-server in a process of its own, below this folder; its address and its own folder.
fn in_another_process(temporary: &Path) -> (std::process::Child, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_parti-servers"))
        .arg("nats")
        .env("TMPDIR", temporary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let folder = lines.next().unwrap().unwrap();
    // Read to its last line: it could not write into a pipe that nobody reads.
    assert_eq!(lines.next().unwrap().unwrap(), "Enter ends it.");
    let address = url.strip_prefix("nats://").unwrap().to_owned();
    let folder = folder.strip_prefix("log and data: ").unwrap().to_owned();
    (child, address, folder)
}

#[test]
fn a_killed_test_takes_its_servers_along_and_the_next_one_tidies_up() {
    // A place of its own, where no other test tidies up.
    let temporary = tempfile::tempdir().unwrap();
    let (mut child, address, folder) = in_another_process(temporary.path());
    drop(Nats::open(&address));
    child.kill().unwrap();
    child.wait().unwrap();
    while TcpStream::connect(&address).is_ok() {
        std::thread::yield_now();
    }
    assert!(Path::new(&folder).exists(), "nobody could remove it");

    let (mut child, address, second) = in_another_process(temporary.path());
    assert!(!Path::new(&folder).exists());
    assert!(Path::new(&second).exists());
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!Path::new(&second).exists());
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn a_server_that_cannot_start_shows_its_log() {
    let server = postgres::Server::builder().setting("no_such_setting", "1");
    let error = server.try_start().unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}

//! What the service logs: who came and went, what operators did, what was refused; never a secret.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use parti_serve::Access;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::client::{PATIENCE, send};
use crate::scene::Scene;
use crate::trouble::{Mood, moody};

const OPERATOR: &str = "secret-of-the-operator";
const READER: &str = "secret-of-a-reader";
const WRONG: &str = "secret-that-nobody-knows";

/// Everything that this process logs.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    /// Of all tests of this process, since whoever asks first.
    fn gather() -> &'static Self {
        static ALL: OnceLock<Lines> = OnceLock::new();
        ALL.get_or_init(|| {
            let lines = Lines::default();
            tracing_subscriber::fmt()
                .with_writer(lines.clone())
                .with_max_level(tracing::Level::DEBUG)
                .init();
            lines
        })
    }

    fn all(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }

    /// Waits for a line with all of these in it.
    async fn with(&self, parts: &[&str]) -> String {
        let looking = async {
            loop {
                let all = self.all();
                let has = |line: &&str| parts.iter().all(|part| line.contains(part));
                if let Some(line) = all.lines().find(has) {
                    return line.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("no line with {parts:?}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_is_logged_and_no_secret_ever_is() {
    let lines = Lines::gather();
    let access = Access::default().operate_token(OPERATOR);
    let scene = Scene::with(|settings| settings.access = access).await;
    let address = scene.address();
    lines
        .with(&["INFO", "listening", &address.to_string()])
        .await;
    let operator = format!("Bearer {OPERATOR}");
    let ask = async |path: &str, body: serde_json::Value| {
        let headers = [("authorization", operator.as_str())];
        send(address, "POST", path, &headers, Some(&body.to_string())).await
    };
    let group = json!({"group": "logged", "topic": "logged", "partitions": 2});
    ask("/v1/groups", group).await.ok(201);
    let sessions = "/v1/groups/logged/sessions";
    let forged = ask(sessions, json!({"consumer": "a\nfake line"})).await;
    assert_eq!(forged.status, 400, "one line stays one");
    let opened = ask(sessions, json!({"consumer": "a \"name\""})).await;
    let opened = opened.ok(201);
    let (session, token) = (opened["session"].as_str(), opened["token"].as_str());
    let (session, token) = (session.expect("a name"), token.expect("a token"));
    let begun = lines
        .with(&["INFO", "a session begins", "logged", session])
        .await;
    assert!(begun.contains(r#""a \"name\"""#), "{begun}");
    let pause = json!({"request": {"kind": "pause", "partition": "9"}, "why": "a try"});
    assert_eq!(ask("/v1/groups/logged/requests", pause).await.status, 409);
    lines
        .with(&[
            "INFO",
            "an operator's request",
            "operator",
            "pause partition 9",
            "a try",
        ])
        .await;
    let wrong = format!("Bearer {WRONG}");
    let refused = [("authorization", wrong.as_str())];
    assert_eq!(
        send(address, "GET", "/v1/groups/logged", &refused, None)
            .await
            .status,
        401
    );
    lines
        .with(&[
            "WARN",
            "a token was refused",
            "/v1/groups/logged",
            "127.0.0.1",
        ])
        .await;
    let path = format!("/v1/groups/logged/sessions/{session}");
    let own = format!("Bearer {token}");
    let own = [("authorization", own.as_str())];
    send(address, "DELETE", &path, &own, None).await.ok(200);
    lines
        .with(&["INFO", "a session ends", "logged", session, "deregistered"])
        .await;
    lines
        .with(&["DEBUG", "answered", "DELETE", &path, "200"])
        .await;
    let all = lines.all();
    for secret in [OPERATOR, WRONG, token] {
        assert!(!all.contains(secret), "a secret was logged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trouble_of_the_store_is_logged_with_its_reason() {
    let lines = Lines::gather();
    let (scene, store) = moody().await;
    store.be(Mood::Full);
    let group = json!({"group": "unlucky", "topic": "unlucky", "partitions": 1});
    assert_eq!(scene.post("/v1/groups", &group).await.status, 503);
    lines
        .with(&["WARN", "not done", "store_refuses", "no space is left"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_refusals_that_are_alike_one_is_logged_and_the_others_are_counted() {
    let lines = Lines::gather();
    let access = Access::default().operate_token(OPERATOR).read_token(READER);
    let scene = Scene::with(|settings| {
        settings.access = access;
        settings.limits.alike = Duration::from_secs(3_600);
    })
    .await;
    let wrong = format!("Bearer {WRONG}");
    let refused = [("authorization", wrong.as_str())];
    for number in 0..8 {
        let path = format!("/v1/groups/flood-{number}");
        let answer = send(scene.address(), "GET", &path, &refused, None).await;
        assert_eq!(answer.status, 401);
    }
    lines
        .with(&["WARN", "a token was refused", "/v1/groups/flood-0"])
        .await;
    // A token that may only look is refused where it tries more.
    let reader = format!("Bearer {READER}");
    let reader = [("authorization", reader.as_str())];
    for _ in 0..3 {
        let path = "/v1/groups/changed/requests";
        let answer = send(scene.address(), "POST", path, &reader, Some("{}")).await;
        assert_eq!(answer.status, 403);
    }
    let parts = ["WARN", "a token was refused", "changed", "403", "forbidden"];
    lines.with(&parts).await;
    // Whoever ends tells what it has held back.
    drop(scene);
    lines
        .with(&["WARN", "refused: 7 more like it", "401", "unauthorized"])
        .await;
    lines
        .with(&["WARN", "refused: 2 more like it", "403", "forbidden"])
        .await;
    let all = lines.all();
    let told = all.lines().filter(|line| line.contains("WARN"));
    let told = told.filter(|line| line.contains("/v1/groups/flood-"));
    assert_eq!(told.count(), 1);
    assert!(!all.contains(READER), "a secret was logged");
}

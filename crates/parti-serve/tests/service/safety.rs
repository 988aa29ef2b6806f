//! Whoever should not, cannot.

use axum::http::HeaderName;
use parti_serve::{Access, ServeError, Service, openapi};
use serde_json::{Value, json};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Reply, raw, request, send};
use crate::scene::{Manner, Scene, settings};

const ALL: &str = "a token for everything";
const SOME: &str = "a token for looking";

fn bearer(token: &str) -> String {
    format!("Bearer {}", token.replace(' ', "-"))
}

async fn guarded() -> Scene {
    Scene::with(|settings| {
        settings.access = Access::default()
            .operate_token(&ALL.replace(' ', "-"))
            .read_token(&SOME.replace(' ', "-"));
    })
    .await
}

async fn as_who(scene: &Scene, method: &str, path: &str, token: &str) -> Reply {
    let auth = bearer(token);
    let headers = [("authorization", auth.as_str())];
    let body = (method == "POST").then_some("{}");
    send(scene.address(), method, path, &headers, body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_allow_what_they_allow() {
    let scene = guarded().await;
    let about = as_who(&scene, "GET", "/v1/about", ALL).await.ok(200);
    assert_eq!(
        (&about["role"], &about["store"]),
        (&json!("operate"), &json!("memory:"))
    );
    assert_eq!(
        as_who(&scene, "GET", "/v1/about", SOME).await.ok(200)["role"],
        "read"
    );
    for path in ["/v1/about", "/v1/groups", "/v1/groups/g/live", "/v1/none"] {
        let refused = scene.get(path).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (401, "unauthorized"),
            "{path}"
        );
        assert!(
            refused
                .head
                .to_ascii_lowercase()
                .contains("www-authenticate: bearer")
        );
        assert_eq!(
            as_who(&scene, "GET", path, "a wrong token").await.status,
            401,
            "{path}"
        );
    }
    for path in [
        "/v1/groups",
        "/v1/groups/g/sessions",
        "/v1/groups/g/checkpoints",
    ] {
        assert_eq!(
            as_who(&scene, "POST", path, SOME).await.code(),
            "forbidden",
            "{path}"
        );
        assert_eq!(
            as_who(&scene, "POST", path, ALL).await.status,
            400,
            "{path}"
        );
    }
    assert_eq!(
        as_who(&scene, "POST", "/v1/groups/g/plan", SOME)
            .await
            .status,
        404
    );
    // What has no secret is open, so that the dashboard can ask for a token.
    assert_eq!(scene.get("/").await.status, 200);
    assert_eq!(scene.get("/v1/openapi.json").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_belong_to_whoever_has_their_token() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    let consumer = scene.consumer(Manner::Polite).await;
    let other = scene.consumer(Manner::Polite).await;
    let path = format!("/v1/groups/g/sessions/{}/heartbeat", consumer.session);
    let with = async |token: &str, path: &str| {
        let auth = format!("Bearer {token}");
        send(
            scene.address(),
            "POST",
            path,
            &[("authorization", &auth)],
            None,
        )
        .await
    };
    assert_eq!(with(&consumer.token, &path).await.status, 200);
    let mut almost = consumer.token.clone();
    let last = if almost.pop() == Some('A') { 'B' } else { 'A' };
    almost.push(last);
    let long = "x".repeat(5_000);
    for wrong in ["", "x", &other.token, &almost, &long] {
        assert_eq!(with(wrong, &path).await.status, 401, "{wrong}");
    }
    let elsewhere = path.replace("/g/", "/h/");
    assert_eq!(with(&consumer.token, &elsewhere).await.status, 401);
    let listed = scene.get("/v1/groups/g/sessions").await;
    assert!(
        !listed.body.contains(&consumer.token),
        "tokens are never shown"
    );
    assert_eq!(listed.ok(200)["sessions"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_hosts_and_origins_are_refused() {
    let scene = Scene::new().await;
    let address = scene.address();
    let about = async |headers: &[(&str, &str)]| {
        send(address, "GET", "/v1/about", headers, None)
            .await
            .status
    };
    let own = format!("http://{address}");
    assert_eq!(about(&[("host", "localhost:1")]).await, 200);
    assert_eq!(about(&[("host", "evil.example")]).await, 421);
    assert_eq!(
        about(&[("host", "localhost"), ("host", "evil.example")]).await,
        400
    );
    assert_eq!(about(&[("origin", &own)]).await, 200);
    assert_eq!(about(&[("origin", "http://evil.example")]).await, 403);
    assert_eq!(about(&[("origin", "null")]).await, 403);
    assert_eq!(about(&[("sec-fetch-site", "cross-site")]).await, 403);
    assert_eq!(about(&[("sec-fetch-site", "same-origin")]).await, 200);
    let no_host = raw(
        address,
        b"GET /v1/about HTTP/1.1\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(no_host.status, 400);
    // A browser changes nothing without the header that other pages cannot send.
    let group = json!({"group": "g", "topic": "t", "partitions": 1}).to_string();
    let make = async |headers: &[(&str, &str)]| {
        send(address, "POST", "/v1/groups", headers, Some(&group))
            .await
            .status
    };
    assert_eq!(make(&[("origin", &own)]).await, 403);
    assert_eq!(
        make(&[("origin", "http://evil.example"), ("x-parti-csrf", "1")]).await,
        403
    );
    assert_eq!(make(&[("origin", &own), ("x-parti-csrf", "1")]).await, 201);
    let preflight = [
        ("origin", "http://evil.example"),
        ("access-control-request-method", "POST"),
    ];
    let preflight = send(address, "OPTIONS", "/v1/groups", &preflight, None).await;
    assert_eq!(preflight.status, 403);
    assert!(
        !preflight
            .head
            .to_ascii_lowercase()
            .contains("access-control-allow")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_nobody_can_read_is_refused_with_the_reason() {
    let scene = Scene::new().await;
    scene.make_group(2).await;
    for (name, why) in [
        (
            "x\u{200b}",
            r#""x\u{200b}" contains the invisible character '\u{200b}'"#,
        ),
        (
            "x\u{e0041}",
            r#""x\u{e0041}" contains the invisible character"#,
        ),
        (" x", r#"" x" begins or ends with a space"#),
        ("", r#""" is empty"#),
    ] {
        let consumer = json!({"consumer": name});
        let reply = scene.post("/v1/groups/g/sessions", &consumer).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "bad_request"));
        let told = reply.json()["error"].clone();
        let message = told["message"].as_str().expect("a message");
        assert!(message.starts_with(&format!("consumer: {why}")), "{told}");
        assert!(
            !told["remedy"].as_str().expect("a remedy").is_empty(),
            "{told}"
        );
    }
    for (group, topic, field) in [("h ", "t", "group: "), ("h", "t\u{feff}", "topic: ")] {
        let group = json!({"group": group, "topic": topic, "partitions": 2});
        let reply = scene.post("/v1/groups", &group).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.body.contains(field), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_too_much_are_refused_and_others_are_served() {
    let scene = Scene::with(|settings| settings.limits.body = 10_000).await;
    scene.make_group(2).await;
    let address = scene.address();
    let bodies = [
        "",
        "{",
        "[]",
        "null",
        "{\"group\":1}",
        "{\"group\":\"x\"}",
        "\u{0}",
        "{\"a\":{}}",
        "{\"group\":\"g\",\"topic\":\"t\",\"partitions\":-1}",
        "{\"group\":\"g\",\"topic\":\"t\",\"partitions\":0}",
        "{\"group\":\"../x\",\"topic\":\"t\",\"partitions\":1}",
        "{\"group\":\"g\",\"topic\":\"\",\"partitions\":1}",
        "{\"group\":\"g\",\"topic\":\"t\",\"partitions\":1,\"extra\":1}",
    ];
    for body in bodies {
        let reply = send(address, "POST", "/v1/groups", &[], Some(body)).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "bad_request"),
            "{body}"
        );
    }
    let large = format!("{{\"group\":\"{}\"}}", "x".repeat(20_000));
    let reply = send(address, "POST", "/v1/groups", &[], Some(&large)).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
    let form = "POST /v1/groups HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: text/plain\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(raw(address, form.as_bytes()).await.status, 415);
    // A head has its limit: 32 KiB, all of it together.
    for (length, status) in [
        (32_000, 200),
        (33_000, 431),
        (60_000, 431),
        (1_000_000, 431),
    ] {
        let long = "x".repeat(length);
        let reply = send(address, "GET", "/v1/about", &[("x-long", &long)], None).await;
        assert_eq!(reply.status, status, "{length}");
    }
    let long = format!("/v1/about?{}", "x".repeat(33_000));
    assert_eq!(scene.get(&long).await.status, 431);
    let many: Vec<(String, String)> = (0..300).map(|n| (format!("x-{n}"), "1".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let with = async |count| send(address, "GET", "/v1/about", &many[..count], None).await;
    let refused = with(70).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (431, "too_many_headers")
    );
    assert_eq!((with(60).await.status, with(300).await.status), (200, 431));
    // What a head says is enough: nobody waits for a body that may never come.
    let huge = "POST /v1/groups HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 99999999999\r\n\r\n{";
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(huge.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let answered = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answered:?} {answer}");
    assert!(answer.contains("too_large"), "{answer}");
    assert!(matches!(
        raw(address, b"\x16\x03\x01 nonsense\r\n\r\n").await.status,
        0 | 400
    ));
    assert_eq!(scene.get("/v1/groups/%ff").await.status, 400);
    let messages = "topics/t/partitions/0/messages";
    for (path, field, why) in [
        (
            "groups/g/events",
            "limit=0",
            "limit: 0 is not from 1 to 1000",
        ),
        (
            "groups/g/events",
            "limit=5000000000",
            "is not from 1 to 1000",
        ),
        (
            "groups/g/events",
            "before=x",
            r#"before: "x" is no whole number"#,
        ),
        (messages, "limit=abc", r#"limit: "abc" is no whole number"#),
        (messages, "limit=1001", "limit: 1001 is not from 1 to 1000"),
        (messages, "from=-1", r#"from: "-1" is no whole number"#),
        (
            messages,
            "wait_ms=30001",
            "wait_ms: 30001 is not from 0 to 30000",
        ),
        (
            messages,
            "max_bytes=0",
            "max_bytes: 0 is not from 1 to 1048576",
        ),
        (messages, "from=1&from=2", "from: 2 is not the only one"),
    ] {
        let reply = scene.get(&format!("/v1/{path}?{field}")).await;
        assert_eq!(reply.status, 400, "{field}: {reply:?}");
        let error = reply.json()["error"].clone();
        let message = error["message"].as_str().expect("text");
        assert!(message.contains(why), "{error}");
        let name = field.split('=').next().expect("a name");
        let remedy = error["remedy"].as_str().expect("text");
        assert!(remedy.starts_with(&format!("give {name}")), "{error}");
    }
    for (path, sent, why) in [
        (
            "/v1/groups",
            json!({"group": "p", "topic": "p", "partitions": 0}),
            "partitions: 0 is not from 1 to 100000",
        ),
        (
            "/v1/groups/g/plan",
            json!({"add": 1_000_000}),
            "add: 1000000 is not from 0 to 1000",
        ),
    ] {
        let reply = scene.post(path, &sent).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert_eq!(reply.json()["error"]["message"], why);
    }
    for (path, known) in [
        ("/v1/groups?limit=1", "nothing"),
        ("/v1/groups/g/events?limit=1&befor=7", "before, limit"),
        (
            "/v1/topics/t/partitions/0/messages?form=1",
            "from, limit, wait_ms, max_bytes",
        ),
    ] {
        let reply = scene.get(path).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "bad_request"));
        let error = &reply.json()["error"];
        let (message, remedy) = (error["message"].as_str(), error["remedy"].as_str());
        let name = path
            .rsplit(['&', '?'])
            .next()
            .and_then(|one| one.split('=').next());
        assert!(
            message.expect("text").contains(name.expect("a name")),
            "{error}"
        );
        assert!(remedy.expect("text").contains(known), "{error}");
    }
    assert_eq!(scene.get("/readyz?probe=1").await.status, 200);
    for consumer in ["", "a\nb", "\u{7f}", &"x".repeat(201)] {
        let body = json!({"consumer": consumer});
        let reply = scene.post("/v1/groups/g/sessions", &body).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "bad_request"),
            "{body}"
        );
    }
    for (request, wrong) in [
        (
            json!({"request": {"kind": "drain", "worker": 7}}),
            "request.worker: ",
        ),
        (
            json!({"request": {"kind": "drain"}}),
            "missing field `worker`",
        ),
        (
            json!({"request": {"kind": "dance"}}),
            "unknown variant `dance`",
        ),
        (
            json!({"request": {"kind": "rebalance"}, "why": "a\nb"}),
            "why",
        ),
        (
            json!({"request": {"kind": "rebalance"}, "why": "x".repeat(501)}),
            "why",
        ),
    ] {
        let reply = scene.post("/v1/groups/g/requests", &request).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "bad_request"),
            "{request}"
        );
        assert!(reply.body.contains(wrong), "{reply:?}");
    }
    let reset = json!({"to": "earliest", "why": "a\u{202e}b"});
    let reply = scene.post("/v1/groups/g/checkpoints", &reset).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "bad_request"));
    for path in [
        "/v1/groups/none",
        "/v1/groups/none/live",
        "/v1/groups/none/sessions",
        "/v1/topics/t/partitions/9/messages",
        "/v1/topics/t/partitions/00/messages",
        "/v1/topics/t/partitions/%2e%2e/messages",
        "/v1/none",
        "/../x",
        "/etc/passwd",
    ] {
        assert_eq!(scene.get(path).await.status, 404, "{path}");
    }
    for (method, path) in [
        ("DELETE", "/v1/groups"),
        ("PUT", "/v1/groups/g"),
        ("POST", "/"),
    ] {
        let reply = send(address, method, path, &[], None).await;
        assert_eq!(reply.status, 405, "{method} {path}");
    }
    // After all that it still works.
    scene.produce(2, 3).await;
    let about = scene.get("/v1/about").await;
    let head = about.head.to_ascii_lowercase();
    for header in [
        "content-security-policy: default-src 'none'",
        "nosniff",
        "no-store",
        "deny",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
    assert_eq!(about.ok(200)["role"], "operate");
}

#[tokio::test]
async fn an_open_service_stays_on_loopback() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = parti::store::open("memory:").await.expect("a store");
    let mut open = settings(store.clone(), &folder).await;
    open.address = ([0, 0, 0, 0], 0).into();
    let refused = Service::start(open).await;
    assert!(matches!(refused, Err(ServeError::Open(_))), "{refused:?}");
    let mut settled = settings(store.clone(), &folder).await;
    settled.access = Access::default().proxy_header(HeaderName::from_static("host"));
    let refused = Service::start(settled)
        .await
        .expect_err("everybody sends it");
    assert!(
        refused
            .to_string()
            .contains("--trust-proxy-header: \"host\""),
        "{refused}"
    );
    let mut settled = settings(store.clone(), &folder).await;
    settled.hosts = vec!["evil/host".into()];
    let refused = Service::start(settled).await.expect_err("no host");
    assert!(
        refused.to_string().contains("--host: \"evil/host\""),
        "{refused}"
    );
    let mut proxied = settings(store, &folder).await;
    proxied.access = Access::default().proxy_header(HeaderName::from_static("x-user"));
    let service = Service::start(proxied).await.expect("a service");
    let ask = async |headers: &[(&str, &str)]| {
        send(service.address(), "GET", "/v1/about", headers, None)
            .await
            .status
    };
    assert_eq!(
        (ask(&[]).await, ask(&[("x-user", "anna")]).await),
        (401, 200)
    );
}

#[test]
fn the_api_is_described() {
    let document: Value = serde_json::from_str(&openapi()).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().expect("paths");
    for path in [
        "/v1/groups",
        "/v1/groups/{group}/sessions/{session}/commits",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().expect("operations") {
            assert!(operation["description"].is_string() || operation["summary"].is_string());
            assert!(operation["responses"]["4XX"].is_object(), "{method} {path}");
        }
    }
    assert!(request(([127, 0, 0, 1], 1).into(), "GET", "/", &[], None).starts_with("GET /"));
}

//! What can be wrong when the store is opened.

use std::io::Write as _;
use std::net::TcpListener;

use async_nats::jetstream::{self, kv};
use parti::store::nats::Nats;
use parti::store::{Error, Scope, Store, StoreExt};
use parti_servers::nats::Server;

async fn refusal(url: &str) -> String {
    match Nats::open(url).await {
        Err(error @ Error::Rejected { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

pub async fn context(server: &Server) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.expect("connects"))
}

#[tokio::test]
async fn a_wrong_login_is_refused_and_never_shown() {
    let server = Server::builder().user("ann", "right").start();
    let right = Nats::open(&server.url()).await.expect("the right login");
    right.create("a", "1").await.expect("writes");
    let wrong = server.url().replace("right", "hush-hush");
    let error = refusal(&wrong).await;
    assert!(
        error.contains("login") && !error.contains("hush"),
        "{error}"
    );
    let error = refusal(&server.url_without_login()).await;
    assert!(error.contains("login"), "{error}");
    assert!(!format!("{right:?} {}", right.name()).contains("right"));
}

#[tokio::test]
async fn a_token_opens() {
    let server = Server::builder().token("t0ken").start();
    let place = server.address();
    for url in [
        format!("nats://t0ken@{place}"),
        format!("nats://{place}?token=t0ken"),
    ] {
        let store = Nats::open(&url).await.expect("the token");
        assert!(!format!("{store:?} {}", store.name()).contains("t0ken"));
    }
    let error = refusal(&format!("nats://{place}?token=hush")).await;
    assert!(!error.contains("hush"), "{error}");
}

#[tokio::test]
async fn a_credentials_file_opens() {
    let server = Server::builder().credentials().start();
    let file = server.credentials_file().expect("a file");
    let place = server.address();
    let url = format!("nats://{place}?creds={}", file.display());
    let store = Nats::open(&url).await.expect("the file");
    store.create("a", "1").await.expect("writes");
    refusal(&format!("nats://{place}")).await;
    let error = refusal(&format!("nats://{place}?creds=/no/such/file")).await;
    assert!(error.contains("/no/such/file"), "{error}");
}

#[tokio::test]
async fn a_key_to_sign_with_opens() {
    let server = Server::builder().nkey().start();
    let (file, place) = (server.seed_file().expect("a file"), server.address());
    let url = format!("nats://{place}?nkey={}", file.display());
    let store = Nats::open(&url).await.expect("the key");
    store.create("a", "1").await.expect("writes");
    refusal(&format!("nats://{place}")).await;
    let error = refusal(&format!("nats://{place}?nkey=/no/such/file")).await;
    assert!(error.contains("/no/such/file"), "{error}");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let server = Server::builder().mutual_tls().start();
    let ca = server.ca_certificate().expect("there");
    let (cert, key) = server.client_certificate().expect("there");
    let without = format!("tls://{}?ca={}", server.address(), ca.display());
    let url = format!("{without}&cert={}&key={}", cert.display(), key.display());
    let store = Nats::open(&url).await.expect("the right certificate");
    store.create("a", "1").await.expect("writes");
    let error = refusal(&without).await;
    assert!(error.contains("cert"), "{error}");
}

#[tokio::test]
async fn tls_needs_the_right_authority() {
    let server = Server::builder().tls().start();
    let file = server.ca_certificate().expect("a certificate");
    let place = server.address();
    for scheme in ["nats", "tls"] {
        let url = format!("{scheme}://{place}?ca={}", file.display());
        let store = Nats::open(&url).await.expect("the authority");
        store.read("a").await.expect("reads");
    }
    let error = refusal(&format!("tls://{place}")).await;
    assert!(error.contains("TLS"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", free.local_addr().expect("bound"));
    drop(free);
    let opened = Nats::open(&url).await;
    assert!(
        matches!(opened, Err(Error::Unavailable { .. })),
        "{opened:?}"
    );
}

#[tokio::test]
async fn an_old_server_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let info = r#"INFO {"server_id":"x","version":"2.9.25","max_payload":1048576,"headers":true,"jetstream":true}"#;
        write!(stream, "{info}\r\nPONG\r\n").expect("greets");
        // Until the client goes.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let error = refusal(&url).await;
    assert!(
        error.contains("2.9.25") && error.contains("2.10"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_without_jetstream_is_refused() {
    let server = Server::builder().without_jetstream().start();
    let error = refusal(&server.url()).await;
    assert!(error.contains("JetStream"), "{error}");
}

#[tokio::test]
async fn a_bucket_that_would_lose_records_is_refused() {
    let server = Server::start();
    let context = context(&server).await;
    let wrong = [
        (
            "history",
            kv::Config {
                history: 5,
                ..Default::default()
            },
        ),
        (
            "TTL",
            kv::Config {
                max_age: std::time::Duration::from_secs(3600),
                ..Default::default()
            },
        ),
    ];
    for (part, config) in wrong {
        let config = kv::Config {
            bucket: format!("b-{part}"),
            ..config
        };
        context.create_key_value(config).await.expect("a bucket");
        let error = refusal(&format!("{}/b-{part}", server.url())).await;
        assert!(error.contains(part) && error.contains("edit"), "{error}");
    }
}

#[tokio::test]
async fn many_open_at_once() {
    let server = Server::start();
    let url = format!("{}/race", server.url());
    let opens = (0..20).map(|_| Nats::open(&url));
    let stores = futures_util::future::try_join_all(opens)
        .await
        .expect("all open");
    stores[0].create("a", "1").await.expect("writes");
    for store in &stores {
        assert_eq!(
            store
                .list(&Scope::Under(String::new()))
                .await
                .expect("lists")
                .len(),
            1
        );
    }
}

#[tokio::test]
async fn the_kv_tools_can_read_it() {
    let server = Server::start();
    let store = Nats::open(&server.url()).await.expect("opens");
    let worker = store
        .create("workers/or.ders/w 0", "hello")
        .await
        .expect("writes");
    store
        .create("partitions/orders/p0", "17")
        .await
        .expect("writes");
    let context = context(&server).await;
    let bucket = context.get_key_value("parti").await.expect("a bucket");
    let entry = bucket
        .entry("workers.or/ders.w=200")
        .await
        .expect("reads")
        .expect("there");
    assert_eq!(
        (entry.revision, &entry.value[..]),
        (worker.0, &b"hello"[..])
    );
    let checkpoints = context
        .get_key_value("parti-checkpoints")
        .await
        .expect("a bucket");
    let value = checkpoints
        .get("partitions.orders.p0")
        .await
        .expect("reads");
    assert_eq!(value.as_deref(), Some(&b"17"[..]));
    // What a person writes with the tool is heard, too; what is no key of ours is passed over.
    bucket
        .put("workers.x", "by hand".into())
        .await
        .expect("puts");
    bucket
        .put("workers.=zz", "what".into())
        .await
        .expect("puts");
    bucket.purge("workers.or/ders.w=200").await.expect("purges");
    let listed = store
        .list(&Scope::Under("workers/".into()))
        .await
        .expect("lists");
    let keys: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["workers/x"]);
    store
        .create("workers/or.ders/w 0", "again")
        .await
        .expect("nothing is there");
}

//! What is refused at the start, and what can be connected to.

use async_nats::jetstream::{self, consumer, stream};
use parti::source::{JetStream, SourceError};
use parti_servers::install::{NATS_LATEST, NATS_OLDEST};
use parti_servers::nats::Server;
use serde_json::{Value, json};

use crate::scene::{Scene, Setup};

async fn refusal(url: &str) -> String {
    match JetStream::connect(url).await {
        Ok(stream) => panic!("{stream:?} was accepted"),
        Err(error) => error.to_string(),
    }
}

async fn make(context: &jetstream::Context, name: &str, retention: stream::RetentionPolicy) {
    let made = context.create_stream(stream::Config {
        name: name.into(),
        subjects: vec![format!("{name}.*")],
        retention,
        ..stream::Config::default()
    });
    made.await.expect("made");
}

#[tokio::test]
async fn what_cannot_be_served_safely_is_refused_with_the_remedy() {
    for version in [NATS_LATEST, NATS_OLDEST] {
        let server = Server::start_version(version);
        let client = async_nats::connect(server.url()).await.expect("connects");
        let context = jetstream::new(client);
        make(&context, "I", stream::RetentionPolicy::Interest).await;
        make(&context, "L", stream::RetentionPolicy::Limits).await;
        let url = |rest: &str| format!("jetstream://{}/{rest}", server.address());
        let interest = refusal(&url("I")).await;
        assert!(
            interest.contains("interest") && interest.contains("workqueue"),
            "{interest}"
        );
        let missing = refusal(&url("NONE")).await;
        assert!(missing.contains("no stream NONE"), "{missing}");
        let template = refusal(&url("L?subject=other.{0}")).await;
        assert!(template.contains("L.*"), "{template}");
        let letters = refusal(&url("L?dead_letters=L")).await;
        assert!(letters.contains("dead letters"), "{letters}");
        let found = JetStream::connect(&url("L")).await.expect("connects");
        assert_eq!(found.template().to_string(), "L.{0}");
        assert_eq!(found.partitions(), None);
        assert!(matches!(found.producer(), Err(SourceError::Rejected(_))));
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let mut server = Server::start();
    let url = format!("jetstream://u:hush-hush@{}/S", server.address());
    server.kill();
    let error = JetStream::connect(&url).await.expect_err("nobody is there");
    assert!(matches!(error, SourceError::Unavailable(_)), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}

#[tokio::test]
async fn every_login_of_the_store_is_one_of_the_source() {
    let by_user = Server::builder().user("ann", "hush-hush").start();
    let by_token = Server::builder().token("hush-token").start();
    let by_credentials = Server::builder().credentials().start();
    let file = by_credentials.credentials_file().expect("there");
    let by_key = Server::builder().nkey().start();
    let seed = by_key.seed_file().expect("there");
    let tls = Server::builder().tls().start();
    let authority = tls.ca_certificate().expect("there");
    for (server, login, parameters) in [
        (&by_user, "ann:hush-hush@", String::new()),
        (&by_token, "", "?token=hush-token".into()),
        (&by_credentials, "", format!("?creds={}", file.display())),
        (&by_key, "", format!("?nkey={}", seed.display())),
        (&tls, "", format!("?ca={}", authority.display())),
    ] {
        let url = format!("jetstream://{login}{}/S{parameters}", server.address());
        let error = JetStream::connect(&url).await.expect_err("no stream");
        // It came far enough to look for the stream.
        assert!(error.to_string().contains("no stream S"), "{error}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
    let wrong = format!("jetstream://ann:hush@{}/S", by_user.address());
    let error = refusal(&wrong).await;
    assert!(
        error.contains("login") && !error.contains("hush"),
        "{error}"
    );
}

const LIMITS: Setup = Setup {
    version: NATS_LATEST,
    retention: "limits",
    ack: "explicit",
};

#[tokio::test]
async fn a_work_queue_needs_acks() {
    let setup = Setup {
        retention: "workqueue",
        ack: "none",
        ..LIMITS
    };
    let scene = Scene::new(setup, 2).await;
    let error = scene.refused().await;
    assert!(error.contains("jetstream.ack"), "{error}");
}

/// What the stream would refuse each worker's consumer is refused before it takes anything.
#[tokio::test]
async fn limits_of_a_streams_consumers_are_looked_at_first() {
    for (limits, named) in [
        (
            json!({"inactive_threshold": 3_600_000_000_000_u64}),
            "jetstream.inactive_threshold: 24h",
        ),
        (
            json!({"max_ack_pending": 499}),
            "jetstream.max_ack_pending: 500",
        ),
    ] {
        let scene = Scene::new(LIMITS, 2).await;
        let context = scene.context().await;
        let config = json!({
            "name": "S",
            "subjects": ["p.*"],
            "consumer_limits": limits,
        });
        let answer: Value = context
            .request("STREAM.UPDATE.S", &config)
            .await
            .expect("answered");
        assert!(answer["error"].is_null(), "{answer}");
        let error = scene.refused().await;
        assert!(error.contains(named), "{error}");
    }
}

/// A consumer of somebody else's with our durable's name is left alone, and the worker says so.
#[tokio::test]
async fn somebody_elses_consumer_is_left_alone() {
    let mut scene = Scene::new(LIMITS, 2).await;
    let context = scene.context().await;
    let found = context.get_stream("S").await.expect("there");
    let theirs = consumer::pull::Config {
        durable_name: Some("parti-g-worker-0".into()),
        description: Some("theirs".into()),
        ..consumer::pull::Config::default()
    };
    found.create_consumer(theirs).await.expect("made");
    let worker = scene.start().await;
    scene.degraded(worker, "consumer_prefix").await;
    let mut there: consumer::PullConsumer =
        found.get_consumer("parti-g-worker-0").await.expect("there");
    let config = there.info().await.expect("there").config.clone();
    assert_eq!(config.description.as_deref(), Some("theirs"));
}

/// On a work queue, a subject that is a stranger's is named.
#[tokio::test]
async fn a_strangers_subject_of_a_work_queue_is_named() {
    let setup = Setup {
        retention: "workqueue",
        ..LIMITS
    };
    let mut scene = Scene::new(setup, 2).await;
    let context = scene.context().await;
    let found = context.get_stream("S").await.expect("there");
    let theirs = consumer::pull::Config {
        durable_name: Some("stranger".into()),
        filter_subject: "p.1".into(),
        ..consumer::pull::Config::default()
    };
    found.create_consumer(theirs).await.expect("made");
    let worker = scene.start().await;
    scene.degraded(worker, "stranger").await;
}

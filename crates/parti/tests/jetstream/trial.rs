//! What a user may not do to a stream is found before a worker does it, and nothing is left of that.

use async_nats::jetstream::{self, consumer, stream};
use futures_util::TryStreamExt;
use parti::Config;
use parti::source::{JetStream, SourceError};
use parti_servers::install::{NATS_LATEST, NATS_OLDEST};
use parti_servers::nats::Server;

/// Users that each lack one thing, and which of the trials fails for it.
const LACKING: [(&str, &str, usize); 7] = [
    ("maker", "$JS.API.CONSUMER.CREATE.>", 0),
    ("looker", "$JS.API.CONSUMER.INFO.>", 0),
    ("puller", "$JS.API.CONSUMER.MSG.NEXT.>", 0),
    ("acker", "$JS.ACK.>", 0),
    ("deleter", "$JS.API.CONSUMER.DELETE.>", 0),
    ("reader", "$JS.API.STREAM.MSG.GET.>", 1),
    ("sender", "parti.dlq.>", 2),
];
/// May do all but make the stream of the letters.
const FOUNDER: &str = "founder";

struct Scene {
    server: Server,
    context: jetstream::Context,
}

impl Scene {
    async fn new(version: &str) -> Self {
        let mut server = Server::builder().version(version).user("admin", "secret");
        for (user, lacks, _) in LACKING {
            server = server.limited_user(user, "secret", &[lacks]);
        }
        let server = server.limited_user(FOUNDER, "secret", &["$JS.API.STREAM.CREATE.>"]);
        let server = server.start();
        let login = ("admin".to_owned(), "secret".to_owned());
        let options = async_nats::ConnectOptions::with_user_and_password(login.0, login.1);
        let client = options.connect(server.url_without_login()).await;
        let client = client.expect("connects");
        Self {
            context: jetstream::new(client),
            server,
        }
    }

    async fn make(&self, name: &str, subject: &str, retention: stream::RetentionPolicy) {
        let made = self.context.create_stream(stream::Config {
            name: name.into(),
            subjects: vec![subject.into()],
            retention,
            ..stream::Config::default()
        });
        made.await.expect("made");
    }

    /// Why each thing fails that is tried by this user, in order.
    async fn tried(&self, user: &str, rest: &str) -> Vec<Option<String>> {
        let address = self.server.address();
        let url = format!("jetstream://{user}:secret@{address}/{rest}");
        let source = JetStream::connect(&url).await.expect("connects");
        let tried = source.try_out(Some("g"), &Config::default()).await;
        let outcomes = tried.into_iter().map(|one| one.outcome.err());
        outcomes
            .map(|error| error.as_ref().map(SourceError::to_string))
            .collect()
    }

    async fn consumers(&self, name: &str) -> Vec<String> {
        let found = self.context.get_stream(name).await.expect("there");
        let names = found.consumer_names();
        names.try_collect().await.expect("a list")
    }

    async fn messages(&self, name: &str) -> u64 {
        let mut found = self.context.get_stream(name).await.expect("there");
        found.info().await.expect("there").state.messages
    }
}

const FINE: [Option<String>; 3] = [None, None, None];

#[tokio::test]
async fn what_a_user_may_not_do_is_found_and_named() {
    for version in [NATS_LATEST, NATS_OLDEST] {
        let scene = Scene::new(version).await;
        for (name, retention) in [
            ("L", stream::RetentionPolicy::Limits),
            ("Q", stream::RetentionPolicy::WorkQueue),
        ] {
            scene.make(name, &format!("{name}.*"), retention).await;
            assert_eq!(scene.tried("admin", name).await, FINE, "{version} {name}");
            assert_eq!(scene.consumers(name).await, [""; 0]);
            for (user, lacks, fails) in LACKING {
                let tried = scene.tried(user, name).await;
                for (place, outcome) in tried.iter().enumerate() {
                    let Some(why) = outcome else {
                        assert_ne!(place, fails, "{version} {name} {user}");
                        continue;
                    };
                    assert_eq!(place, fails, "{version} {name} {user}: {why}");
                    assert!(why.contains("lacks a permission"), "{user}: {why}");
                    assert!(why.contains(lacks.trim_end_matches('>')), "{user}: {why}");
                }
                if user != "deleter" {
                    assert_eq!(scene.consumers(name).await, [""; 0], "{user}");
                    continue;
                }
                // It goes by itself; who may does not wait for that.
                for left in scene.consumers(name).await {
                    assert!(left.contains("=doctor"), "{left}");
                    let found = scene.context.get_stream(name).await.expect("there");
                    let _ = found.delete_consumer(&left).await;
                }
            }
            let founder = scene.tried(FOUNDER, name).await;
            let why = founder[2].as_deref().expect("the stream is missing");
            assert!(why.contains("STREAM.CREATE"), "{why}");
            // Nobody made it.
            let letters = scene.context.get_stream(format!("{name}-dlq")).await;
            assert!(letters.is_err());
        }
    }
}

#[tokio::test]
async fn no_dead_letter_is_kept_of_a_trial() {
    for version in [NATS_LATEST, NATS_OLDEST] {
        let scene = Scene::new(version).await;
        let limits = stream::RetentionPolicy::Limits;
        scene.make("S", "S.*", limits).await;
        let none = scene.tried("admin", "S?dead_letters=dead.s").await;
        let why = none[2].as_deref().expect("nobody keeps them");
        assert!(why.contains("make one that has dead.s.>"), "{why}");
        scene.make("D", "dead.s.>", limits).await;
        scene.make("S-dlq", "parti.dlq.S.>", limits).await;
        for place in ["S", "S?dead_letters=dead.s"] {
            assert_eq!(scene.tried("admin", place).await, FINE, "{version}");
        }
        // The stream is there: nobody has to make it.
        assert_eq!(scene.tried(FOUNDER, "S").await, FINE, "{version}");
        assert!(scene.tried("sender", "S").await[2].is_some());
        for name in ["S", "D", "S-dlq"] {
            assert_eq!(scene.messages(name).await, 0, "{version} {name}");
        }
    }
}

/// In a work queue two consumers may not share a subject: the trial has none of a worker's.
#[tokio::test]
async fn a_trial_stands_in_no_workers_way() {
    for version in [NATS_LATEST, NATS_OLDEST] {
        let scene = Scene::new(version).await;
        let queue = stream::RetentionPolicy::WorkQueue;
        scene.make("Q", "Q.*", queue).await;
        let found = scene.context.get_stream("Q").await.expect("there");
        let of = |name: &str, subject: &str| consumer::pull::Config {
            durable_name: Some(name.into()),
            filter_subject: subject.into(),
            ..consumer::pull::Config::default()
        };
        found.create_consumer(of("a", "Q.0")).await.expect("made");
        assert_eq!(scene.tried("admin", "Q").await, FINE, "{version}");
        assert_eq!(scene.consumers("Q").await, ["a"]);
        // One that has the whole stream leaves no subject to try with, and is no lack of permission.
        found.delete_consumer("a").await.expect("deleted");
        found.create_consumer(of("b", "Q.*")).await.expect("made");
        assert_eq!(scene.tried("admin", "Q").await, FINE, "{version}");
    }
}

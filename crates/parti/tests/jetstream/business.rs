//! Subjects of two keys each, as they are in streams that were there before: nothing is virtual, and
//! what a key holds may need escaping.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_nats::jetstream::stream;
use parti::core::codec;
use parti::source::JetStream;
use parti::store::Memory;
use parti::{Config, HandlerError, Message, Partition, StaticPartitions, Worker};
use parti_servers::install::{NATS_LATEST, NATS_OLDEST};
use parti_servers::nats::Server;
use tokio::sync::watch;

use crate::ledger::PATIENCE;
use crate::scene::CONFIG;

/// Keys, and the subject that somebody publishes to.
const PLACES: [([&str; 2], &str); 5] = [
    (["etch-1", "a"], "dc.etch-1.a.completion"),
    (["etch-1", "b"], "dc.etch-1.b.completion"),
    (["etch-2", "a"], "dc.etch-2.a.completion"),
    // One that a template of one key could not tell from the first.
    (["etch-1_a", "a"], "dc.etch-1_a.a.completion"),
    (["Gro\u{df}", "7"], "dc.Gro\u{df}.7.completion"),
];
const EACH: u32 = 40;

/// What was handled of each pair of keys, in order.
type Handled = BTreeMap<Vec<String>, Vec<u32>>;

#[tokio::test]
async fn every_message_of_subjects_with_two_keys_is_handled_once_in_order_where_its_keys_say() {
    for (version, retention) in [
        (NATS_LATEST, stream::RetentionPolicy::Limits),
        (NATS_LATEST, stream::RetentionPolicy::WorkQueue),
        (NATS_OLDEST, stream::RetentionPolicy::Limits),
    ] {
        let server = Server::start_version(version);
        let client = async_nats::connect(server.url()).await.expect("connects");
        let context = async_nats::jetstream::new(client);
        let made = context.create_stream(stream::Config {
            name: "DC".into(),
            subjects: vec!["dc.*.*.*".into()],
            retention,
            ..stream::Config::default()
        });
        made.await.expect("made");
        let publish = async |numbers: std::ops::Range<u32>| {
            for number in numbers {
                for (_, subject) in PLACES {
                    let sent = context.publish(subject, number.to_string().into()).await;
                    sent.expect("sent").await.expect("stored");
                }
                // Of the same keys, and none of this group's.
                let sent = context.publish("dc.etch-1.a.start", "x".into()).await;
                sent.expect("sent").await.expect("stored");
            }
        };
        // Half of it is there before anybody comes.
        publish(0..EACH / 2).await;

        let handled = Arc::new(Mutex::new(Handled::new()));
        let count = watch::Sender::new(0);
        let store = Memory::new();
        let start = async || {
            let (handled, count) = (handled.clone(), count.clone());
            let address = server.address();
            let url = format!("jetstream://{address}/DC?subject=dc.{{0}}.{{1}}.completion");
            let source = JetStream::connect(&url).await.expect("connects");
            let listed = PLACES.map(|(keys, _)| Partition::new(keys, None).expect("valid"));
            let listed = StaticPartitions::new(listed.to_vec()).expect("no duplicates");
            let worker = Worker::builder("dc", store.clone(), source, listed)
                .config(Config::from_yaml(CONFIG).expect("valid"))
                .start(move |message: Message| {
                    let keys = codec::keys_of(message.partition.as_str()).expect("canonical");
                    let expected = PLACES
                        .iter()
                        .find(|(_, subject)| *subject == message.subject());
                    assert_eq!(expected.map(|(keys, _)| &keys[..]), Some(&own(&keys)[..]));
                    let number = String::from_utf8_lossy(message.payload()).parse();
                    let number = number.expect("a number");
                    let mut handled = handled.lock().expect("no panic");
                    handled.entry(keys).or_default().push(number);
                    count.send_modify(|count| *count += 1);
                    async { Ok::<(), HandlerError>(()) }
                });
            worker.await.expect("starts")
        };
        let first = start().await;
        // Partitions move while more comes.
        let (second, ()) = tokio::join!(start(), publish(EACH / 2..EACH));
        let mut news = count.subscribe();
        let all = news.wait_for(|count| *count >= EACH * PLACES.len() as u32);
        let all = tokio::time::timeout(PATIENCE, all).await;
        assert!(all.is_ok(), "{:?}", handled.lock().expect("no panic"));
        first.stop().await.expect("stops");
        second.stop().await.expect("stops");
        let numbers: Vec<u32> = (0..EACH).collect();
        let expected: Handled = PLACES
            .iter()
            .map(|(keys, _)| (keys.map(str::to_owned).to_vec(), numbers.clone()))
            .collect();
        assert_eq!(*handled.lock().expect("no panic"), expected, "{version}");
    }
}

fn own(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}

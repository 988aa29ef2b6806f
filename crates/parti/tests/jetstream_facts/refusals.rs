//! The words with which the server refuses, as far as Parti tells them apart.

use serde_json::{Value, json};

use crate::lab::{Consumer, Lab, on_every_version};

fn code<T: std::fmt::Debug>(answer: Result<T, crate::lab::Refusal>) -> (u64, u64) {
    let refusal = answer.expect_err("refused");
    (refusal.code, refusal.err_code)
}

async fn create(consumer: &Consumer<'_>) -> Result<Value, crate::lab::Refusal> {
    consumer.put("create", &consumer.config).await
}

/// Asks about consumers and streams that are there, and others.
pub async fn who_is_there_and_who_is_not(lab: &Lab) {
    let stream = lab.stream(json!({})).await;
    let a = stream.durable("a", &["1"]).await;
    let absent = stream.durable_at("absent", &["1"], json!({}));
    assert_eq!(code(absent.try_info().await), (404, 10014));
    let deleted = lab.api(&absent.call("DELETE"), Value::Null).await;
    assert_eq!(code(deleted), (404, 10014));
    assert_eq!(code(absent.change(json!({})).await), (400, 10149));
    // Made once more as it is: fine. Otherwise: it exists already.
    let again = create(&a).await.expect("the same");
    assert_eq!(again["created"], a.info().await["created"]);
    let other = stream.durable_at("a", &["2"], json!({}));
    assert_eq!(code(create(&other).await), (400, 10148));
    // Without an action it is made or changed, whichever is needed.
    let changed = other.put("", &other.config).await.expect("changed");
    assert_eq!(changed["created"], again["created"]);
    let made = absent.put("", &absent.config).await.expect("made");
    assert_eq!(made["name"], "absent");
    let gone = lab.api("STREAM.INFO.NO_SUCH_STREAM", Value::Null).await;
    assert_eq!(code(gone), (404, 10059));
    let gone = lab.api("CONSUMER.INFO.NO_SUCH_STREAM.a", Value::Null).await;
    assert_eq!(code(gone), (404, 10059));
    let body = json!({"stream_name": "NO_SUCH_STREAM", "config": a.config, "action": "create"});
    let gone = lab.api("CONSUMER.CREATE.NO_SUCH_STREAM.a", body).await;
    assert_eq!(code(gone), (404, 10059));
}

#[tokio::test]
async fn the_server_tells_an_absent_consumer_from_one_that_is_there() {
    on_every_version(who_is_there_and_who_is_not).await;
}

#[tokio::test]
async fn some_settings_of_a_consumer_cannot_be_changed() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        for fixed in [
            json!({"deliver_policy": "new"}),
            json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 2}),
            json!({"ack_policy": "none"}),
            json!({"replay_policy": "original"}),
            json!({"max_waiting": 7}),
            json!({"deliver_subject": "somewhere"}),
        ] {
            let refusal = consumer.change(fixed.clone()).await.expect_err("refused");
            // As if it were the server's own trouble.
            assert_eq!((refusal.code, refusal.err_code), (500, 10012), "{fixed}");
        }
        for free in [
            json!({"ack_wait": 5_000_000_000_u64}),
            json!({"max_ack_pending": 7}),
            json!({"max_deliver": 3}),
            json!({"inactive_threshold": 86_400_000_000_000_u64}),
            json!({"description": "text"}),
            json!({"metadata": {"owner": "somebody"}}),
        ] {
            let info = consumer.change(free.clone()).await.expect("changed");
            for (name, value) in free.as_object().expect("an object") {
                let there = &info["config"][name];
                match value {
                    Value::Object(pairs) => {
                        assert!(pairs.iter().all(|(name, value)| there[name] == *value));
                    }
                    value => assert_eq!(there, value, "{name}"),
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_the_server_does_not_know_is_not_answered() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let consumer = stream.durable("a", &["1"]).await;
        let (call, then) = (consumer.call("NONSENSE"), consumer.call("INFO"));
        assert!(lab.stays_unanswered(&call, json!({}), &then).await);
    })
    .await;
}

#[tokio::test]
async fn a_durables_name_must_be_the_one_in_the_subject_and_has_255_characters_at_the_most() {
    on_every_version(async |lab| {
        let stream = lab.stream(json!({})).await;
        let longest = "x".repeat(255);
        stream.durable(&longest, &["1"]).await;
        let longer = "x".repeat(256);
        let longer = stream.durable_at(&longer, &["1"], json!({}));
        assert_eq!(code(create(&longer).await), (400, 10102));
        let mut other = stream.durable_at("a", &["1"], json!({}));
        other.name = "b".to_owned();
        assert_eq!(code(create(&other).await), (400, 10017));
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_limits_its_consumers_refuses_those_that_would_have_more() {
    const HOUR: u64 = 3_600_000_000_000;
    on_every_version(async |lab| {
        let limits = json!({"inactive_threshold": HOUR, "max_ack_pending": 10});
        let stream = lab.stream(json!({ "consumer_limits": limits })).await;
        assert_eq!(stream.config["consumer_limits"], limits);
        let allowed = json!({"inactive_threshold": HOUR, "max_ack_pending": 10});
        stream.durable_with("a", &["1"], allowed).await;
        for (options, refused) in [
            (json!({"inactive_threshold": HOUR + 1}), (400, 10153)),
            (json!({"max_ack_pending": 11}), (400, 10121)),
        ] {
            let more = stream.durable_at("b", &["1"], options.clone());
            assert_eq!(code(create(&more).await), refused, "{options}");
        }
        // Without acks, there is nothing to limit.
        let unacked = json!({"ack_policy": "none"});
        stream.durable_with("c", &["1"], unacked).await;
    })
    .await;
}

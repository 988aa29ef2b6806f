//! The endpoint: what it serves, and that a real parser accepts it.

use std::time::Duration;

use openmetrics_parser::{openmetrics, prometheus};
use parti::metrics::{Endpoint, EndpointError, METRICS};
use parti::source::MemoryLog;
use parti::store::Memory;
use parti::{PartitionId, State, StaticPartitions, Worker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::group::{Gate, config};

/// A name that would break a text if it were not escaped.
const GROUP: &str = "a \"quoted\\group\u{e9}";

/// Status, content type and body.
async fn ask(endpoint: &Endpoint, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(endpoint.address()).await.expect("there");
    let request = format!("{request}Host: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    let kind = kind.unwrap_or_default().to_owned();
    (status.expect("a status"), kind, body.to_owned())
}

async fn get(endpoint: &Endpoint, path: &str) -> (u16, String) {
    let (status, _, body) = ask(endpoint, &format!("GET {path} HTTP/1.1\r\n")).await;
    (status, body)
}

#[tokio::test]
async fn metrics_health_and_readiness_are_served() {
    let endpoint = Endpoint::open("127.0.0.1:0").await.expect("opens");
    assert_eq!(get(&endpoint, "/healthz").await, (200, "alive\n".into()));
    assert_eq!(get(&endpoint, "/readyz").await.0, 503, "no worker yet");
    let log = MemoryLog::new();
    let gate = Gate::shut();
    let worker = Worker::builder(
        GROUP,
        Memory::new(),
        log.clone(),
        StaticPartitions::numbered(3),
    )
    .config(config())
    .metrics(
        endpoint
            .metrics()
            .partition_series(2)
            .lag_interval(Duration::from_millis(100)),
    )
    .start(move |message| {
        let gate = gate.clone();
        async move { gate.handle(message).await }
    })
    .await
    .expect("starts");
    worker.wait_for(State::Stable).await.expect("stable");
    endpoint.ready_when(worker.readiness());
    assert_eq!(get(&endpoint, "/readyz").await, (200, "ready\n".into()));
    for number in 0..3 {
        log.append(&PartitionId::new(number.to_string()), "well");
    }
    let shown = async {
        loop {
            let (_, text) = get(&endpoint, "/metrics").await;
            // The last two to come: a handled message, and the lag of those past the limit.
            let lag = text.contains("partition=\"*\"");
            if text.contains("parti_handler_latency_seconds_count") && lag {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let text = tokio::time::timeout(crate::touched::PATIENCE, shown).await;
    let text = text.expect("metrics come");
    let plain = prometheus::parse_prometheus(&text).expect("valid Prometheus text");
    let state = r#"parti_worker_state{group="a \"quoted\\groupé",worker="worker-0"} 4"#;
    assert!(text.contains(state), "{text}");
    assert_eq!(
        text.matches("parti_partition_lag{").count(),
        3,
        "two and the rest"
    );
    for (name, family) in &plain.families {
        let metric = METRICS.iter().find(|metric| metric.name == name.as_str());
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
        let kind = format!("{:?}", family.family_type).to_lowercase();
        assert_eq!(kind, metric.kind.name(), "{name}");
        assert_eq!(family.help, metric.help, "{name}");
    }
    assert!(plain.families.len() > 30, "{}", plain.families.len());

    let accept = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n";
    let (status, kind, text) = ask(&endpoint, accept).await;
    assert_eq!(status, 200);
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let open = openmetrics::parse_openmetrics(&text).expect("valid OpenMetrics text");
    assert!(open.families.len() >= plain.families.len());
    assert!(open.families.contains_key("parti_consumer_messages"));

    worker.stop().await.expect("stops");
    let (status, why) = get(&endpoint, "/readyz").await;
    assert_eq!((status, why.contains("ended")), (503, true), "{why}");
}

#[tokio::test]
async fn bad_requests_and_bad_addresses_are_told() {
    let endpoint = Endpoint::open("127.0.0.1:0").await.expect("opens");
    assert_eq!(get(&endpoint, "/").await.0, 404);
    assert_eq!(ask(&endpoint, "POST /metrics HTTP/1.1\r\n").await.0, 405);
    let taken = endpoint.address().to_string();
    for address in [
        taken.as_str(),
        "127.0.0.1:99999",
        "no such host:1",
        "nonsense",
    ] {
        match Endpoint::open(address).await {
            Err(error @ EndpointError::Address { .. }) => {
                let line = error.to_string();
                assert!(line.contains(address) && !line.contains('\n'), "{line}");
            }
            other => panic!("{address}: {other:?}"),
        }
    }
    let address = endpoint.address();
    drop(endpoint);
    let again = async {
        while Endpoint::open(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let again = tokio::time::timeout(crate::touched::PATIENCE, again).await;
    assert!(again.is_ok(), "an endpoint that is dropped frees its port");
}

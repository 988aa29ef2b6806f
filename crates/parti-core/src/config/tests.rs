//! The whole configuration: what loads, what is refused and in which words, what is written.

use super::*;
use crate::problem::Problems;
use crate::rng::Rng;

const EXAMPLES: [(&str, &str); 3] = [
    (
        "development",
        include_str!("../../../../examples/configs/development.yaml"),
    ),
    (
        "production",
        include_str!("../../../../examples/configs/production.yaml"),
    ),
    (
        "high-churn",
        include_str!("../../../../examples/configs/high-churn.yaml"),
    ),
];

fn problems(yaml: &str) -> Vec<String> {
    Config::from_yaml(yaml)
        .expect_err(yaml)
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// The one problem that a text has.
fn problem(yaml: &str) -> String {
    let all = problems(yaml);
    assert_eq!(all.len(), 1, "{yaml}: {all:#?}");
    all.into_iter().next().expect("one")
}

#[test]
fn the_examples_of_the_library_specification_load() {
    for (name, text) in EXAMPLES {
        let config = Config::from_yaml(text).expect(name);
        assert_eq!(config.validate(), Ok(()), "{name}");
    }
    let churn = Config::from_yaml(EXAMPLES[2].1).expect("high-churn");
    let expected = Config {
        worker_id_prefix: "dynamic-worker".into(),
        worker_id_max: 499,
        worker_id_ttl: secs(20),
        heartbeat_interval: secs(1),
        heartbeat_ttl: secs(4),
        cold_start_window: secs(20),
        planned_scale_window: secs(5),
        restart_detection_ratio: 0.3,
        operation_timeout: secs(8),
        election_timeout: secs(4),
        startup_timeout: secs(25),
        shutdown_timeout: secs(8),
        assignment: AssignmentConfig {
            min_rebalance_threshold: 0.2,
            rebalance_cooldown: secs(5),
        },
        ..Config::default()
    };
    assert_eq!(churn, expected);
    // The production example is the defaults, but for the number of ids.
    let production = Config::from_yaml(EXAMPLES[1].1).expect("production");
    assert_eq!(
        production,
        Config {
            worker_id_max: 199,
            ..Config::default()
        }
    );
}

#[test]
fn the_defaults_are_valid_and_pinned() {
    assert_eq!(Config::default().validate(), Ok(()));
    assert_eq!(
        Config::default().to_yaml(),
        include_str!("../../tests/data/defaults.yaml")
    );
}

#[test]
fn nothing_given_means_all_defaults() {
    for text in [
        "",
        "\n",
        "# only a comment\n",
        "{}",
        "assignment:\njetstream: {}\n",
    ] {
        assert_eq!(Config::from_yaml(text), Ok(Config::default()), "{text:?}");
    }
    assert_eq!(Config::from_json("{}"), Ok(Config::default()));
}

fn unusual() -> Config {
    let mut config = Config {
        worker_id_prefix: "no".into(),
        settle_time: Some(Duration::from_millis(1_500)),
        expected_workers: Some(3),
        coordination: Coordination::Leaderless,
        strategy: StrategyChoice::FairShare,
        planned_scale_window: Duration::ZERO,
        ..Config::default()
    };
    config.processing.start = StartPosition::Time(1_769_860_800_123);
    config.processing.ordering = Ordering::Key;
    config.jetstream.ack = AckMode::None;
    config.jetstream.retry_backoff = vec![];
    config.jetstream.max_deliver = 1;
    config
}

#[test]
fn what_is_written_reads_back() {
    let mut round_robin = unusual();
    round_robin.strategy = StrategyChoice::RoundRobin;
    round_robin.processing.start = StartPosition::Offset(77);
    let mut hashed = unusual();
    hashed.strategy = StrategyChoice::ConsistentHash { virtual_nodes: 7 };
    hashed.processing.start = StartPosition::Earliest;
    for config in [Config::default(), unusual(), round_robin, hashed] {
        let yaml = config.to_yaml();
        assert_eq!(Config::from_yaml(&yaml).as_ref(), Ok(&config), "{yaml}");
        assert_eq!(Config::from_json(&config.to_json()).as_ref(), Ok(&config));
        let text = serde_json::to_string(&config).expect("writes");
        assert_eq!(
            serde_json::from_str::<Config>(&text).expect("reads"),
            config
        );
        let direct: Config = serde_saphyr::from_str(&yaml).expect("reads");
        assert_eq!(direct, config);
    }
}

#[test]
fn shapes_that_people_use() {
    let start = |text: &str| Config::from_yaml(text).expect(text).processing.start;
    assert_eq!(
        start("processing: {start: {time: \"1970-01-01T00:00:01.5Z\"}}"),
        StartPosition::Time(1_500)
    );
    assert_eq!(
        start("processing: {start: {time: 1500}}"),
        StartPosition::Time(1_500)
    );
    assert_eq!(
        start("processing: {start: {offset: 5}}"),
        StartPosition::Offset(5)
    );
    let strategy = |text: &str| Config::from_yaml(text).expect(text).strategy;
    let hash = |virtual_nodes| StrategyChoice::ConsistentHash { virtual_nodes };
    assert_eq!(strategy("strategy: consistent_hash"), hash(150));
    assert_eq!(
        strategy("strategy: {name: consistent_hash, virtual_nodes: 200}"),
        hash(200)
    );
    assert_eq!(
        strategy("strategy: {name: round_robin}"),
        StrategyChoice::RoundRobin
    );
    let ratio = |text: &str| Config::from_yaml(text).expect(text).restart_detection_ratio;
    assert_eq!(ratio("restart_detection_ratio: 1"), 1.0);
}

#[test]
fn five_mistakes_of_five_kinds_are_five_problems() {
    let text = include_str!("../../tests/data/five-mistakes.yaml");
    assert_eq!(
        problems(text),
        [
            "heartbeat_intervall: \"2s\" is set, but there is no such setting; did you mean heartbeat_interval?",
            "worker_id_ttl: \"half a minute\" is no duration; give a duration such as 500ms, 30s or 1h30m",
            "jetstream.max_ack_pending: -5 is negative; give a whole number from 0 to 4294967295",
            "worker_id_max: 3 is less than worker_id_min, 10; raise it to 10, or lower worker_id_min",
            "restart_detection_ratio: 1.5 is not a share between 0 and 1; give a share such as 0.5",
        ]
    );
    let json =
        serde_json::to_string(&serde_saphyr::from_str::<serde_json::Value>(text).expect("YAML"));
    let from_json = Config::from_json(&json.expect("JSON")).expect_err("five mistakes");
    assert_eq!(
        from_json
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        problems(text)
    );
}

#[test]
fn one_mistake_is_one_problem() {
    for (text, wanted) in [
        (
            "worker_id_prefix: \"my worker\"",
            "worker_id_prefix: my worker contains ' '; use 1 to 64",
        ),
        ("worker_id_prefix: \"\"", "worker_id_prefix: \"\" is empty"),
        ("worker_id_prefix: 5", "put it in quotes: \"5\""),
        ("worker_id_prefix: [a]", "is a list"),
        ("worker_id_max: \"99\"", "is text; remove the quotes"),
        ("worker_id_max: 1.5", "is not a whole number"),
        (
            "worker_id_max: 99999999",
            "is not between 0 and 1000000; the nearest allowed value is 1000000",
        ),
        (
            "worker_id_min: 100",
            "worker_id_max: 99 is less than worker_id_min, 100",
        ),
        (
            "worker_id_ttl: 5s",
            "worker_id_ttl: 5s is shorter than heartbeat_ttl, 6s; give 6s at least",
        ),
        ("heartbeat_interval: 2", "heartbeat_interval: 2 has no unit"),
        (
            "heartbeat_interval: 0",
            "heartbeat_interval: 0s is too short",
        ),
        ("heartbeat_interval: 9999999h", "is longer than a year"),
        ("heartbeat_interval:", "heartbeat_interval: null is empty"),
        (
            "heartbeat_ttl: 3s",
            "is shorter than twice heartbeat_interval, 2s; give 4s at least",
        ),
        ("heartbeat_ttl: 0", "heartbeat_ttl: 0s is too short"),
        ("heartbeat_ttl: -6s", "heartbeat_ttl: \"-6s\" is negative"),
        ("restart_detection_ratio: .nan", "restart_detection_ratio"),
        (
            "restart_detection_ratio: \"0.5\"",
            "is text; give a number such as 0.5, without quotes",
        ),
        (
            "expected_workers: 0",
            "expected_workers: 0 is not between 1",
        ),
        ("expected_workers: 500", "is more than the 100 ids"),
        ("settle_time: soon", "settle_time: \"soon\" is no duration"),
        (
            "operation_timeout: 30s",
            "startup_timeout: 30s is not longer than operation_timeout, 30s",
        ),
        (
            "election_timeout: 40s",
            "startup_timeout: 30s is not longer than election_timeout, 40s",
        ),
        ("shutdown_timeout: 0s", "shutdown_timeout: 0s is too short"),
        (
            "checkpoint_flush_interval: 0s",
            "checkpoint_flush_interval: 0s is too short",
        ),
        (
            "coordination: both",
            "coordination: \"both\" is not known; use one of: leader, leaderless",
        ),
        (
            "strategy: magic",
            "strategy: \"magic\" names no known strategy",
        ),
        ("strategy: {virtual_nodes: 5}", "names no known strategy"),
        (
            "strategy: {name: consistent_hash, virtual_nodes: 0}",
            "strategy.virtual_nodes: 0 is not between 1 and 10000",
        ),
        (
            "strategy: {name: consistent_hash, virtual_nodes: x}",
            "strategy.virtual_nodes: \"x\" is text",
        ),
        (
            "strategy: {name: round_robin, virtual_nodes: 5}",
            "strategy.virtual_nodes: 5 is set, but there is no such",
        ),
        (
            "assignment: 5",
            "assignment: 5 is no section; give it fields: min_rebalance_threshold, rebalance_cooldown",
        ),
        (
            "assignment: {min_rebalance_threshold: -0.1}",
            "assignment.min_rebalance_threshold: -0.1 is not a share",
        ),
        (
            "rebalance_cooldown: 5s",
            "did you mean assignment.rebalance_cooldown?",
        ),
        (
            "assignment: {rebalanceCooldown: 5s}",
            "did you mean assignment.rebalance_cooldown?",
        ),
        (
            "color: red",
            "color: \"red\" is set, but there is no such setting; known here are worker_id_prefix",
        ),
        (
            "handoff: {prepare_timeout: 0}",
            "handoff.prepare_timeout: 0s is too short",
        ),
        (
            "leaderless: {lease_ttl: 3s}",
            "leaderless.lease_ttl: 3s is shorter than twice leaderless.heartbeat, 2s",
        ),
        (
            "coordination: leaderless\nworker_id_ttl: 4s",
            "worker_id_ttl: 4s is shorter than leaderless.lease_ttl, 5s",
        ),
        (
            "retry: {backoff: 0.5}",
            "retry.backoff: 0.5 is not between 1 and 100",
        ),
        (
            "retry: {initial_delay: 1m}",
            "retry.max_delay: 30s is shorter than retry.initial_delay, 1m",
        ),
        (
            "processing: {concurrency: 0}",
            "processing.concurrency: 0 is not between 1",
        ),
        (
            "processing: {start: {offset: -1}}",
            "processing.start.offset: -1 is negative",
        ),
        (
            "processing: {start: {time: yesterday}}",
            "processing.start.time: \"yesterday\" is no time",
        ),
        (
            "processing: {start: now}",
            "processing.start: \"now\" is no start; use latest, earliest",
        ),
        (
            "processing: {max_done_above: 1000000}",
            "the nearest allowed value is 10000",
        ),
        (
            "jetstream: {backpressure: 0}",
            "jetstream.backpressure: 0 is not a share above 0",
        ),
        (
            "jetstream: {backpressure: 1.1}",
            "jetstream.backpressure: 1.1 is not a share",
        ),
        (
            "jetstream: {max_deliver: 0}",
            "jetstream.max_deliver: 0 is not between 1",
        ),
        (
            "jetstream: {subject_cap: 0}",
            "jetstream.subject_cap: 0 is not between 1",
        ),
        (
            "jetstream: {retry_backoff: []}",
            "jetstream.retry_backoff: [] has no wait for the 3 tries",
        ),
        (
            "jetstream: {retry_backoff: [2s, 5]}",
            "jetstream.retry_backoff[1]: 5 has no unit",
        ),
        (
            "jetstream: {initial_batch: 501}",
            "jetstream.max_ack_pending: 500 is less than jetstream.initial_batch, 501",
        ),
        (
            "jetstream: {inactive_threshold: 5s}",
            "jetstream.inactive_threshold: 5s is shorter than heartbeat_ttl, 6s",
        ),
        ("- a", "configuration: [\"a\"] is no section"),
        ("a: [", "configuration: the text is not YAML"),
        (
            "heartbeat_ttl: 6s\nheartbeat_ttl: 8s",
            "configuration: the text is not YAML",
        ),
    ] {
        let problem = problem(text);
        assert!(
            problem.contains(wanted),
            "{text}\n  wanted: {wanted}\n  got:    {problem}"
        );
        assert!(!problem.contains('\n'), "{problem}");
    }
}

#[test]
fn json_refuses_repeated_fields_and_trailing_text() {
    for (text, wanted) in [
        (
            r#"{"heartbeat_ttl":"6s","heartbeat_ttl":"8s"}"#,
            "heartbeat_ttl is given twice",
        ),
        ("{} x", "is not JSON"),
        ("", "is not JSON"),
        (r#"{"assignment":{"a":1,"a":2}}"#, "a is given twice"),
    ] {
        let problems = Config::from_json(text).expect_err(text).to_string();
        assert!(problems.contains(wanted), "{text}: {problems}");
    }
}

#[test]
fn zero_is_allowed_where_it_means_something() {
    let text = "planned_scale_window: 0\ncold_start_window: 0s\nsettle_time: 0\nassignment: {rebalance_cooldown: 0}\n\
                leaderless: {grace_period: 0}\njetstream: {min_update_interval: 0, retry_backoff: [0]}\n";
    let config = Config::from_yaml(text).expect("valid");
    assert_eq!(config.settle_time(), Duration::ZERO);
}

#[test]
fn a_typed_configuration_is_judged_by_the_same_rules() {
    let config = Config {
        heartbeat_ttl: Duration::MAX,
        heartbeat_interval: Duration::MAX,
        restart_detection_ratio: f64::NAN,
        worker_id_min: u64::MAX,
        ..Config::default()
    };
    // None of this may overflow on the way.
    let problems: Problems = config.validate().expect_err("wrong");
    let fields: Vec<&str> = problems
        .iter()
        .map(|problem| problem.field.as_str())
        .collect();
    assert_eq!(
        fields,
        [
            "worker_id_max",
            "heartbeat_interval",
            "heartbeat_ttl",
            "restart_detection_ratio"
        ]
    );
    assert!(config.settle_time() > Duration::ZERO);
}

#[test]
fn hints_are_data() {
    let fields = |config: &Config| {
        config
            .hints()
            .iter()
            .map(|hint| hint.field)
            .collect::<Vec<_>>()
    };
    let hints = Config::default().hints();
    assert_eq!(fields(&Config::default()), ["heartbeat_ttl"]);
    assert_eq!(hints[0].applies, HintFor::ReplicatedStore);
    let mut config = Config {
        heartbeat_ttl: secs(10),
        ..Config::default()
    };
    assert_eq!(fields(&config), [""; 0]);
    config.settle_time = Some(secs(20));
    config.restart_detection_ratio = 0.0;
    config.processing.lane_buffer = 500;
    config.jetstream.retry_backoff.reverse();
    assert_eq!(
        fields(&config),
        [
            "planned_scale_window",
            "restart_detection_ratio",
            "processing.lane_buffer",
            "jetstream.retry_backoff"
        ]
    );
    config = Config {
        coordination: Coordination::Leaderless,
        ..Config::default()
    };
    assert_eq!(fields(&config), ["leaderless.lease_ttl"]);
}

#[test]
fn the_schema_knows_every_field() {
    let schema = Config::json_schema();
    assert_eq!(schema["properties"]["heartbeat_ttl"]["default"], "6s");
    assert_eq!(
        schema["properties"]["worker_id_prefix"]["description"],
        "Prefix of worker ids."
    );
    assert_eq!(
        schema["properties"]["jetstream"]["properties"]["subject_cap"]["default"],
        500
    );
    let written = serde_json::to_value(Config::default()).expect("writes");
    for (name, value) in written.as_object().expect("fields") {
        let field = &schema["properties"][name];
        assert!(!field.is_null(), "{name}");
        if let (Some(inner), Some(known)) = (value.as_object(), field["properties"].as_object()) {
            assert!(inner.keys().eq(known.keys()), "{name}");
        }
    }
}

#[test]
fn garbled_text_never_panics() {
    let mut rng = Rng::new(11);
    let base = Config::default().to_yaml();
    let mut accepted = 0;
    for _ in 0..1_500 {
        let mut bytes = base.clone().into_bytes();
        for _ in 0..rng.between(1, 3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(5) {
                _ if bytes[at].is_ascii_digit() => bytes[at] = b'0' + rng.below(10) as u8,
                0 => bytes[at] = b"{}[]\",:0123456789-e.ms\n #&*!|>'%@`"[rng.below(33) as usize],
                1 => drop(bytes.remove(at)),
                // Most of a text is names; look at its values more often.
                2 | 3 => {
                    if let Some(digit) = bytes[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
                        *digit = b'0' + rng.below(10) as u8;
                    }
                }
                _ => bytes.insert(at, b"x9-:\n 0sh"[rng.below(9) as usize]),
            }
        }
        match Config::from_yaml(&String::from_utf8_lossy(&bytes)) {
            Ok(config) => {
                accepted += 1;
                assert_eq!(config.validate(), Ok(()));
                assert_eq!(Config::from_yaml(&config.to_yaml()), Ok(config));
            }
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    }
    assert!(
        accepted > 50,
        "some must stay valid for the test to mean much: {accepted}"
    );
}

#[test]
fn settings_may_be_read_over_others_than_the_defaults() {
    let others = || Config {
        worker_id_max: 7,
        processing: ProcessingConfig {
            start: StartPosition::Earliest,
            ..ProcessingConfig::default()
        },
        ..Config::default()
    };
    let text = "heartbeat_ttl: 20s\nprocessing: {concurrency: 3}\n";
    let config = others().with_yaml(text).expect("sound");
    assert_eq!(config.worker_id_max, 7);
    assert_eq!(config.heartbeat_ttl, Duration::from_secs(20));
    assert_eq!(config.processing.start, StartPosition::Earliest);
    assert_eq!(config.processing.concurrency, 3);
    let given = others()
        .with_yaml("processing: {start: latest}")
        .expect("sound");
    assert_eq!(given.processing.start, StartPosition::Latest);
}

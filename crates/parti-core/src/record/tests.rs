//! The format is pinned here: what these texts say is what stores hold.

use super::*;
use crate::key::Key;
use crate::rng::Rng;

fn partition_id(text: &str) -> PartitionId {
    PartitionId::new(text)
}

fn worker_id(text: &str) -> WorkerId {
    WorkerId::new(text)
}

/// One of each kind, with its key and its exact bytes.
fn examples() -> Vec<(Key, Record, &'static str)> {
    let worker_key = || Key::Worker(worker_id("worker-1"));
    let partition_key = || Key::Partition(partition_id("tool001.a=2Eb"));
    vec![
        (
            Key::Group,
            Record::Group(Arc::new(GroupRecord {
                store: Nonce(u64::MAX),
                stream: 1_700_000_000_123_456_789.into(),
                coordination: "leader".into(),
                strategy: None,
                nonce: Nonce(10),
            })),
            r#"{"v":1,"store":"ffffffffffffffff","stream":"17979cfe3d85cd15","coordination":"leader","nonce":"000000000000000a"}"#,
        ),
        (
            Key::Group,
            Record::Group(Arc::new(GroupRecord {
                store: Nonce(1),
                stream: 2.into(),
                coordination: "leaderless".into(),
                strategy: Some("round_robin".into()),
                nonce: Nonce(3),
            })),
            r#"{"v":1,"store":"0000000000000001","stream":"0000000000000002","coordination":"leaderless","strategy":"round_robin","nonce":"0000000000000003"}"#,
        ),
        (
            Key::Group,
            Record::Group(Arc::new(GroupRecord {
                store: Nonce(1),
                stream: SourceId::NoLog,
                coordination: "leader".into(),
                strategy: None,
                nonce: Nonce(3),
            })),
            r#"{"v":1,"store":"0000000000000001","stream":"none","coordination":"leader","nonce":"0000000000000003"}"#,
        ),
        (
            Key::Group,
            Record::Group(Arc::new(GroupRecord {
                store: Nonce(1),
                stream: SourceId::Untold,
                coordination: "leader".into(),
                strategy: None,
                nonce: Nonce(3),
            })),
            r#"{"v":1,"store":"0000000000000001","stream":"0000000000000000","coordination":"leader","nonce":"0000000000000003"}"#,
        ),
        (
            Key::Leader,
            Record::Leader(Arc::new(LeaderRecord {
                holder: Some((worker_id("worker-1"), Incarnation(17))),
                term: Term(3),
                beat: 44,
                nonce: Nonce(0xbeef),
            })),
            r#"{"v":1,"worker":"worker-1","incarnation":17,"term":3,"beat":44,"nonce":"000000000000beef"}"#,
        ),
        (
            Key::Leader,
            Record::Leader(Arc::new(LeaderRecord {
                holder: None,
                term: Term(3),
                beat: 45,
                nonce: Nonce(1),
            })),
            r#"{"v":1,"worker":null,"incarnation":null,"term":3,"beat":45,"nonce":"0000000000000001"}"#,
        ),
        (
            Key::Plan,
            Record::Plan(Arc::new(PlanRecord {
                version: Version(9),
                term: Term(3),
                lifecycle: Lifecycle::PostColdStart,
                state: PlanState::Rebalancing,
                reason: "worker-2 joined".into(),
                started_at: 1_700_000_000_000,
                workers: 2,
                partitions: 10,
                moving: 5,
                unserved: vec![(partition_id("9"), "over cap".into())],
                added: vec![],
                fingerprint: Fingerprint {
                    partitions: 0xfeed,
                    strategy: "consistent_hash(150)".into(),
                    coordination: "leader".into(),
                },
                nonce: Nonce(2),
            })),
            r#"{"v":1,"version":9,"term":3,"lifecycle":"post_cold_start","state":"rebalancing","reason":"worker-2 joined","started_at":1700000000000,"workers":2,"partitions":10,"moving":5,"unserved":[{"partition":"9","why":"over cap"}],"fingerprint":{"partitions":"000000000000feed","strategy":"consistent_hash(150)","coordination":"leader"},"nonce":"0000000000000002"}"#,
        ),
        (
            worker_key(),
            Record::Worker(Arc::new(WorkerRecord {
                incarnation: Some(Incarnation(17)),
                beat: 5,
                status: SessionStatus::Live,
                state: 4,
                term: Term(3),
                released: Version(9),
                applied: Version(8),
                ready: Ready {
                    version: Version(9),
                    partitions: vec![partition_id("7")],
                },
                blocked_by: vec![Blocked {
                    partition: partition_id("3"),
                    owner: worker_id("worker-0"),
                    incarnation: Incarnation(2),
                }],
                load: 12,
                degraded: Some("source not available".into()),
                partitions: 0xfeed,
                heeds: Revision(0),
                renewed_at: 1_700_000_000_000,
                badge: None,
                nonce: Nonce(3),
            })),
            r#"{"v":1,"incarnation":17,"beat":5,"status":"live","state":4,"term":3,"released":9,"applied":8,"ready":{"version":9,"partitions":["7"]},"blocked_by":[{"partition":"3","owner":"worker-0","incarnation":2}],"load":12,"degraded":"source not available","partitions":"000000000000feed","renewed_at":1700000000000,"nonce":"0000000000000003"}"#,
        ),
        (
            worker_key(),
            Record::Worker(Arc::new(WorkerRecord {
                incarnation: None,
                beat: 0,
                status: SessionStatus::Goodbye,
                state: 1,
                term: Term(0),
                released: Version(0),
                applied: Version(0),
                ready: Ready::default(),
                blocked_by: vec![],
                load: 0,
                degraded: None,
                partitions: 0,
                heeds: Revision(0),
                renewed_at: 0,
                badge: None,
                nonce: Nonce(4),
            })),
            r#"{"v":1,"incarnation":null,"beat":0,"status":"goodbye","state":1,"term":0,"released":0,"applied":0,"ready":{"version":0,"partitions":[]},"blocked_by":[],"load":0,"degraded":null,"partitions":"0000000000000000","renewed_at":0,"nonce":"0000000000000004"}"#,
        ),
        (
            Key::Assignment(worker_id("worker-1")),
            Record::Assignment(Arc::new(AssignmentRecord {
                version: Version(9),
                term: Term(3),
                incarnation: Incarnation(17),
                lifecycle: Lifecycle::Stable,
                serve: vec![partition_id("1"), partition_id("a=2Eb")],
                prepare: vec![(partition_id("7"), worker_id("worker-0"))],
                release: vec![partition_id("4")],
                added: vec![partition_id("1")],
                nonce: Nonce(5),
            })),
            r#"{"v":1,"version":9,"term":3,"incarnation":17,"lifecycle":"stable","serve":["1","a=2Eb"],"prepare":[{"partition":"7","owner":"worker-0"}],"release":["4"],"added":["1"],"nonce":"0000000000000005"}"#,
        ),
        (
            partition_key(),
            Record::Partition(Arc::new(PartitionRecord {
                epoch: Epoch(6),
                owner: Some((worker_id("worker-1"), Incarnation(17))),
                start: Offset(100),
                offset: Some(Offset(141)),
                done_above: vec![Offset(143), Offset(150)],
                begun: Some(Begun {
                    offset: Offset(142),
                    times: 2,
                }),
                nonce: Nonce(6),
                claimed_at: 1_700_000_000_000,
                updated_at: 1_700_000_005_000,
            })),
            r#"{"v":1,"epoch":6,"owner":"worker-1","incarnation":17,"start":100,"offset":141,"next_offset":142,"done_above":[143,150],"begun":{"offset":142,"times":2},"nonce":"0000000000000006","claimed_at":1700000000000,"updated_at":1700000005000}"#,
        ),
        (
            partition_key(),
            Record::Partition(Arc::new(PartitionRecord {
                epoch: Epoch(1),
                start: Offset(100),
                nonce: Nonce(7),
                ..PartitionRecord::default()
            })),
            r#"{"v":1,"epoch":1,"owner":null,"incarnation":null,"start":100,"offset":null,"next_offset":100,"begun":null,"nonce":"0000000000000007","claimed_at":0,"updated_at":0}"#,
        ),
        (
            Key::Overrides,
            Record::Overrides(Arc::new(OverridesRecord {
                term: Term(3),
                drained: vec![Drained {
                    worker: worker_id("worker-1"),
                    incarnation: Incarnation(17),
                }],
                paused: vec![partition_id("7")],
                pinned: vec![
                    Pinned {
                        partition: partition_id("8"),
                        worker: worker_id("worker-2"),
                        incarnation: None,
                    },
                    Pinned {
                        partition: partition_id("9"),
                        worker: worker_id("worker-2"),
                        incarnation: Some(Incarnation(20)),
                    },
                ],
                nonce: Nonce(8),
            })),
            r#"{"v":1,"term":3,"drained":[{"worker":"worker-1","incarnation":17}],"paused":["7"],"pinned":[{"partition":"8","worker":"worker-2"},{"partition":"9","worker":"worker-2","incarnation":20}],"nonce":"0000000000000008"}"#,
        ),
        (
            Key::Request("r1".into()),
            Record::Request(Arc::new(RequestRecord {
                request: Request::Move {
                    partition: partition_id("7"),
                    worker: worker_id("worker-2"),
                },
                by: "ana".into(),
                why: "hot".into(),
                at: 5,
                outcome: Outcome::Refused {
                    why: "worker-2 is gone".into(),
                },
                nonce: Nonce(8),
            })),
            r#"{"v":1,"request":{"kind":"move","partition":"7","worker":"worker-2"},"by":"ana","why":"hot","at":5,"outcome":{"state":"refused","why":"worker-2 is gone"},"nonce":"0000000000000008"}"#,
        ),
        (
            Key::Request("r2".into()),
            Record::Request(Arc::new(RequestRecord {
                request: Request::Rebalance,
                by: "ana".into(),
                why: "".into(),
                at: 5,
                outcome: Outcome::Open,
                nonce: Nonce(8),
            })),
            r#"{"v":1,"request":{"kind":"rebalance"},"by":"ana","why":"","at":5,"outcome":{"state":"open"},"nonce":"0000000000000008"}"#,
        ),
        (
            Key::Request("r3".into()),
            Record::Request(Arc::new(RequestRecord {
                request: Request::Evict {
                    worker: worker_id("worker-2"),
                    incarnation: Incarnation(6),
                    stay_away: true,
                },
                by: "ana".into(),
                why: "it hangs".into(),
                at: 5,
                outcome: Outcome::Accepted,
                nonce: Nonce(8),
            })),
            r#"{"v":1,"request":{"kind":"evict","worker":"worker-2","incarnation":6,"stay_away":true},"by":"ana","why":"it hangs","at":5,"outcome":{"state":"accepted"},"nonce":"0000000000000008"}"#,
        ),
        (
            Key::Event(12),
            Record::Event(Arc::new(EventRecord {
                at: 5,
                worker: worker_id("worker-1"),
                kind: EventKind::Crash,
                text: "worker-0 fell silent".into(),
                moves: None,
                nonce: Nonce(9),
            })),
            r#"{"v":1,"at":5,"worker":"worker-1","kind":"crash","text":"worker-0 fell silent","nonce":"0000000000000009"}"#,
        ),
        (
            Key::Topic("orders".into()),
            Record::Topic(Arc::new(TopicRecord {
                partitions: 64,
                layout: Layout::Xxh3Modulo,
                subject: Some("orders.{0}".into()),
                strategy: None,
                nonce: Nonce(10),
            })),
            r#"{"v":1,"partitions":64,"layout":"xxh3_modulo","subject":"orders.{0}","nonce":"000000000000000a"}"#,
        ),
        (
            Key::Topic("orders".into()),
            Record::Topic(Arc::new(TopicRecord {
                partitions: 8,
                layout: Layout::Xxh3Modulo,
                subject: None,
                strategy: Some("fair_share".into()),
                nonce: Nonce(11),
            })),
            r#"{"v":1,"partitions":8,"layout":"xxh3_modulo","subject":null,"strategy":"fair_share","nonce":"000000000000000b"}"#,
        ),
    ]
}

fn decode(key: &Key, text: &str) -> Record {
    Record::decode(key, text.as_bytes())
}

fn why(key: &Key, text: &str) -> String {
    match decode(key, text) {
        Record::Unreadable(why) => why.to_string(),
        record => panic!("readable: {text} as {record:?}"),
    }
}

#[test]
fn the_format_is_pinned_and_comes_back() {
    for (key, record, text) in examples() {
        assert_eq!(String::from_utf8_lossy(&record.encode()), text);
        assert_eq!(decode(&key, text), record);
    }
}

#[test]
fn further_fields_of_the_same_version_are_ignored() {
    for (key, record, text) in examples() {
        let more = text.replacen('{', r#"{"new":{"a":[1,2,{}]},"#, 1);
        assert_eq!(decode(&key, &more), record, "{more}");
    }
}

#[test]
fn a_newer_format_is_left_alone_whatever_it_holds() {
    for (key, _, text) in examples() {
        let newer = text.replacen(r#""v":1"#, r#""v":2"#, 1);
        assert!(why(&key, &newer).contains("format version 2 is newer"));
        assert!(why(&key, r#"{"v":7,"all":"different"}"#).contains("format version 7 is newer"));
        for none in ["0", "-1", "1.0", "\"1\"", "[]", "1e3"] {
            let text = text.replacen(r#""v":1"#, &format!(r#""v":{none}"#), 1);
            assert!(why(&key, &text).contains("is none"), "{text}");
        }
        assert!(why(&key, &text.replacen(r#""v":1,"#, "", 1)).contains("no format version"));
    }
}

#[test]
fn what_no_record_can_be_is_unreadable() {
    for (key, _, text) in examples() {
        for junk in [
            "",
            " ",
            "null",
            "1",
            "[]",
            "{}",
            "\"x\"",
            r#"{"v":1}"#,
            "{\"v\":1",
            "\0",
            "{\"v\":1}}",
        ] {
            assert!(!why(&key, junk).is_empty(), "{junk:?}");
        }
        assert!(matches!(
            Record::decode(&key, b"\xff\xfe{}"),
            Record::Unreadable(_)
        ));
        // A record of one kind under the key of another.
        for (other, _, _) in examples() {
            if std::mem::discriminant(&other) != std::mem::discriminant(&key) {
                assert!(
                    matches!(decode(&other, text), Record::Unreadable(_)),
                    "{text} at {other}"
                );
            }
        }
    }
}

#[test]
fn a_partition_record_that_contradicts_itself_is_unreadable() {
    let key = Key::Partition(partition_id("1"));
    let good = r#"{"v":1,"epoch":6,"owner":"worker-1","incarnation":17,"start":100,"offset":141,"next_offset":142,"begun":null,"nonce":"0000000000000006","claimed_at":1,"updated_at":1}"#;
    assert!(matches!(decode(&key, good), Record::Partition(_)));
    let without_next = good.replace(r#""next_offset":142,"#, "");
    assert!(matches!(decode(&key, &without_next), Record::Partition(_)));
    for (from, to, reason) in [
        (
            r#""next_offset":142"#,
            r#""next_offset":141"#,
            "set both or only offset",
        ),
        (r#""owner":"worker-1""#, r#""owner":null"#, "given together"),
        (r#""owner":"worker-1","#, "", "missing field `owner`"),
        (r#""incarnation":17,"#, "", "missing field `incarnation`"),
        (
            r#""offset":141,"next_offset":142,"#,
            "",
            "missing field `offset`",
        ),
        (
            r#""offset":141,"next_offset":142"#,
            r#""offset":18446744073709551615"#,
            "beyond any number",
        ),
        (
            r#""epoch":6"#,
            r#""epoch":9223372036854775808"#,
            "epoch is 9223372036854775808",
        ),
        (r#""epoch":6"#, r#""epoch":-1"#, "invalid value"),
        (
            r#""begun""#,
            r#""done_above":[150,143],"begun""#,
            "done_above must be sorted",
        ),
        (
            r#""begun""#,
            r#""done_above":[141],"begun""#,
            "done_above must be sorted",
        ),
        (
            r#""owner":"worker-1""#,
            r#""owner":"a/*""#,
            "is no worker id",
        ),
        (
            r#""nonce":"0000000000000006""#,
            r#""nonce":"6""#,
            "sixteen hex digits",
        ),
        (
            r#""nonce":"0000000000000006""#,
            r#""nonce":"000000000000000A""#,
            "sixteen hex digits",
        ),
        (r#""epoch":6"#, r#""epoch":6,"epoch":7"#, "duplicate field"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good);
        let why = why(&key, &text);
        assert!(why.contains(reason), "{text}: {why}");
    }
}

#[test]
fn ids_that_nobody_could_have_made_are_refused() {
    for (key, _, text) in examples() {
        for id in ["\"worker-1\"", "\"7\"", "\"1\"", "\"9\""] {
            if text.contains(id) {
                let wrong = text.replace(id, "\"a b/*\"");
                assert!(why(&key, &wrong).contains("a b/*"), "{wrong}");
            }
        }
    }
}

#[test]
fn reasons_are_short_and_safe_to_print() {
    let text = format!(r#"{{"v":1,"epoch":"{}"}}"#, "\\u001b[31m".repeat(1000));
    let why = why(&Key::Partition(partition_id("1")), &text);
    assert!(
        why.chars().count() < 2_000 && !why.contains('\u{1b}'),
        "{why}"
    );
}

#[test]
fn encoding_what_cannot_be_read_stays_unreadable() {
    let bytes = Record::Unreadable("not \"JSON\"".into()).encode();
    assert!(matches!(
        Record::decode(&Key::Plan, &bytes),
        Record::Unreadable(_)
    ));
    // Extreme numbers do not panic either.
    let record = PartitionRecord {
        offset: Some(Offset(u64::MAX)),
        ..PartitionRecord::default()
    };
    assert!(!Record::Partition(Arc::new(record)).encode().is_empty());
}

#[test]
fn byte_soup_never_panics() {
    let examples = examples();
    let mut rng = Rng::new(42);
    let mut survived = 0;
    for _ in 0..20_000 {
        let (key, _, text) = &examples[rng.below(examples.len() as u64) as usize];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..rng.between(1, 4) {
            let at = rng.below(bytes.len() as u64) as usize;
            let other = rng.below(bytes.len() as u64) as usize;
            match rng.below(5) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => bytes[at] = b"{}[]\",:0123456789-e.nul"[rng.below(23) as usize],
                2 => bytes.swap(at, other),
                3 => bytes.truncate(at + 1),
                _ => {
                    let piece = bytes[at.min(other)..at.max(other)].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        match Record::decode(key, &bytes) {
            Record::Unreadable(why) => assert!(!why.is_empty()),
            record => {
                survived += 1;
                // Whatever reads at all must come back from what we write of it.
                assert_eq!(Record::decode(key, &record.encode()), record);
            }
        }
    }
    assert!(
        survived > 100,
        "some soup must stay readable for the test to mean much: {survived}"
    );
}

#[test]
fn reading_starts_one_past_the_last_done() {
    let mut record = PartitionRecord {
        start: Offset(10),
        ..PartitionRecord::default()
    };
    assert_eq!(record.next_offset(), Offset(10));
    record.offset = Some(Offset(10));
    assert_eq!(record.next_offset(), Offset(11));
}

#[test]
fn a_badge_is_written_in_one_spelling_and_comes_back() {
    let records = examples();
    let worker = records.iter().find_map(|(key, record, _)| match record {
        Record::Worker(worker) => Some((key.clone(), worker.clone())),
        _ => None,
    });
    let (key, worker) = worker.expect("a worker");
    let hosted = WorkerRecord {
        badge: Some(Badge(0xfe)),
        ..(*worker).clone()
    };
    let record = Record::Worker(Arc::new(hosted));
    let bytes = record.encode();
    let text = String::from_utf8(bytes.to_vec()).expect("JSON");
    assert!(
        text.contains(r#""badge":"000000000000000000000000000000fe""#),
        "{text}"
    );
    assert_eq!(Record::decode(&key, &bytes), record);
    let wrong = text.replace("00fe", "00FE");
    assert!(matches!(
        Record::decode(&key, wrong.as_bytes()),
        Record::Unreadable(_)
    ));
}

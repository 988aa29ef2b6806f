//! What the stream itself holds: reads, heads, retention, going back.

use super::*;

#[test]
fn sequences_are_global_and_start_at_one() {
    let mut stream = limits();
    assert_eq!(stream.head(), Offset(0));
    assert_eq!(stream.publish(0, &p("p1"), 0, 1), Offset(1));
    assert_eq!(stream.publish(0, &p("p2"), 0, 1), Offset(2));
    assert_eq!(stream.publish(0, &p("p1"), 0, 1), Offset(3));
    assert_eq!(stream.head(), Offset(3));
    assert_eq!(
        (stream.end(&p("p2")), stream.end(&p("none"))),
        (Offset(3), Offset(1))
    );
}

#[test]
fn a_read_gets_one_partition_in_order_with_proof_of_how_far() {
    let mut stream = limits();
    for _ in 0..3 {
        publish(&mut stream, "p1", 1);
        publish(&mut stream, "p2", 2);
    }
    let whole = read(&mut stream, "p1", 1, None, 99);
    assert_eq!((offsets(&whole), whole.next), (vec![1, 4, 7], Offset(10)));
    assert_eq!((whole.first, whole.end), (Offset(1), Offset(10)));
    let part = read(&mut stream, "p1", 2, None, 1);
    assert_eq!(
        (offsets(&part), part.next),
        (vec![4], Offset(5)),
        "cut short"
    );
    let bounded = read(&mut stream, "p1", 2, Some(5), 1);
    assert_eq!(
        (offsets(&bounded), bounded.next),
        (vec![4], Offset(6)),
        "not cut short"
    );
    let nothing = read(&mut stream, "p3", 2, None, 9);
    assert_eq!((offsets(&nothing), nothing.next), (vec![], Offset(10)));
    let beyond = read(&mut stream, "p1", 12, None, 9);
    assert_eq!(
        (offsets(&beyond), beyond.next, beyond.end),
        (vec![], Offset(12), Offset(10))
    );
}

#[test]
fn a_lagging_replica_stops_early_and_says_so_but_the_head_is_honest() {
    let mut stream = limits();
    publish(&mut stream, "p1", 6);
    stream.set_replica_lag(4);
    let behind = read(&mut stream, "p1", 1, Some(6), 99);
    assert_eq!(
        (offsets(&behind), behind.next, behind.end),
        (vec![1, 2], Offset(3), Offset(3))
    );
    let empty = read(&mut stream, "p1", 5, Some(6), 99);
    assert_eq!(
        (offsets(&empty), empty.next),
        (vec![], Offset(5)),
        "proves nothing"
    );
    let head = stream.request(0, "any", A, SourceRequest::Bounds { ask: Ask(1) });
    assert_eq!(
        head,
        Some(SourceEvent::Bounds {
            ask: Ask(1),
            result: Ok(Bounds {
                first: Offset(1),
                last: Offset(6)
            })
        })
    );
    stream.set_replica_lag(0);
    assert_eq!(offsets(&read(&mut stream, "p1", 5, Some(6), 99)), [5, 6]);
}

#[test]
fn retention_removes_the_oldest_and_their_redelivery() {
    let mut stream = limits();
    publish(&mut stream, "p1", 4);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 2), [1, 2]);
    stream.trim(Offset(4));
    assert_eq!((stream.first(), stream.head()), (Offset(4), Offset(4)));
    assert_eq!(stream.info("b").expect("there").pending, 0);
    assert_eq!(fetch(&mut stream, 2 * ACK_WAIT, "b", 9), [4]);
    let batch = read(&mut stream, "p1", 1, None, 9);
    assert_eq!((offsets(&batch), batch.first), (vec![4], Offset(4)));
    stream.trim(Offset(99));
    assert_eq!(
        (stream.first(), stream.head()),
        (Offset(5), Offset(4)),
        "never past the end"
    );
    assert!(
        stream
            .published()
            .iter()
            .all(|message| message.fate == Fate::Trimmed)
    );
}

#[test]
fn a_recreated_stream_is_empty_and_another_one() {
    let mut stream = limits();
    publish(&mut stream, "p1", 2);
    update(&mut stream, "b", &["p1"]).expect("created");
    pull(&mut stream, 0, "b", A, 1);
    let old = stream.identity();
    stream.recreate();
    assert_ne!(stream.identity(), old);
    assert_eq!((stream.head(), stream.durables().count()), (Offset(0), 0));
    assert_eq!(stream.deliveries(0), vec![pull_ended(A)]);
    assert_eq!(
        stream.publish(0, &p("p1"), 0, 1),
        Offset(1),
        "sequences start anew"
    );
    let audit: Vec<(u64, u64, Fate)> = stream
        .published()
        .iter()
        .map(|m| (m.source, m.offset.0, m.fate))
        .collect();
    let (gone, kept) = (Fate::Vanished, Fate::Kept);
    assert_eq!(
        audit,
        [(old, 1, gone), (old, 2, gone), (stream.identity(), 1, kept)]
    );
}

#[test]
fn a_rolled_back_stream_gives_sequences_again() {
    let mut stream = limits();
    publish(&mut stream, "p1", 5);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 9).len(), 5);
    stream.roll_back(Offset(3));
    assert_eq!(
        (stream.head(), stream.end(&p("p1"))),
        (Offset(3), Offset(4))
    );
    assert_eq!(stream.info("b").expect("there").pending, 3);
    assert_eq!(stream.publish(0, &p("p1"), 0, 1), Offset(4));
    assert_eq!(fetch(&mut stream, 0, "b", 9), [4]);
    assert_eq!(stream.published().len(), 6);
}

#[test]
fn start_positions_resolve_to_offsets() {
    let mut stream = limits();
    for at in [10, 20, 30] {
        stream.publish(at * 1000, &p("p1"), 0, 1);
        stream.publish(at * 1000, &p("p2"), 0, 1);
    }
    stream.trim(Offset(2));
    let mut resolve = |start| {
        let request = SourceRequest::Resolve {
            ask: Ask(0),
            partition: p("p1"),
            start,
        };
        match stream.request(0, "any", A, request) {
            Some(SourceEvent::Resolved {
                result: Ok(offset), ..
            }) => offset.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(resolve(StartPosition::Latest), 7);
    assert_eq!(resolve(StartPosition::Earliest), 2);
    assert_eq!(resolve(StartPosition::Offset(5)), 5);
    assert_eq!(resolve(StartPosition::Offset(9)), 7, "never past the end");
    assert_eq!(
        resolve(StartPosition::Offset(1)),
        2,
        "no earlier than retention has kept"
    );
    assert_eq!(resolve(StartPosition::Time(20)), 3);
    assert_eq!(resolve(StartPosition::Time(21)), 5);
    assert_eq!(resolve(StartPosition::Time(0)), 2);
    assert_eq!(resolve(StartPosition::Time(31)), 7);
}

#[test]
fn a_dead_letter_is_kept_once() {
    let mut stream = limits();
    let message = Message {
        offset: Offset(3),
        key: 0,
        size: 1,
        body: parti_core::io::Body::EMPTY,
    };
    let job = Job {
        partition: p("p1"),
        epoch: Epoch(1),
        message,
        attempt: 3,
    };
    for ask in [1, 2] {
        let error = Arc::from("no");
        let request = SourceRequest::DeadLetter {
            ask: Ask(ask),
            job: job.clone(),
            error,
        };
        let answer = stream.request(0, "b", A, request);
        assert_eq!(
            answer,
            Some(SourceEvent::DeadLettered {
                ask: Ask(ask),
                result: Ok(())
            })
        );
    }
    let letters = stream.dead_letters();
    assert_eq!((letters.len(), letters[0].times), (1, 2));
    assert_eq!((&letters[0].job, letters[0].source), (&job, 7));
}

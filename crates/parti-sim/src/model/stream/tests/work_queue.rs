//! Acks, exclusivity and resets on a work queue.

use super::*;

#[test]
fn acks_are_no_fence() {
    let mut stream = work_queue();
    publish(&mut stream, "p1", 1);
    update(&mut stream, "a", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "a", 9), [1]);
    update(&mut stream, "a", &["p9"]).expect("updated");
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 9), [1], "b works on it");
    ack(&mut stream, "a", &[1]);
    assert_eq!(
        stream.published()[0].fate,
        Fate::Acked,
        "the old owner's ack was accepted"
    );
}

#[test]
fn two_consumers_of_a_work_queue_may_not_share_a_subject() {
    let mut stream = work_queue();
    let stamp = update(&mut stream, "a", &["p1", "p2"]).expect("created");
    let refused = update(&mut stream, "b", &["p2", "p3"]).expect_err("shared");
    let (by, partition) = (WorkerId::new("a"), PartitionId::new("p2"));
    assert_eq!(refused, SourceError::Occupied { by, partition });
    let refused = update(&mut stream, "b", &[]).expect_err("shared");
    assert!(refused.to_string().contains("10100"), "{refused}");
    assert!(
        stream.info("b").is_none(),
        "a refused creation creates nothing"
    );
    update(&mut stream, "b", &["p3"]).expect("disjoint");
    update(&mut stream, "b", &["p2", "p3"]).expect_err("shared");
    assert_eq!(
        stream.info("b").expect("there").filters,
        vec![p("p3")],
        "the old filter stays"
    );
    assert_eq!(
        update(&mut stream, "a", &["p1"]),
        Ok(stamp),
        "own subjects are no conflict"
    );
    update(&mut stream, "b", &["p2", "p3"]).expect("a let go");
    let mut others = limits();
    update(&mut others, "a", &["p1"]).expect("created");
    update(&mut others, "b", &["p1"]).expect("limits allow an overlap");
}

#[test]
fn a_dead_consumer_keeps_its_subjects_until_it_is_deleted() {
    let mut stream = work_queue();
    publish(&mut stream, "p1", 2);
    update(&mut stream, "a", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "a", 1), [1]);
    update(&mut stream, "b", &["p1"]).expect_err("a has it");
    stream.delete("a");
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(
        fetch(&mut stream, 0, "b", 9),
        [1, 2],
        "with what a never acked"
    );
}

#[test]
fn a_reset_brings_back_exactly_what_is_not_acked_in_order() {
    let mut stream = work_queue();
    publish(&mut stream, "p1", 5);
    update(&mut stream, "b", &["p1"]).expect("created");
    pull(&mut stream, 0, "b", A, 10);
    assert_eq!(got(&stream.deliveries(0), A).len(), 5);
    ack(&mut stream, "b", &[1, 2, 4]);
    assert_eq!(stream.first(), Offset(3), "acked messages are gone");
    reset(&mut stream, "b");
    assert_eq!(
        stream.info("b").expect("there").pending,
        0,
        "pending is cleared"
    );
    let again = got(&stream.deliveries(0), A);
    assert_eq!(
        again,
        [(1, 3), (2, 5)],
        "through the pull that stayed open, counted anew"
    );
    assert_eq!(
        got(&stream.deliveries(ACK_WAIT), A).len(),
        2,
        "and nothing else is pending"
    );
}

#[test]
fn an_ack_from_before_a_reset_is_ignored_until_the_message_came_again() {
    let mut stream = work_queue();
    publish(&mut stream, "p1", 2);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 9), [1, 2]);
    reset(&mut stream, "b");
    stream.ack("b", &[Offset(1)]);
    assert_eq!(fetch(&mut stream, 0, "b", 1), [1], "it came again");
    stream.ack("b", &[Offset(1)]);
    assert_eq!(stream.published()[0].fate, Fate::Acked);
}

#[test]
fn the_safe_order_on_a_work_queue_loses_nothing_even_across_a_leader_change() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut stream = work_queue();
        publish(&mut stream, "p2", 3);
        publish(&mut stream, "p1", 1);
        update(&mut stream, "a", &["p2"]).expect("created");
        update(&mut stream, "b", &["p1"]).expect("created");
        assert_eq!(fetch(&mut stream, 0, "b", 9), [4]);
        ack(&mut stream, "b", &[1]);
        stream.delete("a");
        reset(&mut stream, "b");
        update(&mut stream, "b", &["p1", "p2"]).expect("added");
        stream.leader_change(0, "b", &mut rng);
        assert_eq!(fetch(&mut stream, 0, "b", 9), [1, 2, 3], "seed {seed}");
    }
}

#[test]
fn adding_before_the_reset_loses_the_backlog_if_the_leader_changes_in_between() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut stream = work_queue();
        publish(&mut stream, "p2", 3);
        publish(&mut stream, "p1", 1);
        update(&mut stream, "a", &["p2"]).expect("created");
        update(&mut stream, "b", &["p1"]).expect("created");
        assert_eq!(fetch(&mut stream, 0, "b", 9), [4]);
        ack(&mut stream, "b", &[1]);
        stream.delete("a");
        update(&mut stream, "b", &["p1", "p2"]).expect("added");
        stream.leader_change(0, "b", &mut rng);
        reset(&mut stream, "b");
        assert_eq!(
            fetch(&mut stream, 0, "b", 9),
            Vec::<u64>::new(),
            "seed {seed}"
        );
        let lost = stream
            .published()
            .iter()
            .filter(|m| m.fate == Fate::Destroyed)
            .count();
        assert_eq!(lost, 3, "seed {seed}");
    }
}

#[test]
fn an_acked_delivery_is_never_undone() {
    for seed in 0..100 {
        let mut stream = work_queue();
        publish(&mut stream, "p1", 4);
        update(&mut stream, "b", &["p1"]).expect("created");
        assert_eq!(fetch(&mut stream, 0, "b", 9), [1, 2, 3, 4]);
        ack(&mut stream, "b", &[3]);
        stream.leader_change(0, "b", &mut Rng::new(seed));
        let info = stream.info("b").expect("there");
        assert!(info.sequence >= 3, "seed {seed}: {info:?}");
        let fates: Vec<Fate> = stream.published().iter().map(|m| m.fate).collect();
        assert_eq!(
            fates,
            [Fate::Kept, Fate::Kept, Fate::Acked, Fate::Kept],
            "seed {seed}"
        );
    }
}

#[test]
fn replies_name_the_message_although_sequences_are_given_again() {
    let mut stream = work_queue();
    publish(&mut stream, "p1", 2);
    update(&mut stream, "b", &["p1"]).expect("created");
    let mut replies = Replies::default();
    pull(&mut stream, 0, "b", A, 9);
    for (_, event) in stream.deliveries(0) {
        replies.note(&event);
    }
    let sent_before = replies.messages(&[2]);
    ack(&mut stream, "b", &[1]);
    reset(&mut stream, "b");
    publish(&mut stream, "p1", 1);
    assert_eq!(
        got(&stream.deliveries(0), A),
        [(1, 2), (2, 3)],
        "2 is another message now"
    );
    stream.ack("b", &sent_before);
    let fates: Vec<Fate> = stream.published().iter().map(|m| m.fate).collect();
    assert_eq!(fates, [Fate::Acked, Fate::Acked, Fate::Kept]);
}

#[test]
fn an_eviction_deletes_a_dead_workers_durable_only_if_it_still_has_the_subject() {
    let mut stream = work_queue();
    let identity = update(&mut stream, "a", &["p1", "p2"]).expect("created");
    let evict = |stream: &mut Stream, name: &str| {
        let (worker, partition) = (WorkerId::new("a"), p(name));
        let request = SourceRequest::EvictConsumer {
            ask: Ask(9),
            worker,
            partition,
        };
        match stream.request(0, "b", B, request) {
            Some(SourceEvent::Consumer {
                ask: Ask(9),
                result: Ok(state),
            }) => state,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        evict(&mut stream, "p3").identity,
        identity,
        "it has other subjects"
    );
    update(&mut stream, "b", &["p2"]).expect_err("a has it");
    assert_eq!(evict(&mut stream, "p2"), ABSENT);
    update(&mut stream, "b", &["p2"]).expect("free");
    assert_eq!(evict(&mut stream, "p2"), ABSENT, "it is gone already");
    assert_eq!(stream.durables().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn replies_of_an_earlier_life_are_forgotten_once_the_client_knows() {
    let message = |offset| Message {
        offset: Offset(offset),
        key: 0,
        size: 1,
        body: parti_core::io::Body::EMPTY,
    };
    let delivered = |consumer, sequence, offset| SourceEvent::Delivered {
        consumer,
        sequence,
        partition: p("p1"),
        message: message(offset),
        pending: 0,
    };
    let mut replies = Replies::default();
    replies.note(&delivered(1, 5, 50));
    assert_eq!(replies.messages(&[5]), [Offset(50)]);
    let state = ConsumerState {
        identity: 2,
        delivered: 0,
        as_wanted: true,
    };
    replies.note(&SourceEvent::Consumer {
        ask: Ask(0),
        result: Ok(state),
    });
    assert_eq!(
        replies.messages(&[5]),
        [],
        "no ack of the new life may hit an old message"
    );
    replies.note(&delivered(1, 6, 60));
    assert_eq!(replies.messages(&[6]), [], "a late one of the old life");
    replies.note(&delivered(2, 6, 61));
    assert_eq!(replies.messages(&[6]), [Offset(61)]);
}

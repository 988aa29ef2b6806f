//! One test per measured fact (DESIGN.md section 8), named after it.

use std::sync::Arc;

use parti_core::config::{Config, StartPosition};
use parti_core::ids::Epoch;
use parti_core::io::{Ask, Job, Message, ReadBatch};

use super::*;
use crate::model::Fate;

const SECOND: u64 = 1_000_000;
const ACK_WAIT: u64 = 30 * SECOND;
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn config(retention: Retention) -> StreamConfig {
    StreamConfig {
        pull_expiry: 1000 * SECOND,
        ..StreamConfig::of(retention, &Config::default().jetstream)
    }
}

fn limits() -> Stream {
    Stream::new(7, config(Retention::Limits))
}

fn work_queue() -> Stream {
    Stream::new(7, config(Retention::WorkQueue))
}

fn p(name: &str) -> PartitionId {
    PartitionId::new(name)
}

fn publish(stream: &mut Stream, partition: &str, count: u64) {
    for _ in 0..count {
        stream.publish(0, &p(partition), 0, 1);
    }
}

fn update(stream: &mut Stream, durable: &str, names: &[&str]) -> Result<u64, SourceError> {
    let partitions = names.iter().map(|name| p(name)).collect();
    let request = SourceRequest::UpdateConsumer {
        ask: Ask(0),
        partitions,
    };
    match stream.request(0, durable, A, request) {
        Some(SourceEvent::Consumer { result, .. }) => result,
        other => panic!("{other:?}"),
    }
}

fn reset(stream: &mut Stream, durable: &str) {
    let answer = stream.request(0, durable, A, SourceRequest::ResetConsumer { ask: Ask(0) });
    assert!(
        matches!(answer, Some(SourceEvent::Consumer { result: Ok(_), .. })),
        "{answer:?}"
    );
}

fn pull(stream: &mut Stream, now: u64, durable: &str, client: ClientId, batch: u32) {
    assert_eq!(
        stream.request(now, durable, client, SourceRequest::Pull { batch }),
        None
    );
}

fn ack(stream: &mut Stream, durable: &str, deliveries: &[u64]) {
    let request = SourceRequest::Ack {
        deliveries: deliveries.to_vec(),
    };
    assert_eq!(stream.request(0, durable, A, request), None);
}

/// What a client got: (consumer sequence, offset) of each delivery.
fn got(events: &[(ClientId, SourceEvent)], client: ClientId) -> Vec<(u64, u64)> {
    let own = events.iter().filter(|(to, _)| *to == client);
    own.filter_map(|(_, event)| match event {
        SourceEvent::Delivered {
            sequence, message, ..
        } => Some((*sequence, message.offset.0)),
        _ => None,
    })
    .collect()
}

fn ended(events: &[(ClientId, SourceEvent)], client: ClientId) -> usize {
    events
        .iter()
        .filter(|(to, event)| *to == client && *event == SourceEvent::PullEnded)
        .count()
}

/// Pulls as client A and answers the offsets that came.
fn fetch(stream: &mut Stream, now: u64, durable: &str, batch: u32) -> Vec<u64> {
    pull(stream, now, durable, A, batch);
    let events = stream.deliveries(now);
    stream.disconnect(A);
    got(&events, A)
        .into_iter()
        .map(|(_, offset)| offset)
        .collect()
}

fn read(stream: &mut Stream, name: &str, from: u64, upto: Option<u64>, limit: u32) -> ReadBatch {
    let (partition, upto) = (p(name), upto.map(Offset));
    let request = SourceRequest::Read {
        ask: Ask(0),
        partition,
        from: Offset(from),
        upto,
        limit,
    };
    match stream.request(0, "any", A, request) {
        Some(SourceEvent::Read {
            result: Ok(batch), ..
        }) => batch,
        other => panic!("{other:?}"),
    }
}

fn offsets(batch: &ReadBatch) -> Vec<u64> {
    batch
        .messages
        .iter()
        .map(|message| message.offset.0)
        .collect()
}

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
fn changing_the_filter_does_not_move_the_position() {
    let mut stream = limits();
    update(&mut stream, "b", &["p1"]).expect("created");
    publish(&mut stream, "p2", 10);
    publish(&mut stream, "p1", 1);
    assert_eq!(fetch(&mut stream, 0, "b", 10), [11]);
    update(&mut stream, "b", &["p1", "p2"]).expect("updated");
    assert_eq!(
        fetch(&mut stream, 0, "b", 10),
        Vec::<u64>::new(),
        "the backlog of p2 never comes"
    );
    publish(&mut stream, "p2", 1);
    assert_eq!(fetch(&mut stream, 0, "b", 10), [12]);
}

#[test]
fn a_pull_that_meets_the_end_moves_the_position_without_showing_it() {
    let mut stream = limits();
    publish(&mut stream, "p1", 1);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 10), [1]);
    publish(&mut stream, "p2", 5);
    assert_eq!(fetch(&mut stream, 0, "b", 10), Vec::<u64>::new());
    assert_eq!(
        stream.info("b").expect("there").delivered,
        Offset(1),
        "what is shown"
    );
    assert_eq!(stream.durables["b"].position(), 7, "what is true");
    update(&mut stream, "b", &["p1", "p2"]).expect("updated");
    assert_eq!(
        fetch(&mut stream, 0, "b", 10),
        Vec::<u64>::new(),
        "delivered + 1 was a lie"
    );
}

#[test]
fn without_a_pull_the_position_stays() {
    let mut stream = limits();
    update(&mut stream, "b", &["p1"]).expect("created");
    publish(&mut stream, "p2", 5);
    assert_eq!(stream.deliveries(0), vec![]);
    update(&mut stream, "b", &["p1", "p2"]).expect("updated");
    assert_eq!(fetch(&mut stream, 0, "b", 10), [1, 2, 3, 4, 5]);
}

#[test]
fn consumer_sequences_grow_by_one_also_for_redeliveries() {
    let mut stream = limits();
    publish(&mut stream, "p1", 2);
    update(&mut stream, "b", &["p1"]).expect("created");
    pull(&mut stream, 0, "b", A, 10);
    assert_eq!(got(&stream.deliveries(0), A), [(1, 1), (2, 2)]);
    assert_eq!(stream.next_deadline(0), Some(ACK_WAIT));
    assert_eq!(got(&stream.deliveries(ACK_WAIT - 1), A), []);
    assert_eq!(got(&stream.deliveries(ACK_WAIT), A), [(3, 1), (4, 2)]);
    assert_eq!(stream.info("b").expect("there").delivered, Offset(2));
}

#[test]
fn unacked_messages_come_back_behind_newer_ones() {
    let mut stream = limits();
    publish(&mut stream, "p1", 2);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 2), [1, 2]);
    ack(&mut stream, "b", &[1]);
    publish(&mut stream, "p1", 1);
    assert_eq!(fetch(&mut stream, SECOND, "b", 5), [3]);
    assert_eq!(fetch(&mut stream, ACK_WAIT, "b", 5), [2], "after 3");
}

#[test]
fn an_extended_delivery_comes_later() {
    let mut stream = limits();
    publish(&mut stream, "p1", 1);
    update(&mut stream, "b", &["p1"]).expect("created");
    pull(&mut stream, 0, "b", A, 10);
    stream.deliveries(0);
    stream.request(
        ACK_WAIT / 2,
        "b",
        A,
        SourceRequest::Extend {
            deliveries: vec![1],
        },
    );
    assert_eq!(stream.next_deadline(0), Some(ACK_WAIT / 2 + ACK_WAIT));
    assert_eq!(got(&stream.deliveries(ACK_WAIT), A), []);
    assert_eq!(got(&stream.deliveries(2 * ACK_WAIT), A), [(2, 1)]);
}

#[test]
fn an_extension_holds_even_while_the_redelivery_waits_for_a_pull() {
    let mut stream = limits();
    publish(&mut stream, "p1", 3);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 3), [1, 2, 3]);
    assert_eq!(
        fetch(&mut stream, ACK_WAIT, "b", 1),
        [1],
        "2 and 3 are queued"
    );
    stream.request(
        ACK_WAIT,
        "b",
        A,
        SourceRequest::Extend {
            deliveries: vec![2],
        },
    );
    assert_eq!(fetch(&mut stream, ACK_WAIT, "b", 9), [3]);
}

#[test]
fn without_acks_nothing_comes_twice() {
    let setup = StreamConfig {
        ack: AckMode::None,
        ..config(Retention::Limits)
    };
    let mut stream = Stream::new(7, setup);
    publish(&mut stream, "p1", 600);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(
        fetch(&mut stream, 0, "b", 600).len(),
        600,
        "no window either"
    );
    assert_eq!(
        fetch(&mut stream, 2 * ACK_WAIT, "b", 600),
        Vec::<u64>::new()
    );
}

#[test]
fn the_window_of_pending_messages_holds_back_new_ones_but_no_redeliveries() {
    let setup = StreamConfig {
        max_ack_pending: 3,
        ..config(Retention::Limits)
    };
    let mut stream = Stream::new(7, setup);
    publish(&mut stream, "p1", 5);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 9), [1, 2, 3]);
    ack(&mut stream, "b", &[2]);
    assert_eq!(fetch(&mut stream, 0, "b", 9), [4]);
    assert_eq!(fetch(&mut stream, ACK_WAIT, "b", 9), [1, 3, 4]);
}

#[test]
fn pending_messages_come_back_to_the_old_consumer_after_it_dropped_the_subject() {
    let mut stream = limits();
    publish(&mut stream, "p1", 2);
    update(&mut stream, "a", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "a", 9), [1, 2]);
    update(&mut stream, "a", &["p9"]).expect("updated");
    update(&mut stream, "b", &["p9"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 9), Vec::<u64>::new());
    update(&mut stream, "b", &["p1", "p9"]).expect("updated");
    assert_eq!(
        stream.info("a").expect("there").pending,
        2,
        "they fill its window"
    );
    assert_eq!(
        fetch(&mut stream, ACK_WAIT, "b", 9),
        Vec::<u64>::new(),
        "never to b"
    );
    assert_eq!(fetch(&mut stream, ACK_WAIT, "a", 9), [1, 2]);
    ack(&mut stream, "a", &[3, 4]);
    assert_eq!(stream.info("a").expect("there").pending, 0);
}

#[test]
fn an_empty_filter_list_is_the_whole_stream() {
    let mut stream = limits();
    publish(&mut stream, "p1", 1);
    publish(&mut stream, "p2", 1);
    update(&mut stream, "b", &[]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 9), [1, 2]);
    assert_eq!(stream.info("b").expect("there").filters, vec![]);
}

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
fn an_earlier_delivery_acks_its_message_too() {
    let mut stream = limits();
    publish(&mut stream, "p1", 1);
    update(&mut stream, "b", &["p1"]).expect("created");
    fetch(&mut stream, 0, "b", 9);
    assert_eq!(fetch(&mut stream, ACK_WAIT, "b", 9), [1]);
    ack(&mut stream, "b", &[1]);
    assert_eq!(stream.info("b").expect("there").pending, 0);
}

#[test]
fn a_frozen_predecessors_pull_steals_deliveries() {
    let mut stream = limits();
    update(&mut stream, "w", &["p1"]).expect("created");
    pull(&mut stream, 0, "w", A, 2);
    pull(&mut stream, 0, "w", B, 10);
    publish(&mut stream, "p1", 5);
    let events = stream.deliveries(0);
    assert_eq!(got(&events, A), [(1, 1), (3, 3)]);
    assert_eq!(got(&events, B), [(2, 2), (4, 4), (5, 5)], "with gaps");
    assert_eq!((ended(&events, A), ended(&events, B)), (1, 0));
}

#[test]
fn a_lost_connection_takes_its_pulls_along() {
    let mut stream = limits();
    update(&mut stream, "w", &["p1"]).expect("created");
    pull(&mut stream, 0, "w", A, 10);
    pull(&mut stream, 0, "w", B, 10);
    stream.disconnect(A);
    publish(&mut stream, "p1", 2);
    let events = stream.deliveries(0);
    assert_eq!(
        (got(&events, A), got(&events, B)),
        (vec![], vec![(1, 1), (2, 2)])
    );
}

#[test]
fn a_pull_ends_when_answered_or_expired_or_refused() {
    let setup = StreamConfig {
        pull_expiry: SECOND,
        max_waiting: 1,
        ..config(Retention::Limits)
    };
    let mut stream = Stream::new(7, setup);
    let nobody = stream.request(0, "w", A, SourceRequest::Pull { batch: 1 });
    assert_eq!(nobody, Some(SourceEvent::PullEnded), "no such consumer");
    update(&mut stream, "w", &["p1"]).expect("created");
    pull(&mut stream, 0, "w", A, 1);
    let second = stream.request(0, "w", A, SourceRequest::Pull { batch: 1 });
    assert_eq!(second, Some(SourceEvent::PullEnded), "too many");
    assert_eq!(stream.deliveries(SECOND - 1), vec![]);
    assert_eq!(stream.next_deadline(0), Some(SECOND));
    assert_eq!(stream.deliveries(SECOND), vec![(A, SourceEvent::PullEnded)]);
    assert_eq!(stream.next_deadline(0), None);
    pull(&mut stream, SECOND, "w", A, 1);
    publish(&mut stream, "p1", 2);
    let events = stream.deliveries(SECOND);
    assert_eq!((got(&events, A), ended(&events, A)), (vec![(1, 1)], 1));
}

#[test]
fn two_consumers_of_a_work_queue_may_not_share_a_subject() {
    let mut stream = work_queue();
    let stamp = update(&mut stream, "a", &["p1", "p2"]).expect("created");
    for shared in [&["p2", "p3"][..], &[]] {
        let refused = update(&mut stream, "b", shared).expect_err("shared");
        assert!(refused.to_string().contains("10100"), "{refused}");
    }
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
fn a_recreated_durable_starts_at_the_beginning_with_another_stamp() {
    let mut stream = limits();
    publish(&mut stream, "p1", 2);
    let old = update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(
        update(&mut stream, "b", &["p1", "p2"]),
        Ok(old),
        "an update keeps it"
    );
    pull(&mut stream, 0, "b", A, 9);
    assert_eq!(got(&stream.deliveries(0), A).len(), 2);
    let answer = stream.request(0, "b", A, SourceRequest::DeleteConsumer { ask: Ask(5) });
    assert_eq!(
        answer,
        Some(SourceEvent::Consumer {
            ask: Ask(5),
            result: Ok(0)
        })
    );
    assert_eq!(stream.deliveries(0), vec![(A, SourceEvent::PullEnded)]);
    let new = update(&mut stream, "b", &["p1"]).expect("created");
    assert_ne!(old, new);
    pull(&mut stream, 0, "b", A, 9);
    let events = stream.deliveries(0);
    assert_eq!(got(&events, A), [(1, 1), (2, 2)]);
    assert!(matches!(&events[0].1, SourceEvent::Delivered { consumer, .. } if *consumer == new));
}

#[test]
fn a_leader_change_shows_as_a_gap_or_a_step_back_of_the_consumer_sequence() {
    let (mut gaps, mut steps_back, mut smooth) = (0, 0, 0);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut stream = limits();
        publish(&mut stream, "p1", 6);
        update(&mut stream, "b", &["p1"]).expect("created");
        pull(&mut stream, 0, "b", A, 6);
        assert_eq!(got(&stream.deliveries(0), A).last(), Some(&(6, 6)));
        pull(&mut stream, 0, "b", A, 9);
        publish(&mut stream, "p1", 6);
        stream.leader_change(0, "b", &mut rng);
        let events = stream.deliveries(0);
        assert_eq!(
            events,
            vec![(A, SourceEvent::PullEnded)],
            "pulls end with their leader"
        );
        pull(&mut stream, 0, "b", A, 20);
        let first = got(&stream.deliveries(0), A)[0];
        match first {
            (7, 7) => smooth += 1,
            (sequence, offset) if sequence > 7 => {
                assert_eq!(sequence, offset, "skipped messages are pending, not undone");
                let mut late = got(&stream.deliveries(ACK_WAIT), A);
                late.retain(|(_, offset)| (7..first.1).contains(offset));
                assert_eq!(late.len() as u64, first.1 - 7, "they come after the wait");
                gaps += 1;
            }
            (sequence, offset) => {
                assert_eq!(
                    sequence, offset,
                    "undone deliveries come again, same number"
                );
                steps_back += 1;
            }
        }
    }
    assert!(
        gaps > 20 && steps_back > 20 && smooth > 20,
        "{gaps} {steps_back} {smooth}"
    );
}

#[test]
fn without_acks_a_leader_change_may_lose_deliveries_for_good() {
    let setup = StreamConfig {
        ack: AckMode::None,
        ..config(Retention::Limits)
    };
    let mut lost = 0;
    for seed in 0..50 {
        let mut stream = Stream::new(7, setup);
        update(&mut stream, "b", &["p1"]).expect("created");
        pull(&mut stream, 0, "b", A, 9);
        publish(&mut stream, "p1", 5);
        stream.leader_change(0, "b", &mut Rng::new(seed));
        pull(&mut stream, 0, "b", A, 20);
        let mut seen = got(&stream.deliveries(0), A);
        seen.extend(got(&stream.deliveries(9 * ACK_WAIT), A));
        lost += usize::from(seen.len() < 5);
    }
    assert!(lost > 5, "{lost}");
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
fn a_leader_change_falls_back_to_the_shown_position() {
    let mut stream = limits();
    publish(&mut stream, "p1", 1);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 9), [1]);
    ack(&mut stream, "b", &[1]);
    publish(&mut stream, "p2", 3);
    assert_eq!(fetch(&mut stream, 0, "b", 9), Vec::<u64>::new());
    update(&mut stream, "b", &["p1", "p2"]).expect("updated");
    stream.leader_change(0, "b", &mut Rng::new(0));
    assert_eq!(
        fetch(&mut stream, 0, "b", 9),
        [2, 3, 4],
        "what the old leader had passed by"
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
    let head = stream.request(0, "any", A, SourceRequest::Head { ask: Ask(1) });
    assert_eq!(
        head,
        Some(SourceEvent::Head {
            ask: Ask(1),
            result: Ok(Offset(6))
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
    assert_eq!(stream.deliveries(0), vec![(A, SourceEvent::PullEnded)]);
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

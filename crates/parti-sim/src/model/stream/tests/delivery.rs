//! What a durable delivers, to whom, and when again.

use super::*;

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
    assert_eq!(stream.disconnect(A), [ask_of(A)]);
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
    let nobody = stream.request(
        0,
        "w",
        A,
        SourceRequest::Pull {
            ask: ask_of(A),
            batch: 1,
        },
    );
    assert_eq!(nobody, Some(pull_ended(A).1), "no such consumer");
    update(&mut stream, "w", &["p1"]).expect("created");
    pull(&mut stream, 0, "w", A, 1);
    let second = stream.request(
        0,
        "w",
        A,
        SourceRequest::Pull {
            ask: ask_of(A),
            batch: 1,
        },
    );
    assert_eq!(second, Some(pull_ended(A).1), "too many");
    assert_eq!(stream.deliveries(SECOND - 1), vec![]);
    assert_eq!(stream.next_deadline(0), Some(SECOND));
    assert_eq!(stream.deliveries(SECOND), vec![pull_ended(A)]);
    assert_eq!(stream.next_deadline(0), None);
    pull(&mut stream, SECOND, "w", A, 1);
    publish(&mut stream, "p1", 2);
    let events = stream.deliveries(SECOND);
    assert_eq!((got(&events, A), ended(&events, A)), (vec![(1, 1)], 1));
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
            result: Ok(ABSENT)
        })
    );
    assert_eq!(stream.deliveries(0), vec![pull_ended(A)]);
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
        assert_eq!(events, vec![pull_ended(A)], "pulls end with their leader");
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
fn redeliveries_come_in_stream_order() {
    let mut stream = limits();
    publish(&mut stream, "p1", 3);
    update(&mut stream, "b", &["p1"]).expect("created");
    assert_eq!(fetch(&mut stream, 0, "b", 3), [1, 2, 3]);
    stream.extend(SECOND, "b", &[Offset(1)]);
    assert_eq!(
        fetch(&mut stream, 2 * ACK_WAIT, "b", 9),
        [1, 2, 3],
        "though 1 was due last"
    );
}

#[test]
fn the_floor_never_passes_what_was_delivered() {
    for (seed, ack) in (0..50).flat_map(|seed| [(seed, AckMode::None), (seed, AckMode::Explicit)]) {
        let mut stream = Stream::new(
            7,
            StreamConfig {
                ack,
                ..config(Retention::Limits)
            },
        );
        publish(&mut stream, "p1", 3);
        publish(&mut stream, "p2", 1);
        update(&mut stream, "b", &["p1"]).expect("created");
        let last = fetch(&mut stream, 0, "b", 9).len() as u64;
        stream.ack("b", &[Offset(1), Offset(2), Offset(last)]);
        let before = stream.info("b").expect("there");
        assert_eq!(before.ack_floor, Offset(3));
        stream.leader_change(0, "b", &mut Rng::new(seed));
        let info = stream.info("b").expect("there");
        assert!(info.ack_floor <= info.delivered, "seed {seed}: {info:?}");
        if ack == AckMode::Explicit {
            assert_eq!(info.ack_floor, before.ack_floor, "acked is acked");
        }
    }
}

#[test]
fn with_acks_and_an_unchanged_filter_everything_comes_in_the_end() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let retention = if seed % 2 == 0 {
            Retention::Limits
        } else {
            Retention::WorkQueue
        };
        let setup = StreamConfig {
            max_ack_pending: 10,
            pull_expiry: SECOND,
            ..config(retention)
        };
        let mut stream = Stream::new(7, setup);
        update(&mut stream, "b", &["p1"]).expect("created");
        let mut handled = std::collections::BTreeSet::new();
        let mut now = 0;
        for step in 0..400 {
            // The second half has no faults, and nothing new is published.
            let faulty = step < 200;
            now += if faulty {
                rng.below(SECOND)
            } else {
                ACK_WAIT / 4
            };
            if faulty {
                match rng.below(8) {
                    0..4 => publish(&mut stream, ["p1", "p2"][rng.below(2) as usize], 1),
                    4 => stream.leader_change(now, "b", &mut rng),
                    5 => drop(stream.disconnect(A)),
                    _ => {}
                }
            }
            let batch = rng.between(1, 4) as u32;
            stream.request(
                now,
                "b",
                A,
                SourceRequest::Pull {
                    ask: ask_of(A),
                    batch,
                },
            );
            for (_, event) in stream.deliveries(now) {
                let SourceEvent::Delivered { message, .. } = event else {
                    continue;
                };
                if faulty && rng.chance(0.2) {
                    continue;
                }
                handled.insert(message.offset);
                if !faulty || rng.chance(0.8) {
                    stream.ack("b", &[message.offset]);
                }
            }
        }
        let audit = stream.published();
        let own = audit.iter().filter(|message| message.partition == p("p1"));
        for message in own {
            assert!(
                handled.contains(&message.offset),
                "seed {seed}: {message:?}"
            );
            assert_ne!(message.fate, Fate::Destroyed, "seed {seed}");
        }
        assert_eq!(stream.info("b").expect("there").pending, 0, "seed {seed}");
    }
}

#[test]
fn a_stopped_pull_brings_nothing_more() {
    let mut stream = limits();
    update(&mut stream, "w", &["p1"]).expect("created");
    pull(&mut stream, 0, "w", A, 10);
    pull(&mut stream, 0, "w", B, 10);
    let stop = SourceRequest::StopPull { ask: ask_of(A) };
    assert_eq!(
        stream.request(0, "w", A, stop.clone()),
        Some(pull_ended(A).1)
    );
    assert_eq!(stream.request(0, "w", A, stop), None, "it ended before");
    publish(&mut stream, "p1", 2);
    let events = stream.deliveries(0);
    assert_eq!(
        (got(&events, A), got(&events, B)),
        (vec![], vec![(1, 1), (2, 2)])
    );
}

#[test]
fn an_inspection_tells_identity_last_sequence_and_whether_the_filter_is_as_wanted() {
    let mut stream = limits();
    let inspect = |stream: &mut Stream, names: &[&str]| {
        let partitions = names.iter().map(|name| p(name)).collect();
        match stream.request(
            0,
            "w",
            A,
            SourceRequest::InspectConsumer {
                ask: Ask(9),
                partitions,
            },
        ) {
            Some(SourceEvent::Consumer {
                ask: Ask(9),
                result: Ok(state),
            }) => state,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(inspect(&mut stream, &["p1"]), ABSENT);
    let identity = update(&mut stream, "w", &["p1", "p2"]).expect("created");
    publish(&mut stream, "p1", 3);
    assert_eq!(fetch(&mut stream, 0, "w", 2), [1, 2]);
    let state = ConsumerState {
        identity,
        delivered: 2,
        as_wanted: true,
    };
    assert_eq!(inspect(&mut stream, &["p1", "p2"]), state);
    let differs = ConsumerState {
        as_wanted: false,
        ..state
    };
    assert_eq!(inspect(&mut stream, &["p1"]), differs);
    assert_eq!(inspect(&mut stream, &["p1", "p2", "p3"]), differs);
    reset(&mut stream, "w");
    let after = inspect(&mut stream, &["p1", "p2"]);
    assert!(
        after.identity > identity && after.delivered == 0,
        "{after:?}"
    );
}

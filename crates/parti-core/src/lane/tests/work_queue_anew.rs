//! A work queue that may be another than it was: restored from an older copy, or asked of a server
//! that is cut off; and what a question that fails, or an answer that never comes, leads to.

use super::work_queue::{delivery, names, serving, serving_both};
use super::*;

/// The stream's end stays this low, for as long as that is no proof, and once the durable is deleted.
/// Answers what is done then.
fn ends_lower(bench: &mut Bench, head: Ask, last: u64) -> Vec<LaneAction> {
    let head = bench.head_stays(head, last);
    bench.head_answers(head, last);
    let actions = bench.run();
    assert_eq!(
        notes(&actions),
        [],
        "only a write is answered by no stale server"
    );
    let actions = match requests(&actions, "StopPull").pop() {
        Some(stop) => {
            bench.source(SourceEvent::PullEnded { ask: ask_of(&stop) });
            bench.run()
        }
        None => actions,
    };
    let delete = only_ask(&actions, "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, last);
    bench.run()
}

#[test]
fn a_queue_that_went_back_halts_before_anything_is_taken_for_done() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(A, opening(2, 50));
    let head = only_ask(&bench.run(), "Bounds");
    let actions = ends_lower(&mut bench, head, 10);
    let trouble = Trouble::LogWentBack {
        partition: p(A),
        end: Offset(11),
        next: Offset(50),
    };
    assert_eq!(notes(&actions), [LaneNote::Trouble(trouble)]);
}

/// Cut off from the others, a server answers questions for as long as it is asked, and no change.
#[test]
fn a_server_that_answers_questions_and_no_change_halts_nothing() {
    let (mut bench, head) = reconnected();
    let head = bench.head_stays(head, 2);
    bench.head_answers(head, 2);
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.source(SourceEvent::Consumer {
        ask: delete,
        result: Err(error()),
    });
    let is_gone = |note: &LaneNote| matches!(note, LaneNote::Trouble(Trouble::LogWentBack { .. }));
    let mut refused = 0;
    while refused < 3 {
        bench.pass_to_deadline();
        let actions = bench.run();
        assert!(!notes(&actions).iter().any(is_gone));
        for head in requests(&actions, "Bounds") {
            bench.head_answers(ask_of(&head), 2);
        }
        for delete in requests(&actions, "DeleteConsumer") {
            refused += 1;
            bench.source(SourceEvent::Consumer {
                ask: ask_of(&delete),
                result: Err(error()),
            });
        }
    }
    // Another server knows better.
    bench.source(SourceEvent::Reconnected);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    let mut steps = Vec::new();
    while steps.len() < 2 {
        let actions = bench.run();
        assert_eq!(notes(&actions), []);
        let asked = requests(&actions, "DeleteConsumer").pop();
        let Some(asked) = asked.or_else(|| requests(&actions, "UpdateConsumer").pop()) else {
            bench.pass_to_deadline();
            continue;
        };
        let deletes = matches!(asked, SourceRequest::DeleteConsumer { .. });
        bench.consumer_answers(ask_of(&asked), if deletes { 0 } else { 3 }, 0);
        steps.push(deletes);
    }
    assert_eq!(steps, [true, false], "made anew");
    bench.run();
    bench.source(delivery(3, 1, A, 5));
    assert_eq!(handled(&bench.run(), A), [5]);
}

/// A worker that serves A and B, of which it has 4 and 2, and whose connection is back: the pull is
/// gone, and the stream's end is asked for.
fn reconnected() -> (Bench, Ask) {
    let mut bench = Bench::work_queue();
    serving_both(&mut bench);
    for (sequence, name, offset) in [(1, A, 4), (2, B, 2)] {
        bench.source(delivery(2, sequence, name, offset));
    }
    bench.run();
    bench.done(A, 1, 4);
    bench.done(B, 1, 2);
    bench.pass(Duration::from_secs(1));
    bench.source(SourceEvent::Reconnected);
    let actions = bench.run();
    assert!(requests(&actions, "ResetConsumer").is_empty());
    assert!(requests(&actions, "DeleteConsumer").is_empty());
    (bench, only_ask(&actions, "Bounds"))
}

#[test]
fn a_connection_that_is_back_costs_one_reset_and_everything_flows_again() {
    let (mut bench, head) = reconnected();
    bench.head_answers(head, 10);
    // A pull was open when the connection was lost: only a deletion ends it for sure.
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 3, 0);
    assert_eq!(names(&bench.run()), ["Pull"]);
    bench.source(delivery(3, 1, B, 2));
    bench.source(delivery(3, 2, A, 5));
    let actions = bench.run();
    assert_eq!((acks(&actions), handled(&actions, A)), (vec![1], vec![5]));
    bench.pass(Duration::from_secs(2));
    assert!(requests(&bench.run(), "ResetConsumer").is_empty());
}

#[test]
fn a_queue_that_went_back_under_a_living_worker_halts_its_lanes_and_acks_nothing_as_done() {
    let (mut bench, head) = reconnected();
    let actions = ends_lower(&mut bench, head, 2);
    let trouble = Trouble::LogWentBack {
        partition: p(A),
        end: Offset(3),
        next: Offset(5),
    };
    assert_eq!(notes(&actions), [LaneNote::Trouble(trouble)]);
    // B lost nothing: it goes on, and A is not in the filter of the durable that is made anew.
    bench.pass_to_deadline();
    let actions = bench.run();
    let Some(SourceRequest::UpdateConsumer { ask, partitions }) =
        requests(&actions, "UpdateConsumer").pop()
    else {
        panic!("{actions:#?}");
    };
    assert_eq!(partitions, [p(B)]);
    bench.consumer_answers(ask, 3, 0);
    bench.run();
    bench.source(delivery(3, 1, A, 3));
    bench.source(delivery(3, 2, B, 4));
    let actions = bench.run();
    assert_eq!((acks(&actions), handled(&actions, B)), (vec![], vec![4]));
}

/// Restored from a copy on the same server, with its durables, while nobody lost a connection.
#[test]
fn a_queue_that_went_back_together_with_its_durable_halts_and_acks_nothing_as_done() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    for (sequence, offset) in [(1, 3), (2, 4)] {
        bench.source(delivery(1, sequence, A, offset));
        bench.run();
        bench.done(A, 1, offset);
    }
    bench.run();
    bench.pass(Duration::from_secs(1));
    bench.source(delivery(1, 1, A, 3));
    let actions = bench.run();
    assert_eq!((acks(&actions), handled(&actions, A)), (vec![], vec![]));
    let head = only_ask(&actions, "Bounds");
    let actions = ends_lower(&mut bench, head, 3);
    let trouble = Trouble::LogWentBack {
        partition: p(A),
        end: Offset(4),
        next: Offset(5),
    };
    assert_eq!(notes(&actions), [LaneNote::Trouble(trouble)]);
    assert_eq!(acks(&actions), [0; 0]);
}

#[test]
fn an_answer_of_before_the_connection_was_lost_proves_nothing() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(A, opening(2, 50));
    let before = only_ask(&bench.run(), "Bounds");
    bench.source(SourceEvent::Reconnected);
    bench.head_answers(before, 100);
    let after = only_ask(&bench.run(), "Bounds");
    bench.head_answers(after, 10);
    bench.pass(Duration::from_secs(1));
    let actions = bench.run();
    assert!(requests(&actions, "UpdateConsumer").is_empty());
    assert_eq!(requests(&actions, "Bounds").len(), 1, "asked once more");
}

#[test]
fn nothing_that_was_done_before_is_acked_until_the_stream_is_known_to_be_the_same() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.deliver(A, 4);
    assert_eq!(handled(&bench.run(), A), [4]);
    bench.source(SourceEvent::Reconnected);
    let head = only_ask(&bench.run(), "Bounds");
    // By now, 4 may be somebody else's message.
    bench.done(A, 1, 4);
    assert_eq!(acks(&bench.run()), [0; 0]);
    bench.head_answers(head, 10);
    bench.pass(Duration::from_secs(1));
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 2, 0);
    bench.run();
    bench.source(delivery(2, 1, A, 4));
    let actions = bench.run();
    assert_eq!((acks(&actions), handled(&actions, A)), (vec![1], vec![]));
}

/// Partitions of one worker are asked about by one question: so it fails once, however many they are.
#[test]
fn a_question_that_fails_makes_many_lanes_wait_no_longer_than_one() {
    let wait_of = |lanes: u32| {
        let mut bench = Bench::work_queue();
        let delete = only_ask(&bench.run(), "DeleteConsumer");
        bench.consumer_answers(delete, 0, 0);
        for lane in 0..lanes {
            bench.open(&lane.to_string(), opening(1, 1));
        }
        let ask = only_ask(&bench.run(), "Bounds");
        bench.source(SourceEvent::Bounds {
            ask,
            result: Err(error()),
        });
        let failed = bench.now;
        while requests(&bench.run(), "Bounds").is_empty() {
            bench.pass_to_deadline();
        }
        bench.now.since(failed)
    };
    assert_eq!(wait_of(64), wait_of(1));
}

#[test]
fn lanes_that_are_checked_anew_are_no_duplicates() {
    let (mut bench, head) = reconnected();
    let before = bench.lanes.numbers().updates;
    bench.head_answers(head, 10);
    let after = bench.lanes.numbers().updates;
    assert_eq!(after.duplicates, before.duplicates);
    assert_eq!(after.skipped, before.skipped);
}

/// Nobody knows whether it was carried out, and its pulls may be open still: so it is sent again.
#[test]
fn a_deletion_that_failed_is_sent_again_before_anything_is_added() {
    let mut bench = Bench::work_queue();
    serving(&mut bench);
    bench.pass(Duration::from_secs(1));
    bench.lanes.close(bench.now, &p(A));
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.source(SourceEvent::Consumer {
        ask: delete,
        result: Err(error()),
    });
    bench.lanes.detach(bench.now, &p(A));
    bench.open(B, opening(1, 1));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    let mut steps = Vec::new();
    while steps.last() != Some(&"UpdateConsumer") {
        let mut actions = bench.run();
        for stop in requests(&actions, "StopPull") {
            bench.source(SourceEvent::PullEnded { ask: ask_of(&stop) });
            actions.extend(bench.run());
        }
        assert!(requests(&actions, "ResetConsumer").is_empty());
        let mut asked = None;
        for name in ["DeleteConsumer", "UpdateConsumer"] {
            if let Some(request) = requests(&actions, name).pop() {
                asked = Some(ask_of(&request));
                steps.push(name);
            }
        }
        match asked {
            Some(ask) => bench.consumer_answers(ask, u64::from(steps.len() == 2), 0),
            None => bench.pass_to_deadline(),
        }
    }
    assert_eq!(steps, ["DeleteConsumer", "UpdateConsumer"]);
}

/// The stream's end stays this low until the durable is to be deleted, which is what would prove it.
fn lower_until_deleted(bench: &mut Bench, last: u64) -> Ask {
    loop {
        let actions = bench.run();
        assert!(
            notes(&actions)
                .iter()
                .all(|note| *note == LaneNote::ReadyChanged)
        );
        if let Some(delete) = requests(&actions, "DeleteConsumer").pop() {
            return ask_of(&delete);
        }
        match requests(&actions, "Bounds").pop() {
            Some(head) => bench.head_answers(ask_of(&head), last),
            None => bench.pass_to_deadline(),
        }
    }
}

/// The lane that wanted the proof has gone: the next one is not to be judged by it.
#[test]
fn a_proof_that_nobody_waits_for_is_not_kept() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(A, opening(2, 50));
    let delete = lower_until_deleted(&mut bench, 10);
    bench.lanes.detach(bench.now, &p(A));
    bench.consumer_answers(delete, 0, 0);
    bench.run();
    bench.open(B, opening(2, 50));
    // A write of its own comes first.
    lower_until_deleted(&mut bench, 10);
}

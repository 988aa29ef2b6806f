//! A seized partition: announced, one at a time, committed after each.

use super::*;

fn seized(begun: Option<Begun>, offsets: &[u64]) -> (Bench, Vec<LaneAction>) {
    let mut bench = Bench::with(SourceKind::Log, |c| c.processing.ordering = Ordering::None);
    bench.open(
        A,
        Opening {
            suspicious: true,
            begun,
            ..opening(2, 1)
        },
    );
    let (ask, ..) = only_read(&bench.run());
    bench.read_answers(ask, offsets, offsets.last().map_or(1, |o| o + 1));
    let actions = bench.run();
    (bench, actions)
}

fn begin(offset: u64, times: u32) -> LaneNote {
    let begun = Begun {
        offset: Offset(offset),
        times,
    };
    LaneNote::Begin {
        partition: p(A),
        epoch: Epoch(2),
        begun,
    }
}

#[test]
fn announce_handle_commit_until_enough_succeeded() {
    let (mut bench, mut actions) = seized(None, &[1, 2, 3, 4, 5, 6]);
    for offset in 1..=3 {
        assert_eq!(handled(&actions, A), NONE, "not before `begun` is written");
        assert_eq!(
            notes(&actions).last(),
            Some(&begin(offset, 1)),
            "one at a time"
        );
        bench
            .lanes
            .begun_written(bench.now, &p(A), Epoch(1), Offset(offset));
        assert_eq!(bench.run(), [], "an older epoch's write says nothing");
        bench
            .lanes
            .begun_written(bench.now, &p(A), Epoch(2), Offset(offset));
        assert_eq!(handled(&bench.run(), A), [offset]);
        bench.done(A, 2, offset);
        actions = bench.run();
        assert_eq!(notes(&actions)[0], LaneNote::Commit { partition: p(A) });
    }
    assert_eq!(handled(&actions, A), [4, 5, 6], "three in a row succeeded");
}

#[test]
fn a_message_that_killed_its_owners_is_dead_lettered_uncalled() {
    let begun = Begun {
        offset: Offset(1),
        times: 3,
    };
    let (mut bench, actions) = seized(Some(begun), &[1, 2]);
    let ask = only_ask(&actions, "DeadLetter");
    assert_eq!(handled(&actions, A), NONE);
    bench.source(SourceEvent::DeadLettered {
        ask,
        result: Ok(()),
    });
    let actions = bench.run();
    assert_eq!(
        notes(&actions),
        [
            LaneNote::DeadLettered {
                partition: p(A),
                offset: Offset(1),
                attempts: 3
            },
            LaneNote::Commit { partition: p(A) },
            begin(2, 1),
        ]
    );
}

#[test]
fn the_count_goes_on_where_the_dead_owner_left_it() {
    let begun = Begun {
        offset: Offset(1),
        times: 2,
    };
    assert_eq!(notes(&seized(Some(begun), &[1, 2]).1), [begin(1, 3)]);
    let another = Begun {
        offset: Offset(7),
        times: 2,
    };
    assert_eq!(notes(&seized(Some(another), &[1, 2]).1), [begin(1, 1)]);
}

#[test]
fn an_idle_partition_is_not_suspicious() {
    let (mut bench, actions) = seized(None, &[]);
    assert_eq!(notes(&actions), []);
    bench.source(SourceEvent::Grew { partition: p(A) });
    let (ask, ..) = only_read(&bench.run());
    bench.read_answers(ask, &[1, 2], 3);
    assert_eq!(handled(&bench.run(), A), [1, 2]);
}

#[test]
fn a_retry_needs_no_second_announcement() {
    let (mut bench, _) = seized(None, &[1, 2]);
    bench
        .lanes
        .begun_written(bench.now, &p(A), Epoch(2), Offset(1));
    bench.run();
    bench.ended(A, 2, 1, HandlerResult::Failed("bad".into()));
    assert_eq!(notes(&bench.run()), []);
    bench.pass(Duration::from_secs(2));
    assert_eq!(handled(&bench.run(), A), [1]);
}

/// Two lanes whose next messages were both begun by an owner that died.
fn two_suspects() -> (Bench, Vec<LaneNote>) {
    let mut bench = Bench::log();
    for name in [A, B] {
        let begun = Some(Begun {
            offset: Offset(1),
            times: 1,
        });
        bench.open(
            name,
            Opening {
                suspicious: true,
                begun,
                ..opening(2, 1)
            },
        );
    }
    let reads: Vec<Ask> = bench
        .run()
        .iter()
        .filter_map(|action| match action {
            LaneAction::Source(SourceRequest::Read { ask, .. }) => Some(*ask),
            _ => None,
        })
        .collect();
    for ask in reads {
        bench.read_answers(ask, &[1, 2], 3);
    }
    let begun = notes(&bench.run());
    (bench, begun)
}

fn begins(notes: &[LaneNote]) -> Vec<(&str, u64, u32)> {
    let begun = notes.iter().filter_map(|note| match note {
        LaneNote::Begin {
            partition, begun, ..
        } => Some((partition.as_str(), begun.offset.0, begun.times)),
        _ => None,
    });
    begun.collect()
}

#[test]
fn a_message_that_was_begun_before_is_tried_alone() {
    let (mut bench, first) = two_suspects();
    assert_eq!(begins(&first), [(A, 1, 2)], "the other one waits");
    bench
        .lanes
        .begun_written(bench.now, &p(A), Epoch(2), Offset(1));
    assert_eq!(handled(&bench.run(), A), [1]);
    assert_eq!(begins(&notes(&bench.run())), []);
    bench.done(A, 2, 1);
    let next = notes(&bench.run());
    assert_eq!(begins(&next), [(A, 2, 1), (B, 1, 2)], "its turn");
}

#[test]
fn a_lane_that_goes_makes_way_for_the_next_suspect() {
    let (mut bench, first) = two_suspects();
    assert_eq!(begins(&first), [(A, 1, 2)]);
    bench.lanes.abandon(bench.now, &p(A));
    assert_eq!(begins(&notes(&bench.run())), [(B, 1, 2)]);
}

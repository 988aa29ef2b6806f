//! The feed of an embedded log.

use super::*;

fn answer(bench: &mut Bench, ask: Ask, offsets: std::ops::Range<u64>, first: u64, end: u64) {
    let next = Offset(offsets.end);
    let messages = offsets.map(msg).collect();
    let batch = ReadBatch {
        messages,
        next,
        first: Offset(first),
        end: Offset(end),
    };
    bench.source(SourceEvent::Read {
        ask,
        result: Ok(batch),
    });
}

#[test]
fn prepared_is_ready_and_reads_nothing() {
    let mut bench = Bench::log();
    bench.lanes.attach(bench.now, &p(A));
    bench.lanes.attach(bench.now, &p(A));
    assert_eq!(bench.run(), [LaneAction::Note(LaneNote::ReadyChanged)]);
    assert!(bench.lanes.ready(&p(A)) && !bench.lanes.ready(&p(B)));
}

#[test]
fn it_reads_on_until_the_end_and_again_when_it_grew() {
    let mut bench = Bench::log();
    bench.open(A, opening(1, 5));
    let (ask, from, upto) = only_read(&bench.run());
    assert_eq!((from, upto), (5, None));
    answer(&mut bench, ask, 5..7, 0, 9);
    let actions = bench.run();
    assert_eq!(handled(&actions, A), [5]);
    let (ask, from, _) = only_read(&actions);
    assert_eq!(from, 7);
    // It grows while the read is in flight: the answer may be of before.
    bench.source(SourceEvent::Grew { partition: p(A) });
    answer(&mut bench, ask, 7..9, 0, 9);
    bench.now = bench.now + Duration::from_secs(1);
    bench.lanes.tick(bench.now);
    let (ask, from, _) = only_read(&bench.run());
    assert_eq!(from, 9);
    answer(&mut bench, ask, 9..9, 0, 9);
    assert_eq!(requests(&bench.run(), "Read"), []);
    bench.source(SourceEvent::Grew { partition: p(A) });
    assert_eq!(only_read(&bench.run()).1, 9);
}

#[test]
fn a_failed_read_is_tried_again_later() {
    let mut bench = Bench::log();
    bench.open(A, opening(1, 5));
    let (ask, ..) = only_read(&bench.run());
    bench.source(SourceEvent::Read {
        ask,
        result: Err(super::error()),
    });
    let why = "partition a cannot be read: the source is not available: down";
    let trouble = LaneNote::Trouble(Trouble::Source(why.into()));
    assert_eq!(bench.run(), [LaneAction::Note(trouble)]);
    bench.pass_to_deadline();
    let (ask, from, _) = only_read(&bench.run());
    assert_eq!(from, 5);
    bench.source(SourceEvent::Read {
        ask,
        result: Err(super::error()),
    });
    assert_eq!(bench.run(), [], "told once");
}

#[test]
fn a_full_lane_reads_again_when_it_has_room() {
    let mut bench = Bench::with(SourceKind::Log, |c| c.processing.lane_buffer = 4);
    bench.open(A, opening(1, 1));
    let (ask, ..) = only_read(&bench.run());
    answer(&mut bench, ask, 1..5, 0, 100);
    assert_eq!(requests(&bench.run(), "Read"), []);
    bench.done(A, 1, 1);
    assert_eq!(
        requests(&bench.run(), "Read"),
        [],
        "not for every single message"
    );
    bench.done(A, 1, 2);
    let [SourceRequest::Read { from, limit, .. }] = requests(&bench.run(), "Read")[..] else {
        panic!("no read")
    };
    assert_eq!((from.0, limit), (5, 2));
}

#[test]
fn an_answer_to_an_earlier_opening_is_ignored() {
    let mut bench = Bench::log();
    bench.open(A, opening(1, 5));
    let (old, ..) = only_read(&bench.run());
    bench.lanes.abandon(bench.now, &p(A));
    bench.open(A, opening(3, 2));
    let (new, from, _) = only_read(&bench.run());
    assert_eq!(from, 2);
    answer(&mut bench, old, 5..7, 0, 7);
    assert_eq!(handled(&bench.run(), A), NONE);
    answer(&mut bench, new, 2..7, 0, 7);
    assert_eq!(handled(&bench.run(), A), [2]);
}

#[test]
fn a_log_that_went_back_halts_its_lane_and_no_other() {
    let mut bench = Bench::log();
    bench.open(A, opening(1, 5));
    let (ask, ..) = only_read(&bench.run());
    answer(&mut bench, ask, 3..3, 0, 3);
    let trouble = Trouble::LogWentBack {
        partition: p(A),
        end: Offset(3),
        next: Offset(5),
    };
    assert_eq!(notes(&bench.run()), [LaneNote::Trouble(trouble)]);
    bench.source(SourceEvent::Grew { partition: p(A) });
    bench.pass(Duration::from_secs(100));
    assert_eq!(bench.run(), []);
    bench.open(B, opening(1, 1));
    let (ask, ..) = only_read(&bench.run());
    answer(&mut bench, ask, 1..3, 0, 3);
    assert_eq!(handled(&bench.run(), B), [1]);
}

#[test]
fn retention_that_overtook_is_told_with_the_count_and_it_goes_on() {
    let mut bench = Bench::log();
    bench.open(A, opening(1, 5));
    let (ask, ..) = only_read(&bench.run());
    answer(&mut bench, ask, 8..10, 8, 10);
    let actions = bench.run();
    let trouble = Trouble::RetentionOvertook {
        partition: p(A),
        first: Offset(8),
        lost: 3,
    };
    assert_eq!(notes(&actions), [LaneNote::Trouble(trouble)]);
    assert_eq!(handled(&actions, A), [8]);
}

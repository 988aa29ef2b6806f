//! What the source refuses is told, once, by whatever it was asked.

use super::*;
use crate::ids::WorkerId;

fn refused(why: &str) -> SourceError {
    SourceError::Rejected(why.into())
}

fn told(why: &str) -> LaneNote {
    LaneNote::Trouble(Trouble::SourceRefuses(why.into()))
}

/// The stream is deleted: pulls end, and all that is asked then is refused.
fn gone(bench: &mut Bench, asked: &[SourceRequest]) {
    for request in asked {
        let ask = ask_of(request);
        let error = refused("the stream is gone");
        match request {
            SourceRequest::Bounds { .. } => bench.source(SourceEvent::Bounds {
                ask,
                result: Err(error),
            }),
            SourceRequest::InspectConsumer { .. } => bench.source(SourceEvent::Consumer {
                ask,
                result: Err(error),
            }),
            SourceRequest::Pull { .. } => bench.source(SourceEvent::PullEnded { ask }),
            other => panic!("{other:?}"),
        }
    }
}

/// Everything that is asked of the source.
fn asked(actions: &[LaneAction]) -> Vec<SourceRequest> {
    requests(actions, "")
}

/// For so many rounds, everything that is asked is refused. What is told.
fn gone_for(bench: &mut Bench, rounds: u32) -> Vec<LaneNote> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        bench.source(SourceEvent::Reconnected);
        let actions = bench.run();
        all.extend(notes(&actions));
        gone(bench, &asked(&actions));
        all.extend(notes(&bench.run()));
        bench.pass(Duration::from_secs(31));
    }
    all.retain(|note| *note != LaneNote::ReadyChanged);
    all
}

#[test]
fn a_stream_that_is_gone_is_told_once_until_it_is_back() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 11));
    bench.run();
    let why = "where the stream ends cannot be asked: the source refuses: the stream is gone";
    // The durable is looked at, too: it is one and the same trouble.
    let actions = gone_for(&mut bench, 4);
    assert_eq!(actions.len(), 1, "{actions:?}");
    let look = "the consumer cannot be looked at: the source refuses: the stream is gone";
    assert!(
        actions == [told(why)] || actions == [told(look)],
        "{actions:?}"
    );
    assert!(bench.lanes.refused().is_some());
    let (mut looked, mut notes_since) = (false, Vec::new());
    while !looked {
        bench.source(SourceEvent::Reconnected);
        let actions = bench.run();
        notes_since.extend(notes(&actions));
        for request in asked(&actions) {
            match request {
                SourceRequest::Bounds { ask } => bench.head_answers(ask, 10),
                SourceRequest::InspectConsumer { ask, .. } => {
                    looked = true;
                    bench.consumer_answers(ask, 1, 0);
                }
                _ => {}
            }
        }
        notes_since.extend(notes(&bench.run()));
        bench.pass(Duration::from_secs(31));
    }
    notes_since.retain(|note| *note != LaneNote::ReadyChanged);
    assert_eq!(notes_since, [LaneNote::RefusedNoMore]);
    assert_eq!(bench.lanes.refused(), None);
    assert_eq!(gone_for(&mut bench, 4).len(), 1, "it is gone again");
}

#[test]
fn a_work_queue_that_is_gone_is_told_once_until_it_is_back() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    bench.open(A, opening(1, 1));
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    bench.pass(Duration::from_secs(1));
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    let pull = only_ask(&bench.run(), "Pull");
    let why = "where the stream ends cannot be asked: the source refuses: the stream is gone";
    bench.source(SourceEvent::PullEnded { ask: pull });
    assert_eq!(gone_for(&mut bench, 4), [told(why)]);
    assert_eq!(bench.lanes.refused().as_deref(), Some(why));
    bench.source(SourceEvent::Reconnected);
    let head = only_ask(&bench.run(), "Bounds");
    bench.head_answers(head, 10);
    let back = notes(&bench.run());
    assert_eq!(back, [LaneNote::RefusedNoMore]);
    assert_eq!(bench.lanes.refused(), None);
    bench.source(SourceEvent::Reconnected);
    assert_eq!(gone_for(&mut bench, 4), [told(why)], "it is gone again");
}

#[test]
fn a_dead_workers_consumer_that_stays_is_told_once_until_it_is_gone() {
    let mut bench = Bench::work_queue();
    let delete = only_ask(&bench.run(), "DeleteConsumer");
    bench.consumer_answers(delete, 0, 0);
    let seized = || Opening {
        seized_from: Some(WorkerId::new("worker-3")),
        ..opening(2, 1)
    };
    let nobodys = || refused("it belongs to nobody; delete it");
    let why = "what worker-3 had waits until its consumer is gone: the source refuses: it belongs \
               to nobody; delete it";
    bench.open(A, seized());
    bench.open(B, seized());
    let mut all = Vec::new();
    for _ in 0..4 {
        let evictions = requests(&bench.run(), "EvictConsumer");
        assert_eq!(evictions.len(), 2);
        for eviction in evictions {
            bench.source(SourceEvent::Consumer {
                ask: ask_of(&eviction),
                result: Err(nobodys()),
            });
        }
        all.extend(notes(&bench.run()));
        bench.pass_to_deadline();
    }
    assert_eq!(all, [told(why)]);
    // Somebody deletes it.
    for eviction in requests(&bench.run(), "EvictConsumer") {
        bench.consumer_answers(ask_of(&eviction), 0, 0);
    }
    assert_eq!(requests(&bench.run(), "Bounds").len(), 1, "it goes on");
    // What nobody waits for any more is told anew when somebody does.
    bench.open(A, seized());
    for _ in 0..2 {
        let eviction = only_ask(&bench.run(), "EvictConsumer");
        bench.source(SourceEvent::Consumer {
            ask: eviction,
            result: Err(nobodys()),
        });
        assert_eq!(notes(&bench.run()), [told(why)]);
        bench.lanes.detach(bench.now, &p(A));
        bench.pass(Duration::from_secs(60));
        bench.run();
        bench.open(A, seized());
    }
}

#[test]
fn a_start_that_cannot_be_asked_is_told_once() {
    let mut bench = Bench::limits();
    bench.lanes.resolve(bench.now, &p(A), StartPosition::Latest);
    let why = "where a new partition starts cannot be asked: the source refuses: no right to it";
    let mut all = Vec::new();
    for _ in 0..3 {
        let ask = only_ask(&bench.run(), "Resolve");
        bench.source(SourceEvent::Resolved {
            ask,
            result: Err(refused("no right to it")),
        });
        all.extend(notes(&bench.run()));
        bench.pass_to_deadline();
    }
    assert_eq!(all, [told(why)]);
}

#[test]
fn a_refused_read_is_told_once_until_one_succeeds() {
    let mut bench = Bench::limits();
    bench.joined(&[A], 10);
    bench.open(A, opening(1, 1));
    let refused = || SourceError::Rejected("no more consumers".into());
    let why = "what lies before the consumer cannot be read: the source refuses: no more consumers";
    let told = LaneNote::Trouble(Trouble::SourceRefuses(why.into()));
    for expected in [vec![told], vec![], vec![]] {
        let (ask, ..) = only_read(&bench.run());
        bench.source(SourceEvent::Read {
            ask,
            result: Err(refused()),
        });
        assert_eq!(notes(&bench.run()), expected);
        bench.pass_to_deadline();
    }
    let (ask, ..) = only_read(&bench.run());
    bench.read_answers(ask, &[3], 4);
    assert_eq!(handled(&bench.run(), A), [3]);
}

#[test]
fn a_refusal_of_some_lanes_is_told_once_though_others_are_read() {
    let mut bench = Bench::limits();
    bench.joined(&[A, B], 10);
    bench.open(A, opening(1, 1));
    bench.open(B, opening(1, 1));
    let mut told = Vec::new();
    for round in 0..4 {
        let actions = bench.run();
        told.extend(notes(&actions));
        for read in requests(&actions, "Read") {
            let SourceRequest::Read {
                ask,
                partition,
                from,
                ..
            } = read
            else {
                panic!("{read:?}");
            };
            if partition == p(A) {
                let result = Err(SourceError::Rejected("no right to that subject".into()));
                bench.source(SourceEvent::Read { ask, result });
            } else {
                bench.read_answers(ask, &[], from.0 + 1);
            }
        }
        told.extend(notes(&bench.run()));
        assert_eq!(told.len(), 1, "round {round}: {told:?}");
        bench.pass_to_deadline();
    }
}

#[test]
fn a_consumer_that_cannot_be_updated_is_told_once() {
    let mut bench = Bench::limits();
    bench.lanes.attach(bench.now, &p(A));
    let mut told = Vec::new();
    for _ in 0..5 {
        let update = only_ask(&bench.run(), "UpdateConsumer");
        bench.source(SourceEvent::Consumer {
            ask: update,
            result: Err(SourceError::Rejected("no".into())),
        });
        told.extend(notes(&bench.run()));
        bench.pass_to_deadline();
    }
    let why = "3 consumer updates failed in a row: the source refuses: no";
    assert_eq!(
        told,
        [LaneNote::Trouble(Trouble::SourceRefuses(why.into()))]
    );
    // What merely fails ends no refusal.
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.source(SourceEvent::Consumer {
        ask: update,
        result: Err(super::error()),
    });
    assert_eq!(notes(&bench.run()), []);
    assert!(bench.lanes.refused().is_some());
    bench.pass_to_deadline();
    let update = only_ask(&bench.run(), "UpdateConsumer");
    bench.consumer_answers(update, 1, 0);
    let after = notes(&bench.run());
    assert!(after.contains(&LaneNote::RefusedNoMore), "{after:?}");
    assert_eq!(bench.lanes.refused(), None);
}

#[test]
fn a_consumer_that_cannot_be_updated_for_a_while_is_no_refusal() {
    let mut bench = Bench::limits();
    bench.lanes.attach(bench.now, &p(A));
    let mut told = Vec::new();
    for _ in 0..5 {
        let update = only_ask(&bench.run(), "UpdateConsumer");
        bench.source(SourceEvent::Consumer {
            ask: update,
            result: Err(super::error()),
        });
        told.extend(notes(&bench.run()));
        assert_eq!(bench.lanes.refused(), None);
        bench.pass_to_deadline();
    }
    let passes = |note: &LaneNote| matches!(note, LaneNote::Trouble(Trouble::Source(_)));
    assert!(told.len() == 1 && passes(&told[0]), "{told:?}");
}

#[test]
fn a_log_that_refuses_is_told_once_for_all_its_partitions() {
    let mut bench = Bench::log();
    let mut told = Vec::new();
    for name in [A, B] {
        bench.open(name, opening(1, 5));
    }
    for _ in 0..3 {
        let actions = bench.run();
        told.extend(notes(&actions));
        for read in requests(&actions, "Read") {
            bench.source(SourceEvent::Read {
                ask: ask_of(&read),
                result: Err(refused("the folder is gone")),
            });
        }
        told.extend(notes(&bench.run()));
        bench.pass(Duration::from_secs(31));
    }
    told.retain(|note| *note != LaneNote::ReadyChanged);
    assert_eq!(told.len(), 1, "{told:?}");
    let why = bench.lanes.refused().expect("it refuses");
    assert!(why.ends_with("cannot be read: the source refuses: the folder is gone"));
    let mut after = Vec::new();
    for read in requests(&bench.run(), "Read") {
        assert!(bench.lanes.refused().is_some(), "one still waits");
        let batch = ReadBatch {
            messages: Vec::new(),
            next: Offset(5),
            first: Offset(0),
            end: Offset(5),
        };
        bench.source(SourceEvent::Read {
            ask: ask_of(&read),
            result: Ok(batch),
        });
        after.extend(notes(&bench.run()));
    }
    assert_eq!(after, [LaneNote::RefusedNoMore]);
}

//! The view without a terminal: what keys and news do, and what is on the screen then.

mod ask;
mod events;

use std::collections::BTreeMap;

use parti::core::ids::Incarnation;
use parti::core::record::{Fingerprint, Lifecycle, PlanState, SessionStatus};
use parti::inspect::{
    Bounds, Group, Handoff, OwnerSession, PartitionView, Plan, Sight, Stage, WorkerView,
};
use parti::store::Error;
use parti::{Epoch, Offset, PartitionId, SourceId, Term, Version, WorkerId};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::app::{App, Cells, Effect, Input, Key, Offsets, Pane};
use super::heads::Unseen;
use super::list::{Filter, PartitionSort, WorkerSort};
use super::screen::{self, Paint};

const NOW: u64 = 1_700_000_000_000;

/// A partition that its owner serves.
pub fn partition_view(id: &str, owner: Option<&str>, next: u64) -> PartitionView {
    PartitionView {
        id: PartitionId::new(id),
        owner: owner.map(WorkerId::new),
        incarnation: owner.map(|_| Incarnation(1)),
        owner_session: owner.map(|_| OwnerSession::Live),
        assigned: owner.map(WorkerId::new),
        prepared_by: None,
        epoch: Epoch(3),
        offset: next.checked_sub(1).map(Offset),
        next_offset: Some(Offset(next)),
        done_above: Vec::new(),
        begun: None,
        first: None,
        end: None,
        lag: None,
        paused: false,
        pinned_to: None,
        unserved: None,
        claimed_ms: NOW - 60_000,
        updated_ms: NOW - 2_000,
    }
}

fn worker_view(id: &str, owns: usize) -> WorkerView {
    WorkerView {
        id: WorkerId::new(id),
        incarnation: Incarnation(1),
        status: SessionStatus::Live,
        state: 4,
        beat: 7,
        renewed_ms: Some(NOW - 1_200),
        leader: false,
        owns,
        serve: Some(owns),
        prepare: 0,
        applied: Version(8),
        drained: false,
        blocked_by: Vec::new(),
        degraded: None,
    }
}

/// A group of so many workers, who serve so many partitions in turn.
fn group(workers: usize, partitions: usize) -> Group {
    let names: Vec<String> = (0..workers).map(|n| format!("worker-{n}")).collect();
    let owns = |n: usize| (0..partitions).filter(|p| p % workers == n).count();
    let mut views: Vec<WorkerView> = (names.iter().enumerate())
        .map(|(n, name)| worker_view(name, owns(n)))
        .collect();
    // As a group has them: by the text of their ids.
    views.sort_by(|a, b| a.id.cmp(&b.id));
    if let Some(first) = views.first_mut() {
        first.leader = true;
    }
    Group {
        name: "billing".into(),
        coordination: "leader".into(),
        stream: 1.into(),
        strategy: None,
        closed: false,
        requests: Vec::new(),
        leader: Some(WorkerId::new("worker-0")),
        term: Some(Term(3)),
        plan: Some(Plan {
            version: Version(8),
            lifecycle: Lifecycle::Stable,
            state: PlanState::Stable,
            reason: "worker-1 joined".into(),
            started_ms: NOW - 42_000,
            workers: workers as u64,
            partitions: partitions as u64,
            moving: 0,
            unserved: Vec::new(),
            fingerprint: Fingerprint {
                partitions: 1,
                strategy: "fair_share".into(),
                coordination: "leader".into(),
            },
        }),
        workers: views,
        handoffs: Vec::new(),
        partitions: (0..partitions)
            .map(|p| partition_view(&p.to_string(), Some(&names[p % workers]), 100))
            .collect(),
        unreadable: Vec::new(),
        history: Vec::new(),
    }
}

/// A group in which everything goes on at once.
fn busy(workers: usize, partitions: usize) -> Group {
    let mut group = group(workers, partitions);
    let silent = group
        .workers
        .iter_mut()
        .find(|own| own.id.as_str() == "worker-2");
    if let Some(silent) = silent {
        silent.renewed_ms = Some(NOW - 31_000);
    }
    if let Some(second) = group.workers.get_mut(1) {
        second.serve = Some(second.owns + 1);
    }
    if let Some(plan) = &mut group.plan {
        plan.state = PlanState::Rebalancing;
    }
    group.partitions[3].prepared_by = Some(WorkerId::new("worker-1"));
    group.handoffs.push(Handoff {
        partition: PartitionId::new("3"),
        from: group.partitions[3].owner.clone(),
        to: WorkerId::new("worker-1"),
        stage: Stage::Ready,
    });
    group.partitions[5].owner_session = Some(OwnerSession::Over);
    group.partitions[7].paused = true;
    let free = &mut group.partitions[8];
    (free.owner, free.owner_session, free.assigned) = (None, None, None);
    group
}

fn app(group: Group, offsets: Option<Offsets>) -> App {
    App::new(NOW, group, offsets)
}

/// The source: each partition has so many messages more than are done.
fn look(app: &mut App, now_ms: u64, more: impl Fn(usize) -> u64) {
    let all = app.group.partitions.iter().enumerate();
    let bounds: BTreeMap<PartitionId, Bounds> = all
        .map(|(place, own)| {
            let head = Offset(own.next_offset.map_or(0, |next| next.0) + more(place));
            let first = Offset(0);
            (
                own.id.clone(),
                Bounds {
                    first,
                    end: head,
                    head,
                },
            )
        })
        .collect();
    app.update(now_ms, Input::Look(Ok(bounds)));
}

fn press(app: &mut App, keys: &str) {
    for letter in keys.chars() {
        assert_eq!(app.update(NOW, Input::Key(Key::Char(letter))), None);
    }
}

fn drawn(app: &mut App, width: u16, height: u16, colours: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let paint = Paint { colours };
    let frame = terminal.draw(|frame| screen::draw(frame, app, paint));
    frame.expect("drawn").buffer.clone()
}

fn lines(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let buffer = drawn(app, width, height, true);
    let rows = 0..buffer.area.height;
    let text = |y| (0..buffer.area.width).map(move |x| (x, y));
    let lines: Vec<String> = rows
        .map(|y| text(y).map(|at| buffer[at].symbol()).collect::<String>())
        .map(|line: String| line.trim_end().to_owned())
        .collect();
    // With --nocapture, to be looked at.
    println!("{}\n{}", "=".repeat(usize::from(width)), lines.join("\n"));
    lines
}

#[track_caller]
fn shows(lines: &[String], text: &str) {
    assert!(
        lines.iter().any(|line| line.contains(text)),
        "no {text:?} in\n{}",
        lines.join("\n")
    );
}

fn ids(app: &App) -> Vec<&str> {
    let places = 0..app.order.len();
    places
        .filter_map(|place| Some(app.at(place)?.id.as_str()))
        .collect()
}

#[test]
fn everything_that_matters_is_on_a_small_screen() {
    let mut app = app(busy(3, 40), Some(Offsets::Own));
    look(&mut app, NOW, |place| place as u64 * 10);
    look(&mut app, NOW + 2_000, |place| place as u64 * 10 + 5);
    let lines = lines(&mut app, 80, 24);
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
    shows(&lines, "billing");
    shows(&lines, "worker-0 leads, term 3");
    shows(&lines, "rebalancing for 44s: worker-1 joined");
    shows(
        &lines,
        "3 workers · 40 partitions · lag 8,000 · in 100/s · 1 moving",
    );
    shows(&lines, "40  by id  ! 1 owner gone  · 1 free  = 1 paused");
    shows(&lines, "A* worker-0");
    shows(&lines, "C  worker-2  silent     33s");
    shows(&lines, "ABCAB!A=·A BCABCABCAB");
    shows(
        &lines,
        "  5          worker-2       3         100       55       -  owner gone",
    );
    shows(&lines, "3          A worker-0 → B worker-1  ready");
    shows(&lines, "q quit  ? help");
}

#[test]
fn a_large_group_fits_both_sizes() {
    for (width, height) in [(80, 24), (160, 50)] {
        let mut app = app(busy(64, 5_000), Some(Offsets::Own));
        look(&mut app, NOW, |place| place as u64 * 997);
        let before = lines(&mut app, width, height);
        let widest = before.iter().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= usize::from(width)));
        shows(&before, "64 workers · 5000 partitions");
        shows(&before, "of 5,000");
        shows(&before, "of 64");
        // The end of everything can be reached.
        app.update(NOW, Input::Key(Key::End));
        let workers = lines(&mut app, width, height);
        shows(&workers, ">%  worker-63");
        app.update(NOW, Input::Key(Key::Tab));
        app.update(NOW, Input::Key(Key::End));
        let partitions = lines(&mut app, width, height);
        shows(&partitions, "-5000 of 5,000");
        shows(&partitions, "4999:  worker-7 (H)");
    }
}

#[test]
fn a_wide_screen_has_workers_and_map_side_by_side() {
    let mut app = app(busy(5, 300), Some(Offsets::Shared));
    look(&mut app, NOW, |_| 12);
    let lines = lines(&mut app, 160, 50);
    let both = |line: &String| line.contains("Workers") && line.contains("Partitions");
    assert!(lines.iter().any(both));
    shows(&lines, "lag ≤ 3,");
    shows(&lines, "██████");
    shows(&lines, "told to serve");
}

#[test]
fn without_colours_letters_are_left() {
    let mut app = app(busy(3, 40), None);
    let buffer = drawn(&mut app, 80, 24, false);
    let plain = |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
    assert!(buffer.content().iter().all(plain));
    let buffer = drawn(&mut app, 80, 24, true);
    assert!(!buffer.content().iter().all(plain));
}

#[test]
fn a_terminal_that_is_too_small_is_told_so() {
    let mut app = app(group(2, 4), None);
    shows(&lines(&mut app, 30, 5), "too small: 60 x 14");
    shows(&lines(&mut app, 60, 14), "Partitions");
    lines(&mut app, 1, 1);
}

#[test]
fn keys_sort_filter_and_find() {
    let mut app = app(busy(12, 60), Some(Offsets::Own));
    look(&mut app, NOW, |place| place as u64);
    let first: Vec<&str> = app
        .workers
        .iter()
        .take(3)
        .map(|own| own.id.as_str())
        .collect();
    assert_eq!(
        first,
        ["worker-0", "worker-1", "worker-2"],
        "10 comes after 9"
    );
    press(&mut app, "sss");
    assert_eq!(app.worker_sort, WorkerSort::Rate);
    press(&mut app, "s");
    assert_eq!(
        app.workers[0].id.as_str(),
        "worker-2",
        "the longest silent first"
    );
    app.update(NOW, Input::Key(Key::Tab));
    press(&mut app, "ss");
    assert_eq!(app.partition_sort, PartitionSort::Lag);
    assert_eq!(ids(&app)[..2], ["59", "58"]);
    press(&mut app, "sf");
    assert_eq!(
        (app.partition_sort, app.filter),
        (PartitionSort::Id, Filter::Odd)
    );
    assert_eq!(ids(&app), ["3", "5", "7", "8"]);
    press(&mut app, "f");
    assert_eq!(
        ids(&app),
        ["0", "12", "24", "36", "48"],
        "the chosen worker's"
    );
    press(&mut app, "f/5");
    assert_eq!(ids(&app).len(), 15);
    press(&mut app, "5q");
    assert_eq!(ids(&app), [] as [&str; 0], "a letter of a text is no key");
    shows(&lines(&mut app, 80, 24), "ids with: 55q_");
    app.update(NOW, Input::Key(Key::Backspace));
    app.update(NOW, Input::Key(Key::Enter));
    assert_eq!(ids(&app), ["55"]);
    app.update(NOW, Input::Key(Key::Escape));
    assert_eq!(ids(&app).len(), 60);
    press(&mut app, "v");
    assert_eq!(app.cells, Cells::Lags);
    shows(&lines(&mut app, 80, 24), "·111111111 2222222222");
    press(&mut app, "?");
    shows(&lines(&mut app, 80, 24), "end the view (also Ctrl-C)");
    press(&mut app, "q");
    assert_eq!(
        app.update(NOW, Input::Key(Key::Char('q'))),
        Some(Effect::Quit)
    );
    assert_eq!(
        app.update(NOW, Input::Key(Key::Interrupt)),
        Some(Effect::Quit)
    );
}

#[test]
fn what_is_chosen_stays_chosen() {
    let mut app = app(group(3, 200), None);
    app.update(NOW, Input::Key(Key::Tab));
    assert_eq!(app.pane, Pane::Partitions);
    lines(&mut app, 80, 24);
    for key in [
        Key::Down,
        Key::Right,
        Key::Right,
        Key::Left,
        Key::Up,
        Key::Up,
    ] {
        app.update(NOW, Input::Key(key));
    }
    assert_eq!(app.cursor(), 1, "there is nothing above the first row");
    app.update(NOW, Input::Key(Key::End));
    let mut other = group(3, 300);
    other.partitions.remove(0);
    app.update(NOW, Input::Sight(Sight::Group(Box::new(other))));
    assert_eq!(app.partition, Some(PartitionId::new("199")));
    let fewer = group(2, 4);
    app.update(NOW, Input::Sight(Sight::Group(Box::new(fewer))));
    assert_eq!(
        app.partition,
        Some(PartitionId::new("0")),
        "it is gone: the first one"
    );
    app.update(NOW, Input::Sight(Sight::Group(Box::new(group(1, 0)))));
    assert_eq!(app.partition, None);
    app.update(NOW, Input::Key(Key::Down));
    shows(&lines(&mut app, 80, 24), "no partition");
}

#[test]
fn trouble_is_said_and_goes_away() {
    let mut app = app(group(3, 12), Some(Offsets::Own));
    let lost = || Input::Sight(Sight::Blind(Error::unavailable("no answer")));
    app.update(NOW, lost());
    app.update(NOW + 4_000, lost());
    shows(&lines(&mut app, 80, 24), "the store is silent for 4s: ");
    app.update(NOW, Input::Look(Err(Unseen::Silent)));
    shows(&lines(&mut app, 80, 24), "the source does not answer");
    let bounds = Bounds {
        first: Offset(0),
        end: Offset(90),
        head: Offset(90),
    };
    let found = BTreeMap::from([(PartitionId::new("0"), bounds)]);
    app.update(NOW, Input::Look(Ok(found)));
    let is_located = |app: &App| {
        let mut all = app.group.partitions.iter();
        all.any(|one| one.first.is_some() || one.end.is_some() || one.lag.is_some())
    };
    assert!(is_located(&app), "of its own");
    app.update(NOW, Input::Look(Err(Unseen::Other)));
    shows(&lines(&mut app, 80, 24), "the source is not the group's");
    app.group.stream = SourceId::NoLog;
    shows(
        &lines(&mut app, 80, 24),
        "the group has no log: leave --source away",
    );
    assert!(!is_located(&app), "of another source");
    app.update(NOW, Input::Sight(Sight::NoGroup));
    shows(&lines(&mut app, 80, 24), "the group is gone");
    app.update(NOW, Input::Sight(Sight::Group(Box::new(group(3, 12)))));
    shows(&lines(&mut app, 80, 24), "worker-0 leads");
}

#[test]
fn a_group_that_is_drained_out_says_so_in_its_first_line() {
    let mut drained = group(2, 12);
    for worker in &mut drained.workers {
        worker.drained = true;
    }
    for partition in &mut drained.partitions {
        (partition.owner, partition.owner_session) = (None, None);
    }
    let mut app = app(drained, None);
    let says = "12 partitions without owner: all living workers drained, d undrains";
    for width in [80, 160] {
        let shown = lines(&mut app, width, 24);
        assert!(shown[0].contains(says), "{}", shown[0]);
    }
}

#[test]
fn past_its_end_is_only_a_checkpoint_that_was_there_before_the_end_was_asked_for() {
    let ahead = |next| {
        let mut group = group(2, 4);
        for partition in &mut group.partitions {
            partition.next_offset = Some(Offset(next));
        }
        Input::Sight(Sight::Group(Box::new(group)))
    };
    let ends_at = |app: &mut App, end: u64| {
        let end = Offset(end);
        let bounds = Bounds {
            first: Offset(0),
            end,
            head: end,
        };
        let all = app.group.partitions.iter();
        let all = all.map(|own| (own.id.clone(), bounds)).collect();
        app.update(NOW, Input::Look(Ok(all)));
    };
    let note = |app: &App| crate::view::partition_note(&app.group.partitions[0]);
    let mut app = app(group(2, 4), Some(Offsets::Own));
    for (at, next) in [(0, 90), (2_000, 110), (4_000, 130)] {
        ends_at(&mut app, next - 10);
        app.update(NOW + at + 1_000, ahead(next));
        assert!(!note(&app).contains("past its last"), "{}", note(&app));
    }
    ends_at(&mut app, 120);
    ends_at(&mut app, 120);
    assert!(
        note(&app).contains("past its last message"),
        "{}",
        note(&app)
    );
}

#[test]
fn rates_follow_from_checkpoints_and_heads() {
    let mut app = app(group(2, 4), Some(Offsets::Own));
    look(&mut app, NOW, |_| 50);
    look(&mut app, NOW + 2_000, |_| 100);
    let mut later = group(2, 4);
    for partition in &mut later.partitions {
        partition.next_offset = Some(Offset(150));
        partition.updated_ms += 5_000;
    }
    app.update(NOW + 5_000, Input::Sight(Sight::Group(Box::new(later))));
    let shown = lines(&mut app, 80, 24);
    shows(&shown, "lag 200 · in 100/s · done 40/s");
    app.update(NOW + 40_000, Input::Tick);
    shows(&lines(&mut app, 80, 24), "done 0/s");
    // Where offsets are shared, nobody can say how many messages were done.
    let mut shared = self::app(group(2, 4), Some(Offsets::Shared));
    shared.update(
        NOW + 5_000,
        Input::Sight(Sight::Group(Box::new(group(2, 4)))),
    );
    assert!(shared.workers.iter().all(|own| own.done.is_none()));
}

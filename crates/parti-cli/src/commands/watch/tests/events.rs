//! What happened: where it is shown, and how far back one can look.

use parti::core::record::{EventKind, Request};
use parti::inspect::Happening;
use parti::operate::CarriedOut;

use super::*;

/// So many lines, a second from one to the next, the newest as old as that.
fn history(count: u64) -> Vec<Happening> {
    let line = |number: u64| {
        let (kind, text) = match number % 4 {
            0 => (EventKind::Join, format!("worker-{number} joined")),
            1 => (EventKind::Plan, format!("plan {number}: worker-1 joined")),
            2 => (EventKind::Crash, format!("worker-{number} fell silent")),
            _ => (
                EventKind::Request,
                format!(
                    "alice asked to move partition {number} to worker-2 (next to its cache, which \
                     is large): done"
                ),
            ),
        };
        Happening {
            number,
            at_ms: NOW - (count - number) * 1_000,
            by: "worker-0".into(),
            kind,
            text,
            moves: None,
        }
    };
    (0..count).map(line).collect()
}

fn told(group: &mut Group, count: u64) {
    group.history = history(count);
}

fn sees(app: &mut App, group: Group) {
    app.update(NOW, Input::Sight(Sight::Group(Box::new(group))));
}

#[test]
fn the_newest_events_are_on_both_screens() {
    for (width, height, rows) in [(80, 24, 3), (160, 50, 10)] {
        let mut group = busy(3, 40);
        told(&mut group, 20);
        let mut app = app(group, Some(Offsets::Own));
        look(&mut app, NOW, |place| place as u64 * 10);
        let request = Request::Rebalance;
        let carried_out = CarriedOut {
            request: request.clone(),
            took_ms: 12,
        };
        app.update(NOW + 500, Input::Answer(request, Ok(carried_out)));
        let shown = lines(&mut app, width, height);
        let title = shown.iter().position(|line| line.contains(" Events "));
        let title = title.expect("a title");
        shows(&shown, &format!("{}-21 of 21  times are UTC", 22 - rows));
        let last = &shown[title + rows];
        assert!(last.starts_with("  22:13:20  you"), "{last}");
        assert!(last.ends_with("  rebalance: done after 12 ms"), "{last}");
        let before = &shown[title + rows - 1];
        assert!(before.starts_with("  22:13:19  request "), "{before}");
        assert_eq!(title + rows + 3, usize::from(height), "the foot follows");
        // Nothing else is lost.
        for text in [
            "Workers",
            "Partitions",
            "Moving",
            "A* worker-0",
            "worker-2  silent",
        ] {
            shows(&shown, text);
        }
    }
}

#[test]
fn a_group_without_a_history_has_the_room_for_something_else() {
    let mut app = app(group(3, 12), None);
    let shown = lines(&mut app, 80, 24);
    assert!(!shown.iter().any(|line| line.contains("Events")));
    app.update(NOW, Input::Key(Key::Tab));
    app.update(NOW, Input::Key(Key::Tab));
    let shown = lines(&mut app, 80, 24);
    shows(&shown, "▶─ Events  none");
    shows(&shown, "nothing to be seen");
    for key in [Key::Up, Key::Down, Key::End, Key::PageUp] {
        app.update(NOW, Input::Key(key));
    }
    app.update(NOW, Input::Key(Key::Tab));
    assert_eq!(app.pane, Pane::Workers);
}

#[test]
fn one_can_look_back_and_stays_there_when_more_happens() {
    let mut seen = group(3, 12);
    told(&mut seen, 100);
    let mut app = app(seen, None);
    app.update(NOW, Input::Key(Key::Tab));
    app.update(NOW, Input::Key(Key::Tab));
    assert_eq!(app.pane, Pane::Events);
    let shown = lines(&mut app, 80, 24);
    shows(&shown, "92-100 of 100");
    shows(
        &shown,
        "> 22:13:19  request   alice asked to move partition 99 to worker-2",
    );
    // What is too long for its line is whole at the bottom.
    assert_eq!(
        format!("{}{}", shown[22], shown[23]),
        " alice asked to move partition 99 to worker-2 (next to its cache, which is large): done"
    );
    app.update(NOW, Input::Key(Key::PageUp));
    shows(&lines(&mut app, 80, 24), "> 22:13:09  plan      plan 89");
    let mut more = group(3, 12);
    told(&mut more, 103);
    more.history.drain(..3);
    sees(&mut app, more);
    shows(&lines(&mut app, 80, 24), "plan      plan 89");
    let pointed = lines(&mut app, 80, 24);
    assert!(
        pointed
            .iter()
            .any(|line| line.starts_with("> ") && line.contains("plan 89"))
    );
    app.update(NOW, Input::Key(Key::Home));
    shows(&lines(&mut app, 80, 24), "1-9 of 100");
    app.update(NOW, Input::Key(Key::End));
    shows(&lines(&mut app, 80, 24), "partition 99 to worker-2");
}

#[test]
fn events_are_found_by_a_text() {
    let mut seen = group(3, 12);
    told(&mut seen, 40);
    let mut app = app(seen, None);
    app.update(NOW, Input::Key(Key::Tab));
    app.update(NOW, Input::Key(Key::Tab));
    press(&mut app, "/fell");
    let shown = lines(&mut app, 80, 24);
    shows(&shown, "lines with: fell_");
    shows(&shown, "2-10 of 10  with \"fell\"");
    assert!(!shown.iter().any(|line| line.contains("joined  ")));
    app.update(NOW, Input::Key(Key::Escape));
    shows(&lines(&mut app, 80, 24), "of 40");
}

#[test]
fn every_size_has_room_and_nothing_reaches_the_terminal_but_text() {
    for (width, height) in [
        (60, 14),
        (80, 24),
        (119, 15),
        (120, 14),
        (160, 50),
        (300, 100),
    ] {
        for tabs in 0..3 {
            let mut seen = busy(64, 5_000);
            told(&mut seen, 1_000);
            if let Some(last) = seen.history.last_mut() {
                last.text = "odd\u{1b}[2Jtext\nin\ta line".into();
            }
            let mut app = app(seen, Some(Offsets::Own));
            for _ in 0..tabs {
                app.update(NOW, Input::Key(Key::Tab));
            }
            let shown = lines(&mut app, width, height);
            shows(&shown, "Events");
            let control = |line: &String| line.chars().any(char::is_control);
            assert!(!shown.iter().any(control));
        }
    }
}

#[test]
fn the_help_has_all_keys() {
    let mut app = app(group(3, 12), None);
    press(&mut app, "?");
    let shown = lines(&mut app, 80, 24);
    for text in [
        "drain it, or end its drain",
        "evict it (it hangs); asks twice",
        "pause or resume it",
        "move it to another worker",
        "unpin it",
        "rebalance the group now",
        "this; any key goes back",
        "* leads",
    ] {
        shows(&shown, text);
    }
}

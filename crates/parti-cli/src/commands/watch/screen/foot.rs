//! The two lines at the bottom: what is chosen, and what can be done; and all keys explained.

use parti::core::record::Request;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::super::app::{App, Mode, Pane};
use super::super::ask::Asking;
use super::super::events::events;
use super::super::list::Health;
use super::map::SIGNS;
use super::text::{Paint, clip, items, put, rate, row, short_or_dash, title};
use crate::show::age;
use crate::table::or_dash;
use crate::view;

const KEYS: [(&str, &str); 15] = [
    ("q", "end the view (also Ctrl-C)"),
    ("Tab", "from workers to partitions to events"),
    ("arrows, Page Up/Down, Home, End", "choose"),
    ("d", "worker: drain it, or end its drain"),
    ("e", "worker: evict it (it hangs); asks twice"),
    ("p", "partition: pause or resume it"),
    ("m", "partition: move it to another worker"),
    ("u", "partition: unpin it; the strategy decides"),
    ("b", "rebalance the group now"),
    ("s", "sort the focused pane by something else"),
    ("f", "partitions: all, odd ones, the chosen worker's"),
    ("/", "only what has a text; Enter keeps it, Esc ends it"),
    ("v", "cells show owners, or how many digits the lag has"),
    ("Esc", "end what was begun; show everything again"),
    ("?", "this; any key goes back"),
];

/// Draws both lines.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    let width = usize::from(area.width).saturating_sub(2);
    let one = |parts: Vec<String>| (items(&parts, "  ", width), String::new());
    let (text, more, style) = match (&app.said, app.pane) {
        // News that are too long for the lowest line have both.
        (Some((health, news)), _) if app.mode == Mode::Look && news.chars().count() > width => {
            let (text, more) = halves(news, width);
            (text, more, paint.health(*health))
        }
        (said, pane) => {
            let (text, more) = match pane {
                Pane::Workers => one(worker(app)),
                Pane::Partitions => one(partition(app)),
                Pane::Events if said.is_some() => one(vec![event(app)]),
                Pane::Events => halves(&event(app), width),
            };
            (text, more, paint.strong())
        }
    };
    put(buffer, area, vec![Span::styled(format!(" {text}"), style)]);
    let last = row(area, 1);
    let (text, style) = match &app.mode {
        Mode::Look if !more.is_empty() => (more, style),
        Mode::Look => low(app, paint, width),
        Mode::Find => {
            let what = match app.pane {
                Pane::Events => "lines with",
                _ => "ids with",
            };
            let text = &app.find[app.pane as usize];
            let line = typed(
                &format!("{what}: "),
                text,
                "   Enter keeps it, Esc ends it",
                width,
            );
            (line, Style::new())
        }
        Mode::Help => ("any key goes back".to_owned(), Style::new()),
        Mode::Ask(asking) => (ask(app, asking, width), paint.health(Health::Odd)),
        Mode::Leave => {
            let open = under_way(app).unwrap_or_default();
            let line = format!("end the view without the outcome of: {open}? y/n");
            (clip(&line, width), paint.health(Health::Odd))
        }
    };
    put(buffer, last, vec![Span::styled(format!(" {text}"), style)]);
}

/// What the lowest line says when nothing is being typed: news, or what can be done.
fn low(app: &App, paint: Paint, width: usize) -> (String, Style) {
    if let Some((health, text)) = &app.said {
        return (clip(text, width), paint.health(*health));
    }
    if let Some(open) = under_way(app) {
        return (clip(&open, width), paint.health(Health::Odd));
    }
    let own: &[&str] = match app.pane {
        Pane::Workers => match app.chosen_worker().is_some_and(|own| own.drained) {
            true => &["d undrain", "e evict"],
            false => &["d drain", "e evict"],
        },
        Pane::Partitions => {
            let chosen = app.chosen_partition();
            let paused = chosen.is_some_and(|own| own.paused);
            let pinned = chosen.is_some_and(|own| own.pinned_to.is_some());
            match (paused, pinned) {
                (true, true) => &["p resume", "m move", "u unpin"],
                (true, false) => &["p resume", "m move"],
                (false, true) => &["p pause", "m move", "u unpin"],
                (false, false) => &["p pause", "m move"],
            }
        }
        Pane::Events => &[],
    };
    let all = [
        &["q quit", "? help", "Tab pane"],
        own,
        &["b rebalance", "s sort", "f filter", "/ find", "v lag map"],
    ];
    let all: Vec<String> = all.concat().into_iter().map(str::to_owned).collect();
    (items(&all, "  ", width), paint.faint())
}

/// What was asked for and is not answered.
fn under_way(app: &App) -> Option<String> {
    let first = app.asked.first()?;
    let since = age(app.now_ms.saturating_sub(first.since_ms));
    let more = match app.asked.len() {
        1 => String::new(),
        all => format!(", and {} more", all - 1),
    };
    Some(format!("{} under way for {since}{more}", first.request))
}

/// What is about to be asked for, and what is wanted for that.
fn ask(app: &App, asking: &Asking, width: usize) -> String {
    match asking {
        Asking::Where { partition, worker } => {
            let letter = app.marks.of(worker).letter;
            let line = format!("move partition {partition} to {letter} {worker}");
            let how = "a letter, or arrows and Enter; Esc ends it".to_owned();
            items(&[line, how], "   ", width)
        }
        Asking::Why { request, why } => typed(
            &format!("{request}, why: "),
            why,
            "   Enter goes on, Esc ends it",
            width,
        ),
        Asking::Sure {
            request: request @ Request::Evict { .. },
            times: 2..,
            ..
        } => {
            let line = format!("{request}? y/n");
            let how = "what it did since its checkpoints is repeated".to_owned();
            items(&[line, how], "   ", width)
        }
        Asking::Sure {
            request: request @ Request::Evict { .. },
            ..
        } => clip(
            &format!("really {request}? d is the gentle way. y/n"),
            width,
        ),
        Asking::Sure { request, why, .. } => {
            let why = match why.trim() {
                "" => String::new(),
                why => format!("({why})"),
            };
            items(&[format!("{request}? y/n"), why], "   ", width)
        }
    }
}

/// A text that is being typed: its end is seen, and what can be done if there is room.
fn typed(before: &str, text: &str, after: &str, width: usize) -> String {
    let count = text.chars().count();
    let room = width.saturating_sub(before.chars().count() + 1);
    let skipped = count.saturating_sub(room);
    let mut line = before.to_owned();
    line.extend(text.chars().skip(skipped));
    line.push('_');
    if line.chars().count() + after.chars().count() <= width {
        line.push_str(after);
    }
    line
}

fn event(app: &App) -> String {
    let all = events(app);
    match all.get(app.event_place(all.len())) {
        None => "nothing to be seen".to_owned(),
        Some(event) => event.text.to_owned(),
    }
}

/// A text in two lines, the first of which ends with a word.
fn halves(text: &str, width: usize) -> (String, String) {
    if text.chars().count() <= width {
        return (text.to_owned(), String::new());
    }
    let most: usize = text.chars().take(width).map(char::len_utf8).sum();
    let end = text[..most].rfind(' ').unwrap_or(most);
    let (first, rest) = text.split_at(end);
    (first.to_owned(), clip(rest.trim_start(), width))
}

fn worker(app: &App) -> Vec<String> {
    let Some(worker) = app.chosen_worker() else {
        return vec!["no worker".to_owned()];
    };
    let silent = worker.silent_ms(app.now_ms);
    let mut all = vec![
        format!("{}:", worker.id),
        format!("owns {}", worker.owns),
        worker
            .serve
            .map_or_else(String::new, |told| format!("told {told}")),
        format!("prepares {}", worker.prepare),
        format!("applied {}", worker.applied),
        format!("life {}", worker.incarnation),
        silent.map_or_else(String::new, |ms| format!("beat {} ago", age(ms))),
    ];
    all.push(view::note(worker, view::is_silent(worker, app.now_ms)));
    all
}

fn partition(app: &App) -> Vec<String> {
    let Some(partition) = app.chosen_partition() else {
        return vec!["no partition".to_owned()];
    };
    let owner = or_dash(partition.owner.as_ref());
    let letter = partition.owner.as_ref().map(|own| app.marks.of(own).letter);
    let letter = letter.map_or_else(String::new, |letter| format!(" ({letter})"));
    let updated = app.now_ms.checked_sub(partition.updated_ms);
    let updated = updated.filter(|_| partition.updated_ms > 0);
    vec![
        format!("{}:", partition.id),
        format!("{owner}{letter}"),
        view::partition_note(partition),
        format!("epoch {}", partition.epoch),
        format!("next {}", or_dash(partition.next_offset)),
        partition
            .end
            .map_or_else(String::new, |end| format!("end {end}")),
        format!("lag {}", short_or_dash(partition.lag)),
        match app.done(&partition.id) {
            Some(done) => format!("done {}/s", rate(Some(done))),
            None => String::new(),
        },
        updated.map_or_else(String::new, |ms| format!("written {} ago", age(ms))),
    ]
}

/// Explains all keys and signs.
pub fn help(buffer: &mut Buffer, area: Rect, paint: Paint) {
    title(buffer, area, paint, "Keys", false, &[]);
    for (line, (key, what)) in KEYS.iter().enumerate() {
        let spans = vec![
            Span::styled(format!("  {key:<31}"), paint.strong()),
            Span::raw(format!(" {what}")),
        ];
        put(buffer, row(area, line + 1), spans);
    }
    let signs = row(area, KEYS.len() + 2);
    title(buffer, signs, paint, "Signs", false, &[]);
    let mut says = vec!["* leads".to_owned(), "underlined: moving".to_owned()];
    for (standing, letter) in SIGNS {
        says.push(format!("{letter} {}", standing.name()));
    }
    let width = usize::from(area.width).saturating_sub(4);
    let line = format!("  {}", items(&says, "   ", width));
    put(buffer, row(signs, 1), vec![line.into()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_seen_to_its_end() {
        assert_eq!(typed("why: ", "abc", " Enter", 20), "why: abc_ Enter");
        assert_eq!(typed("why: ", "abc", " Enter", 12), "why: abc_");
        assert_eq!(typed("why: ", "abcdefgh", " Enter", 12), "why: cdefgh_");
        assert_eq!(typed("why: ", "abc", "", 2), "why: _");
    }

    #[test]
    fn a_long_line_takes_two() {
        let two = |text, width| halves(text, width);
        assert_eq!(two("one two", 7), ("one two".into(), String::new()));
        assert_eq!(two("one two three", 9), ("one two".into(), "three".into()));
        assert_eq!(two("äöüäöü", 4), ("äöüä".into(), "öü".into()));
        assert_eq!(two("one two three", 5), ("one".into(), "two…".into()));
    }
}

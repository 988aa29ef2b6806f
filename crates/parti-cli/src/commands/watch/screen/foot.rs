//! The two lines at the bottom: what is chosen, and what can be done; and all keys explained.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::super::app::{App, Mode, Pane};
use super::map::SIGNS;
use super::text::{Paint, items, put, rate, row, short_or_dash, title};
use crate::show::age;
use crate::table::or_dash;
use crate::view;

const KEYS: [(&str, &str); 9] = [
    ("q", "end the view (also Ctrl-C)"),
    ("Tab", "from workers to partitions and back"),
    ("arrows, Page Up/Down, Home, End", "choose"),
    ("s", "sort the focused pane by something else"),
    (
        "f",
        "partitions: all, only odd ones, only the chosen worker's",
    ),
    ("/", "only ids with a text; Enter keeps it, Esc ends it"),
    ("v", "cells show owners, or how many digits the lag has"),
    ("Esc", "show everything again"),
    ("?", "this; any key goes back"),
];

/// Draws both lines.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    let width = usize::from(area.width).saturating_sub(2);
    let chosen = match app.pane {
        Pane::Workers => worker(app),
        Pane::Partitions => partition(app),
    };
    let line = format!(" {}", items(&chosen, "  ", width));
    put(buffer, area, vec![Span::styled(line, paint.strong())]);
    let last = row(area, 1);
    match &app.mode {
        Mode::Find => {
            let text = &app.find[app.pane as usize];
            let line = format!(" ids with: {text}_   Enter keeps it, Esc ends it");
            put(buffer, last, vec![line.into()]);
        }
        Mode::Help => put(buffer, last, vec![" any key goes back".into()]),
        Mode::Look => {
            let hints = [
                "q quit",
                "? help",
                "Tab pane",
                "arrows choose",
                "s sort",
                "f filter",
                "/ find",
                "v lag map",
            ];
            let line = items(&hints.map(str::to_owned), "  ", width);
            put(
                buffer,
                last,
                vec![Span::styled(format!(" {line}"), paint.faint())],
            );
        }
    }
}

fn worker(app: &App) -> Vec<String> {
    let chosen = app.worker.as_ref();
    let Some(worker) = app.group.workers.iter().find(|own| Some(&own.id) == chosen) else {
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

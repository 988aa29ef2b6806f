//! The table of workers.

use parti::core::record::SessionStatus;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::super::app::{App, Pane};
use super::super::list::{Health, WorkerRow};
use super::text::{Paint, clip, put, rate, row, short_or_dash, title};
use crate::show::age;

/// The longest id that is shown whole.
const LONGEST_ID: usize = 24;
/// From this width on there is a bar for the load.
const WITH_BAR: u16 = 76;
const BAR: usize = 6;

/// Draws it.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    let rows = usize::from(area.height).saturating_sub(2);
    let from = first(app.worker_place(), app.workers.len(), rows);
    let mut says = vec![app.workers.len().to_string()];
    if app.workers.len() > rows {
        let last = (from + rows).min(app.workers.len());
        says = vec![format!("{}-{last} of {}", from + 1, app.workers.len())];
    }
    says.push(app.worker_sort.name().to_owned());
    if !app.find[0].is_empty() {
        says.push(format!("with {:?}", app.find[0]));
    }
    let focus = app.pane == Pane::Workers;
    title(buffer, area, paint, "Workers", focus, &says);
    let wide = area.width >= WITH_BAR;
    let ids = app
        .workers
        .iter()
        .map(|own| own.id.as_str().chars().count());
    let id_width = ids.max().unwrap_or(0).clamp(6, LONGEST_ID);
    let most = app.workers.iter().map(|own| own.owns).max().unwrap_or(0);
    let bar = if wide {
        " ".repeat(BAR + 2)
    } else {
        String::new()
    };
    let headings = format!(
        "    {:<id_width$}  {:<7}  {:>5}  {:>5}{bar}  {:>7}  {:>6}  NOTE",
        "WORKER", "STATUS", "BEAT", "PARTS", "LAG", "DONE/S"
    );
    put(
        buffer,
        row(area, 1),
        vec![Span::styled(headings, paint.faint())],
    );
    let shown = app.workers.iter().skip(from).take(rows);
    for (line, worker) in shown.enumerate() {
        let chosen = focus && app.worker.as_ref() == Some(&worker.id);
        let lead = if worker.leader { "*" } else { " " };
        let cursor = if chosen { ">" } else { " " };
        let id = clip(worker.id.as_str(), id_width);
        let beat = worker.silent_ms.map_or_else(|| "-".to_owned(), age);
        let mut spans = vec![
            Span::raw(cursor),
            Span::styled(worker.mark.letter.to_string(), paint.owner(worker.mark)),
            Span::styled(lead, paint.strong()),
            Span::styled(
                format!(" {id:<id_width$}"),
                if chosen {
                    paint.strong()
                } else {
                    Default::default()
                },
            ),
            Span::styled(
                format!("  {:<7}", status(worker)),
                paint.health(worker.health),
            ),
            Span::raw(format!("  {beat:>5}  {:>5}", worker.owns)),
        ];
        if wide {
            let filled = (worker.owns * BAR).div_ceil(most.max(1));
            let bar = format!("  {:<BAR$}", "█".repeat(filled));
            spans.push(Span::styled(bar, paint.owner(worker.mark)));
        }
        let lag = short_or_dash(worker.lag);
        spans.push(Span::raw(format!("  {lag:>7}  {:>6}  ", rate(worker.done))));
        let used: usize = spans.iter().map(Span::width).sum();
        let note = clip(&worker.note, usize::from(area.width).saturating_sub(used));
        let wrong = worker.health != Health::Good;
        spans.push(match wrong {
            true => Span::styled(note, paint.health(worker.health)),
            false => Span::raw(note),
        });
        put(buffer, row(area, line + 2), spans);
    }
}

/// The first row that is shown, so that the chosen one is, too.
pub fn first(chosen: usize, count: usize, rows: usize) -> usize {
    let last = count.saturating_sub(rows);
    chosen.saturating_sub(rows / 2).min(last)
}

fn status(worker: &WorkerRow) -> &'static str {
    match worker.status {
        SessionStatus::Live if worker.silent => "silent",
        SessionStatus::Live => "live",
        SessionStatus::Leaving => "leaving",
        SessionStatus::Revoked | SessionStatus::Dismissed => "revoked",
        SessionStatus::Goodbye => "left",
        SessionStatus::Evicted => "evicted",
        SessionStatus::Free => "free",
    }
}

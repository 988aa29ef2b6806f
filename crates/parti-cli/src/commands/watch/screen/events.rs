//! What happened, newest last.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::super::app::{App, Pane};
use super::super::events::{Event, events};
use super::text::{Paint, clip, put, row, short, title};
use super::workers::first;
use crate::show::{age, word};

/// From this width on there is a column for who wrote a line.
const WITH_WRITER: u16 = 120;
/// The longest writer that is shown whole.
const LONGEST_WRITER: usize = 16;
const DAY_MS: u64 = 86_400_000;

/// Draws it.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    if area.height == 0 {
        return;
    }
    let all = events(app);
    let rows = usize::from(area.height) - 1;
    let cursor = app.event_place(all.len());
    // The newest ones, unless somebody looks further back.
    let from = match app.back {
        0 => all.len().saturating_sub(rows),
        _ => first(cursor, all.len(), rows),
    };
    let focus = app.pane == Pane::Events;
    let last = (from + rows).min(all.len());
    let mut says = vec![match all.len() {
        0 => "none".to_owned(),
        count if count <= rows => short(count as u64),
        count => format!("{}-{last} of {}", from + 1, short(count as u64)),
    }];
    let find = &app.find[Pane::Events as usize];
    if !find.is_empty() {
        says.push(format!("with {find:?}"));
    }
    says.push("times are UTC".to_owned());
    title(buffer, area, paint, "Events", focus, &says);
    let shown = all.iter().enumerate().skip(from).take(rows);
    for (line, (place, event)) in shown.enumerate() {
        let pointed = focus && place == cursor;
        let spans = spans(app, paint, event, pointed, area.width);
        put(buffer, row(area, line + 1), spans);
    }
}

fn spans<'a>(
    app: &App,
    paint: Paint,
    event: &Event<'_>,
    pointed: bool,
    width: u16,
) -> Vec<Span<'a>> {
    let time = time(app.now_ms, event.at_ms);
    let mut spans = vec![
        Span::raw(if pointed { "> " } else { "  " }),
        Span::styled(format!("{time:<8}"), paint.faint()),
        Span::styled(
            format!("  {:<8}  ", kind(event)),
            event
                .health
                .map_or_else(|| paint.strong(), |health| paint.health(health)),
        ),
    ];
    if width >= WITH_WRITER {
        let by = clip(event.by.unwrap_or("-"), LONGEST_WRITER);
        spans.push(Span::raw(format!("{by:<LONGEST_WRITER$}  ")));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    let room = usize::from(width).saturating_sub(used);
    let text = clip(event.text, room);
    spans.push(match pointed {
        true => Span::styled(text, paint.strong()),
        false => Span::raw(text),
    });
    spans
}

/// Of which kind a line is.
fn kind(event: &Event<'_>) -> String {
    event.kind.map_or_else(|| "you".to_owned(), word)
}

/// The time of the day; how long ago, if that was another day.
fn time(now_ms: u64, at_ms: u64) -> String {
    if now_ms / DAY_MS != at_ms / DAY_MS {
        return match now_ms.checked_sub(at_ms) {
            Some(ms) => format!("{} ago", age(ms)),
            None => "later".to_owned(),
        };
    }
    let at = i64::try_from(at_ms).ok();
    let at = at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.strftime("%H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_this_day_or_an_age() {
        let now = 1_700_000_000_000;
        assert_eq!(time(now, now - 5_000), "22:13:15");
        assert_eq!(time(now, now - DAY_MS), "24h ago");
        assert_eq!(time(now, now - 9 * DAY_MS), "9d ago");
        assert_eq!(time(now, now + DAY_MS), "later");
        assert_eq!(time(now, u64::MAX), "later");
    }
}

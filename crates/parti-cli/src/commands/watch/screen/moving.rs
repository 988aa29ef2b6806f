//! Handoffs under way.

use parti::inspect::Handoff;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::super::app::App;
use super::text::{Paint, clip, put, row, title};
use crate::show::word;
use crate::table::or_dash;

/// What one handoff takes, with what is between two.
const COLUMN: usize = 52;

/// Draws as many as there is room for, in columns.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    if area.height == 0 {
        return;
    }
    let handoffs = &app.group.handoffs;
    let rows = usize::from(area.height) - 1;
    let columns = (usize::from(area.width) / COLUMN).max(1);
    let shown = handoffs.len().min(rows * columns);
    let mut says = vec![handoffs.len().to_string()];
    if shown < handoffs.len() {
        says.push(format!("the first {shown}"));
    }
    title(buffer, area, paint, "Moving", false, &says);
    for (number, handoff) in handoffs.iter().take(shown).enumerate() {
        let (column, line) = (number % columns, number / columns);
        let width = usize::from(area.width) / columns;
        let mut place = row(area, line + 1);
        place.x += u16::try_from(column * width).unwrap_or(0);
        place.width = u16::try_from(width).unwrap_or(area.width);
        put(buffer, place, spans(app, paint, handoff, width));
    }
}

fn spans<'a>(app: &App, paint: Paint, handoff: &Handoff, width: usize) -> Vec<Span<'a>> {
    let letter = |worker| app.marks.of(worker);
    let mut spans = vec![Span::raw(format!("  {:<10} ", handoff.partition.as_str()))];
    if let Some(from) = &handoff.from {
        let mark = letter(from);
        spans.push(Span::styled(mark.letter.to_string(), paint.owner(mark)));
        spans.push(Span::raw(" "));
    }
    spans.push(Span::raw(or_dash(handoff.from.as_ref())));
    spans.push(Span::raw(" → "));
    let mark = letter(&handoff.to);
    spans.push(Span::styled(mark.letter.to_string(), paint.owner(mark)));
    let used: usize = spans.iter().map(Span::width).sum();
    let rest = format!(" {}  {}", handoff.to, word(handoff.stage));
    spans.push(Span::raw(clip(&rest, width.saturating_sub(used + 1))));
    spans
}

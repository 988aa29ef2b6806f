//! The map: a cell for each partition, with its owner's letter and colour, or the size of its lag.

use parti::inspect::PartitionView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::super::app::{App, Cells, Pane};
use super::super::list::{Filter, Health, Standing};
use super::text::{Paint, put, row, short, title};
use super::workers::first;

/// What a row begins with: the id of its first partition, or its place where ids are long.
const GUTTER: u16 = 8;
/// Cells stand in tens, so that they can be counted.
const TEN: usize = 10;

/// How many cells a row has, and how many rows there are.
pub fn size(area: Rect) -> (usize, usize) {
    let room = usize::from(area.width.saturating_sub(GUTTER));
    let tens = ((room + 1) / (TEN + 1)).max(1);
    let rows = usize::from(area.height).saturating_sub(1).max(1);
    (tens * TEN, rows)
}

/// How many rows so many partitions take.
pub fn rows(area: Rect, partitions: usize) -> usize {
    partitions.div_ceil(size(area).0)
}

/// Draws it.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    let (columns, rows) = size(area);
    let count = app.order.len();
    let cursor = app.cursor();
    let from = first(cursor / columns, count.div_ceil(columns), rows) * columns;
    let focus = app.pane == Pane::Partitions;
    let name = match app.cells {
        Cells::Owners => "Partitions",
        Cells::Lags => "Lag, digits",
    };
    let until = (from + columns * rows).min(count);
    title(buffer, area, paint, name, focus, &says(app, from, until));
    for line in 0..rows {
        let begin = from + line * columns;
        let Some(head) = app.at(begin) else { break };
        let label = match head.id.as_str() {
            id if id.len() < usize::from(GUTTER) => id.to_owned(),
            _ => format!("#{begin}"),
        };
        let mut spans = vec![Span::styled(
            format!("{label:>width$} ", width = usize::from(GUTTER) - 1),
            paint.faint(),
        )];
        for place in begin..(begin + columns).min(count) {
            let Some(partition) = app.at(place) else {
                break;
            };
            if place > begin && (place - begin).is_multiple_of(TEN) {
                spans.push(Span::raw(" "));
            }
            let (letter, style) = cell(app, paint, partition);
            let chosen = focus && place == cursor;
            let style = if chosen { paint.chosen(style) } else { style };
            spans.push(Span::styled(letter.to_string(), style));
        }
        put(buffer, row(area, line + 1), spans);
    }
}

fn says(app: &App, from: usize, until: usize) -> Vec<String> {
    let count = app.order.len();
    let mut says = vec![match count {
        0 => "none".to_owned(),
        _ if from == 0 && until == count => short(count as u64),
        _ => format!("{}-{until} of {}", from + 1, short(count as u64)),
    }];
    says.push(app.partition_sort.name().to_owned());
    match (app.filter, &app.worker) {
        (Filter::All, _) => {}
        (Filter::Odd, _) => says.push("only odd ones".to_owned()),
        (Filter::Worker, Some(worker)) => says.push(format!("only {worker}")),
        (Filter::Worker, None) => says.push("only nobody's".to_owned()),
    }
    if !app.find[1].is_empty() {
        says.push(format!("with {:?}", app.find[1]));
    }
    for (standing, letter) in SIGNS {
        match app.standings[standing as usize] {
            0 => {}
            number => says.push(format!("{letter} {number} {}", standing.name())),
        }
    }
    says
}

/// What stands in a cell instead of an owner's letter.
pub const SIGNS: [(Standing, char); 4] = [
    (Standing::Orphaned, '!'),
    (Standing::Free, '·'),
    (Standing::Paused, '='),
    (Standing::Unserved, 'x'),
];

fn cell(app: &App, paint: Paint, partition: &PartitionView) -> (char, Style) {
    let standing = Standing::of(partition);
    let mark = partition.owner.as_ref().map(|owner| app.marks.of(owner));
    let style = match (standing, mark) {
        (Standing::Served, Some(mark)) => paint.owner(mark),
        (Standing::Moving, Some(mark)) => paint
            .owner(mark)
            .add_modifier(ratatui::style::Modifier::UNDERLINED),
        (Standing::Orphaned, _) => paint.health(Health::Bad),
        _ => paint.health(Health::Odd),
    };
    let letter = match app.cells {
        Cells::Lags => digits(partition.lag),
        Cells::Owners => {
            let sign = SIGNS.iter().find(|(of, _)| *of == standing);
            let letter = sign.map(|(_, letter)| *letter);
            letter.or(mark.map(|mark| mark.letter)).unwrap_or('·')
        }
    };
    (letter, style)
}

/// How many digits a lag has; a dot for none, a question mark if it is not known.
fn digits(lag: Option<u64>) -> char {
    match lag {
        None => '?',
        Some(0) => '·',
        Some(lag) => char::from_digit(lag.ilog10() + 1, 36).unwrap_or('+'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_as_large_as_its_digits() {
        let shown = [None, Some(0), Some(9), Some(10), Some(12_345)].map(digits);
        assert_eq!(shown, ['?', '·', '1', '2', '5']);
    }

    #[test]
    fn a_map_fills_its_width_in_tens() {
        assert_eq!(size(Rect::new(0, 0, 80, 10)), (60, 9));
        assert_eq!(size(Rect::new(0, 0, 83, 1)), (60, 1));
        assert_eq!(size(Rect::new(0, 0, 84, 2)), (70, 1));
    }
}

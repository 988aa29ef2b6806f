//! Partitions one a line, below the map where there is room: from the chosen one on.

use parti::inspect::PartitionView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::super::app::{App, Pane};
use super::super::list::{Health, Standing};
use super::text::{Paint, clip, put, rate, row, short_or_dash};
use super::workers::first;
use crate::table::or_dash;
use crate::view;

/// The longest id that is shown whole.
const LONGEST_ID: usize = 24;
/// Fewer lines than this are not worth their headings.
pub const FEWEST: u16 = 4;

/// Draws them.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    if area.height < FEWEST {
        return;
    }
    // An empty line parts them from the map.
    let rows = usize::from(area.height) - 2;
    let from = first(app.cursor(), app.order.len(), rows);
    let shown: Vec<&PartitionView> = (from..from + rows).filter_map(|at| app.at(at)).collect();
    let longest = |lengths: &mut dyn Iterator<Item = usize>, least: usize| {
        lengths.max().unwrap_or(0).clamp(least, LONGEST_ID)
    };
    let id_width = longest(&mut shown.iter().map(|own| own.id.as_str().len()), 9);
    let owners = shown.iter().filter_map(|own| own.owner.as_ref());
    let owner_width = longest(&mut owners.map(|own| own.as_str().len()), 5);
    let headings = format!(
        "  {:<id_width$}  {:<owner_width$}  {:>6}  {:>10}  {:>7}  {:>6}  NOTE",
        "PARTITION", "OWNER", "EPOCH", "NEXT", "LAG", "DONE/S"
    );
    let head = row(area, 1);
    put(buffer, head, vec![Span::styled(headings, paint.faint())]);
    let focus = app.pane == Pane::Partitions;
    for (line, partition) in shown.into_iter().enumerate() {
        let chosen = focus && app.partition.as_ref() == Some(&partition.id);
        let owner = or_dash(partition.owner.as_ref());
        let style = match (&partition.owner, Standing::of(partition)) {
            (_, Standing::Orphaned) => paint.health(Health::Bad),
            (Some(owner), _) => paint.owner(app.marks.of(owner)),
            (None, _) => paint.health(Health::Odd),
        };
        let id = clip(partition.id.as_str(), id_width);
        let mut spans = vec![
            Span::styled(
                format!("{} {id:<id_width$}", if chosen { ">" } else { " " }),
                if chosen {
                    paint.strong()
                } else {
                    Default::default()
                },
            ),
            Span::styled(
                format!("  {:<owner_width$}", clip(&owner, owner_width)),
                style,
            ),
            Span::raw(format!(
                "  {:>6}  {:>10}  {:>7}  {:>6}  ",
                partition.epoch.0,
                or_dash(partition.next_offset),
                short_or_dash(partition.lag),
                rate(app.done(&partition.id)),
            )),
        ];
        let used: usize = spans.iter().map(Span::width).sum();
        let note = match Standing::of(partition) {
            Standing::Orphaned => Standing::Orphaned.name().to_owned(),
            _ => view::partition_note(partition),
        };
        spans.push(Span::raw(clip(
            &note,
            usize::from(area.width).saturating_sub(used),
        )));
        put(buffer, row(area, line + 2), spans);
    }
}

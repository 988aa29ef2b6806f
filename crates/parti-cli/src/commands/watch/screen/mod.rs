//! The screen: where everything goes, and who draws it.
//!
//! ```text
//!   narrow                      wide (120 columns and more)
//!   ┌ head ────────────┐        ┌ head ─────────────────────────┐
//!   │ workers          │        │ workers       │ map           │
//!   │ map, partitions  │        │               │ partitions    │
//!   │ moving           │        ├ moving ───────┴───────────────┤
//!   │ chosen, keys     │        │ chosen, keys                  │
//!   └──────────────────┘        └───────────────────────────────┘
//! ```

mod foot;
mod head;
mod map;
mod moving;
mod partitions;
mod text;
mod workers;

use ratatui::Frame;
use ratatui::layout::Rect;

use super::app::{App, Mode};
pub use text::Paint;

/// From this width on, workers and map stand side by side.
const WIDE: u16 = 120;
/// Below this there is no room for anything.
const SMALLEST: (u16, u16) = (60, 14);

/// Where the panes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    head: Rect,
    workers: Rect,
    map: Rect,
    partitions: Rect,
    moving: Rect,
    foot: Rect,
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App, paint: Paint) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (width, height) = SMALLEST;
        let says = format!("too small: {width} x {height} at least");
        text::put(buffer, area, vec![says.into()]);
        return;
    }
    let places = places(area, app);
    app.map_size = map::size(places.map);
    head::draw(buffer, places.head, app, paint);
    if app.mode == Mode::Help {
        let body = area.height - places.head.height - places.foot.height;
        foot::help(buffer, part(area, places.head.height, body), paint);
    } else {
        workers::draw(buffer, places.workers, app, paint);
        map::draw(buffer, places.map, app, paint);
        partitions::draw(buffer, places.partitions, app, paint);
        moving::draw(buffer, places.moving, app, paint);
    }
    foot::draw(buffer, places.foot, app, paint);
}

/// Some rows of an area.
fn part(area: Rect, from: u16, height: u16) -> Rect {
    Rect {
        y: area.y + from,
        height,
        ..area
    }
}

fn places(area: Rect, app: &App) -> Places {
    let head = part(area, 0, 2);
    let foot = part(area, area.height - 2, 2);
    let body = part(area, 2, area.height - 4);
    let count = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    // A title, and a line for each; nothing if nothing moves.
    let moving_rows = match count(app.group.handoffs.len()) {
        0 => 0,
        moves => moves.saturating_add(1).min(body.height / 5),
    };
    let above = body.height - moving_rows;
    let moving = part(body, above, moving_rows);
    let (workers, map) = if area.width >= WIDE {
        let left = area.width / 2;
        let whole = part(body, 0, above);
        let workers = Rect {
            width: left,
            ..whole
        };
        let map = Rect {
            x: area.x + left + 1,
            width: area.width - left - 1,
            ..whole
        };
        (workers, map)
    } else {
        // A title, headings, and a line for each, as long as the map keeps the larger half.
        let wanted = count(app.workers.len()).saturating_add(2);
        let rows = wanted.clamp(3, (above * 9 / 20).max(4));
        (part(body, 0, rows), part(body, rows, above - rows))
    };
    // The map's title and as many rows as it needs; the rest is for a list, if it is worth it.
    let needed = count(map::rows(map, app.order.len())).saturating_add(1);
    let left = map.height.saturating_sub(needed);
    let left = if left < partitions::FEWEST { 0 } else { left };
    let partitions = part(map, map.height - left, left);
    let map = part(map, 0, map.height - left);
    Places {
        head,
        workers,
        map,
        partitions,
        moving,
        foot,
    }
}

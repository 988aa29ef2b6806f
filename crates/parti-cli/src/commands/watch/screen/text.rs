//! Text that fits: whole words, whole items, short numbers; and the colours that it may have.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::list::Health;
use super::super::marks::Mark;

/// Red is for what is wrong, and never an owner's.
const OWNERS: [Color; 10] = [
    Color::Cyan,
    Color::Green,
    Color::Yellow,
    Color::Blue,
    Color::Magenta,
    Color::LightCyan,
    Color::LightGreen,
    Color::LightYellow,
    Color::LightBlue,
    Color::LightMagenta,
];

/// How things are painted. Without colours, bold and reversed letters are left.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether there may be colours.
    pub colours: bool,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// An owner's letter.
    pub fn owner(self, mark: Mark) -> Style {
        let style = self.colour(OWNERS[mark.number % OWNERS.len()]);
        style.add_modifier(Modifier::BOLD)
    }

    /// How something is.
    pub fn health(self, health: Health) -> Style {
        match health {
            Health::Good => self.colour(Color::Green),
            Health::Odd => self.colour(Color::Yellow).add_modifier(Modifier::BOLD),
            Health::Bad => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    /// What only explains.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What stands above other things.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is chosen.
    pub fn chosen(self, style: Style) -> Style {
        style.add_modifier(Modifier::REVERSED)
    }
}

/// Puts a line into the first row of an area.
pub fn put(buffer: &mut Buffer, area: Rect, spans: Vec<Span<'_>>) {
    if area.height > 0 {
        buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
    }
}

/// The row of an area with this number.
pub fn row(area: Rect, number: usize) -> Rect {
    let down = u16::try_from(number).unwrap_or(u16::MAX).min(area.height);
    Rect {
        y: area.y + down,
        height: area.height - down,
        ..area
    }
}

/// A pane's title: its name, what is to be said of it as far as that fits, and a rule.
pub fn title(
    buffer: &mut Buffer,
    area: Rect,
    paint: Paint,
    name: &str,
    focus: bool,
    says: &[String],
) {
    let width = usize::from(area.width);
    let name = format!(" {name} ");
    let room = width.saturating_sub(name.len() + 5);
    let says = items(says, "  ", room);
    let mut spans = vec![
        Span::styled(if focus { "▶─" } else { "──" }, paint.faint()),
        Span::styled(
            name.clone(),
            if focus {
                paint.chosen(paint.strong())
            } else {
                paint.strong()
            },
        ),
    ];
    let mut used = 2 + name.len();
    if !says.is_empty() {
        spans.push(Span::raw(format!(" {says} ")));
        used += says.chars().count() + 2;
    }
    spans.push(Span::styled(
        "─".repeat(width.saturating_sub(used)),
        paint.faint(),
    ));
    put(buffer, area, spans);
}

/// As many items as fit, each of them whole; the first one is cut if it must be.
pub fn items(items: &[String], between: &str, width: usize) -> String {
    let mut text = String::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        if text.is_empty() {
            text = clip(item, width);
            continue;
        }
        let more = format!("{between}{item}");
        if text.chars().count() + more.chars().count() > width {
            break;
        }
        text.push_str(&more);
    }
    text
}

/// A text that fits: cut after a word, if there is one, and then it says so.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let kept: String = text.chars().take(width - 1).collect();
    let next = text.chars().nth(width - 1);
    let whole = next.is_some_and(|next| next.is_whitespace() || [',', ';'].contains(&next));
    let kept = match kept.rfind(' ') {
        Some(end) if !whole && end > 0 => kept[..end].trim_end_matches([',', ';', ' ']),
        _ => kept.trim_end(),
    };
    format!("{kept}…")
}

/// A number of at most seven characters, with commas: `1,234`, `12,345`, `1.23M`.
pub fn short(number: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
    ];
    for (unit, name) in UNITS {
        if number >= unit {
            let whole = number / unit;
            let hundredths = number % unit / (unit / 100);
            return match whole {
                0..10 => format!("{whole}.{hundredths:02}{name}"),
                10..100 => format!("{whole}.{}{name}", hundredths / 10),
                _ => format!("{}{name}", grouped(whole)),
            };
        }
    }
    grouped(number)
}

fn grouped(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}

/// A number, or a dash.
pub fn short_or_dash(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), short)
}

/// A rate: `0`, `0.4`, `12`, `1,234`; or a dash.
pub fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        Some(rate) => short(rate.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_after_a_word() {
        assert_eq!(clip("worker-1 joined", 15), "worker-1 joined");
        assert_eq!(clip("worker-1 joined, and more", 16), "worker-1 joined…");
        assert_eq!(clip("worker-1 joined", 12), "worker-1…");
        assert_eq!(clip("abcdefgh", 4), "abc…");
        assert_eq!(clip("abc", 0), "");
        let all: Vec<String> = ["one", "", "two", "three"].map(String::from).to_vec();
        assert_eq!(items(&all, ", ", 9), "one, two");
        assert_eq!(items(&all, ", ", 2), "o…");
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_004, "1,004"),
            (999_999, "999,999"),
            (1_230_000, "1.23M"),
            (45_600_000, "45.6M"),
            (7_000_000_000, "7.00G"),
            (u64::MAX, "18,446P"),
        ] {
            assert_eq!(short(number), text);
            assert!(short(number).len() <= 7);
        }
        assert_eq!(rate(Some(0.42)), "0.4");
        assert_eq!(rate(Some(1_234.5)), "1,235");
        assert_eq!((rate(Some(0.0)), rate(None)), ("0".into(), "-".into()));
    }
}

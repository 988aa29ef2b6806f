//! Tables for people: columns as wide as they need to be, a little colour. A heading that begins
//! with `>` stands over numbers: its column is aligned to the right.

use std::fmt;

use anstyle::{AnsiColor, Style};

use crate::show::plain;

/// Columns of text.
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// One cell.
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// As it should be.
    pub fn good(text: impl ToString) -> Self {
        Self::coloured(text, AnsiColor::Green)
    }

    /// Worth a look.
    pub fn odd(text: impl ToString) -> Self {
        Self::coloured(text, AnsiColor::Yellow)
    }

    /// Wrong.
    pub fn bad(text: impl ToString) -> Self {
        Self::coloured(text, AnsiColor::Red)
    }

    fn coloured(text: impl ToString, colour: AnsiColor) -> Self {
        Self {
            text: plain(&text.to_string()),
            style: Style::new().fg_color(Some(colour.into())),
        }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: plain(&text.to_string()),
            style: Style::new(),
        }
    }
}

/// What is not there is a dash.
pub fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

impl Table {
    /// A table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self {
            headings: headings.map(str::to_owned).to_vec(),
            rows: Vec::new(),
        }
    }

    /// A table with as many columns as there are headings.
    pub fn wide(headings: Vec<String>) -> Self {
        Self {
            headings,
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    /// Adds a row with as many cells as there are columns.
    pub fn wide_row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<(usize, bool)> = (self.headings.iter().enumerate())
            .map(|(column, heading)| {
                let (heading, number) = title(heading);
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widest = cells.map(|cell| cell.text.chars().count()).max();
                let width = widest.unwrap_or(0).max(heading.chars().count());
                (width, number)
            })
            .collect();
        let headings = self
            .headings
            .iter()
            .map(|heading| (title(heading).0, Style::new()));
        line(f, headings, &columns)?;
        for row in &self.rows {
            let cells = row.iter().map(|cell| (cell.text.as_str(), cell.style));
            line(f, cells, &columns)?;
        }
        Ok(())
    }
}

/// A heading's text, and whether it stands over numbers.
fn title(heading: &str) -> (&str, bool) {
    match heading.strip_prefix('>') {
        Some(heading) => (heading, true),
        None => (heading, false),
    }
}

/// One line without spaces at its end.
fn line<'a>(
    f: &mut fmt::Formatter<'_>,
    cells: impl Iterator<Item = (&'a str, Style)>,
    columns: &[(usize, bool)],
) -> fmt::Result {
    let mut pending = 0;
    for ((text, style), (width, number)) in cells.zip(columns) {
        let empty = width.saturating_sub(text.chars().count());
        let (before, after) = if *number { (empty, 0) } else { (0, empty) };
        if !text.is_empty() {
            write!(
                f,
                "{:pending$}{style}{text}{style:#}",
                "",
                pending = pending + before
            )?;
            pending = 0;
        } else {
            pending += before;
        }
        pending += after + 2;
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_right() {
        let mut table = Table::new(["ID", ">LAG", "NOTE"]);
        table.row(["worker-0".into(), 7.into(), "".into()]);
        table.row(["ä".into(), "-".into(), "x".into()]);
        table.row(["b".into(), 12_000.into(), "".into()]);
        assert_eq!(
            table.to_string(),
            "ID          LAG  NOTE\nworker-0      7\nä             -  x\nb         12000\n"
        );
    }

    #[test]
    fn colour_takes_no_room() {
        let mut table = Table::new(["A", ">B"]);
        table.row([Cell::bad("no"), 1.into()]);
        table.row([Cell::good("yes"), 2.into()]);
        let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(plain, "A    B\nno   1\nyes  2\n");
        assert!(table.to_string().contains("\u{1b}[31m"));
    }
}

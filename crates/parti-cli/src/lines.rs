//! What goes to stdout: tables, and lines of JSON that come out in the order of what they tell.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::mpsc;
use std::thread::JoinHandle;

use jiff::Timestamp;
use serde_json::Value;

use crate::exit::Failure;

/// Prints to stdout; whoever closed the other end has seen enough.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Now, as RFC 3339 with milliseconds.
pub fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Writes lines in the order they are given, in a thread of its own: nobody waits for a slow
/// reader, and every line is flushed as soon as no other follows at once.
pub struct Lines {
    sender: LineSender,
    thread: JoinHandle<()>,
}

/// A way to [`Lines`] that can be shared.
#[derive(Clone)]
pub struct LineSender(mpsc::Sender<Entry>);

enum Entry {
    Line(String),
    End,
}

impl Lines {
    /// Starts the thread.
    pub fn start() -> Result<Self, Failure> {
        let (lines, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("stdout".into())
            .spawn(move || write_all(&queue))?;
        Ok(Self {
            sender: LineSender(lines),
            thread,
        })
    }

    /// A further way to it.
    pub fn sender(&self) -> LineSender {
        self.sender.clone()
    }

    /// Waits until everything given so far is written.
    pub fn finish(self) {
        let _ = self.sender.0.send(Entry::End);
        let _ = self.thread.join();
    }
}

impl LineSender {
    /// Writes a line. Whoever closed stdout has seen enough.
    pub fn line(&self, line: impl Into<String>) {
        let _ = self.0.send(Entry::Line(line.into()));
    }

    /// Writes a JSON object, with the time.
    pub fn event(&self, mut event: Value) {
        event["at"] = Value::String(now());
        self.line(event.to_string());
    }
}

fn write_all(queue: &mpsc::Receiver<Entry>) {
    let mut out = BufWriter::new(io::stdout());
    while let Ok(first) = queue.recv() {
        let mut next = Some(first);
        while let Some(entry) = next {
            match entry {
                Entry::Line(line) if writeln!(out, "{line}").is_ok() => {}
                Entry::Line(_) => return,
                Entry::End => {
                    let _ = out.flush();
                    return;
                }
            }
            next = queue.try_recv().ok();
        }
        if out.flush().is_err() {
            return;
        }
    }
}

/// Columns of text, as wide as they need to be.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self {
            rows: vec![headings.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["ID", "LAG"]);
        table.row(["worker-0".into(), "7".into()]);
        table.row(["ä".into(), "12".into()]);
        assert_eq!(
            table.to_string(),
            "ID        LAG\nworker-0  7\nä         12\n"
        );
    }

    #[test]
    fn times_have_milliseconds() {
        let now = now();
        assert!(
            now.ends_with('Z') && now.len() == "2026-11-15T12:00:00.000Z".len(),
            "{now}"
        );
    }
}

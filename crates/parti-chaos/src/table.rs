//! The one table, row by row as scenarios end.

use serde::Serialize;

use crate::args::Output;
use crate::audit::Counts;

/// One scenario on one kind of stream.
#[derive(Serialize)]
pub struct Row {
    /// Which scenario.
    pub scenario: &'static str,
    /// Which kind of stream.
    pub stream: &'static str,
    /// What the ledger shows.
    #[serde(flatten)]
    pub counts: Counts,
    /// How many repeats are explained.
    pub allowed: u64,
    /// How long it took.
    pub seconds: f64,
    /// What is wrong; nothing if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Row {
    fn verdict(&self) -> String {
        let verdict = match &self.failure {
            None => "good".to_owned(),
            Some(failure) => format!("FAILED: {failure}"),
        };
        let notes = [
            (
                self.counts.stored_apart,
                "stored in another order than published",
            ),
            (self.counts.stored_twice, "stored twice by the server"),
            (
                self.counts.never_stored,
                "acked by the server and not in its stream",
            ),
        ];
        let notes = notes.iter().filter(|(count, _)| *count > 0);
        notes.fold(verdict, |verdict, (count, what)| {
            format!("{verdict} ({count} {what})")
        })
    }
}

/// The table.
pub struct Table {
    output: Output,
    good: bool,
}

impl Table {
    /// Prints the head.
    pub fn begin(output: Output) -> Self {
        if output == Output::Table {
            println!(
                "{:<19} {:<9} {:>9} {:>8} {:>7} {:>7} {:>8} {:>7} {:>5} {:>6}  verdict",
                "scenario",
                "stream",
                "published",
                "handled",
                "never",
                "out of",
                "repeated",
                "allowed",
                "dead",
                "time"
            );
            println!(
                "{:<19} {:<9} {:>9} {:>8} {:>7} {:>7} {:>8} {:>7} {:>5} {:>6}",
                "", "", "", "", "handled", "order", "", "repeats", "let.", ""
            );
        }
        Self { output, good: true }
    }

    /// Prints a row.
    pub fn row(&mut self, row: Row) {
        self.good &= row.failure.is_none();
        match self.output {
            Output::Json => match serde_json::to_string(&row) {
                Ok(text) => println!("{text}"),
                Err(error) => eprintln!("parti-chaos: a row cannot be printed: {error}"),
            },
            Output::Table => {
                let counts = &row.counts;
                println!(
                    "{:<19} {:<9} {:>9} {:>8} {:>7} {:>7} {:>8} {:>7} {:>5} {:>5.0}s  {}",
                    row.scenario,
                    row.stream,
                    counts.published,
                    counts.handled,
                    counts.never_handled,
                    counts.out_of_order,
                    counts.repeated,
                    row.allowed,
                    counts.dead_lettered,
                    row.seconds,
                    row.verdict()
                );
            }
        }
        for example in &row.counts.examples {
            eprintln!("  {example}");
        }
    }

    /// Whether every verdict is good.
    pub fn end(self) -> bool {
        self.good
    }
}

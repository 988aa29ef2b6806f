//! What the demo shows while it runs: a live line on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use super::audit::Audit;
use super::{Args, Deed};

/// How often a plain line tells how far it is.
const EVERY: Duration = Duration::from_secs(2);

/// What a deed is called.
pub fn verb(deed: Deed) -> &'static str {
    match deed {
        Deed::Join => "joins",
        Deed::Leave => "is asked to leave (SIGTERM)",
        Deed::Kill => "is killed (SIGKILL)",
    }
}

/// The screen.
pub struct View {
    bar: ProgressBar,
    began: Instant,
    told: Instant,
}

impl View {
    /// Shows on stderr.
    pub fn new(args: &Args) -> Self {
        let total = f64::from(args.rate) * args.length().as_secs_f64();
        let (bar, template) = if args.goes_on() {
            (ProgressBar::no_length(), "{pos} handled  {msg}")
        } else {
            let bar = ProgressBar::new(total as u64);
            (bar, "{bar:20} {pos}/{len} handled  {msg}")
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self {
            bar,
            began: Instant::now(),
            told: Instant::now(),
        }
    }

    /// Says that something happened.
    pub fn say(&self, text: &str) {
        let line = format!("{:6.1}s  {text}", self.began.elapsed().as_secs_f64());
        if self.bar.is_hidden() {
            tell!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// Shows how far it is.
    pub fn show(&mut self, audit: &Audit) {
        self.bar.set_position(audit.handled());
        if self.told.elapsed() < EVERY && self.bar.is_hidden() {
            return;
        }
        let owners = audit.owners();
        let shares: Vec<String> = owners
            .iter()
            .map(|(worker, count)| format!("{worker}:{count}"))
            .collect();
        let shares = shares.join(" ");
        if self.bar.is_hidden() {
            self.told = Instant::now();
            self.say(&format!("{} handled; partitions {shares}", audit.handled()));
        } else {
            self.bar.set_message(shares);
        }
    }

    /// Takes the live line away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

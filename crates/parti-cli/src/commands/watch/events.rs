//! What happened, newest last: the group's history, and what became of requests made here.

use parti::core::record::EventKind;
use parti::inspect::Happening;

use super::app::{App, Pane};
use super::list::Health;

/// A line of our own: what became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When, in milliseconds of this machine's wall clock.
    pub at_ms: u64,
    /// Whether it is good news.
    pub health: Health,
    /// What became of it.
    pub text: String,
}

/// A line as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// When, in milliseconds of its writer's wall clock.
    pub at_ms: u64,
    /// Of which kind; none for a line of our own.
    pub kind: Option<EventKind>,
    /// Who wrote it, if it was somebody else.
    pub by: Option<&'a str>,
    /// What happened.
    pub text: &'a str,
    /// How that is; none where there is nothing to be said of it.
    pub health: Option<Health>,
}

impl<'a> From<&'a Happening> for Event<'a> {
    fn from(line: &'a Happening) -> Self {
        let health = match line.kind {
            EventKind::Crash | EventKind::Fencing | EventKind::Trouble => Some(Health::Bad),
            EventKind::Request => Some(Health::Odd),
            _ => None,
        };
        Self {
            at_ms: line.at_ms,
            kind: Some(line.kind),
            by: Some(&line.by),
            text: &line.text,
            health,
        }
    }
}

impl<'a> From<&'a Told> for Event<'a> {
    fn from(told: &'a Told) -> Self {
        Self {
            at_ms: told.at_ms,
            kind: None,
            by: None,
            text: &told.text,
            health: Some(told.health),
        }
    }
}

/// All lines that are to be shown. The history keeps its own order, whatever its writers' clocks
/// say; our lines stand among it by time.
pub fn events(app: &App) -> Vec<Event<'_>> {
    let mut own = app.told.iter().peekable();
    let mut all: Vec<Event<'_>> = Vec::with_capacity(app.group.history.len() + app.told.len());
    for line in &app.group.history {
        while let Some(told) = own.next_if(|told| told.at_ms < line.at_ms) {
            all.push(told.into());
        }
        all.push(line.into());
    }
    all.extend(own.map(Event::from));
    let find = app.find[Pane::Events as usize].as_str();
    all.retain(|event| event.text.contains(find));
    all
}

/// How many lines of a history are newer than another, among those with a text.
pub fn newer(history: &[Happening], than: &[Happening], find: &str) -> usize {
    let last = than.last().map_or(0, |line| line.number);
    let new = history.iter().rev().take_while(|line| line.number > last);
    new.filter(|line| line.text.contains(find)).count()
}

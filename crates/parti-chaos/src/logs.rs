//! Log lines of the library on stderr: just enough to see what a worker complained of.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// From now on warnings and errors of this process go to stderr.
pub fn to_stderr() {
    // A second call changes nothing.
    let _ = tracing::subscriber::set_global_default(Stderr);
}

struct Stderr;

impl Subscriber for Stderr {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= Level::WARN && about.target().starts_with("parti")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        eprintln!(
            "{} {}{}",
            crate::line::now(),
            event.metadata().level(),
            text.0
        );
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

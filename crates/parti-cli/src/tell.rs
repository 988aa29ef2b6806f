//! Lines for people, on stderr.
//!
//! Nothing that is said there may end what the program does: its reader may be gone, or its disk
//! full, while a worker still has partitions to release. `eprintln!` would panic then, so the whole
//! crate says its lines through `tell!`.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Says a line on stderr; nobody need be there to read it.
macro_rules! tell {
    ($($line:tt)*) => {
        $crate::tell::line(format_args!($($line)*))
    };
}

/// Writes a line, in one piece, if it can be written.
pub(crate) fn line(line: Arguments<'_>) {
    let line = format!("{line}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

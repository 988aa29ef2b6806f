//! How far a long job is: a bar on a terminal, nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar up to a known end, or a spinner.
pub fn bar(total: Option<u64>, what: &str) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{msg} {spinner} {pos} {per_sec}",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

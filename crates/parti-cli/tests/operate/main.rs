//! Operating groups from the command line: what is shown, what is changed, what is refused.

#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod forced;
mod imports;
mod input;
mod live;
mod mistakes;
mod other_source;
mod requests;
mod scene;
mod shown;
mod stores;
mod terminal;
mod tools;
mod tty;
mod walkthrough;
mod without_log;

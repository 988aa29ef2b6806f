//! The message side of a worker: lanes that keep order, and the feeds that fill them.

pub mod note;

pub use note::{LaneAction, LaneNote, Opening, Progress};

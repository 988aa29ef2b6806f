//! One file for each command.

pub mod consume;
pub mod demo;
pub mod produce;
pub mod status;
pub mod topic;

//! One file for each command.

pub mod checkpoint;
pub mod completions;
pub mod config;
pub mod consume;
pub mod demo;
pub mod doctor;
pub mod group;
pub mod man;
pub mod partition;
pub mod plan;
pub mod produce;
pub mod request;
pub mod serve;
pub mod status;
pub mod topic;
pub mod watch;
pub mod worker;

//! leader
pub mod planner;

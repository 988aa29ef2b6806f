//! leader
mod crew;
mod membership;
mod moves;
pub mod publish;
mod spread;
mod takeover;
#[cfg(test)]
mod tests;

pub mod planner;
pub mod slots;
pub mod windows;

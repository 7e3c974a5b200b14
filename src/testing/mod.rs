//! For tests and simulation: the store in memory, and random changes.

pub mod generate;
pub mod model;
pub mod snapshots;

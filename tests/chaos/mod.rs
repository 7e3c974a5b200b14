//! Scenes in which something dies, stalls, moves or lies. Each has a cluster of its own, and after each all keys are as the
//! oracle foretells, whatever happened.

mod calendar;
mod check;
mod failover;
mod faults;
mod fence;
mod mix;
mod ownership;
mod replicas;
mod skew;
mod subscriber;
mod workers;

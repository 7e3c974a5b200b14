//! Tests against a real cluster.

mod client;
mod guarantees;
mod leftovers;
mod proof;
mod reader;
mod store;
mod subscriber;
mod topology;
mod writer;

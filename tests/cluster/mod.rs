//! Tests against a real cluster.

mod client;
mod guarantees;
mod reader;
mod store;
mod subscriber;
mod topology;
mod writer;

//! Tests against a real cluster.

mod store;
mod topology;

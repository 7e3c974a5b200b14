//! Tests against a real cluster.

mod topology;

//! Tests against a real cluster.

mod across;
mod check;
mod client;
mod day;
mod guarantees;
mod leftovers;
mod letters;
mod loader;
mod near;
mod poison;
mod profile;
mod proof;
mod reader;
mod rebuild;
mod resend;
mod store;
mod subscriber;
mod topology;
mod writer;

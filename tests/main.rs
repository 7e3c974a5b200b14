//! The one integration binary: every test that needs more than one module, most of them a real cluster.

// Tests start tasks as they like, and a helper that finds something missing ends its test; what they must not do (sleep) is
// checked by `tidy`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod chaos;
mod cli;
mod cluster;
mod conformance;
mod documentation;
mod redis;
mod simulation;
mod support;
mod tidy;

//! The one integration binary: every test that needs more than one module, most of them a real cluster.

// Tests start tasks as they like; what they must not do (sleep) is checked by `tidy`.
#![allow(clippy::disallowed_methods)]

mod cli;
mod cluster;
mod support;
mod tidy;

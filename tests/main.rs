//! The one integration binary: every test that needs more than one module, most of them a real cluster.

mod cluster;
mod support;
mod tidy;

//! The one integration binary: every test that needs more than one module, most of them a real cluster.

mod cli;
mod cluster;
mod documentation;
mod support;
mod tidy;

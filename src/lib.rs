//! heyday

#[cfg(feature = "server")]
pub mod config;

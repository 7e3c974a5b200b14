//! heyday

#[cfg(feature = "server")]
pub mod config;
pub mod error;
pub mod redis;
pub mod task;

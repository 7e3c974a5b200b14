//! Flags that every command knows. They are the strongest source of settings.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::config::Flag;

/// As typed; [`Flags::resolve`] turns them into settings.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Flags {
    /// Read settings from this TOML file (also HEYDAY_CONFIG)
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Some nodes of the cluster, as host:port,host:port (redis.nodes)
    #[arg(long, global = true, value_name = "NODES")]
    redis: Option<String>,
    /// The least level to log, or a filter such as info,heyday=debug (logging.level)
    #[arg(long, global = true, value_name = "LEVEL", conflicts_with = "verbose")]
    log_level: Option<String>,
    /// Log more of what heyday does; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

impl Flags {
    /// The file to read, and the settings that the flags give.
    #[must_use]
    pub fn resolve(self) -> (Option<PathBuf>, Vec<Flag>) {
        let verbose = match self.verbose {
            0 => None,
            1 => Some("info,heyday=debug".to_owned()),
            _ => Some("info,heyday=trace".to_owned()),
        };
        let given = [
            ("--redis", "redis.nodes", self.redis),
            ("--log-level", "logging.level", self.log_level),
            ("--verbose", "logging.level", verbose),
        ];
        let flag = |(name, key, value): (&'static str, &'static str, Option<String>)| {
            Some(Flag { name, key, value: value?.into() })
        };
        (self.config, given.into_iter().filter_map(flag).collect())
    }
}

/// A span of time on the command line.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| format!("expected {}", crate::config::DURATION_EXPECTED))
}

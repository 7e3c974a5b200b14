//! Log lines, on stderr, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Logging, color_wanted};

/// Begins to write log lines. The level has been checked with the rest of the settings.
///
/// # Errors
///
/// Where the level is no filter, or logging has been started before.
pub fn start(logging: &Logging) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&logging.level)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match logging.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal() && color_wanted()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!(error))
}

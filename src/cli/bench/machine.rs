//! What a run was measured on and with: without it no figure means anything.

use std::fs;

use super::Arguments;
use super::ground::Ground;
use crate::cli::Context;

/// Names and values, for the head of the report.
pub async fn setting(
    arguments: &Arguments,
    context: &Context,
    ground: &Ground,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
    line("heyday", format!("{}, {} build", env!("CARGO_PKG_VERSION"), build()));
    line("server", ground.server_version().await?);
    line(
        "cluster",
        if arguments.given { "given" } else { "its own, 3 primaries and 3 replicas on this machine" }.to_owned(),
    );
    line("processor", format!("{}, {} cores", processor(), cores()));
    line("memory", memory());
    line("kernel", read("/proc/sys/kernel/osrelease"));
    line("load of the machine at the start (1, 5, 15 minutes)", load());
    line("began", jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string());
    line("seed", arguments.seed.to_string());
    line("rounds", arguments.plan().rounds.to_string());
    let changed = context.settings.effective().into_iter().filter(|row| row.source != "default");
    let changed: Vec<String> = changed.map(|row| format!("{} = {}", row.key, row.value)).collect();
    line("settings that are not the defaults", if changed.is_empty() { "none".to_owned() } else { changed.join(", ") });
    Ok(lines)
}

fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug (figures mean nothing)" } else { "release" }
}

fn processor() -> String {
    let text = read("/proc/cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn memory() -> String {
    let text = read("/proc/meminfo");
    let kib =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib| format!("{} GiB", kib / (1024 * 1024)))
}

fn load() -> String {
    read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

//! Whether this machine has room for a data set.

use std::fs;

/// Of all primaries and replicas together, with room for what is copied while files of appended commands are written.
const BYTES_A_FRIENDSHIP: u64 = 200;
/// What everything else on this machine needs.
const LEFT_BYTES_MIN: u64 = 512 * 1024 * 1024;

/// Bytes of memory that this machine could still give; none where nobody can tell.
pub fn free() -> Option<u64> {
    free_bytes(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Why a data set of so many friendships is left out; none where there is room for it.
pub fn too_large(friendships: u64, free: u64) -> Option<String> {
    let needed = friendships * BYTES_A_FRIENDSHIP + LEFT_BYTES_MIN;
    let mebibytes = |bytes: u64| bytes / (1024 * 1024);
    (free < needed).then(|| {
        let (needed, free) = (mebibytes(needed), mebibytes(free));
        format!("{friendships} friendships left out: they need about {needed} MiB of memory, {free} MiB are free")
    })
}

fn free_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_what_is_available() {
        let text = "MemTotal:       24000000 kB\nMemFree:        1000 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(free_bytes(text), Some(2 * 1024 * 1024));
        assert_eq!(free_bytes("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let gibibyte = 1024 * 1024 * 1024;
        assert_eq!(too_large(1_000_000, gibibyte), None);
        assert!(too_large(10_000_000, gibibyte).is_some_and(|why| why.contains("1024 MiB are free")));
    }
}

//! What this process uses, as Linux tells it.

use std::time::Duration;

/// Ticks per second in `/proc`: the same on every Linux that Rust supports.
const TICKS: u64 = 100;

/// CPU time used so far, of all threads.
pub fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in brackets, may hold spaces; the numbers come after it.
    let numbers = stat.rsplit(") ").next().unwrap_or_default();
    let number = |at: usize| -> u64 {
        let text = numbers.split(' ').nth(at);
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    Duration::from_millis((number(11) + number(12)) * 1_000 / TICKS)
}

/// Bytes of memory in use.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.and_then(|text| text.parse().ok()).unwrap_or(0) * 1024
}

//! What processes use, as Linux tells it.

use std::time::Duration;

/// Ticks per second in `/proc`: the same on every Linux that Rust supports.
const TICKS: u64 = 100;

/// CPU time that this process has used so far, in all threads.
pub fn cpu() -> Duration {
    ticks(read("self").as_ref())
}

/// CPU time that a process and its children have used so far.
pub fn cpu_of_family(id: u32) -> Duration {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let name = entry.file_name();
            let number: u32 = name.to_str()?.parse().ok()?;
            let stat = read(name.to_str()?)?;
            (number == id || stat.parent == u64::from(id)).then_some(stat)
        })
        .map(|stat| ticks(Some(&stat)))
        .sum()
}

struct Stat {
    parent: u64,
    used: u64,
}

fn read(process: &str) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may hold spaces; the numbers come after it.
    let numbers = stat.rsplit(") ").next()?;
    let number = |at: usize| -> Option<u64> { numbers.split(' ').nth(at)?.parse().ok() };
    Some(Stat {
        parent: number(1)?,
        used: number(11)? + number(12)?,
    })
}

fn ticks(stat: Option<&Stat>) -> Duration {
    Duration::from_millis(stat.map_or(0, |stat| stat.used) * 1_000 / TICKS)
}

/// Bytes of memory that this process has in use.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.and_then(|text| text.parse().ok()).unwrap_or(0) * 1024
}

//! How a process is, as Linux tells it.

use std::fs;

/// Memory, threads and open files of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Resident memory, in KiB.
    pub memory: u64,
    /// Threads.
    pub threads: u64,
    /// Open files, sockets among them.
    pub files: u64,
}

/// Looks at a process; none if it is gone.
pub fn of(process: u32) -> Option<Vitals> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count();
    Some(Vitals {
        memory: number(&status, "VmRSS:")?,
        threads: number(&status, "Threads:")?,
        files: files as u64,
    })
}

/// The number after a name.
fn number(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_threads_and_files() {
        let own = of(std::process::id()).expect("this process runs");
        assert!(
            own.memory > 0 && own.threads > 0 && own.files > 0,
            "{own:?}"
        );
        assert_eq!(number("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(number("VmHWM: 1 kB\n", "VmRSS:"), None);
    }
}

//! Loopback ports that nobody else takes while they are leased.
//!
//! A port that the kernel hands out may be taken again between "found free" and "server bound",
//! and while a killed server waits for its restart. So ports come from below the range that the
//! kernel gives to outgoing connections, and a locked file keeps every other process that uses this
//! crate away for as long as the lease lives.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

const FIRST: u32 = 18_000;
const COUNT: u32 = 14_000;

/// A loopback port, ours until dropped.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    // Held for its lock, which the kernel gives back even after a SIGKILL.
    _lock: File,
}

impl Port {
    /// Leases one that is free right now.
    pub(crate) fn lease() -> Result<Self, Error> {
        let folder = folder();
        fs::create_dir_all(&folder)
            .map_err(|error| Error::new(format!("cannot create {}: {error}", folder.display())))?;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Processes that begin together begin at different places.
        let begin = std::process::id().wrapping_mul(61);
        for _ in 0..COUNT {
            let step = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = u16::try_from(FIRST + step % COUNT).expect("the range ends below 65536");
            let Ok(lock) = File::create(folder.join(number.to_string())) else {
                continue;
            };
            if lock.try_lock().is_ok() && is_free(number) {
                return Ok(Self {
                    number,
                    _lock: lock,
                });
            }
        }
        Err(Error::new(format!(
            "no free loopback port between {FIRST} and {}",
            FIRST + COUNT
        )))
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// As host and port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}

// One folder per user: a file that another user created could not be opened for writing.
fn folder() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("parti-servers-ports-{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leases_differ_and_both_can_be_bound() {
        let (a, b) = (Port::lease().unwrap(), Port::lease().unwrap());
        assert_ne!(a.number(), b.number());
        let _a = TcpListener::bind(a.address()).unwrap();
        let _b = TcpListener::bind(b.address()).unwrap();
    }

    #[test]
    fn a_leased_port_stays_locked_until_it_is_dropped() {
        let port = Port::lease().unwrap();
        let other = File::open(folder().join(port.number().to_string())).unwrap();
        assert!(other.try_lock().is_err());
        drop(port);
        other.lock().unwrap();
    }
}

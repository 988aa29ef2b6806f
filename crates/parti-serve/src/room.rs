//! Room for what is on its way to readers, and for what comes from senders: whoever is slow holds up
//! others of its kind, never the memory of this process.
//!
//! ```text
//!   take(bytes) ──▶ Taken ── fill(body) ──▶ Bytes ──▶ on its way ──▶ the last of them is written:
//!      │ none for a while: 503                                        the room is free again
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::failure::Failure;

/// So many answers are made at once: whoever asks for much leaves some of the processors to others.
const AT_ONCE: usize = 4;

/// So many bytes, for all of a kind together.
#[derive(Debug)]
pub struct Room {
    turns: Semaphore,
    free: Arc<Semaphore>,
    all: u32,
    patience: Duration,
    full: &'static str,
}

/// Some of it, set aside for one answer or body.
#[derive(Debug)]
pub struct Taken {
    permit: OwnedSemaphorePermit,
    is_all: bool,
}

/// An answer, and the room that it takes while somebody holds on to it.
struct Filled {
    body: Vec<u8>,
    _taken: Taken,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Room {
    /// Room for so many bytes. Whoever gets none in this time is told that it is full, in these words.
    pub fn new(bytes: usize, patience: Duration, full: &'static str) -> Self {
        let all = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self {
            turns: Semaphore::new(AT_ONCE),
            free: Arc::new(Semaphore::new(all as usize)),
            all,
            patience,
            full,
        }
    }

    /// Sets some aside; all there is, if that is less.
    pub async fn take(&self, bytes: usize) -> Result<Taken, Failure> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.all);
        let taking = self.free.clone().acquire_many_owned(bytes);
        match tokio::time::timeout(self.patience, taking).await {
            Ok(Ok(permit)) => Ok(Taken {
                permit,
                is_all: bytes == self.all,
            }),
            _ => Err(Failure::unavailable(self.full)),
        }
    }

    /// Waits for its turn to make an answer.
    pub async fn turn(&self) -> Result<SemaphorePermit<'_>, Failure> {
        let turn = self.turns.acquire().await;
        turn.map_err(|_| Failure::unavailable("no more answers are made"))
    }
}

impl Taken {
    /// Whether so many bytes fit; into all there is, everything has to.
    pub fn fits(&self, bytes: usize) -> bool {
        self.is_all || bytes <= self.permit.num_permits()
    }

    /// Puts an answer there. What it does not need is free at once, the rest when it is written.
    pub fn fill(mut self, mut body: Vec<u8>) -> Bytes {
        body.shrink_to_fit();
        let more = self.permit.num_permits().saturating_sub(body.len());
        drop(self.permit.split(more));
        Bytes::from_owner(Filled { body, _taken: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn room_is_taken_until_the_answer_is_written() {
        let room = Room::new(100, SOON, "full");
        let free = || room.free.available_permits();
        let taken = room.take(60).await.expect("room");
        assert_eq!(free(), 40);
        assert!(taken.fits(60) && !taken.fits(61));
        let mut answer = taken.fill(vec![7; 10]);
        assert_eq!(free(), 90, "what it does not need is free at once");
        let begun = answer.split_to(4);
        drop(answer);
        assert_eq!(free(), 90, "a part of it is still on its way");
        drop(begun);
        assert_eq!(free(), 100);
        let all = room.take(1_000).await.expect("all there is");
        assert!(
            all.fits(1_000),
            "one that is larger than the room has it to itself"
        );
        assert_eq!(free(), 0);
        drop(all.fill(vec![7; 1_000]));
        assert_eq!(free(), 100);
    }

    #[tokio::test]
    async fn who_gets_no_room_is_told_so() {
        let room = Room::new(100, SOON, "too many answers");
        let _deaf = room.take(80).await.expect("room").fill(vec![7; 80]);
        let refused = room.take(50).await.expect_err("none is left");
        assert!(refused.message().contains("too many answers"));
        room.take(20).await.expect("there is some for less");
    }
}

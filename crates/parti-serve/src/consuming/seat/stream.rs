//! The stream of a session: the newest one tells what happens to it.
//!
//! ```text
//!   open ──▶ session, all that is held ──▶ news, as they come ──▶ end: the session is over
//!     │                                                       └─▶ nothing: open it again, anywhere
//!     └ the one before it: end, taken over
//! ```

use std::sync::Arc;

use bytes::Bytes;
use parti::PartitionId;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{CUT_OFF, Ear, Phase, Seat};
use crate::consuming::ended::{Ended, Meaning};
use crate::consuming::events::{Begins, Ends, HeldUnder, SessionEvent};
use crate::consuming::http::millis;
use crate::sse::{self, Frames};

/// What the older of two streams hears. Whoever opened it once more would end the other one, and so on:
/// two processes that share a token would both handle what is the session's.
const TAKEN_OVER: &str = "taken_over";

impl Seat {
    /// Opens the stream of this session, which goes by this name, in place of any other.
    pub fn open(self: &Arc<Self>, session: &str) -> Stream {
        let number = self.change(|state| {
            state.streams += 1;
            state.ear = Ear::Open;
            state.news.clear();
            let held = state.held.iter().map(|(id, held)| HeldUnder {
                epoch: held.grant.epoch,
                partition: id.clone(),
            });
            let begins = Begins {
                held: held.collect(),
                session: session.to_owned(),
                topic: self.topic.to_string(),
                ttl_ms: millis(self.ttl),
            };
            state.tell(&SessionEvent::Session(begins));
            let ids: Vec<PartitionId> = state.held.keys().cloned().collect();
            for id in &ids {
                state.tell_assigned(id);
                state.tell_revoked(id);
            }
            state.streams
        });
        Stream {
            number,
            changes: self.changes.subscribe(),
            seat: self.clone(),
        }
    }
}

/// The open stream of a session.
pub struct Stream {
    seat: Arc<Seat>,
    number: u64,
    changes: watch::Receiver<u64>,
}

impl Frames for Stream {
    async fn next(&mut self) -> Result<Bytes, Bytes> {
        loop {
            {
                let mut state = self.seat.lock();
                if state.streams != self.number {
                    let end = Ends {
                        again: true,
                        code: TAKEN_OVER,
                        why: "another stream of this session was opened, which has it now".into(),
                    };
                    return Err(SessionEvent::End(end).frame());
                }
                if let Some(news) = state.news.pop_front() {
                    return Ok(news);
                }
                if let Phase::Over(Ended { why, meaning }) = &state.phase {
                    let end = Ends {
                        again: *meaning != Meaning::Dismissed,
                        code: meaning.code(),
                        why: why.clone(),
                    };
                    return Err(SessionEvent::End(end).frame());
                }
                // Without an end the session goes on, wherever its stream is opened next.
                if state.ear == Ear::Behind {
                    return Err(sse::comment("this stream was too slow: open it again"));
                }
                // An open stream would tell its client that all is well.
                if state.is_cut_off() {
                    return Err(sse::comment(&format!("{CUT_OFF}: go on at another one")));
                }
            }
            // The sender lives as long as the seat, which is held here.
            let _ = self.changes.changed().await;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.seat.change(|state| {
            if state.streams == self.number {
                if self.seat.hears_stream(state) {
                    state.heard = Instant::now();
                }
                state.ear = Ear::Closed;
                state.news.clear();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use parti::Epoch;

    use super::super::WAITING;
    use super::super::tests::seat;
    use super::*;

    fn text(frame: Result<Bytes, Bytes>) -> Result<String, String> {
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("text");
        frame.map(text).map_err(text)
    }

    fn tell_lost(seat: &Seat) {
        let partition = PartitionId::new("0");
        seat.change(|state| state.tell_lost(&partition, Epoch(1), "a test"));
    }

    #[tokio::test]
    async fn a_stream_that_is_too_slow_ends_and_its_session_goes_on() {
        let seat = seat();
        let mut stream = seat.open("s");
        for _ in 0..=WAITING {
            tell_lost(&seat);
        }
        assert!(
            seat.hears_stream(&seat.lock()),
            "its client takes it, if late"
        );
        let last = text(stream.next().await).expect_err("it ends");
        assert!(last.starts_with(": this stream was too slow"), "{last}");
        drop(stream);
        let mut stream = seat.open("s");
        let first = text(stream.next().await).expect("another one begins");
        assert!(first.starts_with("event: session"), "{first}");
        tell_lost(&seat);
        let next = text(stream.next().await).expect("and goes on");
        assert!(next.starts_with("event: lost"), "{next}");
    }

    #[tokio::test]
    async fn the_older_of_two_streams_is_told_not_to_come_back() {
        let seat = seat();
        let mut older = seat.open("s");
        let mut newer = seat.open("s");
        let last = text(older.next().await).expect_err("it ends");
        assert!(last.starts_with("event: end"), "{last}");
        assert!(last.contains(r#""code":"taken_over""#), "{last}");
        drop(older);
        let first = text(newer.next().await).expect("the newer one is whole");
        assert!(first.starts_with("event: session"), "{first}");
    }
}

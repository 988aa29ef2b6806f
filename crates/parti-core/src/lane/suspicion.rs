//! Suspicion: a partition whose owner died may hold the message that killed it.
//!
//! ```text
//!  seized ──▶ write begun(offset, times + 1) ──▶ call handler ──▶ commit ──▶ next message
//!                 │ times reached max_deliver          └ the process dies: the next owner
//!                 ▼                                      finds `begun` and counts on
//!             dead letter, handler not called
//! ```
//!
//! A message that was begun before gets its next try alone: of all lanes of a worker, only one at a
//! time tries such a message. Whatever else was begun when the process died would otherwise be
//! counted along with the one that kills, and end in the dead letters with it.
//!
//! It ends when a few messages in a row succeeded, or when the lag is gone: an idle partition whose
//! owners die is not suspicious.

use crate::ids::Offset;
use crate::record::Begun;

/// What is known about a seized partition's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspicion {
    begun: Option<Begun>,
    successes: u32,
    needed: u32,
}

/// What suspicion says about one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Announce it, then handle it.
    Announce(Begun),
    /// It has been begun too often: it does not get another process to kill.
    Bury {
        /// How often it was begun.
        times: u32,
    },
}

impl Suspicion {
    pub(crate) fn new(begun: Option<Begun>, needed: u32) -> Self {
        Self {
            begun,
            successes: 0,
            needed,
        }
    }

    /// What to do before this message's first handler call.
    pub(crate) fn advise(&mut self, offset: Offset, max_deliver: u32) -> Advice {
        // Another offset's announcement says nothing about this one.
        let times = self
            .begun
            .filter(|b| b.offset == offset)
            .map_or(0, |b| b.times);
        if times >= max_deliver {
            return Advice::Bury { times };
        }
        let begun = Begun {
            offset,
            times: times + 1,
        };
        self.begun = Some(begun);
        Advice::Announce(begun)
    }

    /// Whether this message was begun before, and has tries left.
    pub(crate) fn suspects(&self, offset: Offset, max_deliver: u32) -> bool {
        let begun = self.begun.filter(|begun| begun.offset == offset);
        begun.is_some_and(|begun| (1..max_deliver).contains(&begun.times))
    }

    /// Whether a message that was begun before is still to come from here on: then there is lag,
    /// whatever the source says.
    pub(crate) fn expects(&self, next: Offset) -> bool {
        self.begun.is_some_and(|b| b.times > 0 && b.offset >= next)
    }

    /// A handler call ended well. True: suspicion is over.
    pub(crate) fn succeeded(&mut self) -> bool {
        self.successes += 1;
        self.successes >= self.needed
    }

    /// A handler call ended badly, but it ended.
    pub(crate) fn failed(&mut self) {
        self.successes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_of_other_offsets_do_not_count() {
        let mut suspicion = Suspicion::new(
            Some(Begun {
                offset: Offset(4),
                times: 3,
            }),
            3,
        );
        assert_eq!(
            suspicion.advise(Offset(5), 3),
            Advice::Announce(Begun {
                offset: Offset(5),
                times: 1
            })
        );
    }

    #[test]
    fn a_message_begun_often_enough_is_buried() {
        let mut suspicion = Suspicion::new(
            Some(Begun {
                offset: Offset(4),
                times: 2,
            }),
            3,
        );
        assert_eq!(
            suspicion.advise(Offset(4), 3),
            Advice::Announce(Begun {
                offset: Offset(4),
                times: 3
            })
        );
        let mut next_owner = Suspicion::new(
            Some(Begun {
                offset: Offset(4),
                times: 3,
            }),
            3,
        );
        assert_eq!(next_owner.advise(Offset(4), 3), Advice::Bury { times: 3 });
    }

    #[test]
    fn successes_must_come_in_a_row() {
        let mut suspicion = Suspicion::new(None, 2);
        assert!(!suspicion.succeeded());
        suspicion.failed();
        assert!(!suspicion.succeeded());
        assert!(suspicion.succeeded());
    }
}

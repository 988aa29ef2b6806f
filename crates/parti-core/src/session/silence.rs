//! Silence: how long a record has stayed unchanged, counted only while this observer itself could
//! write to the store.
//!
//! An outage of the store silences everybody. So silence is measured on a *good clock*: it runs on
//! for a short while after each write of our own that succeeded, and stands still when there was
//! none for longer. A store that comes back after an outage therefore finds every deadline extended
//! by the outage, plus a grace for the others to get through again.
//!
//! ```text
//! own writes   ok    ok    ok    ✗     ✗     ✗     ok    ok
//! good clock   ────────────────────┤  stands still  ├──(−grace)──────▶
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::Revision;
use crate::key::Key;
use crate::time::Time;

/// Measures the silence of records.
#[derive(Clone, Debug)]
pub struct Silence {
    /// How long the good clock runs on after a success of our own.
    reach: Duration,
    /// What the others are given after an outage.
    grace: Duration,
    good: Duration,
    last_success: Time,
    seen: BTreeMap<Key, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    revision: Revision,
    at: Duration,
}

impl Silence {
    /// An observer that writes every `heartbeat` itself.
    pub fn new(now: Time, heartbeat: Duration) -> Self {
        Self {
            reach: heartbeat * 3 / 2,
            grace: heartbeat,
            good: Duration::ZERO,
            last_success: now,
            seen: BTreeMap::new(),
        }
    }

    fn good(&self, now: Time) -> Duration {
        if planted!(SilenceDuringOutage) {
            return self.good + now.since(self.last_success);
        }
        self.good + now.since(self.last_success).min(self.reach)
    }

    /// A write of our own succeeded.
    pub fn succeeded(&mut self, now: Time) {
        let outage = now.since(self.last_success) > self.reach;
        self.good = self.good(now);
        if outage && !planted!(SilenceDuringOutage) {
            self.good = self.good.saturating_sub(self.grace);
            // The good clock stepped back: nothing may count as seen in its future.
            for seen in self.seen.values_mut() {
                seen.at = seen.at.min(self.good);
            }
        }
        self.last_success = self.last_success.max(now);
    }

    /// The record was seen at this revision. Starts its silence anew if that is news.
    pub fn saw(&mut self, now: Time, key: &Key, revision: Revision) {
        let at = self.good(now);
        match self.seen.get_mut(key) {
            Some(seen) if revision <= seen.revision => {}
            Some(seen) => *seen = Seen { revision, at },
            None => {
                self.seen.insert(key.clone(), Seen { revision, at });
            }
        }
    }

    /// The revision that has been silent for at least `ttl`, if the record is.
    pub fn silent(&self, now: Time, key: &Key, ttl: Duration) -> Option<Revision> {
        let seen = self.seen.get(key)?;
        (self.good(now).saturating_sub(seen.at) >= ttl).then_some(seen.revision)
    }

    /// When the record will have been silent for `ttl`, if nothing changes.
    pub fn deadline(&self, key: &Key, ttl: Duration) -> Time {
        let Some(seen) = self.seen.get(key) else {
            return Time::NEVER;
        };
        let missing = (seen.at + ttl).saturating_sub(self.good);
        if missing <= self.reach {
            self.last_success + missing
        } else {
            // Only a further success of our own can bring it about; it is asked again then.
            Time::NEVER
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Duration = Duration::from_secs(2);
    const TTL: Duration = Duration::from_secs(6);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    #[test]
    fn silence_counts_while_own_writes_succeed() {
        let mut silence = Silence::new(at(0), HEARTBEAT);
        silence.saw(at(0), &Key::Leader, Revision(7));
        for t in [2, 4] {
            silence.succeeded(at(t));
        }
        assert_eq!(silence.silent(at(5), &Key::Leader, TTL), None);
        assert_eq!(silence.deadline(&Key::Leader, TTL), at(6));
        assert_eq!(silence.silent(at(6), &Key::Leader, TTL), Some(Revision(7)));
    }

    #[test]
    fn an_outage_extends_every_deadline_by_its_length_and_a_grace() {
        let mut silence = Silence::new(at(0), HEARTBEAT);
        silence.saw(at(0), &Key::Leader, Revision(7));
        silence.succeeded(at(2));
        // Out from 2 to 12: the good clock reached 5, and steps back to 3 at the recovery.
        assert_eq!(silence.silent(at(11), &Key::Leader, TTL), None);
        silence.succeeded(at(12));
        assert_eq!(silence.deadline(&Key::Leader, TTL), at(15));
        silence.succeeded(at(14));
        assert_eq!(silence.silent(at(14), &Key::Leader, TTL), None);
        assert_eq!(silence.silent(at(15), &Key::Leader, TTL), Some(Revision(7)));
    }

    #[test]
    fn a_sign_of_life_starts_anew_and_old_news_do_not() {
        let mut silence = Silence::new(at(0), HEARTBEAT);
        silence.saw(at(0), &Key::Leader, Revision(7));
        silence.succeeded(at(2));
        silence.saw(at(3), &Key::Leader, Revision(9));
        silence.succeeded(at(4));
        silence.succeeded(at(6));
        silence.saw(at(6), &Key::Leader, Revision(7));
        assert_eq!(silence.silent(at(6), &Key::Leader, TTL), None);
        silence.succeeded(at(8));
        assert_eq!(silence.silent(at(9), &Key::Leader, TTL), Some(Revision(9)));
    }
}

//! Whether a log went back: it ends below what was seen of it, or done.

use std::time::Duration;

use crate::time::Time;

/// A lower end is believed when it was told so often in a row.
const OFTEN: u32 = 3;
/// And for so long: a server that lags behind the others says so several times, too.
const LONG: Duration = Duration::from_secs(10);

/// Answers with a lower end, in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WentBack {
    told: u32,
    since: Time,
}

impl WentBack {
    /// One more of them. True: it is so.
    pub(crate) fn is_told(&mut self, now: Time) -> bool {
        if self.told == 0 {
            self.since = now;
        }
        self.told += 1;
        self.is_sure(now)
    }

    /// Whether that is enough of them.
    pub(crate) fn is_sure(&self, now: Time) -> bool {
        self.told >= OFTEN && now.since(self.since) >= LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_believed_when_it_was_told_often_and_for_long() {
        let at = |seconds: u64| Time(0) + Duration::from_secs(seconds);
        let mut often = WentBack::default();
        assert!((0..50).all(|_| !often.is_told(at(5))), "a stale server");
        assert!(often.is_told(at(15)));
        let mut rare = WentBack::default();
        assert!(!rare.is_told(at(5)) && !rare.is_told(at(60)), "two answers");
        assert!(rare.is_told(at(61)));
    }
}

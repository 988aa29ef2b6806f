//! Why partitions get owners, or others: each plan and each move has its own reason.
//!
//! ```text
//!  somebody came, went, asked ──▶ due: what is to be done, and why ──▶ a plan's line
//!                                                                   └─▶ reasons ──▶ a move's line,
//!                                                                                   once it ends
//! ```
//!
//! Whatever happens between a plan and the end of its moves is another matter, and has its own line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::text::few;
use crate::worker::Cause;

/// So many reasons are told in one line.
const TOLD: usize = 3;

/// The occasions of one plan, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Occasions(Vec<(Cause, String)>);

impl Occasions {
    /// Only one.
    pub fn one(cause: Cause, text: String) -> Self {
        Self(vec![(cause, text)])
    }

    /// One more, unless it is known.
    pub fn add(&mut self, cause: Cause, text: String) {
        if !self.0.iter().any(|(_, known)| *known == text) {
            self.0.push((cause, text));
        }
    }

    /// These, and those of another.
    pub fn and(mut self, others: Self) -> Self {
        for (cause, text) in others.0 {
            self.add(cause, text);
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For metrics: the first counts.
    pub fn cause(&self) -> Cause {
        self.0.first().map_or(Cause::Balance, |(cause, _)| *cause)
    }

    /// For people.
    pub fn text(&self) -> String {
        if self.0.is_empty() {
            return "there is room again".into();
        }
        few(self.0.iter().map(|(_, text)| text), TOLD)
    }
}

/// Something to be done as soon as it may, and why.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    wanted: bool,
    why: Occasions,
}

impl Wish {
    /// It is to be looked at again, for nothing new.
    pub fn again(&mut self) {
        self.wanted = true;
    }

    /// It is wanted, and why.
    pub fn want(&mut self, cause: Cause, text: String) {
        self.wanted = true;
        self.why.add(cause, text);
    }

    /// It is wanted for what was put off.
    pub fn want_all(&mut self, why: Occasions) {
        self.wanted = true;
        self.why = std::mem::take(&mut self.why).and(why);
    }

    /// Nothing is wanted any more; says why it was, if it was.
    pub fn take(&mut self) -> Option<Occasions> {
        let Wish { wanted, why } = std::mem::take(self);
        wanted.then_some(why)
    }
}

/// Names the reason of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReasonId(u64);

/// The reasons of moves under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Reasons {
    last: u64,
    all: BTreeMap<ReasonId, Arc<str>>,
}

impl Reasons {
    /// A further one.
    pub fn enter(&mut self, text: &str) -> ReasonId {
        self.last += 1;
        let id = ReasonId(self.last);
        self.all.insert(id, text.into());
        id
    }

    /// What it was.
    pub fn text(&self, id: ReasonId) -> Arc<str> {
        let known = self.all.get(&id).cloned();
        known.unwrap_or_else(|| "begun by an earlier leader".into())
    }

    /// Forgets all but these.
    pub fn keep(&mut self, used: &BTreeSet<ReasonId>) {
        self.all.retain(|id, _| used.contains(id));
    }
}

/// One worker or several, and what they did: `a joined`, `a and 2 more joined`.
pub(super) fn of_workers<T: ToString>(workers: impl IntoIterator<Item = T>, did: &str) -> String {
    format!("{} {did}", few(workers, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_one_plan_are_told_once_each() {
        let mut wish = Wish::default();
        assert_eq!(wish.take(), None);
        wish.again();
        assert_eq!(wish.take(), Some(Occasions::default()));
        for text in ["a lost", "a lost", "b joined", "c", "d", "e"] {
            wish.want(Cause::Crash, text.into());
        }
        let why = wish.take().expect("wanted");
        assert_eq!(why.text(), "a lost, b joined, c and 2 more");
        assert_eq!(why.cause(), Cause::Crash);
        assert_eq!(wish.take(), None, "taken");
    }

    #[test]
    fn a_reason_lasts_as_long_as_its_moves() {
        let mut reasons = Reasons::default();
        let (a, b) = (reasons.enter("a"), reasons.enter("b"));
        reasons.keep(&BTreeSet::from([b]));
        assert_eq!(&*reasons.text(b), "b");
        assert_eq!(&*reasons.text(a), "begun by an earlier leader");
    }
}

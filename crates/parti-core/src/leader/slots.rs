//! A partition's slot: who serves it, and the handoff from one worker to another.
//!
//! ```text
//!                  plan                    to is ready                 from has released
//!  Serving{from} ───────▶ Preparing ──────────────────────▶ Revoking ───────────────────▶ Serving{to}
//!       ▲                  │ to is late, degraded,           │  │ to is gone                   ▲
//!       └── rolled back ───┘ gone or leaving                 │  └──▶ Serving{from}             │
//!                          └──────────── from is gone ───────┴─────────────────────────────────┘
//!  Both gone: Unassigned, and given to somebody else at once. A live owner is never seized: a slow
//!  release is reported once, and waited for. An owner that is to have nothing (it leaves, or is
//!  drained) never gets back what it was told to let go of: it counts as gone once it has.
//! ```

use super::occasion::ReasonId;
use crate::config::HandoffConfig;
use crate::ids::{Incarnation, PartitionId, Version};
use crate::record::Ready;
use crate::time::Time;

/// A worker's index in the leader's crew. Only meaningful within one planner.
pub type Seat = usize;

/// Who serves a partition, and whom it is moving to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nobody serves it.
    Unassigned(Reason),
    /// It stays where it is.
    Serving {
        /// Where.
        worker: Seat,
    },
    /// `from` serves it, `to` gets ready for it.
    Preparing(Move),
    /// `from` was told to let go of it, `to` waits for that.
    Revoking {
        /// Whose move.
        mv: Move,
        /// Whether its slowness was reported.
        warned: bool,
    },
}

/// Why nobody serves a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is new, and no plan has counted it yet.
    New,
    /// Its owner's session is over.
    OwnerGone,
    /// Its owner is to have nothing and was told to let go, and who was to have it next is gone.
    LetsGo,
    /// The group restarts: it stays with its last owner if that comes back in time.
    AwaitsOwner(Seat),
    /// Nobody is there to take it.
    NoWorker,
    /// Everybody who is there is drained.
    AllDrained,
    /// Every worker is full.
    OverCap,
    /// An operator wants nobody to serve it.
    Paused,
}

impl Reason {
    /// In the words of the plan record.
    pub fn text(self) -> &'static str {
        match self {
            Self::New => "not planned yet",
            Self::OwnerGone => "its owner is gone",
            Self::LetsGo => "its owner lets go of it, and who was to have it next is gone",
            Self::AwaitsOwner(_) => "the group restarts: waiting for its owner",
            Self::NoWorker => "no worker can take it",
            Self::AllDrained => "all living workers are drained: undrain one",
            Self::OverCap => "over cap",
            Self::Paused => "paused by an operator",
        }
    }
}

/// A move under way, between two lives of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The owner.
    pub from: Seat,
    /// In which life: a later one owns nothing of it.
    pub from_life: Incarnation,
    /// The owner to be.
    pub to: Seat,
    /// In which life: a later one has prepared nothing.
    pub to_life: Incarnation,
    /// When the move began.
    pub began: Time,
    /// When this part of the move began.
    pub since: Time,
    /// The assignment version that asked for this part: only answers to it count.
    pub version: Version,
    /// Why it moves.
    pub why: ReasonId,
}

impl Slot {
    /// Who serves it by the newest assignments, if anybody.
    pub fn server(&self) -> Option<Seat> {
        match self {
            Self::Serving { worker } => Some(*worker),
            Self::Preparing(mv) => Some(mv.from),
            Self::Unassigned(_) | Self::Revoking { .. } => None,
        }
    }

    /// Where it counts for the next plan: a move that cannot be stopped counts as done.
    pub fn counts_for(&self) -> Option<Seat> {
        match self {
            Self::Revoking { mv, .. } => Some(mv.to),
            other => other.server(),
        }
    }

    /// The move under way, if any.
    pub fn moving(&self) -> Option<&Move> {
        match self {
            Self::Preparing(mv) | Self::Revoking { mv, .. } => Some(mv),
            Self::Unassigned(_) | Self::Serving { .. } => None,
        }
    }

    /// Whether it refers to this worker in any role.
    pub fn names(&self, seat: Seat) -> bool {
        match self {
            Self::Unassigned(reason) => *reason == Reason::AwaitsOwner(seat),
            Self::Serving { worker } => *worker == seat,
            Self::Preparing(mv) | Self::Revoking { mv, .. } => mv.from == seat || mv.to == seat,
        }
    }
}

/// One side of a move, as its session shows it now.
#[derive(Clone, Copy, Debug)]
pub struct Party<'a> {
    /// Which life of it is present; none when its session is over.
    pub life: Option<Incarnation>,
    /// It asked to be relieved, or an operator asked for it.
    pub leaving: bool,
    /// It says that something is wrong with it.
    pub degraded: bool,
    /// Up to which version it has let go.
    pub released: Version,
    /// What it is ready for.
    pub ready: Option<&'a Ready>,
}

/// What becomes of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Wait,
    /// It waits on, and somebody should know.
    WarnSlowRelease,
    /// `to` is ready: `from` is told to let go.
    Revoke,
    /// Nobody holds it any more: `to` serves it.
    Grant,
    /// `from` goes on serving it.
    RollBack(Blame),
    /// Nobody holds it any more, and `to` cannot: it needs a new owner.
    Orphan,
}

/// Why a move was rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// `to` is gone, leaving, or lives a new life.
    Gone,
    /// `to` is degraded.
    Degraded,
    /// `to` did not get ready in time.
    NotReady,
}

/// Decides what becomes of the move in this slot. Pure: everything it looks at is an argument.
pub fn judge(
    slot: &Slot,
    partition: &PartitionId,
    from: Party<'_>,
    to: Party<'_>,
    now: Time,
    limits: &HandoffConfig,
) -> Verdict {
    let Some(mv) = slot.moving() else {
        return Verdict::Wait;
    };
    let owner_lives = from.life == Some(mv.from_life);
    let can_receive = to.life.is_some() && !to.leaving;
    if !owner_lives {
        return if can_receive {
            Verdict::Grant
        } else {
            Verdict::Orphan
        };
    }
    match slot {
        Slot::Preparing(_) => {
            if !can_receive || to.life != Some(mv.to_life) {
                Verdict::RollBack(Blame::Gone)
            } else if to.degraded {
                Verdict::RollBack(Blame::Degraded)
            } else if is_ready(to.ready, mv.version, partition)
                || crate::planted!(RevokeBeforeReady)
            {
                Verdict::Revoke
            } else if now >= mv.since + limits.prepare_timeout {
                Verdict::RollBack(Blame::NotReady)
            } else {
                Verdict::Wait
            }
        }
        Slot::Revoking { warned, .. } => {
            if !can_receive && !from.leaving {
                Verdict::RollBack(Blame::Gone)
            } else if !can_receive && from.released >= mv.version {
                Verdict::Orphan
            } else if from.released >= mv.version || crate::planted!(GrantBeforeRelease) {
                Verdict::Grant
            } else if !warned && now >= mv.since + limits.release_warning {
                Verdict::WarnSlowRelease
            } else {
                Verdict::Wait
            }
        }
        Slot::Unassigned(_) | Slot::Serving { .. } => Verdict::Wait,
    }
}

/// Whether this says ready to that version or a later one: leftovers of a rolled-back move do not
/// count.
fn is_ready(ready: Option<&Ready>, version: Version, partition: &PartitionId) -> bool {
    ready.is_some_and(|ready| {
        ready.version >= version && ready.partitions.binary_search(partition).is_ok()
    })
}

/// When a move must be looked at again though nothing was heard.
pub fn deadline(slot: &Slot, limits: &HandoffConfig) -> Time {
    match slot {
        Slot::Preparing(mv) => mv.since + limits.prepare_timeout,
        Slot::Revoking { mv, warned: false } => mv.since + limits.release_warning,
        Slot::Revoking { warned: true, .. } | Slot::Unassigned(_) | Slot::Serving { .. } => {
            Time::NEVER
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: HandoffConfig = HandoffConfig {
        prepare_timeout: Duration::from_secs(10),
        release_warning: Duration::from_secs(5),
    };

    fn mv() -> Move {
        Move {
            from: 0,
            from_life: Incarnation(10),
            to: 1,
            to_life: Incarnation(20),
            began: Time(0),
            since: Time(0),
            version: Version(7),
            why: ReasonId::default(),
        }
    }

    fn party(life: u64) -> Party<'static> {
        Party {
            life: (life > 0).then_some(Incarnation(life)),
            leaving: false,
            degraded: false,
            released: Version(6),
            ready: None,
        }
    }

    fn ready(version: u64) -> Ready {
        Ready {
            version: Version(version),
            partitions: vec![PartitionId::new("p")],
        }
    }

    fn verdict(slot: &Slot, from: Party<'_>, to: Party<'_>, secs: u64) -> Verdict {
        judge(
            slot,
            &PartitionId::new("p"),
            from,
            to,
            Time(secs * 1_000_000),
            &LIMITS,
        )
    }

    #[test]
    fn preparing() {
        let slot = Slot::Preparing(mv());
        let (from, to) = (party(10), party(20));
        assert_eq!(verdict(&slot, from, to, 1), Verdict::Wait);
        assert_eq!(
            verdict(&slot, from, to, 10),
            Verdict::RollBack(Blame::NotReady)
        );
        let (old, new) = (ready(6), ready(7));
        let with = |ready| Party {
            ready: Some(ready),
            ..to
        };
        assert_eq!(
            verdict(&slot, from, with(&old), 1),
            Verdict::Wait,
            "an answer to older orders"
        );
        assert_eq!(verdict(&slot, from, with(&new), 1), Verdict::Revoke);
        assert_eq!(
            verdict(&slot, from, with(&new), 99),
            Verdict::Revoke,
            "ready beats late"
        );
        let other = Ready {
            version: Version(9),
            partitions: vec![PartitionId::new("q")],
        };
        assert_eq!(verdict(&slot, from, with(&other), 1), Verdict::Wait);
        let degraded = Party {
            degraded: true,
            ..with(&new)
        };
        assert_eq!(
            verdict(&slot, from, degraded, 1),
            Verdict::RollBack(Blame::Degraded)
        );
        let leaving = Party {
            leaving: true,
            ..with(&new)
        };
        assert_eq!(
            verdict(&slot, from, leaving, 1),
            Verdict::RollBack(Blame::Gone)
        );
        assert_eq!(
            verdict(&slot, from, party(0), 1),
            Verdict::RollBack(Blame::Gone)
        );
        assert_eq!(
            verdict(&slot, from, party(21), 1),
            Verdict::RollBack(Blame::Gone),
            "restarted"
        );
        assert_eq!(verdict(&slot, party(0), to, 1), Verdict::Grant);
        assert_eq!(
            verdict(&slot, party(11), to, 1),
            Verdict::Grant,
            "the owner's life is over"
        );
        assert_eq!(verdict(&slot, party(0), party(0), 1), Verdict::Orphan);
        assert_eq!(verdict(&slot, party(0), leaving, 1), Verdict::Orphan);
    }

    #[test]
    fn revoking() {
        let slot = Slot::Revoking {
            mv: mv(),
            warned: false,
        };
        let (from, to) = (party(10), party(20));
        assert_eq!(verdict(&slot, from, to, 4), Verdict::Wait);
        assert_eq!(verdict(&slot, from, to, 5), Verdict::WarnSlowRelease);
        let warned = Slot::Revoking {
            mv: mv(),
            warned: true,
        };
        assert_eq!(
            verdict(&warned, from, to, 999),
            Verdict::Wait,
            "a live owner is never seized"
        );
        let released = Party {
            released: Version(7),
            ..from
        };
        assert_eq!(verdict(&slot, released, to, 1), Verdict::Grant);
        assert_eq!(verdict(&slot, party(0), to, 1), Verdict::Grant);
        assert_eq!(
            verdict(&slot, from, party(21), 1),
            Verdict::Wait,
            "a new life can take it too"
        );
        assert_eq!(
            verdict(&slot, from, party(0), 1),
            Verdict::RollBack(Blame::Gone)
        );
        let degraded = Party {
            degraded: true,
            ..to
        };
        assert_eq!(
            verdict(&slot, from, degraded, 1),
            Verdict::Wait,
            "it was ready once"
        );
        assert_eq!(verdict(&slot, party(0), party(0), 1), Verdict::Orphan);
    }

    #[test]
    fn an_owner_that_is_to_have_nothing_gets_nothing_back() {
        let slot = Slot::Revoking {
            mv: mv(),
            warned: true,
        };
        let leaving = |released| Party {
            leaving: true,
            released: Version(released),
            ..party(10)
        };
        for nobody in [
            party(0),
            Party {
                leaving: true,
                ..party(20)
            },
        ] {
            assert_eq!(
                verdict(&slot, leaving(6), nobody, 1),
                Verdict::Wait,
                "it may still hold it"
            );
            assert_eq!(verdict(&slot, leaving(7), nobody, 1), Verdict::Orphan);
        }
        assert_eq!(
            verdict(&slot, leaving(7), party(20), 1),
            Verdict::Grant,
            "somebody can take it"
        );
        assert_eq!(
            verdict(&Slot::Preparing(mv()), leaving(6), party(0), 1),
            Verdict::RollBack(Blame::Gone),
            "it never let go"
        );
    }

    #[test]
    fn deadlines() {
        let slot = Slot::Preparing(mv());
        assert_eq!(deadline(&slot, &LIMITS), Time(10_000_000));
        assert_eq!(
            deadline(
                &Slot::Revoking {
                    mv: mv(),
                    warned: false
                },
                &LIMITS
            ),
            Time(5_000_000)
        );
        assert_eq!(
            deadline(
                &Slot::Revoking {
                    mv: mv(),
                    warned: true
                },
                &LIMITS
            ),
            Time::NEVER
        );
        assert_eq!(deadline(&Slot::Serving { worker: 0 }, &LIMITS), Time::NEVER);
    }
}

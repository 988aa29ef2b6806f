//! The workers as the leader knows them, each with a seat (an index) of its own.

use std::collections::BTreeMap;

use super::planner::Member;
use super::slots::{Party, Seat};
use crate::ids::{Incarnation, Term, Version, WorkerId};
use crate::record::{AssignmentRecord, SessionStatus};
use crate::time::Time;

/// What the leader has made of a worker so far. Follows its session in `membership.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not there.
    Away,
    /// There, but no plan counts on it yet.
    Joined(Incarnation),
    /// Plans count on it.
    Planned(Incarnation),
    /// On its way out.
    Leaving(Incarnation),
}

impl Standing {
    /// Which life it is about.
    pub fn life(self) -> Option<Incarnation> {
        match self {
            Self::Away => None,
            Self::Joined(life) | Self::Planned(life) | Self::Leaving(life) => Some(life),
        }
    }
}

/// Why a worker gets a share with the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// It came.
    Joined,
    /// An operator has ended its drain.
    Undrained,
    /// It was here before this leader, or moves to it came to nothing.
    PutOff,
}

/// One worker.
#[derive(Debug)]
pub(super) struct Desk {
    pub id: WorkerId,
    /// Its session, as last heard.
    pub member: Option<Member>,
    pub standing: Standing,
    /// What it was told last.
    pub published: Option<AssignmentRecord>,
    /// It must be told again under a new version, even if that is the same.
    pub must_publish: bool,
    /// An assignment record of it is there, to be forgotten when its session is over.
    pub recorded: bool,
    /// How often in a row it did not get ready, and until when it gets nothing new.
    pub failures: u32,
    pub suspended_until: Option<Time>,
    /// It was degraded when last looked at.
    pub was_degraded: bool,
    /// A share was meant for it and could not be given yet.
    pub owed: Option<Owed>,
    /// Its last life is over, and its mark may still be needed by a taker.
    pub evidence: bool,
    /// It was told by this version to let go of partitions that left the list.
    pub dropping: Option<Version>,
    /// Lives that ended before they had let go of such partitions.
    pub kept_marks: Vec<Incarnation>,
    /// An operator wants this life to serve nothing.
    pub drained: Option<Incarnation>,
    /// An operator wanted this life to end.
    pub evicted: Option<Incarnation>,
}

impl Desk {
    fn new(id: WorkerId) -> Self {
        Self {
            id,
            member: None,
            standing: Standing::Away,
            published: None,
            must_publish: false,
            recorded: false,
            failures: 0,
            suspended_until: None,
            was_degraded: false,
            owed: None,
            evidence: false,
            dropping: None,
            kept_marks: Vec::new(),
            drained: None,
            evicted: None,
        }
    }

    /// Its session, while that lives.
    pub fn alive(&self) -> Option<&Member> {
        self.member
            .as_ref()
            .filter(|member| !member.status.is_over())
    }

    /// Which life of it is there.
    pub fn life(&self) -> Option<Incarnation> {
        self.alive().map(|member| member.incarnation)
    }

    /// Whether it asked to be relieved.
    pub fn is_leaving(&self) -> bool {
        self.alive()
            .is_some_and(|member| member.status == SessionStatus::Leaving)
    }

    /// Whether an operator wants it to serve nothing.
    pub fn is_drained(&self) -> bool {
        self.drained.is_some() && self.drained == self.life()
    }

    /// Whether the life that plans count on is gone because an operator wanted it to end.
    pub fn is_evicted(&self) -> bool {
        let counted = self.standing.life();
        counted.is_some() && counted <= self.evicted && counted != self.life()
    }

    /// Whether what it serves is to go elsewhere.
    pub fn is_shedding(&self) -> bool {
        self.is_leaving() || self.is_drained()
    }

    /// Whether it lives and means to stay.
    pub fn is_staying(&self) -> bool {
        self.alive()
            .is_some_and(|member| member.status == SessionStatus::Live)
    }

    pub fn is_degraded(&self) -> bool {
        self.alive().is_some_and(|member| member.degraded)
    }

    /// Whether it keeps what it has, and gets nothing new.
    pub fn is_held_back(&self) -> bool {
        self.suspended_until.is_some() || self.is_degraded()
    }

    /// Whether it has carried out the last thing it was told, in this life.
    pub fn has_applied(&self, version: Version) -> bool {
        match (self.alive(), &self.published) {
            (Some(member), Some(told)) => {
                told.incarnation == member.incarnation
                    && member.applied >= told.version.min(version)
            }
            _ => true,
        }
    }

    /// Whether it was told what to serve under this term, in this life, and holds nothing else.
    pub fn has_let_go(&self, term: Term) -> bool {
        match (self.alive(), &self.published) {
            (Some(member), Some(told)) => {
                told.term == term
                    && told.incarnation == member.incarnation
                    && member.released >= told.version
            }
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// This worker as one side of a move.
    pub fn party(&self) -> Party<'_> {
        let alive = self.alive();
        Party {
            life: alive.map(|member| member.incarnation),
            leaving: self.is_shedding(),
            degraded: self.is_degraded(),
            released: alive.map_or(Version(0), |member| member.released),
            ready: alive.map(|member| &member.ready),
        }
    }
}

/// All workers ever heard of in this term. Bounded by the range of ids.
#[derive(Debug, Default)]
pub(super) struct Crew {
    desks: Vec<Desk>,
    seats: BTreeMap<WorkerId, Seat>,
}

impl Crew {
    /// The worker's seat, a new one if need be.
    pub fn seat(&mut self, id: &WorkerId) -> Seat {
        if let Some(&seat) = self.seats.get(id) {
            return seat;
        }
        let seat = self.desks.len();
        self.desks.push(Desk::new(id.clone()));
        self.seats.insert(id.clone(), seat);
        seat
    }

    pub fn find(&self, id: &WorkerId) -> Option<Seat> {
        self.seats.get(id).copied()
    }

    /// Seats in the order of worker ids: whatever is decided must not depend on who came first.
    pub fn by_id(&self) -> impl Iterator<Item = Seat> + '_ {
        self.seats.values().copied()
    }

    pub fn len(&self) -> usize {
        self.desks.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Desk> {
        self.desks.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Desk> {
        self.desks.iter_mut()
    }

    /// How many are there and mean to stay.
    pub fn present(&self) -> usize {
        self.desks.iter().filter(|desk| desk.is_staying()).count()
    }

    /// How many the plan counts on.
    pub fn planned(&self) -> usize {
        self.desks
            .iter()
            .filter(|desk| matches!(desk.standing, Standing::Planned(_)))
            .count()
    }

    /// How many wait for the window to close.
    pub fn joined(&self) -> usize {
        self.desks
            .iter()
            .filter(|desk| matches!(desk.standing, Standing::Joined(_)))
            .count()
    }

    pub fn anyone_sheds(&self) -> bool {
        self.desks.iter().any(Desk::is_shedding)
    }
}

impl std::ops::Index<Seat> for Crew {
    type Output = Desk;
    fn index(&self, seat: Seat) -> &Desk {
        &self.desks[seat]
    }
}

impl std::ops::IndexMut<Seat> for Crew {
    fn index_mut(&mut self, seat: Seat) -> &mut Desk {
        &mut self.desks[seat]
    }
}

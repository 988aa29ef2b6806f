//! Who came, who leaves, who is gone: sessions compared with what was made of them so far.
//!
//! ```text
//!            joins                 window closes              asks to leave
//!   Away ───────────▶ Joined ─────────────────▶ Planned ───────────────────▶ Leaving
//!    ▲ ▲                │                        │ ▲  │                         │
//!    │ └── vanished ────┘     new life, serving ─┘ └──┘                         │
//!    └───────── lost, evicted: emergency ────────┴──────── left: goodbye ───────┘
//! ```

use super::crew::Standing;
use super::occasion;
use super::planner::{Member, Planner};
use super::slots::{Reason, Seat, Slot};
use super::windows::{self, Span, Window};
use crate::record::{EventKind, Lifecycle, SessionStatus};
use crate::text::count;
use crate::time::Time;
use crate::worker::Cause;

/// What happened to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It is new, or back after its partitions were given away.
    Joined,
    /// It was there before this leader, and serves nothing.
    Found,
    /// It is back in a new life, and what it served is still its own.
    CameBack,
    /// It asks to be relieved.
    Leaves,
    /// It said goodbye.
    Left,
    /// Its session was ended by somebody else.
    Lost,
    /// Its session was ended for an operator. A later life may already be there.
    Evicted,
    /// It is gone before any plan counted on it.
    Vanished,
}

/// What becomes of a standing, given the session as it is now.
fn follow(was: Standing, member: Option<&Member>, serves: bool) -> (Standing, Option<Change>) {
    let alive = member.filter(|member| !member.status.is_over());
    let goodbye = member.is_some_and(|member| member.status == SessionStatus::Goodbye);
    let life_before = was.life();
    match (was, alive) {
        (Standing::Away, None) => (Standing::Away, None),
        (Standing::Joined(_), None) => (Standing::Away, Some(Change::Vanished)),
        (_, None) if goodbye => (Standing::Away, Some(Change::Left)),
        (_, None) => (Standing::Away, Some(Change::Lost)),
        (_, Some(member)) => {
            let life = member.incarnation;
            if member.status == SessionStatus::Leaving {
                let next = Standing::Leaving(life);
                (next, (was != next).then_some(Change::Leaves))
            } else if life_before == Some(life) {
                (was, None)
            } else if serves {
                (Standing::Planned(life), Some(Change::CameBack))
            } else {
                (Standing::Joined(life), Some(Change::Joined))
            }
        }
    }
}

impl Planner {
    /// Follows the sessions, if any came or went.
    pub(super) fn review_members(&mut self, now: Time) {
        let Some(at) = self.membership_changed.take() else {
            return;
        };
        let mut serves = vec![false; self.crew.len()];
        for slot in &self.slots {
            match slot {
                Slot::Serving { worker } | Slot::Unassigned(Reason::AwaitsOwner(worker)) => {
                    serves[*worker] = true;
                }
                _ => {}
            }
        }
        let mut changes = Vec::new();
        let seats: Vec<_> = self.crew.by_id().collect();
        for seat in seats {
            let desk = &mut self.crew[seat];
            let mut was = desk.standing;
            if desk.is_evicted() {
                changes.push((seat, Change::Evicted));
                // Whoever has the id now is a newcomer.
                (was, serves[seat]) = (Standing::Away, false);
                if desk.dropping.take().is_some() {
                    desk.kept_marks.extend(desk.standing.life());
                }
                (desk.owed, desk.failures, desk.suspended_until) = (None, 0, None);
            }
            let (next, change) = follow(was, desk.member.as_ref(), serves[seat]);
            desk.standing = next;
            let change = match (change, next.life()) {
                (Some(Change::Joined), Some(life))
                    if life.0 <= self.elected.0 && !crate::planted!(FoundToldAsJoined) =>
                {
                    Some(Change::Found)
                }
                (change, _) => change,
            };
            let Some(change) = change else { continue };
            changes.push((seat, change));
            match change {
                Change::Leaves | Change::Evicted => {}
                Change::Joined | Change::Found | Change::CameBack => desk.suspended_until = None,
                Change::Left | Change::Vanished => desk.dropping = None,
                Change::Lost => {
                    // It may still own what left the list, and nobody will take that soon.
                    if let (Some(_), Standing::Planned(life) | Standing::Leaving(life)) =
                        (desk.dropping.take(), was)
                    {
                        desk.kept_marks.push(life);
                    }
                    self.losses.push((at, seat));
                }
            }
            if desk.alive().is_none() {
                (desk.owed, desk.failures, desk.suspended_until) = (None, 0, None);
            }
        }
        if changes.is_empty() {
            return;
        }
        self.touched = true;
        self.window.disturb(at);
        self.tell_of(&changes);
        self.detect_restart(now);
        let evicted = changes.iter().filter(|(_, c)| *c == Change::Evicted);
        self.reassess_slots(&evicted.map(|(seat, _)| *seat).collect::<Vec<_>>());
        self.due.relieve |= self.crew.anyone_sheds();
        self.due.balance = true;
    }

    /// Reason and history.
    fn tell_of(&mut self, changes: &[(usize, Change)]) {
        for &(seat, change) in changes {
            let id = self.crew[seat].id.clone();
            let what = match change {
                // It never left: the line of the takeover names it.
                Change::Found => continue,
                Change::Joined => "joined",
                Change::CameBack => "is back, and keeps what it served",
                Change::Leaves => "leaves",
                Change::Left => "left",
                Change::Lost => "was lost",
                Change::Evicted => "was evicted by an operator",
                Change::Vanished => "is gone again",
            };
            let kind = match change {
                Change::Joined | Change::Found | Change::CameBack => EventKind::Join,
                Change::Leaves | Change::Left => EventKind::Leave,
                Change::Lost | Change::Vanished => EventKind::Crash,
                Change::Evicted => EventKind::Request,
            };
            self.history(kind, format!("{id} {what}"));
        }
        self.due.fill.again();
        if self.window.is_cold_start() || self.lifecycle == Lifecycle::ColdStart {
            return;
        }
        // The gravest one is the reason.
        let of = |wanted: Change| changes.iter().filter(move |(_, change)| *change == wanted);
        for (change, cause, what) in [
            (Change::Lost, Cause::Crash, "lost"),
            (Change::Evicted, Cause::Operator, "evicted"),
            (Change::Left, Cause::Leave, "left"),
            (Change::Leaves, Cause::Leave, "leaving"),
            (Change::Joined, Cause::Join, "joined"),
        ] {
            if of(change).next().is_some() {
                let ids = of(change).map(|(seat, _)| &self.crew[*seat].id);
                self.reason = occasion::of_workers(ids, what);
                self.due.fill.want(cause, self.reason.clone());
                return;
            }
        }
    }

    /// Many losses at once are a restart: the group waits for its workers, as in a cold start.
    fn detect_restart(&mut self, now: Time) {
        self.losses
            .retain(|&(at, _)| windows::is_recent(&self.config, at, now));
        let planned = self.crew.planned() + self.losses.len();
        if self.window.is_cold_start()
            || self.lifecycle == Lifecycle::ColdStart
            || !windows::is_restart(&self.config, self.losses.len(), planned)
        {
            return;
        }
        let lost = self.losses.len();
        self.lifecycle = Lifecycle::ColdStart;
        self.window = Window::ColdStart(Span::at(now));
        let planned = count(planned as u64, "worker");
        self.reason = format!("restart: {lost} of {planned} lost, waiting for them");
        self.history(
            EventKind::Plan,
            format!("restart detected: {lost} of {planned} lost"),
        );
    }

    /// Partitions of workers that are gone need another; in a restart they wait for their owner.
    /// What an evicted one served waits for nobody.
    fn reassess_slots(&mut self, evicted: &[Seat]) {
        let restarting = self.lifecycle == Lifecycle::ColdStart;
        for slot in &mut self.slots {
            match *slot {
                Slot::Serving { worker } if evicted.contains(&worker) => {
                    *slot = Slot::Unassigned(Reason::OwnerGone);
                    self.due.emergency = true;
                }
                Slot::Serving { worker } if self.crew[worker].alive().is_none() => {
                    *slot = Slot::Unassigned(if restarting {
                        Reason::AwaitsOwner(worker)
                    } else {
                        self.due.emergency |= self.losses.iter().any(|&(_, seat)| seat == worker);
                        Reason::OwnerGone
                    });
                }
                Slot::Unassigned(Reason::AwaitsOwner(worker))
                    if self.crew[worker].alive().is_some() =>
                {
                    *slot = Slot::Serving { worker };
                }
                _ => {}
            }
        }
    }

    /// What changes without anybody coming or going: suspensions, conditions, releases.
    pub(super) fn hear_sessions(&mut self, now: Time) {
        let mut freed = false;
        for desk in self.crew.iter_mut() {
            if desk.suspended_until.is_some_and(|until| until <= now) {
                desk.suspended_until = None;
                freed = true;
            }
            let degraded = desk.is_degraded();
            freed |= std::mem::replace(&mut desk.was_degraded, degraded) && !degraded;
            let released = desk.party().released;
            desk.dropping.take_if(|version| released >= *version);
        }
        let mut dropped = std::mem::take(&mut self.dropped);
        dropped.retain(|_, held| self.may_still_hold(held));
        self.dropped = dropped;
        if freed {
            self.due.relieve |= self.crew.anyone_sheds();
            self.due.balance = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, Version};
    use crate::record::Ready;

    fn member(life: u64, status: SessionStatus) -> Member {
        Member {
            incarnation: Incarnation(life),
            status,
            released: Version(0),
            applied: Version(0),
            ready: Ready::default(),
            blocked_by: Vec::new(),
            degraded: false,
        }
    }

    #[test]
    fn standings_follow_sessions() {
        use SessionStatus::{Evicted, Free, Goodbye, Leaving, Live};
        let (one, two) = (Incarnation(1), Incarnation(2));
        let cases = [
            (
                Standing::Away,
                Some((1, Live)),
                false,
                Standing::Joined(one),
                Some(Change::Joined),
            ),
            (
                Standing::Away,
                Some((1, Evicted)),
                false,
                Standing::Away,
                None,
            ),
            (Standing::Away, None, false, Standing::Away, None),
            (
                Standing::Away,
                Some((2, Live)),
                true,
                Standing::Planned(two),
                Some(Change::CameBack),
            ),
            (
                Standing::Joined(one),
                None,
                false,
                Standing::Away,
                Some(Change::Vanished),
            ),
            (
                Standing::Planned(one),
                Some((1, Live)),
                true,
                Standing::Planned(one),
                None,
            ),
            (
                Standing::Planned(one),
                Some((1, Evicted)),
                true,
                Standing::Away,
                Some(Change::Lost),
            ),
            (
                Standing::Planned(one),
                Some((1, Free)),
                true,
                Standing::Away,
                Some(Change::Lost),
            ),
            (
                Standing::Planned(one),
                None,
                true,
                Standing::Away,
                Some(Change::Lost),
            ),
            (
                Standing::Planned(one),
                Some((1, Goodbye)),
                true,
                Standing::Away,
                Some(Change::Left),
            ),
            (
                Standing::Leaving(one),
                Some((1, Evicted)),
                true,
                Standing::Away,
                Some(Change::Lost),
            ),
            (
                Standing::Leaving(one),
                Some((1, Leaving)),
                true,
                Standing::Leaving(one),
                None,
            ),
            (
                Standing::Planned(one),
                Some((1, Leaving)),
                true,
                Standing::Leaving(one),
                Some(Change::Leaves),
            ),
            (
                Standing::Planned(one),
                Some((2, Live)),
                true,
                Standing::Planned(two),
                Some(Change::CameBack),
            ),
            (
                Standing::Planned(one),
                Some((2, Live)),
                false,
                Standing::Joined(two),
                Some(Change::Joined),
            ),
        ];
        for (was, session, serves, next, change) in cases {
            let session = session.map(|(life, status)| member(life, status));
            assert_eq!(
                follow(was, session.as_ref(), serves),
                (next, change),
                "{was:?} and {session:?}, serves: {serves}"
            );
        }
    }
}

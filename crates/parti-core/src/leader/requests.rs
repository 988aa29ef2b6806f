//! What a request asks of the overrides, and when it is done. Pure: everything is an argument.

use crate::ids::{Incarnation, PartitionId, Revision, WorkerId};
use crate::record::{Outcome, OverridesRecord, Pinned, Request, RequestRecord};

/// What must be known of a group to judge requests.
pub trait Sight {
    /// Whether there is such a partition.
    fn lists(&self, partition: &PartitionId) -> bool;
    /// The life of a worker that is there and means to stay.
    fn life_of(&self, worker: &WorkerId) -> Option<Incarnation>;
    /// The life of a worker that is there, whether or not it means to stay.
    fn present_life(&self, worker: &WorkerId) -> Option<Incarnation>;
    /// Whether this life is over, for certain.
    fn is_over(&self, worker: &WorkerId, life: Incarnation) -> bool;
    /// Those who are there and mean to stay.
    fn staying(&self) -> Vec<(WorkerId, Incarnation)>;
    /// Whether this partition is paused, and nobody holds it any more.
    fn is_free(&self, partition: &PartitionId) -> bool;
    /// Whether this life has let go of everything, and is to get nothing.
    fn holds_nothing(&self, worker: &WorkerId, life: Incarnation) -> bool;
    /// Whether this worker serves the partition, and no move of it is under way.
    fn serves(&self, worker: &WorkerId, partition: &PartitionId) -> bool;
}

/// Enters an open request into the overrides. To enter it twice is to enter it once, so that a
/// leader may go on where another one died. An error is the reason why it is refused.
pub fn enter(
    request: &Request,
    overrides: &mut OverridesRecord,
    sight: &dyn Sight,
) -> Result<(), String> {
    let listed = |partition: &PartitionId| {
        let known = sight.lists(partition);
        known
            .then_some(())
            .ok_or_else(|| format!("there is no partition {partition} in this group"))
    };
    let here = |worker: &WorkerId| {
        sight
            .life_of(worker)
            .ok_or_else(|| format!("{worker} is not in the group, or is leaving it"))
    };
    match request {
        Request::Drain { worker } => {
            let life = here(worker)?;
            let others = sight.staying();
            let replaced = others
                .iter()
                .any(|(other, life)| other != worker && !overrides.drains(other, *life));
            if !replaced {
                return Err(format!("nobody else is there to serve what {worker} has"));
            }
            overrides.drain(worker, life);
        }
        Request::Undrain { worker } => overrides.undrain(worker),
        // It names its life, so nothing has to be entered: carrying it out twice is carrying it out
        // once.
        Request::Evict {
            worker,
            incarnation,
            ..
        } => {
            let there = sight.present_life(worker) == Some(*incarnation);
            if !there && !sight.is_over(worker, *incarnation) {
                return Err(format!("there is no such life of {worker} in the group"));
            }
        }
        Request::Move { partition, worker } | Request::Pin { partition, worker } => {
            listed(partition)?;
            let life = here(worker)?;
            if overrides.drains(worker, life) {
                return Err(format!("{worker} is drained"));
            }
            let moved = matches!(request, Request::Move { .. });
            if moved && overrides.pauses(partition) {
                return Err(format!("partition {partition} is paused"));
            }
            overrides.pin(Pinned {
                partition: partition.clone(),
                worker: worker.clone(),
                incarnation: moved.then_some(life),
            });
        }
        Request::Unpin { partition } => overrides.unpin(partition),
        Request::Pause { partition } => {
            listed(partition)?;
            overrides.pause(partition);
        }
        Request::Resume { partition } => overrides.resume(partition),
        Request::Rebalance => {}
    }
    Ok(())
}

/// What became of a request that was entered; none while it is under way.
pub fn outcome(
    request: &Request,
    overrides: &OverridesRecord,
    sight: &dyn Sight,
) -> Option<Outcome> {
    let refused = |why: String| Some(Outcome::Refused { why });
    let done = |done: bool| done.then_some(Outcome::Done);
    let died = |worker: &WorkerId| {
        let by = format!("{worker} was gone before it had handed over everything");
        Some(Outcome::Overtaken { by })
    };
    match request {
        Request::Drain { worker } => match overrides.drained_life(worker) {
            Some(life) if sight.is_over(worker, life) => died(worker),
            Some(life) => done(sight.holds_nothing(worker, life)),
            // A drain ends with its life.
            None if sight.present_life(worker).is_none() => died(worker),
            None => refused(format!("{worker} was undrained, or came anew, meanwhile")),
        },
        Request::Evict {
            worker,
            incarnation,
            ..
        } => {
            let over = sight.is_over(worker, *incarnation) || crate::planted!(EvictDoneTooSoon);
            if !over && sight.present_life(worker) != Some(*incarnation) {
                return refused(format!("{worker} is not known any more"));
            }
            done(over)
        }
        Request::Pause { partition } => {
            if overrides.pauses(partition) {
                done(sight.is_free(partition) || !sight.lists(partition))
            } else {
                refused(format!("partition {partition} was resumed meanwhile"))
            }
        }
        Request::Move { partition, worker } => {
            let pin = overrides.pin_of(partition);
            let stands = pin.is_some_and(|pin| pin.worker == *worker);
            let gone = sight
                .life_of(worker)
                .is_none_or(|life| overrides.drains(worker, life));
            if !stands || gone {
                refused(format!(
                    "{worker} is gone or drained, or another request came between"
                ))
            } else if overrides.pauses(partition) || !sight.lists(partition) {
                refused(format!(
                    "partition {partition} was paused or removed meanwhile"
                ))
            } else {
                done(sight.serves(worker, partition))
            }
        }
        Request::Undrain { .. }
        | Request::Pin { .. }
        | Request::Unpin { .. }
        | Request::Resume { .. }
        | Request::Rebalance => Some(Outcome::Done),
    }
}

/// How the names of requests begin that a forced change of a checkpoint makes: to pause partitions
/// for itself, and to resume them.
pub const FORCED: &str = "forced-";

/// Who wants a partition paused, if an operator does: a forced change that asks, by a request that
/// was written there, to resume what it had paused for itself must not end that. What is over by an
/// operator's resume counts for nothing. `all` are the requests that are known: what became of each
/// was written after it was asked for.
pub fn wants_paused<'a>(
    all: impl Iterator<Item = (&'a str, Revision, &'a RequestRecord)>,
    partition: &PartitionId,
    asked: Revision,
) -> Option<&'a str> {
    let counts = |(name, at, record): &(&str, Revision, &RequestRecord)| {
        let stands = match record.outcome {
            Outcome::Open => *at < asked,
            Outcome::Accepted | Outcome::Done => true,
            Outcome::Refused { .. } | Outcome::Overtaken { .. } => false,
        };
        stands && !name.starts_with(FORCED)
    };
    let of_it = all.filter(counts).filter(|(_, _, record)| {
        let (Request::Pause { partition: of } | Request::Resume { partition: of }) =
            &record.request
        else {
            return false;
        };
        of == partition
    });
    let (_, _, newest) = of_it.max_by_key(|(_, at, _)| *at)?;
    matches!(newest.request, Request::Pause { .. }).then_some(newest.by.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Nonce;

    /// Two workers, of which the first serves `p` and does what it is told at once.
    #[derive(Default)]
    struct Group {
        gone: Vec<WorkerId>,
        busy: bool,
    }

    impl Sight for Group {
        fn lists(&self, partition: &PartitionId) -> bool {
            partition.as_str() == "p"
        }
        fn life_of(&self, worker: &WorkerId) -> Option<Incarnation> {
            let mut staying = self.staying().into_iter();
            staying.find(|(id, _)| id == worker).map(|(_, life)| life)
        }
        fn present_life(&self, worker: &WorkerId) -> Option<Incarnation> {
            self.life_of(worker)
        }
        fn is_over(&self, worker: &WorkerId, life: Incarnation) -> bool {
            self.gone.contains(worker) && life == Incarnation(7)
        }
        fn staying(&self) -> Vec<(WorkerId, Incarnation)> {
            let all = ["a", "b"].map(WorkerId::new).into_iter();
            all.filter(|id| !self.gone.contains(id))
                .map(|id| (id, Incarnation(7)))
                .collect()
        }
        fn is_free(&self, _: &PartitionId) -> bool {
            !self.busy
        }
        fn holds_nothing(&self, _: &WorkerId, _: Incarnation) -> bool {
            !self.busy
        }
        fn serves(&self, worker: &WorkerId, _: &PartitionId) -> bool {
            worker.as_str() == "a" && !self.busy
        }
    }

    fn worker(id: &str) -> WorkerId {
        WorkerId::new(id)
    }

    fn p() -> PartitionId {
        PartitionId::new("p")
    }

    fn entered(requests: &[Request], group: &Group) -> OverridesRecord {
        let mut overrides = OverridesRecord::default();
        for request in requests {
            enter(request, &mut overrides, group).expect("it can be done");
            let once = overrides.clone();
            enter(request, &mut overrides, group).expect("it can be done");
            assert_eq!(overrides, once, "{request:?} twice is once");
        }
        overrides
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_the_reason() {
        let group = Group::default();
        let mut overrides = OverridesRecord::default();
        let unknown = PartitionId::new("q");
        let there = Request::Move {
            partition: p(),
            worker: worker("b"),
        };
        for (request, why) in [
            (
                Request::Pause {
                    partition: unknown.clone(),
                },
                "no partition q",
            ),
            (
                Request::Drain {
                    worker: worker("c"),
                },
                "not in the group",
            ),
            (
                Request::Pin {
                    partition: unknown,
                    worker: worker("a"),
                },
                "no partition q",
            ),
        ] {
            let refused = enter(&request, &mut overrides, &group).expect_err("refused");
            assert!(refused.contains(why), "{refused:?} does not say {why:?}");
            assert_eq!(overrides, OverridesRecord::default());
        }
        overrides.drain(&worker("b"), Incarnation(7));
        let last = Request::Drain {
            worker: worker("a"),
        };
        assert!(enter(&last, &mut overrides, &group).is_err());
        assert!(enter(&there, &mut overrides, &group).is_err());
    }

    #[test]
    fn a_drain_is_done_when_nothing_is_held_and_ends_with_its_worker() {
        let drain = Request::Drain {
            worker: worker("a"),
        };
        let mut group = Group {
            busy: true,
            ..Group::default()
        };
        let overrides = entered(std::slice::from_ref(&drain), &group);
        assert_eq!(outcome(&drain, &overrides, &group), None);
        group.busy = false;
        assert_eq!(outcome(&drain, &overrides, &group), Some(Outcome::Done));
        group.gone.push(worker("a"));
        let gone = outcome(&drain, &overrides, &group);
        assert!(matches!(gone, Some(Outcome::Overtaken { .. })));
        let mut forgotten = overrides;
        forgotten.forget_lives(|id, life| group.is_over(id, life));
        assert_eq!(forgotten, OverridesRecord::default());
        let gone = outcome(&drain, &forgotten, &group);
        assert!(matches!(gone, Some(Outcome::Overtaken { .. })));
        group.gone.clear();
        let undrained = outcome(&drain, &forgotten, &group);
        assert!(matches!(undrained, Some(Outcome::Refused { .. })));
    }

    #[test]
    fn an_eviction_is_done_when_that_life_is_over() {
        let evict = |life| Request::Evict {
            worker: worker("a"),
            incarnation: Incarnation(life),
            stay_away: false,
        };
        let mut group = Group::default();
        let overrides = entered(&[evict(7)], &group);
        assert_eq!(overrides, OverridesRecord::default(), "nothing stays");
        assert_eq!(outcome(&evict(7), &overrides, &group), None);
        let mut next = overrides.clone();
        enter(&evict(9), &mut next, &group).expect_err("no such life yet");
        group.gone.push(worker("a"));
        assert_eq!(outcome(&evict(7), &overrides, &group), Some(Outcome::Done));
        entered(&[evict(7)], &group);
    }

    #[test]
    fn a_pause_that_is_taken_back_says_so() {
        let (pause, resume) = (
            Request::Pause { partition: p() },
            Request::Resume { partition: p() },
        );
        let group = Group::default();
        let overrides = entered(std::slice::from_ref(&pause), &group);
        assert_eq!(outcome(&pause, &overrides, &group), Some(Outcome::Done));
        let overrides = entered(&[pause.clone(), resume.clone()], &group);
        let taken_back = outcome(&pause, &overrides, &group);
        assert!(matches!(taken_back, Some(Outcome::Refused { .. })));
        assert_eq!(outcome(&resume, &overrides, &group), Some(Outcome::Done));
    }

    #[test]
    fn a_move_stays_for_one_life_and_a_pin_for_all() {
        let (partition, to) = (p(), worker("a"));
        let there = Request::Move {
            partition: partition.clone(),
            worker: to.clone(),
        };
        let pin = Request::Pin {
            partition,
            worker: to,
        };
        let mut group = Group::default();
        let moved = entered(std::slice::from_ref(&there), &group);
        assert_eq!(outcome(&there, &moved, &group), Some(Outcome::Done));
        let pinned = entered(&[there.clone(), pin], &group);
        group.gone.push(worker("a"));
        assert!(matches!(
            outcome(&there, &moved, &group),
            Some(Outcome::Refused { .. })
        ));
        for (mut overrides, left) in [(moved, 0), (pinned, 1)] {
            overrides.forget_lives(|id, life| group.is_over(id, life));
            assert_eq!(overrides.pinned.len(), left);
        }
    }

    #[test]
    fn a_forced_change_resumes_nothing_that_an_operator_wants_paused() {
        let asked = |request: Request, outcome: Outcome| RequestRecord {
            request,
            by: "bob".into(),
            why: String::new(),
            at: 1,
            outcome,
            nonce: Nonce(1),
        };
        let pause = |outcome| asked(Request::Pause { partition: p() }, outcome);
        let resume = |outcome| asked(Request::Resume { partition: p() }, outcome);
        let refused = || Outcome::Refused { why: "no".into() };
        let wants = |all: &[(&str, u64, RequestRecord)]| {
            let all = all
                .iter()
                .map(|(name, at, record)| (*name, Revision(*at), record));
            wants_paused(all, &p(), Revision(10)).is_some()
        };
        for (outcome, at, wanted) in [
            (Outcome::Open, 9, true),
            (Outcome::Open, 11, false),
            (Outcome::Accepted, 11, true),
            (Outcome::Done, 11, true),
            (refused(), 9, false),
        ] {
            let mine = pause(outcome.clone());
            assert_eq!(wants(&[("bobs", at, mine.clone())]), wanted, "{outcome:?}");
            assert!(!wants(&[("forced-bobs", at, mine)]), "for a forced change");
        }
        let first = ("bobs", 3, pause(Outcome::Done));
        let over = ("bobs-too", 5, resume(Outcome::Done));
        assert!(!wants(&[first.clone(), over.clone()]));
        assert!(wants(&[over.clone(), ("again", 7, pause(Outcome::Done))]));
        assert!(wants(&[first.clone(), ("bobs-too", 5, resume(refused()))]));
        let forced = ("forced-x", 5, resume(Outcome::Done));
        assert!(
            wants(&[first, forced]),
            "nothing that a forced change may end"
        );
        let other = PartitionId::new("q");
        let all = [("bobs", 3, pause(Outcome::Done))];
        let all = all
            .iter()
            .map(|(name, at, one)| (*name, Revision(*at), one));
        assert_eq!(wants_paused(all, &other, Revision(10)), None);
    }
}

//! The list of timed faults that a seed stands for, drawn before the run begins.
//!
//! A scenario is plain data: a failing one is shrunk by leaving faults out, or making them
//! shorter, and running the same seed again.

use parti_core::io::{Retention, SourceKind};
use parti_core::rng::Rng;
use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Victim, Wish, WriteKind};
use crate::setup::{Class, FAULTS_UNTIL, MILLI, Micros, SECOND, Setup};

/// A fault and when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// When.
    pub at: Micros,
    /// What.
    pub fault: Fault,
}

/// The faults of this seed, in order of time.
pub fn of(setup: &Setup) -> Vec<Timed> {
    let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_0002);
    let mut draw = Draw {
        setup,
        rng: &mut rng,
    };
    let mut faults = match setup.class {
        Class::Mixed => draw.mixed(),
        Class::Handoff => draw.handoff(),
        Class::Polite => draw.polite(),
        Class::Rolling => draw.rolling(),
        Class::Outage => draw.outage(),
        Class::StoreLoss => draw.store_loss(),
    };
    faults.extend(stop_of_all(setup));
    faults.extend(requests(setup));
    faults.extend(evictions(setup));
    faults.extend(moves_of_consumers(setup));
    faults.extend(forced_change(setup));
    faults.extend(overtaken(setup));
    faults.sort_by_key(|timed| timed.at);
    faults
}

/// Now and then a whole group is told to stop at once. From lots of its own, so that what a seed
/// stood for before stays as it was.
fn stop_of_all(setup: &Setup) -> Option<Timed> {
    let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_0006);
    let often = match setup.class {
        Class::Polite => 0.3,
        Class::Mixed | Class::Handoff | Class::Rolling => 0.05,
        Class::Outage | Class::StoreLoss => 0.0,
    };
    if !rng.chance(often) {
        return None;
    }
    let at = rng.between(2 * SECOND, FAULTS_UNTIL);
    // Nobody comes back before the last one is gone.
    let restart_after = rng
        .chance(0.8)
        .then(|| rng.between(3 * SECOND, 12 * SECOND));
    Some(Timed {
        at,
        fault: Fault::StopAll { restart_after },
    })
}

/// Now and then operators ask for things. From lots of their own, too.
fn requests(setup: &Setup) -> Vec<Timed> {
    let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_0007);
    let calm = matches!(setup.class, Class::Outage | Class::StoreLoss);
    if calm || !rng.chance(0.25) {
        return Vec::new();
    }
    let one = |_| {
        let wish = match rng.below(20) {
            0..=3 => Wish::Drain,
            4..=5 => Wish::Undrain,
            6..=8 => Wish::Move,
            9..=11 => Wish::Pin,
            12..=13 => Wish::Unpin,
            14..=16 => Wish::Pause,
            17..=18 => Wish::Resume,
            _ => Wish::Rebalance,
        };
        let fault = Fault::Ask {
            wish,
            machine: rng.below(setup.machines.len() as u64) as usize,
            partition: rng.below(4) as usize,
        };
        let at = rng.between(3 * SECOND, FAULTS_UNTIL);
        Timed { at, fault }
    };
    (0..8).map(one).collect()
}

/// More rarely they end somebody's life.
fn evictions(setup: &Setup) -> Vec<Timed> {
    let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_0008);
    let calm = matches!(setup.class, Class::Outage | Class::StoreLoss);
    if calm || !rng.chance(0.2) {
        return Vec::new();
    }
    let one = |_| {
        let wish = match rng.below(3) {
            0 => Wish::Dismiss,
            _ => Wish::Evict,
        };
        let fault = Fault::Ask {
            wish,
            machine: rng.below(setup.machines.len() as u64) as usize,
            partition: 0,
        };
        let at = rng.between(3 * SECOND, FAULTS_UNTIL);
        Timed { at, fault }
    };
    (0..3).map(one).collect()
}

/// Consumers whose sessions are hosted go from host to host.
fn moves_of_consumers(setup: &Setup) -> Vec<Timed> {
    if !setup.hosted() {
        return Vec::new();
    }
    let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_0009);
    let one = |_| {
        let fault = Fault::Rehost {
            machine: rng.below(setup.machines.len() as u64) as usize,
            host_lives: rng.chance(0.5),
            stolen: rng.chance(0.2),
        };
        let at = rng.between(3 * SECOND, FAULTS_UNTIL);
        Timed { at, fault }
    };
    (0..6).map(one).collect()
}

/// Rarely they change a checkpoint by force, over an owner that does not answer.
fn forced_change(setup: &Setup) -> Option<Timed> {
    let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_000a);
    let calm = matches!(setup.class, Class::Outage | Class::StoreLoss);
    if calm || !rng.chance(0.08) {
        return None;
    }
    let ttl = setup.ttl();
    Some(Timed {
        at: rng.between(5 * SECOND, FAULTS_UNTIL),
        fault: Fault::Force {
            partition: rng.below(setup.partitions.len() as u64) as usize,
            length: rng.between(2 * ttl, 3 * ttl),
        },
    })
}

/// Now and then handlers are so slow that retention comes past what waits for them.
fn overtaken(setup: &Setup) -> Vec<Timed> {
    let mut rng = Rng::new(setup.seed ^ 0x7061_7274_6921_000b);
    let limits = setup.source == SourceKind::Stream(Retention::Limits);
    let calm = matches!(setup.class, Class::Outage | Class::StoreLoss);
    if !limits || calm || setup.traffic.killers > 0 || !rng.chance(0.2) {
        return Vec::new();
    }
    let length = rng.between(15 * SECOND, 25 * SECOND);
    let from = rng.between(8 * SECOND, FAULTS_UNTIL - length);
    // Once, after they stood still; or again and again, while they go on.
    let delay = rng.between(SECOND / 10, 5 * SECOND);
    let times = rng.between(1, 8);
    let every = length / times;
    let keep = rng.below(40);
    let retention = (1..=times).map(|time| Timed {
        at: from + time * every - rng.below(every.min(3 * SECOND)),
        fault: Fault::Retention { keep },
    });
    let slow = (0..setup.initial).map(|machine| Timed {
        at: from,
        fault: Fault::SlowHandlers {
            machine,
            length,
            delay,
        },
    });
    slow.chain(retention).collect()
}

struct Draw<'a> {
    setup: &'a Setup,
    rng: &'a mut Rng,
}

impl Draw<'_> {
    fn mixed(&mut self) -> Vec<Timed> {
        let count = self.rng.below(13);
        let mut faults: Vec<Timed> = (0..count)
            .map(|_| Timed {
                at: self.moment(0),
                fault: self.any(),
            })
            .collect();
        if self.rng.chance(0.15) {
            faults.extend(self.zombie());
        }
        faults
    }

    /// A process falls silent in the middle of slow handler calls, loses its session, and may well
    /// get the same partitions back before they end.
    fn zombie(&mut self) -> [Timed; 2] {
        let machine = self.initial();
        let at = self.moment(5 * SECOND).min(FAULTS_UNTIL - 3 * SECOND);
        let slow = Fault::SlowHandlers {
            machine,
            length: self.rng.between(2 * SECOND, 20 * SECOND),
            delay: self.rng.between(10 * SECOND, 40 * SECOND),
        };
        let ttl = self.setup.ttl();
        let length = ttl + self.rng.below(ttl);
        let silent = if self.rng.chance(0.5) {
            Fault::Pause { machine, length }
        } else {
            Fault::Partition { machine, length }
        };
        let silent_at = at + self.rng.between(500 * MILLI, 3 * SECOND);
        [
            Timed { at, fault: slow },
            Timed {
                at: silent_at,
                fault: silent,
            },
        ]
    }

    fn overthrow(&mut self) -> Fault {
        let ttl = self.setup.ttl();
        Fault::Overthrow {
            nth: self.rng.between(1, 6) as u32,
            frozen: self.rng.chance(0.5),
            length: ttl + self.rng.below(2 * ttl),
        }
    }

    /// Membership changes start moves; crashes are armed shortly before, so that they hit a step
    /// of the handoff. A little of anything is mixed in.
    fn handoff(&mut self) -> Vec<Timed> {
        let mut faults = Vec::new();
        let mut at = self.rng.between(3 * SECOND, 14 * SECOND);
        while at < FAULTS_UNTIL {
            let change = self.membership();
            faults.push(Timed { at, fault: change });
            let armed_at = at + self.rng.below(SECOND);
            if self.rng.chance(0.8) {
                let fault = if self.rng.chance(0.25) {
                    self.overthrow()
                } else {
                    self.crash_at_write()
                };
                faults.push(Timed {
                    at: armed_at.min(FAULTS_UNTIL),
                    fault,
                });
            }
            if self.rng.chance(0.3) {
                let fault = self.any();
                faults.push(Timed {
                    at: armed_at.min(FAULTS_UNTIL),
                    fault,
                });
            }
            at += self.rng.between(3 * SECOND, 15 * SECOND);
        }
        faults
    }

    fn polite(&mut self) -> Vec<Timed> {
        let count = self.rng.between(1, 5);
        let mut faults = Vec::new();
        for _ in 0..count {
            let at = self.moment(5 * SECOND);
            let fault = match self.rng.below(4) {
                3 => Fault::ListChange {
                    salt: self.rng.below(1 << 32),
                },
                0 => Fault::Stop {
                    machine: self.initial(),
                    restart_after: self.restart(0.6),
                },
                1 => Fault::Join {
                    machine: self.spare(),
                },
                _ => Fault::Refresh {
                    machine: self.initial(),
                },
            };
            faults.push(Timed { at, fault });
        }
        faults
    }

    fn rolling(&mut self) -> Vec<Timed> {
        let gap = self.rng.between(SECOND, 10 * SECOND);
        let polite = self.rng.chance(0.6);
        let first = self.rng.between(8 * SECOND, 15 * SECOND);
        let restart_after = Some(self.rng.between(100 * MILLI, 4 * SECOND));
        let mut faults: Vec<Timed> = (0..self.setup.initial)
            .map(|machine| {
                let at = (first + gap * machine as u64).min(FAULTS_UNTIL);
                let fault = if polite {
                    Fault::Stop {
                        machine,
                        restart_after,
                    }
                } else {
                    Fault::Crash {
                        machine,
                        restart_after,
                    }
                };
                Timed { at, fault }
            })
            .collect();
        if self.rng.chance(0.3) {
            faults.push(Timed {
                at: self.moment(0),
                fault: self.any(),
            });
        }
        faults
    }

    fn outage(&mut self) -> Vec<Timed> {
        let mut faults = Vec::new();
        let mut at = self.rng.between(18 * SECOND, 24 * SECOND);
        while at < FAULTS_UNTIL - 8 * SECOND {
            let fault = match self.rng.below(4) {
                0 => Fault::Partition {
                    machine: self.initial(),
                    // Shorter than what a lease leaves over after a heartbeat just missed it.
                    length: self.setup.ttl().saturating_sub(2 * self.setup.heartbeat()) / 3,
                },
                1 => Fault::ConflictStorm {
                    length: 3 * SECOND,
                    percent: 40,
                },
                _ => Fault::Outage {
                    length: self.rng.between(4 * SECOND, 8 * SECOND),
                },
            };
            faults.push(Timed { at, fault });
            at += self.rng.between(12 * SECOND, 20 * SECOND);
        }
        faults
    }

    fn store_loss(&mut self) -> Vec<Timed> {
        let at = self.rng.between(12 * SECOND, 30 * SECOND);
        let fault = if self.rng.chance(0.5) {
            Fault::ReplaceStore
        } else {
            Fault::RollBackStore {
                writes: self.rng.between(1, 200),
            }
        };
        vec![Timed { at, fault }]
    }

    /// Some moment at which a fault may begin.
    fn moment(&mut self, earliest: Micros) -> Micros {
        self.rng.between(earliest + 200 * MILLI, FAULTS_UNTIL)
    }

    fn any(&mut self) -> Fault {
        let machine = self.machine();
        match self.rng.below(35) {
            0..=2 => Fault::Crash {
                machine,
                restart_after: self.restart(0.8),
            },
            3..=5 => Fault::Pause {
                machine,
                length: self.pause(),
            },
            6 => Fault::Suspend {
                machine,
                length: self.pause(),
            },
            7..=8 => self.membership(),
            9 => Fault::Twin {
                machine: self.initial(),
            },
            10..=11 => self.crash_at_write(),
            12..=13 => Fault::Outage {
                length: self.rng.between(4 * SECOND, 8 * SECOND),
            },
            14..=15 => Fault::Partition {
                machine,
                length: self.span(),
            },
            16 => Fault::SlowStore {
                machine,
                length: self.span(),
                delay: self.rng.between(100 * MILLI, 2 * SECOND),
            },
            17..=18 => Fault::LossyStore {
                machine,
                length: self.span(),
                percent: self.percent(),
            },
            19..=20 => Fault::LateWrites {
                machine,
                length: self.span(),
                percent: self.percent(),
                by: self.rng.between(10 * MILLI, 8 * SECOND),
            },
            21 => Fault::StaleReads {
                machine,
                length: self.rng.between(SECOND, 45 * SECOND),
            },
            22 => Fault::ConflictStorm {
                length: self.span(),
                percent: self.percent(),
            },
            23 => Fault::BreakWatches {
                machine,
                gap: self.rng.between(50 * MILLI, 5 * SECOND),
            },
            24 => self.watch_trouble(machine),
            25..=26 => Fault::SourceDown {
                machine,
                length: self.rng.between(50 * MILLI, 6 * SECOND),
            },
            27 => Fault::ConsumerLeaderChange { machine },
            28 => Fault::LaggingReplica {
                length: self.span(),
                behind: self.rng.between(1, 50),
            },
            29 => self.overthrow(),
            30 => Fault::LostDeliveries {
                machine,
                length: self.span(),
                percent: self.percent(),
            },
            31 if self.setup.traffic.killers == 0 => Fault::Retention {
                keep: self.rng.below(60),
            },
            32 => Fault::ListChange {
                salt: self.rng.below(1 << 32),
            },
            _ => self.rest(machine),
        }
    }

    fn watch_trouble(&mut self, machine: usize) -> Fault {
        let length = self.span();
        if self.rng.chance(0.5) {
            Fault::DuplicateWatches { machine, length }
        } else {
            Fault::DelayWatches {
                machine,
                length,
                delay: self.rng.between(100 * MILLI, 5 * SECOND),
            }
        }
    }

    fn rest(&mut self, machine: usize) -> Fault {
        match self.rng.below(3) {
            0 => Fault::ClockJump { machine },
            1 => Fault::Refresh { machine },
            _ => Fault::SlowHandlers {
                machine,
                length: self.span(),
                delay: self.rng.between(100 * MILLI, 15 * SECOND),
            },
        }
    }

    fn membership(&mut self) -> Fault {
        match self.rng.below(5) {
            0..=1 => Fault::Join {
                machine: self.spare(),
            },
            2 => Fault::Crash {
                machine: self.machine(),
                restart_after: self.restart(0.8),
            },
            _ => Fault::Stop {
                machine: self.machine(),
                restart_after: self.restart(0.7),
            },
        }
    }

    fn crash_at_write(&mut self) -> Fault {
        let kind = match self.rng.below(10) {
            0 => WriteKind::Leader,
            1 => WriteKind::Plan,
            2..=3 => WriteKind::Worker,
            4..=6 => WriteKind::Assignment,
            _ => WriteKind::Partition,
        };
        let victim = match self.rng.below(4) {
            0 => Victim::Writer,
            1 => Victim::Subject,
            2 => Victim::OldOwner,
            _ => Victim::Leader,
        };
        Fault::CrashAtWrite {
            victim,
            kind,
            nth: self.rng.between(1, 12) as u32,
            before: self.rng.chance(0.4),
            restart_after: self.restart(0.8),
        }
    }

    fn restart(&mut self, chance: f64) -> Option<Micros> {
        let after = self.rng.between(50 * MILLI, 12 * SECOND);
        self.rng.chance(chance).then_some(after)
    }

    /// From a tenth of the lease to ten times as long, evenly on a logarithmic scale.
    fn pause(&mut self) -> Micros {
        let factor = 10f64.powf(self.rng.unit() * 2.0 - 1.0);
        (self.setup.ttl() as f64 * factor) as Micros
    }

    fn span(&mut self) -> Micros {
        let exponent = self.rng.unit() * 2.3;
        (100_000.0 * 10f64.powf(exponent)) as Micros
    }

    fn percent(&mut self) -> u8 {
        self.rng.between(5, 80) as u8
    }

    fn machine(&mut self) -> usize {
        self.rng.below(self.setup.machines.len() as u64) as usize
    }

    fn initial(&mut self) -> usize {
        self.rng.below(self.setup.initial as u64) as usize
    }

    fn spare(&mut self) -> usize {
        let spare = self.setup.machines.len() - self.setup.initial;
        self.setup.initial + self.rng.below(spare as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_stands_for_the_same_scenario() {
        for seed in 0..200 {
            let first = of(&Setup::of(seed));
            assert_eq!(first, of(&Setup::of(seed)));
            assert!(
                first.iter().all(|timed| timed.at <= FAULTS_UNTIL),
                "seed {seed}"
            );
            assert!(first.is_sorted_by_key(|timed| timed.at));
        }
    }

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let mut seen = [0u32; crate::fault::KINDS.len()];
        for seed in 0..2_000 {
            for timed in of(&Setup::of(seed)) {
                seen[timed.fault.kind()] += 1;
            }
        }
        for (kind, count) in seen.iter().enumerate() {
            assert!(*count > 0, "{} was never drawn", crate::fault::KINDS[kind]);
        }
    }
}

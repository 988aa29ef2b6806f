//! Asking the group for something: what, why, and whether that is meant. Esc ends it at any time.
//!
//! ```text
//!   d e p u b ───────────────────────▶ Why ── Enter ──▶ Sure ── y ──▶ Effect::Request
//!   m ──▶ Where ── letter, Enter ──▶───┘                 └ y, for an eviction          │
//!   Input::Answer ◀── some time later, while everything else goes on ◀────────────────┘
//! ```

use parti::core::record::{Request, SessionStatus};
use parti::inspect::{PartitionView, WorkerView};
use parti::operate::{self, CarriedOut, Reason};
use parti::{PartitionId, WorkerId};

use super::app::{App, Effect, Key, Mode, Pane, step};
use super::events::Told;
use super::list::{self, Health};

/// So many of our own lines are kept.
const TOLD: usize = 100;

/// How far a request is that is not yet asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asking {
    /// A worker is being chosen for a partition.
    Where {
        /// What is to be moved.
        partition: PartitionId,
        /// The one that the cursor is at.
        worker: WorkerId,
    },
    /// A reason is being typed.
    Why {
        /// For this.
        request: Request,
        /// As far as it is typed.
        why: String,
    },
    /// It waits for a yes.
    Sure {
        /// What is to be done.
        request: Request,
        /// Why.
        why: String,
        /// So many times.
        times: u8,
    },
}

/// A request that was asked for, and is not answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What was asked for.
    pub request: Request,
    /// Since when.
    pub since_ms: u64,
}

impl App {
    /// A key that asks for something was pressed.
    pub(super) fn wish(&mut self, key: char) {
        let wished = match key {
            'd' => self.focused_worker().map(|worker| {
                let id = worker.id.clone();
                match worker.drained {
                    true => why(Request::Undrain { worker: id }),
                    false => why(Request::Drain { worker: id }),
                }
            }),
            'e' => self.focused_worker().map(|worker| {
                why(Request::Evict {
                    worker: worker.id.clone(),
                    incarnation: worker.incarnation,
                    stay_away: false,
                })
            }),
            'p' => self.focused_partition().map(|own| {
                let partition = own.id.clone();
                match own.paused {
                    true => why(Request::Resume { partition }),
                    false => why(Request::Pause { partition }),
                }
            }),
            'm' => self.focused_partition().and_then(|own| {
                let first = self.targets(own).into_iter().next();
                let worker = first.ok_or("there is no other worker that could serve it")?;
                Ok(Asking::Where {
                    partition: own.id.clone(),
                    worker,
                })
            }),
            'u' => self.focused_partition().and_then(|own| {
                let partition = own.id.clone();
                match own.pinned_to {
                    Some(_) => Ok(why(Request::Unpin { partition })),
                    None => Err("it is pinned to no worker"),
                }
            }),
            _ => Ok(why(Request::Rebalance)),
        };
        match wished {
            Ok(Asking::Why { request, .. }) if self.awaits(&request) => {
                self.say(Health::Odd, format!("{request}: already under way"));
            }
            Ok(asking) => self.mode = Mode::Ask(asking),
            Err(reason) => self.say(Health::Odd, reason.to_owned()),
        }
    }

    /// Nothing is asked of what no cursor stands at.
    fn focused_worker(&self) -> Result<&WorkerView, &'static str> {
        if self.pane != Pane::Workers {
            return Err("that is for a worker: Tab to them, and choose one");
        }
        self.chosen_worker().ok_or("no worker is chosen")
    }

    fn focused_partition(&self) -> Result<&PartitionView, &'static str> {
        if self.pane != Pane::Partitions {
            return Err("that is for a partition: Tab to them, and choose one");
        }
        self.chosen_partition().ok_or("no partition is chosen")
    }

    /// Who could serve a partition instead of its owner.
    fn targets(&self, partition: &PartitionView) -> Vec<WorkerId> {
        let owner = partition.owner.as_ref().filter(|_| partition.is_served());
        let could = |worker: &&WorkerView| {
            worker.status == SessionStatus::Live && !worker.drained && owner != Some(&worker.id)
        };
        let workers = self.group.workers.iter().filter(could);
        let mut ids: Vec<WorkerId> = workers.map(|worker| worker.id.clone()).collect();
        ids.sort_by_cached_key(|id| list::natural(id.as_str()));
        ids
    }

    /// Whether just this was asked for and is not answered.
    fn awaits(&self, request: &Request) -> bool {
        self.asked.iter().any(|asked| asked.request == *request)
    }

    /// A key while something is about to be asked for.
    pub(super) fn ask_key(&mut self, asking: Asking, key: Key) -> Option<Effect> {
        self.mode = match (asking, key) {
            (_, Key::Escape) | (Asking::Sure { .. }, Key::Char('n' | 'N')) => {
                self.say(Health::Odd, "nothing was asked for".to_owned());
                Mode::Look
            }
            (Asking::Where { partition, worker }, key) => {
                Mode::Ask(self.where_key(partition, worker, key))
            }
            (Asking::Why { request, why }, Key::Enter) => {
                let times = match request {
                    Request::Evict { .. } => 2,
                    _ => 1,
                };
                Mode::Ask(Asking::Sure {
                    request,
                    why,
                    times,
                })
            }
            (Asking::Why { request, mut why }, key) => {
                match key {
                    Key::Backspace => drop(why.pop()),
                    Key::Char(letter) => {
                        why.push(letter);
                        if !is_taken(&why) {
                            why.pop();
                        }
                    }
                    _ => {}
                }
                Mode::Ask(Asking::Why { request, why })
            }
            (
                Asking::Sure {
                    request,
                    why,
                    times,
                },
                Key::Char('y' | 'Y'),
            ) => {
                if times <= 1 {
                    self.mode = Mode::Look;
                    let since_ms = self.now_ms;
                    self.asked.push(Asked {
                        request: request.clone(),
                        since_ms,
                    });
                    return Some(Effect::Request(request, why.trim().to_owned()));
                }
                let times = times - 1;
                Mode::Ask(Asking::Sure {
                    request,
                    why,
                    times,
                })
            }
            (asking @ Asking::Sure { .. }, _) => Mode::Ask(asking),
        };
        None
    }

    fn where_key(&mut self, partition: PartitionId, worker: WorkerId, key: Key) -> Asking {
        let view = self.group.partition(&partition);
        let targets = view.map(|view| self.targets(view)).unwrap_or_default();
        let asks = |partition, worker| why(Request::Move { partition, worker });
        let key = match key {
            Key::Enter => return asks(partition, worker),
            Key::Char(letter) => {
                let mut meant = targets.iter();
                return match meant.find(|id| self.marks.of(id).is(letter)) {
                    Some(meant) => asks(partition, meant.clone()),
                    None => Asking::Where { partition, worker },
                };
            }
            Key::Left => Key::Up,
            Key::Right => Key::Down,
            key => key,
        };
        let place = targets.iter().position(|id| *id == worker).unwrap_or(0);
        let place = step(key, place, targets.len(), 1, 10);
        // Whoever went meanwhile stays named: the group refuses it and says why.
        let worker = targets.get(place).cloned().unwrap_or(worker);
        Asking::Where { partition, worker }
    }

    /// What became of a request.
    pub(super) fn answer(
        &mut self,
        request: &Request,
        outcome: Result<CarriedOut, operate::Error>,
    ) {
        self.asked.retain(|asked| asked.request != *request);
        let (health, text) = match outcome {
            Ok(done) => {
                let took = done.took_ms;
                (Health::Good, format!("{request}: done after {took} ms"))
            }
            Err(operate::Error::Refused(why)) => (Health::Bad, format!("refused: {why}")),
            Err(operate::Error::Unfinished(why)) => (Health::Odd, why),
            Err(error) => (Health::Bad, format!("{request}: {error}")),
        };
        let told = Told {
            at_ms: self.now_ms,
            health,
            text: text.clone(),
        };
        self.tell(told);
        self.say(health, text);
    }

    /// A line of our own among what happened.
    fn tell(&mut self, told: Told) {
        if self.back > 0
            && told
                .text
                .contains(self.find[Pane::Events as usize].as_str())
        {
            self.back += 1;
        }
        let more = (self.told.len() + 1).saturating_sub(TOLD);
        self.told.drain(..more);
        self.told.push(told);
    }

    /// In the lowest line, until the next key.
    fn say(&mut self, health: Health, text: String) {
        self.said = Some((health, text));
    }
}

/// Whether the group would take this reason: nobody is to find out after his yes.
fn is_taken(why: &str) -> bool {
    let reason = Reason {
        by: "somebody".to_owned(),
        why: why.to_owned(),
    };
    reason.check().is_ok()
}

fn why(request: Request) -> Asking {
    Asking::Why {
        request,
        why: String::new(),
    }
}

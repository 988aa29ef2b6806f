//! Consumers whose sessions are hosted: they move from host to host, and others show their badges.
//!
//! ```text
//!   consumer leaves ──▶ its calls end nowhere ──▶ a process elsewhere goes on with the session
//!         old host: dead, or alive and deserted: it renews and writes until it finds out, or
//!         has heard nothing for a TTL
//! ```

use parti_core::ids::Badge;
use parti_core::session::Belonging;

use super::{Happening, World};
use crate::facts::{Proc, Seen};

impl World {
    /// Whose session a new process has.
    pub(super) fn belonging(&mut self) -> Belonging {
        if !self.setup.hosted() {
            return Belonging::Own;
        }
        let (high, low) = (self.lots.next_u64(), self.lots.next_u64());
        Belonging::Hosted(Badge(u128::from(high) << 64 | u128::from(low)))
    }

    /// A consumer leaves its host, and goes on at another; or somebody without its badge tries to.
    pub(super) fn rehost(&mut self, machine: usize, host_lives: bool, stolen: bool) -> bool {
        let Some(proc) = self.running_on(machine) else {
            return false;
        };
        let process = &self.procs[proc];
        let free = |link: &super::link::Link| link.running.is_none() && !link.starting;
        let (Some(number), Some(badge), false, Some(free)) = (
            self.number_of(proc),
            process.belongs.badge(),
            process.deserted,
            self.links.iter().position(free),
        ) else {
            return false;
        };
        if stolen {
            let Belonging::Hosted(made_up) = self.belonging() else {
                return false;
            };
            self.start(free, None, Belonging::Continued(made_up, number));
            if let Some(thief) = self.running_on(free) {
                self.procs[thief].deserted = true;
            }
            return true;
        }
        self.trace.say(self.now, || {
            format!("the consumer of process {proc} goes to machine {free}")
        });
        self.cut_calls(proc);
        self.procs[proc].deserted = true;
        self.jury.see(self.now, Seen::Deserted { proc });
        if host_lives {
            let at = self.now + self.setup.ttl();
            self.queue.push(at, Happening::GivesUp { proc });
        } else {
            self.crash(proc, None);
        }
        self.start(free, None, Belonging::Continued(badge, number));
        true
    }

    /// The number in the id of a process.
    pub(super) fn number_of(&self, proc: Proc) -> Option<u64> {
        let worker = self.procs[proc].worker.as_ref()?;
        worker.id()?.as_str().rsplit('-').next()?.parse().ok()
    }
}

//! The producers: keyed messages at a modest rate, each with a nature of its own.

use super::calls::Nature;
use super::link::short_latency;
use super::{Happening, World};
use crate::facts::Seen;
use crate::model::{Source, log::Log};
use crate::setup::{Micros, SECOND, TRAFFIC_UNTIL};
use parti_core::worker::Event;

impl World {
    pub(super) fn publish(&mut self) {
        self.publish_one();
        let left = self.setup.traffic.messages.saturating_sub(self.published);
        if left == 0 || self.now >= TRAFFIC_UNTIL {
            return;
        }
        let mean = (TRAFFIC_UNTIL - self.now) / left;
        let at = self.now + self.lots.below(2 * mean + 1);
        if at < TRAFFIC_UNTIL {
            self.queue.push(at, Happening::Publish);
        }
    }

    pub(super) fn publish_one(&mut self) {
        self.published += 1;
        let partition = self.lots.below(self.setup.partitions.len() as u64) as usize;
        let key = self.lots.below(self.setup.traffic.keys);
        let nature = self.draw_nature();
        let id = &self.setup.partitions[partition].id;
        let offset = self.source.publish(self.now, id, key, 100);
        self.natures[partition].push(nature);
        let killer = matches!(nature, Nature::Kills);
        self.trace.say(self.now, || {
            format!("published {id}/{offset} key {key} {nature:?}")
        });
        self.jury.see(
            self.now,
            Seen::Published {
                partition,
                offset,
                key,
                killer,
            },
        );
        if matches!(self.source, Source::Log(_)) {
            self.tell_of_growth(partition);
        }
        self.pump_source();
    }

    fn draw_nature(&mut self) -> Nature {
        let traffic = self.setup.traffic;
        let killer_at = traffic.messages / 2;
        if traffic.killers > 0 && self.published == killer_at {
            return Nature::Kills;
        }
        let draw = self.lots.unit();
        let panics = self.lots.chance(0.3);
        if draw < traffic.poison {
            Nature::Fails {
                times: u32::MAX,
                panics,
            }
        } else if draw < traffic.poison + traffic.failing {
            let times = self
                .lots
                .between(1, u64::from(self.setup.config.jetstream.max_deliver))
                as u32;
            Nature::Fails { times, panics }
        } else if draw < traffic.poison + traffic.failing + traffic.slow {
            Nature::Slow(self.lots.between(SECOND, 20 * SECOND))
        } else {
            Nature::Good
        }
    }

    /// Readers of the embedded log hear of it at once, or a little later.
    fn tell_of_growth(&mut self, partition: usize) {
        let id = self.setup.partitions[partition].id.clone();
        for machine in 0..self.links.len() {
            let Some(proc) = self.links[machine].running else {
                continue;
            };
            if self.links[machine].source_cut.now(self.now).is_some() {
                continue;
            }
            let late: Micros = if self.lots.chance(0.02) {
                self.lots.below(3 * SECOND)
            } else {
                0
            };
            let at = self.now + short_latency(&mut self.net) + late;
            let event = Event::Source(Log::grew(&id));
            self.queue.push(at, Happening::Deliver { proc, event });
        }
    }
}

//! Every message accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use parti::source::log::TopicInfo;
use serde_json::{Value, json};

use super::crew::Line;
use super::{Deed, view};
use crate::exit::Failure;

/// One message as a worker handled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Handled {
    epoch: u64,
    /// The order in which its process told it.
    place: usize,
    offset: u64,
    at: Timestamp,
}

/// Something that was done to the group, and how long until all was served again.
#[derive(Debug)]
struct Event {
    deed: Deed,
    who: String,
    at: Timestamp,
    settled: Option<Duration>,
}

/// What was found, once everything is over.
#[derive(Debug, Default)]
struct Findings {
    produced: u64,
    lost: u64,
    waiting: u64,
    repeated: u64,
    out_of_order: u64,
    pause_moved: Option<Duration>,
    pause_unmoved: Option<Duration>,
}

/// The account.
#[derive(Debug)]
pub struct Audit {
    partitions: u32,
    handled: BTreeMap<String, Vec<Handled>>,
    count: u64,
    /// Different offsets handled, by partition.
    offsets: BTreeMap<String, BTreeSet<u64>>,
    owners: BTreeMap<String, String>,
    /// Partitions that an operator took from all workers: what comes then waits, and is not lost.
    excused: BTreeSet<String>,
    events: Vec<Event>,
    findings: Findings,
}

impl Audit {
    /// An empty account.
    pub fn new(partitions: u32) -> Self {
        Self {
            partitions,
            handled: BTreeMap::new(),
            count: 0,
            offsets: BTreeMap::new(),
            owners: BTreeMap::new(),
            excused: BTreeSet::new(),
            events: Vec::new(),
            findings: Findings::default(),
        }
    }

    /// Takes in what a worker said.
    pub fn take(&mut self, line: &Line) {
        let event = &line.event;
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let partition = text("partition");
        let Ok(at) = text("at").parse::<Timestamp>() else {
            return;
        };
        match event["event"].as_str() {
            Some("taken") => {
                let worker = text("worker");
                self.owners.insert(partition, worker.clone());
                self.settle(&worker, at);
            }
            Some("released" | "fenced") if self.owners.get(&partition) == Some(&text("worker")) => {
                self.owners.remove(&partition);
            }
            Some("message") => {
                let number = |field: &str| event[field].as_u64().unwrap_or(u64::MAX);
                let place = self.count as usize;
                self.count += 1;
                let offsets = self.offsets.entry(partition.clone()).or_default();
                offsets.insert(number("offset"));
                self.handled.entry(partition).or_default().push(Handled {
                    epoch: number("epoch"),
                    place,
                    offset: number("offset"),
                    at,
                });
            }
            _ => {}
        }
    }

    /// Somebody took a partition: that may have been the last one after what was done last.
    fn settle(&mut self, taker: &str, at: Timestamp) {
        let all_taken = self.all_taken();
        let Some(event) = self.events.last_mut() else {
            return;
        };
        let settled = match event.deed {
            // Its share comes one by one: the last one counts.
            Deed::Join => taker == event.who,
            Deed::Leave | Deed::Kill => {
                let gone = !self.owners.values().any(|owner| *owner == event.who);
                event.settled.is_none() && all_taken && gone
            }
        };
        if settled {
            event.settled = Some(at.duration_since(event.at).unsigned_abs());
        }
    }

    /// Notes what was done to the group.
    pub fn deed(&mut self, deed: Deed, who: &str) {
        if deed == Deed::Kill {
            // It will not say that it released anything.
            self.owners.retain(|_, owner| owner != who);
        }
        self.events.push(Event {
            deed,
            who: who.to_owned(),
            at: Timestamp::now(),
            settled: None,
        });
    }

    /// How many messages were handled so far.
    pub fn handled(&self) -> u64 {
        self.count
    }

    /// How many partitions each worker has.
    pub fn owners(&self) -> BTreeMap<&str, usize> {
        let mut owners = BTreeMap::new();
        for owner in self.owners.values() {
            *owners.entry(owner.as_str()).or_default() += 1;
        }
        owners
    }

    /// Whether every partition has an owner.
    pub fn all_taken(&self) -> bool {
        self.owners.len() == self.partitions as usize
    }

    /// Nobody is to serve these partitions.
    pub fn excuse(&mut self, partitions: BTreeSet<String>) {
        self.excused = partitions;
    }

    /// Whether everything in the log was handled, apart from what nobody is to serve.
    pub fn has_all(&self, info: &TopicInfo) -> bool {
        info.partitions.iter().all(|partition| {
            if self.excused.contains(partition.id.as_str()) {
                return true;
            }
            let handled = self.offsets.get(partition.id.as_str());
            let count = handled.map_or(0, |offsets| offsets.len() as u64);
            count == partition.end.0 - partition.first.0
        })
    }

    /// Counts.
    pub fn close(&mut self, info: &TopicInfo) {
        for partition in &info.partitions {
            let handled = self.handled.entry(partition.id.to_string()).or_default();
            // One owner at a time: epochs order owners, and an owner tells its messages in order.
            handled.sort();
            let findings = &mut self.findings;
            findings.produced += partition.end.0;
            let mut seen = BTreeSet::new();
            for message in handled.iter() {
                let behind = seen.last().is_some_and(|last| *last > message.offset);
                if !seen.insert(message.offset) {
                    findings.repeated += 1;
                } else if behind {
                    findings.out_of_order += 1;
                }
            }
            let unseen = |from, to| (from..to).filter(|one| !seen.contains(one)).count() as u64;
            let excused = self.excused.contains(partition.id.as_str());
            // What was handled is a beginning without gaps; after that it may wait.
            let due = match seen.last() {
                Some(last) if excused => last + 1,
                None if excused => 0,
                _ => partition.end.0,
            };
            findings.lost += unseen(0, due);
            findings.waiting += unseen(due, partition.end.0);
            let moved = handled.first().map(|m| m.epoch) != handled.last().map(|m| m.epoch);
            let longest = if moved {
                &mut findings.pause_moved
            } else {
                &mut findings.pause_unmoved
            };
            *longest = (*longest).max(longest_pause(handled));
        }
    }

    /// Whether Parti kept its promise.
    pub fn verdict(&self) -> Result<(), Failure> {
        let Findings {
            lost, out_of_order, ..
        } = self.findings;
        if lost == 0 && out_of_order == 0 {
            Ok(())
        } else {
            Err(Failure::failed(format!(
                "lost {lost}, out of order {out_of_order}"
            )))
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let ms = |pause: Option<Duration>| pause.map(|pause| pause.as_millis() as u64);
        let events = self.events.iter().map(|event| {
            json!({
                "event": format!("{:?}", event.deed).to_lowercase(),
                "worker": event.who,
                "settled_ms": ms(event.settled),
            })
        });
        json!({
            "produced": self.findings.produced,
            "handled": self.count,
            "lost": self.findings.lost,
            "waiting": self.findings.waiting,
            "repeated": self.findings.repeated,
            "out_of_order": self.findings.out_of_order,
            "longest_pause_moved_ms": ms(self.findings.pause_moved),
            "longest_pause_unmoved_ms": ms(self.findings.pause_unmoved),
            "events": events.collect::<Vec<_>>(),
        })
    }
}

/// The longest time between two messages of a partition.
fn longest_pause(handled: &[Handled]) -> Option<Duration> {
    let mut times: Vec<Timestamp> = handled.iter().map(|handled| handled.at).collect();
    times.sort();
    let pauses = times
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]).unsigned_abs());
    pauses.max()
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |pause: Option<Duration>| match pause {
            Some(pause) => format!("{:.2} s", pause.as_secs_f64()),
            None => "-".into(),
        };
        let found = &self.findings;
        writeln!(f, "\naudit")?;
        writeln!(f, "  produced       {}", found.produced)?;
        writeln!(f, "  handled        {}", self.count)?;
        writeln!(f, "  lost           {}", found.lost)?;
        if found.waiting > 0 {
            writeln!(
                f,
                "  waiting        {} for workers to be allowed to serve their partitions",
                found.waiting
            )?;
        }
        writeln!(f, "  repeated       {}", found.repeated)?;
        writeln!(f, "  out of order   {}", found.out_of_order)?;
        writeln!(
            f,
            "  longest pause  {} of a moved partition, {} of an unmoved one",
            seconds(found.pause_moved),
            seconds(found.pause_unmoved)
        )?;
        for event in &self.events {
            let settled = seconds(event.settled);
            writeln!(
                f,
                "  {} {}: all served again after {settled}",
                event.who,
                view::verb(event.deed)
            )?;
        }
        writeln!(
            f,
            "lost {}, out of order {}",
            found.lost, found.out_of_order
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parti::source::log::{PartitionInfo, TopicSettings};
    use parti::{Offset, PartitionId};

    fn message(epoch: u64, offset: u64, ms: u32) -> Line {
        let at = format!("2026-01-01T00:00:00.{ms:03}Z");
        Line {
            process: 0,
            event: json!({"event": "message", "partition": "0", "epoch": epoch, "offset": offset, "at": at}),
        }
    }

    fn audit(end: u64, lines: &[Line]) -> Audit {
        let mut audit = Audit::new(1);
        lines.iter().for_each(|line| audit.take(line));
        audit.close(&topic(end));
        audit
    }

    fn topic(end: u64) -> TopicInfo {
        TopicInfo {
            name: "t".into(),
            created_ms: 0,
            settings: TopicSettings::default(),
            partitions: vec![PartitionInfo {
                id: PartitionId::new("0"),
                first: Offset(0),
                end: Offset(end),
                bytes: 0,
            }],
        }
    }

    #[test]
    fn what_is_lost_repeated_or_out_of_order_is_counted() {
        let good = audit(3, &[message(1, 0, 0), message(1, 1, 20), message(2, 2, 25)]);
        assert!(good.verdict().is_ok());
        assert_eq!(good.findings.pause_moved, Some(Duration::from_millis(20)));
        let repeated = audit(2, &[message(1, 0, 0), message(1, 1, 1), message(2, 1, 2)]);
        assert!(repeated.verdict().is_ok() && repeated.findings.repeated == 1);
        let lost = audit(2, &[message(1, 1, 0)]);
        assert!(lost.verdict().is_err() && lost.findings.lost == 1);
        let disorder = audit(2, &[message(1, 1, 0), message(1, 0, 1)]);
        assert!(disorder.verdict().is_err() && disorder.findings.out_of_order == 1);
        // What nobody is to serve waits at its end; a gap before that is lost all the same.
        let mut paused = Audit::new(1);
        paused.excuse(BTreeSet::from(["0".to_owned()]));
        [message(1, 0, 0), message(1, 2, 1)]
            .iter()
            .for_each(|line| paused.take(line));
        paused.close(&topic(5));
        assert_eq!((paused.findings.lost, paused.findings.waiting), (1, 2));
        // Lines of two processes may come in any order: the epochs tell.
        let late = audit(2, &[message(2, 1, 1), message(1, 0, 0)]);
        assert!(late.verdict().is_ok());
    }
}

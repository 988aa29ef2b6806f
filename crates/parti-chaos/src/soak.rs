//! The command `soak`: a load, churn, and samples of everything that could grow.
//!
//! ```text
//!   two workers stay; others join, leave and are killed in turn
//!   every sample: memory, threads, files, tasks of those that stay · memory of the server ·
//!                 consumers of the stream · keys of the store · lines of history
//!   at the end:   median of the last third against that of the first, and the audit
//! ```

use std::time::Duration;

use parti::core::worker::chronicle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::args::SoakArgs;
use crate::failure::Failure;
use crate::stage::{Needs, Run, Stage};
use crate::vitals;

/// The stream is bounded, so that the server's memory has no reason to grow.
const KEEP: i64 = 100_000;
/// Workers that stay for the whole time.
const STAY: usize = 2;

/// One look at everything.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// The largest among those that stay, in KiB.
    memory: u64,
    threads: u64,
    files: u64,
    tasks: u64,
    /// In KiB.
    server_memory: u64,
    consumers: u64,
    keys: u64,
    /// Lines of the history: they grow up to a bound.
    events: u64,
}

/// What is looked at: its name, and how much it may differ between the thirds without growing.
type Measure = (&'static str, u64, fn(&Sample) -> u64);

/// The history keeps its newest lines; each writer tidies up now and then.
const EVENTS: u64 = chronicle::KEPT as u64 + 500;

const CONSUMERS: &str = "consumers (least)";

const MEASURES: [Measure; 7] = [
    ("worker memory KiB", 8 * 1024, |sample| sample.memory),
    ("worker threads", 4, |sample| sample.threads),
    ("worker files", 8, |sample| sample.files),
    ("worker tasks", 40, |sample| sample.tasks),
    ("server memory KiB", 48 * 1024, |sample| {
        sample.server_memory
    }),
    (CONSUMERS, 2, |sample| sample.consumers),
    ("keys", 8, |sample| sample.keys),
];

/// Runs it; true when nothing grew and nothing was lost, repeated without a reason or out of order.
pub async fn run(args: &SoakArgs) -> Result<bool, Failure> {
    let run = Run {
        kind: args.stream,
        rate: args.rate,
        partitions: args.partitions,
        server: args.server.clone(),
        slow: Duration::ZERO,
    };
    let needs = Needs {
        keep: Some(KEEP),
        ..Needs::deaths()
    };
    let mut stage = Stage::set(&run, &needs).await?;
    stage.load().await?;
    let stay = stage.hire(STAY).await?;
    let mut churn = Churn::default();
    let (begun, mut samples) = (Instant::now(), Vec::new());
    let mut ticks = interval_at(begun + args.sample, args.sample);
    let mut changes = interval_at(begun + args.churn, args.churn);
    changes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    head();
    while begun.elapsed() < args.length {
        tokio::select! {
            _ = ticks.tick() => {
                let sample = look(&mut stage, &stay).await?;
                samples.push(sample);
                let facts = stage.ledger.facts();
                show(begun.elapsed(), facts.published(), stage.crew.running().len(), &sample);
            }
            _ = changes.tick() => churn.next(&mut stage).await?,
            () = sleep(args.length.saturating_sub(begun.elapsed())) => {}
        }
    }
    stage.finish().await?;
    let flat = verdict(&samples);
    let counts = stage.audit();
    println!(
        "published {}, handled {}, never handled {}, out of order {}, repeated {} (allowed {})",
        counts.published,
        counts.handled,
        counts.never_handled,
        counts.out_of_order,
        counts.repeated,
        counts.unflushed
    );
    for example in &counts.examples {
        eprintln!("  {example}");
    }
    let whole = counts.never_handled == 0
        && counts.out_of_order == 0
        && counts.repeated <= counts.unflushed
        && counts.overdue == 0;
    println!(
        "verdict: {}, {}",
        if flat { "flat" } else { "GROWING" },
        if whole { "nothing lost" } else { "NOT WHOLE" }
    );
    if !whole {
        let folder = stage.keep_folder();
        eprintln!("what the workers said is in {}", folder.display());
    }
    Ok(flat && whole)
}

/// Those who come and go.
#[derive(Default)]
struct Churn {
    turn: usize,
    guests: Vec<usize>,
}

impl Churn {
    /// Join, join, leave, join, kill, and so on.
    async fn next(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        self.turn += 1;
        match self.turn % 4 {
            2 if !self.guests.is_empty() => {
                let guest = self.guests.remove(0);
                stage.crew.leave(guest).await
            }
            0 if !self.guests.is_empty() => {
                let guest = self.guests.remove(0);
                stage.crew.kill(guest).await
            }
            _ => {
                let guest = stage.spawn(&[])?;
                self.guests.push(guest);
                stage.started(guest).await
            }
        }
    }
}

async fn look(stage: &mut Stage, stay: &[usize]) -> Result<Sample, Failure> {
    let mut sample = Sample::default();
    for process in stay {
        let id = stage.crew.id(*process);
        let own = id.and_then(vitals::of);
        let own = own.ok_or_else(|| Failure::new("a worker that should stay is gone"))?;
        sample.memory = sample.memory.max(own.memory);
        sample.threads = sample.threads.max(own.threads);
        sample.files = sample.files.max(own.files);
        let tasks = stage.ledger.facts().tasks_of(*process);
        sample.tasks = sample.tasks.max(tasks.unwrap_or_default() as u64);
    }
    let server = stage.servers.one()?.id().and_then(vitals::of);
    let server = server.ok_or_else(|| Failure::new("the server is gone"))?;
    sample.server_memory = server.memory;
    sample.consumers = stage.consumers().await? as u64;
    sample.keys = stage.keys().await? as u64;
    sample.events = stage.events().await? as u64;
    Ok(sample)
}

fn head() {
    println!(
        "{:>7} {:>9} {:>7} {:>10} {:>7} {:>5} {:>5} {:>10} {:>9} {:>5} {:>6}",
        "time",
        "published",
        "workers",
        "memory",
        "threads",
        "files",
        "tasks",
        "server",
        "consumers",
        "keys",
        "events"
    );
}

fn show(time: Duration, published: u64, workers: usize, sample: &Sample) {
    println!(
        "{:>6}s {:>9} {:>7} {:>6} KiB {:>7} {:>5} {:>5} {:>6} KiB {:>9} {:>5} {:>6}",
        time.as_secs(),
        published,
        workers,
        sample.memory,
        sample.threads,
        sample.files,
        sample.tasks,
        sample.server_memory,
        sample.consumers,
        sample.keys,
        sample.events
    );
}

/// Prints the medians of the first and the last third; true when nothing grew.
fn verdict(samples: &[Sample]) -> bool {
    let third = samples.len() / 3;
    if third == 0 {
        println!("too few samples to tell");
        return false;
    }
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let mut flat = true;
    println!(
        "{:<18} {:>12} {:>12}",
        "median of", "first third", "last third"
    );
    for (name, slack, of) in MEASURES {
        // Readers of splices live on for a while after a death; those that stay would raise the least.
        let typical = if name == CONSUMERS { least } else { median };
        let (before, after) = (typical(first, of), typical(last, of));
        let grew = grew(before, after, slack);
        flat &= !grew;
        println!(
            "{name:<18} {before:>12} {after:>12}  {}",
            if grew { "GROWING" } else { "flat" }
        );
    }
    let most = samples.iter().map(|sample| sample.events).max();
    let most = most.unwrap_or_default();
    let over = most > EVENTS;
    println!(
        "{:<18} {:>25}  {}",
        "events (most)",
        most,
        if over { "OVER ITS BOUND" } else { "bounded" }
    );
    flat && !over
}

/// More than a fifth, and more than what comes and goes anyway.
fn grew(before: u64, after: u64, slack: u64) -> bool {
    after > before + before / 5 && after > before + slack
}

fn median(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn least(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    samples.iter().map(of).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_seen_and_noise_is_not() {
        let samples: Vec<Sample> = (0..9)
            .map(|n| Sample {
                memory: 10_000 + n * 4_000,
                threads: 5 + n % 2,
                ..Sample::default()
            })
            .collect();
        assert!(!verdict(&samples), "memory grew");
        let steady = vec![samples[0]; 9];
        assert!(verdict(&steady));
        let mut full = steady.clone();
        full[4].events = EVENTS + 1;
        assert!(!verdict(&full), "the history is not bounded");
        assert!(!verdict(&steady[..2]), "too few");
        assert!(grew(100, 200, 8) && !grew(100, 107, 8) && !grew(1_000, 1_100, 8));
    }
}

//! The table of strategy numbers: the default strategy measured against its goals, against the Go
//! library that Parti replaces, and against what is possible at all.
//!
//! Balance and movement are deterministic. Times are medians of several runs. Peak memory is how
//! far one computation raises this process's peak resident memory: Linux resets the peak on
//! request (`/proc/self/clear_refs`) and shows it in `/proc/self/status`; elsewhere the row says
//! that it was not measured. It is measured first, before freed memory could hide anything. (The
//! test `strategy_memory` holds the same limit by counting allocations.)

use std::io::{self, Write};
use std::time::Instant;

use parti_core::ids::{PartitionId, WorkerId};
use parti_core::partition::Partition;
use parti_core::rng::Rng;
use parti_core::strategy::{Answer, Balance, ConsistentHash, Input, Movement, Strategy};

/// Measures everything, prints the table, and says whether every goal holds.
pub fn run(out: &mut impl Write) -> io::Result<bool> {
    let peak = peak_of_cold_start(1_000, 100_000);
    let mut rows = Vec::new();
    rows.extend(balance_rows());
    rows.extend(movement_rows());
    rows.extend(time_rows(peak));

    print_table(out, &rows)?;
    let missed = rows.iter().filter(|row| !row.holds).count();
    match missed {
        0 => writeln!(out, "\nevery goal holds")?,
        _ => writeln!(out, "\n{missed} goals missed")?,
    }
    Ok(missed == 0)
}

/// One line of the table.
struct Row {
    what: String,
    go: &'static str,
    goal: String,
    ours: String,
    optimum: String,
    holds: bool,
}

fn balance_rows() -> Vec<Row> {
    let equal = Group::new(64, &[1; 5000]);
    let balance = equal.assign().balance(equal.input());
    let equal_row = Row {
        what: "64 workers × 5,000 equal: max/mean".into(),
        go: "1.318",
        goal: "≤ 1.02".into(),
        ours: format!("{:.3}", balance.by_weight()),
        optimum: format!("{:.3}", least_max_over_mean(&balance)),
        holds: balance.by_weight() <= 1.02,
    };

    let skewed = Group::new(64, &skewed(5000));
    let balance = skewed.assign().balance(skewed.input());
    let goal = 1.05 * heaviest_over_mean(&balance);
    let skewed_row = Row {
        what: "64 × 5,000, 5 % at ×100: max/mean by weight".into(),
        go: "1.20",
        goal: format!("≤ {goal:.3}"),
        ours: format!("{:.3}", balance.by_weight()),
        optimum: format!("{:.3}", least_max_over_mean(&balance)),
        holds: balance.by_weight() <= goal,
    };
    vec![equal_row, skewed_row]
}

/// max(1, heaviest partition ÷ mean load).
fn heaviest_over_mean(balance: &Balance) -> f64 {
    let mean = balance.served.weight as f64 / balance.workers as f64;
    f64::max(1.0, balance.heaviest as f64 / mean)
}

/// No answer has a smaller max/mean: loads are whole numbers, and partitions do not split.
fn least_max_over_mean(balance: &Balance) -> f64 {
    let mean = balance.served.weight as f64 / balance.workers as f64;
    f64::max(mean.ceil(), balance.heaviest as f64) / mean
}

fn movement_rows() -> Vec<Row> {
    let equal = [1; 5000];
    let skewed = skewed(5000);
    let lognormal = lognormal(5000, 1.0, 1);
    vec![
        join_row("movement 64→65, equal", "2.08 %", 64, &equal, 1.1),
        join_row(
            "movement 64→65, 5 % at ×100, by weight",
            "65 %",
            64,
            &skewed,
            2.0,
        ),
        join_row(
            "movement 10→11, lognormal, by weight",
            "44 %",
            10,
            &lognormal,
            1.5,
        ),
        leave_row("movement 65→64, equal", &equal),
        leave_row("movement 65→64, 5 % at ×100, by weight", &skewed),
    ]
}

fn join_row(what: &str, go: &'static str, before: usize, weights: &[u64], factor: f64) -> Row {
    let (movement, total) = change(before, before + 1, weights);
    let moved = (movement.moved.weight + movement.placed.weight) as f64 / total;
    let ideal = 1.0 / (before + 1) as f64;
    Row {
        what: what.into(),
        go,
        goal: format!("≤ {} ({factor} × ideal)", percent(factor * ideal)),
        ours: percent(moved),
        optimum: percent(ideal),
        holds: moved <= factor * ideal,
    }
}

/// When a worker goes, what it had has to move, and nothing else should.
fn leave_row(what: &str, weights: &[u64]) -> Row {
    let (movement, total) = change(65, 64, weights);
    let lost = movement.placed.weight as f64 / total;
    let moved = lost + movement.moved.weight as f64 / total;
    Row {
        what: what.into(),
        go: "–",
        goal: "only what was lost".into(),
        ours: percent(moved),
        optimum: percent(lost),
        holds: movement.moved.count == 0,
    }
}

fn change(before: usize, after: usize, weights: &[u64]) -> (Movement, f64) {
    let group = Group::new(before, weights);
    let next = group.after(&group.assign(), after);
    let movement = next.assign().movement(next.input());
    (movement, weights.iter().map(|w| *w as f64).sum())
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn time_rows(peak: Option<u64>) -> Vec<Row> {
    let small = time_row("compute 64 × 5,000, cold", "2.7 ms", 64, 5_000, 1.0, 51);
    let large = time_row(
        "compute 1,000 × 100,000, cold",
        "98 ms",
        1_000,
        100_000,
        30.0,
        15,
    );
    let huge = time_row(
        "compute 1,000 × 1,000,000, cold",
        "–",
        1_000,
        1_000_000,
        500.0,
        5,
    );
    let memory = Row {
        what: "peak memory of 1,000 × 100,000, cold".into(),
        go: "12 MB",
        goal: "≤ 12 MB".into(),
        ours: peak.map_or("not measured".into(), |bytes| {
            format!("{:.1} MB", bytes as f64 / 1e6)
        }),
        optimum: "–".into(),
        holds: peak.is_none_or(|bytes| bytes <= 12_000_000),
    };
    vec![small, large, memory, huge]
}

fn time_row(
    what: &str,
    go: &'static str,
    workers: usize,
    partitions: usize,
    goal_ms: f64,
    runs: usize,
) -> Row {
    let group = Group::new(workers, &vec![1; partitions]);
    let ours = median_ms(runs, || group.assign());
    Row {
        what: what.into(),
        go,
        goal: format!("≤ {goal_ms} ms"),
        ours: format!("{ours:.2} ms"),
        optimum: "–".into(),
        holds: ours <= goal_ms,
    }
}

/// The median time of several runs, in milliseconds.
fn median_ms<T>(runs: usize, mut work: impl FnMut() -> T) -> f64 {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let begin = Instant::now();
            std::hint::black_box(work());
            begin.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

/// By how many bytes one cold computation raises the peak of resident memory; `None` where the
/// system does not tell.
fn peak_of_cold_start(workers: usize, partitions: usize) -> Option<u64> {
    let group = Group::new(workers, &vec![1; partitions]);
    std::fs::write("/proc/self/clear_refs", "5").ok()?; // the peak starts again from here
    let before = status_bytes("VmRSS:")?;
    let answer = group.assign();
    let peak = status_bytes("VmHWM:")?;
    drop(answer);
    Some(peak.saturating_sub(before))
}

fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Workers and partitions, and who served what before.
struct Group {
    workers: Vec<WorkerId>,
    partitions: Vec<Partition>,
    previous: Vec<Option<u32>>,
}

impl Group {
    fn new(workers: usize, weights: &[u64]) -> Self {
        let partitions = (0..).zip(weights).map(|(n, weight): (usize, _)| {
            let keys = vec![
                format!("tool{:04}", n / 10),
                format!("chamber{:02}", n % 10),
            ];
            Partition {
                id: PartitionId::new(keys.join(".")),
                keys,
                weight: *weight,
            }
        });
        let mut partitions: Vec<Partition> = partitions.collect();
        partitions.sort_by(|a, b| a.id.cmp(&b.id));
        Self {
            workers: Self::workers(workers),
            partitions,
            previous: Vec::new(),
        }
    }

    fn workers(count: usize) -> Vec<WorkerId> {
        let mut workers: Vec<WorkerId> = (0..count)
            .map(|n| WorkerId::new(format!("worker-{n}")))
            .collect();
        workers.sort();
        workers
    }

    fn input(&self) -> Input<'_> {
        Input {
            workers: &self.workers,
            partitions: &self.partitions,
            previous: &self.previous,
            capacity: None,
        }
    }

    /// The answer of the default strategy.
    fn assign(&self) -> Answer {
        ConsistentHash::default().assign(self.input())
    }

    /// The group once so many workers are there, served as `answer` says by those that stayed.
    fn after(&self, answer: &Answer, workers: usize) -> Self {
        let workers = Self::workers(workers);
        let place: Vec<Option<u32>> = (self.workers.iter())
            .map(|worker| workers.binary_search(worker).ok().map(|w| w as u32))
            .collect();
        let owners = answer.owners.iter();
        let previous = owners.map(|owner| place[(*owner)? as usize]).collect();
        Self {
            workers,
            partitions: self.partitions.clone(),
            previous,
        }
    }
}

/// 5 % of the weights are 100, the others 1.
fn skewed(partitions: usize) -> Vec<u64> {
    (0..partitions)
        .map(|n| if n % 20 == 7 { 100 } else { 1 })
        .collect()
}

fn lognormal(partitions: usize, sigma: f64, seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let mut normal = || {
        let (u, v) = (1.0 - rng.unit(), rng.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    (0..partitions)
        .map(|_| (1000.0 * (sigma * normal()).exp()).round().max(1.0) as u64)
        .collect()
}

fn print_table(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let head = [
        "what",
        "the Go library, measured",
        "goal",
        "ours",
        "theoretical optimum",
        "",
    ];
    let lines: Vec<[&str; 6]> = (rows.iter())
        .map(|row| {
            let verdict = if row.holds { "holds" } else { "MISSED" };
            [
                &row.what,
                row.go,
                &row.goal,
                &row.ours,
                &row.optimum,
                verdict,
            ]
        })
        .collect();
    let mut widths = head.map(|cell| cell.chars().count());
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut print = |cells: &[&str; 6]| {
        for (cell, width) in cells.iter().zip(widths) {
            write!(out, "| {cell:width$} ")?;
        }
        writeln!(out, "|")
    };
    print(&head)?;
    let rules = widths.map(|width| "-".repeat(width));
    print(&[
        &rules[0], &rules[1], &rules[2], &rules[3], &rules[4], &rules[5],
    ])?;
    lines.iter().try_for_each(print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_that_does_not_depend_on_the_machine_holds() {
        for row in balance_rows().iter().chain(&movement_rows()) {
            assert!(row.holds, "{}: {} against {}", row.what, row.ours, row.goal);
        }
    }

    #[test]
    fn the_table_is_one_and_shows_a_missed_goal() {
        let row = |what: &str, holds| Row {
            what: what.into(),
            go: "1",
            goal: "≤ 2".into(),
            ours: "3".into(),
            optimum: "–".into(),
            holds,
        };
        let mut out = Vec::new();
        print_table(&mut out, &[row("good", true), row("bad", false)]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        assert!(text.lines().nth(2).unwrap().contains("holds"));
        assert!(text.lines().nth(3).unwrap().contains("MISSED"));
    }
}

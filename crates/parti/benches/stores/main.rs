//! Stores side by side, in one table: `cargo bench -p parti --bench stores -- [backend…]`
//!
//! ```text
//!   backends ─▶ batches: our store and the plain client by turns ─▶ writes per second, ratio
//!            ─▶ changes: another process writes, this one watches ─▶ p50, p99
//!            ─▶ idle:    watches of 5,000 keys, nothing happens  ─▶ CPU, bytes per key
//! ```

mod backends;
mod measure;
mod plain;
mod process;
mod writer;

use std::time::Duration;

use measure::Measured;

fn main() {
    // Cargo passes `--bench`; whatever else stands there names backends.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if writer::was_child(&runtime) {
        return;
    }
    println!(
        "| store | batch of {} | writes/s | plain client | ratio | change p50 | change p99 | idle CPU | of its server | per watched key |",
        measure::KEYS
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for start in backends::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == start.name) {
            continue;
        }
        // Servers are started by blocking calls, outside of the runtime's threads.
        let backend = (start.start)(&runtime);
        let measured = runtime.block_on(measure::all(backend));
        row(start.name, &measured);
    }
}

fn row(name: &str, measured: &Measured) {
    let Measured {
        batch,
        plain,
        p50,
        p99,
        idle,
    } = measured;
    println!(
        "| {name} | {} | {:.0} | {} | {:.2} | {} | {} | {} | {} | {:.0} B |",
        shown(*batch),
        measure::KEYS as f64 / batch.as_secs_f64(),
        shown(*plain),
        batch.as_secs_f64() / plain.as_secs_f64(),
        shown(*p50),
        shown(*p99),
        percent(idle.cpu),
        idle.server_cpu.map_or("-".into(), percent),
        idle.per_key,
    );
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn shown(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1_000.0)
}

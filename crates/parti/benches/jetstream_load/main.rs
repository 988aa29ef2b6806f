//! JetStream under load and with backlogs: 25 workers share 2,000 subjects of a stream on disk.
//!
//! ```text
//! cargo bench -p parti --bench jetstream_load -- drain|load|updates|scale|handoff
//! ```
//!
//! All workers run in this process, each with a connection of its own; the server and, for `load`,
//! the publisher are processes of their own. The store is in memory, so that only the stream is
//! measured.

mod drain;
mod group;
mod load;
mod moves;
#[path = "../stores/process.rs"]
mod process;
mod stream;
mod updates;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words = words.iter().filter(|word| !word.starts_with("--"));
    let words: Vec<&str> = words.map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        match words.as_slice() {
            ["drain"] => drain::run().await,
            ["load"] => load::run().await,
            ["publish", url, rate, seconds] => load::publish(url, rate, seconds).await,
            ["updates"] => updates::run().await,
            ["scale"] => moves::scale().await,
            ["handoff"] => moves::handoff().await,
            _ => println!("which part? drain, load, updates, scale or handoff"),
        }
    });
}

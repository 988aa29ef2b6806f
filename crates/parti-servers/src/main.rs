//! Starts a server by hand, or fetches all of them.
//!
//! ```text
//! cargo run -p parti-servers -- nats|etcd|postgres|cluster    until Enter, or the end of input
//! cargo run -p parti-servers -- install                       all that tests need
//! ```

use std::io::Read;
use std::process::ExitCode;

use parti_servers::{Error, etcd, install, nats, postgres};

const USAGE: &str =
    "usage: parti-servers nats [VERSION] | cluster [NODES] | etcd | postgres | install";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["nats"] => nats::Server::builder().try_start().map(show),
        ["nats", version] => nats::Server::builder()
            .version(version)
            .try_start()
            .map(show),
        ["etcd"] => etcd::Server::builder().try_start().map(show),
        ["postgres"] => postgres::Server::builder().try_start().map(show),
        ["cluster"] => cluster("3"),
        ["cluster", nodes] => cluster(nodes),
        ["install"] => install_everything(),
        _ => Err(Error::from(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shout(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn show<K: parti_servers::Kind>(server: parti_servers::Running<K>) {
    println!("{}", server.url());
    println!("log and data: {}", server.folder().display());
    wait();
}

fn cluster(nodes: &str) -> Result<(), Error> {
    let nodes = nodes.parse().map_err(|_| Error::from(USAGE))?;
    let cluster = nats::Cluster::try_start(&nats::Server::builder(), nodes)?;
    println!("{}", cluster.url());
    wait();
    Ok(())
}

/// Ctrl-C ends the servers too, and the next start removes what they leave behind.
fn wait() {
    println!("Enter ends it.");
    // An error is an end as well.
    let _ = std::io::stdin().read(&mut [0]);
}

fn install_everything() -> Result<(), Error> {
    let mut failed = Vec::new();
    for (name, found) in install::everything() {
        match found {
            Ok(program) => println!("{name:<20} {}", program.display()),
            Err(error) => {
                println!("{name:<20} MISSING");
                failed.push(error.to_string());
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::from(failed.join("\n\n").as_str()))
}

/// A message that cannot be overlooked.
fn shout(message: &str) {
    let bar = "!".repeat(100);
    eprintln!("\n{bar}");
    for line in message.lines() {
        eprintln!("!!  {line}");
    }
    eprintln!("{bar}");
}

//! `parti doctor`: looks at everything a group needs, and says what to mend.
//!
//! ```text
//!   settings ─┐
//!   store ────┼──▶ findings: ok, warn, fail ──▶ one line each ──▶ exit code by the worst
//!   source ───┤
//!   group ────┘
//! ```

mod clock;
mod group;
mod settings;
mod source;
mod store;

use serde::Serialize;

use crate::exit::Failure;
use crate::flags::{self, OutputFlags, SourceFlags};
use crate::show::show;
use crate::table::{Cell, Table};

/// Look at everything a group needs, and say what to mend.
///
/// Connects to store and source; checks versions, permissions, answers, clocks, retention and
/// replicas; the settings against the store's own failover; and with --group the group itself.
/// Permissions are tried: a key is written and deleted where no group can have one, a consumer made
/// and deleted that can be no worker's, a file made and removed beside a log's, and a dead letter
/// sent that its stream refuses (who subscribes to that subject hears an empty message). Nothing
/// else is changed, except that a server's bucket or tables are made if there are none; that is
/// told.
///
/// Example: parti doctor --store nats://localhost:4222 --source jetstream://localhost:4222/ORDERS
///          --group billing --config worker.yaml
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 all is well, 1 something fails, 2 wrong usage, 5 something \
                        to consider."
)]
pub struct Args {
    /// Where the group's records live: sqlite:FILE, nats://…, etcd://…, postgres://…
    #[arg(long, value_name = "URL")]
    store: String,
    #[command(flatten)]
    source: SourceFlags,
    /// The group's name
    #[arg(long, value_parser = flags::group)]
    group: Option<String>,
    /// Settings, as YAML or JSON; without it the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    #[command(flatten)]
    output: OutputFlags,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// What one check found.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    text: String,
}

/// What all checks found.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, check: &'static str, text: impl ToString) {
        // One line each, whatever a server said.
        let text = text.to_string().lines().collect::<Vec<_>>().join(" ");
        self.0.push(Finding { level, check, text });
    }

    fn ok(&mut self, check: &'static str, text: impl ToString) {
        self.add(Level::Ok, check, text);
    }

    fn warn(&mut self, check: &'static str, text: impl ToString) {
        self.add(Level::Warn, check, text);
    }

    fn fail(&mut self, check: &'static str, text: impl ToString) {
        self.add(Level::Fail, check, text);
    }
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let mut findings = Findings::default();
    let config = settings::check(args.config.as_deref(), &mut findings);
    let store = store::check(&args.store, &config, &mut findings).await;
    let group = args.group.as_deref();
    let source = source::check(&args.source, group, &config, &mut findings).await;
    if let (Some(store), Some(name)) = (&store, &args.group) {
        let source = source.as_ref().map(|source| (&args.source, source));
        group::check(store, name, source, &config, &mut findings).await;
    }
    show(args.output.output, &findings, table)?;
    let worst = findings.0.iter().map(|finding| finding.level).max();
    let bad = |level| findings.0.iter().filter(|f| f.level == level).count();
    match worst {
        Some(Level::Fail) => Err(Failure::failed(format!("{} to mend", bad(Level::Fail)))),
        Some(Level::Warn) => Err(Failure::warned(format!("{} to consider", bad(Level::Warn)))),
        _ => Ok(()),
    }
}

fn table(findings: &Findings) -> String {
    let mut table = Table::new(["", "CHECK", "FOUND"]);
    for finding in &findings.0 {
        table.row([
            match finding.level {
                Level::Ok => Cell::good("ok"),
                Level::Warn => Cell::odd("warn"),
                Level::Fail => Cell::bad("fail"),
            },
            finding.check.into(),
            finding.text.clone().into(),
        ]);
    }
    table.to_string()
}

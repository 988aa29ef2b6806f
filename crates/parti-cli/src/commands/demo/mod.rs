//! `parti demo`: the main job, with real processes and no server.
//!
//! ```text
//!   demo ─┬─ parti produce ──▶ log ──▶ parti consume ─┐
//!         ├─ parti consume × N      ◀─ store ─▶       ├─ lines of JSON ──▶ audit
//!         ├─ join, leave, kill ──────────────────────▶┘
//!         └─ with --ui: the dashboard, until ctrl-C; then the audit
//! ```

mod audit;
mod crew;
mod dashboard;
mod view;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::ValueEnum;
use parti::source::log::{Topic, TopicSettings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exit::{CODES, Failure};
use crate::flags;
use crate::lines::print;
use crate::places;
use crate::signals::Endings;
use audit::Audit;
use crew::{Crew, Place};
use dashboard::Dashboard;
use view::View;

/// With no word from any worker for so long, nothing more will come.
const PATIENCE: Duration = Duration::from_secs(30);

const TOPIC: &str = "demo";

/// How long it takes when nothing else is said.
const SHORT: Duration = Duration::from_secs(20);
/// With somebody watching it goes on, but not for ever: every message is remembered for the audit.
const WATCHED: Duration = Duration::from_secs(60 * 60);

/// Show what Parti does, with no server: a producer and several worker processes on an embedded
/// log; one worker joins, one leaves, one is killed. Ends with an audit of every message.
///
/// With --ui, the dashboard shows all that at the address that is printed. Unless --for says how
/// long, the demo then goes on until ctrl-C (for an hour at most), so that you can drain, move and
/// pause; the audit comes after that. A second ctrl-C ends it at once.
///
/// Example: parti demo --ui
/// Example: parti demo --workers 5 --partitions 64 --rate 2000 --for 40s
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    /// How many workers to begin with
    #[arg(long, default_value_t = 3, allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(2..=50))]
    workers: u32,
    /// How many partitions
    #[arg(long, default_value_t = 12, allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(1..=10_000))]
    partitions: u32,
    /// Messages a second
    #[arg(long, default_value_t = 500, allow_negative_numbers = true,
        value_parser = flags::whole::<u32>(1..=1_000_000))]
    rate: u32,
    /// How long to produce; by default 20s, and with --ui until ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
    /// Serve the dashboard, too, on a free port of 127.0.0.1
    #[arg(long)]
    ui: bool,
    /// Who leaves and who is killed: the same seed chooses the same
    #[arg(long, default_value_t = 1, allow_negative_numbers = true,
        value_parser = flags::whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Another store than a file in a temporary folder
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Another log than one in a temporary folder
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// How to show the audit
    #[arg(short, long, value_enum, default_value_t)]
    output: Shape,
}

/// How the audit is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = flags::duration(text)?;
    if duration < Duration::from_secs(4) {
        return Err("it is too short for a join, a leave and a kill; give at least 4s".into());
    }
    Ok(duration)
}

/// What is done to the group while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Join,
    Leave,
    Kill,
}

impl Args {
    /// How long to produce.
    fn length(&self) -> Duration {
        let unsaid = if self.ui { WATCHED } else { SHORT };
        self.duration.unwrap_or(unsaid)
    }

    /// In which time everything is done that is done to the group.
    fn deeds(&self) -> Duration {
        self.duration.unwrap_or(SHORT)
    }

    /// Whether ctrl-C means that it was enough, and not that nothing more is wanted.
    fn goes_on(&self) -> bool {
        self.ui && self.duration.is_none()
    }
}

/// When: at these shares of the time.
const DEEDS: [(f64, Deed); 3] = [(0.2, Deed::Join), (0.45, Deed::Leave), (0.7, Deed::Kill)];

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let mut endings = Endings::catch()?;
    // The terminal is gone: it must not leave workers behind, which have groups of their own.
    let mut hangup = signal(SignalKind::hangup())?;
    let folder = tempfile::Builder::new().prefix("parti-demo-").tempdir()?;
    let place = place(&args, folder.path().to_owned())?;
    let settings = TopicSettings {
        partitions: args.partitions,
        ..TopicSettings::default()
    };
    let log = places::log(places::source(&place.source).await?, "the demo")?;
    let topic = log.create_topic(TOPIC, settings).await?;
    let dashboard = match args.ui {
        true => Some(Dashboard::open(&place).await?),
        false => None,
    };
    let (enough, told_enough) = watch::channel(false);
    let told = {
        let playing = play(&args, place, &topic, dashboard.as_ref(), told_enough);
        let mut playing = pin!(playing);
        loop {
            let asked = tokio::select! {
                audit = playing.as_mut() => break audit?,
                _ = endings.next() => args.goes_on(),
                _ = hangup.recv() => false,
            };
            if !asked || enough.send_replace(true) {
                return Err(Failure::failed("ended before the audit"));
            }
        }
    };
    print(&match args.output {
        Shape::Text => told.to_string(),
        Shape::Json => format!("{:#}\n", told.to_json()),
    })?;
    if let Some(dashboard) = dashboard {
        dashboard.close().await;
    }
    told.verdict()
}

fn place(args: &Args, folder: PathBuf) -> Result<Place, Failure> {
    let config = folder.join("demo.yaml");
    std::fs::write(&config, crew::settings(args.workers))?;
    let within = |scheme: &str, name: &str| format!("{scheme}:{}", folder.join(name).display());
    Ok(Place {
        store: args
            .store
            .clone()
            .unwrap_or_else(|| within("sqlite", "group.db")),
        source: args.source.clone().unwrap_or_else(|| within("log", "log")),
        topic: TOPIC.into(),
        // Another run on the same store is another group.
        group: format!("demo-{}", std::process::id()),
        config,
    })
}

/// Plays it, until it was long enough or somebody says so.
async fn play(
    args: &Args,
    place: Place,
    topic: &Topic,
    dashboard: Option<&Dashboard>,
    mut enough: watch::Receiver<bool>,
) -> Result<Audit, Failure> {
    let mut view = View::new(args);
    let mut audit = Audit::new(args.partitions);
    let mut crew = Crew::new(place, args.seed);
    for _ in 0..args.workers {
        crew.join()?;
    }
    view.say(&format!("{} workers start", args.workers));
    while !audit.all_taken() {
        let line = crew.next(PATIENCE).await?;
        audit.take(&line);
        view.show(&audit);
    }
    view.say(&format!(
        "all {} partitions are served; producing",
        args.partitions
    ));
    let mut producer = crew.produce(args.rate, args.length())?;
    let began = Instant::now();
    let mut deeds = DEEDS.iter();
    let mut next = deeds.next();
    let mut produced = None;
    let mut last_word = Instant::now();
    let mut is_enough = false;
    loop {
        if let Some((share, deed)) = next
            && began.elapsed() >= args.deeds().mul_f64(*share)
        {
            let who = match deed {
                Deed::Join => crew.join()?,
                Deed::Leave => crew.leave()?,
                Deed::Kill => crew.kill()?,
            };
            audit.deed(*deed, &who);
            view.say(&format!("{who} {}", view::verb(*deed)));
            next = deeds.next();
        }
        tokio::select! {
            line = crew.next(PATIENCE) => {
                audit.take(&line?);
                last_word = Instant::now();
                view.show(&audit);
            }
            Ok(_) = enough.wait_for(|enough| *enough), if !is_enough => {
                is_enough = true;
                view.say("enough; the producer stops");
                next = None;
                if produced.is_none() {
                    producer.start_kill()?;
                }
            }
            ended = producer.wait(), if produced.is_none() => {
                let status = ended?;
                if !status.success() && !is_enough {
                    return Err(Failure::failed(format!("the producer ended with {status}")));
                }
                produced = Some(topic.describe().await?);
                if let Some(dashboard) = dashboard {
                    audit.excuse(dashboard.unserved().await?);
                }
            }
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        if let Some(info) = &produced
            && next.is_none()
            && (audit.has_all(info) || last_word.elapsed() > PATIENCE)
        {
            break;
        }
    }
    view.say(match &produced {
        Some(info) if audit.has_all(info) => "everything is handled; the workers stop",
        _ => "not everything is handled, and nothing more comes; the workers stop",
    });
    for line in crew.stop_all().await? {
        audit.take(&line);
    }
    view.end();
    let info = topic.describe().await?;
    audit.close(&info);
    Ok(audit)
}

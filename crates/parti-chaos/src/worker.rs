//! The worker process: the library as a user would use it, with a handler that misbehaves on order.
//!
//! ```text
//!   stream ──▶ handler ──▶ {"event":"handled",…}      one line each, on stdout
//!   observer ────────────▶ {"event":"taken",…}
//! ```

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parti::source::JetStream;
use parti::{Config, HandlerError, Message, Report, StaticPartitions, Worker, store};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Place, WorkerArgs};
use crate::line::{Event, Line, now};
use crate::logs;

/// How often it says how it is, and looks whether its parent lives.
const VITALS_EVERY: Duration = Duration::from_secs(2);

/// Runs one worker until it is asked to end (SIGTERM), or cannot go on.
pub async fn run(args: WorkerArgs) -> Result<(), HandlerError> {
    logs::to_stderr();
    let lines = Lines::default();
    let outcome = live(&args, &lines).await;
    let error = outcome.as_ref().err().map(ToString::to_string);
    lines.say(Event::Ended { error });
    outcome
}

async fn live(args: &WorkerArgs, lines: &Lines) -> Result<(), HandlerError> {
    let mut asked_to_end = signal(SignalKind::terminate())?;
    let config = Config::from_yaml(&std::fs::read_to_string(&args.config)?)?;
    let source = JetStream::connect(&args.source).await?;
    let store = store::open(&args.store).await?;
    let partitions = StaticPartitions::numbered(args.partitions);
    let (told, handled) = (lines.clone(), lines.clone());
    let manners = Arc::new(args.clone());
    tokio::spawn(vitals(lines.clone()));
    let mut builder = Worker::builder(&args.group, store, source, partitions)
        .config(config)
        .observer(move |report: &Report| {
            if let Some(event) = event(report) {
                told.say(event);
            }
        });
    if let Some(number) = args.number {
        builder = builder.preferred_number(number);
    }
    let starting = builder.start(move |message: Message| {
        let (lines, manners) = (handled.clone(), manners.clone());
        async move { handle(&manners, &lines, &message).await }
    });
    let worker = tokio::select! {
        worker = starting => worker?,
        _ = asked_to_end.recv() => return Ok(()),
    };
    lines.say(Event::Started);
    tokio::select! {
        ended = worker.ended() => ended?,
        _ = asked_to_end.recv() => worker.stop().await?,
    }
    Ok(())
}

async fn handle(args: &WorkerArgs, lines: &Lines, message: &Message) -> Result<(), HandlerError> {
    let number: u64 = std::str::from_utf8(message.payload())?.parse()?;
    let partition = plain(message.partition.as_str());
    let here = Some(Place { partition, number });
    if here == args.abort_on {
        std::process::abort();
    }
    if here == args.fail_on {
        return Err("told to fail".into());
    }
    assert!(here != args.panic_on, "told to panic");
    let time = if here == args.slow_on {
        args.slow_for
    } else {
        args.work
    };
    tokio::time::sleep(time).await;
    lines.say(Event::Handled {
        partition,
        number,
        offset: message.offset.0,
        epoch: message.epoch.0,
        attempt: message.attempt,
    });
    Ok(())
}

/// What is worth a line.
fn event(report: &Report) -> Option<Event> {
    Some(match report {
        Report::Claimed(worker, _) => Event::Claimed {
            worker: worker.to_string(),
        },
        Report::SessionLost => Event::SessionLost,
        Report::Leading(term) => Event::Leading {
            leads: term.is_some(),
        },
        Report::Assigned {
            version,
            serve,
            prepare,
            ..
        } => Event::Assigned {
            version: version.0,
            serve: serve.len(),
            prepare: prepare.len(),
        },
        Report::Taken {
            partition,
            epoch,
            offset,
            seized,
            ..
        } => Event::Taken {
            partition: plain(partition.as_str()),
            epoch: epoch.0,
            offset: offset.map(|offset| offset.0),
            seized: *seized,
        },
        Report::Released {
            partition,
            epoch,
            offset,
            ..
        } => Event::Released {
            partition: plain(partition.as_str()),
            epoch: epoch.0,
            offset: offset.map(|offset| offset.0),
        },
        Report::Fenced { partition, epoch } => Event::Fenced {
            partition: plain(partition.as_str()),
            epoch: epoch.0,
        },
        Report::DeadLettered {
            partition,
            offset,
            attempts,
        } => Event::DeadLettered {
            partition: plain(partition.as_str()),
            offset: offset.0,
            attempts: *attempts,
        },
        Report::Trouble(trouble) => Event::Trouble {
            what: trouble.to_string(),
        },
        Report::State { .. }
        | Report::Lease { .. }
        | Report::Flushed { .. }
        | Report::Planned { .. }
        | Report::Moved { .. }
        | Report::History(_) => return None,
    })
}

/// A numbered partition's number; one that has none is no partition of ours.
fn plain(partition: &str) -> u32 {
    partition.parse().unwrap_or(u32::MAX)
}

async fn vitals(lines: Lines) {
    let parent = rustix::process::getppid();
    loop {
        let tasks = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        lines.say(Event::Vitals { tasks });
        tokio::time::sleep(VITALS_EVERY).await;
        if rustix::process::getppid() != parent {
            // Nobody is left to read what this one says, or to end it.
            std::process::exit(1);
        }
    }
}

/// Where lines go. A line's time is taken in turn, so that times grow from line to line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<()>>);

impl Lines {
    fn say(&self, event: Event) {
        let _turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = Line { t: now(), event };
        let Ok(mut text) = serde_json::to_string(&line) else {
            return;
        };
        text.push('\n');
        let mut stdout = std::io::stdout().lock();
        if stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
            .is_err()
        {
            // Nobody reads any more.
            std::process::exit(1);
        }
    }
}

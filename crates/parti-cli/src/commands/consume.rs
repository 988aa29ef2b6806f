//! `parti consume`: a real worker.

use std::fmt::Display;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use parti::core::partition;
use parti::core::text::count;
use parti::metrics::Endpoint;
use parti::source::JetStream;
use parti::source::place::Place;
use parti::{
    AnySource, Config, Fatal, FilePartitions, Handler, HandlerError, IntoSource, Message, Observer,
    Offset, PartitionId, PartitionSource, Report, StaticPartitions, Worker, WorkerError,
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};

use crate::exit::{CODES, Failure};
use crate::flags;
use crate::lines::{LineSender, Lines, timed};
use crate::places;
use crate::signals::Endings;

/// Run one worker of a group; start several, and they share the partitions.
///
/// SIGTERM and SIGINT stop it gracefully: it hands over everything, commits and says goodbye. A
/// second one ends it at once. A command that outlasts shutdown_timeout is ended, and its message
/// named: it is handled again, and the exit code is 1.
///
/// Example: parti consume --store sqlite:data/group.db --source log:data --topic orders
///          --group billing --exec ./bill-one.sh
/// Example: parti consume --store nats://localhost:4222 --source jetstream://localhost:4222/DC
///          --subject 'dc.{0}.{1}.completion' --partitions-file tools.yaml --group billing
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    /// Where the group's records live: memory:, sqlite:FILE, nats://…, etcd://…, postgres://…
    #[arg(long, value_name = "URL")]
    store: String,
    /// Where messages come from: log:FOLDER, or jetstream://[USER:PASSWORD@]HOST:PORT/STREAM
    #[arg(long, value_name = "URL")]
    source: String,
    /// The group's name
    #[arg(long, value_parser = flags::group)]
    group: String,
    /// The topic of a log
    #[arg(long, default_value = "messages")]
    topic: String,
    /// How many partitions, with the ids "0" to "N-1"; by default what the topic or stream was
    /// made with
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "partitions_file",
        value_parser = flags::whole::<u32>(1..=u32::MAX.into()))]
    partitions: Option<u32>,
    /// The partitions, one a line or as JSON or YAML
    #[arg(long, value_name = "FILE")]
    partitions_file: Option<String>,
    /// How a partition becomes a subject, such as dc.{0}.{1}.completion (JetStream only)
    #[arg(long, value_name = "TEMPLATE", value_parser = flags::subject)]
    subject: Option<String>,
    /// Where a new group starts: latest, earliest, an offset, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "POSITION", allow_negative_numbers = true)]
    start: Option<String>,
    /// Whether progress is written down: true or false. With false, nothing is kept once the process
    /// ends, and whoever takes a partition over begins at --start
    #[arg(long, value_name = "BOOL")]
    reliable: Option<bool>,
    /// How partitions are spread: consistent_hash, round_robin or fair_share
    #[arg(long)]
    strategy: Option<String>,
    /// Who decides: leader or leaderless
    #[arg(long)]
    coordination: Option<String>,
    /// Settings, as YAML or JSON; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// The number to have in the worker's id, if it is free; from worker_id_min to worker_id_max (0 to
    /// 99)
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = flags::whole::<u64>(0..=u64::MAX))]
    number: Option<u64>,
    /// A command for each message: payload on stdin, PARTI_PARTITION, PARTI_OFFSET, PARTI_EPOCH,
    /// PARTI_KEY, PARTI_ATTEMPT in its environment; another exit code than 0 is a failed message
    #[arg(long, value_name = "COMMAND", value_parser = flags::command)]
    exec: Option<String>,
    /// Serve /metrics, /healthz and /readyz here; a port alone is one of 127.0.0.1, and 0 is any
    /// that is free
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// How many partitions have a lag of their own in the metrics; the others are summed up
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "metrics",
        allow_negative_numbers = true, value_parser = flags::whole::<usize>(0..=u32::MAX.into()))]
    metrics_partitions: usize,
    /// What to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Each handled message's payload
    #[default]
    Text,
    /// One JSON object for everything that happens
    Jsonl,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    let mut endings = Endings::catch()?;
    let config = settings(&args)?;
    let endpoint = endpoint(&args).await?;
    let (source, partitions) = source(&args).await?;
    let store = places::store(&args.store).await?;
    let (failed, mut failure) = watch::channel(None);
    let lines = Lines::start(failed.clone())?;
    let last_words = Printer::new(&args, &lines);
    let limit = config.shutdown_timeout;
    let (alive, mut gone) = mpsc::channel(1);
    let worker = {
        let printer = last_words.clone();
        let observer = Watching {
            printer: printer.clone(),
            _alive: alive,
        };
        let handler = Printing {
            exec: args.exec.clone(),
            printer: printer.clone(),
            failed,
        };
        let mut builder = Worker::builder(&args.group, store, source, partitions)
            .config(config)
            .observer(observer);
        if let Some(number) = args.number {
            builder = builder.preferred_number(number);
        }
        if let Some(endpoint) = &endpoint {
            let metrics = endpoint.metrics();
            builder = builder.metrics(metrics.partition_series(args.metrics_partitions));
        }
        let start = builder.start(handler);
        tokio::select! {
            started = start => started?,
            // Dropping the start gives the id back, in the background.
            _ = endings.next() => {
                tokio::select! {
                    _ = gone.recv() => {}
                    () = tokio::time::sleep(limit) => {}
                    _ = endings.next() => {}
                }
                last_words.stopped(None, &[]);
                lines.finish();
                return Ok(());
            }
        }
    };
    if let Some(endpoint) = &endpoint {
        endpoint.ready_when(worker.readiness());
    }
    let asked = tokio::select! {
        ended = worker.ended() => Some(ended),
        _ = endings.next() => None,
        why = fatal(&mut failure) => {
            tell!("{why}; stopping");
            None
        }
    };
    let ended = match asked {
        Some(ended) => ended,
        None => {
            tell!("stopping; once more ends it at once");
            tokio::select! {
                stopped = worker.stop() => stopped,
                _ = endings.next() => {
                    return Err(Failure::failed("ended at once; the group takes over after the TTL"));
                }
            }
        }
    };
    let why = failure.borrow().clone();
    let reason = ended
        .as_ref()
        .err()
        .map(ToString::to_string)
        .or_else(|| why.clone());
    let cut_off = match &ended {
        Err(WorkerError::Fatal(Fatal::StopTimedOut { cut_off, .. })) => cut_off.as_slice(),
        _ => &[],
    };
    last_words.stopped(reason, cut_off);
    lines.finish();
    ended?;
    why.map_or(Ok(()), |why| Err(Failure::failed(why)))
}

/// Metrics, health and readiness, if they are asked for.
async fn endpoint(args: &Args) -> Result<Option<Endpoint>, Failure> {
    let Some(given) = &args.metrics else {
        return Ok(None);
    };
    let port = given.strip_prefix(':').unwrap_or(given);
    let address = match port.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => given.clone(),
    };
    let endpoint = Endpoint::open(address).await;
    let endpoint = endpoint.map_err(|error| Failure::usage(format!("--metrics: {error}")))?;
    tell!("metrics: http://{}/metrics", endpoint.address());
    Ok(Some(endpoint))
}

/// Waits until going on makes no sense, and says why.
async fn fatal(failure: &mut watch::Receiver<Option<String>>) -> String {
    match failure.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        // Nobody is left who could fail.
        Err(_) => std::future::pending().await,
    }
}

/// The settings of file and flags. Flags are read by the rules of the file.
fn settings(args: &Args) -> Result<Config, Failure> {
    let mut config = places::config(args.config.as_deref(), Config::default())?;
    let mut given = json!({});
    if let Some(strategy) = &args.strategy {
        given["strategy"] = json!(strategy);
    }
    if let Some(coordination) = &args.coordination {
        given["coordination"] = json!(coordination);
    }
    if let Some(start) = &args.start {
        let start = flags::start_value(start);
        given["processing"] = json!({ "start": start });
    }
    let flags = Config::from_tree(&given).map_err(|problems| {
        let named = problems.to_string().replace("processing.start", "start");
        let lines = named.lines().map(|line| format!("--{line}"));
        Failure::usage(lines.collect::<Vec<_>>().join("\n"))
    })?;
    if args.strategy.is_some() {
        config.strategy = flags.strategy;
    }
    if args.coordination.is_some() {
        config.coordination = flags.coordination;
    }
    if args.start.is_some() {
        config.processing.start = flags.processing.start;
    }
    if let Some(reliable) = args.reliable {
        config.processing.reliable = reliable;
    }
    let ids = config.worker_id_min..=config.worker_id_max;
    if let Some(number) = args.number.filter(|number| !ids.contains(number)) {
        return Err(Failure::usage(format!(
            "--number {number}: no worker's id has it; give one from {} to {}, or raise worker_id_max \
             in --config, for all workers of the group",
            ids.start(),
            ids.end()
        )));
    }
    for hint in config.hints() {
        if hint.applies == parti::core::config::HintFor::Any {
            tell!("hint: {} {} {}", hint.field, hint.value, hint.advice);
        }
    }
    Ok(config)
}

/// Where messages come from, and the partitions that it has.
async fn source(args: &Args) -> Result<(AnySource, Box<dyn PartitionSource>), Failure> {
    match places::source(&args.source).await? {
        Place::Log(log) => {
            if args.subject.is_some() {
                return Err(Failure::usage(
                    "--subject is for JetStream sources; a log's partitions have numbers",
                ));
            }
            let topic = log.topic(&args.topic).await?;
            let made_with = (topic.partitions(), format!("topic {}", topic.name()));
            Ok((
                topic.into_source(),
                partitions(args, Some(made_with)).await?,
            ))
        }
        Place::Stream(url) => {
            let url = places::with_subject(url, args.subject.as_deref());
            let stream = JetStream::connect(&url).await?;
            let name = format!("stream {}", stream.stream());
            let made_with = stream.partitions().map(|count| (count, name));
            Ok((stream.into_source(), partitions(args, made_with).await?))
        }
    }
}

/// The partitions to share. `made_with`: how many the source was made with, if it was, and what to
/// call it.
async fn partitions(
    args: &Args,
    made_with: Option<(u32, String)>,
) -> Result<Box<dyn PartitionSource>, Failure> {
    if let Some(file) = &args.partitions_file {
        let partitions = FilePartitions::new(file);
        check_file(file, &partitions, made_with).await?;
        return Ok(Box::new(partitions));
    }
    let count = match (args.partitions, made_with) {
        (Some(asked), Some((has, name))) if asked != has => {
            return Err(Failure::usage(format!(
                "--partitions {asked}: {name} has {}, for good; leave the flag out",
                count(has, "partition")
            )));
        }
        (Some(count), _) | (None, Some((count, _))) => count,
        (None, None) => {
            return Err(Failure::usage(
                "which partitions the stream has is not known: give --partitions N for subjects \
                 with a number each, or --partitions-file FILE",
            ));
        }
    };
    Ok(Box::new(StaticPartitions::numbered(count)))
}

/// What is wrong with the file from the beginning is said at once; later it may change.
async fn check_file(
    file: &str,
    partitions: &FilePartitions,
    made_with: Option<(u32, String)>,
) -> Result<(), Failure> {
    let wrong = |why: String| Failure::usage(format!("--partitions-file {why}"));
    let listed = partitions
        .list()
        .await
        .map_err(|error| wrong(error.to_string()))?;
    if listed.is_empty() {
        return Err(wrong(format!(
            "{file}: it names no partition; write one id a line"
        )));
    }
    let Some((count, name)) = made_with else {
        return Ok(());
    };
    partition::made_with(&listed, &name, count)
        .map_err(|problem| wrong(format!("{file}: {problem}")))
}

/// Prints what a worker says. Lives as long as the worker does: whoever waits for the other end
/// waits for its goodbye.
struct Watching {
    printer: Printer,
    _alive: mpsc::Sender<()>,
}

impl Observer for Watching {
    fn observe(&self, report: &Report) {
        self.printer.report(report);
    }
}

/// Prints what happens.
#[derive(Clone)]
struct Printer {
    output: Output,
    group: Arc<str>,
    lines: LineSender,
    worker: Arc<std::sync::Mutex<String>>,
}

impl Printer {
    fn new(args: &Args, lines: &Lines) -> Self {
        Self {
            output: args.output,
            group: args.group.as_str().into(),
            lines: lines.sender(),
            worker: Arc::default(),
        }
    }

    fn worker(&self) -> String {
        let worker = self.worker.lock();
        worker.map_or_else(|poisoned| poisoned.into_inner().clone(), |id| id.clone())
    }

    fn event(&self, mut event: Value) {
        event["worker"] = Value::String(self.worker());
        if self.output == Output::Jsonl {
            self.lines.event(event);
        }
    }

    /// The last word of this process: why, if it ends against its will, and the messages whose
    /// handling it gave up half way.
    fn stopped(&self, error: Option<String>, cut_off: &[(PartitionId, Offset)]) {
        let place = |(partition, offset): &(PartitionId, Offset)| json!({"partition": partition.as_str(), "offset": offset.0});
        let cut_off: Vec<Value> = cut_off.iter().map(place).collect();
        self.event(json!({"event": "stopped", "error": error, "cut_off": cut_off}));
    }

    fn report(&self, report: &Report) {
        if let Report::Claimed(id, _) = report
            && let Ok(mut worker) = self.worker.lock()
        {
            *worker = id.to_string();
        }
        if let Some(event) = event_of(report, &self.group) {
            self.event(event);
        }
        match report {
            Report::Trouble(trouble) => self.tell(trouble),
            Report::SessionLost => self.tell(&"the session is lost; seeking a new one"),
            Report::Fenced { partition, epoch } => {
                self.tell(&format_args!("fenced from {partition}, epoch {epoch}"));
            }
            Report::DeadLettered {
                partition,
                offset,
                attempts,
            } => self.tell(&format_args!(
                "{partition}/{offset} went to the dead letters after {attempts} attempts"
            )),
            _ => {}
        }
    }

    /// Says what has happened to the worker; it has no name before it has claimed one.
    fn tell(&self, what: &dyn Display) {
        match self.worker() {
            worker if worker.is_empty() => tell!("{what}"),
            worker => tell!("{worker}: {what}"),
        }
    }

    /// Prints a message; it counts as handled once the line is out of this process.
    async fn handled(&self, message: &Message) -> Result<(), HandlerError> {
        let line = match self.output {
            Output::Text => message.payload().to_vec(),
            Output::Jsonl => {
                let mut event = message_event(message);
                event["worker"] = Value::String(self.worker());
                timed(event).into_bytes()
            }
        };
        Ok(self.lines.written(line).await?)
    }
}

fn ids<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// What a report is as an event, if it is one.
fn event_of(report: &Report, group: &str) -> Option<Value> {
    Some(match report {
        Report::Claimed(_, incarnation) => {
            json!({"event": "started", "group": group, "incarnation": incarnation.0})
        }
        Report::Leading(term) => {
            json!({"event": "leader", "leader": term.is_some(), "term": term.map(|t| t.0)})
        }
        Report::State { from, to } => {
            json!({"event": "state", "from": format!("{from:?}"), "to": format!("{to:?}")})
        }
        Report::Assigned {
            version,
            serve,
            prepare,
            ..
        } => json!({
            "event": "assignment", "version": version.0, "serve": ids(serve), "prepare": ids(prepare),
        }),
        Report::Taken {
            partition,
            epoch,
            offset,
            next_offset,
            seized,
        } => json!({
            "event": "taken", "partition": partition.as_str(), "epoch": epoch.0,
            "offset": offset.map(|o| o.0), "next_offset": next_offset.0, "seized": seized,
        }),
        Report::Released {
            partition,
            epoch,
            offset,
            next_offset,
        } => json!({
            "event": "released", "partition": partition.as_str(), "epoch": epoch.0,
            "offset": offset.map(|o| o.0), "next_offset": next_offset.0,
        }),
        Report::Fenced { partition, epoch } => {
            json!({"event": "fenced", "partition": partition.as_str(), "epoch": epoch.0})
        }
        Report::SessionLost => json!({"event": "session_lost"}),
        Report::Lease { alive } => json!({"event": "lease", "alive": alive}),
        Report::DeadLettered {
            partition,
            offset,
            attempts,
        } => json!({
            "event": "dead_lettered", "partition": partition.as_str(), "offset": offset.0,
            "attempts": attempts,
        }),
        Report::Trouble(trouble) => json!({"event": "trouble", "error": trouble.to_string()}),
        _ => return None,
    })
}

fn message_event(message: &Message) -> Value {
    let mut event = json!({
        "event": "message",
        "partition": message.partition.as_str(),
        "offset": message.offset.0,
        "epoch": message.epoch.0,
        "attempt": message.attempt,
        "subject": message.subject(),
        "key": message.key().map(|key| String::from_utf8_lossy(key)),
    });
    match std::str::from_utf8(message.payload()) {
        Ok(text) => event["payload"] = json!(text),
        Err(_) => event["payload_b64"] = json!(STANDARD.encode(message.payload())),
    }
    event
}

/// Runs the command, if there is one, then prints.
struct Printing {
    exec: Option<String>,
    printer: Printer,
    /// Why going on makes no sense.
    failed: watch::Sender<Option<String>>,
}

#[parti::async_trait]
impl Handler for Printing {
    async fn handle(&self, message: Message) -> Result<(), HandlerError> {
        if let Some(command) = &self.exec {
            let status = execute(command, &message).await?;
            // A command that cannot be run is not the message's fault.
            if matches!(status.code(), Some(126 | 127)) {
                let why = format!("--exec {command}: the command cannot be run ({status})");
                self.failed.send_replace(Some(why));
            }
            if !status.success() {
                return Err(format!("the command ended with {status}").into());
            }
        }
        self.printer.handled(&message).await
    }
}

/// Ends a command and whatever it started, when its message is given up.
struct Leash(Option<Pid>);

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn execute(command: &str, message: &Message) -> Result<ExitStatus, HandlerError> {
    let key = message.key().map(|key| String::from_utf8_lossy(key));
    let key = key.as_deref().unwrap_or_default().replace('\0', "");
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(command)
        .env("PARTI_PARTITION", message.partition.as_str())
        .env("PARTI_OFFSET", message.offset.to_string())
        .env("PARTI_EPOCH", message.epoch.to_string())
        .env("PARTI_ATTEMPT", message.attempt.to_string())
        .env("PARTI_WORKER", message.worker.as_str())
        .env("PARTI_SUBJECT", message.subject())
        .env("PARTI_KEY", key)
        .stdin(Stdio::piped())
        // Stdout is for our own lines.
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("sh cannot be started: {error}"))?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let mut leash = Leash(pid.and_then(Pid::from_raw));
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input is no failure.
        let _ = stdin.write_all(message.payload()).await;
    }
    let status = child.wait().await?;
    leash.0 = None;
    Ok(status)
}

//! The walk-through of the docs, run as it is written: its commands, and what they answer.
//!
//! Numbers differ from run to run, so both texts are compared without them; what the numbers must be
//! is asserted apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parti_servers::etcd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::scene::{Said, billing, parti, said};

const PAGE: &str = include_str!("../../../../docs/walkthrough.md");
const PATIENCE: Duration = Duration::from_secs(180);
const GROUP: [&str; 6] = [
    "--store",
    "sqlite:group.db",
    "--group",
    "billing",
    "-o",
    "json",
];

/// Where the page has an etcd.
const ETCD: &str = "127.0.0.1:2379";

const DESCRIBE: &str = "parti group describe --store sqlite:group.db --group billing";

/// One command of the page, and the lines that it answers there.
struct Step {
    command: String,
    answer: String,
}

/// The files that the page has, and its commands in order.
fn read_page() -> (BTreeMap<String, String>, Vec<Step>) {
    let (mut files, mut steps) = (BTreeMap::new(), Vec::<Step>::new());
    let mut block: Option<String> = None;
    for line in PAGE.lines() {
        match (&block, line.strip_prefix("```")) {
            (None, Some(opened)) => block = Some(opened.to_owned()),
            (Some(_), Some(_)) => block = None,
            (Some(kind), None) if kind == "console" => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step {
                    command: command.to_owned(),
                    answer: String::new(),
                }),
                None => {
                    let step = steps.last_mut().expect("a command before its answer");
                    step.answer.push_str(line);
                    step.answer.push('\n');
                }
            },
            (Some(kind), None) => {
                if let Some(name) = kind.strip_prefix("yaml ") {
                    let file: &mut String = files.entry(name.to_owned()).or_default();
                    file.push_str(line);
                    file.push('\n');
                }
            }
            (None, None) => {}
        }
    }
    (files, steps)
}

/// The words of a command, as a shell has them.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in command.split('"').enumerate() {
        if n % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// A text without what differs from run to run: numbers and how wide they are, and times.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        let numbers = line.replace(|c: char| c.is_ascii_digit(), "#");
        let words = numbers.split_whitespace().map(|word| {
            let mut word = word.to_owned();
            while word.contains("##") {
                word = word.replace("##", "#");
            }
            let unit = |c: char| "#.smh".contains(c);
            let (open, rest) = word.split_at(usize::from(word.starts_with('(')));
            let body = rest.trim_end_matches([',', ')', ';']);
            match !body.is_empty() && body.contains('#') && body.chars().all(unit) {
                true => format!("{open}#{}", &rest[body.len()..]),
                false => word,
            }
        });
        plain.push_str(&words.collect::<Vec<_>>().join(" "));
        plain.push('\n');
    }
    plain
}

/// Processes that end with the test.
#[derive(Default)]
struct Background(Vec<Child>);

impl Drop for Background {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Background {
    fn start(&mut self, folder: &Path, words: &[String]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parti"));
        let redirect = words.iter().position(|word| word == ">");
        let output = match redirect {
            Some(place) => File::create(folder.join(&words[place + 1]))
                .expect("made")
                .into(),
            None => Stdio::null(),
        };
        let child = command
            .current_dir(folder)
            .args(&words[1..redirect.unwrap_or(words.len())])
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn();
        self.0.push(child.expect("runs"));
    }

    /// Asks all to end, the newest first: the producer before its consumers.
    fn end(&mut self) {
        for child in self.0.iter_mut().rev() {
            let pid = i32::try_from(child.id()).expect("a pid");
            kill_process(Pid::from_raw(pid).expect("a pid"), Signal::TERM).expect("it runs");
            child.wait().expect("ended");
        }
    }
}

fn describe(folder: &Path) -> Value {
    let text = parti(folder, &[&["status"], &GROUP[..]].concat(), "").out;
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn until(folder: &Path, what: &str, done: impl Fn(&Value) -> bool) {
    let began = Instant::now();
    loop {
        let group = describe(folder);
        if done(&group) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what} never came: {group:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Every worker has its share, and nothing moves.
fn settled(group: &Value) -> bool {
    let shares = group["workers"].as_array().into_iter().flatten();
    let shares: Vec<u64> = shares.filter_map(|w| w["partitions"].as_u64()).collect();
    let still = group["handoffs"].as_array().is_some_and(Vec::is_empty);
    let even = |share: &u64| (3..=5).contains(share);
    let stable = group["plan"]["state"] == "stable";
    still && stable && shares.len() == 3 && shares.iter().all(even)
}

/// Every partition has an owner, and nothing moves.
fn all_taken(group: &Value) -> bool {
    let partitions = group["partitions"].as_array().into_iter().flatten();
    let still = group["handoffs"].as_array().is_some_and(Vec::is_empty);
    still && partitions.filter(|p| p["owner"].is_string()).count() == 12
}

fn owner(group: &Value, partition: usize) -> &Value {
    &group["partitions"][partition]["owner"]
}

/// Every message of the log, by partition: how often it was handled.
fn handled(folder: &Path) -> BTreeMap<(String, u64), u32> {
    let mut handled: BTreeMap<(String, u64), u32> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for file in ["a.jsonl", "b.jsonl", "c.jsonl"] {
        for line in fs::read_to_string(folder.join(file)).expect("said").lines() {
            let event: Value = serde_json::from_str(line).expect("JSON");
            if event["event"] == "message" {
                let partition = event["partition"].as_str().expect("an id").to_owned();
                let offset = event["offset"].as_u64().expect("a number");
                *handled.entry((partition.clone(), offset)).or_default() += 1;
                let newest = last.entry(partition).or_default();
                *newest = (*newest).max(offset);
            }
        }
    }
    for (partition, newest) in last {
        for offset in 0..=newest {
            assert!(
                handled.contains_key(&(partition.clone(), offset)),
                "{partition} {offset}"
            );
        }
    }
    handled
}

/// What must hold after a command, whatever its words.
fn check(folder: &Path, command: &str, said: &Said) {
    let group = || describe(folder);
    let is = |verb: &str| command.starts_with(&format!("parti {verb} "));
    if is("worker drain worker-1") && said.code == Some(0) {
        assert_eq!(group()["workers"][1]["partitions"], 0, "{}", said.out);
    } else if is("worker undrain") {
        until(folder, "a share for it again", settled);
    } else if is("partition move") {
        assert_eq!(owner(&group(), 3), "worker-2", "{}", said.out);
    } else if is("partition pause 3") {
        let group = group();
        assert_eq!(*owner(&group, 3), Value::Null, "{}", said.out);
        assert_eq!(group["partitions"][3]["paused"], true);
    } else if is("checkpoint reset") && said.code == Some(0) {
        let next = group()["partitions"][3]["next_offset"].as_u64();
        assert_eq!(next == Some(0), !command.contains("--dry-run"));
    } else if is("partition resume") {
        until(folder, "an owner again", |group| {
            owner(group, 3) == "worker-2"
        });
    }
}

/// An etcd with the same group, on which the page's `reader` may only read.
fn read_only_etcd() -> etcd::Server {
    let server = etcd::Server::builder()
        .root_password("root-secret")
        .reader_password("secret")
        .start();
    let root = format!("etcd://root:root-secret@{}", server.address());
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(billing(&root));
    server
}

#[test]
fn the_walkthrough_of_the_docs_is_what_happens() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (files, steps) = read_page();
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("written");
    }
    let etcd = read_only_etcd();
    let mut background = Background::default();
    let (mut real, mut written, mut codes) = (String::new(), String::new(), Vec::new());
    for step in &steps {
        let words = words(&step.command);
        if words.last().is_some_and(|word| word == "&") {
            background.start(folder, &words[..words.len() - 1]);
            if background.0.len() == 1 {
                // On the page, the first one leads.
                until(folder, "a leader", |group| group["leader"] == "worker-0");
            }
            continue;
        }
        if background.0.len() == 4 {
            until(folder, "a group of three", |group| !group.is_null());
        }
        if step.command.starts_with(DESCRIBE) {
            until(folder, "a share for each", settled);
        }
        if step.command.starts_with("parti worker list") {
            until(folder, "all to have what they were told", all_taken);
        }
        let words: Vec<String> = (words.iter())
            .map(|word| word.replace(ETCD, &etcd.address()))
            .collect();
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let said = parti(folder, &arguments, "");
        check(folder, &step.command, &said);
        codes.extend(said.code.filter(|code| *code != 0));
        let here = fs::canonicalize(folder).expect("a path");
        let here = here.display().to_string();
        let answer = format!("{}{}", said.out, said.err).replace(&here, "/srv/alice");
        real.push_str(&format!("$ {}\n{answer}", step.command));
        written.push_str(&format!("$ {}\n{}", step.command, step.answer));
    }
    background.end();
    assert_eq!(
        plain(&real),
        plain(&written),
        "this is what really happens:\n{real}"
    );
    assert_eq!(codes, [4, 2, 2, 2, 2, 2, 3, 4], "as the page has them");
    let repeated: BTreeSet<String> = handled(folder)
        .into_iter()
        .filter(|(_, times)| *times > 1)
        .map(|((partition, _), _)| partition)
        .collect();
    let only_the_reset_one = BTreeSet::from(["3".to_owned()]);
    assert_eq!(
        repeated, only_the_reset_one,
        "nothing else was handled twice"
    );
    said(folder, &["group", "list", "--store", "sqlite:group.db"]);
}

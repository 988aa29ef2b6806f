//! Steps: named pieces of work, run one after the other, all of them, with a summary at the end.
//!
//! ```text
//! [Step, Step, …]  ──▶ run each, even after a failure ──▶ table: name, time, ok or FAILED
//!                                                          warnings, loud, at the very end
//! ```

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One piece of work.
pub struct Step {
    name: String,
    work: Work,
}

enum Work {
    /// A command; it passes when it exits with zero.
    Command(Command),
    /// A check in this program; it passes when it finds nothing.
    Check(Box<dyn FnOnce() -> Vec<String>>),
}

impl Step {
    /// A command of the cargo that runs us.
    pub fn cargo(name: &str, arguments: &str) -> Self {
        let mut command = cargo();
        command.args(arguments.split_whitespace());
        Self::command(name, command)
    }

    /// Any command.
    pub fn command(name: &str, command: Command) -> Self {
        Self {
            name: name.to_owned(),
            work: Work::Command(command),
        }
    }

    /// A check that answers with the problems it found.
    pub fn check(name: &str, check: impl FnOnce() -> Vec<String> + 'static) -> Self {
        Self {
            name: name.to_owned(),
            work: Work::Check(Box::new(check)),
        }
    }

    /// Sets a variable of the command's environment.
    pub fn env(mut self, variable: &str, value: impl Into<OsString>) -> Self {
        if let Work::Command(command) = &mut self.work {
            command.env(variable, value.into());
        }
        self
    }

    /// Runs the command in a folder.
    pub fn within(mut self, folder: &str) -> Self {
        if let Work::Command(command) = &mut self.work {
            command.current_dir(folder);
        }
        self
    }

    fn run(self) -> bool {
        println!("\n==> {}", self.name);
        match self.work {
            Work::Command(mut command) => {
                println!("    {}", as_typed(&command));
                // Nothing here may wait for an answer.
                match command.stdin(Stdio::null()).status() {
                    Ok(status) => status.success(),
                    Err(error) => {
                        eprintln!("    cannot be started: {error}");
                        false
                    }
                }
            }
            Work::Check(check) => {
                let problems = check();
                for problem in &problems {
                    eprintln!("    {problem}");
                }
                problems.is_empty()
            }
        }
    }
}

/// The cargo that runs us, so that a `+toolchain` holds for every step.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs all steps, then says how each went. True when all passed. The warnings come last, where
/// nobody overlooks them.
pub fn run(title: &str, steps: Vec<Step>, warnings: Vec<String>) -> bool {
    let begin = Instant::now();
    let mut results = Vec::new();
    for step in steps {
        let name = step.name.clone();
        let begin = Instant::now();
        let passed = step.run();
        results.push((name, begin.elapsed(), passed));
    }

    println!("\n==> {title}: summary");
    for (name, took, passed) in &results {
        let verdict = if *passed { "ok" } else { "FAILED" };
        println!("    {:<40} {:>8}  {verdict}", name, seconds(*took));
    }
    println!("    {:<40} {:>8}", "in all", seconds(begin.elapsed()));
    for warning in &warnings {
        shout(warning);
    }
    let failed: Vec<&str> = results
        .iter()
        .filter(|(_, _, passed)| !passed)
        .map(|(name, _, _)| name.as_str())
        .collect();
    if !failed.is_empty() {
        shout(&format!("{title} FAILED: {}", failed.join(", ")));
    }
    failed.is_empty()
}

/// A message that cannot be overlooked.
pub fn shout(message: &str) {
    let bar = "!".repeat(100);
    eprintln!("\n{bar}");
    for line in message.lines() {
        eprintln!("!!  {line}");
    }
    eprintln!("{bar}");
}

fn as_typed(command: &Command) -> String {
    let variables = command
        .get_envs()
        .map(|(name, value)| format!("{}={:?}", name.to_string_lossy(), value.unwrap_or_default()));
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned());
    let program = Path::new(command.get_program()).file_name();
    let program = program.unwrap_or_default().to_string_lossy().into_owned();
    let words: Vec<String> = variables.chain([program]).chain(arguments).collect();
    words.join(" ")
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_the_run_but_does_not_stop_it() {
        let (sender, ran) = std::sync::mpsc::channel();
        let passed = run(
            "test",
            vec![
                Step::check("bad", || vec!["a problem".to_owned()]),
                Step::check("good", move || {
                    sender.send(()).expect("the receiver lives");
                    Vec::new()
                }),
            ],
            Vec::new(),
        );
        assert!(!passed);
        assert!(ran.try_recv().is_ok(), "the second step ran");
    }

    #[test]
    fn steps_without_problems_pass() {
        assert!(run("test", vec![Step::check("good", Vec::new)], Vec::new()));
    }

    #[test]
    fn a_command_that_exits_with_an_error_fails() {
        assert!(!Step::cargo("no such command", "no-such-command-of-cargo").run());
    }
}

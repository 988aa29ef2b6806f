//! The simulator's commands, one file each.

mod planted;
mod replay;
mod run;

use std::process::ExitCode;

const USAGE: &str = "\
Deterministic simulation of Parti groups.

Usage: parti-sim <command>

Commands:
  run --seeds N [--from S] [--jobs J]   run N seeded worlds; exit code 0 only without a violation
  run --minutes M [--from S]            as many as the time allows: the standing campaign
  replay SEED [--faults JSON]           one world again, step by step; with --save NAME
  replay --file PATH [--faults JSON]    [--comment WORDS] it is kept as a regression
  planted [--seeds N] [--bug NAME]      plant each known bug in turn: how many seeds to catch it?
  strategies                            balance, movement and speed of the strategies
";

/// Carries out a command line.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some((command, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match command.as_str() {
        "run" => run::run(rest),
        "replay" => replay::run(rest),
        "planted" => planted::run(rest),
        "strategies" => {
            crate::strategies::run(&mut std::io::stdout().lock()).map_err(|why| why.to_string())
        }
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(true)
        }
        other => Err(format!("there is no command {other:?}")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Options of the form `--name value`, and what is left.
struct Arguments<'a> {
    options: Vec<(&'a str, &'a str)>,
    rest: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    fn of(arguments: &'a [String], known: &[&str]) -> Result<Self, String> {
        let mut parsed = Arguments {
            options: Vec::new(),
            rest: Vec::new(),
        };
        let mut words = arguments.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                parsed.rest.push(word);
                continue;
            };
            if !known.contains(&name) {
                return Err(format!("there is no option --{name}"));
            }
            let value = words
                .next()
                .ok_or_else(|| format!("--{name} wants a value"))?;
            parsed.options.push((name, value));
        }
        Ok(parsed)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.options
            .iter()
            .rfind(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.text(name).map(|text| number(name, text)).transpose()
    }
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.replace('_', "")
        .parse()
        .map_err(|_| format!("{name}: {text:?} is not a number"))
}

/// How many threads to use if nobody says.
fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

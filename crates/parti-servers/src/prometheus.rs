//! Prometheus, that scrapes what a test runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::loud;
use crate::folder::{Folder, write};
use crate::ports::Port;
use crate::process::{Launch, run};
use crate::running::try_thrice;
use crate::{Error, Kind, Running, http, install};

/// One Prometheus.
pub type Server = Running<Prometheus>;

/// What makes a server a Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    port: Port,
}

impl Kind for Prometheus {
    const NAME: &'static str = "Prometheus";

    fn address(&self) -> String {
        self.port.address()
    }

    fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    fn is_ready(&self) -> bool {
        http::get(&self.address(), "/-/ready").is_some()
    }
}

impl Running<Prometheus> {
    /// Starts one that scrapes these targets (host and port) once a second, and evaluates the rules
    /// of a file as often. Panics, with what to do, if that cannot be.
    #[track_caller]
    pub fn start(targets: &[String], rules: &Path) -> Self {
        loud(try_start(targets, rules))
    }

    /// What a query gives now: the JSON of the answer. `None` where it is refused.
    pub fn query(&self, expression: &str) -> Option<String> {
        let mut encoded = String::new();
        for byte in expression.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(char::from(byte)),
                other => encoded.push_str(&format!("%{other:02X}")),
            }
        }
        http::get(&self.address(), &format!("/api/v1/query?query={encoded}"))
    }
}

/// Runs promtool; what it says if it finds fault.
pub fn promtool(words: &[&str]) -> Result<(), Error> {
    let prometheus = install::prometheus()?;
    let promtool: PathBuf = prometheus.with_file_name("promtool");
    run(Command::new(promtool).args(words)).map(drop)
}

fn try_start(targets: &[String], rules: &Path) -> Result<Server, Error> {
    let program = install::prometheus()?;
    try_thrice(|| {
        let folder = Folder::new("prometheus")?;
        let port = Port::lease()?;
        let config = folder.path().join("prometheus.yml");
        let quoted: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        write(
            &config,
            &format!(
                "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
                 rule_files: ['{}']\n\
                 scrape_configs:\n  - job_name: parti\n    static_configs:\n      - targets: [{}]\n",
                rules.display(),
                quoted.join(", ")
            ),
        )?;
        let launch = Launch {
            name: "Prometheus".to_owned(),
            program: program.clone(),
            arguments: vec![
                format!("--config.file={}", config.display()),
                format!(
                    "--storage.tsdb.path={}",
                    folder.path().join("data").display()
                ),
                format!("--web.listen-address={}", port.address()),
            ],
            folder: folder.path().to_owned(),
            identity: None,
        };
        let mut server = Running::prepared(Prometheus { port }, launch, folder);
        server.spawn_ready(false)?;
        Ok(server)
    })
}

//! nats-server, alone or as a [`Cluster`].

mod cluster;
mod config;
mod credentials;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use crate::error::loud;
use crate::folder::{Folder, write};
use crate::install::{self, NATS_LATEST};
use crate::ports::Port;
use crate::process::Launch;
use crate::running::try_thrice;
use crate::tls::Certificates;
use crate::{Error, Kind, Running, http};

pub use cluster::Cluster;
pub use config::Builder;
use config::Login;

/// One nats-server with JetStream.
pub type Server = Running<Nats>;

/// What makes a server a nats-server.
#[derive(Debug)]
pub struct Nats {
    /// Its own name, by which we know that it is ours that answers.
    name: String,
    client: Port,
    monitor: Port,
    options: Builder,
    /// A node without its cluster answers clients but is not healthy.
    in_cluster: bool,
}

impl Kind for Nats {
    const NAME: &'static str = "nats-server";

    fn address(&self) -> String {
        self.client.address()
    }

    fn url(&self) -> String {
        let address = self.address();
        let scheme = self.scheme();
        match &self.options.login {
            Login::None | Login::Credentials | Login::Nkey => format!("{scheme}://{address}"),
            Login::User { name, password } => format!("{scheme}://{name}:{password}@{address}"),
            Login::Token(token) => format!("{scheme}://{token}@{address}"),
        }
    }

    fn is_ready(&self) -> bool {
        self.greets() && (self.in_cluster || self.is_healthy())
    }
}

impl Nats {
    fn scheme(&self) -> &'static str {
        if self.options.tls.is_on() {
            "tls"
        } else {
            "nats"
        }
    }

    /// Whether clients are greeted, by this server and no other on its port.
    fn greets(&self) -> bool {
        let Some(stream) = http::connect(&self.address()) else {
            return false;
        };
        let mut greeting = String::new();
        BufReader::new(stream).read_line(&mut greeting).is_ok()
            && greeting.starts_with("INFO ")
            && greeting.contains(&format!("\"{}\"", self.name))
    }

    /// Whether JetStream has recovered what it stored.
    fn is_healthy(&self) -> bool {
        http::get(&self.monitor.address(), "/healthz").is_some()
    }

    /// The same, whatever it says of its streams and consumers.
    fn serves(&self) -> bool {
        http::get(&self.monitor.address(), "/healthz?js-server-only=true").is_some()
    }
}

impl Running<Nats> {
    /// Starts a server of the newest version that Parti is tested with. Panics, with what to do, if
    /// that cannot be.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts a server of this version, as in `2.10.26`.
    #[track_caller]
    pub fn start_version(version: &str) -> Self {
        Self::builder().version(version).start()
    }

    /// A server with options.
    pub fn builder() -> Builder {
        Builder::new(NATS_LATEST)
    }

    /// The URL without user, password or token.
    pub fn url_without_login(&self) -> String {
        format!("{}://{}", self.kind.scheme(), self.address())
    }

    /// The credentials file that a client must show, when the server was started with one.
    pub fn credentials_file(&self) -> Option<PathBuf> {
        Some(credentials::file(self.folder())).filter(|file| file.exists())
    }

    /// The file with the key by which a client must sign, when the server was started with one.
    pub fn seed_file(&self) -> Option<PathBuf> {
        Some(credentials::seed_file(self.folder())).filter(|file| file.exists())
    }

    /// Host and port of its monitoring, which speaks HTTP: `/varz`, `/jsz`, `/healthz`.
    pub fn monitor(&self) -> String {
        self.kind.monitor.address()
    }
}

impl Builder {
    /// Starts it. Panics, with what to do, if that cannot be.
    #[track_caller]
    pub fn start(&self) -> Server {
        loud(self.try_start())
    }

    /// Starts it.
    pub fn try_start(&self) -> Result<Server, Error> {
        // Outside the repetition: what is missing stays missing.
        install::nats(&self.version)?;
        try_thrice(|| {
            let mut server = self.prepare(Folder::new("nats")?, None)?;
            server.spawn_ready(false)?;
            Ok(server)
        })
    }

    /// Everything but the process.
    fn prepare(&self, folder: Folder, cluster: Option<&str>) -> Result<Server, Error> {
        let (client, monitor) = (Port::lease()?, Port::lease()?);
        let name = format!("parti-{}", client.number());
        if self.tls.is_on() {
            Certificates::make(folder.path())?;
        }
        match self.login {
            Login::Credentials => credentials::make(folder.path())?,
            Login::Nkey => credentials::make_seed(folder.path())?,
            Login::None | Login::User { .. } | Login::Token(_) => {}
        }
        let file = folder.path().join("nats.conf");
        write(
            &file,
            &self.config(&name, &client, &monitor, folder.path(), cluster),
        )?;
        let launch = Launch {
            name: format!("nats-server {}", self.version),
            program: install::nats(&self.version)?,
            arguments: vec!["-c".to_owned(), file.display().to_string()],
            folder: folder.path().to_owned(),
            identity: None,
        };
        let kind = Nats {
            name,
            client,
            monitor,
            options: self.clone(),
            in_cluster: cluster.is_some(),
        };
        Ok(Running::prepared(kind, launch, folder))
    }
}

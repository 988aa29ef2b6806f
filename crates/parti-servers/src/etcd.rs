//! etcd, one member.

use std::path::Path;

use crate::error::loud;
use crate::folder::Folder;
use crate::ports::Port;
use crate::process::Launch;
use crate::running::try_thrice;
use crate::tls::{Certificates, Tls};
use crate::{Error, Kind, Running, http, install};

/// One etcd.
pub type Server = Running<Etcd>;

/// What makes a server an etcd.
#[derive(Debug)]
pub struct Etcd {
    client: Port,
    peer: Port,
    monitor: Port,
    /// The password of the user root, where users are asked for one.
    root_password: Option<String>,
}

impl Kind for Etcd {
    const NAME: &'static str = "etcd";

    fn address(&self) -> String {
        self.client.address()
    }

    fn url(&self) -> String {
        match &self.root_password {
            None => format!("etcd://{}", self.address()),
            Some(password) => format!("etcd://root:{password}@{}", self.address()),
        }
    }

    fn is_ready(&self) -> bool {
        http::get(&self.monitor.address(), "/health")
            .is_some_and(|health| health.contains("\"true\""))
            && http::connect(&self.address()).is_some()
    }
}

impl Running<Etcd> {
    /// Starts a server. Panics, with what to do, if that cannot be.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The URL without user and password.
    pub fn url_without_login(&self) -> String {
        format!("etcd://{}", self.address())
    }
}

/// Options of a server; `start` starts it.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    root_password: Option<String>,
    reader_password: Option<String>,
    quota: Option<u64>,
    tls: Tls,
}

impl Builder {
    /// Clients need a user: `root` has this password.
    pub fn root_password(mut self, password: &str) -> Self {
        self.root_password = Some(password.to_owned());
        self
    }

    /// There is a user `reader` with this password, who may read every key and write none. Only
    /// with a password for root.
    pub fn reader_password(mut self, password: &str) -> Self {
        self.reader_password = Some(password.to_owned());
        self
    }

    /// It may store this many bytes, then it refuses writes.
    pub fn quota(mut self, bytes: u64) -> Self {
        self.quota = Some(bytes);
        self
    }

    /// Clients must use TLS; see [`ca_certificate`](Running::ca_certificate).
    pub fn tls(mut self) -> Self {
        self.tls = Tls::Server;
        self
    }

    /// Clients must use TLS and show a certificate; see
    /// [`client_certificate`](Running::client_certificate).
    pub fn mutual_tls(mut self) -> Self {
        self.tls = Tls::Mutual;
        self
    }

    /// Starts it. Panics, with what to do, if that cannot be.
    #[track_caller]
    pub fn start(&self) -> Server {
        loud(self.try_start())
    }

    /// Starts it.
    pub fn try_start(&self) -> Result<Server, Error> {
        // Outside the repetition: what is missing stays missing.
        install::etcd()?;
        try_thrice(|| {
            let mut server = self.prepare()?;
            server.spawn_ready(false)?;
            self.ask_for_passwords(&server)?;
            if self.tls.is_on() {
                // Passwords are set without TLS, which we do not speak ourselves.
                let made = Certificates::make(server.folder())?;
                server.launch.arguments =
                    self.arguments(&server.kind, server.folder(), Some(&made));
                server.kill();
                server.spawn_ready(true)?;
            }
            Ok(server)
        })
    }

    fn prepare(&self) -> Result<Server, Error> {
        let folder = Folder::new("etcd")?;
        let kind = Etcd {
            client: Port::lease()?,
            peer: Port::lease()?,
            monitor: Port::lease()?,
            root_password: self.root_password.clone(),
        };
        let launch = Launch {
            name: "etcd".to_owned(),
            program: install::etcd()?,
            arguments: self.arguments(&kind, folder.path(), None),
            folder: folder.path().to_owned(),
            identity: None,
        };
        Ok(Running::prepared(kind, launch, folder))
    }

    fn arguments(
        &self,
        kind: &Etcd,
        folder: &Path,
        certificates: Option<&Certificates>,
    ) -> Vec<String> {
        let scheme = if certificates.is_some() {
            "https"
        } else {
            "http"
        };
        let client = format!("{scheme}://{}", kind.client.address());
        let peer = format!("http://{}", kind.peer.address());
        let mut arguments = vec![
            "--name=parti".to_owned(),
            format!("--data-dir={}", folder.join("data").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=parti={peer}"),
            format!("--listen-metrics-urls=http://{}", kind.monitor.address()),
            // A single member need not wait long for others before it leads.
            "--heartbeat-interval=20".to_owned(),
            "--election-timeout=200".to_owned(),
            "--logger=zap".to_owned(),
            "--log-outputs=stderr".to_owned(),
        ];
        arguments.extend(
            self.quota
                .map(|bytes| format!("--quota-backend-bytes={bytes}")),
        );
        if let Some(made) = certificates {
            arguments.push(format!("--cert-file={}", made.certificate.display()));
            arguments.push(format!("--key-file={}", made.key.display()));
            if self.tls == Tls::Mutual {
                arguments.push("--client-cert-auth".to_owned());
                arguments.push(format!("--trusted-ca-file={}", made.authority.display()));
            }
        }
        arguments
    }

    fn ask_for_passwords(&self, server: &Server) -> Result<(), Error> {
        let Some(root) = &self.root_password else {
            return Ok(());
        };
        let post = |path: &str, json: String| {
            http::post(&server.address(), path, &json)
                .ok_or_else(|| Error::new(format!("etcd refused a POST to {path}")))
        };
        let add_user = |name: &str, password: &str, role: &str| {
            post(
                "/v3/auth/user/add",
                format!(r#"{{"name":"{name}","password":"{password}"}}"#),
            )?;
            post(
                "/v3/auth/user/grant",
                format!(r#"{{"user":"{name}","role":"{role}"}}"#),
            )
        };
        post("/v3/auth/role/add", r#"{"name":"root"}"#.to_owned())?;
        add_user("root", root, "root")?;
        if let Some(reader) = &self.reader_password {
            post("/v3/auth/role/add", r#"{"name":"reader"}"#.to_owned())?;
            // From the key of one zero byte, to the end of all keys, which is written the same.
            post(
                "/v3/auth/role/grant",
                r#"{"name":"reader","perm":{"permType":"READ","key":"AA==","range_end":"AA=="}}"#
                    .to_owned(),
            )?;
            add_user("reader", reader, "reader")?;
        }
        post("/v3/auth/enable", "{}".to_owned()).map(drop)
    }
}

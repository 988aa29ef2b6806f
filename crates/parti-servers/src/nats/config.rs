//! The options of a nats-server, and the file it reads them from.

use std::fmt::Write;
use std::path::Path;

use super::credentials;
use crate::ports::Port;
use crate::tls::{Certificates, Tls};

/// Options of a server; `start` starts it.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) version: String,
    pub(super) login: Login,
    limited: Vec<Limited>,
    max_payload: Option<u64>,
    store_limit: Option<u64>,
    jetstream: bool,
    pub(super) tls: Tls,
}

/// What a client must show. These are secrets of a test, which live as long as it.
#[derive(Clone, Debug)]
pub(super) enum Login {
    None,
    User { name: String, password: String },
    Token(String),
    Credentials,
    Nkey,
}

/// A user beside the first, who may publish to all but some subjects.
#[derive(Clone, Debug)]
struct Limited {
    name: String,
    password: String,
    denied: Vec<String>,
}

impl Builder {
    pub(super) fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            login: Login::None,
            limited: Vec::new(),
            max_payload: None,
            store_limit: None,
            jetstream: true,
            tls: Tls::Off,
        }
    }

    /// Of this version, as in `2.10.26`.
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Clients need this user and password.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.login = Login::User {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        self
    }

    /// There is this user, too, beside the one of [`user`](Self::user): it may not publish to these
    /// subjects.
    pub fn limited_user(mut self, name: &str, password: &str, denied: &[&str]) -> Self {
        self.limited.push(Limited {
            name: name.to_owned(),
            password: password.to_owned(),
            denied: denied.iter().map(|subject| (*subject).to_owned()).collect(),
        });
        self
    }

    /// Clients need this token.
    pub fn token(mut self, token: &str) -> Self {
        self.login = Login::Token(token.to_owned());
        self
    }

    /// Clients need a credentials file; see
    /// [`credentials_file`](crate::Running::credentials_file).
    pub fn credentials(mut self) -> Self {
        self.login = Login::Credentials;
        self
    }

    /// Clients need to sign by a key; see [`seed_file`](crate::Running::seed_file).
    pub fn nkey(mut self) -> Self {
        self.login = Login::Nkey;
        self
    }

    /// Messages may have this many bytes; 1 MiB unless told.
    pub fn max_payload(mut self, bytes: u64) -> Self {
        self.max_payload = Some(bytes);
        self
    }

    /// JetStream may store this many bytes: a disk that is soon full.
    pub fn store_limit(mut self, bytes: u64) -> Self {
        self.store_limit = Some(bytes);
        self
    }

    /// A server that stores nothing.
    pub fn without_jetstream(mut self) -> Self {
        self.jetstream = false;
        self
    }

    /// Clients must use TLS; see [`ca_certificate`](crate::Running::ca_certificate).
    pub fn tls(mut self) -> Self {
        self.tls = Tls::Server;
        self
    }

    /// Clients must use TLS and show a certificate; see
    /// [`client_certificate`](crate::Running::client_certificate).
    pub fn mutual_tls(mut self) -> Self {
        self.tls = Tls::Mutual;
        self
    }

    pub(super) fn config(
        &self,
        name: &str,
        client: &Port,
        monitor: &Port,
        folder: &Path,
        cluster: Option<&str>,
    ) -> String {
        let mut text = format!(
            "server_name: {name}\nlisten: \"{}\"\nhttp: \"{}\"\n",
            client.address(),
            monitor.address()
        );
        if let Some(bytes) = self.max_payload {
            line(&mut text, format_args!("max_payload: {bytes}"));
        }
        match &self.login {
            Login::None => {}
            Login::Credentials => line(&mut text, format_args!("{}", credentials::config())),
            Login::Nkey => line(&mut text, format_args!("{}", credentials::nkey_config())),
            Login::User { name, password } => {
                let mut users = format!("{{ user: \"{name}\", password: \"{password}\" }}");
                for Limited {
                    name,
                    password,
                    denied,
                } in &self.limited
                {
                    // A list of quoted texts is the same here as there.
                    users.push_str(&format!(
                        ", {{ user: \"{name}\", password: \"{password}\", permissions: {{ \
                         publish: {{ deny: {denied:?} }} }} }}"
                    ));
                }
                line(
                    &mut text,
                    format_args!("authorization {{ users: [ {users} ] }}"),
                );
            }
            Login::Token(token) => {
                line(
                    &mut text,
                    format_args!("authorization {{ token: \"{token}\" }}"),
                );
            }
        }
        if self.jetstream {
            let store = folder.join("jetstream");
            let limit = self
                .store_limit
                .map(|bytes| format!(", max_file_store: {bytes}"))
                .unwrap_or_default();
            line(
                &mut text,
                format_args!("jetstream {{ store_dir: \"{}\"{limit} }}", store.display()),
            );
        }
        if self.tls.is_on() {
            let made = Certificates::within(folder);
            let verify = self.tls == Tls::Mutual;
            line(
                &mut text,
                format_args!(
                    "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: {verify} }}",
                    made.certificate.display(),
                    made.key.display(),
                    made.authority.display()
                ),
            );
        }
        if let Some(cluster) = cluster {
            line(&mut text, format_args!("{cluster}"));
        }
        text
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(line);
    text.push('\n');
}

//! From a URL to a connection, and what is known about it from then on.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event, ReconnectToServer, Server, ServerAddr,
    ServerError,
};
use tokio::sync::watch;

use crate::store::{Address, Error, Secret};

/// The parameters that say how to connect.
pub(crate) const PARAMETERS: [&str; 7] = ["creds", "token", "nkey", "tls", "ca", "cert", "key"];
/// Enough for a distant server; after it, opening gives up on this host.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// A server that does not answer three of these in a row counts as lost: a stopped process or a
/// dropped link shows no other sign.
const PING_EVERY: Duration = Duration::from_secs(2);
const RECONNECT_AT_LEAST_EVERY: Duration = Duration::from_secs(1);
const OLDEST_SERVER: (u32, u32) = (2, 10);

/// Where the servers are, and how to log in.
pub(crate) struct Servers {
    /// What to call them in messages, without secrets.
    pub name: String,
    hosts: Vec<ServerAddr>,
    login: Login,
    tls: Tls,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

enum Login {
    None,
    Password(String, Secret),
    Token(Secret),
    Credentials(PathBuf),
    NkeySeed(PathBuf),
}

#[derive(Default)]
struct Tls {
    required: bool,
    authority: Option<PathBuf>,
    own: Option<(PathBuf, PathBuf)>,
}

impl Servers {
    /// Whether the files that it names can be read.
    pub(crate) fn check_files(&self) -> Result<(), Error> {
        let login = match &self.login {
            Login::None | Login::Password(..) | Login::Token(_) => None,
            Login::Credentials(file) => Some((file, "creds")),
            Login::NkeySeed(file) => Some((file, "nkey")),
        };
        let own = self.tls.own.as_ref();
        let own = own
            .into_iter()
            .flat_map(|(cert, key)| [(cert, "cert"), (key, "key")]);
        let authority = self.tls.authority.as_ref().map(|file| (file, "ca"));
        for (file, parameter) in login.into_iter().chain(authority).chain(own) {
            read(file, parameter)?;
        }
        Ok(())
    }

    /// Takes out of an address what says where to connect and how. `tls_scheme`: the scheme
    /// itself asks for TLS.
    pub(crate) fn take(
        name: String,
        address: &mut Address,
        tls_scheme: bool,
    ) -> Result<Self, Error> {
        let hosts = address
            .hosts(4222)
            .into_iter()
            .map(|(host, port)| server(host, port))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            hosts,
            login: login(address)?,
            tls: tls(address, tls_scheme)?,
        })
    }
}

fn login(address: &mut Address) -> Result<Login, Error> {
    let mut found = Vec::new();
    match (address.user(), address.password()) {
        (Some(user), Some(password)) => {
            found.push(Login::Password(user.to_owned(), password.clone()));
        }
        // NATS takes a lone name before the @ for a token.
        (Some(token), None) => found.push(Login::Token(Secret::new(token))),
        (None, Some(_)) => return Err(bad("it has a password and no user")),
        (None, None) => {}
    }
    found.extend(address.take("token").map(Login::Token));
    found.extend(path(address, "creds").map(Login::Credentials));
    found.extend(path(address, "nkey").map(Login::NkeySeed));
    let login = found.pop().unwrap_or(Login::None);
    match found.is_empty() {
        true => Ok(login),
        false => Err(bad(
            "it has more than one of user, token, creds and nkey; say one",
        )),
    }
}

fn tls(address: &mut Address, scheme: bool) -> Result<Tls, Error> {
    let asked: Option<bool> = address.take_parsed("tls", "true or false")?;
    if scheme && asked == Some(false) {
        return Err(bad("it says tls:// and tls=false"));
    }
    let authority = path(address, "ca");
    let own = match (path(address, "cert"), path(address, "key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(bad("cert and key belong together, one is missing")),
    };
    if asked == Some(false) && (authority.is_some() || own.is_some()) {
        return Err(bad("it names certificates and says tls=false"));
    }
    Ok(Tls {
        required: scheme || asked == Some(true) || authority.is_some() || own.is_some(),
        authority,
        own,
    })
}

fn path(address: &mut Address, name: &str) -> Option<PathBuf> {
    address.take(name).map(|text| PathBuf::from(text.reveal()))
}

fn server(host: &str, port: u16) -> Result<ServerAddr, Error> {
    let place = match host.contains(':') {
        true => format!("nats://[{host}]:{port}"),
        false => format!("nats://{host}:{port}"),
    };
    place
        .parse()
        .map_err(|_| bad(&format!("{host:?} is no host")))
}

/// A URL that cannot be used.
pub(crate) fn bad(why: &str) -> Error {
    Error::rejected(format!("the URL cannot be used: {why}"))
}

/// What the connection has told of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// How often it was made: a watch that sees another number has to start anew.
    pub connects: u64,
    pub up: bool,
    /// What the server refused for lack of permission, and when: it answers such a request by a
    /// remark on the connection, never to the one who asked.
    pub forbidden: Vec<(Instant, String)>,
    /// Where to go when the server is to be left.
    pub elsewhere: Arc<Elsewhere>,
}

/// Which server comes next when one is left because it answers nothing. Left to itself, the client
/// prefers the one with the fewest failures, which is the very one that it is connected to.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    asked: AtomicBool,
    turn: AtomicUsize,
}

impl Elsewhere {
    /// The next connection goes to the next server in turn.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
    }

    fn choose(&self, servers: &[Server]) -> Option<ReconnectToServer> {
        if !self.asked.swap(false, Ordering::AcqRel) {
            return None;
        }
        let turn = self.turn.fetch_add(1, Ordering::AcqRel);
        let server = servers.get(turn.checked_rem(servers.len())?)?;
        Some(ReconnectToServer {
            addr: server.addr.clone(),
            delay: Some(Duration::ZERO),
        })
    }
}

impl Health {
    fn note(&mut self, event: &Event) {
        const KEPT: usize = 64;
        match event {
            Event::Connected => {
                self.connects += 1;
                self.up = true;
            }
            Event::Disconnected | Event::Closed => self.up = false,
            Event::ServerError(ServerError::Other(text))
                if text
                    .to_ascii_lowercase()
                    .starts_with("permissions violation") =>
            {
                if self.forbidden.len() >= KEPT {
                    self.forbidden.remove(0);
                }
                self.forbidden.push((Instant::now(), text.clone()));
            }
            _ => {}
        }
    }
}

/// Connects, once to each host, within a bounded time; and makes sure that the server is new
/// enough.
pub(crate) async fn connect(servers: &Servers) -> Result<(Client, watch::Receiver<Health>), Error> {
    // With two crypto providers in one build rustls would panic rather than choose. It is an error
    // if the program has chosen already, and then that holds.
    let _ = async_nats::rustls::crypto::ring::default_provider().install_default();
    let (sender, mut health) = watch::channel(Health::default());
    let elsewhere = health.borrow().elsewhere.clone();
    let options = options(servers)
        .await?
        .name("parti")
        .connection_timeout(CONNECT_WITHIN)
        .ping_interval(PING_EVERY)
        .request_timeout(None)
        .reconnect_delay_callback(|attempt| {
            let doubled = 1u64 << attempt.saturating_sub(1).min(10);
            Duration::from_millis(doubled).min(RECONNECT_AT_LEAST_EVERY)
        })
        .reconnect_to_server_callback(move |servers, _| {
            std::future::ready(elsewhere.choose(&servers))
        })
        .event_callback(move |event| {
            sender.send_modify(|health| health.note(&event));
            std::future::ready(())
        });
    let connecting = options.connect(servers.hosts.clone());
    let client = match tokio::time::timeout(OPEN_WITHIN, connecting).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return Err(connect_error(servers, &error)),
        Err(_) => {
            return Err(Error::unavailable(format!(
                "{} cannot be reached: no answer within {OPEN_WITHIN:?}",
                servers.name
            )));
        }
    };
    check_version(servers, &client.server_info().version)?;
    // The remark about this very connection must not be mistaken for a second one later.
    let first = health.wait_for(|health| health.connects > 0);
    if tokio::time::timeout(CONNECT_WITHIN, first).await.is_err() {
        return Err(Error::unavailable(format!(
            "{} was lost while it was opened",
            servers.name
        )));
    }
    Ok((client, health))
}

async fn options(servers: &Servers) -> Result<ConnectOptions, Error> {
    let mut options = ConnectOptions::new();
    options = match &servers.login {
        Login::None => options,
        Login::Password(user, password) => {
            options.user_and_password(user.clone(), password.reveal().to_owned())
        }
        Login::Token(token) => options.token(token.reveal().to_owned()),
        // What these two hold is secret, and so are the details of what is wrong with it.
        Login::Credentials(file) => options.credentials(&read(file, "creds")?).map_err(|_| {
            bad(&format!(
                "{} is no credentials file; make one with nsc",
                file.display()
            ))
        })?,
        Login::NkeySeed(file) => {
            let seed = read(file, "nkey")?.trim().to_owned();
            if !seed.starts_with("SU") || !seed.chars().all(|c| c.is_ascii_alphanumeric()) {
                return Err(bad(&format!(
                    "{} does not hold a user's seed, which starts with SU",
                    file.display()
                )));
            }
            options.nkey(seed)
        }
    };
    if let Some(authority) = &servers.tls.authority {
        read(authority, "ca")?;
        options = options.add_root_certificates(authority.clone());
    }
    if let Some((cert, key)) = &servers.tls.own {
        read(cert, "cert")?;
        read(key, "key")?;
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    Ok(options.require_tls(servers.tls.required))
}

/// A small file, read at once: a missing one is then named, and not met again at each connect.
fn read(file: &std::path::Path, parameter: &str) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|error| {
        bad(&format!(
            "its parameter {parameter} names {}, which cannot be read: {error}",
            file.display()
        ))
    })
}

fn connect_error(servers: &Servers, error: &async_nats::ConnectError) -> Error {
    let name = &servers.name;
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Error::rejected(format!(
                "{name} refuses the login; check user and password, token, creds or nkey of the URL"
            ))
        }
        ConnectErrorKind::Tls => Error::rejected(format!("TLS to {name} cannot be used: {error}")),
        ConnectErrorKind::Io if is_about_certificates(error) => Error::rejected(format!(
            "{name} and this client do not agree on TLS: {error}; check ca, cert and key of the URL"
        )),
        _ => Error::unavailable(format!("{name} cannot be reached: {error}")),
    }
}

fn is_about_certificates(error: &async_nats::ConnectError) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let io = inner.downcast_ref::<std::io::Error>();
        if io
            .and_then(|io| io.get_ref())
            .is_some_and(|inner| inner.is::<async_nats::rustls::Error>())
        {
            return true;
        }
        source = inner.source();
    }
    false
}

fn check_version(servers: &Servers, version: &str) -> Result<(), Error> {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST_SERVER => {
            Err(Error::rejected(format!(
                "{} runs NATS {version}; Parti needs {}.{} or newer: upgrade the server",
                servers.name, OLDEST_SERVER.0, OLDEST_SERVER.1
            )))
        }
        // A version that is not numbers is a build of somebody's own: they know.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str, tls_scheme: bool) -> Servers {
        let mut address = Address::parse(url).expect("good");
        let name = address.to_string();
        Servers::take(name, &mut address, tls_scheme).expect("good")
    }

    #[test]
    fn a_url_says_how_to_connect() {
        let found = servers("tls://u:p@a,b:1", true);
        assert_eq!((found.hosts.len(), found.tls.required), (2, true));
        assert!(matches!(found.login, Login::Password(..)));
        let found = servers("nats://[::1]", false);
        assert!(!found.tls.required && matches!(found.login, Login::None));
        let found = servers("nats://hush@h?ca=file", false);
        assert!(found.tls.required && matches!(found.login, Login::Token(_)));
        assert!(!format!("{found:?}").contains("hush"));
    }

    #[test]
    fn old_servers_are_refused() {
        let target = servers("nats://h", false);
        for version in ["2.9.25", "1.4.0", "2.9.0-beta.1"] {
            assert!(check_version(&target, version).is_err(), "{version}");
        }
        for version in ["2.10.0", "2.15.1", "2.10.0-RC.1", "3.0.0", "dev"] {
            assert!(check_version(&target, version).is_ok(), "{version}");
        }
    }
}

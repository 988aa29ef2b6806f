//! `parti serve`: the coordinator service and the dashboard.

use std::env;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use parti::core::config::ProcessingConfig;
use parti::{Config, StartPosition};
use parti_serve::{Access, Limits, ServeError, Service, Settings, Tls};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::exit::{CODES, Failure};
use crate::logging::{self, Level};
use crate::places;
use crate::signals::Endings;

/// Files for stores, logs and whatever else is open.
const FILES_LEFT: u64 = 256;

/// The shortest token: what is shorter can be guessed.
const SHORTEST: usize = 16;

/// Serve groups over HTTP: consumers in any language, and a dashboard.
///
/// On loopback everybody of this machine may do everything. Another address needs a token: in the
/// environment (PARTI_TOKEN, and PARTI_READ_TOKEN for those who may only look), or in a file. Run
/// as many as you like over one store. SIGTERM and SIGINT stop it gracefully.
///
/// Example: parti serve --store sqlite:data/group.db --source log:data
/// Example: PARTI_TOKEN=… parti serve --store nats://localhost:4222 --listen 0.0.0.0:7070
///          --tls-cert tls.crt --tls-key tls.key
#[derive(clap::Args)]
#[command(after_help = CODES, verbatim_doc_comment)]
pub struct Args {
    /// Where records live: memory:, sqlite:FILE, nats://…, etcd://…, postgres://…
    #[arg(long, value_name = "URL")]
    store: String,
    /// Where messages come from: log:FOLDER to produce and fetch here, too; or
    /// jetstream://HOST:PORT/STREAM, for ends and lag. Without, groups that are made here read theirs
    /// elsewhere
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070")]
    listen: String,
    /// A file with the token that may do everything; by default the environment's PARTI_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with the token that may only look; by default the environment's PARTI_READ_TOKEN
    #[arg(long, value_name = "FILE")]
    read_token_file: Option<PathBuf>,
    /// A proxy in front names whoever it let through in this header: they may do everything. Nobody
    /// else may reach this address then
    #[arg(long, value_name = "NAME")]
    trust_proxy_header: Option<String>,
    /// A name that this service goes by, besides addresses and localhost; may be given several
    /// times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// The certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Settings of the sessions that this service holds, as YAML or JSON; the TTL of a session is
    /// heartbeat_ttl
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// What to log to stderr; tokens and messages never are
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    log: Level,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    logging::start(args.log)?;
    let mut endings = Endings::catch()?;
    let mut settings = settings(args).await?;
    settings.limits.connections = settings.limits.connections.min(connections());
    let service = Service::start(settings)
        .await
        .map_err(|error| match error {
            ServeError::Open(_) | ServeError::Address { .. } => {
                Failure::usage(format!("--listen: {error}"))
            }
            ServeError::Setting(_) => Failure::usage(error),
            ServeError::NoSecrets(_) => Failure::failed(error),
        })?;
    tell!("serving {}", service.url());
    endings.next().await;
    tell!("stopping; once more ends it at once");
    tokio::select! {
        () = service.stop() => Ok(()),
        _ = endings.next() => {
            Err(Failure::failed("ended at once; groups take over after the TTL"))
        }
    }
}

async fn settings(args: Args) -> Result<Settings, Failure> {
    let address = address(&args.listen)?;
    let access = access(&args)?;
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Tls::read(certificate, key).map_err(Failure::usage)?)
        }
        _ => None,
    };
    let config = places::config(args.config.as_deref(), defaults())?;
    let source = match &args.source {
        Some(url) => Some(parti_serve::open_source(url).await?),
        None => None,
    };
    Ok(Settings {
        address,
        store: places::store(&args.store).await?,
        source,
        config,
        access,
        hosts: args.host,
        tls,
        limits: Limits::default(),
    })
}

/// How many connections the system allows: as many files as it can open, some left for the rest.
fn connections() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What is not allowed stays as it was.
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = files.saturating_sub(FILES_LEFT).max(FILES_LEFT);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Settings for many small consumers, whose progress should not wait in this process for long. A
/// new group has its first message handled, too.
fn defaults() -> Config {
    Config {
        worker_id_max: 9_999,
        checkpoint_flush_interval: Duration::from_millis(200),
        processing: ProcessingConfig {
            start: StartPosition::Earliest,
            ..ProcessingConfig::default()
        },
        ..Config::default()
    }
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: String| {
        Failure::usage(format!(
            "--listen {text}: {why}; give an address with a port, such as 127.0.0.1:7070 (port 0 is \
             any that is free)"
        ))
    };
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("it is no address".into()))
}

fn access(args: &Args) -> Result<Access, Failure> {
    let mut access = Access::default();
    if let Some(token) = token("--token-file", args.token_file.as_ref(), "PARTI_TOKEN")? {
        access = access.operate_token(&token);
    }
    let file = args.read_token_file.as_ref();
    if let Some(token) = token("--read-token-file", file, "PARTI_READ_TOKEN")? {
        access = access.read_token(&token);
    }
    if let Some(name) = &args.trust_proxy_header {
        let wrong =
            |_| Failure::usage(format!("--trust-proxy-header {name:?} is no header's name"));
        access = access.proxy_header(name.parse().map_err(wrong)?);
    }
    Ok(access)
}

/// A token out of a file, or of the environment. Messages never repeat it.
fn token(flag: &str, file: Option<&PathBuf>, variable: &str) -> Result<Option<String>, Failure> {
    let (place, found) = match file {
        Some(file) => {
            let place = format!("{flag} {}", file.display());
            let read = fs::read_to_string(file);
            let read = read.map_err(|error| Failure::usage(format!("{place}: {error}")))?;
            (place, read)
        }
        None => match env::var(variable) {
            Ok(value) if !value.is_empty() => (variable.to_owned(), value),
            Ok(_) | Err(env::VarError::NotPresent) => return Ok(None),
            Err(error) => return Err(Failure::usage(format!("{variable}: {error}"))),
        },
    };
    let token = found.trim();
    let printable = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.len() < SHORTEST || !printable {
        return Err(Failure::usage(format!(
            "{place}: a token has {SHORTEST} or more printable characters without spaces; \
             `openssl rand -hex 32` makes one"
        )));
    }
    Ok(Some(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_only_what_it_gives() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.yaml");
        fs::write(&file, "heartbeat_ttl: 20s\n").expect("written");
        let config = places::config(file.to_str(), defaults()).expect("sound");
        assert_eq!(config.heartbeat_ttl, Duration::from_secs(20));
        let expected = Config {
            heartbeat_ttl: Duration::from_secs(20),
            ..defaults()
        };
        assert_eq!(config, expected, "nobody's first messages are skipped");
    }
}

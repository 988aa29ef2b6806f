//! From a URL to what connecting needs.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::{Address, Error, Secret};
use super::tls::{self, Files};

const PARAMETERS: [&str; 7] = [
    "schema",
    "sslmode",
    "ca",
    "cert",
    "key",
    "application_name",
    "connections",
];

/// How long reaching one address of the server may take.
const REACH: Duration = Duration::from_secs(3);

/// What connecting needs.
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// What may be shown of the URL.
    pub(super) name: String,
    /// The schema, quoted for use in a statement.
    pub(super) schema: String,
    /// The channel of notifications: they reach a whole database, so it names the schema.
    pub(super) channel: String,
    /// How many connections to use for operations, at most.
    pub(super) connections: usize,
}

// The configuration holds the password; tokio-postgres hides it too, but we do not depend on that.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({})", self.name)
    }
}

impl Settings {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let mut address = Address::parse(url)?;
        let name = address.to_string();
        let mut config = Config::new();
        for (host, port) in address.hosts(5432) {
            config.host(host).port(port);
        }
        if let Some(user) = address.user() {
            config.user(user);
        }
        if let Some(password) = address.password() {
            config.password(password.reveal());
        }
        if !address.path().is_empty() {
            config.dbname(address.path());
        }
        let text = |secret: Option<Secret>| secret.map(|text| text.reveal().to_owned());
        let schema = text(address.take("schema")).unwrap_or_else(|| "parti".into());
        check_schema(&schema)?;
        let application = text(address.take("application_name"));
        let files = Files {
            ca: text(address.take("ca")),
            cert: text(address.take("cert")),
            key: text(address.take("key")),
        };
        let mode = ssl_mode(text(address.take("sslmode")).as_deref(), &files)?;
        let connections = address.take_parsed("connections", "a number from 1 to 32")?;
        let connections: usize = connections.unwrap_or(2);
        if !(1..=32).contains(&connections) {
            return Err(bad(
                "its parameter connections is not a number from 1 to 32",
            ));
        }
        address.finish(&PARAMETERS)?;
        config
            .application_name(application.as_deref().unwrap_or("parti"))
            .ssl_mode(mode)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(REACH)
            // Sessions that nobody uses for a while must survive routers that forget, and end
            // when the server's machine is gone.
            .keepalives_idle(Duration::from_secs(15))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(30));
        Ok(Self {
            tls: tls::connector(mode, &files)?,
            config,
            name,
            channel: format!("parti_{schema}"),
            schema: format!("\"{schema}\""),
            connections,
        })
    }
}

fn bad(why: &str) -> Error {
    Error::rejected(format!("the URL cannot be used: {why}"))
}

/// A name that needs no quoting by the people who query it.
fn check_schema(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if starts_well && name.len() <= 48 && name.chars().all(plain) && !name.starts_with("pg_") {
        Ok(())
    } else {
        Err(bad(
            "its parameter schema is not a plain name: up to 48 of a-z, 0-9 and _, not starting with a digit or pg_",
        ))
    }
}

fn ssl_mode(mode: Option<&str>, files: &Files) -> Result<SslMode, Error> {
    match mode {
        None | Some("prefer") => Ok(SslMode::Prefer),
        Some("require") => Ok(SslMode::Require),
        Some("disable") if files.are_given() => Err(bad(
            "it names files for TLS, but sslmode=disable means not to use it",
        )),
        Some("disable") => Ok(SslMode::Disable),
        Some(_) => Err(bad(
            "its parameter sslmode is not disable, prefer or require",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_postgres::config::Host;

    #[test]
    fn a_url_becomes_settings() {
        let url = "postgres://ann:hush@a:1,b/db?schema=mine&sslmode=disable&application_name=x";
        let settings = Settings::parse(url).expect("good");
        assert_eq!(settings.name, "postgres://a:1,b/db");
        assert_eq!(settings.schema, "\"mine\"");
        assert_eq!(settings.channel, "parti_mine");
        assert_eq!(settings.connections, 2);
        let config = &settings.config;
        let hosts = [Host::Tcp("a".into()), Host::Tcp("b".into())];
        assert_eq!(
            (config.get_hosts(), config.get_ports()),
            (&hosts[..], &[1, 5432][..])
        );
        assert_eq!(config.get_user(), Some("ann"));
        assert_eq!(config.get_password(), Some(&b"hush"[..]));
        assert_eq!(config.get_dbname(), Some("db"));
        assert_eq!(config.get_application_name(), Some("x"));
        assert_eq!(config.get_ssl_mode(), SslMode::Disable);
        assert!(!format!("{settings:?}").contains("hush"));
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (query, told) in [
            ("schema=pg_mine", "schema"),
            ("schema=Mine", "schema"),
            ("schema=", "schema"),
            ("schema=a%22b", "schema"),
            ("sslmode=verify-full", "sslmode"),
            ("sslmode=disable&ca=/hush", "sslmode=disable"),
            ("connections=0", "connections"),
            ("connections=x", "connections"),
            ("sslmod=require", "\"sslmod\""),
            ("ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("cert=/nowhere/cert.pem", "key"),
        ] {
            let url = format!("postgres://ann:hush@a/db?{query}");
            let error = Settings::parse(&url).expect_err(query).to_string();
            assert!(error.contains(told), "{query}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

//! What an `etcd://` URL says.

use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::client::Login;
use super::fault::root;
use super::keys::Keys;
use super::link::Link;
use crate::store::{Address, Error, Secret};

const PORT: u16 = 2379;
const PARAMETERS: [&str; 4] = ["tls", "ca", "cert", "key"];

// etcd closes connections whose pings come more often than every five seconds, or come while
// nothing is under way.
const PING_EVERY: Duration = Duration::from_secs(6);
const PONG_WITHIN: Duration = Duration::from_secs(4);

// Room for many answers at once: the default of 64 KiB for all of them makes batches wait.
const WINDOW: u32 = 4 << 20;

/// An opened URL: nothing has been connected yet.
pub(super) struct Settings {
    pub name: String,
    pub links: Vec<Link>,
    pub login: Option<Login>,
    pub keys: Keys,
}

impl Settings {
    /// Takes a URL apart, and reads the files that it names.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let mut address = Address::parse(url)?;
        if address.scheme() != "etcd" {
            return Err(Error::rejected("an etcd URL starts with etcd://"));
        }
        let tls = tls(&mut address)?;
        let login = match (address.user(), address.password()) {
            (None, None) => None,
            (Some(name), Some(password)) => Some(Login {
                name: name.to_owned(),
                password: password.clone(),
            }),
            (Some(_), None) => {
                return Err(Error::rejected(
                    "the URL has a user without a password; write etcd://user:password@host, or \
                     leave both out if a client certificate names the user",
                ));
            }
            (None, Some(_)) => {
                return Err(Error::rejected("the URL has a password without a user"));
            }
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let links = address
            .hosts(PORT)
            .into_iter()
            .map(|(host, port)| {
                let place = match host.contains(':') {
                    true => format!("[{host}]:{port}"),
                    false => format!("{host}:{port}"),
                };
                let endpoint = endpoint(&format!("{scheme}://{place}"), tls.clone())?;
                Ok(Link::new(place, endpoint))
            })
            .collect::<Result<_, Error>>()?;
        let settings = Self {
            name: address.to_string(),
            links,
            login,
            keys: Keys::new(address.path()),
        };
        address.finish(&PARAMETERS)?;
        Ok(settings)
    }
}

fn tls(address: &mut Address) -> Result<Option<ClientTlsConfig>, Error> {
    let wanted: Option<bool> = address.take_parsed("tls", "true or false")?;
    let ca = address.take("ca");
    let identity = match (address.take("cert"), address.take("key")) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        _ => {
            return Err(Error::rejected(
                "the URL has one of the parameters cert and key; a client certificate needs both",
            ));
        }
    };
    let named = ca.is_some() || identity.is_some();
    match wanted {
        Some(false) if named => {
            return Err(Error::rejected(
                "the URL says tls=false, yet names certificates; leave one of them out",
            ));
        }
        Some(false) => return Ok(None),
        None if !named => return Ok(None),
        _ => {}
    }
    let mut tls = match ca {
        None => ClientTlsConfig::new().with_native_roots(),
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(file("ca", &ca)?)),
    };
    if let Some((cert, key)) = identity {
        tls = tls.identity(Identity::from_pem(file("cert", &cert)?, file("key", &key)?));
    }
    Ok(Some(tls))
}

fn file(parameter: &str, path: &Secret) -> Result<Vec<u8>, Error> {
    std::fs::read(path.reveal()).map_err(|error| {
        Error::rejected(format!(
            "the file of the URL's parameter {parameter} cannot be read: {error}"
        ))
    })
}

fn endpoint(uri: &str, tls: Option<ClientTlsConfig>) -> Result<Endpoint, Error> {
    let unusable = |error: tonic::transport::Error| {
        Error::rejected(format!("the URL cannot be used: {}", root(&error)))
    };
    let mut endpoint = Endpoint::from_shared(uri.to_owned())
        .map_err(unusable)?
        .tcp_nodelay(true)
        .connect_timeout(super::link::CONNECT_WITHIN)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .keep_alive_while_idle(false);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).map_err(|error| {
            Error::rejected(format!(
                "the certificates that the URL names cannot be used: {}",
                root(&error)
            ))
        })?;
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let settings = Settings::parse("etcd://an:hush@a,[::1]:7/x/y").expect("good");
        assert_eq!(settings.name, "etcd://a,[::1]:7/x/y");
        assert_eq!(settings.keys.full("k"), b"x/y/k");
        let places: Vec<&str> = settings.links.iter().map(Link::place).collect();
        assert_eq!(places, ["a:2379", "[::1]:7"]);
        let login = settings.login.expect("login");
        assert_eq!(
            (login.name.as_str(), login.password.reveal()),
            ("an", "hush")
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_the_secrets() {
        for url in [
            "http://u:hush@h",
            "etcd://u@h",
            "etcd://:hush@h",
            "etcd://u:hush@h?tls=perhaps",
            "etcd://u:hush@h?tls=false&ca=/hush",
            "etcd://u:hush@h?cert=/hush",
            "etcd://u:hush@h?ca=/nowhere/hush",
            "etcd://u:hush@h?lease=3",
        ] {
            let error = Settings::parse(url).err().expect(url);
            assert_eq!(error.kind(), "rejected", "{url}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }
}

//! The URL of a server, taken apart; its secrets stay hidden.
//!
//! ```text
//!   nats://user:password@host-a:4222,host-b:4222/bucket?creds=/etc/parti.creds&replicas=3
//!   └scheme └user └password └hosts                └path  └parameters
//! ```
//!
//! User, password, path and parameters may be percent-encoded. Several hosts are several ways to
//! the same store. A parameter that nobody asked for is a mistake, and is named.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::percent_decode_str;

use super::Error;

/// A text that must not be shown: `Debug` and `Display` show three stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, to hand to a server and to nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A server's URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scheme: String,
    user: Option<String>,
    password: Option<Secret>,
    hosts: Vec<(String, Option<u16>)>,
    path: String,
    parameters: BTreeMap<String, Secret>,
}

impl Address {
    /// Takes a URL apart. Errors never repeat more of it than the part that is wrong, and nothing
    /// that could be a secret.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad("it has no scheme, as in nats://host:4222"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The last @ separates: a password may hold one.
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        // Otherwise the first hosts would become a part of the password, silently.
        if login.is_some_and(|login| login.contains('@') && login.find('@') < login.rfind(',')) {
            return Err(bad(
                "it has a login for more than one host; write it once, before the first host, as \
                 in nats://user:password@host-a,host-b (and , @ in a password as %2C %40)",
            ));
        }
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, password)) => (
                Some(decoded("user", user)?).filter(|user| !user.is_empty()),
                Some(decoded("password", password)?).filter(|password| !password.is_empty()),
            ),
        };
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user,
            password: password.map(Secret),
            hosts: hosts.split(',').map(host).collect::<Result<_, _>>()?,
            path: decoded("path", path)?,
            parameters: parameters(query)?,
        })
    }

    /// Its scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, if one is named.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, if there is one.
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// Every host with its port, or with this one where none is named.
    pub fn hosts(&self, port: u16) -> Vec<(&str, u16)> {
        self.hosts
            .iter()
            .map(|(host, own)| (host.as_str(), own.unwrap_or(port)))
            .collect()
    }

    /// What follows the hosts, without the first slash; may be empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes a parameter out.
    pub fn take(&mut self, name: &str) -> Option<Secret> {
        self.parameters.remove(name)
    }

    /// Takes a parameter out and parses it; the error names it and what it could be.
    pub fn take_parsed<T: std::str::FromStr>(
        &mut self,
        name: &str,
        what: &str,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        match text.reveal().parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(bad(&format!("its parameter {name} is not {what}"))),
        }
    }

    /// Refuses parameters that nobody took.
    pub fn finish(self, known: &[&str]) -> Result<(), Error> {
        match self.parameters.keys().next() {
            None => Ok(()),
            Some(name) => Err(bad(&format!(
                "{}:// knows no parameter {name:?}; it knows {}",
                self.scheme,
                known.join(", ")
            ))),
        }
    }
}

/// Scheme, hosts and path: what may be shown.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        for (number, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            // An IPv6 address needs its brackets back.
            match (host.contains(':'), port) {
                (true, Some(port)) => write!(f, "{comma}[{host}]:{port}")?,
                (true, None) => write!(f, "{comma}[{host}]")?,
                (false, Some(port)) => write!(f, "{comma}{host}:{port}")?,
                (false, None) => write!(f, "{comma}{host}")?,
            }
        }
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        Ok(())
    }
}

fn bad(why: &str) -> Error {
    Error::rejected(format!("the URL cannot be used: {why}"))
}

fn decoded(part: &str, text: &str) -> Result<String, Error> {
    percent_decode_str(text)
        .decode_utf8()
        .map(|text| text.into_owned())
        .map_err(|_| bad(&format!("its {part} is not UTF-8 once decoded")))
}

fn host(text: &str) -> Result<(String, Option<u16>), Error> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| bad("a host has no closing bracket"))?;
            let port = match rest {
                "" => None,
                rest => Some(
                    rest.strip_prefix(':')
                        .ok_or_else(|| bad("a host has something after its bracket"))?,
                ),
            };
            (host, port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(bad("a host is missing"));
    }
    if host.contains(char::is_whitespace) {
        return Err(bad("a host holds a space"));
    }
    let port = port
        .map(|port| match port.parse() {
            // Not repeated: it may be a password with a slash in it.
            Ok(0) | Err(_) => Err(bad(
                "a port is not a number from 1 to 65535 (write / ? @ in a password as %2F %3F %40)",
            )),
            Ok(port) => Ok(port),
        })
        .transpose()?;
    Ok((host.to_owned(), port))
}

fn parameters(query: &str) -> Result<BTreeMap<String, Secret>, Error> {
    let mut parameters = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| bad("a parameter has no value, as in ?replicas=3"))?;
        let name = decoded("parameter", name)?;
        let value = Secret(decoded("parameter", value)?);
        if parameters.insert(name.clone(), value).is_some() {
            return Err(bad(&format!("its parameter {name:?} is there twice")));
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_comes_apart() {
        let url = "NATS://an%40na:pa:ss@w%2Frd@a:1,[::1]:2,[::2],b/buc%20ket?tls=true&replicas=3";
        let mut address = Address::parse(url).expect("good");
        assert_eq!(address.scheme(), "nats");
        assert_eq!(address.user(), Some("an@na"));
        assert_eq!(address.password().map(Secret::reveal), Some("pa:ss@w/rd"));
        assert_eq!(
            address.hosts(4222),
            [("a", 1), ("::1", 2), ("::2", 4222), ("b", 4222)]
        );
        assert_eq!(address.path(), "buc ket");
        assert_eq!(address.to_string(), "nats://a:1,[::1]:2,[::2],b/buc ket");
        assert_eq!(address.take_parsed("replicas", "a number"), Ok(Some(3)));
        let error = address.clone().finish(&["replicas"]).expect_err("tls");
        assert!(error.to_string().contains("\"tls\""), "{error}");
        assert!(address.take("tls").is_some() && address.finish(&[]).is_ok());
    }

    #[test]
    fn secrets_are_never_shown() {
        let address = Address::parse("nats://u:hush-1@h?token=hush-2").expect("good");
        let shown = format!("{address} {address:?} {:?}", address.password());
        assert!(!shown.contains("hush"), "{shown}");
        for url in [
            "hush@h",
            "nats://u:hush@h:port",
            "nats://u:hush@h?hush",
            "nats://u:hush@[h",
            "nats://u:hush@",
            "nats://u:hush/x@h:1/d",
            "nats://u:hush?x@h",
            "nats://u:hush",
            "nats://[hush",
            "nats://[h]hush",
            "nats://u:hush%ff@h",
            "nats://h?a=hush&a=hush",
            "nats://u:hush@a:1,u:hush@b:2",
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

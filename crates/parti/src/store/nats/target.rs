//! The store's URL: which servers, which bucket.

use crate::nats::connect::{PARAMETERS, Servers, bad};
use crate::store::{Address, Error};

const DEFAULT_BUCKET: &str = "parti";

/// What a URL asks for.
#[derive(Debug)]
pub(super) struct Target {
    pub servers: Servers,
    pub bucket: String,
    pub replicas: Option<usize>,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let mut address = Address::parse(url)?;
        let tls_scheme = match address.scheme() {
            "nats" => false,
            "tls" => true,
            _ => return Err(bad("it does not start with nats:// or tls://")),
        };
        let bucket = match address.path().trim_end_matches('/') {
            "" => DEFAULT_BUCKET.to_owned(),
            bucket => bucket.to_owned(),
        };
        if !bucket
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        {
            return Err(bad(&format!(
                "the bucket {bucket:?} may hold letters, digits, _ and - only"
            )));
        }
        let name = match address.path() {
            "" => format!("{address}/{bucket}"),
            _ => address.to_string(),
        };
        let servers = Servers::take(name, &mut address, tls_scheme)?;
        let replicas = address.take_parsed("replicas", "a number from 1 to 5")?;
        if replicas.is_some_and(|replicas| !(1..=5).contains(&replicas)) {
            return Err(bad("its parameter replicas is not a number from 1 to 5"));
        }
        address.finish(&[&PARAMETERS[..], &["replicas"]].concat())?;
        Ok(Self {
            servers,
            bucket,
            replicas,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_what_is_wrong_with_it() {
        for (url, part) in [
            ("nats://h/a.b", "bucket"),
            ("nats://h/a/b", "bucket"),
            ("nats://h?replicas=6", "replicas"),
            ("nats://h?replicas=x", "replicas"),
            ("nats://h?cert=a", "key"),
            ("nats://u:p@h?token=t", "more than one"),
            ("nats://:p@h", "no user"),
            ("tls://h?tls=false", "tls=false"),
            ("nats://h?replica=1", "replica"),
            ("http://h", "nats://"),
        ] {
            let Err(error) = Target::parse(url) else {
                panic!("{url} is taken")
            };
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn a_url_says_where_and_how() {
        let target = Target::parse("tls://u:p@a,b:1/orders?replicas=3").expect("good");
        assert_eq!(
            (target.bucket.as_str(), target.replicas),
            ("orders", Some(3))
        );
        let target = Target::parse("nats://[::1]").expect("good");
        assert_eq!(target.servers.name, "nats://[::1]/parti");
        let token = Target::parse("nats://t@h").expect("good");
        assert_eq!(token.servers.name, "nats://h/parti");
    }
}

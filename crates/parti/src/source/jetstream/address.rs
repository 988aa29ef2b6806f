//! The URL of a stream.
//!
//! ```text
//!   jetstream://[user:password@]host[:4222][,host…]/STREAM[?subject=TEMPLATE&dead_letters=SUBJECT
//!             &creds=FILE&token=…&nkey=SEEDFILE&tls=true&ca=FILE&cert=FILE&key=FILE]
//! ```

use parti_core::codec::Template;

use super::api::{of_connection, rejected};
use crate::nats::connect::{PARAMETERS, Servers, bad};
use crate::source::SourceError;
use crate::store::Address;

/// What a URL asks for.
#[derive(Debug)]
pub(super) struct Target {
    pub servers: Servers,
    pub stream: String,
    pub subject: Option<String>,
    pub dead_letters: Option<String>,
}

impl Target {
    /// Takes a URL apart. Errors show no secrets.
    pub fn parse(url: &str) -> Result<Self, SourceError> {
        let mut address = Address::parse(url).map_err(of_connection)?;
        if address.scheme() != "jetstream" {
            return Err(of_connection(bad("it does not start with jetstream://")));
        }
        let stream = address.path().trim_end_matches('/').to_owned();
        check_stream_name(&stream)?;
        let name = address.to_string();
        let servers = Servers::take(name, &mut address, false).map_err(of_connection)?;
        let mut text = |name| address.take(name).map(|text| text.reveal().to_owned());
        let (subject, dead_letters) = (text("subject"), text("dead_letters"));
        if let Some(subject) = &subject {
            Template::parse(subject).map_err(|problem| rejected(problem.to_string()))?;
        }
        let known = [&PARAMETERS[..], &["subject", "dead_letters"]].concat();
        address.finish(&known).map_err(of_connection)?;
        Ok(Self {
            servers,
            stream,
            subject,
            dead_letters,
        })
    }
}

/// It becomes a part of subjects.
fn check_stream_name(stream: &str) -> Result<(), SourceError> {
    let bad = |c: char| !c.is_ascii_graphic() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    if stream.is_empty() {
        return Err(rejected(
            "the URL names no stream; write it as jetstream://host:4222/STREAM",
        ));
    }
    if stream.len() > 255 || stream.contains(bad) {
        return Err(rejected(format!(
            "{stream:?} cannot be a stream's name: it may not hold spaces, dots, wildcards and \
             slashes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_which_stream() {
        let url =
            "jetstream://u:hush@a:1,b/ORDERS?subject=dc.{0}.{1}.done&dead_letters=dead.orders";
        let target = Target::parse(url).expect("good");
        assert_eq!(target.stream, "ORDERS");
        assert_eq!(target.subject.as_deref(), Some("dc.{0}.{1}.done"));
        assert_eq!(target.dead_letters.as_deref(), Some("dead.orders"));
        assert_eq!(target.servers.name, "jetstream://a:1,b/ORDERS");
        assert!(!format!("{target:?}").contains("hush"));
    }

    #[test]
    fn a_url_says_what_is_wrong_with_it() {
        for (url, part) in [
            ("nats://hush@h/S", "jetstream://"),
            ("jetstream://h", "names no stream"),
            ("jetstream://h/", "names no stream"),
            ("jetstream://h/a.b", "stream's name"),
            ("jetstream://h/a/b", "stream's name"),
            ("jetstream://h/a%20b", "stream's name"),
            ("jetstream://h/%3E", "stream's name"),
            ("jetstream://u:hush@h/S?token=hush", "more than one"),
            ("jetstream://h/S?bucket=x", "bucket"),
            ("jetstream://h/S?subject=orders", "no placeholder"),
        ] {
            let error = Target::parse(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

//! Certificates that live as long as a test: an authority of its own, and a server it vouches for.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::folder::write;
use crate::process::{find_program, run};

/// Who shows a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tls {
    /// There is no TLS.
    #[default]
    Off,
    /// The server does.
    Server,
    /// The server does, and every client must.
    Mutual,
}

impl Tls {
    pub(crate) fn is_on(self) -> bool {
        self != Tls::Off
    }
}

/// Where the files are.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    /// What both sides must trust.
    pub(crate) authority: PathBuf,
    /// The server's own; it is good for a client too.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Those in this folder, whether they exist or not.
    pub(crate) fn within(folder: &Path) -> Self {
        Self {
            authority: folder.join("authority.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
        }
    }

    /// Makes them, for `localhost` and `127.0.0.1`.
    pub(crate) fn make(folder: &Path) -> Result<Self, Error> {
        let openssl = find_program("openssl").ok_or_else(|| {
            Error::new(
                "openssl is missing: it makes the certificates of servers with TLS.\n\
                 get it with: apt-get install openssl",
            )
        })?;
        let made = Self::within(folder);
        let step = |words: &str| {
            run(Command::new(&openssl)
                .current_dir(folder)
                .args(words.split_whitespace()))
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        step(&format!(
            "req -x509 {key} -keyout authority.key -out authority.pem -days 7 -subj /CN=parti-test"
        ))?;
        step(&format!(
            "req {key} -keyout server.key -out server.csr -subj /CN=localhost"
        ))?;
        write(
            &folder.join("server.ext"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1\n\
             basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n",
        )?;
        step(
            "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial \
             -days 7 -extfile server.ext -out server.pem",
        )?;
        Ok(made)
    }
}

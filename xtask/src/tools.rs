//! What tests outside of cargo need: Python with two packages, a Chromium, Node.
//!
//! ```text
//! python3, chromium   of the system; else installed by apt-get, loudly
//! playwright, …       e2e/requirements.txt ──▶ a virtual environment in the target directory
//! node                of the system; else the one that comes with playwright
//! ```
//!
//! What cannot be had fails the run before it starts: nothing is left out silently. None of this
//! is needed to build or run Parti.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::steps::shout;

/// Where the packages are listed.
const PACKAGES: &str = "e2e/requirements.txt";

/// Names that a Chromium goes by.
const CHROMIUM: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// Everything, found.
pub struct Tools {
    /// A Python that has the packages.
    pub python: PathBuf,
    /// A browser.
    pub chromium: PathBuf,
    /// For the dashboard's modules, and the client in JavaScript.
    pub node: PathBuf,
}

impl Tools {
    /// Finds everything, and gets what is missing; without it, says so.
    pub fn get() -> Option<Self> {
        println!("==> tools for tests outside of cargo");
        let found = Self::find();
        if let Err(problem) = &found {
            shout(&format!(
                "tests need Python 3.11 or newer, with venv, and a Chromium: {problem}\n\
                 get them with: apt-get install python3 python3-venv chromium"
            ));
        }
        found.ok()
    }

    fn find() -> Result<Self, String> {
        let python = on_path("python3").map_or_else(|| installed("python3", "python3"), Ok)?;
        let named = env::var_os("CHROMIUM").map(PathBuf::from);
        let chromium = named.or_else(|| CHROMIUM.iter().find_map(|name| on_path(name)));
        let chromium = chromium.map_or_else(|| installed("chromium", "chromium"), Ok)?;
        let python = with_packages(&python)?;
        let node = on_path("node").map_or_else(|| bundled_node(&python), Ok)?;
        Ok(Self {
            python,
            chromium,
            node,
        })
    }

    /// The search path with Node on it, for tests that call it by its name.
    pub fn path(&self) -> std::ffi::OsString {
        let path = env::var_os("PATH").unwrap_or_default();
        let node = self.node.parent().map(Path::to_owned);
        // Last, so that nothing else of that folder comes before the system's.
        let folders = env::split_paths(&path).chain(node);
        env::join_paths(folders).unwrap_or(path)
    }
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    std::path::absolute(&target).unwrap_or(target)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut places = env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|place| place.is_file())
}

/// Installs a package of the system, and finds its program.
fn installed(package: &str, program: &str) -> Result<PathBuf, String> {
    shout(&format!(
        "{program} is missing; installing the package {package} with apt-get"
    ));
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut command)
    };
    apt(&["update"])?;
    apt(&["install", "--yes", "--no-install-recommends", package])?;
    on_path(program).ok_or_else(|| format!("{package} was installed, but has no {program}"))
}

/// A virtual environment with the packages; made anew when the list is another one.
fn with_packages(python: &Path) -> Result<PathBuf, String> {
    let wanted = fs::read_to_string(PACKAGES).map_err(|error| format!("{PACKAGES}: {error}"))?;
    let folder = target().join("e2e").join("venv");
    let (own, stamp) = (folder.join("bin/python"), folder.join("has.txt"));
    if own.is_file() && fs::read_to_string(&stamp).is_ok_and(|has| has == wanted) {
        return Ok(own);
    }
    println!("    installing {PACKAGES} into {}", folder.display());
    let make = || {
        let mut command = Command::new(python);
        run(command.args(["-m", "venv", "--clear"]).arg(&folder))
    };
    if make().is_err() {
        // Debian has it as a package of its own; it is no program that could be found.
        let _ = installed("python3-venv", "python3")?;
        make()?;
    }
    let mut install = Command::new(&own);
    install.args("-m pip install --quiet --disable-pip-version-check".split(' '));
    run(install.args(["--requirement", PACKAGES]))?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(own)
}

/// The Node that drives the browser.
fn bundled_node(python: &Path) -> Result<PathBuf, String> {
    let asked = Command::new(python)
        .args(["-c", "import playwright; print(playwright.__path__[0])"])
        .output()
        .map_err(|error| error.to_string())?;
    let folder = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let node = Path::new(&folder).join("driver/node");
    if node.is_file() {
        shout(&format!(
            "node is missing; using the one of playwright: {}",
            node.display()
        ));
        return Ok(node);
    }
    installed("nodejs", "node")
}

fn run(command: &mut Command) -> Result<(), String> {
    let words = format!("{command:?}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{words} ended with {status}")),
        Err(error) => Err(format!("{words}: {error}")),
    }
}

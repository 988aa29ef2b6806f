//! Worlds that once failed, for good.
//!
//! Each is a file in `regressions/` with everything that the world is made of. So it stays the same
//! world when seeds come to stand for other ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::scenario::{self, Timed};
use crate::setup::Setup;
use crate::world::{self, Outcome};

/// A world that once failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regression {
    /// What went wrong in it.
    pub comment: String,
    /// Group, settings, machines and traffic.
    pub setup: Arc<Setup>,
    /// What goes wrong, and when.
    pub faults: Vec<Timed>,
}

impl Regression {
    /// A seed as it stands now, with its own faults or these.
    pub fn of(seed: u64, faults: Option<Vec<Timed>>, comment: &str) -> Self {
        let setup = Arc::new(Setup::of(seed));
        let faults = faults.unwrap_or_else(|| scenario::of(&setup));
        Self {
            comment: comment.to_owned(),
            setup,
            faults,
        }
    }

    /// Runs it.
    pub fn run(&self, readable: bool) -> Outcome {
        world::run(&self.setup, &self.faults, readable)
    }

    /// Reads one.
    pub fn load(path: &Path) -> Result<Self, String> {
        let problem = |why: String| format!("{}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|why| problem(why.to_string()))?;
        serde_json::from_str(&text).map_err(|why| problem(why.to_string()))
    }

    /// Writes it under a name of its own.
    pub fn save(&self, name: &str) -> Result<PathBuf, String> {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(format!("{name:?} is not made of letters, digits, - and _"));
        }
        let path = folder().join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(self).map_err(|why| why.to_string())?;
        fs::create_dir_all(folder())
            .and_then(|()| fs::write(&path, text + "\n"))
            .map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(path)
    }
}

/// Where they are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")
}

/// All of them, by name.
pub fn all() -> Result<Vec<(String, Regression)>, String> {
    let unreadable = |why: std::io::Error| format!("{}: {why}", folder().display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder()).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    let named = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default();
        Ok((name.to_string_lossy().into_owned(), Regression::load(path)?))
    };
    paths.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_runs_as_its_seed_did() {
        let regression = Regression::of(3, None, "nothing");
        let text = serde_json::to_string(&regression).expect("plain data");
        let read: Regression = serde_json::from_str(&text).expect("what was written");
        assert_eq!(read, regression);
        assert_eq!(read.run(false).hash, regression.run(false).hash);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let regression = Regression::of(3, None, "nothing");
        assert!(regression.save("../elsewhere").is_err());
        assert!(regression.save("").is_err());
    }
}

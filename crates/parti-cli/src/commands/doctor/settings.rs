//! The settings: whether they can be used.

use parti::Config;
use parti::core::config::HintFor;

use super::Findings;
use crate::show::count;

/// Reads the settings; whatever cannot be used is reported, and the defaults are gone by.
pub fn check(file: Option<&str>, findings: &mut Findings) -> Config {
    let Some(file) = file else {
        findings.ok("settings", "all defaults");
        return Config::default();
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            findings.fail("settings", format!("{file}: {error}"));
            return Config::default();
        }
    };
    match Config::from_yaml(&text) {
        Ok(config) => {
            findings.ok("settings", format!("{file} can be used"));
            for hint in config.hints() {
                if hint.applies == HintFor::Any {
                    let text = format!("{} {} {}", hint.field, hint.value, hint.advice);
                    findings.warn("settings", text);
                }
            }
            config
        }
        Err(problems) => {
            let first = problems.iter().next().map(ToString::to_string);
            let text = format!(
                "{file}: {}, the first: {}; `parti config check` has them all",
                count(problems.len(), "problem"),
                first.unwrap_or_default()
            );
            findings.fail("settings", text);
            Config::default()
        }
    }
}

//! The store: reached, permitted, fast enough, new enough, in step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parti::Config;
use parti::core::config::{HintFor, show_duration};
use parti::store::{self, Scope, Store, StoreExt};

use super::{Findings, clock};
use crate::places;
use crate::show::now_ms;

/// Where no group can have a key: `=` begins an escape of two hex digits in every group's name.
const SCRATCH: &str = "=doctor";
/// Both sides of a store that keeps checkpoints apart.
const KINDS: [&str; 2] = ["workers", "partitions"];

/// Checks the store; `None` if there is no use in going on. Nothing is made where there is none: it
/// may be lost, and workers that wait for it to be restored must not meet an empty one.
pub async fn check(url: &str, config: &Config, findings: &mut Findings) -> Option<Arc<dyn Store>> {
    let store = match places::found(url).await {
        Ok(Some(store)) => store,
        Ok(None) => {
            let nothing = places::nothing_there(url);
            findings.fail(
                "store",
                format!("{nothing}; if it had one, restore it first"),
            );
            return None;
        }
        Err(failure) => {
            findings.fail("store", failure.line);
            return None;
        }
    };
    findings.ok("store", format!("{} answers", store.name()));
    let before = now_ms();
    match store.about().await {
        Ok(about) => {
            let after = now_ms();
            if let Some(server) = &about.server {
                findings.ok("store version", server);
            }
            for concern in &about.concerns {
                findings.warn("store", concern);
            }
            let kept = about.replicas.unwrap_or(1);
            match about.replicas {
                Some(1) => findings.ok("replicas", "one server keeps the records"),
                Some(count) => findings.ok("replicas", format!("{count} servers keep the records")),
                None => {}
            }
            ttl(kept, config, findings);
            clock::check(about.clock.as_deref(), before, after, findings);
        }
        Err(error) => findings.fail("store version", error),
    }
    for kind in KINDS {
        probe(store.as_ref(), kind, config, findings).await;
    }
    Some(store)
}

/// The session's TTL against a replicated store's own failover.
fn ttl(replicas: usize, config: &Config, findings: &mut Findings) {
    let mut hinted = false;
    if replicas > 1 {
        for hint in config.hints() {
            if hint.applies == HintFor::ReplicatedStore {
                hinted = true;
                let text = format!("{} {} {}", hint.field, hint.value, hint.advice);
                findings.warn("TTL", text);
            }
        }
    }
    if !hinted {
        let ttl = show_duration(config.session_ttl());
        findings.ok("TTL", format!("a session lasts {ttl} without a heartbeat"));
    }
}

/// Writes, reads, lists and deletes a key of its own.
async fn probe(store: &dyn Store, kind: &str, config: &Config, findings: &mut Findings) {
    let (check, what): (&'static str, &str) = match kind {
        "workers" => ("permissions", "records"),
        _ => ("permissions", "checkpoints"),
    };
    let key = format!("{kind}/{SCRATCH}/{}-{}", std::process::id(), now_ms());
    let began = Instant::now();
    let steps = async {
        let revision = store.create(&key, "parti doctor").await?;
        let took = began.elapsed();
        let scope = Scope::Under(format!("{kind}/{SCRATCH}/"));
        let looked = async {
            store.read(&key).await?;
            store.list(&scope).await
        };
        let looked = looked.await;
        // Whatever else failed, nothing is to stay behind.
        store.delete(&key, revision).await?;
        looked?;
        Ok::<Duration, store::Error>(took)
    };
    match steps.await {
        Ok(took) => {
            let text = format!("{what} can be written, read, listed and deleted");
            findings.ok(check, text);
            answer(what, took, config, findings);
        }
        Err(error) => findings.fail(check, format!("{what}: {error}")),
    }
}

/// How long a write takes, against the heartbeat that has to get through.
fn answer(what: &str, took: Duration, config: &Config, findings: &mut Findings) {
    let shown = format!("a write of {what} took {}ms", took.as_millis().max(1));
    let heartbeat = config.heartbeat();
    if took * 4 > heartbeat {
        findings.warn(
            "answers",
            format!(
                "{shown}, with a heartbeat every {}: sessions will lapse; bring the store nearer, \
                 or give heartbeats more time",
                show_duration(heartbeat)
            ),
        );
    } else {
        findings.ok("answers", shown);
    }
}

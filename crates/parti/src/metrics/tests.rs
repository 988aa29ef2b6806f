//! What is counted, and that the text is one which a scraper can read.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti_core::ids::{Epoch, Incarnation, Offset, PartitionId, Term, Version, WorkerId};

use super::*;

use crate::store::metered::Metered;
use crate::store::{Memory, Store, StoreExt};

/// Samples by name and labels. Panics where the text breaks the rules of OpenMetrics.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("an end");
    let (mut found, mut families) = (BTreeMap::new(), Vec::<(String, String)>::new());
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let (what, family) = (words.next().expect("what"), words.next().expect("family"));
            let rest = words.next().expect("a text");
            if what == "TYPE" {
                let seen = families.iter().any(|(name, _)| name == family);
                assert!(!seen, "{family} comes twice");
                families.push((family.to_owned(), rest.to_owned()));
            } else {
                assert!(["UNIT", "HELP"].contains(&what), "{line}");
                assert_eq!(families.last().map(|(name, _)| name.as_str()), Some(family));
            }
            continue;
        }
        let (key, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
        assert!(labels.ends_with('}'), "{line}");
        let (family, kind) = families.last().expect("a type before samples");
        let suffix = name.strip_prefix(family.as_str()).expect("of its family");
        let allowed: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            _ => &["_bucket", "_sum", "_count"],
        };
        assert!(allowed.contains(&suffix), "{line}");
        let value = value.parse().expect("a number");
        assert!(found.insert(key.to_owned(), value).is_none(), "{key} twice");
    }
    found
}

fn reports() -> Vec<Report> {
    let partition = PartitionId::new("p");
    vec![
        Report::State {
            from: State::Init,
            to: State::ClaimingId,
        },
        Report::Claimed(WorkerId::new("worker-3"), Incarnation(7)),
        Report::Leading(Some(Term(1))),
        Report::Leading(Some(Term(2))),
        Report::Leading(None),
        Report::Assigned {
            version: Version(5),
            term: Term(1),
            serve: vec![partition.clone()],
            prepare: vec![],
        },
        Report::Taken {
            partition: partition.clone(),
            epoch: Epoch(1),
            offset: None,
            next_offset: Offset(1),
            seized: true,
        },
        Report::Released {
            partition: partition.clone(),
            epoch: Epoch(1),
            offset: None,
            next_offset: Offset(1),
        },
        Report::Fenced {
            partition: partition.clone(),
            epoch: Epoch(1),
        },
        Report::DeadLettered {
            partition,
            offset: Offset(4),
            attempts: 3,
        },
        Report::SessionLost,
        Report::Lease { alive: false },
        Report::Lease { alive: true },
        Report::Trouble(Trouble::Listing("no".into())),
    ]
}

#[test]
fn reports_are_counted_under_the_workers_name() {
    let metrics = Metrics::new("orders");
    for report in reports() {
        metrics.observe(&report);
    }
    let found = samples(&metrics.render(None));
    let own = "group=\"orders\",worker=\"worker-3\"";
    for (sample, value) in [
        (format!("parti_worker_state{{{own}}}"), 1.0),
        (format!("parti_is_leader{{{own}}}"), 0.0),
        (format!("parti_leadership_changes_total{{{own}}}"), 2.0),
        (format!("parti_assigned_partitions{{{own}}}"), 1.0),
        (format!("parti_assignment_version{{{own}}}"), 5.0),
        (format!("parti_assignment_changes_total{{{own}}}"), 1.0),
        (
            format!("parti_state_transitions_total{{{own},from=\"init\",to=\"claiming_id\"}}"),
            1.0,
        ),
        (
            format!("parti_state_duration_seconds_count{{{own},state=\"init\"}}"),
            1.0,
        ),
        (
            format!("parti_partitions_taken_total{{{own},from=\"dead_owner\"}}"),
            1.0,
        ),
        (
            format!("parti_partitions_taken_total{{{own},from=\"nobody\"}}"),
            0.0,
        ),
        (format!("parti_partitions_released_total{{{own}}}"), 1.0),
        (format!("parti_partitions_fenced_total{{{own}}}"), 1.0),
        (format!("parti_dead_letters_total{{{own}}}"), 1.0),
        (format!("parti_session_losses_total{{{own}}}"), 1.0),
        (format!("parti_lease_lapses_total{{{own}}}"), 1.0),
        (
            format!("parti_troubles_total{{{own},kind=\"listing\"}}"),
            1.0,
        ),
    ] {
        assert_eq!(found.get(&sample), Some(&value), "{sample}");
    }
}

#[test]
fn a_state_is_timed_from_its_beginning_to_its_end() {
    let metrics = Metrics::new("g");
    let at = Duration::from_millis;
    metrics.state_changed(State::Init, State::Stable, at(50));
    metrics.state_changed(State::Stable, State::Shutdown, at(20_050));
    let found = samples(&metrics.render(None));
    let of = |suffix: &str, labels: &str| {
        let sample = format!("parti_state_duration_seconds_{suffix}{{group=\"g\",{labels}}}");
        found.get(&sample).copied()
    };
    assert_eq!(of("sum", "state=\"stable\""), Some(20.0));
    assert_eq!(of("bucket", "state=\"stable\",le=\"15.0\""), Some(0.0));
    assert_eq!(of("bucket", "state=\"stable\",le=\"60.0\""), Some(1.0));
    assert_eq!(of("bucket", "state=\"stable\",le=\"+Inf\""), Some(1.0));
    assert_eq!(of("bucket", "state=\"init\",le=\"0.1\""), Some(1.0));
    assert_eq!(of("sum", "state=\"emergency\""), None, "never was in it");
}

#[test]
fn states_have_the_numbers_of_their_places() {
    for (index, (state, _)) in STATES.iter().enumerate() {
        assert_eq!(*state as usize, index);
    }
}

#[tokio::test]
async fn a_metered_stores_numbers_are_shown() {
    let store = Metered::new(Arc::new(Memory::new()));
    store.create("a", "1").await.expect("written");
    store.create("a", "2").await.expect_err("a conflict");
    store.read("a").await.expect("read");
    let found = samples(&Metrics::new("g").render(Some(&store.snapshot())));
    for (sample, value) in [
        ("parti_store_writes_total{group=\"g\"}", 1.0),
        (
            "parti_store_errors_total{group=\"g\",kind=\"conflict\"}",
            1.0,
        ),
        (
            "parti_store_errors_total{group=\"g\",kind=\"corrupt\"}",
            0.0,
        ),
        (
            "parti_store_operation_seconds_count{group=\"g\",operation=\"write\"}",
            2.0,
        ),
        (
            "parti_store_operation_seconds_bucket{group=\"g\",operation=\"read\",le=\"+Inf\"}",
            1.0,
        ),
    ] {
        assert_eq!(found.get(sample), Some(&value), "{sample}");
    }
}

#[test]
fn every_metric_with_a_feed_is_shown_and_no_other() {
    let metrics = Metrics::new("g");
    for report in reports() {
        metrics.observe(&report);
    }
    let text = metrics.render(Some(&Numbers::default()));
    let found = samples(&text);
    for metric in &METRICS {
        let suffix = if metric.kind == Kind::Histogram {
            "_count"
        } else {
            ""
        };
        let start = format!("{}{suffix}{{", metric.name);
        let shown = found.keys().any(|sample| sample.starts_with(&start));
        assert_eq!(shown, metric.feed != Feed::Nowhere, "{}", metric.name);
    }
}

#[test]
fn names_of_people_cannot_break_the_text() {
    let metrics = Metrics::new("a\"b\\c\nd");
    let text = metrics.render(None);
    samples(&text);
    assert!(text.contains(r#"group="a\"b\\c\nd""#));
}

#[test]
fn the_number_of_samples_is_bounded_whatever_happens() {
    let metrics = Metrics::new("g");
    for (from, _) in STATES {
        for (to, _) in STATES {
            metrics.state_changed(from, to, Duration::ZERO);
        }
    }
    for number in 0..1000 {
        metrics.observe(&Report::Fenced {
            partition: PartitionId::new(&*format!("p{number}")),
            epoch: Epoch(1),
        });
    }
    let samples = samples(&metrics.render(Some(&Numbers::default())));
    assert!(samples.len() < 400, "{}", samples.len());
}

//! One test per fact that was measured on a real server, named after it.

mod contents;
mod delivery;
mod work_queue;

use std::sync::Arc;

use parti_core::config::{Config, StartPosition};
use parti_core::ids::{Epoch, WorkerId};
use parti_core::io::{Ask, Bounds, Job, Message, ReadBatch};

use super::*;
use crate::model::Fate;

const SECOND: u64 = 1_000_000;
const ACK_WAIT: u64 = 30 * SECOND;
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn config(retention: Retention) -> StreamConfig {
    StreamConfig {
        pull_expiry: 1000 * SECOND,
        ..StreamConfig::of(retention, &Config::default().jetstream)
    }
}

fn limits() -> Stream {
    Stream::new(7, config(Retention::Limits))
}

fn work_queue() -> Stream {
    Stream::new(7, config(Retention::WorkQueue))
}

fn p(name: &str) -> PartitionId {
    PartitionId::new(name)
}

fn publish(stream: &mut Stream, partition: &str, count: u64) {
    for _ in 0..count {
        stream.publish(0, &p(partition), 0, 1);
    }
}

fn update(stream: &mut Stream, durable: &str, names: &[&str]) -> Result<u64, SourceError> {
    let partitions = names.iter().map(|name| p(name)).collect();
    let request = SourceRequest::UpdateConsumer {
        ask: Ask(0),
        partitions,
    };
    match stream.request(0, durable, A, request) {
        Some(SourceEvent::Consumer { result, .. }) => result.map(|state| state.identity),
        other => panic!("{other:?}"),
    }
}

fn reset(stream: &mut Stream, durable: &str) {
    let answer = stream.request(0, durable, A, SourceRequest::ResetConsumer { ask: Ask(0) });
    assert!(
        matches!(answer, Some(SourceEvent::Consumer { result: Ok(_), .. })),
        "{answer:?}"
    );
}

fn pull(stream: &mut Stream, now: u64, durable: &str, client: ClientId, batch: u32) {
    assert_eq!(
        stream.request(
            now,
            durable,
            client,
            SourceRequest::Pull {
                ask: ask_of(client),
                batch
            }
        ),
        None
    );
}

/// All pulls of one client in these tests go by one number.
fn ask_of(client: ClientId) -> Ask {
    Ask(client.0)
}

fn pull_ended(client: ClientId) -> (ClientId, SourceEvent) {
    (
        client,
        SourceEvent::PullEnded {
            ask: ask_of(client),
        },
    )
}

fn ack(stream: &mut Stream, durable: &str, deliveries: &[u64]) {
    let request = SourceRequest::Ack {
        deliveries: deliveries.to_vec(),
    };
    assert_eq!(stream.request(0, durable, A, request), None);
}

/// What a client got: (consumer sequence, offset) of each delivery.
fn got(events: &[(ClientId, SourceEvent)], client: ClientId) -> Vec<(u64, u64)> {
    let own = events.iter().filter(|(to, _)| *to == client);
    own.filter_map(|(_, event)| match event {
        SourceEvent::Delivered {
            sequence, message, ..
        } => Some((*sequence, message.offset.0)),
        _ => None,
    })
    .collect()
}

fn ended(events: &[(ClientId, SourceEvent)], client: ClientId) -> usize {
    events
        .iter()
        .filter(|event| **event == pull_ended(client))
        .count()
}

/// Pulls as client A and answers the offsets that came.
fn fetch(stream: &mut Stream, now: u64, durable: &str, batch: u32) -> Vec<u64> {
    pull(stream, now, durable, A, batch);
    let events = stream.deliveries(now);
    stream.disconnect(A);
    got(&events, A)
        .into_iter()
        .map(|(_, offset)| offset)
        .collect()
}

fn read(stream: &mut Stream, name: &str, from: u64, upto: Option<u64>, limit: u32) -> ReadBatch {
    let (partition, upto) = (p(name), upto.map(Offset));
    let request = SourceRequest::Read {
        ask: Ask(0),
        partition,
        from: Offset(from),
        upto,
        limit,
    };
    match stream.request(0, "any", A, request) {
        Some(SourceEvent::Read {
            result: Ok(batch), ..
        }) => batch,
        other => panic!("{other:?}"),
    }
}

fn offsets(batch: &ReadBatch) -> Vec<u64> {
    batch
        .messages
        .iter()
        .map(|message| message.offset.0)
        .collect()
}

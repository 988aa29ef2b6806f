//! Deliveries without their payload: somebody set `headers_only` on the durable. Nobody handles
//! them; what was cut off is read past the durable, or comes again, once the durable is as it should
//! be.
//!
//! A message can look the same by itself, as one that was copied without its payload. So the server
//! is asked, once in a while.

use std::time::Duration;

use async_nats::Message;
use tokio::time::{Instant, timeout};

use super::api::Api;

/// The header that stands for a payload that was cut off.
const SIZE: &str = "Nats-Msg-Size";
/// That nothing is cut off is believed for so long.
const BELIEVED: Duration = Duration::from_secs(1);
/// Acks wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a delivery looks as if its payload had been cut off.
pub(super) fn is_bare(delivery: &Message) -> bool {
    delivery.payload.is_empty()
        && delivery
            .headers
            .as_ref()
            .is_some_and(|headers| headers.get(SIZE).is_some())
}

/// What is known of the durable.
#[derive(Debug, Default)]
pub(super) struct Bare {
    whole_at: Option<Instant>,
}

impl Bare {
    /// Whether the durable cuts payloads off. Where nobody can tell, it may.
    pub async fn is_cut(&mut self, api: &Api, durable: &str) -> bool {
        if self.whole_at.is_some_and(|at| at.elapsed() < BELIEVED) {
            return false;
        }
        let asked = Instant::now();
        let info = timeout(PATIENCE, api.consumer_info(durable)).await;
        let whole = matches!(
            info,
            Ok(Ok(Some(info))) if !info.config["headers_only"].as_bool().unwrap_or_default()
        );
        self.whole_at = whole.then_some(asked);
        !whole
    }
}

#[cfg(test)]
mod tests {
    use async_nats::HeaderMap;

    use super::*;

    fn delivery(header: Option<&str>, payload: &'static str) -> Message {
        Message {
            subject: "o.1".into(),
            reply: None,
            payload: payload.into(),
            headers: header.map(|name| {
                let mut headers = HeaderMap::new();
                headers.insert(name, "7");
                headers
            }),
            status: None,
            description: None,
            length: 0,
        }
    }

    #[test]
    fn only_an_empty_payload_in_whose_place_there_is_a_size_was_cut_off() {
        assert!(is_bare(&delivery(Some(SIZE), "")));
        assert!(!is_bare(&delivery(Some(SIZE), "x")));
        assert!(!is_bare(&delivery(Some("Tag"), "")));
        assert!(!is_bare(&delivery(None, "")));
    }
}

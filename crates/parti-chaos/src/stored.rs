//! What a stream really holds, for when messages that were acked never come.
//!
//! An old cluster in trouble can ack what it does not have: a message that is sent again, because its
//! ack did not come, is taken for one that is stored already, while the first attempt was lost with
//! its leader. No worker can handle that, so it has to be told apart from what workers lose.

use std::collections::BTreeSet;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use futures_util::StreamExt;

use crate::failure::{Failure, While};
use crate::stage::STREAM;

/// All messages of the stream, each by its partition and its number.
pub async fn stored(context: &Context) -> Result<BTreeSet<(u32, u64)>, Failure> {
    let stream = context.get_stream(STREAM).await;
    let consumer = stream
        .during("finding the stream")?
        .create_consumer(OrderedConfig::default())
        .await
        .during("reading the stream")?;
    let mut stored = BTreeSet::new();
    if consumer.cached_info().num_pending == 0 {
        return Ok(stored);
    }
    let mut messages = consumer.messages().await.during("reading the stream")?;
    while let Some(message) = messages.next().await {
        let message = message.during("reading the stream")?;
        let partition = message.subject.strip_prefix("p.").map(str::parse);
        let number = std::str::from_utf8(&message.payload).map(str::parse);
        if let (Some(Ok(partition)), Ok(Ok(number))) = (partition, number) {
            stored.insert((partition, number));
        }
        let info = message
            .info()
            .map_err(|error| Failure::new(error.to_string()))?;
        if info.pending == 0 {
            return Ok(stored);
        }
    }
    Err(Failure::new("the stream ended in the middle"))
}

//! Readers: short-lived consumers of one subject, or of the whole stream, behind which nothing is
//! kept. They live from read to read as long as each goes on where the one before ended, and are
//! deleted when nobody uses them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use parti_core::codec::Template;
use serde_json::json;
use tokio::time::Instant;

use super::api::{Action, Api, error, unavailable};
use super::delivery::{place, record};
use super::subjects::Partitions;
use crate::source::{PartitionId, Record, SourceError};

/// The most bytes of one read, unless a single message is larger.
pub(super) const READ_BYTES: usize = 8 * 1024 * 1024;
/// A reader that nobody used for this long is dropped, here and on the server.
const IDLE: Duration = Duration::from_secs(5);
/// The server keeps it for this long.
pub(super) const KEPT: Duration = Duration::from_secs(10);
/// A fetch that brought something ends after this time.
const FETCH: Duration = Duration::from_secs(2);
/// A reader that brings nothing for so long is given up.
const SILENT: Duration = Duration::from_secs(5);

/// What a read has found so far.
#[derive(Default)]
pub(super) struct Found {
    pub records: Vec<(PartitionId, Record)>,
    pub bytes: usize,
    /// Everything below this was looked at.
    pub next: u64,
    /// The first message that a reader brought, wanted or not.
    pub oldest: Option<u64>,
    /// The first offset, after the oldest, that a reader passed without seeing a message.
    pub hole: Option<u64>,
}

impl Found {
    /// Nothing yet, from this offset on.
    pub fn from(next: u64) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }

    pub fn push(&mut self, partition: &PartitionId, record: Record) {
        self.look_at(record.offset.0);
        self.bytes += record.payload.len();
        self.records.push((partition.clone(), record));
    }

    fn look_at(&mut self, offset: u64) {
        if self.oldest.is_some() && offset > self.next && self.hole.is_none() {
            self.hole = Some(self.next);
        }
        self.oldest.get_or_insert(offset);
        self.next = offset + 1;
    }

    pub fn is_enough(&self, limit: usize) -> bool {
        self.records.len() >= limit || self.bytes >= READ_BYTES
    }
}

/// What a status means for a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Nothing.
    GoOn,
    /// The request is over, and there may be more.
    AskAgain,
    /// There is no more.
    Dry,
    /// Something is wrong.
    Broken,
}

/// What the server says of a request. `asked`: this fetch has sent one; if not, it is of the fetch
/// before, which had enough just then, and says nothing of how the stream is now. `came`: whether the
/// last request brought anything.
fn said(code: u16, why: &str, asked: bool, came: bool) -> Said {
    match (code, why) {
        // Of a request whose messages have all come.
        (409, "Batch Completed") => Said::GoOn,
        (404 | 408, _) | (409, "Message Size Exceeds MaxBytes") if !asked => Said::AskAgain,
        (404 | 408, _) => Said::Dry,
        // Not in these bytes: the next request brings more.
        (409, "Message Size Exceeds MaxBytes") if came => Said::AskAgain,
        _ => Said::Broken,
    }
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has what it was to bring, or as much as a read may hold.
    Enough,
    /// The server has no more for it, as far as that server knows.
    Dry,
    /// Something is wrong, and the reader must not be used again; what it found is good all the same.
    Broken,
}

/// What a fetch is to bring.
pub(super) struct Wanted {
    /// The partitions, with how many messages of each were found.
    pub partitions: BTreeMap<PartitionId, usize>,
    /// The last offset.
    pub upto: u64,
    /// The most messages of one partition.
    pub limit: usize,
    /// The most messages to ask the server for at once.
    pub batch: u64,
}

/// A consumer of one subject or of all.
pub(super) struct Reader {
    name: String,
    inbox: String,
    messages: Subscriber,
    /// Finds out whose a message is.
    partitions: Partitions,
    /// The next offset that it will look at.
    next: u64,
    /// The next consumer sequence: anything else means that something was lost.
    sequence: u64,
    /// How many messages the last request may still bring.
    coming: u64,
    /// The consumer sequence that was next when the last request was sent.
    asked_at: u64,
    /// A message that came, but was beyond what was asked for.
    ahead: Option<Message>,
    used: Instant,
}

impl Reader {
    /// A reader of one subject, or of the whole stream, from this offset on.
    pub async fn open(
        api: &Api,
        template: &Template,
        subject: Option<&str>,
        from: u64,
    ) -> Result<Self, SourceError> {
        let client: &Client = &api.link.client;
        let inbox = client.new_inbox();
        let name = format!("parti-read-{}", inbox.rsplit('.').next().unwrap_or("x"));
        let messages = client.subscribe(inbox.clone()).await;
        let messages = messages.map_err(|error| unavailable(error.to_string()))?;
        let mut config = json!({
            "name": name,
            "description": "reads a backlog, then goes away",
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": from.max(1),
            "replay_policy": "instant",
            "inactive_threshold": KEPT.as_nanos() as u64,
            "mem_storage": true,
            "num_replicas": 1,
        });
        if let Some(subject) = subject {
            config["filter_subject"] = json!(subject);
        }
        api.put_consumer(&name, config, Action::Create)
            .await
            .map_err(error)?;
        Ok(Self {
            name,
            inbox,
            messages,
            partitions: Partitions::new(template.clone()),
            next: from,
            sequence: 1,
            coming: 0,
            asked_at: 1,
            ahead: None,
            used: Instant::now(),
        })
    }

    /// Fetches what is wanted, as far as there is any.
    pub async fn fetch(&mut self, api: &Api, wanted: &mut Wanted, found: &mut Found) -> Ended {
        let (begun, before) = (Instant::now(), found.next);
        let mut asked = false;
        loop {
            let some = found.next > before;
            let deadline = begun + if some { FETCH } else { SILENT };
            let delivery = match self.ahead.take() {
                Some(delivery) => delivery,
                None => {
                    if self.coming == 0 {
                        asked = true;
                        if !self.ask(api, wanted).await {
                            return Ended::Broken;
                        }
                    }
                    match self.receive(deadline).await {
                        Some(delivery) => delivery,
                        // What is late can come with the next fetch.
                        None if some => return Ended::Enough,
                        None => return Ended::Broken,
                    }
                }
            };
            let Some(status) = delivery.status else {
                match self.take(delivery, wanted, found) {
                    Some(true) => continue,
                    Some(false) => return Ended::Enough,
                    None => return Ended::Broken,
                }
            };
            let why = delivery.description.as_deref().unwrap_or_default();
            let came = self.sequence > self.asked_at;
            match said(status.as_u16(), why, asked, came) {
                Said::GoOn => {}
                Said::AskAgain => self.coming = 0,
                Said::Dry => {
                    self.coming = 0;
                    return Ended::Dry;
                }
                Said::Broken => return Ended::Broken,
            }
        }
    }

    async fn ask(&mut self, api: &Api, wanted: &Wanted) -> bool {
        let batch = wanted
            .batch
            .min((wanted.upto + 1).saturating_sub(self.next));
        let batch = batch.max(1);
        let client = &api.link.client;
        // A single message must fit, however large the server lets it be.
        let bytes = READ_BYTES.max(client.server_info().max_payload.saturating_mul(2));
        let request = json!({ "batch": batch, "no_wait": true, "max_bytes": bytes });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", api.stream, self.name);
        let payload = Bytes::from(request.to_string());
        let sent = client.publish_with_reply(subject, self.inbox.clone(), payload);
        self.coming = batch;
        self.asked_at = self.sequence;
        sent.await.is_ok()
    }

    async fn receive(&mut self, deadline: Instant) -> Option<Message> {
        // Most are here already: a timer for each would cost more than the message.
        if let Some(came) = self.messages.next().now_or_never() {
            return came;
        }
        let came = tokio::time::timeout_at(deadline, self.messages.next()).await;
        came.ok().flatten()
    }

    /// Takes in one delivery. True: go on; `None`: it is not the next one.
    fn take(&mut self, delivery: Message, wanted: &mut Wanted, found: &mut Found) -> Option<bool> {
        let reply = delivery.reply.as_ref().map_or("", |reply| reply.as_str());
        let place = place(reply).filter(|place| place.sequence == self.sequence)?;
        let (offset, timestamp_ms) = (place.offset, place.timestamp_ms);
        if offset > wanted.upto {
            found.next = wanted.upto + 1;
            self.next = found.next;
            self.ahead = Some(delivery);
            return Some(false);
        }
        self.sequence += 1;
        self.coming = self.coming.saturating_sub(1);
        self.next = offset + 1;
        let (partition, subject) = self.partitions.of(&delivery.subject);
        let Some(count) = wanted.partitions.get_mut(&partition) else {
            found.look_at(offset);
            return Some(offset < wanted.upto);
        };
        *count += 1;
        let full = *count >= wanted.limit;
        let Message {
            headers, payload, ..
        } = delivery;
        let record = record(offset, subject, headers, payload, timestamp_ms);
        found.push(&partition, record);
        Some(!full && offset < wanted.upto && !found.is_enough(usize::MAX))
    }

    /// The server would drop it, too, only later.
    pub fn end(self, api: &Api) {
        let (api, name) = (api.clone(), self.name);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = api.delete_consumer(&name).await;
            });
        }
    }
}

/// Readers between two reads: one per partition, and one of the whole stream.
pub(super) struct Kept {
    api: Api,
    readers: Mutex<BTreeMap<Option<PartitionId>, Reader>>,
    /// Whether somebody looks after those that nobody uses.
    kept_clean: Mutex<bool>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} readers", self.readers().len())
    }
}

impl Kept {
    /// None yet.
    pub fn new(api: Api) -> Arc<Self> {
        Arc::new(Self {
            api,
            readers: Mutex::default(),
            kept_clean: Mutex::default(),
        })
    }

    fn readers(&self) -> MutexGuard<'_, BTreeMap<Option<PartitionId>, Reader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kept reader, if it stands at this offset.
    pub fn take(&self, of: Option<&PartitionId>, from: u64) -> Option<Reader> {
        let reader = self.readers().remove(&of.cloned())?;
        if reader.next == from {
            return Some(reader);
        }
        reader.end(&self.api);
        None
    }

    /// Keeps a reader for the next read.
    pub fn keep(self: &Arc<Self>, of: Option<&PartitionId>, mut reader: Reader) {
        reader.used = Instant::now();
        let before = self.readers().insert(of.cloned(), reader);
        if let Some(before) = before {
            before.end(&self.api);
        }
        let mut kept_clean = self
            .kept_clean
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *kept_clean, true) {
            tokio::spawn(clean(Arc::downgrade(self)));
        }
    }

    /// Ends those that nobody used lately. False: none is left, and nobody has to look again.
    fn sweep_out(&self) -> bool {
        let mut kept_clean = self
            .kept_clean
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut readers = self.readers();
        let idle = readers.extract_if(.., |_, reader| reader.used.elapsed() >= IDLE);
        for (_, reader) in idle {
            reader.end(&self.api);
        }
        *kept_clean = !readers.is_empty();
        *kept_clean
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (_, reader) in std::mem::take(&mut *self.readers()) {
            reader.end(&self.api);
        }
    }
}

async fn clean(kept: Weak<Kept>) {
    loop {
        tokio::time::sleep(IDLE).await;
        match kept.upgrade() {
            Some(kept) if kept.sweep_out() => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Offset;

    const TOO_LARGE: &str = "Message Size Exceeds MaxBytes";

    #[test]
    fn no_messages_ends_a_fetch_that_asked_and_not_one_that_hears_of_the_one_before() {
        for (code, why) in [(404, "No Messages"), (408, "Request Timeout")] {
            for came in [false, true] {
                assert_eq!(said(code, why, true, came), Said::Dry);
                assert_eq!(said(code, why, false, came), Said::AskAgain);
            }
        }
    }

    #[test]
    fn full_bytes_are_asked_for_again_unless_not_even_one_message_fits() {
        assert_eq!(said(409, TOO_LARGE, true, true), Said::AskAgain);
        assert_eq!(said(409, TOO_LARGE, false, true), Said::AskAgain);
        assert_eq!(said(409, TOO_LARGE, false, false), Said::AskAgain);
        assert_eq!(said(409, TOO_LARGE, true, false), Said::Broken);
    }

    #[test]
    fn the_trailing_word_of_a_request_says_nothing_and_any_other_word_that_it_is_broken() {
        assert_eq!(said(409, "Batch Completed", true, false), Said::GoOn);
        for (code, why) in [
            (409, "Consumer Deleted"),
            (409, "Leadership Change"),
            (503, ""),
            (400, "Bad Request"),
        ] {
            assert_eq!(said(code, why, false, true), Said::Broken, "{code} {why}");
        }
    }

    #[test]
    fn a_read_holds_so_many_bytes_and_one_message_more_at_the_most() {
        let payload = Bytes::from(vec![0; 512 * 1024]);
        let mut found = Found::from(1);
        for offset in 1.. {
            let record = Record {
                offset: Offset(offset),
                payload: payload.clone(),
                ..Record::default()
            };
            found.push(&PartitionId::new("a"), record);
            if found.is_enough(usize::MAX) {
                break;
            }
        }
        assert_eq!(found.records.len(), READ_BYTES / payload.len());
        assert_eq!(found.next, 17);
    }
}

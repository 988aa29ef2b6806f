//! W3C trace context: what a message's headers say of the trace that it belongs to.
//!
//! ```text
//!   whoever sends ── traceparent: its span ──┬──▶ publish      each with the sender's span
//!                                            └──▶ handle       as its parent
//! ```
//!
//! Headers are carried from the producer to the handler as they are (and into a dead letter), so
//! `traceparent` and `tracestate` come along by themselves. A handler call runs in a span `handle`
//! (target `parti::handle`, level info) with the message's place and its trace. A message that
//! belongs to a trace is published in a span `publish` (target `parti::publish`, level info), with
//! the same. Both name the sender's span, which is one that somebody recorded: what an exporter calls
//! these two is known to the exporter alone, so neither can stand in a header. With no subscriber
//! that wants them, nothing is looked at.

use tracing::{Level, Span, field};

use crate::message::Message;
use crate::source::{Offset, PartitionId};

const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";

/// A `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent<'a> {
    /// Of the whole trace: 32 hexadecimal digits, not all zero.
    pub trace_id: &'a str,
    /// Of the span that sent the message: 16 hexadecimal digits, not all zero.
    pub parent_id: &'a str,
    /// Whether whoever sent it recorded the trace.
    pub sampled: bool,
}

impl<'a> TraceParent<'a> {
    /// Reads a header's value. None where the standard says that it is to be ignored.
    pub fn parse(value: &'a str) -> Option<Self> {
        let mut fields = value.trim().split('-');
        let mut next = |digits: usize| {
            let field = fields.next()?;
            let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            (field.len() == digits && field.bytes().all(hex)).then_some(field)
        };
        let (version, trace_id, parent_id, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let nothing = |id: &str| id.bytes().all(|byte| byte == b'0');
        // A later version may have more fields; this one has not.
        let more = fields.next().is_some();
        if version == "ff" || (version == "00" && more) || nothing(trace_id) || nothing(parent_id) {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self {
            trace_id,
            parent_id,
            sampled: flags & 1 == 1,
        })
    }
}

/// The spans of messages that are being published: of each one that belongs to a trace.
#[derive(Debug, Default)]
pub(crate) struct Publishing(Vec<(usize, Span)>);

impl Publishing {
    /// None if no subscriber wants to know.
    pub(crate) fn wanted() -> Option<Self> {
        tracing::enabled!(target: "parti::publish", Level::INFO).then(Self::default)
    }

    /// Begins the span of the message at this place of the batch, if its headers say that it belongs
    /// to a trace.
    pub(crate) fn begin<'a>(
        &mut self,
        place: usize,
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        to: &str,
    ) {
        let mut headers = headers.into_iter();
        let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(TRACE_PARENT));
        let text = found.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let Some(parent) = text.and_then(TraceParent::parse) else {
            return;
        };
        let span = tracing::info_span!(
            target: "parti::publish",
            "publish",
            source = to,
            partition = field::Empty,
            offset = field::Empty,
            trace_id = parent.trace_id,
            parent_id = parent.parent_id,
        );
        self.0.push((place, span));
    }

    /// All of the batch is stored, at these places.
    pub(crate) fn stored(self, placed: &[(PartitionId, Offset)]) {
        for (place, span) in self.0 {
            if let Some((partition, offset)) = placed.get(place) {
                span.record("partition", field::display(partition));
                span.record("offset", offset.0);
            }
        }
    }
}

impl Message {
    /// The trace that it belongs to, if its sender said so in a valid `traceparent` header.
    pub fn trace_parent(&self) -> Option<TraceParent<'_>> {
        TraceParent::parse(self.text_of(TRACE_PARENT)?)
    }

    /// Its `tracestate` header, as it is.
    pub fn trace_state(&self) -> Option<&str> {
        self.text_of(TRACE_STATE)
    }

    /// The first header with this name, in whatever case.
    fn text_of(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers().iter();
        let (_, value) = headers.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// A span for its handling.
    pub(crate) fn span(&self) -> Span {
        let span = tracing::info_span!(
            target: "parti::handle",
            "handle",
            partition = %self.partition,
            offset = self.offset.0,
            epoch = self.epoch.0,
            attempt = self.attempt,
            worker = %self.worker,
            trace_id = field::Empty,
            parent_id = field::Empty,
        );
        if !span.is_disabled()
            && let Some(parent) = self.trace_parent()
        {
            span.record("trace_id", parent.trace_id);
            span.record("parent_id", parent.parent_id);
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;
    use std::sync::{Arc, LazyLock, Mutex};
    use std::time::SystemTime;

    use parti_core::ids::{Epoch, Offset, PartitionId, WorkerId};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::{DefaultGuard, set_default};
    use tracing::{Dispatch, Event, Metadata, Subscriber};

    use super::*;
    use crate::source::Received;
    use crate::source::log::{Log, NewRecord, TopicSettings};

    /// Takes down the fields of every span.
    #[derive(Clone, Default)]
    struct Fields(Arc<Mutex<BTreeMap<String, String>>>);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let mut fields = self.0.lock().expect("no panic");
            fields.insert(field.name().into(), format!("{value:?}"));
        }
    }

    impl Subscriber for Fields {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            ["parti::handle", "parti::publish"].contains(&metadata.target())
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            span.record(&mut self.clone());
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, values: &Record<'_>) {
            values.record(&mut self.clone());
        }
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Has the spans of this thread go to a subscriber.
    fn hears(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
        // With less than two subscribers in a process, the first span of its kind on a thread that has
        // none switches all of them off, everywhere: and other tests have threads without.
        static MORE: LazyLock<[Dispatch; 2]> =
            LazyLock::new(|| [(); 2].map(|()| Dispatch::new(Fields::default())));
        LazyLock::force(&MORE);
        set_default(subscriber)
    }

    fn message(headers: &[(&str, String)]) -> Message {
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| ((*name).into(), value.clone().into()));
        Message {
            partition: PartitionId::new("p7"),
            offset: Offset(41),
            epoch: Epoch(3),
            attempt: 2,
            worker: WorkerId::new("worker-0"),
            received_at: SystemTime::UNIX_EPOCH,
            received: Arc::new(Received {
                at: SystemTime::UNIX_EPOCH,
                record: crate::source::Record {
                    headers: headers.collect::<Vec<_>>().into(),
                    ..Default::default()
                },
            }),
        }
    }

    #[test]
    fn a_span_says_which_message_and_which_trace() {
        let parent = format!("00-{TRACE}-{PARENT}-01");
        let message = message(&[("Traceparent", parent), ("tracestate", "a=b".into())]);
        assert_eq!(message.trace_state(), Some("a=b"));
        let fields = Fields::default();
        let kept = hears(fields.clone());
        drop((message.span(), kept));
        let fields = fields.0.lock().expect("no panic");
        for (name, value) in [
            ("partition", "p7"),
            ("offset", "41"),
            ("epoch", "3"),
            ("attempt", "2"),
            ("worker", "worker-0"),
            ("trace_id", &format!("{TRACE:?}")),
            ("parent_id", &format!("{PARENT:?}")),
        ] {
            assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    /// Appends a message with these headers to a log, with a subscriber or without. Answers its
    /// header as it is stored, and what the subscriber took down.
    fn published(header: &str, subscriber: bool) -> (String, BTreeMap<String, String>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let fields = Fields::default();
        let _kept = subscriber.then(|| hears(fields.clone()));
        let headers = runtime.block_on(async {
            let folder = tempfile::tempdir().expect("a folder");
            let log = Log::open(folder.path()).await.expect("a log");
            let settings = TopicSettings::partitions(1);
            let topic = log.create_topic("t", settings).await.expect("a topic");
            let record = NewRecord {
                headers: vec![("Traceparent".into(), header.to_owned().into())],
                ..NewRecord::new("x")
            };
            let placed = topic.append(vec![record]).await.expect("appended");
            let (partition, offset) = placed.into_iter().next().expect("one");
            let read = topic.read_within(&partition, offset, 1, 1).await;
            read.expect("readable").records[0].headers.clone()
        });
        let value = String::from_utf8(headers[0].1.to_vec()).expect("text");
        let fields = fields.0.lock().expect("no panic").clone();
        (value, fields)
    }

    #[test]
    fn publishing_is_a_span_with_the_senders_as_its_parent() {
        let sent = format!("00-{TRACE}-{PARENT}-01");
        let (stored, fields) = published(&sent, true);
        assert_eq!(stored, sent, "a span that the sender's exporter knows");
        for (name, value) in [
            ("source", "\"t\""),
            ("partition", "0"),
            ("offset", "0"),
            ("trace_id", &format!("{TRACE:?}")),
            ("parent_id", &format!("{PARENT:?}")),
        ] {
            assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    /// Takes down every span with its fields, in the order in which they began.
    #[cfg(feature = "nats")]
    #[derive(Clone, Default)]
    struct Spans(Arc<Mutex<Vec<(&'static str, Fields)>>>);

    #[cfg(feature = "nats")]
    impl Spans {
        /// The fields of the only span with this name.
        fn only(&self, name: &str) -> BTreeMap<String, String> {
            let spans = self.0.lock().expect("no panic");
            let mut own = spans.iter().filter(|(own, _)| *own == name);
            let (first, more) = (own.next(), own.next());
            assert!(more.is_none(), "one span {name}");
            let (_, fields) = first.expect(name);
            fields.0.lock().expect("no panic").clone()
        }
    }

    #[cfg(feature = "nats")]
    impl Subscriber for Spans {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            Fields::default().enabled(metadata)
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut fields = Fields::default();
            span.record(&mut fields);
            let mut spans = self.0.lock().expect("no panic");
            spans.push((span.metadata().name(), fields));
            Id::from_u64(spans.len() as u64)
        }
        fn record(&self, id: &Id, values: &Record<'_>) {
            let spans = self.0.lock().expect("no panic");
            let (_, fields) = &spans[id.into_u64() as usize - 1];
            values.record(&mut fields.clone());
        }
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[cfg(feature = "nats")]
    #[test]
    fn what_a_producer_publishes_to_a_stream_is_handled_in_the_same_trace() {
        use std::time::Duration;

        use crate::source::JetStream;
        use crate::source::jetstream::{NewMessage, StreamSettings};
        use crate::store::Memory;
        use crate::{Config, HandlerError, StaticPartitions, Worker};

        const PATIENCE: Duration = Duration::from_secs(120);
        let server = parti_servers::nats::Server::start();
        let url = format!("jetstream://{}/S", server.address());
        // All on this thread, which is the only one that the subscriber hears of.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let spans = Spans::default();
        let _kept = hears(spans.clone());
        runtime.block_on(async {
            let stream = JetStream::create(&url, &StreamSettings::partitions(1)).await;
            let stream = stream.expect("made");
            let producer = stream.producer().expect("made for it");
            let sent = NewMessage {
                headers: vec![("Traceparent".into(), format!("00-{TRACE}-{PARENT}-01"))],
                payload: "x".into(),
                ..NewMessage::default()
            };
            producer.publish(vec![sent]).await.expect("stored");
            let config = Config::from_yaml("{settle_time: 300ms, processing: {start: earliest}}");
            let (tell, mut handled) = tokio::sync::mpsc::unbounded_channel();
            let worker = Worker::builder("g", Memory::new(), stream, StaticPartitions::numbered(1))
                .config(config.expect("valid"))
                .start(move |_: Message| {
                    let tell = tell.clone();
                    async move { tell.send(()).map_err(HandlerError::from) }
                })
                .await
                .expect("starts");
            let came = tokio::time::timeout(PATIENCE, handled.recv()).await;
            came.expect("in time").expect("a message");
            worker.stop().await.expect("stops");
        });
        let (publish, handle) = (spans.only("publish"), spans.only("handle"));
        assert_eq!(publish["source"], "\"S\"");
        for span in [&publish, &handle] {
            assert_eq!(span["trace_id"], format!("{TRACE:?}"));
            assert_eq!(span["parent_id"], format!("{PARENT:?}"));
        }
        for place in ["partition", "offset"] {
            assert_eq!(handle[place], publish[place], "{place}");
        }
    }

    #[test]
    fn what_belongs_to_no_trace_or_nobody_wants_has_no_span() {
        let sent = format!("00-{TRACE}-{PARENT}-01");
        for (header, subscriber) in [(sent.as_str(), false), ("none", true)] {
            let (stored, fields) = published(header, subscriber);
            assert_eq!((stored.as_str(), fields.len()), (header, 0));
        }
    }

    #[test]
    fn without_a_trace_a_span_has_none() {
        let fields = Fields::default();
        let kept = hears(fields.clone());
        drop((message(&[]).span(), kept));
        let fields = fields.0.lock().expect("no panic");
        assert_eq!(fields.get("partition").map(String::as_str), Some("p7"));
        assert_eq!(fields.get("trace_id"), None);
    }

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    #[test]
    fn a_valid_header_is_read() {
        for (flags, sampled) in [("00", false), ("01", true), ("03", true)] {
            let text = format!("00-{TRACE}-{PARENT}-{flags}");
            let expected = TraceParent {
                trace_id: TRACE,
                parent_id: PARENT,
                sampled,
            };
            assert_eq!(TraceParent::parse(&text), Some(expected));
        }
        let later = format!("cc-{TRACE}-{PARENT}-01-what-comes-later");
        assert!(TraceParent::parse(&later).is_some());
    }

    #[test]
    fn anything_else_is_ignored() {
        for text in [
            String::new(),
            "00".into(),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("00-{}-{PARENT}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{}-{PARENT}-01", &TRACE[1..]),
            format!("00-{TRACE}-{PARENT}-0g"),
            format!("00-{TRACE}-{PARENT}"),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}

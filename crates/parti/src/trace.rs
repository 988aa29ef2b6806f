//! W3C trace context: what a message's headers say of the trace that it belongs to.
//!
//! ```text
//!   whoever sends ── traceparent: its span ──▶ publish ── traceparent: this span ──▶ handle
//! ```
//!
//! Headers are carried from the producer to the handler as they are (and into a dead letter), so
//! `traceparent` and `tracestate` come along by themselves. A handler call runs in a span `handle`
//! (target `parti::handle`, level info) with the message's place and its trace id. A message that
//! belongs to a trace is published in a span `publish` (target `parti::publish`, level info), which
//! then stands in its header: that is the parent of whoever handles it. With no subscriber that
//! wants them, nothing is looked at, and nothing is changed.

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

    /// Begins the span of the message at this place of the batch, if this header of it says that it
    /// belongs to a trace. Answers what the header is to say from here on.
    pub(crate) fn begin(
        &mut self,
        place: usize,
        (name, value): (&str, &[u8]),
        to: &str,
    ) -> Option<String> {
        if !name.eq_ignore_ascii_case(TRACE_PARENT) {
            return None;
        }
        let parent = TraceParent::parse(std::str::from_utf8(value).ok()?)?;
        // Without randomness there is no name for a span: the message keeps its sender's.
        let id = getrandom::u64().ok().filter(|id| *id != 0)?;
        let span_id = format!("{id:016x}");
        let own = format!(
            "00-{}-{span_id}-{:02x}",
            parent.trace_id,
            u8::from(parent.sampled)
        );
        let span = tracing::info_span!(
            target: "parti::publish",
            "publish",
            source = to,
            partition = field::Empty,
            offset = field::Empty,
            trace_id = parent.trace_id,
            parent_id = parent.parent_id,
            span_id,
        );
        self.0.push((place, span));
        Some(own)
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
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use parti_core::ids::{Epoch, Offset, PartitionId, WorkerId};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::with_default;
    use tracing::{Event, Metadata, Subscriber};

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
        with_default(fields.clone(), || message.span());
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
        let _kept = subscriber.then(|| tracing::subscriber::set_default(fields.clone()));
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
    fn publishing_is_a_span_between_who_sends_and_who_handles() {
        let sent = format!("00-{TRACE}-{PARENT}-01");
        let (stored, fields) = published(&sent, true);
        let own = TraceParent::parse(&stored).expect("a trace goes on");
        assert_eq!((own.trace_id, own.sampled), (TRACE, true));
        assert_ne!(own.parent_id, PARENT);
        for (name, value) in [
            ("source", "\"t\""),
            ("partition", "0"),
            ("offset", "0"),
            ("trace_id", &format!("{TRACE:?}")),
            ("parent_id", &format!("{PARENT:?}")),
            ("span_id", &format!("{:?}", own.parent_id)),
        ] {
            assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn what_belongs_to_no_trace_or_nobody_wants_is_published_as_it_is() {
        let sent = format!("00-{TRACE}-{PARENT}-01");
        assert_eq!(published(&sent, false).0, sent);
        let (stored, fields) = published("none", true);
        assert_eq!((stored.as_str(), fields.len()), ("none", 0));
    }

    #[test]
    fn without_a_trace_a_span_has_none() {
        let fields = Fields::default();
        with_default(fields.clone(), || message(&[]).span());
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

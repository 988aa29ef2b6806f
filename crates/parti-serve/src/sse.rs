//! Server-sent events: a stream of frames, with a beat in between, and an end that says why.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// One event.
pub fn frame(event: &str, data: &impl Serialize) -> Bytes {
    // Neither a name nor JSON has a line break in it. What cannot be JSON is none of our types.
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    Bytes::from(format!("event: {event}\ndata: {data}\n\n"))
}

/// The last event.
pub fn end(why: &str) -> Bytes {
    frame("end", &serde_json::json!({ "why": why }))
}

/// What only people read: programs pass over it. It must be one line.
pub fn comment(text: &str) -> Bytes {
    Bytes::from(format!(": {text}\n\n"))
}

/// Where frames come from.
pub trait Frames: Send + 'static {
    /// The next one; `Err` is the last.
    fn next(&mut self) -> impl Future<Output = Result<Bytes, Bytes>> + Send;
}

/// How a stream goes on while nothing happens.
pub struct Manner {
    /// A comment comes at least this often.
    pub beat: Duration,
    /// Ends the stream.
    pub stop: CancellationToken,
    /// Held as long as the stream is.
    pub _slot: OwnedSemaphorePermit,
}

struct Streaming<F> {
    frames: F,
    manner: Manner,
    ended: bool,
}

/// Answers with a stream of events. Nothing is made before the reader takes it.
pub fn respond(frames: impl Frames, manner: Manner) -> Response {
    let streaming = Streaming {
        frames,
        manner,
        ended: false,
    };
    let body = stream::unfold(streaming, |mut this| async move {
        if this.ended {
            return None;
        }
        let next = tokio::select! {
            biased;
            () = this.manner.stop.cancelled() => Err(end("the service stops")),
            next = tokio::time::timeout(this.manner.beat, this.frames.next()) => match next {
                Ok(next) => next,
                Err(_) => Ok(comment("beat")),
            },
        };
        this.ended = next.is_err();
        let bytes = next.unwrap_or_else(|last| last);
        Some((Ok::<_, Infallible>(bytes), this))
    });
    let mut response = Response::new(Body::from_stream(body));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    let no_buffer = HeaderValue::from_static("no");
    response
        .headers_mut()
        .insert("x-accel-buffering", no_buffer);
    response
}

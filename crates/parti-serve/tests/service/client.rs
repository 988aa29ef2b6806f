//! A small HTTP client: says exactly what a test wants said.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What does not come within this time never will. A guard: nothing is measured against it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// The body, which is JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of an error.
    #[track_caller]
    pub fn code(&self) -> String {
        let body = self.json();
        assert!(
            body["error"]["remedy"]
                .as_str()
                .is_some_and(|remedy| !remedy.is_empty())
        );
        body["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The JSON of an answer with this status.
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }
}

/// A request with these headers, besides Host.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        text.push_str(&format!("host: {address}\r\n"));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(body) = body {
        text.push_str("content-type: application/json\r\n");
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("connection: close\r\n\r\n");
    text.push_str(body.unwrap_or_default());
    text
}

/// Sends these bytes, and reads all there is to read.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> Reply {
    let talking = async {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        // Whoever is refused early may find the connection closed while it still sends.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        parse(&answer)
    };
    tokio::time::timeout(PATIENCE, talking)
        .await
        .expect("an answer in time")
}

/// A request, and its answer.
pub async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Reply {
    raw(
        address,
        request(address, method, path, headers, body).as_bytes(),
    )
    .await
}

fn parse(answer: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let mut decoder = Chunks::default();
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        decoder.feed(body.as_bytes());
        String::from_utf8_lossy(&decoder.decoded).into_owned()
    } else {
        body.to_owned()
    };
    Reply {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        body,
    }
}

/// Takes a chunked body apart, as it comes.
#[derive(Default)]
struct Chunks {
    raw: Vec<u8>,
    decoded: Vec<u8>,
}

impl Chunks {
    fn feed(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        while let Some(line) = self.raw.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..line]).unwrap_or_default();
            let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
            let (from, to) = (line + 2, line + 2 + size);
            if self.raw.len() < to + 2 {
                return;
            }
            self.decoded.extend_from_slice(&self.raw[from..to]);
            self.raw.drain(..to + 2);
        }
    }
}

/// A stream of server-sent events.
pub struct Events {
    stream: TcpStream,
    chunks: Chunks,
    pub head: String,
}

impl Events {
    /// Opens it.
    pub async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let text = request(address, "GET", path, headers, None);
        stream.write_all(text.as_bytes()).await.expect("sent");
        let mut read = Vec::new();
        let end = loop {
            let found = read.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = found {
                break end + 4;
            }
            let some = stream.read_buf(&mut read).await.expect("a head");
            assert!(some > 0, "{}", String::from_utf8_lossy(&read));
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let mut chunks = Chunks::default();
        if head.starts_with("HTTP/1.1 200") {
            chunks.feed(&read[end..]);
        }
        Self {
            stream,
            chunks,
            head,
        }
    }

    /// The next event with its data; none once the stream has ended.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let decoded = &mut self.chunks.decoded;
            if let Some(end) = decoded.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = decoded.drain(..end + 2).collect();
                let frame = String::from_utf8(frame).expect("text");
                let field = |name: &str| {
                    let mut lines = frame.lines();
                    lines.find_map(|line| line.strip_prefix(name).map(str::to_owned))
                };
                let Some(event) = field("event: ") else {
                    continue;
                };
                let data = field("data: ").expect("data");
                return Some((event, serde_json::from_str(&data).expect("JSON")));
            }
            let mut more = vec![0; 64 * 1024];
            let reading = self.stream.read(&mut more);
            let read = tokio::time::timeout(PATIENCE, reading)
                .await
                .expect("an event in time");
            match read {
                Ok(read) if read > 0 => self.chunks.feed(&more[..read]),
                _ => return None,
            }
        }
    }
}

//! As little of a client as can be, for each protocol: enough to write and to read back.

#![allow(dead_code, reason = "every test file uses a part")]

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use parti_servers::http;

/// Nothing here should take so long; without it a broken server would hang the test.
const PATIENCE: Duration = Duration::from_secs(180);

/// A lost request is never answered.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(2);

pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A session with a nats-server.
pub struct Nats {
    stream: BufReader<TcpStream>,
}

impl Nats {
    pub fn open(address: &str) -> Self {
        Self::open_with(address, "{}").unwrap()
    }

    /// With the options of a CONNECT; an error is what the server said.
    pub fn open_with(address: &str, options: &str) -> Result<Self, String> {
        let mut nats = Self {
            stream: BufReader::new(connect(address)),
        };
        assert!(nats.line().starts_with("INFO "));
        // Without "verbose":false, it would say +OK to everything.
        let options = options
            .replacen('{', "{\"verbose\":false,", 1)
            .replace(",}", "}");
        nats.send(&format!("CONNECT {options}\r\nPING\r\n"));
        match nats.line() {
            pong if pong.trim() == "PONG" => Ok(nats),
            error => Err(error),
        }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub fn line(&mut self) -> String {
        self.try_line().unwrap()
    }

    fn try_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line)
    }

    /// Sends a request without waiting for its reply.
    pub fn ask(&mut self, subject: &str, payload: &str) {
        self.send(&format!(
            "SUB inbox 1\r\nPUB {subject} inbox {}\r\n{payload}\r\n",
            payload.len()
        ));
    }

    /// The reply to what was asked.
    pub fn reply(&mut self) -> String {
        self.try_reply().unwrap()
    }

    fn try_reply(&mut self) -> io::Result<String> {
        loop {
            let line = self.try_line()?;
            if line.starts_with("PING") {
                self.send("PONG\r\n");
            } else if line.starts_with("MSG inbox ") {
                let length: usize = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
                let mut payload = vec![0; length + 2];
                self.stream.read_exact(&mut payload)?;
                self.send("UNSUB 1\r\n");
                return Ok(String::from_utf8(payload).unwrap().trim().to_owned());
            } else {
                assert!(!line.is_empty(), "the server closed the connection");
                assert!(line.starts_with("INFO "), "{line}");
            }
        }
    }

    pub fn request(&mut self, subject: &str, payload: &str) -> String {
        self.ask(subject, payload);
        self.reply()
    }

    /// Asks until somebody grants it, as every client of a cluster must: a request that meets a
    /// change of leader is lost, or refused for the moment. What it asks for may be done twice.
    pub fn insist(address: &str, subject: &str, payload: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut refused = None;
        while Instant::now() < deadline {
            let mut nats = Self::open(address);
            nats.stream
                .get_ref()
                .set_read_timeout(Some(ASK_AGAIN_AFTER))
                .unwrap();
            nats.ask(subject, payload);
            match nats.try_reply() {
                Ok(reply) if !reply.contains("\"error\"") => return reply,
                Ok(reply) => refused = Some(reply),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("nobody grants {subject}; the last answer: {refused:?}");
    }

    pub fn create_stream(&mut self) -> String {
        self.request("$JS.API.STREAM.CREATE.letters", &Self::stream(1))
    }

    /// What to create.
    pub fn stream(replicas: usize) -> String {
        format!(r#"{{"name":"letters","subjects":["letter.>"],"num_replicas":{replicas}}}"#)
    }

    pub fn letters(&mut self) -> u64 {
        Self::messages(&self.request("$JS.API.STREAM.INFO.letters", ""))
    }

    /// How many messages an answer to STREAM.INFO tells.
    pub fn messages(info: &str) -> u64 {
        number(info, "\"messages\":")
    }

    /// The sequence that an acknowledgement tells.
    pub fn sequence(acknowledged: &str) -> u64 {
        number(acknowledged, "\"seq\":")
    }
}

/// The number that comes after a mark.
fn number(text: &str, mark: &str) -> u64 {
    let (_, rest) = text.split_once(mark).expect(text);
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit());
    digits.into_iter().next().unwrap().parse().expect(text)
}

/// Puts a letter into an etcd; both are base64 already.
pub fn etcd_put(address: &str, key: &str, value: &str) -> Option<String> {
    let json = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
    http::post(address, "/v3/kv/put", &json)
}

pub fn etcd_get(address: &str, key: &str) -> Option<String> {
    http::post(address, "/v3/kv/range", &format!(r#"{{"key":"{key}"}}"#))
}

/// A session with a PostgreSQL that asks for no password.
pub struct Postgres {
    stream: TcpStream,
}

impl Postgres {
    pub fn open(address: &str, user: &str) -> Result<Self, String> {
        let mut postgres = Self {
            stream: connect(address),
        };
        let body = format!("\0\u{3}\0\0user\0{user}\0database\0parti\0\0");
        postgres.send(b"", body.as_bytes());
        postgres.answer().map(|_| postgres)
    }

    /// What a statement answers: every text in it, one after the other.
    pub fn query(&mut self, statement: &str) -> Result<String, String> {
        self.ask(statement);
        self.answer()
    }

    pub fn ask(&mut self, statement: &str) {
        self.send(b"Q", format!("{statement}\0").as_bytes());
    }

    fn send(&mut self, kind: &[u8], body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.stream
            .write_all(&[kind, &length, body].concat())
            .unwrap();
    }

    /// Reads until the server is ready for more; an error is its text.
    pub fn answer(&mut self) -> Result<String, String> {
        let (mut rows, mut error) = (String::new(), None);
        loop {
            let mut head = [0; 5];
            if let Err(closed) = self.stream.read_exact(&mut head) {
                return Err(error.unwrap_or_else(|| closed.to_string()));
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; usize::try_from(length).unwrap() - 4];
            self.stream.read_exact(&mut body).unwrap();
            let text = String::from_utf8_lossy(&body).replace('\0', " ");
            match head[0] {
                // Of a row with one column, which is all we ask for.
                b'D' => rows.push_str(&String::from_utf8_lossy(&body[6..])),
                b'E' => error = Some(text),
                b'R' if body != [0; 4] => return Err("asks for a password".to_owned()),
                b'Z' => return error.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }
}

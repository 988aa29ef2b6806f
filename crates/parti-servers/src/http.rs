//! Just enough HTTP to ask a server on loopback how it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Long enough for a loaded machine; a server that is paused must not hold us for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// The body of a GET, when the status is 200.
pub fn get(address: &str, path: &str) -> Option<String> {
    ask(address, "GET", path, "")
}

/// The body of what is answered to a POST of JSON, when the status is 200.
pub fn post(address: &str, path: &str, json: &str) -> Option<String> {
    ask(address, "POST", path, json)
}

fn ask(address: &str, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = connect(address)?;
    // HTTP/1.0: the body ends with the connection and never comes in chunks.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    (status == "200").then(|| body.to_owned())
}

/// A connection that does not wait for ever.
pub(crate) fn connect(address: &str) -> Option<TcpStream> {
    let address: SocketAddr = address.parse().ok()?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

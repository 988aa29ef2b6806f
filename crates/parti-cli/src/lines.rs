//! What goes to stdout: text, and lines of JSON that come out in the order of what they tell.

use std::io::{self, BufWriter, Write};
use std::sync::mpsc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::exit::Failure;

/// Prints to stdout, with colours if that is a terminal that wants them; whoever closed the other
/// end has seen enough.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Now, as RFC 3339 with milliseconds.
pub fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

/// How long the end of the program waits for a reader that does not read.
const LAST_CHANCE: Duration = Duration::from_secs(5);

/// Writes lines in the order they are given, in a thread of its own. Every line is flushed as soon
/// as no other follows at once; who needs to know that it was written waits for it.
pub struct Lines {
    sender: LineSender,
}

/// A way to [`Lines`] that can be shared.
#[derive(Clone)]
pub struct LineSender(mpsc::Sender<Entry>);

enum Entry {
    Line(Vec<u8>, Option<oneshot::Sender<()>>),
    End(mpsc::Sender<()>),
}

impl Lines {
    /// Starts the thread; its error, if stdout cannot be written any more, goes to `failed`.
    pub fn start(failed: watch::Sender<Option<String>>) -> Result<Self, Failure> {
        let (lines, queue) = mpsc::channel();
        let unread = failed.clone();
        std::thread::Builder::new()
            .name("reader".into())
            .spawn(move || {
                if reader_went_away() {
                    unread.send_replace(Some("nobody reads stdout any more".into()));
                }
            })?;
        std::thread::Builder::new()
            .name("stdout".into())
            .spawn(move || {
                if let Err(error) = write_all(&queue) {
                    failed.send_replace(Some(format!("stdout cannot be written: {error}")));
                }
            })?;
        Ok(Self {
            sender: LineSender(lines),
        })
    }

    /// A further way to it.
    pub fn sender(&self) -> LineSender {
        self.sender.clone()
    }

    /// Waits until everything given so far is written, but not for ever.
    pub fn finish(self) {
        let (done, finished) = mpsc::channel();
        if self.sender.0.send(Entry::End(done)).is_ok() {
            let _ = finished.recv_timeout(LAST_CHANCE);
        }
    }
}

impl LineSender {
    /// Writes a JSON object, with the time, without waiting.
    pub fn event(&self, event: Value) {
        // If stdout is gone, the thread has said so.
        let _ = self.0.send(Entry::Line(timed(event).into_bytes(), None));
    }

    /// Writes a line, and waits until it is out of this process.
    pub async fn written(&self, line: Vec<u8>) -> Result<(), &'static str> {
        const GONE: &str = "stdout cannot be written";
        let (done, written) = oneshot::channel();
        let sent = self.0.send(Entry::Line(line, Some(done)));
        sent.map_err(|_| GONE)?;
        written.await.map_err(|_| GONE)
    }
}

/// An event as a line, with the time.
pub fn timed(mut event: Value) -> String {
    event["at"] = Value::String(now());
    event.to_string()
}

fn write_all(queue: &mpsc::Receiver<Entry>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout());
    while let Ok(first) = queue.recv() {
        let mut next = Some(first);
        let mut waiting = Vec::new();
        while let Some(entry) = next {
            match entry {
                Entry::Line(line, done) => {
                    out.write_all(&line)?;
                    out.write_all(b"\n")?;
                    waiting.extend(done);
                }
                Entry::End(done) => {
                    out.flush()?;
                    let _ = done.send(());
                    return Ok(());
                }
            }
            next = queue.try_recv().ok();
        }
        out.flush()?;
        for done in waiting {
            let _ = done.send(());
        }
    }
    Ok(())
}

/// Waits until the other end of stdout is closed, so that nobody has to write a line first to find
/// out. A file or a terminal has no other end.
fn reader_went_away() -> bool {
    let stdout = io::stdout();
    loop {
        let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut ends, None) {
            Ok(_) => {
                return ends[0]
                    .revents()
                    .intersects(PollFlags::ERR | PollFlags::HUP);
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        let now = now();
        assert!(
            now.ends_with('Z') && now.len() == "2026-11-15T12:00:00.000Z".len(),
            "{now}"
        );
    }
}

//! A TCP proxy that does to a connection what networks do.
//!
//! ```text
//!   client ──▶ reader ──chunks──▶ writer ──▶ server        and the same back
//!                                  │ gate: waits while stalled, ends when cut
//!                                  └ delay: each chunk leaves so much after it came
//! ```
//!
//! Loopback only. A connection is four threads: this is for tests.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Error;
use crate::error::loud;
use crate::ports::Port;

/// How many chunks a direction holds back before it stops reading, as a network's buffers would.
const CHUNKS: usize = 64;
const CHUNK: usize = 64 * 1024;

/// A proxy in front of one server.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    flow: Flow,
    delay: Duration,
    /// Connections of an earlier era are closed.
    era: u64,
    /// Both ends of every connection of this era, to close them by.
    ends: Vec<TcpStream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Open,
    /// What comes back from the server is held; what goes to it passes.
    RepliesStalled,
    Stalled,
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Proxy {
    /// Starts a proxy in front of this server, as in `127.0.0.1:4222`. Panics when it cannot.
    #[track_caller]
    pub fn start(target: impl Into<String>) -> Self {
        loud(Self::try_start(target))
    }

    /// Starts a proxy in front of this server.
    pub fn try_start(target: impl Into<String>) -> Result<Self, Error> {
        let target = target.into();
        let target = target
            .parse::<SocketAddr>()
            .ok()
            .filter(|target| target.ip().is_loopback())
            .ok_or_else(|| Error::new(format!("{target} is not a loopback host and port")))?;
        let mut proxy = Self {
            port: Port::lease()?,
            shared: Arc::new(Shared {
                target,
                state: Mutex::new(State {
                    flow: Flow::Cut,
                    delay: Duration::ZERO,
                    era: 0,
                    ends: Vec::new(),
                }),
                changed: Condvar::new(),
            }),
            acceptor: None,
        };
        proxy.listen()?;
        proxy.shared.set(Flow::Open);
        Ok(proxy)
    }

    /// Where clients connect to, as in `127.0.0.1:4223`.
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// Closes every connection and refuses new ones, as when a host is down.
    pub fn cut(&mut self) {
        self.shared.set(Flow::Cut);
        self.shared.close_all();
        if let Some(acceptor) = self.acceptor.take() {
            // It waits for a connection, so it gets one.
            let _ = TcpStream::connect(self.address());
            let _ = acceptor.join();
        }
    }

    /// Closes every connection, and goes on with new ones.
    pub fn disconnect(&self) {
        self.shared.close_all();
    }

    /// Accepts connections and forwards nothing, as when a network swallows packets. What was
    /// held arrives after [`heal`](Self::heal). After a cut, this listens again.
    #[track_caller]
    pub fn stall(&mut self) {
        self.open_as(Flow::Stalled);
    }

    /// Forwards what clients send, and holds what the server replies: writes happen, and nobody
    /// learns of it.
    #[track_caller]
    pub fn stall_replies(&mut self) {
        self.open_as(Flow::RepliesStalled);
    }

    /// Every chunk arrives this much later, in both directions; zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
        self.shared.changed.notify_all();
    }

    /// Ends cut, stall and delay.
    #[track_caller]
    pub fn heal(&mut self) {
        self.delay(Duration::ZERO);
        self.open_as(Flow::Open);
    }

    #[track_caller]
    fn open_as(&mut self, flow: Flow) {
        if self.acceptor.is_none() {
            loud(self.listen());
        }
        self.shared.set(flow);
    }

    fn listen(&mut self) -> Result<(), Error> {
        let listener = TcpListener::bind(self.address())
            .map_err(|error| Error::new(format!("cannot listen on {}: {error}", self.address())))?;
        // Before the first accept: an acceptor that finds itself cut ends.
        self.shared.set(Flow::Stalled);
        let shared = Arc::clone(&self.shared);
        self.acceptor = Some(std::thread::spawn(move || shared.accept(&listener)));
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked left nothing half done: every change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, flow: Flow) {
        self.lock().flow = flow;
        self.changed.notify_all();
    }

    fn close_all(&self) {
        let mut state = self.lock();
        state.era += 1;
        for end in state.ends.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.lock().flow == Flow::Cut {
                return;
            }
            match accepted {
                Ok((client, _)) => {
                    let shared = Arc::clone(self);
                    std::thread::spawn(move || shared.serve(client));
                }
                // Such as too many open files: it may pass.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Forwards one connection until it ends on either side.
    fn serve(self: Arc<Self>, client: TcpStream) {
        self.forward(&client);
        // Dropping is not enough: the copy by which it could be closed keeps it open.
        let _ = client.shutdown(Shutdown::Both);
    }

    fn forward(&self, client: &TcpStream) -> Option<()> {
        let era = self.register(client, None)?;
        // While stalled, the server must not even hear that somebody knocks.
        self.pass(Direction::ToServer, era, Instant::now())
            .then_some(())?;
        let server = &TcpStream::connect_timeout(&self.target, Duration::from_secs(5)).ok()?;
        self.register(server, Some(era))?;
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        std::thread::scope(|scope| {
            for (direction, from, to) in [
                (Direction::ToServer, client, server),
                (Direction::ToClient, server, client),
            ] {
                let (sender, chunks) = sync_channel(CHUNKS);
                scope.spawn(move || read(from, &sender));
                scope.spawn(move || {
                    if self.write(direction, era, to, &chunks).is_none() {
                        // Ends the reader, which may wait for more, and the other direction.
                        let _ = from.shutdown(Shutdown::Both);
                        let _ = to.shutdown(Shutdown::Both);
                    }
                });
            }
        });
        let _ = server.shutdown(Shutdown::Both);
        Some(())
    }

    /// Keeps an end, to close it by. None when its era is over.
    fn register(&self, end: &TcpStream, era: Option<u64>) -> Option<u64> {
        let copy = end.try_clone().ok()?;
        let mut state = self.lock();
        // Those that ended have no peer any more.
        state.ends.retain(|end| end.peer_addr().is_ok());
        if era.is_some_and(|era| era != state.era) {
            return None;
        }
        state.ends.push(copy);
        Some(state.era)
    }

    /// Waits until what came then may go on in this direction. False when the era is over.
    fn pass(&self, direction: Direction, era: u64, came: Instant) -> bool {
        let mut state = self.lock();
        loop {
            let held = match state.flow {
                Flow::Open => false,
                Flow::RepliesStalled => direction == Direction::ToClient,
                Flow::Stalled => true,
                Flow::Cut => return false,
            };
            if state.era != era {
                return false;
            }
            let left = (came + state.delay).saturating_duration_since(Instant::now());
            state = if held {
                self.changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner)
            } else if left.is_zero() {
                return true;
            } else {
                let waited = self.changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    fn write(
        &self,
        direction: Direction,
        era: u64,
        mut to: &TcpStream,
        chunks: &Receiver<(Instant, Vec<u8>)>,
    ) -> Option<()> {
        for (came, chunk) in chunks {
            self.pass(direction, era, came).then_some(())?;
            to.write_all(&chunk).ok()?;
        }
        // The end of a stream is part of it, and is held as its bytes are.
        self.pass(direction, era, Instant::now()).then_some(())?;
        to.shutdown(Shutdown::Write).ok()
    }
}

fn read(mut from: &TcpStream, sender: &SyncSender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if sender
            .send((Instant::now(), buffer[..count].to_vec()))
            .is_err()
        {
            return;
        }
    }
}

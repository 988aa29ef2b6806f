//! The one pull loop of a worker: asks the durable for messages, passes them on, acks them.
//!
//! ```text
//!   core ──Pull──▶ request, answered to <inbox>.<number> ──▶ server
//!        ◀──Delivered, PullEnded── one subscription to <inbox>.* ◀──┘
//!        ──Ack, Extend──▶ the delivery's own reply address
//! ```
//!
//! All pulls of one life of the durable share one subscription, so that deliveries keep their
//! order. A new life, a new connection and the end of a pull take another inbox: nothing that was
//! sent to an earlier one can be mistaken for the present. A pull has no name on the server; it ends
//! there when nobody listens to its inbox any more, and that has happened once the durable's info
//! shows no pull that waits.
//!
//! A delivery does not say which pull it answers (a status does): it counts for the oldest one, and
//! what a pull that ended left over is taken off the others. So the sum is always right.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use async_nats::connection::State;
use async_nats::{Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use parti_core::config::AckMode;
use parti_core::feed::by_sequence::BySequence;
use parti_core::io::{Ask, Retention, SourceEvent};
use parti_core::worker::Event;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep, sleep_until};

use super::api::Api;
use super::bare::{Bare, is_bare};
use super::consumer::Tell;
use super::delivery::{place, record};
use super::settings::Settings;
use super::subjects::Partitions;
use crate::driver::tasks::Tasks;
use crate::source::transport::{Wire, message};

/// How long the server keeps a pull open.
const EXPIRES: Duration = Duration::from_secs(5);
/// A pull that is not over so long after it should be was lost.
const GRACE: Duration = Duration::from_secs(2);
/// The most bytes that one pull brings at once; more is asked for when it came.
const PULL_BYTES: usize = 8 * 1024 * 1024;
/// A pull that failed at once is told to the core after this time, or the two would spin.
const AFTER_FAILURE: Duration = Duration::from_millis(200);
/// That the durable is gone, or not as it should be, is told this often.
const WRONG_EVERY: Duration = Duration::from_secs(1);
/// Messages that are passed on before anything else is looked at.
const BURST: usize = 512;
/// Where so many messages came together, more are on their way: the others get their turn so often
/// before what came is passed on. A busy server sends a few messages at a time, and to pass them on
/// wakes three tasks, which costs more than to handle them.
const DENSE: usize = 4;
const TURNS: usize = 32;
/// The header in which a pull that ended says how many messages it did not bring.
const LEFT_OVER: &str = "Nats-Pending-Messages";
/// The shortest of the two ways to say it.
const ACK: &[u8] = b"";
/// Reply addresses kept at the most, as a multiple of `max_ack_pending`. What is older was dropped
/// by its lane without an ack.
const REPLIES: usize = 8;

/// What the loop is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask for messages.
    Pull { ask: Ask, batch: u32 },
    /// End a pull.
    Stop { ask: Ask },
    /// These are done.
    Ack(Vec<u64>),
    /// These are still worked on.
    Extend(Vec<u64>),
    /// The durable's name and identity; none: there is none.
    Life(Option<(String, u64)>),
}

impl Tell for UnboundedSender<Command> {
    fn life(&self, life: Option<(String, u64)>) {
        // A loop that has ended pulls no more.
        let _ = self.send(Command::Life(life));
    }
}

struct Life {
    name: String,
    identity: u64,
}

struct Inbox {
    prefix: String,
    messages: Subscriber,
}

/// A pull that is open, as far as known.
struct Open {
    ask: Ask,
    /// What its statuses are addressed to.
    number: u64,
    left: u32,
    expires: Instant,
}

/// The loop.
pub(super) struct PullLoop {
    api: Api,
    partitions: Partitions,
    explicit: bool,
    retention: Retention,
    bare: Bare,
    events: UnboundedSender<Event>,
    /// What is to be passed on.
    news: Vec<Event>,
    tasks: Tasks,
    life: Option<Life>,
    inbox: Option<Inbox>,
    open: Vec<Open>,
    /// Ends of pulls that are told later.
    later: Vec<(Instant, Ask)>,
    replies: BySequence<Subject>,
    max_replies: usize,
    numbers: u64,
    /// How many deliveries came, and how many had come when the rest of a pull was last asked for.
    came: u64,
    came_before_rest: Option<u64>,
    connects: u64,
    /// When anything last came: a delivery, or what became of a pull.
    heard: Instant,
    /// The same by the wall clock, for whoever handles what came.
    burst_came: SystemTime,
    told_wrong: Option<Instant>,
    wire: Arc<WireNumbers>,
}

/// What the wire shows, for metrics: the loop writes, anybody reads.
#[derive(Debug, Default)]
pub(super) struct WireNumbers {
    redelivered: AtomicU64,
    pending: AtomicU64,
    healthy: AtomicBool,
}

impl WireNumbers {
    /// As they are now.
    pub fn read(&self) -> Wire {
        Wire {
            redelivered: self.redelivered.load(Relaxed),
            pending: self.pending.load(Relaxed),
            healthy: self.healthy.load(Relaxed),
        }
    }

    fn is_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Relaxed);
    }
}

/// A loop that ended pulls no more, however it ended.
impl Drop for PullLoop {
    fn drop(&mut self) {
        self.wire.is_healthy(false);
    }
}

impl PullLoop {
    /// Nothing to pull from yet.
    pub fn new(
        api: Api,
        partitions: Partitions,
        settings: &Settings,
        events: UnboundedSender<Event>,
        tasks: Tasks,
        wire: Arc<WireNumbers>,
    ) -> Self {
        wire.is_healthy(true);
        let connects = api.link.health.borrow().connects;
        let config = &settings.jetstream;
        Self {
            connects,
            api,
            partitions,
            explicit: config.ack == AckMode::Explicit,
            retention: settings.retention,
            bare: Bare::default(),
            events,
            news: Vec::with_capacity(BURST),
            tasks,
            life: None,
            inbox: None,
            open: Vec::new(),
            later: Vec::new(),
            replies: BySequence::default(),
            max_replies: (config.max_ack_pending as usize).saturating_mul(REPLIES),
            numbers: 0,
            came: 0,
            came_before_rest: None,
            heard: Instant::now(),
            burst_came: SystemTime::now(),
            told_wrong: None,
            wire,
        }
    }

    /// Runs until nobody is left who could tell it anything.
    pub async fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        let api = self.api.clone();
        let mut health = api.link.health.clone();
        let mut replaced = pin!(api.replaced());
        let mut timer = pin!(sleep_until(Instant::now()));
        loop {
            let wake = self.wake();
            if let Some(wake) = wake.filter(|wake| *wake != timer.deadline()) {
                timer.as_mut().reset(wake);
            }
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.command(command).await,
                    None => return,
                },
                came = next(&mut self.inbox) => self.came(came).await,
                changed = health.changed() => {
                    if changed.is_err() {
                        // The client is gone: nothing comes any more.
                        return;
                    }
                    let connects = health.borrow_and_update().connects;
                    if connects != self.connects {
                        self.connects = connects;
                        self.lost();
                    }
                }
                () = &mut timer, if wake.is_some() => self.tick(),
                () = &mut replaced => {
                    self.tell(SourceEvent::Replaced);
                    self.pass_on();
                    return;
                }
            }
            self.pass_on();
        }
    }

    fn tell(&mut self, event: SourceEvent) {
        self.news.push(Event::Source(event));
    }

    /// All at once, so that whoever gets it wakes up once.
    fn pass_on(&mut self) {
        for event in self.news.drain(..) {
            // Whoever asked may have gone meanwhile.
            let _ = self.events.send(event);
        }
    }

    fn is_connected(&self) -> bool {
        self.api.link.client.connection_state() == State::Connected
    }

    async fn command(&mut self, command: Command) {
        match command {
            Command::Pull { ask, batch } => self.pull(ask, batch).await,
            Command::Stop { ask } => self.stop(ask).await,
            Command::Ack(deliveries) => self.answer(&deliveries, ACK, true).await,
            Command::Extend(deliveries) => self.answer(&deliveries, b"+WPI", false).await,
            Command::Life(life) => {
                self.wire.pending.store(0, Relaxed);
                self.forget();
                if life.is_none() {
                    // Nothing is to be pulled, so nothing fails.
                    self.wire.is_healthy(true);
                }
                self.life = life.map(|(name, identity)| Life { name, identity });
            }
        }
    }

    /// Whatever comes to the present inbox is of the past. What was asked for is over: the core may
    /// count on it still, where the durable was to be deleted and nobody knows whether it was.
    fn forget(&mut self) {
        self.inbox = None;
        self.replies.clear();
        for pull in std::mem::take(&mut self.open) {
            self.tell(SourceEvent::PullEnded { ask: pull.ask });
        }
    }

    /// Deliveries may have been lost, and pulls are.
    fn lost(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.inbox = None;
        if !open.is_empty() {
            self.wire.is_healthy(false);
        }
        self.tell(SourceEvent::Reconnected);
        for pull in open {
            self.tell(SourceEvent::PullEnded { ask: pull.ask });
        }
    }

    async fn pull(&mut self, ask: Ask, batch: u32) {
        self.numbers += 1;
        let number = self.numbers;
        self.open.push(Open {
            ask,
            number,
            left: batch,
            expires: Instant::now() + EXPIRES,
        });
        if !self.request(number, batch, true).await {
            self.end_later(number);
        }
    }

    /// Sends a pull, or its rest. What cannot be sent without a connection ends when it is back.
    async fn request(&mut self, number: u64, batch: u32, bounded: bool) -> bool {
        if self.life.is_none() {
            return false;
        }
        if !self.is_connected() {
            return true;
        }
        let client = self.api.link.client.clone();
        if self.inbox.is_none() {
            let prefix = client.new_inbox();
            let Ok(messages) = client.subscribe(format!("{prefix}.*")).await else {
                return false;
            };
            self.inbox = Some(Inbox { prefix, messages });
        }
        let (Some(life), Some(inbox)) = (&self.life, &self.inbox) else {
            return false;
        };
        let mut request = json!({ "batch": batch, "expires": EXPIRES.as_nanos() as u64 });
        if bounded {
            // A single message must fit, however large the server lets it be.
            let bytes = PULL_BYTES.max(client.server_info().max_payload.saturating_mul(2));
            request["max_bytes"] = json!(bytes);
        }
        let subject = format!(
            "$JS.API.CONSUMER.MSG.NEXT.{}.{}",
            self.api.stream, life.name
        );
        let reply = format!("{}.{number}", inbox.prefix);
        let sent = client.publish_with_reply(subject, reply, Bytes::from(request.to_string()));
        sent.await.is_ok()
    }

    /// Ends all pulls: they share their inbox, and the core never ends only one of several.
    async fn stop(&mut self, ask: Ask) {
        if !self.open.iter().any(|open| open.ask == ask) {
            // Its end is on its way.
            return;
        }
        let ended: Vec<Open> = std::mem::take(&mut self.open);
        if let Some(mut inbox) = self.inbox.take() {
            let _ = inbox.messages.unsubscribe().await;
        }
        let at_the_latest = ended.iter().map(|open| open.expires + GRACE).max();
        let (api, events) = (self.api.clone(), self.events.clone());
        let name = self.life.as_ref().map(|life| life.name.clone());
        self.tasks.spawn(async move {
            if let (Some(name), Some(limit)) = (name, at_the_latest) {
                let _ = tokio::time::timeout_at(limit, none_waits(&api, &name)).await;
            }
            for pull in ended {
                let event = SourceEvent::PullEnded { ask: pull.ask };
                let _ = events.send(Event::Source(event));
            }
        });
    }

    /// Answers deliveries. May be lost: they come again then.
    async fn answer(&mut self, deliveries: &[u64], word: &'static [u8], last: bool) {
        if !self.is_connected() {
            return;
        }
        for delivery in deliveries {
            let reply = if last {
                self.replies.take(*delivery)
            } else {
                self.replies.get(*delivery).cloned()
            };
            if let Some(reply) = reply {
                let client = &self.api.link.client;
                let _ = client.publish(reply, Bytes::from_static(word)).await;
            }
        }
    }

    async fn came(&mut self, first: Option<Message>) {
        let Some(first) = first else {
            // The subscription ended by itself, which it does only when something is wrong.
            self.lost();
            return;
        };
        (self.heard, self.burst_came) = (Instant::now(), SystemTime::now());
        let mut answered = self.message(first).await;
        let mut turns = 0;
        loop {
            while self.news.len() < BURST
                && let Some(Some(message)) = next(&mut self.inbox).now_or_never()
            {
                answered = self.message(message).await;
            }
            if turns == TURNS || !(DENSE..BURST).contains(&self.news.len()) {
                break;
            }
            turns += 1;
            tokio::task::yield_now().await;
        }
        if answered {
            self.api.link.answered();
        }
    }

    /// Takes in what came. False: only that nobody is there who could answer.
    async fn message(&mut self, message: Message) -> bool {
        let answered = message.status.is_none_or(|status| status.as_u16() != 503);
        self.wire.is_healthy(answered);
        let Some(status) = message.status else {
            if is_bare(&message) && self.is_cut().await {
                self.withhold(message).await;
            } else {
                self.deliver(message);
            }
            return true;
        };
        if !answered {
            // Nobody has the durable; or this server cannot reach who has.
            self.api.link.not_answered(self.heard.into_std());
        }
        let number = message.subject.rsplit('.').next();
        let number = number.and_then(|number| number.parse().ok());
        let number = number.unwrap_or(0_u64);
        let why = message.description.as_deref().unwrap_or_default();
        let over = message.headers.as_ref().and_then(|h| h.get(LEFT_OVER));
        let over = over.and_then(|over| over.as_str().parse().ok());
        self.status(number, status, why, over).await;
        answered
    }

    /// Whether somebody has the durable deliver no payloads.
    async fn is_cut(&mut self) -> bool {
        match &self.life {
            Some(life) => self.bare.is_cut(&self.api, &life.name).await,
            None => false,
        }
    }

    /// Nobody handles a message without its payload. The core puts the durable right, and sees by the
    /// sequence what is missing.
    async fn withhold(&mut self, delivery: Message) {
        self.take_off(1);
        if self.explicit
            && self.retention == Retention::Limits
            && let Some(reply) = delivery.reply
        {
            // It is read past the durable: until it came again, it would fill the window.
            let client = &self.api.link.client;
            let _ = client.publish(reply, Bytes::from_static(ACK)).await;
        }
        self.tell_wrong();
    }

    fn deliver(&mut self, delivery: Message) {
        let Some(life) = &self.life else { return };
        let Message {
            subject,
            reply,
            payload,
            headers,
            ..
        } = delivery;
        let place = reply.as_deref().and_then(place);
        let Some(place) = place.filter(|place| place.consumer == life.name) else {
            tracing::warn!(%subject, "a message came that is no delivery");
            return;
        };
        if place.deliveries > 1 {
            self.wire.redelivered.fetch_add(1, Relaxed);
        }
        self.wire.pending.store(place.pending, Relaxed);
        let (sequence, pending, consumer) = (place.sequence, place.pending, life.identity);
        let (partition, subject) = self.partitions.of(&subject);
        let mut record = record(place.offset, subject, headers, payload, place.timestamp_ms);
        self.partitions.give_key(&mut record);
        let event = SourceEvent::Delivered {
            consumer,
            sequence,
            partition,
            message: message(record, self.burst_came),
            pending,
        };
        if let Some(reply) = reply.filter(|_| self.explicit) {
            self.replies.keep(sequence, reply);
            if self.replies.len() > self.max_replies {
                self.replies.take_first();
            }
        }
        self.told_wrong = None;
        self.came += 1;
        self.tell(event);
        self.take_off(1);
    }

    /// So many messages less are to come, from the oldest pulls first.
    fn take_off(&mut self, mut count: u32) {
        while count > 0
            && let Some(oldest) = self.open.first_mut()
        {
            let taken = oldest.left.min(count);
            (oldest.left, count) = (oldest.left - taken, count - taken);
            if oldest.left > 0 {
                return;
            }
            let open = self.open.remove(0);
            self.tell(SourceEvent::PullEnded { ask: open.ask });
        }
    }

    async fn status(&mut self, number: u64, status: StatusCode, why: &str, over: Option<u32>) {
        match (status.as_u16(), why) {
            // A sign of life.
            (100, _) => {}
            (409, "Message Size Exceeds MaxBytes") => {
                // The next part of it; if not even one message fits, then without a bound.
                let bounded = self.came_before_rest != Some(self.came);
                self.came_before_rest = Some(self.came);
                let rest = over.unwrap_or(1).max(1);
                if !self.request(number, rest, bounded).await {
                    self.end_later(number);
                }
            }
            (404 | 408, _) | (409, "Batch Completed" | "Leadership Change") => {
                self.end(number, over);
            }
            (409, "Consumer Deleted") | (503, _) => self.gone(number),
            (_, why) => {
                tracing::warn!(status = status.as_u16(), why, "a pull was refused");
                self.end_later(number);
            }
        }
    }

    /// The durable is not there, and nobody here deleted it: the core looks for itself.
    fn gone(&mut self, number: u64) {
        self.wire.is_healthy(false);
        self.end_later(number);
        self.tell_wrong();
    }

    /// The durable is not as it should be: the core looks for itself.
    fn tell_wrong(&mut self) {
        let now = Instant::now();
        if self.told_wrong.is_none_or(|told| now - told >= WRONG_EVERY) {
            self.told_wrong = Some(now);
            self.lost();
        }
    }

    /// A pull ended and left so many messages over.
    fn end(&mut self, number: u64, over: Option<u32>) {
        let Some(index) = self.open.iter().position(|open| open.number == number) else {
            // Its messages were counted for it; what is left of it was counted for a later one.
            return self.take_off(over.unwrap_or(0));
        };
        let ended = self.open.remove(index);
        self.tell(SourceEvent::PullEnded { ask: ended.ask });
        let over = over.unwrap_or(ended.left);
        if over >= ended.left {
            self.take_off(over - ended.left);
        } else if let Some(next) = self.open.first_mut() {
            next.left += ended.left - over;
        }
    }

    fn end_later(&mut self, number: u64) {
        if let Some(index) = self.open.iter().position(|open| open.number == number) {
            let open = self.open.remove(index);
            self.later.push((Instant::now() + AFTER_FAILURE, open.ask));
        }
    }

    fn wake(&self) -> Option<Instant> {
        let lost = self.open.iter().map(|open| open.expires + GRACE);
        let later = self.later.iter().map(|(at, _)| *at);
        lost.chain(later).min()
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.later)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.later = later;
        let lost = self.open.extract_if(.., |open| open.expires + GRACE <= now);
        let lost: Vec<Open> = lost.collect();
        if !lost.is_empty() {
            self.wire.is_healthy(false);
        }
        if let Some(oldest) = lost.iter().map(|open| open.expires - EXPIRES).min()
            && self.heard < oldest
            && self.is_connected()
        {
            // Not even their end came: the server may be cut off from the others.
            self.api.link.not_answered(oldest.into_std());
        }
        let lost = lost.into_iter().map(|open| open.ask);
        let due: Vec<(Instant, Ask)> = due;
        for ask in due.into_iter().map(|(_, ask)| ask).chain(lost) {
            self.tell(SourceEvent::PullEnded { ask });
        }
    }
}

/// The next message of the inbox; never, while there is none.
async fn next(inbox: &mut Option<Inbox>) -> Option<Message> {
    match inbox {
        Some(inbox) => inbox.messages.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until the durable has no pull that waits. A pull can be on its way inside the server while
/// the info is made: so it is asked twice.
async fn none_waits(api: &Api, name: &str) {
    let mut proofs = 0;
    while proofs < 2 {
        match api.consumer_info(name).await {
            Ok(Some(info)) if info.num_waiting > 0 => proofs = 0,
            Ok(_) => proofs += 1,
            Err(_) => {}
        }
        if proofs < 2 {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

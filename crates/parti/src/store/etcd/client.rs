//! Requests to a cluster: which member is asked, with which token, and who is asked next.
//!
//! ```text
//!            ┌── not done: next member ◀───────────────┐
//!   call ────▶ link ──▶ token ──▶ request ─┬▶ answer    │
//!                                          ├▶ NotDone ──┤
//!                                          ├▶ Login ────┼─ once, with a new token
//!                                          └▶ Open ─────┴─ if it only reads; a write ends here
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{once, pending};
use prost::Message;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::fault::{Fault, broke};
use super::link::{Connection, Link};
use super::proto::{
    AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, WATCH, WatchCreateRequest,
    WatchRequest, WatchResponse,
};
use crate::store::Secret;

// etcd itself gives up a write after 7 seconds with its defaults, and says so: wait for that.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
// With several members, a read does not spend all its time on one.
const READ_ATTEMPT: Duration = Duration::from_secs(4);

/// Whether a request may be sent again when nobody knows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Who we are.
#[derive(Debug)]
pub(super) struct Login {
    pub name: String,
    pub password: Secret,
}

/// A cluster.
pub(super) struct Client {
    links: Vec<Link>,
    // The member that is asked: the same one until it fails.
    preferred: AtomicUsize,
    login: Option<Login>,
    session: Mutex<Session>,
}

struct Session {
    token: Token,
    // How many tokens there were: who was refused with an older one need not ask for another.
    count: u64,
}

enum Token {
    None,
    /// The server has its authentication switched off.
    NotNeeded,
    Is(MetadataValue<Ascii>),
}

/// An open watch.
pub(super) struct Live {
    pub stream: Streaming<WatchResponse>,
    /// The answer that says that it is open.
    pub first: WatchResponse,
    place: usize,
    connection: Connection,
}

/// What a request carries as its token, and which one that is.
type Carried = (Option<MetadataValue<Ascii>>, u64);

impl Client {
    /// Of these members; starts with any of them, so that many clients spread.
    pub fn new(links: Vec<Link>, login: Option<Login>) -> Self {
        let first = usize::try_from(random()).unwrap_or(0) % links.len().max(1);
        Self {
            links,
            preferred: AtomicUsize::new(first),
            login,
            session: Mutex::new(Session {
                token: Token::None,
                count: 0,
            }),
        }
    }

    /// Sends a request and waits for its answer, for a bounded time.
    pub async fn call<Q, A>(&self, path: &'static str, request: &Q, kind: Kind) -> Result<A, Fault>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + ANSWER_WITHIN;
        let mut attempts = self.links.len().max(2);
        let mut renewed = false;
        loop {
            let place = self.preferred.load(Ordering::Relaxed);
            let until = match kind {
                Kind::Read if self.links.len() > 1 => deadline.min(Instant::now() + READ_ATTEMPT),
                _ => deadline,
            };
            let fault = match self.attempt(place, path, request.clone(), until).await {
                Ok(answer) => return Ok(answer),
                Err((Fault::Login(why), count)) => {
                    if renewed || self.login.is_none() {
                        return Err(self.not_let_in(&why));
                    }
                    self.forget_token(count).await;
                    renewed = true;
                    continue;
                }
                Err((fault, _)) => fault,
            };
            let again = match &fault {
                Fault::NotDone(_) => true,
                Fault::Open(_) => kind == Kind::Read,
                _ => false,
            };
            if matches!(fault, Fault::NotDone(_) | Fault::Open(_)) {
                self.leave(place);
            }
            attempts -= 1;
            if !again || attempts == 0 || Instant::now() >= deadline {
                return Err(fault);
            }
        }
    }

    /// Opens a watch.
    pub async fn watch(&self, create: WatchCreateRequest) -> Result<Live, Fault> {
        let mut renewed = false;
        loop {
            let place = self.preferred.load(Ordering::Relaxed);
            let mut count = 0;
            let opened = self.open_watch(place, create.clone(), &mut count);
            let opened = timeout(ANSWER_WITHIN, opened)
                .await
                .unwrap_or_else(|_| Err(no_answer(self.links[place].place())));
            match opened {
                Err(Fault::Login(why)) if renewed || self.login.is_none() => {
                    return Err(self.not_let_in(&why));
                }
                Err(Fault::Login(_)) => {
                    self.forget_token(count).await;
                    renewed = true;
                }
                Err(fault @ (Fault::NotDone(_) | Fault::Open(_))) => {
                    self.leave(place);
                    return Err(fault);
                }
                done => return done,
            }
        }
    }

    /// Says that a watch broke.
    pub async fn broke(&self, live: &Live) {
        self.leave(live.place);
        self.links[live.place].forget(&live.connection).await;
    }

    async fn open_watch(
        &self,
        place: usize,
        create: WatchCreateRequest,
        count: &mut u64,
    ) -> Result<Live, Fault> {
        let connection = self.links[place].connection().await?;
        let (token, of) = self.token(&connection.channel).await?;
        *count = of;
        let create = WatchRequest {
            create: Some(create),
        };
        // The stream stays open on our side: ending it would end the watch.
        let requests = once(async { create }).chain(pending());
        let mut grpc = ready(connection.channel.clone()).await?;
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = PathAndQuery::from_static(WATCH);
        let mut stream = grpc
            .streaming(decorated(Request::new(requests), token), path, codec)
            .await
            .map_err(|status| Fault::of(&status))?
            .into_inner();
        match stream.message().await {
            Ok(Some(first)) if first.canceled && first.compact_revision > 0 => {
                Err(Fault::Compacted)
            }
            Ok(Some(first)) if first.canceled => Err(Fault::said(&first.cancel_reason)),
            Ok(Some(first)) => Ok(Live {
                stream,
                first,
                place,
                connection,
            }),
            Ok(None) => Err(Fault::NotDone("etcd ended the watch at once".into())),
            Err(status) => Err(Fault::of(&status)),
        }
    }

    async fn attempt<Q, A>(
        &self,
        place: usize,
        path: &'static str,
        request: Q,
        deadline: Instant,
    ) -> Result<A, (Fault, u64)>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let link = &self.links[place];
        let prepared = async {
            let connection = link.connection().await?;
            let token = self.token(&connection.channel).await?;
            Ok((connection, token))
        };
        let (connection, (token, count)) = match timeout_at(deadline, prepared).await {
            Ok(prepared) => prepared.map_err(|fault| (fault, 0))?,
            Err(_) => return Err((Fault::NotDone(format!("{}: too slow", link.place())), 0)),
        };
        let mut request = decorated(Request::new(request), token);
        // So that etcd, too, stops trying when we stop waiting.
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let answer = unary(connection.channel.clone(), path, request);
        let fault = match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(Broken { fault, link: true })) => {
                link.forget(&connection).await;
                fault
            }
            Ok(Err(Broken { fault, link: false })) => fault,
            Err(_) => {
                link.forget(&connection).await;
                no_answer(link.place())
            }
        };
        Err((fault, count))
    }

    async fn token(&self, channel: &Channel) -> Result<Carried, Fault> {
        let Some(login) = &self.login else {
            return Ok((None, 0));
        };
        let mut session = self.session.lock().await;
        if let Token::None = session.token {
            session.token = authenticate(channel.clone(), login).await?;
            session.count += 1;
        }
        let token = match &session.token {
            Token::Is(token) => Some(token.clone()),
            Token::None | Token::NotNeeded => None,
        };
        Ok((token, session.count))
    }

    async fn forget_token(&self, count: u64) {
        let mut session = self.session.lock().await;
        if session.count == count {
            session.token = Token::None;
        }
    }

    fn not_let_in(&self, why: &str) -> Fault {
        Fault::Refused(match &self.login {
            None => format!("etcd wants a login ({why}); write etcd://user:password@host"),
            Some(_) => format!("etcd does not accept a token that it has just given out: {why}"),
        })
    }

    /// Asks the next member from now on, unless somebody has changed that already.
    fn leave(&self, place: usize) {
        let next = (place + 1) % self.links.len().max(1);
        let _ = self
            .preferred
            .compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A fault, and whether the connection is to blame.
struct Broken {
    fault: Fault,
    link: bool,
}

async fn unary<Q, A>(channel: Channel, path: &'static str, request: Request<Q>) -> Result<A, Broken>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = ready(channel)
        .await
        .map_err(|fault| Broken { fault, link: true })?;
    grpc.unary(
        request,
        PathAndQuery::from_static(path),
        ProstCodec::<Q, A>::default(),
    )
    .await
    .map(|response| response.into_inner())
    .map_err(|status| Broken {
        fault: Fault::of(&status),
        link: broke(&status),
    })
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Fault> {
    // Answers are as large as what was stored; the limit is ours, when writing.
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    match grpc.ready().await {
        Ok(()) => Ok(grpc),
        Err(error) => Err(Fault::NotDone(super::fault::root(&error))),
    }
}

async fn authenticate(channel: Channel, login: &Login) -> Result<Token, Fault> {
    let request = AuthenticateRequest {
        name: login.name.clone(),
        password: login.password.reveal().to_owned(),
    };
    let request = decorated(Request::new(request), None);
    let answer: Result<AuthenticateResponse, Broken> = unary(channel, AUTHENTICATE, request).await;
    match answer.map_err(|broken| broken.fault) {
        Ok(answer) => {
            let mut token: MetadataValue<Ascii> = answer
                .token
                .parse()
                .map_err(|_| Fault::NotDone("etcd gave out a token that is no text".into()))?;
            token.set_sensitive(true);
            Ok(Token::Is(token))
        }
        Err(Fault::Open(why)) if why.contains("authentication is not enabled") => {
            tracing::warn!("the URL has a user, but etcd's authentication is switched off");
            Ok(Token::NotNeeded)
        }
        // Whatever becomes of a login, the request it was for has not been sent.
        Err(Fault::Open(why)) => Err(Fault::NotDone(why)),
        Err(fault) => Err(fault),
    }
}

fn decorated<Q>(mut request: Request<Q>, token: Option<MetadataValue<Ascii>>) -> Request<Q> {
    let metadata = request.metadata_mut();
    // A member that has lost its leader says so at once instead of keeping us waiting.
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token);
    }
    request
}

fn no_answer(place: &str) -> Fault {
    Fault::Open(format!(
        "{place}: no answer within {} s",
        ANSWER_WITHIN.as_secs()
    ))
}

/// A number that differs from process to process and from call to call.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

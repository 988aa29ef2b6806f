//! Watches: one connection and one task for all of them.
//!
//! ```text
//!   watch ── registers ──▶ Hub ──▶ task ─┬─ connect, LISTEN ──────────────────────┐
//!     ▲                                  │                                        ▼
//!     │                                  │   a new watch: everything in its scope ──▶ Put* Synced
//!     └── Put, Deleted, … ───────────────┤   a notification that concerns someone ─┐
//!                                        │   from time to time ────────────────────┴▶ CHANGES
//!                                        └─ the connection ends: Interrupted, and from the start
//! ```
//!
//! The task ends, and its connection with it, a second after the last watch was dropped. Each
//! watch remembers the revision of every key in its scope (about 100 bytes and the key itself).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::super::{Change, Entry, Error, Revision, Scope, Watch};
use super::fault::{self, During};
use super::pool::Backoff;
use super::rows;
use super::session::Session;
use super::settings::Settings;

/// Parameters: the transaction from which on to look, and ranges of keys.
///
/// Each row begins with the oldest transaction that may still run: whatever this statement cannot
/// see is of that one or a later one. There is always one row at least, maybe without a key.
pub(super) const CHANGES: &str = r#"
SELECT pg_snapshot_xmin(pg_current_snapshot())::text, c.key, c.revision, c.value
  FROM (VALUES (1)) AS one
  LEFT JOIN (
    SELECT r.key, r.revision, r.value
      FROM unnest($2::text[], $3::text[]) AS scope(first, last)
      JOIN {schema}.records AS r
        ON r.key >= scope.first COLLATE "C" AND r.key < scope.last COLLATE "C"
     WHERE r.transaction >= $1::text::xid8
  ) AS c ON true"#;

/// How long a change of a checkpoint waits at most: it has no notification.
const POLL: Duration = Duration::from_millis(200);

/// How long any other change waits at most, should its notification get lost: so many polls.
const LOST: u32 = 5;

/// Where all watches of a store meet.
pub(super) struct Hub {
    settings: Arc<Settings>,
    /// The way to the task, if one runs.
    door: Mutex<Option<UnboundedSender<Watcher>>>,
}

/// A watch, as its task sees it.
struct Watcher {
    scope: Scope,
    known: HashMap<String, Revision>,
    told: Told,
    // Unbounded: see the store in memory.
    changes: UnboundedSender<Change>,
}

/// What a watch was told last about itself.
#[derive(PartialEq)]
enum Told {
    Nothing,
    Synced,
    Interrupted(Error),
}

impl Hub {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self {
            settings,
            door: Mutex::new(None),
        }
    }

    fn register(&self, scope: Scope, told: Told) -> UnboundedReceiver<Change> {
        let (changes, receiver) = mpsc::unbounded_channel();
        let mut watcher = Watcher {
            scope,
            known: HashMap::new(),
            told,
            changes,
        };
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*door {
            match open.send(watcher) {
                Ok(()) => return receiver,
                // Its task is about to end, or went with its runtime.
                Err(refused) => watcher = refused.0,
            }
        }
        let (sender, incoming) = mpsc::unbounded_channel();
        let task = Task {
            settings: self.settings.clone(),
            incoming,
            watchers: vec![watcher],
            seen_before: None,
        };
        tokio::spawn(task.run());
        *door = Some(sender);
        receiver
    }
}

/// The stream of a watch. Nothing happens before it is polled.
pub(super) fn watch(hub: Arc<Hub>, scope: Scope) -> Watch {
    enum Phase {
        Start(Told),
        Heard(UnboundedReceiver<Change>),
    }
    if let Err(error) = scope.check() {
        let refusal = Change::Interrupted(error);
        return stream::iter([refusal]).chain(stream::pending()).boxed();
    }
    stream::unfold(Phase::Start(Told::Nothing), move |phase| {
        let (hub, scope) = (hub.clone(), scope.clone());
        async move {
            let mut changes = match phase {
                Phase::Start(told) => hub.register(scope, told),
                Phase::Heard(changes) => changes,
            };
            if let Some(change) = changes.recv().await {
                return Some((change, Phase::Heard(changes)));
            }
            // Only with the runtime that it ran on.
            let error = Error::unavailable("the task behind the watch was ended");
            let told = Told::Interrupted(error.clone());
            Some((Change::Interrupted(error), Phase::Start(told)))
        }
    })
    .boxed()
}

impl Watcher {
    fn tell(&self, change: Change) {
        // Whoever does not listen any more is found at the next tick.
        let _ = self.changes.send(change);
    }

    fn interrupt(&mut self, error: &Error) {
        let told = Told::Interrupted(error.clone());
        if self.told != told {
            self.tell(Change::Interrupted(error.clone()));
            self.told = told;
        }
    }

    /// Tells everything from the start.
    fn start_over(&mut self, found: Vec<Found>) {
        if self.told != Told::Nothing {
            self.tell(Change::Restarted);
        }
        self.known.clear();
        for found in found {
            if let Found::There(entry) = found {
                self.known.insert(entry.key.clone(), entry.revision);
                self.tell(Change::Put(entry));
            }
        }
        self.tell(Change::Synced);
        self.told = Told::Synced;
    }

    /// Tells what is news.
    fn hear(&mut self, found: &Found) {
        match found {
            Found::There(entry) if self.scope.holds(&entry.key) => {
                let before = self.known.insert(entry.key.clone(), entry.revision);
                if before != Some(entry.revision) {
                    self.tell(Change::Put(entry.clone()));
                }
            }
            // What nobody knew, nobody misses.
            Found::Gone(key, revision) if self.known.remove(key).is_some() => {
                self.tell(Change::Deleted {
                    key: key.clone(),
                    revision: *revision,
                });
            }
            Found::There(_) | Found::Gone(..) => {}
        }
    }
}

/// A row as found.
enum Found {
    There(Entry),
    Gone(String, Revision),
}

struct Task {
    settings: Arc<Settings>,
    incoming: UnboundedReceiver<Watcher>,
    watchers: Vec<Watcher>,
    /// Changes of transactions before this one were told to everyone who is synced.
    seen_before: Option<String>,
}

impl Task {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        while self.is_needed() {
            let error = match self.listen().await {
                Ok((session, notes)) => {
                    backoff = Backoff::default();
                    match self.serve(&session, notes).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            for watcher in &mut self.watchers {
                watcher.interrupt(&error);
            }
            self.seen_before = None;
            backoff.failed(&error);
            sleep(backoff.pause()).await;
        }
    }

    /// Whether anybody watches. If not, nobody can come any more either.
    fn is_needed(&mut self) -> bool {
        while let Ok(watcher) = self.incoming.try_recv() {
            self.watchers.push(watcher);
        }
        self.watchers.retain(|watcher| !watcher.changes.is_closed());
        if self.watchers.is_empty() {
            self.incoming.close();
            // Those who came before the door was closed.
            while let Ok(watcher) = self.incoming.try_recv() {
                self.watchers.push(watcher);
            }
        }
        !self.watchers.is_empty()
    }

    async fn listen(&self) -> Result<(Session, UnboundedReceiver<String>), Error> {
        let (sender, notes) = mpsc::unbounded_channel();
        let session = Session::connect(&self.settings, Some(sender))
            .await
            .map_err(fault::at_reconnect)?;
        let channel = &self.settings.channel;
        session.run(&format!("LISTEN \"{channel}\"")).await?;
        Ok((session.prepare(&self.settings).await?, notes))
    }

    /// Ends well when nobody watches any more.
    async fn serve(
        &mut self,
        session: &Session,
        mut notes: UnboundedReceiver<String>,
    ) -> Result<(), Error> {
        let mut ticks: u32 = 0;
        let mut tick = interval(POLL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.start_new(session).await?;
            tokio::select! {
                watcher = self.incoming.recv(), if !self.incoming.is_closed() => {
                    self.watchers.extend(watcher);
                }
                note = notes.recv() => {
                    let Some(note) = note else {
                        return Err(Error::unavailable("the connection of the watch was lost"));
                    };
                    let mut concerned = self.concerns_someone(&note);
                    while let Ok(further) = notes.try_recv() {
                        concerned = concerned || self.concerns_someone(&further);
                    }
                    if concerned {
                        self.poll(session).await?;
                    }
                }
                _ = tick.tick() => {
                    ticks = ticks.wrapping_add(1);
                    let due = ticks.is_multiple_of(LOST);
                    if due && !self.is_needed() {
                        return Ok(());
                    }
                    if due || self.watchers.iter().any(|watcher| has_checkpoints(&watcher.scope)) {
                        self.poll(session).await?;
                    }
                }
            }
        }
    }

    fn concerns_someone(&self, note: &str) -> bool {
        concerns(note, self.watchers.iter().map(|watcher| &watcher.scope))
    }

    /// Gives everything in its scope to each watch that has not had it.
    async fn start_new(&mut self, session: &Session) -> Result<(), Error> {
        for watcher in &mut self.watchers {
            if watcher.told != Told::Synced {
                let (since, found) = look(session, "0", [&watcher.scope]).await?;
                watcher.start_over(found);
                self.seen_before.get_or_insert(since);
            }
        }
        Ok(())
    }

    async fn poll(&mut self, session: &Session) -> Result<(), Error> {
        // Those who came since are not told yet; they get everything next.
        let synced = |watcher: &&mut Watcher| watcher.told == Told::Synced;
        let mut watchers: Vec<&mut Watcher> = self.watchers.iter_mut().filter(synced).collect();
        let Some(since) = &self.seen_before else {
            return Ok(());
        };
        let scopes = watchers.iter().map(|watcher| &watcher.scope);
        let (since, found) = look(session, since, scopes).await?;
        for found in &found {
            for watcher in &mut watchers {
                watcher.hear(found);
            }
        }
        self.seen_before = Some(since);
        Ok(())
    }
}

/// Whether there can be keys in this scope whose changes are not notified.
fn has_checkpoints(scope: &Scope) -> bool {
    match scope {
        Scope::Key(key) => key.starts_with("partitions/"),
        Scope::Under(prefix) => prefix.is_empty() || prefix.starts_with("partitions/"),
    }
}

/// Whether a notification is about a key in one of these scopes.
fn concerns<'a>(note: &str, mut scopes: impl Iterator<Item = &'a Scope>) -> bool {
    note.is_empty() || scopes.any(|scope| note.split("//").any(|key| scope.holds(key)))
}

/// What was written in some scopes by this transaction or later ones, and where to go on.
async fn look<'a>(
    session: &Session,
    since: &str,
    scopes: impl IntoIterator<Item = &'a Scope>,
) -> Result<(String, Vec<Found>), Error> {
    let (first, last): (Vec<String>, Vec<String>) = scopes.into_iter().map(rows::range).unzip();
    let rows = session
        .query(&session.statements.changes, &[&since, &first, &last])
        .await
        .map_err(|trouble| trouble.told(During::Asking))?;
    let mut next = since.to_owned();
    let mut found = Vec::new();
    for row in &rows {
        next = rows::get(row, 0)?;
        let Some(key) = rows::get::<Option<String>>(row, 1)? else {
            continue;
        };
        found.push(match rows::get::<Option<&[u8]>>(row, 3)? {
            Some(_) => Found::There(rows::entry(row, 1)?),
            None => Found::Gone(key, rows::revision(row, 2)?),
        });
    }
    Ok((next, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watcher(scope: Scope) -> (Watcher, UnboundedReceiver<Change>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        let watcher = Watcher {
            scope,
            known: HashMap::new(),
            told: Told::Nothing,
            changes,
        };
        (watcher, receiver)
    }

    fn there(key: &str, revision: u64) -> Entry {
        Entry {
            key: key.into(),
            revision: Revision(revision),
            value: "v".into(),
        }
    }

    fn told(receiver: &mut UnboundedReceiver<Change>) -> Vec<Change> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn a_watcher_hears_each_change_once_and_only_its_own() {
        let (mut watcher, mut receiver) = watcher(Scope::Under("a/".into()));
        let gone = |key: &str, revision| Found::Gone(key.into(), Revision(revision));
        watcher.start_over(vec![Found::There(there("a/1", 1)), gone("a/2", 2)]);
        assert_eq!(
            told(&mut receiver),
            [Change::Put(there("a/1", 1)), Change::Synced]
        );
        for _ in 0..2 {
            watcher.hear(&Found::There(there("a/1", 3)));
            watcher.hear(&Found::There(there("b/1", 4)));
            watcher.hear(&gone("a/2", 2));
        }
        assert_eq!(told(&mut receiver), [Change::Put(there("a/1", 3))]);
        for _ in 0..2 {
            watcher.hear(&gone("a/1", 5));
        }
        let (key, revision) = ("a/1".into(), Revision(5));
        assert_eq!(told(&mut receiver), [Change::Deleted { key, revision }]);
    }

    #[test]
    fn an_interruption_is_told_once_and_ends_with_a_restart() {
        let (mut watcher, mut receiver) = watcher(Scope::Key("a".into()));
        for why in ["one", "one", "two"] {
            watcher.interrupt(&Error::unavailable(why));
        }
        watcher.start_over(vec![]);
        let interrupted = |why: &str| Change::Interrupted(Error::unavailable(why));
        assert_eq!(
            told(&mut receiver),
            [
                interrupted("one"),
                interrupted("two"),
                Change::Restarted,
                Change::Synced
            ]
        );
    }

    #[test]
    fn notifications_name_keys_or_mean_anything() {
        let scopes = [Scope::Under("a/".into()), Scope::Key("b".into())];
        for (note, hit) in [
            ("", true),
            ("b", true),
            ("c//a/1", true),
            ("c//b/1", false),
            ("a", false),
        ] {
            assert_eq!(concerns(note, scopes.iter()), hit, "{note}");
        }
    }
}

//! Is the store still the one we know, and the stream?
//!
//! The `group` record holds a random identity. It is read at the start, after every restart of a
//! watch, and compared. A missing record is believed only from a write: if it can be created, the
//! store really has none.
//!
//! The record also says what nobody can join without: who decides in this group, and without a
//! leader by which strategy. Whoever is set up otherwise is refused before it claims an id.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Coordination};
use crate::ids::{Nonce, SourceId};
use crate::io::{Expect, StoreError, StoreOp, StoreReply, WriteOutcome};
use crate::key::Key;
use crate::record::{GroupRecord, Record};
use crate::strategy::Strategy;
use crate::time::Time;
use crate::worker::Fatal;
use crate::worker::outbox::{Outbox, Purpose};

/// How long to wait after store trouble.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
enum Check {
    Idle,
    Asked,
    Again(Time),
}

/// The check of the group's identity.
#[derive(Clone, Debug)]
pub struct Identity {
    stream: SourceId,
    coordination: Coordination,
    /// What everybody computes by, where everybody computes.
    strategy: Option<String>,
    timeout: Duration,
    known: Option<Nonce>,
    check: Check,
}

impl Identity {
    /// Nothing known yet.
    pub fn new(config: &Config, stream: SourceId, strategy: &dyn Strategy) -> Self {
        let coordination = config.coordination;
        Self {
            stream,
            coordination,
            strategy: (coordination == Coordination::Leaderless).then(|| strategy.name()),
            timeout: config.operation_timeout,
            known: None,
            check: Check::Idle,
        }
    }

    /// Whether the identity is known: nothing starts before.
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Checks now.
    pub fn check(&mut self, out: &mut Outbox) {
        if planted!(SkipIdentityCheck) && self.known.is_some() {
            return;
        }
        if !matches!(self.check, Check::Asked) {
            self.check = Check::Asked;
            out.ask(Purpose::Identity, StoreOp::Read(Key::Group), self.timeout);
        }
    }

    /// When to check again.
    pub fn next_deadline(&self) -> Time {
        match self.check {
            Check::Again(at) => at,
            _ => Time::NEVER,
        }
    }

    /// A deadline may have come.
    pub fn tick(&mut self, out: &mut Outbox) {
        if let Check::Again(at) = self.check
            && out.now() >= at
        {
            self.check(out);
        }
    }

    /// The answer to a read or a creation.
    pub fn answered(&mut self, reply: StoreReply, out: &mut Outbox) -> Result<(), Fatal> {
        self.check = Check::Idle;
        match reply {
            StoreReply::Read(Ok(Some(stored))) => self.compare(&stored.record),
            StoreReply::Read(Ok(None)) => {
                self.create(out);
                Ok(())
            }
            StoreReply::Write(outcomes) => match outcomes.into_iter().next() {
                Some(WriteOutcome::Conflict(Some(stored))) => self.compare(&stored.record),
                // There was none although we knew one: the store was recreated.
                Some(WriteOutcome::Done(_)) if self.known.is_some() => Err(Fatal::StoreReplaced),
                Some(WriteOutcome::Failed(StoreError::Rejected(why))) if self.known.is_none() => {
                    Err(Fatal::Rejected(why.to_string()))
                }
                // Created or not: read it back, so that everybody goes by the record itself.
                _ => {
                    self.check(out);
                    Ok(())
                }
            },
            StoreReply::Read(Err(StoreError::Rejected(why))) if self.known.is_none() => {
                Err(Fatal::Rejected(why.to_string()))
            }
            _ => {
                self.check = Check::Again(out.now() + PAUSE);
                Ok(())
            }
        }
    }

    fn create(&mut self, out: &mut Outbox) {
        let nonce = out.nonce();
        let record = GroupRecord {
            store: nonce,
            stream: self.stream,
            coordination: self.coordination.name().into(),
            strategy: self.strategy.clone(),
            nonce,
        };
        self.check = Check::Asked;
        let value = Record::Group(Arc::new(record));
        out.write(
            Purpose::Identity,
            Key::Group,
            Expect::Absent,
            value,
            self.timeout,
        );
    }

    fn compare(&mut self, record: &Record) -> Result<(), Fatal> {
        let Record::Group(record) = record else {
            return Err(Fatal::Rejected("the group record cannot be read".into()));
        };
        match self.known {
            Some(known) if known != record.store => Err(Fatal::StoreReplaced),
            _ if record.stream != self.stream => Err(self.other_stream(record.stream)),
            _ => {
                self.agree(record)?;
                self.known = Some(record.store);
                Ok(())
            }
        }
    }

    /// Why a worker of this stream does not join. Where one of the two has no name, nobody knows
    /// whether they are the same, and operators' tools take nothing over: only another group helps.
    fn other_stream(&self, known: SourceId) -> Fatal {
        let who = match (known, self.stream) {
            (SourceId::NoLog, _) => {
                return Fatal::Disagreement(
                    "it was made without a log: its checkpoints are no offsets of this worker's \
                     source; give this worker another group"
                        .into(),
                );
            }
            (_, SourceId::NoLog) => {
                return Fatal::Disagreement(
                    "it began with a source, and this worker says that it has none: its offsets \
                     would be of something else; give this worker another group"
                        .into(),
                );
            }
            (SourceId::Untold, _) => {
                "it began with a source that tells no identity (0), and this worker's tells one"
            }
            (_, SourceId::Untold) => {
                "it began with a source that tells its identity, and this worker's tells none (0)"
            }
            _ => return Fatal::StreamReplaced,
        };
        Fatal::Disagreement(format!(
            "{who}, so nobody knows whether they are the same; give all workers the same source, with \
             the same identity, or make the group anew: stop all workers, delete it (`parti group \
             delete`), start them again (if it is the same source, `parti checkpoint export` before, \
             and `parti checkpoint import --new-group` after the deletion)"
        ))
    }

    fn agree(&self, record: &GroupRecord) -> Result<(), Fatal> {
        let refuse = |setting: &str, theirs: &str, ours: &str| {
            Err(Fatal::Disagreement(format!(
                "its {setting} is {theirs}, this worker's is {ours}; give all workers the same (to \
                 change the group's: stop all of them, delete the record `group`, start them again)"
            )))
        };
        let ours = self.coordination.name();
        if record.coordination != ours {
            return refuse("coordination", &record.coordination, ours);
        }
        match (&record.strategy, &self.strategy) {
            (Some(theirs), Some(ours)) if theirs != ours => refuse("strategy", theirs, ours),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Revision;
    use crate::io::{StoreRequest, Stored};
    use crate::rng::Rng;
    use crate::strategy::{FairShare, RoundRobin};
    use crate::worker::Action;

    fn config(coordination: Coordination) -> Config {
        Config {
            coordination,
            ..Config::default()
        }
    }

    fn out() -> Outbox {
        Outbox::new(Rng::new(1))
    }

    /// What a first worker writes into an empty store.
    fn created(by: &mut Identity) -> Arc<GroupRecord> {
        let mut out = out();
        by.check(&mut out);
        by.answered(StoreReply::Read(Ok(None)), &mut out)
            .expect("a new group");
        let mut actions = Vec::new();
        out.take_actions(&mut actions);
        let Some(Action::Store(StoreRequest {
            op: StoreOp::Write(writes),
            ..
        })) = actions.pop()
        else {
            panic!("a write")
        };
        match &writes[0].value {
            Some(Record::Group(record)) => record.clone(),
            other => panic!("a group record, not {other:?}"),
        }
    }

    fn finds(who: &mut Identity, record: &Arc<GroupRecord>) -> Result<(), Fatal> {
        let stored = Stored {
            key: Key::Group,
            revision: Revision(1),
            record: Record::Group(record.clone()),
        };
        who.answered(StoreReply::Read(Ok(Some(stored))), &mut out())
    }

    #[test]
    fn another_mode_is_refused_by_name_in_both_directions() {
        for (theirs, ours) in [
            (Coordination::Leader, Coordination::Leaderless),
            (Coordination::Leaderless, Coordination::Leader),
        ] {
            let group = created(&mut Identity::new(&config(theirs), 7.into(), &FairShare));
            let mut same = Identity::new(&config(theirs), 7.into(), &FairShare);
            finds(&mut same, &group).expect("the same mode");
            assert!(same.is_known());
            let mut other = Identity::new(&config(ours), 7.into(), &FairShare);
            let Err(Fatal::Disagreement(why)) = finds(&mut other, &group) else {
                panic!("{ours:?} got into a group with {theirs:?}")
            };
            for part in ["coordination", theirs.name(), ours.name(), "`group`"] {
                assert!(why.contains(part), "{part} is missing in {why:?}");
            }
            assert!(!other.is_known(), "nothing starts");
        }
    }

    #[test]
    fn another_strategy_is_refused_only_where_everybody_computes() {
        let of = |mode, strategy: &dyn Strategy| Identity::new(&config(mode), 7.into(), strategy);
        let group = created(&mut of(Coordination::Leaderless, &FairShare));
        let Err(Fatal::Disagreement(why)) =
            finds(&mut of(Coordination::Leaderless, &RoundRobin), &group)
        else {
            panic!("two targets in one group")
        };
        assert!(
            why.contains("fair_share") && why.contains("round_robin"),
            "{why}"
        );
        let group = created(&mut of(Coordination::Leader, &FairShare));
        finds(&mut of(Coordination::Leader, &RoundRobin), &group)
            .expect("the plan tells, as long as somebody leads by it");
    }

    /// `parti checkpoint reset --all` has a group go on with another source, if both have a name.
    #[test]
    fn a_stream_without_a_name_is_refused_with_what_helps() {
        let of = |stream: u64| Identity::new(&Config::default(), stream.into(), &FairShare);
        for (theirs, ours) in [(0, 7), (7, 0)] {
            let group = created(&mut of(theirs));
            let Err(Fatal::Disagreement(why)) = finds(&mut of(ours), &group) else {
                panic!("{ours} got into a group of {theirs}")
            };
            for part in ["identity", "parti group delete", "import --new-group"] {
                assert!(why.contains(part), "{part} is missing in {why:?}");
            }
            finds(&mut of(theirs), &group).expect("its own");
        }
        let group = created(&mut of(8));
        assert_eq!(finds(&mut of(7), &group), Err(Fatal::StreamReplaced));
    }

    #[test]
    fn a_group_without_a_log_and_one_with_a_source_are_not_the_same() {
        let of = |stream| Identity::new(&Config::default(), stream, &FairShare);
        let all = [SourceId::Untold, SourceId::NoLog, SourceId::from(7)];
        for (theirs, ours) in all.iter().flat_map(|one| all.map(|other| (*one, other))) {
            let group = created(&mut of(theirs));
            let found = finds(&mut of(ours), &group);
            assert_eq!(found.is_ok(), theirs == ours, "{theirs:?}, {ours:?}");
            let is_known = theirs != ours && [theirs, ours].contains(&SourceId::NoLog);
            assert_eq!(theirs.is_other(ours), is_known, "{theirs:?}, {ours:?}");
            if is_known {
                let Err(Fatal::Disagreement(why)) = found else {
                    panic!("{theirs:?}, {ours:?}: {found:?}")
                };
                assert!(why.contains("another group"), "{why}");
            }
        }
        assert!(SourceId::from(7).is_other(8.into()));
    }

    #[test]
    fn another_store_is_worse_than_another_mode() {
        let mut group = created(&mut Identity::new(&Config::default(), 7.into(), &FairShare));
        let mut known = Identity::new(&Config::default(), 7.into(), &FairShare);
        finds(&mut known, &group).expect("fine");
        let record = Arc::make_mut(&mut group);
        record.store = Nonce(record.store.0 ^ 1);
        record.coordination = "leaderless".into();
        assert_eq!(finds(&mut known, &group), Err(Fatal::StoreReplaced));
    }
}

//! News: watches, assignments, the partition list, and whether everybody agrees.

use std::sync::Arc;

use crate::io::{Scope, WatchEvent};
use crate::key::{Key, Prefix};
use crate::leader::election;
use crate::partition;
use crate::partition::Partition;
use crate::record::{AssignmentRecord, Record, SessionStatus};
use crate::session::pace::backoff;
use crate::worker::stop::Step;
use crate::worker::{Action, Fatal, Report, Trouble};

use super::{Disagreement, Life, Listing, Worker};

impl Worker {
    pub(super) fn watched(&mut self, scope: &Scope, event: &WatchEvent) {
        for stored in stored_in(event) {
            self.out.seen(&stored.key, stored.revision);
        }
        if self.life != Life::Joined {
            return;
        }
        // A watch that starts anew may be talking to another store.
        let restarted = matches!(event, WatchEvent::Snapshot(_));
        let main = if self.leaderless.is_some() {
            Scope::Prefix(Prefix::Workers)
        } else {
            Scope::Key(Key::Leader)
        };
        if restarted && *scope == main {
            self.identity.check(&mut self.out);
        }
        match scope {
            Scope::Key(Key::Leader) => {
                let outcome = self
                    .election
                    .watched(event, &mut self.silence, &mut self.out);
                if outcome == election::Outcome::Lost {
                    self.step_down();
                }
                self.told.highest_term = self.told.highest_term.max(self.election.term());
            }
            Scope::Key(Key::Plan) => {
                for stored in stored_in(event) {
                    if let Record::Plan(plan) = &stored.record
                        && plan.term >= self.told.highest_term
                    {
                        self.told.highest_term = plan.term;
                        self.told.plan = Some(plan.clone());
                    }
                }
            }
            Scope::Key(Key::Assignment(_)) => {
                for stored in stored_in(event) {
                    if let Record::Assignment(record) = &stored.record {
                        self.assigned(record.clone());
                    }
                }
            }
            Scope::Key(key @ Key::Worker(id)) => {
                for stored in stored_in(event) {
                    if let Record::Worker(record) = &stored.record {
                        self.silence.saw(self.out.now(), key, stored.revision);
                        self.holdings.learn_session(id, stored.revision, record);
                    }
                }
            }
            Scope::Prefix(Prefix::Workers) => self.sessions_watched(event),
            Scope::Prefix(Prefix::Requests) => {
                if let Some(leader) = &mut self.leader {
                    leader.requests_watched(event);
                }
            }
            Scope::Key(Key::Overrides) => {
                if let Some(leaderless) = &mut self.leaderless {
                    leaderless.overrides_watched(event, &mut self.out);
                }
            }
            _ => {}
        }
    }

    pub(super) fn sessions_watched(&mut self, event: &WatchEvent) {
        let now = self.out.now();
        self.sessions.watched(event, &mut self.silence, now);
        for stored in stored_in(event) {
            if let (Key::Worker(id), Record::Worker(record)) = (&stored.key, &stored.record) {
                self.holdings.learn_session(id, stored.revision, record);
            }
        }
        if let Some(leader) = &mut self.leader {
            leader.sessions_changed();
            self.heed_other_lists();
        }
        if let Some(leaderless) = &mut self.leaderless {
            leaderless.changed();
            self.holdings.nudge(now);
            self.heed_other_lists();
        }
    }

    pub(super) fn learn_lives(&mut self) {
        for (id, revision, record) in self.sessions.iter() {
            self.holdings.learn_session(id, revision, record);
        }
    }

    /// A member with another partition list may have newer news than this worker.
    fn heed_other_lists(&mut self) {
        let mine = self.partitions_hash;
        let others = self.sessions.iter().any(|(_, _, record)| {
            let hash = record.partitions;
            record.status == SessionStatus::Live && hash != 0 && hash != mine
        });
        if others {
            self.list_again();
        }
    }

    /// Lists once more, though not more often than a session may be silent.
    fn list_again(&mut self) {
        let now = self.out.now();
        if now >= self.list_again_at {
            self.list_again_at = now + self.config.session_ttl();
            self.list_partitions();
        }
    }

    pub(super) fn assigned(&mut self, record: Arc<AssignmentRecord>) {
        let Some((_, life)) = self.session.id() else {
            return;
        };
        let known = self
            .told
            .assignment
            .as_ref()
            .map(|told| (told.term, told.version));
        let newer = known.is_none_or(|known| (record.term, record.version) > known);
        let lower = record.term < self.told.highest_term && !planted!(AcceptLowerTerm);
        if record.incarnation != life || lower || !newer {
            return;
        }
        self.told.highest_term = self.told.highest_term.max(record.term);
        self.out.report(Report::Assigned {
            version: record.version,
            term: record.term,
            serve: record.serve.clone(),
            prepare: record.prepare.iter().map(|(id, _)| id.clone()).collect(),
        });
        let alone = self
            .stopping
            .is_some_and(|s| s.step(self.out.now()) >= Step::Alone);
        if !alone {
            self.holdings.want(
                record.serve.iter().cloned(),
                record.prepare.iter().map(|(id, _)| id.clone()),
                &record.added,
                &mut self.lanes,
                &mut self.out,
            );
        }
        for id in &record.release {
            self.holdings.check(id);
        }
        self.told.assignment = Some(record);
    }

    pub(super) fn list_partitions(&mut self) {
        self.listing = match self.listing {
            Listing::Asked | Listing::AskedAgain => Listing::AskedAgain,
            _ => {
                self.out.push(Action::ListPartitions);
                Listing::Asked
            }
        };
    }

    pub(super) fn listed(&mut self, result: Result<Arc<[Partition]>, Arc<str>>) {
        let again = self.listing == Listing::AskedAgain;
        self.listing = Listing::Idle;
        match result {
            Ok(list) => {
                self.listings_failed = 0;
                let hash = partition::hash(&list);
                if self.partitions.is_none() || hash != self.partitions_hash {
                    self.partitions_hash = hash;
                    if let Some(leader) = &mut self.leader {
                        leader.partitions_changed(&list, self.out.now());
                    }
                    if let Some(leaderless) = &mut self.leaderless {
                        leaderless.changed();
                    }
                    self.partitions = Some(list);
                }
            }
            Err(why) => {
                // The last list stays.
                self.out.trouble(Trouble::Listing(why.to_string()));
                self.listings_failed = self.listings_failed.saturating_add(1);
                let wait = backoff(&self.config.retry, self.listings_failed);
                self.listing = Listing::RetryAt(self.out.now() + wait);
            }
        }
        if again {
            self.list_partitions();
        }
    }

    /// Everybody must agree on the strategy, the mode and the partitions.
    pub(super) fn check_agreement(&mut self) -> Result<(), Fatal> {
        let (Some(plan), None) = (self.told.plan.clone(), &self.leader) else {
            self.disagreement = Disagreement::None;
            return Ok(());
        };
        let theirs = &plan.fingerprint;
        // What a leader that is gone went by binds nobody: a group that was stopped as a whole may
        // come back with other settings.
        if self.election.hears_leader_of(plan.term) {
            for (setting, theirs, ours) in [
                ("strategy", &theirs.strategy, self.strategy.name()),
                (
                    "coordination",
                    &theirs.coordination,
                    self.config.coordination.name().into(),
                ),
            ] {
                if *theirs != ours {
                    return Err(Fatal::Disagreement(format!(
                        "its leader's {setting} is {theirs}, this worker's is {ours}; give all \
                         workers the same"
                    )));
                }
            }
        }
        if self.partitions.is_none() || theirs.partitions == self.partitions_hash {
            self.disagreement = Disagreement::None;
            return Ok(());
        }
        // One of the two lists is older, or the plan was read from a stale replica: both sides
        // list again and get time to. A read alone never ends a worker; the leader gives it nothing
        // new until they agree.
        self.list_again();
        let now = self.out.now();
        match self.disagreement {
            Disagreement::None => self.disagreement = Disagreement::Since(now),
            Disagreement::Since(since) if now.since(since) > self.config.session_ttl() * 2 => {
                self.disagreement = Disagreement::Told;
                self.out.trouble(Trouble::OtherPartitions {
                    theirs: plan.partitions,
                    ours: self.partitions.as_ref().map_or(0, |list| list.len() as u64),
                });
            }
            _ => {}
        }
        Ok(())
    }
}

fn stored_in(event: &WatchEvent) -> &[crate::io::Stored] {
    match event {
        WatchEvent::Snapshot(records) => records,
        WatchEvent::Changed(stored) => std::slice::from_ref(stored),
        WatchEvent::Removed(..) => &[],
    }
}

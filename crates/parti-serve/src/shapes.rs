//! What answers look like that are made of the library's own types: for OpenAPI alone. A test holds
//! each against what is really written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::history::Line;
use crate::operating::Action;

/// A group at about one moment.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Group {
    /// Its name.
    group: String,
    /// Who decides: `leader` or `leaderless`.
    coordination: String,
    /// Whether an operator is deleting it.
    closed: bool,
    /// Who leads, if somebody does.
    leader: Option<String>,
    /// The newest term, also after its leader has resigned.
    term: Option<u64>,
    /// What the leader is doing.
    plan: Option<Plan>,
    /// Every worker with a session, by id; also those whose session is over.
    workers: Vec<Worker>,
    /// What is moving, by partition.
    handoffs: Vec<Handoff>,
    /// What operators asked for and is not carried out yet, oldest first.
    requests: Vec<Asked>,
    /// Every partition that was ever taken or that somebody is told to serve, by id.
    partitions: Vec<Partition>,
    /// Records that this program cannot read.
    unreadable: Vec<Unreadable>,
}

/// What the leader is doing.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Plan {
    /// Grows with every plan.
    version: u64,
    /// Where the group is in its life.
    lifecycle: Lifecycle,
    /// What is going on.
    state: PlanState,
    /// Why.
    reason: String,
    /// When that began, in milliseconds since the Unix epoch.
    started_ms: u64,
    /// How many workers it counts on.
    workers: u64,
    /// How many partitions there are.
    partitions: u64,
    /// Partitions on the move.
    moving: u64,
    /// Partitions that nobody serves, and why (the first few).
    unserved: Vec<(String, String)>,
    /// What every worker must agree on.
    fingerprint: Fingerprint,
}

/// Where a group is in its life.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    ColdStart,
    PostColdStart,
    Stable,
}

/// What a leader is doing.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    Stable,
    Scaling,
    Rebalancing,
    Emergency,
}

/// What every worker of a group must agree on.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Fingerprint {
    /// Hash of the partition list, in hexadecimal.
    partitions: String,
    /// Name and parameters of the strategy.
    strategy: String,
    /// `leader` or `leaderless`.
    coordination: String,
}

/// One worker, by its session.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Worker {
    /// Its stable id.
    worker: String,
    /// Which life of the id.
    incarnation: u64,
    /// What its session's record says.
    status: Status,
    /// Its state, 0 to 8.
    state: u8,
    /// How often it has renewed its session.
    beat: u64,
    /// When it last did, in milliseconds of its own wall clock; null if it did not say.
    renewed_ms: Option<u64>,
    /// Whether it leads.
    leader: bool,
    /// How many partitions name it as their owner.
    partitions: u64,
    /// How many the leader told it to serve; null where nobody told it anything.
    serve: Option<u64>,
    /// How many it is getting ready for.
    prepare: u64,
    /// Up to this assignment version it has done what it was told.
    applied: u64,
    /// Whether an operator has drained it: it serves nothing.
    drained: bool,
    /// Takes that were refused, with who stood in the way.
    blocked_by: Vec<Blocked>,
    /// What is wrong with it, if anything is.
    degraded: Option<String>,
}

/// Whether a session lives.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Live,
    Leaving,
    Revoked,
    Dismissed,
    Goodbye,
    Evicted,
    Free,
}

/// A take that was refused.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Blocked {
    /// What was to be taken.
    partition: String,
    /// Who holds it.
    owner: String,
    /// In which life.
    incarnation: u64,
}

/// A partition on its way to another worker.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Handoff {
    /// Which.
    partition: String,
    /// Who owns it now; null if it was free.
    from: Option<String>,
    /// Who is to have it.
    to: String,
    /// How far it is.
    stage: Stage,
}

/// How far a handoff is.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Preparing,
    Ready,
    Releasing,
    Taking,
}

/// A request that is under way.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Asked {
    /// Its name in the store.
    id: String,
    /// What is wanted.
    request: Action,
    /// The same, in words.
    text: String,
    /// Who asks.
    by: String,
    /// Why; may be empty.
    why: String,
    /// When it was asked, in milliseconds of the wall clock of whoever did.
    asked_ms: u64,
    /// How far it is.
    progress: Progress,
}

/// How far a request is.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    Waiting,
    UnderWay,
}

/// One partition.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Partition {
    /// Its id.
    partition: String,
    /// Who owns it.
    owner: Option<String>,
    /// In which life it was taken.
    incarnation: Option<u64>,
    /// What is known of the owner's session in that life.
    owner_session: Option<OwnerSession>,
    /// Whom the leader told to serve it.
    assigned: Option<String>,
    /// Who gets ready to serve it next.
    prepared_by: Option<String>,
    /// Its epoch; 0 if nobody ever took it.
    epoch: u64,
    /// The last done offset.
    offset: Option<u64>,
    /// Where handling goes on; null if nobody ever took it.
    next_offset: Option<u64>,
    /// Offsets above the last done one that are done, too.
    done_above: Vec<u64>,
    /// What an owner in suspicion was about to handle.
    begun: Option<Begun>,
    /// The oldest offset that its source still has, if the source was asked.
    first: Option<u64>,
    /// One past its newest message, if the source was asked.
    end: Option<u64>,
    /// What is left to do, if the source was asked.
    lag: Option<u64>,
    /// Whether an operator has paused it.
    paused: bool,
    /// Where an operator put it, to stay there while that worker is there.
    pinned_to: Option<String>,
    /// Why nobody serves it, if the leader says so.
    unserved: Option<String>,
    /// When its owner took it, in milliseconds since the Unix epoch; 0: never.
    claimed_ms: u64,
    /// When its checkpoint was last written, in milliseconds since the Unix epoch; 0: never.
    updated_ms: u64,
}

/// What is known of an owner's session.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OwnerSession {
    Live,
    Leaving,
    Over,
}

/// A handler call that an owner in suspicion announced.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Begun {
    /// The message.
    offset: u64,
    /// How many owners have begun it so far.
    times: u32,
}

/// A record that cannot be read. It is left alone.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Unreadable {
    /// Where, within the group.
    key: String,
    /// Why.
    why: String,
}

/// What kinds of things a history tells.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    Join,
    Leave,
    Crash,
    Election,
    Plan,
    Handoff,
    Fencing,
    Request,
    Trouble,
}

/// How moves went that ended together.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Moves {
    /// How many.
    count: u64,
    /// Why the partitions moved.
    reason: String,
    /// From the decision until the last new owner had taken over, in milliseconds.
    took_ms: u64,
    /// The longest time that nobody served one of them, in milliseconds.
    pause_ms: u64,
}

/// What one strategy would do.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Outcome {
    /// Its name, with its parameters.
    strategy: String,
    /// Whether it is the group's own.
    own: bool,
    /// The largest share against the mean, by weight; 1 is perfect.
    balance_by_weight: f64,
    /// The same by count.
    balance_by_count: f64,
    /// Taken from workers that stay.
    moved: u64,
    /// Given out that nobody had.
    placed: u64,
    /// The least that had to be taken from workers that stay, for even counts.
    least_moved: u64,
    /// Given to nobody, though nobody paused it.
    unserved: u64,
    /// What each worker has, before and after.
    workers: BTreeMap<String, Share>,
    /// Who has each partition, before and after.
    partitions: BTreeMap<String, Placement>,
}

/// What a worker has.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Share {
    /// How many partitions before.
    before: u64,
    /// How many after.
    after: u64,
    /// Their weight after.
    weight: u64,
}

/// Who has a partition.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Placement {
    /// Before.
    before: Option<String>,
    /// After.
    after: Option<String>,
}

/// An event of a group's live view: its name, and its data as JSON.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum LiveEvent {
    /// The group as it is.
    Group(Whole),
    /// What is new since the event before.
    Change(Change),
    /// The store is not heard: what was seen may be old.
    Trouble(Why),
    /// The group was deleted, or the service stops.
    End(Why),
}

/// A group with its newest history.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Whole {
    #[serde(flatten)]
    group: Group,
    /// The newest lines of its history, oldest first.
    events: Vec<Line>,
}

/// What changed. What is listed is whole; what is left out is as it was.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Change {
    /// The group without its lists.
    head: Head,
    workers: Vec<Worker>,
    /// Ids.
    workers_gone: Vec<String>,
    partitions: Vec<Partition>,
    /// Ids.
    partitions_gone: Vec<String>,
    /// New lines of its history, oldest first.
    events: Vec<Line>,
    /// All of them, if one is new, changed or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    handoffs: Option<Vec<Handoff>>,
    /// All of them, if one is new or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<Vec<Unreadable>>,
}

/// A group without its lists.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Head {
    group: String,
    coordination: String,
    closed: bool,
    leader: Option<String>,
    term: Option<u64>,
    plan: Option<Plan>,
    requests: Vec<Asked>,
}

/// Why.
#[derive(Deserialize, Serialize, ToSchema)]
pub struct Why {
    /// For people.
    why: String,
}

#[cfg(test)]
mod tests {
    use parti::core::ids::Incarnation;
    use parti::core::record::{self, Request, SessionStatus};
    use parti::inspect;
    use parti::{Epoch, Offset, PartitionId, Term, Version, WorkerId};
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::live::between;

    /// Nothing is left out of the shape, and nothing is in it that is not written.
    fn has_the_shape<T: DeserializeOwned + Serialize>(written: &impl Serialize) {
        let written = serde_json::to_value(written).expect("JSON");
        let shape: T = serde_json::from_value(written.clone()).expect("it fits");
        assert_eq!(serde_json::to_value(shape).expect("JSON"), written);
    }

    fn id(number: u64) -> PartitionId {
        PartitionId::new(number.to_string())
    }

    /// One of everything.
    fn group() -> inspect::Group {
        let worker = || WorkerId::new("worker-1");
        inspect::Group {
            name: "g".into(),
            coordination: "leader".into(),
            stream: 7.into(),
            strategy: Some("fair_share".into()),
            closed: false,
            leader: Some(worker()),
            term: Some(Term(3)),
            plan: Some(inspect::Plan {
                version: Version(4),
                lifecycle: record::Lifecycle::PostColdStart,
                state: record::PlanState::Rebalancing,
                reason: "a joiner".into(),
                started_ms: 1,
                workers: 2,
                partitions: 3,
                moving: 1,
                unserved: vec![(id(2), "over cap".into())],
                fingerprint: record::Fingerprint {
                    partitions: 0xabc,
                    strategy: "fair_share".into(),
                    coordination: "leader".into(),
                },
            }),
            workers: vec![inspect::WorkerView {
                id: worker(),
                incarnation: Incarnation(5),
                status: SessionStatus::Live,
                state: 4,
                beat: 6,
                renewed_ms: Some(7),
                leader: true,
                owns: 2,
                serve: Some(2),
                prepare: 1,
                applied: Version(4),
                drained: false,
                blocked_by: vec![record::Blocked {
                    partition: id(1),
                    owner: WorkerId::new("worker-2"),
                    incarnation: Incarnation(8),
                }],
                degraded: Some("slow".into()),
            }],
            handoffs: vec![inspect::Handoff {
                partition: id(1),
                from: None,
                to: worker(),
                stage: inspect::Stage::Preparing,
            }],
            requests: vec![inspect::RequestView {
                id: "r".into(),
                request: Request::Evict {
                    worker: worker(),
                    incarnation: Incarnation(5),
                    stay_away: true,
                },
                text: "evict worker-1".into(),
                by: "somebody".into(),
                why: String::new(),
                asked_ms: 9,
                progress: inspect::Progress::UnderWay,
            }],
            partitions: vec![inspect::PartitionView {
                id: id(0),
                owner: Some(worker()),
                incarnation: Some(Incarnation(5)),
                owner_session: Some(inspect::OwnerSession::Live),
                assigned: Some(worker()),
                prepared_by: None,
                epoch: Epoch(2),
                offset: Some(Offset(10)),
                next_offset: Some(Offset(11)),
                done_above: vec![Offset(12)],
                begun: Some(record::Begun {
                    offset: Offset(11),
                    times: 1,
                }),
                first: Some(Offset(0)),
                end: Some(Offset(20)),
                lag: Some(9),
                paused: false,
                pinned_to: Some(worker()),
                unserved: None,
                claimed_ms: 1,
                updated_ms: 2,
            }],
            unreadable: vec![inspect::Unreadable {
                key: "leader".into(),
                why: "no JSON".into(),
            }],
            history: Vec::new(),
        }
    }

    #[test]
    fn a_group_is_written_as_it_is_described() {
        has_the_shape::<Group>(&group());
        let moves = record::Moves {
            count: 1,
            reason: "a joiner".into(),
            took_ms: 2,
            pause_ms: 1,
        };
        has_the_shape::<Moves>(&moves);
        for kind in [
            record::EventKind::Join,
            record::EventKind::Fencing,
            record::EventKind::Trouble,
        ] {
            has_the_shape::<Happened>(&kind);
        }
        for stage in [
            inspect::Stage::Preparing,
            inspect::Stage::Ready,
            inspect::Stage::Releasing,
            inspect::Stage::Taking,
        ] {
            has_the_shape::<Stage>(&stage);
        }
    }

    #[test]
    fn a_plan_is_written_as_it_is_described() {
        use inspect::whatif::{Case, Wish, outcomes};
        let before = Case::of(&group(), None).expect("a case");
        let wish = Wish {
            add: 1,
            ..Wish::default()
        };
        let after = before.changed(&wish).expect("a case");
        let found = outcomes(&before, &after, None, &before.strategies());
        assert!(!found.is_empty());
        has_the_shape::<Vec<Outcome>>(&found);
    }

    #[test]
    fn a_change_is_written_as_it_is_described() {
        let before = inspect::Group {
            workers: Vec::new(),
            partitions: Vec::new(),
            handoffs: Vec::new(),
            unreadable: Vec::new(),
            ..group()
        };
        let happened = inspect::Happening {
            number: 1,
            at_ms: 2,
            by: "worker-1".into(),
            kind: record::EventKind::Handoff,
            text: "moved".into(),
            moves: None,
        };
        let now = inspect::Group {
            history: vec![happened],
            ..group()
        };
        has_the_shape::<Change>(&between(&before, &now).expect("a change"));
    }
}

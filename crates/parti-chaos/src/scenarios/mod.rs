//! What can happen to a group, one function each.

mod cluster;
mod deaths;
mod handlers;
mod links;
mod moves;
mod servers;

use std::pin::Pin;

use crate::failure::Failure;
use crate::stage::{Needs, Stage};

/// Handler calls of one worker that may run at once; those of a frozen one may end late.
pub const IN_FLIGHT: u64 = 16;

/// Which messages may be handled twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// None.
    Never,
    /// What had been handled and not flushed when an owner died or froze, and the calls that were
    /// in flight in those that froze.
    Unflushed {
        /// How many freeze.
        frozen: u64,
    },
}

/// A scenario as it is played.
type Play = for<'a> fn(&'a mut Stage) -> Playing<'a>;
/// A scenario that is being played.
type Playing<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// Something that happens to a group.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// Which messages may be handled twice.
    pub repeats: Repeats,
    /// What it needs.
    pub needs: fn() -> Needs,
    /// Plays it.
    pub play: Play,
}

macro_rules! scenarios {
    ($( $name:literal, $about:literal, $repeats:expr, $needs:expr, $play:path; )*) => {
        &[$( Scenario {
            name: $name,
            about: $about,
            repeats: $repeats,
            needs: $needs,
            play: |stage| Box::pin($play(stage)),
        } ),*]
    };
}

const DEATH: Repeats = Repeats::Unflushed { frozen: 0 };

/// Every scenario.
pub const ALL: &[Scenario] = scenarios! {
    "join", "two workers join a group of two, one after the other",
        Repeats::Never, Needs::default, moves::join;
    "leave", "two of four workers leave, the leader among them",
        Repeats::Never, Needs::default, moves::leave;
    "six-on-three", "six workers share three partitions; two of them leave",
        Repeats::Never, moves::three_partitions, moves::six_on_three;
    "kill", "two of three workers are killed, and another one joins",
        DEATH, Needs::deaths, deaths::kill;
    "kill-leader", "the worker that leads is killed, twice",
        DEATH, Needs::deaths, deaths::kill_leader;
    "freeze", "a worker is stopped for longer than its session lasts, then goes on; then the leader",
        Repeats::Unflushed { frozen: 2 }, Needs::deaths, deaths::freeze;
    "frozen-predecessor", "a worker is frozen with its pull open; another takes its id and its consumer",
        Repeats::Unflushed { frozen: 1 }, deaths::quick, deaths::frozen_predecessor;
    "killing-message", "a message kills every process that handles it",
        DEATH, Needs::deaths, deaths::killing_message;
    "group-stopped", "the whole group is away for longer than the server keeps its consumers",
        DEATH, deaths::forgetful, deaths::group_stopped;
    "poison", "a message that its handler always refuses",
        Repeats::Never, Needs::default, handlers::poison;
    "panic", "a message on which its handler panics",
        Repeats::Never, Needs::default, handlers::panic;
    "slow", "a message that takes long, while a worker joins",
        Repeats::Never, Needs::default, handlers::slow;
    "server-restart", "the server is killed in the middle of a rebalance, twice, and comes back",
        Repeats::Never, Needs::default, servers::restart;
    "consumer-deleted", "somebody deletes the consumers of running workers",
        Repeats::Never, Needs::default, servers::consumer_deleted;
    "stream-replaced", "the stream is deleted and made anew: workers must end, and say why",
        Repeats::Never, Needs::default, servers::stream_replaced;
    "cut-update", "a worker's connection dies while its consumer is being changed",
        Repeats::Never, Needs::default, links::cut_update;
    "cut-deliveries", "a worker's connection dies with messages on their way to it",
        Repeats::Never, Needs::default, links::cut_deliveries;
    "step-down", "three servers; consumers change their leader at each step of a move",
        Repeats::Never, Needs::cluster, cluster::step_down;
    "node-away", "three servers; one is killed, paused and isolated in turn: no rebalance",
        Repeats::Never, cluster::brief_sessions, cluster::node_away;
};

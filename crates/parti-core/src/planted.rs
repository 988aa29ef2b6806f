//! Planted bugs: realistic mistakes that the simulator must catch.
//!
//! They exist only in a build with `--cfg parti_planted`; in every other build
//! [`planted!`](crate::planted!) is the constant `false` and the compiler removes the branch.

/// True when the named bug is planted. `false`, at compile time, in a normal build.
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {{
        #[cfg(parti_planted)]
        {
            $crate::planted::is_active($crate::planted::Bug::$bug)
        }
        #[cfg(not(parti_planted))]
        {
            false
        }
    }};
}

#[cfg(parti_planted)]
pub use registry::*;

#[cfg(parti_planted)]
mod registry {
    use std::sync::atomic::{AtomicUsize, Ordering};

    macro_rules! bugs {
        ($($(#[doc = $doc:literal])* $bug:ident,)*) => {
            /// Every planted bug.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[repr(usize)]
            pub enum Bug { $($(#[doc = $doc])* $bug,)* }

            /// All bugs with what each does wrong, in order.
            pub const ALL: &[(Bug, &str)] = &[$((Bug::$bug, concat!($($doc),*)),)*];
        };
    }

    bugs! {
        /// A commit does not check the epoch it finds.
        SkipEpochCheck,
        /// Silence is counted while the observer itself cannot reach the store.
        SilenceDuringOutage,
        /// The lease outlives the TTL.
        LeaseWithoutMargin,
        /// The lease counts from the reply instead of from before the renewal was sent.
        LeaseFromReply,
        /// A worker goes on although its session was ended.
        IgnoreEviction,
        /// A partition is taken from an owner whose session is not known to be over.
        SeizeWithoutEvidence,
        /// A session that lives is taken over without the badge that it was made with.
        AnyBadge,
        /// A partition is taken while the own lease has lapsed.
        TakeWithoutLease,
        /// A lease that lapsed and came back counts as if it had never lapsed.
        LapseForgotten,
        /// After a lapse, messages are handled before it is known what is still owned.
        HandleInDoubt,
        /// A take whose fate is open counts as failed, and is forgotten.
        TimeoutIsFailure,
        /// A take whose fate is open counts as done.
        UnknownTakeServes,
        /// A release does not carry the final progress.
        ReleaseWithoutFinalCommit,
        /// A release deletes the record, so that epochs restart.
        ReleaseByDelete,
        /// Assignments of a lower term are obeyed.
        AcceptLowerTerm,
        /// A lost session does not stop what it held.
        KeepServingAfterSessionLoss,
        /// A replaced store is not noticed, neither by its identity nor by what is missing in it.
        SkipIdentityCheck,
        /// A store that went back in time is not noticed.
        IgnoreStoreWentBack,
        /// An event of the history that another worker had go proves that the store lost it.
        TrimmedHistoryProvesLoss,
        /// A leader goes on publishing after its lease, and when it meets a higher term.
        OldLeaderPublishes,
        /// Handling starts when a read shows the partition free, before the take has landed.
        ServeFromRead,
        /// A stale read of a record that once named this worker is believed.
        TrustReadOfOwnRecord,
        /// A new owner starts two past the checkpoint instead of one.
        CheckpointSkipsOne,
        /// The default strategy plans as if nobody served anything: every change moves partitions.
        StrategyIgnoresPrevious,
        /// The default strategy leaves out a partition that fits nowhere under an even share, and the
        /// leader leaves it at that.
        StrategyDropsWhatDoesNotFit,
        /// A partition is added to the consumer without reading its backlog.
        AddWithoutBackfill,
        /// The reader's goal is the highest delivered offset instead of the stream's last one.
        PositionFromDelivered,
        /// After a loss on a work queue, what still arrives is skipped and acked.
        LateDeliverySkippedAndAcked,
        /// Nothing wanted becomes an update with an empty filter: the whole stream.
        EmptyFilterList,
        /// Handling starts one past where it should.
        CursorOffByOne,
        /// Deliveries are acked when they arrive.
        AckBeforeHandled,
        /// A hole in the consumer sequence is not noticed.
        IgnoreSequenceGap,
        /// The checkpoint is the last done offset, even if something before it is not done.
        CheckpointLastAcked,
        /// An empty answer counts as proof that there is nothing to read.
        ReaderTrustsEmptyAnswer,
        /// What a sweep did not reach counts as read.
        SweepTrustsShortAnswer,
        /// A durable that was put at the stream's end goes on from there.
        JumpWithoutSplice,
        /// A durable that lags goes on as if retention stood still.
        OvertakenForgotten,
        /// An over-full lane drops what comes last, and goes on as if it had not come.
        OverflowDropsNewest,
        /// Handlers are called without a look at the lease.
        DispatchWithoutLease,
        /// A seized partition is handled as if its owner had not died of it.
        SuspicionIgnored,
        /// Messages that were begun before are all tried at once, and counted together.
        SuspectsTogether,
        /// A closed partition is handled on, and called drained at once.
        KeepServingAfterClose,
        /// A partition that comes back is handled while an old handler call is still running.
        ReopenWhileInFlight,
        /// A work queue's subject is added first, and the consumer rewound afterwards.
        WorkQueueAddBeforeReset,
        /// The leader gives a partition to its new owner before the old one has let go.
        GrantBeforeRelease,
        /// The leader makes the old owner let go before the new one is ready.
        RevokeBeforeReady,
        /// A new leader does not write the assignments it found under its own term.
        OldTermRepublishSkipped,
        /// One crash makes the leader spread everything anew.
        EmergencyMovesEverything,
        /// Of a crashed worker's partitions, only the first is given to another.
        PlanForgetsPartition,
        /// Partition records are written without a look at what is there.
        UnconditionalPut,
        /// The leader counts a silent worker as gone, but does not end its session by a write.
        EvictionWithoutWrite,
        /// A pause is called done before everybody has let go.
        PauseDoneTooSoon,
        /// A drained worker is given partitions like any other.
        DrainedStillReceives,
        /// Plans do not know of pins: what was moved to its place is moved away again.
        PlansIgnorePins,
        /// A worker that an operator evicts counts as gone before it has stopped.
        EvictAtOnce,
        /// An eviction is called done before the session is over.
        EvictDoneTooSoon,
        /// A new leader tells that workers joined which were there before it.
        FoundToldAsJoined,
        /// A worker that is told to stop waits for a leader, though the whole group stops.
        StopWaitsForNobody,
        /// Time is read from the wall clock, which jumps.
        WallClock,
        /// Time is read from a clock that stands still while the machine sleeps.
        ClockStopsInSuspend,
    }

    static ACTIVE: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Plants this bug, and only this one, in the whole process.
    pub fn plant(bug: Option<Bug>) {
        ACTIVE.store(bug.map_or(usize::MAX, |b| b as usize), Ordering::SeqCst);
    }

    /// Whether the bug is planted now.
    pub fn is_active(bug: Bug) -> bool {
        ACTIVE.load(Ordering::Relaxed) == bug as usize
    }
}

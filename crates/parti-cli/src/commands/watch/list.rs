//! What is listed, and in which order: rows of workers, places of partitions.

use std::collections::HashMap;

use parti::WorkerId;
use parti::core::record::SessionStatus;
use parti::inspect::{OwnerSession, PartitionView, WorkerView};

use super::app::App;
use super::marks::Mark;
use crate::view;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Good,
    /// Worth a look.
    Odd,
    /// Wrong.
    Bad,
}

/// A worker as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerRow {
    /// Its id.
    pub id: WorkerId,
    /// Its letter and colour.
    pub mark: Mark,
    /// Whether it leads.
    pub leader: bool,
    /// What its session's record says.
    pub status: SessionStatus,
    /// Whether that is as it should be.
    pub health: Health,
    /// Whether it should have said something by now.
    pub silent: bool,
    /// How old its last beat is, if that is known.
    pub silent_ms: Option<u64>,
    /// How many partitions it owns.
    pub owns: usize,
    /// What is left to do in those.
    pub lag: Option<u64>,
    /// Messages done, by second.
    pub done: Option<f64>,
    /// What is to be said of it.
    pub note: String,
}

/// By what workers are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerSort {
    /// Their ids.
    #[default]
    Id,
    /// How many partitions they own, the most first.
    Partitions,
    /// Their lag, the largest first.
    Lag,
    /// How fast they are, the fastest first.
    Rate,
    /// How long they have been silent, the longest first.
    Beat,
}

/// By what partitions are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionSort {
    /// Their ids.
    #[default]
    Id,
    /// Their owners: those of one worker stand together.
    Owner,
    /// Their lag, the largest first.
    Lag,
}

/// Which partitions are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// Those that are not simply served.
    Odd,
    /// Those of the chosen worker.
    Worker,
}

impl WorkerSort {
    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::Id => Self::Partitions,
            Self::Partitions => Self::Lag,
            Self::Lag => Self::Rate,
            Self::Rate => Self::Beat,
            Self::Beat => Self::Id,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "by id",
            Self::Partitions => "by partitions",
            Self::Lag => "by lag",
            Self::Rate => "by rate",
            Self::Beat => "by silence",
        }
    }
}

impl PartitionSort {
    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::Id => Self::Owner,
            Self::Owner => Self::Lag,
            Self::Lag => Self::Id,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "by id",
            Self::Owner => "by owner",
            Self::Lag => "by lag",
        }
    }
}

impl Filter {
    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::All => Self::Odd,
            Self::Odd => Self::Worker,
            Self::Worker => Self::All,
        }
    }
}

/// What is to be said of a partition at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Its owner serves it.
    Served,
    /// It is on its way to another worker.
    Moving,
    /// An operator paused it.
    Paused,
    /// The leader gives it to nobody, and says why.
    Unserved,
    /// Nobody owns it.
    Free,
    /// Its owner's session is over.
    Orphaned,
}

impl Standing {
    /// How a partition is.
    pub fn of(partition: &PartitionView) -> Self {
        if partition.paused {
            return Self::Paused;
        }
        if partition.unserved.is_some() {
            return Self::Unserved;
        }
        let told = partition.assigned.is_some() && partition.assigned != partition.owner;
        let moves = partition.prepared_by.is_some() || told;
        match (&partition.owner, partition.owner_session) {
            (Some(_), Some(OwnerSession::Over)) => Self::Orphaned,
            (None, _) => Self::Free,
            (Some(_), _) if moves => Self::Moving,
            (Some(_), _) => Self::Served,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Moving => "moving",
            Self::Paused => "paused",
            Self::Unserved => "unserved",
            Self::Free => "free",
            Self::Orphaned => "owner gone",
        }
    }
}

/// Workers that are there or own something, as they are to be shown.
pub fn workers(app: &App) -> Vec<WorkerRow> {
    let mut sums: HashMap<&WorkerId, (Option<u64>, Option<f64>)> = HashMap::new();
    for partition in &app.group.partitions {
        if let Some(owner) = &partition.owner {
            let (lag, done) = sums.entry(owner).or_default();
            *lag = sum(*lag, partition.lag, u64::saturating_add);
            *done = sum(*done, app.done(&partition.id), |a, b| a + b);
        }
    }
    let find = &app.find[0];
    let shown = |worker: &&WorkerView| {
        (worker.owns > 0 || view::is_there(worker)) && worker.id.as_str().contains(find.as_str())
    };
    let workers = app.group.workers.iter().filter(shown);
    let mut rows: Vec<WorkerRow> = workers
        .map(|worker| {
            let silent_ms = worker.silent_ms(app.now_ms);
            let silent = view::is_silent(worker, app.now_ms);
            let (lag, done) = sums.get(&worker.id).copied().unwrap_or_default();
            WorkerRow {
                id: worker.id.clone(),
                mark: app.marks.of(&worker.id),
                leader: worker.leader,
                status: worker.status,
                health: match worker.status {
                    SessionStatus::Live if !silent && worker.degraded.is_none() => Health::Good,
                    SessionStatus::Live | SessionStatus::Leaving => Health::Odd,
                    _ => Health::Bad,
                },
                silent,
                silent_ms,
                owns: worker.owns,
                lag,
                done,
                // That it is silent is its status.
                note: view::note(worker, false),
            }
        })
        .collect();
    rows.sort_by_cached_key(|row| natural(row.id.as_str()));
    match app.worker_sort {
        WorkerSort::Id => {}
        WorkerSort::Partitions => rows.sort_by_key(|row| std::cmp::Reverse(row.owns)),
        WorkerSort::Lag => rows.sort_by_key(|row| std::cmp::Reverse(row.lag)),
        WorkerSort::Rate => rows.sort_by(|a, b| {
            let rate = |row: &WorkerRow| row.done.unwrap_or(-1.0);
            rate(b).total_cmp(&rate(a))
        }),
        WorkerSort::Beat => rows.sort_by_key(|row| std::cmp::Reverse(row.silent_ms)),
    }
    rows
}

fn sum<T: Copy>(before: Option<T>, more: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    match (before, more) {
        (Some(before), Some(more)) => Some(add(before, more)),
        (known, None) | (None, known) => known,
    }
}

/// How many partitions are how, by [`Standing`].
pub fn standings(partitions: &[PartitionView]) -> [usize; 6] {
    let mut counts = [0; 6];
    for partition in partitions {
        counts[Standing::of(partition) as usize] += 1;
    }
    counts
}

/// Places of the partitions that are to be shown, in order.
pub fn partitions(app: &App) -> Vec<usize> {
    let find = app.find[1].as_str();
    let all = app.group.partitions.iter().enumerate();
    let shown = all.filter(|(_, partition)| {
        let passes = match app.filter {
            Filter::All => true,
            Filter::Odd => Standing::of(partition) != Standing::Served,
            Filter::Worker => partition.owner == app.worker,
        };
        passes && partition.id.as_str().contains(find)
    });
    let mut order: Vec<usize> = shown.map(|(place, _)| place).collect();
    let partition = |place: &usize| &app.group.partitions[*place];
    match app.partition_sort {
        // A group has them by id.
        PartitionSort::Id => {}
        PartitionSort::Owner => order.sort_by_key(|place| {
            let owner = partition(place).owner.as_ref();
            owner.map_or((1, 0), |owner| (0, app.marks.of(owner).number))
        }),
        PartitionSort::Lag => order.sort_by_key(|place| std::cmp::Reverse(partition(place).lag)),
    }
    order
}

/// Sorts numbers at the end of an id by their value: worker-10 after worker-9.
pub fn natural(id: &str) -> (String, u64, String) {
    let stem = id.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = id[stem.len()..].parse().unwrap_or(u64::MAX);
    (stem.to_owned(), number, id.to_owned())
}

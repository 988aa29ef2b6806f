//! Weighted consistent hash with bounded load: the default.
//!
//! ```text
//!  keep      every partition stays with its previous owner, up to capacity
//!    │
//!  giants    a partition heavier than an even share gets a worker with no other giant
//!    │
//!  shed      workers above the bound give up what is too much; when some worker lacks load (a
//!    │       joiner), the fullest ones give up just what it lacks, first what hashes to it
//!    │
//!  place     heaviest first, along the ring: the first worker with room under an even share,
//!    │       else under the bound, else the least loaded
//!    │
//!  settle    where partitions are too coarse for that: single moves from the fullest to the
//!            emptiest, as long as both gain
//! ```
//!
//! Without previous owners the first and third step do nothing, and the rest is a pure function
//! of workers, partitions and capacity. With them, little moves: a loss moves what was lost and
//! nothing else, a join what the joiner lacks, and looking again moves nothing unless some worker
//! has more than the bound.

use super::level::{Level, Weights};
use super::ring::{Ring, partition_position};
use super::{Answer, Input, Strategy, settle, shed};

/// Virtual nodes per worker, where the configuration does not say.
pub const DEFAULT_VIRTUAL_NODES: u32 = 150;
/// More virtual nodes than this cost memory and gain nothing.
pub const MAX_VIRTUAL_NODES: u32 = 4096;

/// How many nodes of the ring are tried before the least loaded worker is taken. Bounds the time
/// for a partition when nearly all workers are full.
const PROBES: usize = 128;

/// Weighted consistent hash with virtual nodes and bounded load, sticky to previous owners.
///
/// - A worker's load stays within 1 % of an even share wherever the partitions' sizes allow it. A
///   partition heavier than an even share has a worker for itself.
/// - When partitions need an owner and no worker is new (a crash, a leave, new partitions), only
///   these are given out and nothing else moves. If heavy ones leave the loads uneven, asking
///   again with that answer as `previous` evens out.
/// - Without `previous` the answer is a pure function of workers, partitions and capacity.
///
/// Positions on the ring are XXH3 with 64 bits, for good, because they are part of the format: of
/// a partition, over the bytes of its id with seed 0; of virtual node `v`, over the bytes of the
/// worker's id with seed `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsistentHash {
    virtual_nodes: u32,
}

impl ConsistentHash {
    /// With so many virtual nodes per worker: at least 1, at most [`MAX_VIRTUAL_NODES`].
    pub fn new(virtual_nodes: u32) -> Self {
        Self {
            virtual_nodes: virtual_nodes.clamp(1, MAX_VIRTUAL_NODES),
        }
    }
}

impl Default for ConsistentHash {
    fn default() -> Self {
        Self::new(DEFAULT_VIRTUAL_NODES)
    }
}

impl Strategy for ConsistentHash {
    fn name(&self) -> String {
        format!("consistent_hash(virtual_nodes={})", self.virtual_nodes)
    }

    fn assign(&self, input: Input<'_>) -> Answer {
        if input.workers.is_empty() || input.partitions.is_empty() {
            return Answer::nobody(input);
        }
        let weights = Weights::new(input);
        let level = Level::new(&weights, input.workers.len());
        let (ring, homes) = self.homes(input);
        let mut draft = Draft::new(input, &weights, level);

        let change = draft.keep_previous();
        let kept_all = draft.owners.iter().all(Option::is_some);
        let unevenness_before = draft.unevenness();
        draft.seat_giants(&ring, &homes, change);
        if let Change::Join | Change::Nothing = change {
            shed::shed(&mut draft, &ring, &homes);
        }
        draft.place_all(&ring, &homes);
        if change != Change::Loss {
            settle::settle(&mut draft, &ring, &homes);
        }

        // Never move for nothing: an answer is strictly more even than what it replaces, so that
        // replanning comes to rest.
        let owners = if kept_all && unevenness_before <= draft.unevenness() {
            input.previous[..input.partitions.len()].to_vec()
        } else {
            draft.owners
        };
        Answer { owners }
    }
}

impl ConsistentHash {
    /// The ring, and the node where each partition's walk begins.
    fn homes(&self, input: Input<'_>) -> (Ring, Vec<u32>) {
        let ring = Ring::new(input.workers, self.virtual_nodes);
        let homes = (input.partitions.iter())
            .map(|partition| ring.first_node(partition_position(partition)))
            .collect();
        (ring, homes)
    }
}

/// What happened to the previous owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// There are none: a start from scratch.
    Start,
    /// Some partitions need an owner, and nobody is new: only these move. Should that leave the
    /// loads uneven, the next look finds [`Change::Nothing`], and puts it right if that is worth
    /// moving what was not lost.
    Loss,
    /// A worker has nothing yet and should get its share.
    Join,
    /// Every partition has its owner: whatever moves, moves for balance.
    Nothing,
}

/// What a worker has in the answer so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seat {
    /// The sum of its partitions' weights.
    pub load: u64,
    /// How many partitions.
    pub count: u32,
    /// The weight of the one giant it holds, or zero.
    pub giant: u64,
}

/// An answer in the making.
pub(super) struct Draft<'a> {
    input: Input<'a>,
    pub weights: &'a Weights,
    pub level: Level,
    pub owners: Vec<Option<u32>>,
    pub seats: Vec<Seat>,
    capacity: u32,
    /// How many workers still lack load; while there are any, only they are given more.
    pub lacking: usize,
}

impl<'a> Draft<'a> {
    fn new(input: Input<'a>, weights: &'a Weights, level: Level) -> Self {
        Self {
            input,
            weights,
            level,
            owners: vec![None; input.partitions.len()],
            seats: vec![Seat::default(); input.workers.len()],
            capacity: input.capacity_or_unlimited(),
            lacking: 0,
        }
    }

    pub fn weight(&self, partition: u32) -> u64 {
        self.weights.of[partition as usize]
    }

    pub fn owner(&self, partition: u32) -> Option<u32> {
        self.owners[partition as usize]
    }

    pub fn seat(&self, worker: u32) -> &Seat {
        &self.seats[worker as usize]
    }

    pub fn has_room(&self, worker: u32) -> bool {
        self.seat(worker).count < self.capacity
    }

    pub fn give(&mut self, partition: u32, worker: u32) {
        let weight = self.weight(partition);
        let seat = &mut self.seats[worker as usize];
        seat.load += weight;
        seat.count += 1;
        self.owners[partition as usize] = Some(worker);
    }

    pub fn take_back(&mut self, partition: u32) {
        let weight = self.weight(partition);
        if let Some(worker) = self.owners[partition as usize].take() {
            let seat = &mut self.seats[worker as usize];
            seat.load -= weight;
            seat.count -= 1;
        }
    }

    /// The sum of squared loads: smaller is more even.
    fn unevenness(&self) -> u128 {
        let squares = self.seats.iter().map(|seat| u128::from(seat.load).pow(2));
        squares.sum()
    }

    /// Everybody keeps what it has, the heaviest first where capacity shrank.
    fn keep_previous(&mut self) -> Change {
        if self.input.previous.is_empty() || crate::planted!(StrategyIgnoresPrevious) {
            return Change::Start;
        }
        let mut kept = 0;
        for partition in &self.weights.order {
            if let Some(owner) = self.input.previous_owner(*partition as usize)
                && self.has_room(owner)
            {
                self.give(*partition, owner);
                kept += 1;
            }
        }
        let someone_is_new = (0u32..)
            .zip(&self.seats)
            .any(|(worker, seat)| seat.count == 0 && self.lacks(worker));
        if kept == 0 {
            Change::Start
        } else if someone_is_new {
            Change::Join
        } else if kept < self.owners.len() {
            Change::Loss
        } else {
            Change::Nothing
        }
    }

    /// Gives each giant a worker without another giant: its own, or the least loaded one (the
    /// first of those along the ring).
    fn seat_giants(&mut self, ring: &Ring, homes: &[u32], change: Change) {
        let weights = self.weights;
        let giants = &weights.order[..self.level.giants];
        let mut homeless = Vec::new();
        for giant in giants.iter().copied() {
            match self.owner(giant) {
                Some(worker) if self.seat(worker).giant == 0 => {
                    self.seats[worker as usize].giant = self.weight(giant);
                }
                Some(_) if change == Change::Loss => {}
                _ => homeless.push(giant),
            }
        }
        for giant in homeless {
            let fits =
                |draft: &Self, worker: u32| draft.seat(worker).giant == 0 && draft.has_room(worker);
            let free = (0..self.seats.len() as u32).filter(|worker| fits(self, *worker));
            let Some(least) = free.map(|worker| self.seat(worker).load).min() else {
                continue; // no room for it there: it is placed like the others
            };
            let first = ring
                .walk(homes[giant as usize])
                .find(|worker| fits(self, *worker) && self.seat(*worker).load == least);
            if let Some(worker) = first {
                self.take_back(giant);
                self.give(giant, worker);
                self.seats[worker as usize].giant = self.weight(giant);
            }
        }
    }

    pub fn lacks(&self, worker: u32) -> bool {
        self.seat(worker).load < self.level.low && self.has_room(worker)
    }

    /// Gives an owner to everything that has none, heaviest first.
    fn place_all(&mut self, ring: &Ring, homes: &[u32]) {
        let weights = self.weights;
        for partition in weights.order.iter().copied() {
            if self.owner(partition).is_some() {
                continue;
            }
            if let Some(worker) = self.choose(partition, ring, homes[partition as usize]) {
                let lacked = self.seat(worker).load < self.level.low;
                self.give(partition, worker);
                if lacked && self.seat(worker).load >= self.level.low {
                    self.lacking = self.lacking.saturating_sub(1);
                }
            }
        }
    }

    /// Who should get this partition. None only when nobody has room.
    fn choose(&self, partition: u32, ring: &Ring, home: u32) -> Option<u32> {
        let weight = self.weight(partition);
        let level = self.level;
        let only_below = if self.lacking > 0 {
            level.low
        } else {
            u64::MAX
        };
        let mut under_bound = None;
        for worker in ring.walk(home).take(PROBES) {
            let seat = self.seat(worker);
            let after = seat.load + weight;
            if after > level.high || seat.count >= self.capacity {
                continue;
            }
            if after <= level.share && seat.load < only_below {
                return Some(worker);
            }
            under_bound = under_bound.or(Some(worker));
        }
        let least = self.least_loaded()?;
        if self.seat(least).load + weight <= level.share {
            return Some(least);
        }
        if crate::planted!(StrategyDropsWhatDoesNotFit) {
            return None;
        }
        // It fits nowhere under an even share: then better not move it at all.
        let previous = self.input.previous_owner(partition as usize);
        let stays = previous.filter(|owner| {
            let load = self.seat(*owner).load;
            let harmless = load + weight <= level.high || load <= self.seat(least).load;
            harmless && self.has_room(*owner)
        });
        stays.or(under_bound).or(Some(least))
    }

    fn least_loaded(&self) -> Option<u32> {
        let with_room = (0u32..)
            .zip(&self.seats)
            .filter(|(_, seat)| seat.count < self.capacity);
        let least = with_room.min_by_key(|(_, seat)| seat.load);
        least.map(|(worker, _)| worker)
    }
}

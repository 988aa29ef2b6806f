//! The hash ring: virtual nodes on a circle of 64-bit positions.
//!
//! Positions are part of the format, because the workers of a leaderless group must all compute
//! the same ones. They are XXH3 with 64 bits, for good:
//!
//! ```text
//!  virtual node v of worker w:  xxh3_64(bytes of w's id, seed = v)
//!  partition p:                 xxh3_64(bytes of p's id, seed = 0)
//! ```
//!
//! A partition belongs to the first virtual node at or after its position; after the last comes
//! the first. Where two workers' nodes meet, the worker that sorts first comes first.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::ids::WorkerId;
use crate::partition::Partition;

/// Where a worker's virtual node lies.
pub(super) fn node_position(worker: &WorkerId, virtual_node: u32) -> u64 {
    xxh3_64_with_seed(worker.as_str().as_bytes(), u64::from(virtual_node))
}

/// Where a partition lies.
pub(super) fn partition_position(partition: &Partition) -> u64 {
    xxh3_64(partition.id.as_str().as_bytes())
}

/// The virtual nodes in order of position, with an index by the position's leading bits: a lookup
/// costs about one step instead of a binary search.
pub(super) struct Ring {
    positions: Vec<u64>,
    workers: Vec<u32>,
    /// Where each bucket begins, and at the end the number of nodes.
    buckets: Vec<u32>,
    shift: u32,
}

impl Ring {
    pub fn new(workers: &[WorkerId], virtual_nodes: u32) -> Self {
        let nodes = workers.len() * virtual_nodes as usize;
        let bits = nodes.next_power_of_two().ilog2().max(1);
        let shift = u64::BITS - bits;

        let mut unsorted = Vec::with_capacity(nodes);
        let mut buckets = vec![0u32; (1 << bits) + 1];
        for worker in workers {
            for virtual_node in 0..virtual_nodes {
                let position = node_position(worker, virtual_node);
                buckets[(position >> shift) as usize] += 1;
                unsorted.push(position);
            }
        }
        let mut end = 0;
        for bucket in &mut buckets {
            end += *bucket;
            *bucket = end;
        }

        // From the back, so that every bucket's end becomes its beginning, and equals keep the
        // workers' order.
        let mut positions = vec![0; nodes];
        let mut owners = vec![0; nodes];
        for (node, position) in unsorted.into_iter().enumerate().rev() {
            let bucket = &mut buckets[(position >> shift) as usize];
            *bucket -= 1;
            positions[*bucket as usize] = position;
            owners[*bucket as usize] = (node / virtual_nodes as usize) as u32;
        }
        // What is in the right bucket is nearly in place.
        for node in 1..nodes {
            let mut at = node;
            while at > 0 && positions[at - 1] > positions[at] {
                positions.swap(at - 1, at);
                owners.swap(at - 1, at);
                at -= 1;
            }
        }
        Self {
            positions,
            workers: owners,
            buckets,
            shift,
        }
    }

    /// The first node at or after this position.
    pub fn first_node(&self, position: u64) -> u32 {
        let bucket = (position >> self.shift) as usize;
        let (begin, end) = (self.buckets[bucket], self.buckets[bucket + 1]);
        let nodes = &self.positions[begin as usize..end as usize];
        let before = nodes.iter().take_while(|node| **node < position).count();
        let node = begin as usize + before;
        if node == self.positions.len() {
            0
        } else {
            node as u32
        }
    }

    /// Whose node this is.
    pub fn worker(&self, node: u32) -> u32 {
        self.workers[node as usize]
    }

    /// The workers of the nodes from this one on, once around. A worker comes up as often as it
    /// has nodes.
    pub fn walk(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let (before, after) = self.workers.split_at(node as usize);
        after.iter().chain(before).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn positions_are_part_of_the_format() {
        let worker = WorkerId::new("worker-7");
        let nodes = [0, 1, 149].map(|v| node_position(&worker, v));
        assert_eq!(
            nodes,
            [
                2_333_517_552_244_684_500,
                592_548_212_939_222_343,
                4_894_596_632_487_153_108,
            ]
        );
        let case = Case::equal(0, 2);
        let partitions = [0, 1].map(|p| partition_position(&case.partitions[p]));
        assert_eq!(
            partitions,
            [16_744_699_468_010_326_410, 16_295_424_791_227_945_158]
        );
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2); // the reference's own vector
        assert_eq!(case.partitions[1].id.as_str(), "p000001");
    }

    #[test]
    fn nodes_are_in_order_and_all_there() {
        for (workers, virtual_nodes) in [(1, 1), (1, 2), (3, 7), (64, 150)] {
            let case = Case::equal(workers, 0);
            let ring = Ring::new(&case.workers, virtual_nodes);
            let mut expected: Vec<(u64, u32)> = (0u32..)
                .zip(&case.workers)
                .flat_map(|(index, worker)| {
                    (0..virtual_nodes).map(move |v| (node_position(worker, v), index))
                })
                .collect();
            expected.sort_unstable();
            let found: Vec<(u64, u32)> = (ring.positions.iter().copied())
                .zip(ring.workers.iter().copied())
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_lookup_finds_what_a_search_would() {
        let case = Case::equal(5, 0);
        let ring = Ring::new(&case.workers, 9);
        let mut rng = Rng::new(1);
        let drawn = (0..2000).map(|_| rng.next_u64());
        let edges = ring.positions.iter().flat_map(|p| [*p, p.wrapping_add(1)]);
        for position in drawn.chain(edges).chain([0, u64::MAX]) {
            let searched = ring.positions.partition_point(|node| *node < position);
            assert_eq!(
                ring.first_node(position) as usize,
                searched % ring.positions.len()
            );
        }
    }

    #[test]
    fn a_walk_goes_once_around() {
        let case = Case::equal(3, 0);
        let ring = Ring::new(&case.workers, 4);
        let walked: Vec<u32> = ring.walk(10).collect();
        assert_eq!(walked.len(), 12);
        assert_eq!(walked[0], ring.worker(10));
        assert_eq!(walked[2], ring.worker(0));
    }
}

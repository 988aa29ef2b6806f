//! The memory that the default strategy takes for a large group, counted by the allocator. A test
//! binary of its own, because the count is one for the whole process.

use parti_core::ids::{PartitionId, WorkerId};
use parti_core::partition::Partition;
use parti_core::strategy::{ConsistentHash, Input, Strategy};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[test]
fn a_thousand_workers_with_a_hundred_thousand_partitions_take_12_mb_at_most() {
    let mut workers: Vec<WorkerId> = (0..1000)
        .map(|n| WorkerId::new(format!("worker-{n}")))
        .collect();
    workers.sort();
    for heavy in [1, 100] {
        let partitions: Vec<Partition> = (0..100_000)
            .map(|n| Partition {
                keys: Vec::new(),
                weight: if n % 20 == 7 { heavy } else { 1 },
                id: PartitionId::new(format!("p{n:06}")),
            })
            .collect();
        let input = Input {
            workers: &workers,
            partitions: &partitions,
            previous: &[],
            capacity: None,
        };
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let answer = ConsistentHash::default().assign(input);
        let peak = MEMORY.peak_usage() - before;
        assert_eq!(answer.owners.len(), 100_000);
        assert!(peak <= 12_000_000, "{peak} bytes");
        assert!(peak >= 1_000_000, "{peak} bytes: was anything counted?");
    }
}

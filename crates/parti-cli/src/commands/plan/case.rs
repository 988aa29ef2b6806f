//! Who there is, and who has what now.

use std::collections::BTreeMap;
use std::sync::Arc;

use parti::core::codec;
use parti::core::partition::{self, MAX_PARTITIONS};
use parti::{Config, FilePartitions, Partition, PartitionId, PartitionSource, WorkerId};

use super::Args;
use crate::exit::Failure;
use crate::flags::GroupFlags;
use crate::places;
use crate::view::is_there;

/// The most workers that make sense.
const MAX_WORKERS: u32 = 100_000;

/// Workers and partitions, with who serves what now.
#[derive(Clone, Debug)]
pub struct Case {
    /// Sorted, as strategies want them.
    pub workers: Vec<WorkerId>,
    /// Sorted by id.
    pub partitions: Arc<[Partition]>,
    /// Who serves each partition now; `None`: each strategy starts from its own answer.
    pub owners: Option<BTreeMap<PartitionId, WorkerId>>,
}

impl Case {
    /// What the flags say before any change.
    pub async fn read(args: &Args) -> Result<Self, Failure> {
        match (&args.store, &args.group) {
            (Some(store), Some(group)) => {
                let flags = GroupFlags {
                    store: store.clone(),
                    group: group.clone(),
                };
                Self::of_group(&flags, args.partitions_file.as_deref()).await
            }
            _ => Self::of_numbers(args).await,
        }
    }

    async fn of_group(flags: &GroupFlags, file: Option<&str>) -> Result<Self, Failure> {
        let group = places::group(&places::records(flags).await?).await?;
        let there = group.workers.iter().filter(|worker| is_there(worker));
        let workers = there.map(|worker| worker.id.clone()).collect();
        let owners = group.partitions.iter().filter_map(|partition| {
            let owner = partition.owner.as_ref().filter(|_| partition.is_served());
            Some((partition.id.clone(), owner?.clone()))
        });
        let owners = owners.collect();
        let partitions = match file {
            Some(file) => listed(file).await?,
            None => {
                let known = group.partitions.iter().map(|partition| {
                    let keys = codec::keys_of(partition.id.as_str()).unwrap_or_default();
                    Partition::new(keys, None).map_err(Failure::failed)
                });
                sorted(known.collect::<Result<_, _>>()?)?
            }
        };
        Ok(Self {
            workers: in_order(workers),
            partitions,
            owners: Some(owners),
        })
    }

    async fn of_numbers(args: &Args) -> Result<Self, Failure> {
        let count = args.workers.unwrap_or(0);
        at_most("--workers", count, MAX_WORKERS)?;
        let partitions = match (&args.partitions_file, args.partitions) {
            (Some(file), _) => listed(file).await?,
            (None, number) => {
                let most = u32::try_from(MAX_PARTITIONS).unwrap_or(u32::MAX);
                at_most("--partitions", number.unwrap_or(0), most)?;
                partition::numbered(number.unwrap_or(0))
            }
        };
        let prefix = Config::default().worker_id_prefix;
        let workers = (0..u64::from(count)).map(|number| codec::worker_id(&prefix, number));
        Ok(Self {
            workers: in_order(workers.collect()),
            partitions,
            owners: None,
        })
    }

    /// The same after what the flags change.
    pub fn changed(&self, args: &Args) -> Result<Self, Failure> {
        let mut workers = self.workers.clone();
        for name in &args.remove {
            let Some(place) = workers.iter().position(|worker| worker.as_str() == name) else {
                let known: Vec<&str> = self.workers.iter().map(|id| id.as_str()).collect();
                return Err(Failure::usage(format!(
                    "--remove {name}: there is no such worker; there are {}",
                    known.join(", ")
                )));
            };
            workers.remove(place);
        }
        at_most("--add", args.add, MAX_WORKERS)?;
        let prefix = Config::default().worker_id_prefix;
        let mut numbers = 0..;
        for _ in 0..args.add {
            // The lowest number that was free before, as a worker that starts takes it.
            let free = numbers
                .by_ref()
                .map(|number| codec::worker_id(&prefix, number));
            let mut free = free.filter(|id| !self.workers.contains(id));
            workers.extend(free.next());
        }
        let mut partitions = self.partitions.to_vec();
        for (id, weight) in &args.weigh {
            let Ok(place) = partitions.binary_search_by(|known| known.id.cmp(id)) else {
                return Err(Failure::usage(format!(
                    "--weigh {id}={weight}: there is no such partition"
                )));
            };
            partitions[place].weight = *weight;
        }
        Ok(Self {
            workers: in_order(workers),
            partitions: partitions.into(),
            owners: self.owners.clone(),
        })
    }
}

/// Strategies want workers in order.
fn in_order(mut workers: Vec<WorkerId>) -> Vec<WorkerId> {
    workers.sort();
    workers.dedup();
    workers
}

fn at_most(flag: &str, number: u32, most: u32) -> Result<(), Failure> {
    if number > most {
        return Err(Failure::usage(format!(
            "{flag} {number}: the most is {most}"
        )));
    }
    Ok(())
}

async fn listed(file: &str) -> Result<Arc<[Partition]>, Failure> {
    let wrong = |error| Failure::usage(format!("--partitions-file {error}"));
    sorted(FilePartitions::new(file).list().await.map_err(wrong)?)
}

fn sorted(partitions: Vec<Partition>) -> Result<Arc<[Partition]>, Failure> {
    partition::list(partitions).map_err(Failure::usage)
}

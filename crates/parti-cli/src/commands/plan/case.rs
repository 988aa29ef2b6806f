//! Who there is, and who has what now.

use std::sync::Arc;

use parti::core::partition::{self, MAX_PARTITIONS};
use parti::inspect::whatif::{Case, Wish};
use parti::{FilePartitions, Partition, PartitionSource};

use super::Args;
use crate::exit::Failure;
use crate::flags::GroupFlags;
use crate::places;

/// What the flags say before any change.
pub async fn read(args: &Args) -> Result<Case, Failure> {
    let listed = match &args.partitions_file {
        Some(file) => Some(listed(file).await?),
        None => None,
    };
    if let (Some(store), Some(group)) = (&args.store, &args.group) {
        let flags = GroupFlags {
            store: store.clone(),
            group: group.clone(),
        };
        let group = places::group(&places::records(&flags).await?).await?;
        return Case::of(&group, listed).map_err(Failure::usage);
    }
    let partitions = match (listed, args.partitions.unwrap_or(0)) {
        (Some(listed), _) => listed,
        (None, count) if count as usize > MAX_PARTITIONS => {
            return Err(Failure::usage(format!(
                "--partitions {count}: the most is {MAX_PARTITIONS}"
            )));
        }
        (None, count) => partition::numbered(count),
    };
    Case::numbered(args.workers.unwrap_or(0), partitions).map_err(flag)
}

/// The same after what the flags change.
pub fn changed(case: &Case, args: &Args) -> Result<Case, Failure> {
    let wish = Wish {
        add: args.add,
        remove: args.remove.clone(),
        weights: args.weigh.clone(),
    };
    case.changed(&wish).map_err(flag)
}

/// What cannot be was given by a flag.
fn flag(problems: impl ToString) -> Failure {
    let problems = problems.to_string();
    Failure::usage(format!("--{}", problems.replace("weights:", "weigh:")))
}

async fn listed(file: &str) -> Result<Arc<[Partition]>, Failure> {
    let wrong = |error| Failure::usage(format!("--partitions-file {error}"));
    let listed = FilePartitions::new(file).list().await.map_err(wrong)?;
    partition::list(listed).map_err(Failure::usage)
}

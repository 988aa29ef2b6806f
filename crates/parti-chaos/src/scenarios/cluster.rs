//! Three servers: leaders change, and nodes go away.

use std::time::Duration;

use tokio::task::block_in_place;

use crate::failure::Failure;
use crate::ledger::{Facts, PATIENCE};
use crate::line::Event;
use crate::stage::{Needs, STREAM, Stage};

/// A step of a move: its name, and how it is known among what workers tell.
type Step = (&'static str, fn(&Event) -> bool);

/// The steps of a move.
const STEPS: [Step; 4] = [
    ("an assignment", |event| {
        matches!(event, Event::Assigned { .. })
    }),
    ("a preparation", |event| {
        matches!(
            event,
            Event::Assigned { prepare: 1.., .. } | Event::Taken { .. }
        )
    }),
    ("a release", |event| matches!(event, Event::Released { .. })),
    ("a take", |event| matches!(event, Event::Taken { .. })),
];

impl Stage {
    /// Has every worker's consumer choose another leader.
    async fn step_down(&self, processes: &[usize]) {
        for process in processes {
            let Ok(durable) = self.durable(*process) else {
                continue;
            };
            let call = format!("$JS.API.CONSUMER.LEADER.STEPDOWN.{STREAM}.{durable}");
            // A consumer that is not there at the moment has no leader to change.
            let asked = self.client.request(call, "".into());
            let _ = tokio::time::timeout(Duration::from_secs(2), asked).await;
        }
    }
}

/// A worker joins and leaves once for each step; at that step, all consumers change their leader.
pub async fn step_down(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let hired = stage.hire(2).await?;
    stage.next_of_all(3).await?;
    for (what, is_step) in STEPS {
        let mut all = hired.clone();
        let before = stage.ledger.facts().count(is_step);
        let third = stage.spawn(&[])?;
        all.push(third);
        let came = |facts: &Facts| facts.count(is_step) > before;
        stage.ledger.until(what, came).await?;
        stage.step_down(&all).await;
        stage.handles(third).await?;
        stage.next_of_all(2).await?;
        let before = stage.ledger.facts().count(is_step);
        stage.crew.ask_to_leave(third)?;
        let came = |facts: &Facts| facts.count(is_step) > before;
        stage.ledger.until(what, came).await?;
        stage.step_down(&all).await;
        stage.crew.left(third).await?;
        stage.next_of_all(2).await?;
    }
    stage.finish().await
}

/// Sessions outlast the time that a replicated store takes to choose another leader (up to 8 s), and
/// not by much.
pub fn brief_sessions() -> Needs {
    Needs {
        ttl: Duration::from_secs(15),
        ..Needs::cluster()
    }
}

/// What happens to a node.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Kill,
    Pause,
    Isolate,
}

/// The stream's leader goes away in three ways. The group does not even notice.
pub async fn node_away(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let _ = stage.hire(3).await?;
    stage.next_of_all(3).await?;
    let before = stage.epochs().await?;
    for harm in [Harm::Kill, Harm::Pause, Harm::Isolate] {
        let node = stage.leading_node()?;
        let cluster = stage.servers.cluster()?;
        block_in_place(|| match harm {
            Harm::Kill => cluster.node(node).kill(),
            Harm::Pause => cluster.node(node).pause(),
            Harm::Isolate => cluster.isolate(node),
        });
        stage.next_of_all(3).await?;
        let cluster = stage.servers.cluster()?;
        block_in_place(|| {
            match harm {
                Harm::Kill => cluster.node(node).restart(),
                Harm::Pause => cluster.node(node).resume(),
                Harm::Isolate => cluster.heal(node),
            }
            cluster.wait_until_serving();
        });
        stage.next_of_all(3).await?;
    }
    stage.drain().await?;
    let after = stage.epochs().await?;
    if before != after {
        return Err(Failure::new(format!(
            "partitions moved: plan and epochs were {before:?} and are {after:?}"
        )));
    }
    stage.finish().await
}

impl Stage {
    fn leading_node(&mut self) -> Result<usize, Failure> {
        let begun = std::time::Instant::now();
        let cluster = self.servers.cluster()?;
        block_in_place(|| {
            loop {
                if let Some(leader) = cluster.leader_of(STREAM) {
                    return Ok(leader);
                }
                if begun.elapsed() > PATIENCE {
                    return Err(Failure::new("nobody leads the stream"));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    }

    /// The plan's version, and the sum of all epochs: both grow with every rebalance.
    async fn epochs(&self) -> Result<(u64, u64), Failure> {
        let group = self.group().await?;
        let epochs = group.partitions.iter().map(|partition| partition.epoch.0);
        let version = group.plan.map_or(0, |plan| plan.version.0);
        Ok((version, epochs.sum()))
    }
}

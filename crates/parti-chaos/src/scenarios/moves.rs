//! Workers come and go in peace: nothing is repeated.

use crate::failure::Failure;
use crate::stage::{Needs, Stage};

/// Only three partitions.
pub fn three_partitions() -> Needs {
    Needs {
        partitions: Some(3),
        ..Needs::default()
    }
}

/// Two workers join.
pub async fn join(stage: &mut Stage) -> Result<(), Failure> {
    // With a backlog, so that positions lie apart.
    stage.load().await?;
    let _ = stage.hire(2).await?;
    stage.next_of_all(3).await?;
    stage.join().await?;
    stage.next_of_all(3).await?;
    stage.join().await?;
    stage.next_of_all(3).await?;
    stage.finish().await
}

/// Two workers leave.
pub async fn leave(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let hired = stage.hire(4).await?;
    stage.next_of_all(3).await?;
    let leader = stage.leader().await?;
    let follower = hired.into_iter().find(|process| *process != leader);
    let follower = follower.ok_or_else(|| Failure::new("everybody leads"))?;
    stage.crew.leave(follower).await?;
    stage.next_of_all(3).await?;
    stage.crew.leave(leader).await?;
    stage.next_of_all(3).await?;
    stage.finish().await
}

/// More workers than partitions: those with work leave, others take over.
pub async fn six_on_three(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let hired = stage.hire(6).await?;
    for _ in 0..2 {
        stage.next_of_all(20).await?;
        let running = stage.crew.running();
        let busy = {
            let facts = stage.ledger.facts();
            let mut hired = hired.iter().filter(|process| running.contains(process));
            hired
                .find(|process| facts.handled_by(**process) > 0)
                .copied()
        };
        let busy = busy.ok_or_else(|| Failure::new("nobody has work"))?;
        stage.crew.leave(busy).await?;
    }
    stage.next_of_all(20).await?;
    stage.finish().await
}

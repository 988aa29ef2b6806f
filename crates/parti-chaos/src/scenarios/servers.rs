//! The server, the consumers or the stream go away.

use tokio::task::block_in_place;

use crate::failure::{Failure, While};
use crate::line::Event;
use crate::stage::{STREAM, Stage, insist};

/// The server is killed when a third worker has its id, and again when it has its partitions.
pub async fn restart(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let _ = stage.hire(2).await?;
    stage.next_of_all(3).await?;
    let third = stage.spawn(&[])?;
    stage
        .ledger
        .until("a third session", |facts| facts.id_of(third).is_some())
        .await?;
    stage.restart_server()?;
    stage
        .ledger
        .until("a partition for the third", |facts| {
            let mut own = facts.said_by(third);
            own.any(|event| matches!(event, Event::Taken { .. }))
        })
        .await?;
    stage.restart_server()?;
    stage.handles(third).await?;
    stage.next_of_all(3).await?;
    stage.finish().await
}

impl Stage {
    fn restart_server(&mut self) -> Result<(), Failure> {
        let server = self.servers.one()?;
        block_in_place(|| server.restart());
        Ok(())
    }
}

/// Both consumers are deleted, twice.
pub async fn consumer_deleted(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let hired = stage.hire(2).await?;
    let context = stage.context();
    for _ in 0..2 {
        stage.next_of_all(3).await?;
        let stream = context.get_stream(STREAM).await.during("finding S")?;
        for process in &hired {
            let durable = stage.durable(*process)?;
            let deleted = stream.delete_consumer(&durable).await;
            // Server 2.10 complains of its own folder when it still writes there; the consumer is
            // gone all the same.
            if !matches!(&deleted, Err(error) if error.to_string().contains("directory not empty"))
            {
                deleted.during("deleting a consumer")?;
            }
        }
    }
    stage.next_of_all(5).await?;
    stage.finish().await
}

/// Offsets of the new stream mean nothing to the old checkpoints: workers end, and newcomers are
/// refused.
pub async fn stream_replaced(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let mut workers = stage.hire(2).await?;
    stage.next_of_all(3).await?;
    stage.drain().await?;
    let context = stage.context();
    insist("deleting the stream", async || {
        context.delete_stream(STREAM).await
    })
    .await?;
    stage.make_stream().await?;
    for newcomer in [false, true] {
        if newcomer {
            workers = vec![stage.spawn(&[])?];
        }
        for process in &workers {
            let in_peace = stage.crew.gone(*process).await?;
            let facts = stage.ledger.facts();
            let why = facts.end_of(*process).cloned().flatten();
            let why = why.unwrap_or_default();
            if in_peace || !why.contains("recreated") {
                return Err(Failure::new(format!(
                    "a worker ended without saying that the stream is another one: {why:?}"
                )));
            }
        }
    }
    Ok(())
}

//! Handlers misbehave: one partition waits, the others go on.

use crate::args::Place;
use crate::failure::{Failure, While};
use crate::line::Event;
use crate::stage::{STREAM, Stage, insist};

const PLACE: Place = Place {
    partition: 1,
    number: 10,
};

/// A message that always fails.
pub async fn poison(stage: &mut Stage) -> Result<(), Failure> {
    refused(stage, "--fail-on").await
}

/// A message on which the handler panics.
pub async fn panic(stage: &mut Stage) -> Result<(), Failure> {
    refused(stage, "--panic-on").await
}

async fn refused(stage: &mut Stage, manner: &str) -> Result<(), Failure> {
    stage.load().await?;
    let _ = stage.hire_with(3, &[manner, &PLACE.to_string()]).await?;
    stage
        .ledger
        .until("the partition goes on", |facts| {
            facts.done_of(PLACE.partition) > PLACE.number + 3
        })
        .await?;
    stage.next_of_all(3).await?;
    stage.finish().await?;
    stage.one_dead_letter().await
}

/// A message that takes long; meanwhile a worker joins, and partitions move.
pub async fn slow(stage: &mut Stage) -> Result<(), Failure> {
    let (place, length) = (
        PLACE.to_string(),
        format!("{}ms", stage.run.slow.as_millis()),
    );
    let manners = ["--slow-on", place.as_str(), "--slow-for", length.as_str()];
    stage.load().await?;
    let _ = stage.hire_with(2, &manners).await?;
    stage
        .ledger
        .until("the slow message", |facts| {
            facts.done_of(PLACE.partition) >= PLACE.number
        })
        .await?;
    let joined = stage.hire_with(1, &manners).await?;
    stage.handles(joined[0]).await?;
    stage
        .ledger
        .until("the end of the slow message", |facts| {
            facts.done_of(PLACE.partition) > PLACE.number
        })
        .await?;
    stage.next_of_all(3).await?;
    stage.finish().await
}

impl Stage {
    /// Exactly the one message that nobody can handle is in the dead letters.
    pub async fn one_dead_letter(&self) -> Result<(), Failure> {
        let context = self.context();
        let letters = format!("{STREAM}-dlq");
        let mut stream = insist("looking at the dead letters", async || {
            context.get_stream(&letters).await
        })
        .await?;
        let info = stream.info().await.during("looking at the dead letters")?;
        let (kept, first) = (info.state.messages, info.state.first_sequence);
        if kept != 1 {
            return Err(Failure::new(format!("{kept} dead letters instead of 1")));
        }
        let letter = stream.get_raw_message(first).await.during("reading it")?;
        let header = |name: &str| letter.headers.get(name).map(ToString::to_string);
        let told = self.ledger.facts().count(|event| {
            let Event::DeadLettered {
                partition, offset, ..
            } = event
            else {
                return false;
            };
            header("Parti-Origin-Offset") == Some(offset.to_string())
                && header("Parti-Origin-Partition") == Some(partition.to_string())
        });
        if told == 0 {
            return Err(Failure::new("the dead letter is not the one that was told"));
        }
        Ok(())
    }
}

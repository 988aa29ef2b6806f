//! The connection of one worker dies; its session outlives that.

use std::time::Duration;

use parti_servers::proxy::Proxy;
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::failure::{Failure, While};
use crate::line::Event;
use crate::stage::{STREAM, Stage};

/// How long to wait for the server to have carried out an update whose answer is held back.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(3);

impl Stage {
    /// One worker behind a proxy, and one beside it.
    async fn behind_a_proxy(&mut self) -> Result<(usize, Proxy), Failure> {
        let proxy = self.servers.proxy()?;
        self.load().await?;
        let arguments = self.arguments_at(&proxy.address());
        let worker = self.crew.spawn(&arguments)?;
        self.started(worker).await?;
        self.join().await?;
        self.handles(worker).await?;
        self.next_of_all(3).await?;
        Ok((worker, proxy))
    }

    fn assignments_of(&self, process: usize) -> usize {
        let facts = self.ledger.facts();
        let own = facts.said_by(process);
        own.filter(|event| matches!(event, Event::Assigned { .. }))
            .count()
    }

    /// How many subjects a worker's consumer delivers.
    async fn filters_of(&self, process: usize) -> Result<usize, Failure> {
        let context = self.context();
        let stream = context.get_stream(STREAM).await.during("finding S")?;
        let info = stream.consumer_info(self.durable(process)?).await;
        // Between a deletion and a creation there is none.
        Ok(info.map_or(0, |info| info.config.filter_subjects.len()))
    }

    /// Waits until a worker has a new assignment; then lets nothing come back to it, waits until
    /// the server has carried out what it asked for, and cuts it off.
    async fn cut_in_the_next_update(
        &mut self,
        process: usize,
        proxy: &mut Proxy,
        assignments: usize,
        hold: bool,
    ) -> Result<(), Failure> {
        let before = self.filters_of(process).await?;
        self.ledger
            .until("a new assignment", |facts| {
                let own = facts.said_by(process);
                own.filter(|event| matches!(event, Event::Assigned { .. }))
                    .count()
                    > assignments
            })
            .await?;
        if hold {
            proxy.stall_replies();
            let begun = Instant::now();
            while begun.elapsed() < CARRIED_OUT_WITHIN && self.filters_of(process).await? == before
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        block_in_place(|| {
            proxy.cut();
            proxy.heal();
        });
        Ok(())
    }
}

/// Others join and leave; the worker's own consumer has to change each time.
pub async fn cut_update(stage: &mut Stage) -> Result<(), Failure> {
    let (worker, mut proxy) = stage.behind_a_proxy().await?;
    for hold in [true, false] {
        let assignments = stage.assignments_of(worker);
        let third = stage.spawn(&[])?;
        stage
            .cut_in_the_next_update(worker, &mut proxy, assignments, hold)
            .await?;
        stage.handles(third).await?;
        stage.next_of_all(3).await?;
        let assignments = stage.assignments_of(worker);
        stage.crew.ask_to_leave(third)?;
        stage
            .cut_in_the_next_update(worker, &mut proxy, assignments, hold)
            .await?;
        stage.crew.left(third).await?;
        stage.next_of_all(3).await?;
    }
    stage.finish().await
}

/// Messages are sent into a link that then dies.
pub async fn cut_deliveries(stage: &mut Stage) -> Result<(), Failure> {
    let (worker, mut proxy) = stage.behind_a_proxy().await?;
    for round in 0..3 {
        if round > 0 {
            proxy.stall_replies();
            let before = stage.ledger.facts().published();
            stage
                .ledger
                .until("messages into the dying link", |facts| {
                    facts.published() >= before + 200
                })
                .await?;
        }
        block_in_place(|| {
            proxy.cut();
            proxy.heal();
        });
        stage.handles(worker).await?;
        stage.next_of_all(3).await?;
    }
    stage.finish().await
}

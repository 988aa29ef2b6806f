//! Workers die, freeze, or are all away: what was not flushed is repeated, and nothing else.

use std::time::Duration;

use parti::core::record::SessionStatus;

use crate::args::Place;
use crate::failure::{Failure, While};
use crate::ledger::PATIENCE;
use crate::line::Event;
use crate::stage::{Needs, STREAM, Stage, insist};

/// Sessions end while a frozen worker's pull is still open.
pub fn quick() -> Needs {
    Needs {
        ttl: Duration::from_secs(2),
        ..Needs::default()
    }
}

/// The server forgets idle consumers soon.
pub fn forgetful() -> Needs {
    Needs {
        inactive: Duration::from_secs(6),
        ..Needs::deaths()
    }
}

/// Any process but this one.
fn other(stage: &Stage, than: usize) -> Result<usize, Failure> {
    let running = stage.crew.running();
    let other = running.into_iter().find(|process| *process != than);
    other.ok_or_else(|| Failure::new("nobody else runs"))
}

/// Two are killed; another one joins in between.
pub async fn kill(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let _ = stage.hire(3).await?;
    stage.next_of_all(5).await?;
    let leader = stage.leader().await?;
    let victim = other(stage, leader)?;
    stage.crew.kill(victim).await?;
    stage.next_of_all(3).await?;
    stage.join().await?;
    let leader = stage.leader().await?;
    let victim = other(stage, leader)?;
    stage.crew.kill(victim).await?;
    stage.next_of_all(3).await?;
    stage.finish().await
}

/// The leader is killed, and its successor too.
pub async fn kill_leader(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let _ = stage.hire(3).await?;
    for _ in 0..2 {
        stage.next_of_all(5).await?;
        let leader = stage.leader().await?;
        stage.crew.kill(leader).await?;
        stage.next_of_all(3).await?;
        stage.join().await?;
    }
    stage.next_of_all(3).await?;
    stage.finish().await
}

/// A follower is frozen for longer than its session lasts, then the leader.
pub async fn freeze(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let _ = stage.hire(3).await?;
    for of_leader in [false, true] {
        stage.next_of_all(5).await?;
        let leader = stage.leader().await?;
        let victim = if of_leader {
            leader
        } else {
            other(stage, leader)?
        };
        stage.crew.freeze(victim)?;
        // All of its partitions go on: its session is over.
        stage.next_of_all(5).await?;
        stage.crew.thaw(victim)?;
        // It finds that out, and comes back.
        stage.handles_under_a_new_session(victim).await?;
    }
    stage.next_of_all(3).await?;
    stage.finish().await
}

impl Stage {
    /// Waits until a worker lost its session, has a new one, and handles messages again.
    async fn handles_under_a_new_session(&self, process: usize) -> Result<(), Failure> {
        self.ledger
            .until("the end of a session", |facts| {
                let mut own = facts.said_by(process);
                own.any(|event| *event == Event::SessionLost)
            })
            .await?;
        self.ledger
            .until("a new session", |facts| {
                let claims = |event: &&Event| matches!(event, Event::Claimed { .. });
                facts.said_by(process).filter(claims).count() > 1
            })
            .await?;
        self.handles(process).await
    }
}

/// A successor takes over id and consumer while the predecessor's pull is open, and the
/// predecessor wakes up beside it.
pub async fn frozen_predecessor(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    let hired = stage.hire(1).await?;
    let frozen = stage.hire_with(1, &["--number", "7"]).await?;
    let (frozen, _) = (frozen[0], hired);
    stage.next_of_all(5).await?;
    let id = stage.ledger.facts().id_of(frozen).map(str::to_owned);
    stage.crew.freeze(frozen)?;
    let begun = tokio::time::Instant::now();
    loop {
        let group = stage.group().await?;
        let mut workers = group.workers.iter();
        let own = workers.find(|worker| Some(worker.id.as_str()) == id.as_deref());
        if own.is_none_or(|own| own.status != SessionStatus::Live) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new("a frozen worker's session never ends"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let successor = stage.spawn(&["--number", "7"])?;
    stage.handles(successor).await?;
    if stage.ledger.facts().id_of(successor) != id.as_deref() {
        return Err(Failure::new("the successor got another id"));
    }
    stage.next_of_all(3).await?;
    stage.crew.thaw(frozen)?;
    stage.handles_under_a_new_session(frozen).await?;
    stage.next_of_all(3).await?;
    stage.finish().await
}

/// Whoever handles it dies, and is replaced, until it is a dead letter.
pub async fn killing_message(stage: &mut Stage) -> Result<(), Failure> {
    let place = Place {
        partition: 1,
        number: 10,
    };
    let text = place.to_string();
    let manners = ["--abort-on", text.as_str()];
    stage.load().await?;
    let _ = stage.hire_with(3, &manners).await?;
    let begun = tokio::time::Instant::now();
    let mut deaths = 0;
    while stage.ledger.facts().done_of(place.partition) <= place.number {
        for _ in stage.crew.fallen().await? {
            deaths += 1;
            stage.spawn(&manners)?;
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(format!(
                "it still kills, after {deaths} deaths"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if deaths == 0 {
        return Err(Failure::new("nobody died"));
    }
    stage.next_of_all(3).await?;
    stage.finish().await?;
    stage.one_dead_letter().await
}

/// All leave, and the server forgets them; then all are killed, and it forgets them again.
pub async fn group_stopped(stage: &mut Stage) -> Result<(), Failure> {
    stage.load().await?;
    for killed in [false, true] {
        let hired = stage.hire(3).await?;
        stage.next_of_all(5).await?;
        if killed {
            for process in hired {
                stage.crew.kill(process).await?;
            }
        } else {
            stage.crew.dismiss_at_once().await?;
        }
        let begun = tokio::time::Instant::now();
        while stage.consumers().await? > 0 {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new("the server does not forget consumers"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    let _ = stage.hire(3).await?;
    stage.next_of_all(3).await?;
    stage.finish().await
}

impl Stage {
    /// How many consumers the stream has.
    pub async fn consumers(&self) -> Result<usize, Failure> {
        let context = self.context();
        let mut stream = insist("looking at the stream", async || {
            context.get_stream(STREAM).await
        })
        .await?;
        let info = stream.info().await.during("looking at the stream")?;
        Ok(info.state.consumer_count)
    }
}

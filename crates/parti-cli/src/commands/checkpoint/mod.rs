//! `parti checkpoint …`
//!
//! ```text
//!   set, reset, import ──▶ wanted places ──▶ plan: before and after ──▶ refused, as a whole
//!                                                  │                 └─▶ --dry-run: shown
//!                                                  └─▶ apply: compare-and-set, epoch + 1, no owner
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Subcommand;
use parti::core::codec;
use parti::inspect::{Bounds, Group, PartitionView};
use parti::operate::{
    self, Applied, Change, Checkpoints, Patience, Reason, Rules, TakeOver, Verdict, Wanted,
};
use parti::store::GroupStore;
use parti::{Offset, PartitionId, WorkerId};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::exit::Failure;
use crate::places;
use crate::show::{Shape, count, plain, show, time};
use crate::signals::{Ending, Endings};
use crate::table::{Cell, Table, or_dash};
use crate::view;

mod export;
mod formats;
mod get;
mod import;
mod list;
mod reset;
mod set;

/// What to do with checkpoints.
#[derive(Subcommand)]
pub enum Command {
    List(list::Args),
    Get(get::Args),
    Set(set::Args),
    Reset(reset::Args),
    Export(export::Args),
    Import(import::Args),
}

/// Does it.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args).await,
        Command::Get(args) => get::run(args).await,
        Command::Set(args) => set::run(args).await,
        Command::Reset(args) => reset::run(args).await,
        Command::Export(args) => export::run(args).await,
        Command::Import(args) => import::run(args).await,
    }
}

/// A checkpoint as it is shown and exported.
#[derive(Serialize)]
struct Row<'a> {
    group: &'a str,
    partition: &'a PartitionId,
    epoch: u64,
    offset: Option<u64>,
    next_offset: u64,
    #[serde(skip_serializing_if = "<[Offset]>::is_empty")]
    done_above: &'a [Offset],
    updated_ms: u64,
}

/// The checkpoint of a partition, if it has one.
fn row<'a>(group: &'a Group, partition: &'a PartitionView) -> Option<Row<'a>> {
    Some(Row {
        group: &group.name,
        partition: &partition.id,
        epoch: partition.epoch.0,
        offset: partition.offset.map(|offset| offset.0),
        next_offset: partition.next_offset?.0,
        done_above: &partition.done_above,
        updated_ms: partition.updated_ms,
    })
}

fn rows(group: &Group) -> Vec<Row<'_>> {
    let rows = group.partitions.iter();
    rows.filter_map(|partition| row(group, partition)).collect()
}

fn table(rows: &[Row<'_>]) -> String {
    let mut table = Table::new(["PARTITION", ">EPOCH", ">OFFSET", ">NEXT", "UPDATED"]);
    for row in rows {
        table.row([
            row.partition.to_string().into(),
            row.epoch.into(),
            or_dash(row.offset).into(),
            row.next_offset.into(),
            time(row.updated_ms).into(),
        ]);
    }
    table.to_string()
}

/// Nobody knows this partition.
pub fn unknown(partition: &PartitionId, group: &Group) -> Failure {
    let known = group.partitions.iter().map(|known| known.id.as_str());
    let (first, more): (Vec<&str>, usize) = {
        let all: Vec<&str> = known.collect();
        let shown = all.iter().take(10).copied().collect();
        (shown, all.len().saturating_sub(10))
    };
    let there = match (first.is_empty(), more) {
        (true, _) => "it has none yet".to_owned(),
        (_, 0) => format!("it has {}", first.join(", ")),
        _ => format!("it has {} and {more} more", first.join(", ")),
    };
    Failure::usage(format!(
        "partition {partition}: the group {} does not know it; {there}",
        group.name
    ))
}

/// Whether a partition can go on at a place.
fn fits(
    checkpoints: &Checkpoints,
    partition: &PartitionId,
    next: Offset,
    ranges: &BTreeMap<PartitionId, Bounds>,
) -> Result<(), Failure> {
    match ranges.get(partition) {
        Some(bounds) if bounds.hold(next) => Ok(()),
        Some(bounds) => Err(outside(partition, next, bounds)),
        None => Err(not_in_source(checkpoints, partition)),
    }
}

/// The source has no such partition.
fn not_in_source(checkpoints: &Checkpoints, partition: &PartitionId) -> Failure {
    let ask = match checkpoints.is_gone(partition) {
        true => {
            "it is not the source that the group began with, and has fewer partitions: if the group is \
             to go on with it, give `parti checkpoint reset --all`"
        }
        false => "is --topic the right one?",
    };
    Failure::usage(format!(
        "partition {partition}: the source has none of this id; {ask}"
    ))
}

/// A place outside of what the source has.
fn outside(partition: &PartitionId, next: Offset, bounds: &Bounds) -> Failure {
    let side = if next > bounds.end {
        "past the end of the log"
    } else {
        "below the start of the log"
    };
    Failure::usage(format!(
        "partition {partition} cannot go on at {next}: that is {side}; give from {} to {}",
        bounds.first, bounds.end
    ))
}

/// How a change is carried out.
struct Manner {
    rules: Rules,
    dry_run: bool,
    reason: Reason,
    shape: Shape,
}

/// Carries out all of these wishes, or none of them if one is refused; shows before and after.
async fn carry_out(
    store: &GroupStore,
    checkpoints: &Checkpoints,
    wanted: Vec<Wanted>,
    manner: Manner,
) -> Result<(), Failure> {
    let mut planned = checkpoints.plan(wanted.clone(), manner.rules);
    let takes_over = checkpoints.takes_over(&planned)?;
    let is_served = |change: &&Change| change.verdict == Verdict::Served;
    let served: Vec<Change> = planned.iter().filter(is_served).cloned().collect();
    if manner.dry_run && !served.is_empty() {
        // To look at what would be needs no force.
        let force = Some(Patience::from(Duration::ZERO));
        planned = checkpoints.plan(
            wanted,
            Rules {
                force,
                ..manner.rules
            },
        );
    }
    if let Some(refusal) = refusal(store, &planned, "nothing was changed", manner.rules).await? {
        return Err(refusal);
    }
    let mut applied = Applied {
        changes: planned,
        left_paused: Vec::new(),
        trouble: None,
    };
    let (mut ending, mut reached) = (None, TakeOver::default());
    if !manner.dry_run {
        let work = Work {
            checkpoints,
            rules: manner.rules,
            reason: &manner.reason,
            takes_over,
        };
        (applied, ending) = work.done(applied.changes, store, &mut reached).await?;
    }
    let changes = applied.changes;
    show(manner.shape, &changes, |changes| changes_table(changes))?;
    let changed = changes
        .iter()
        .filter(|change| change.verdict == Verdict::Change);
    let changed = count(changed.count(), "checkpoint");
    if manner.dry_run {
        tell!("{changed} would change; nothing was written (--dry-run)");
        if takes_over {
            tell!("the group began with another source, and would go on with this one");
        }
        if manner.rules.force.is_some() {
            // Whoever lives is found out then.
        } else if let Some(worker) = checkpoints.keeps_source() {
            tell!(
                "without --dry-run it is refused while {} lives: stop all workers, or give --force if \
                 they are gone",
                plain(worker.as_str())
            );
        } else if let Some(first) = served.first() {
            tell!(
                "without --dry-run it is refused: partition {} is being served by {}{}; pause it or \
                 stop its worker, or give --force",
                plain(first.partition.as_str()),
                plain(&or_dash(first.served_by.as_ref())),
                match served.len() - 1 {
                    0 => String::new(),
                    more => format!(" ({more} more)"),
                }
            );
        }
    } else {
        tell!("{changed} changed");
        tell_fenced(&changes);
        // A store that is gone is asked nothing more.
        if applied.trouble.is_none() {
            tell_paused(store, &changes).await;
        }
    }
    let left = (!applied.left_paused.is_empty()).then(|| {
        let remedy = resume(store, applied.left_paused.iter());
        format!("nobody has resumed what was paused for it: {remedy} does")
    });
    match (ending, left) {
        // It came too late to stop anything.
        (Some(_), None) if reached == TakeOver::Adopted => {}
        (Some(by), left) => {
            let so = left.unwrap_or_else(|| match takes_over {
                true => "the group is as it was".into(),
                false => "it left nothing paused".into(),
            });
            return Err(Failure::ended(
                by,
                format!("stopped: {changed} changed; {so}"),
            ));
        }
        (None, Some(left)) => {
            let left = format!("{changed} changed, but {left}");
            return Err(match applied.trouble {
                Some(error) => {
                    let left = format!("{error}; {left}");
                    Failure::from(error).told(left)
                }
                None => Failure::failed(left),
            });
        }
        (None, None) => {}
    }
    // Somebody was faster with some of them.
    let done = format!("{changed} changed");
    match refusal(store, &changes, &done, manner.rules).await? {
        Some(refusal) => Err(refusal),
        None => {
            if reached == TakeOver::Adopted {
                tell!("{}", far(reached));
            }
            Ok(())
        }
    }
}

/// The command that ends pauses. The store's URL may have a password: whoever reads this knows it.
fn resume<'a>(store: &GroupStore, ids: impl Iterator<Item = &'a PartitionId>) -> String {
    let ids: Vec<&str> = ids.map(PartitionId::as_str).collect();
    let group = match store.group() {
        name if codec::check_group(name).is_ok() => name.to_owned(),
        name => format!("'{name}'"),
    };
    format!(
        "`parti partition resume {} --group {group} --store …`",
        ids.join(" ")
    )
}

/// How far a group came that is to go on with another source.
fn far(reached: TakeOver) -> &'static str {
    match reached {
        TakeOver::Untouched => "nothing was changed",
        TakeOver::Holding => {
            "no checkpoint was changed, but it may be that nobody can join the group any more; the same \
             command again goes on"
        }
        TakeOver::Held => {
            "some checkpoints may have changed, and nobody can join the group until the same command \
             has done the rest"
        }
        TakeOver::Adopted => "the group began with another source, and goes on with this one now",
    }
}

/// Changes that are carried out.
struct Work<'a> {
    checkpoints: &'a Checkpoints,
    rules: Rules,
    reason: &'a Reason,
    /// The group goes on with another source: nothing is paused, and nobody is asked to let go.
    takes_over: bool,
}

impl Work<'_> {
    /// Carries them out, as far as it gets before a signal comes. If nothing is paused, and nobody
    /// kept from joining meanwhile, a signal ends the program as ever.
    async fn done(
        &self,
        changes: Vec<Change>,
        store: &GroupStore,
        reached: &mut TakeOver,
    ) -> Result<(Applied, Option<Ending>), Failure> {
        let (rules, reason) = (self.rules, self.reason);
        if rules.force.is_none() && !self.takes_over {
            let applied = self.checkpoints.apply(changes, rules, reason).await;
            let failed = |error| self.unfinished(error, store, *reached);
            return Ok((applied.map_err(failed)?, None));
        }
        let mut signals = Endings::catch()?;
        if let Some(patience) = rules.force {
            self.tell_waiting(&changes, patience);
        }
        let served = |change: &&Change| change.served_by.is_some();
        let served = changes
            .iter()
            .filter(served)
            .map(|change| &change.partition);
        let remedy = resume(store, served);
        let (first, heard) = oneshot::channel();
        let stop = async {
            // Nobody sends only once all is done.
            if heard.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let applying = (self.checkpoints).apply_noting(changes, rules, reason, stop, reached);
        let mut applying = Box::pin(applying);
        let by = tokio::select! {
            applied = &mut applying => {
                drop(applying);
                let failed = |error| self.unfinished(error, store, *reached);
                return Ok((applied.map_err(failed)?, None));
            }
            by = signals.next() => by,
        };
        match self.takes_over {
            true => {
                tell!("stopping, unless checkpoints are being set; once more ends this at once")
            }
            false => {
                tell!("stopping: what was paused is being resumed; once more ends this at once")
            }
        }
        let _ = first.send(());
        let done = tokio::select! {
            applied = &mut applying => Ok(applied),
            by = signals.next() => Err(by),
        };
        // It says how far it came.
        drop(applying);
        match done {
            Ok(applied) => {
                let stopped =
                    |error| Failure::ended(by, self.unfinished(error, store, *reached).line);
                Ok((applied.map_err(stopped)?, Some(by)))
            }
            Err(by) => Err(Failure::ended(
                by,
                match self.takes_over {
                    true => format!("stopped: {}", far(*reached)),
                    false => format!("some partitions may be left paused: {remedy} ends that"),
                },
            )),
        }
    }

    /// Says who is waited for, and for how long.
    fn tell_waiting(&self, changes: &[Change], patience: Patience) {
        let Patience { effect, silence } = patience;
        if self.takes_over {
            if self.checkpoints.keeps_source().is_some() {
                tell!("sessions that stay silent for {silence:?} are ended, nobody's that lives");
            }
            return;
        }
        let owners = changes
            .iter()
            .filter_map(|change| change.served_by.as_ref());
        let served = owners.clone().count();
        let owners: BTreeSet<&str> = owners.map(WorkerId::as_str).collect();
        if owners.is_empty() {
            return;
        }
        let owners: Vec<&str> = owners.into_iter().collect();
        let (owners, served) = (plain(&owners.join(", ")), count(served, "partition"));
        let wait = match effect < silence {
            true => format!("{silence:?} (--silence: sooner an idle owner would not notice)"),
            false => format!("{effect:?}"),
        };
        tell!(
            "{served} to be let go of by {owners}; whoever has not done so is fenced after {wait}"
        );
    }

    /// What failed half way, and what may be left behind by it.
    fn unfinished(&self, error: operate::Error, store: &GroupStore, reached: TakeOver) -> Failure {
        let is_refused = matches!(
            error,
            operate::Error::Refused(_) | operate::Error::NoGroup(_)
        );
        match (self.takes_over, reached) {
            // Refused before anything was changed.
            (false, _) | (true, TakeOver::Untouched) if is_refused => {}
            (true, reached) => tell!("{}", far(reached)),
            (false, _) => {
                tell!("some checkpoints may have changed; the same command again does the rest")
            }
        }
        match error {
            operate::Error::LeftPaused { cause, partitions } => {
                let remedy = resume(store, partitions.iter());
                let line = format!("{cause}; partitions may be left paused: {remedy} resumes them");
                Failure::from(*cause).told(line)
            }
            error => error.into(),
        }
    }
}

/// Says whose owner had not let go when it was changed.
fn tell_fenced(changes: &[Change]) {
    for change in changes {
        if let (Some(owner), Verdict::Change) = (&change.served_by, &change.verdict) {
            tell!(
                "partition {}: {} had not let go of it, and is fenced at its next commit, or when its \
                 lapsed lease comes back",
                plain(change.partition.as_str()),
                plain(owner.as_str())
            );
        }
    }
}

/// Whoever moves a checkpoint wants it to count. What cannot be read is left out: the change is done.
async fn tell_paused(store: &GroupStore, changes: &[Change]) {
    let Ok(Some(group)) = parti::inspect::group(store).await else {
        return;
    };
    let done = |change: &&Change| matches!(change.verdict, Verdict::Change | Verdict::Same);
    let done = changes.iter().filter(done);
    let done: BTreeSet<&PartitionId> = done.map(|change| &change.partition).collect();
    let views = group.partitions.iter();
    if let Some(text) = view::paused(views.filter(|view| done.contains(&view.id))) {
        tell!("{text}");
    }
}

/// Why changes are refused, if any is: the first in full, the rest by number.
async fn refusal(
    store: &GroupStore,
    changes: &[Change],
    done: &str,
    rules: Rules,
) -> Result<Option<Failure>, Failure> {
    let refused = |change: &&Change| !matches!(change.verdict, Verdict::Change | Verdict::Same);
    let mut all = changes.iter().filter(refused);
    let Some(first) = all.next() else {
        return Ok(None);
    };
    let more = match all.count() {
        0 => String::new(),
        more => format!(" ({more} more refused)"),
    };
    let partition = &first.partition;
    Ok(Some(match &first.verdict {
        Verdict::Unknown => unknown(partition, &places::group(store).await?),
        Verdict::Served if rules.force.is_some() => Failure::refused(format!(
            "partition {partition} is being served by {}, which lives and was not told to let go: \
             no leader has carried out the pause (`parti doctor` may know why), or somebody else \
             resumed it (`parti group history` tells); the same command \
             tries it again; {done}{more}",
            or_dash(first.served_by.as_ref())
        )),
        Verdict::Served => Failure::refused(format!(
            "partition {partition} is being served by {}; pause it or stop its worker, or give \
             --force to make it let go; {done}{more}",
            or_dash(first.served_by.as_ref())
        )),
        Verdict::Back => Failure::refused(format!(
            "partition {partition} would go back from {} to {}; give --allow-back to handle those \
             messages again; {done}{more}",
            or_dash(first.before.map(|before| before.next_offset)),
            first.after.next_offset
        )),
        Verdict::Unreadable(why) => Failure::refused(format!(
            "the record of partition {partition} cannot be read, and is left alone: {why}; \
             {done}{more}"
        )),
        Verdict::Change | Verdict::Same => return Ok(None),
    }))
}

fn changes_table(changes: &[Change]) -> String {
    let mut table = Table::new([
        "PARTITION",
        ">BEFORE",
        ">AFTER",
        ">CHANGE",
        ">EPOCH",
        "SERVED BY",
    ]);
    for change in changes {
        let before = change.before.map(|before| before.next_offset);
        let is_set = matches!(change.verdict, Verdict::Change | Verdict::Same);
        let after = change.after.next_offset;
        let moved = match (before, &change.verdict) {
            (_, Verdict::Same) => "same".into(),
            _ if !is_set => Cell::odd("not changed"),
            (None, _) => "new".into(),
            (Some(before), _) if after < before => Cell::odd(format!("-{}", before.0 - after.0)),
            (Some(before), _) => format!("+{}", after.0 - before.0).into(),
        };
        // What is not changed stays where it is, whatever was wished.
        let (after, epoch) = match change.verdict {
            Verdict::Change => (Some(after), Some(change.after.epoch)),
            _ => (before, change.before.map(|before| before.epoch)),
        };
        table.row([
            change.partition.to_string().into(),
            or_dash(before).into(),
            or_dash(after).into(),
            moved,
            or_dash(epoch).into(),
            or_dash(change.served_by.as_ref()).into(),
        ]);
    }
    table.to_string()
}

//! A group as tables.

use parti::core::record::SessionStatus;
use parti::core::text::few;
use parti::inspect::{Group, PartitionView, Progress, WorkerView};

use crate::show::{age, count, now_ms, plain, time, word};
use crate::table::{Cell, Table, or_dash};

/// A beat that is older than this is worth a look, whatever the group's TTL is.
const OLD_BEAT_MS: u64 = 15_000;

/// So many workers are named; the rest is counted.
const NAMED: usize = 5;

/// What a group is, in a few lines.
pub fn head(group: &Group) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, text: String| {
        lines.push_str(&format!("{name:<12}  {}\n", plain(&text)));
    };
    line("group", group.name.clone());
    if group.closed {
        line("state", group.coordination.clone());
    } else {
        line("coordination", group.coordination.clone());
    }
    let leader = match (&group.leader, group.term) {
        (Some(leader), Some(term)) => format!("{leader}, term {term}"),
        (None, Some(term)) => format!("nobody, last term {term}"),
        _ => "-".to_owned(),
    };
    line("leader", leader);
    if let Some(plan) = &group.plan {
        line(
            "plan",
            format!(
                "version {}, {} ({}): {}",
                plan.version,
                word(plan.state),
                word(plan.lifecycle),
                plan.reason
            ),
        );
        line("strategy", plan.fingerprint.strategy.clone());
    }
    if let Some(text) = stranded(group) {
        line("attention", text);
    }
    lines
}

/// Why nothing is served, if all that live are drained: what, and how to mend it.
pub fn stranded(group: &Group) -> Option<String> {
    let stranded = group.stranded()?;
    let first = stranded.workers.first()?;
    let have = if stranded.partitions == 1 {
        "has"
    } else {
        "have"
    };
    let living = few(&stranded.workers, NAMED);
    Some(format!(
        "{} {have} no owner, because all living workers are drained ({living}): `parti worker \
         undrain {first}`",
        count(stranded.partitions, "partition")
    ))
}

/// Which of these an operator has paused, if any, and how to end it.
pub fn paused<'a>(partitions: impl Iterator<Item = &'a PartitionView>) -> Option<String> {
    let paused = partitions.filter(|partition| partition.paused);
    let paused: Vec<&str> = paused.map(|partition| partition.id.as_str()).collect();
    let named = plain(&few(&paused, NAMED));
    match paused.len() {
        0 => None,
        1 => Some(format!(
            "partition {named} is paused; `parti partition resume` lets it go on"
        )),
        some => Some(format!(
            "{} are paused ({named}); `parti partition resume` lets them go on",
            count(some, "partition")
        )),
    }
}

/// What operators asked for and is not carried out yet.
pub fn requests(group: &Group) -> Table {
    let mut table = Table::new(["REQUEST", "BY", "ASKED", "FOR", "STATE", "WHY"]);
    let now = now_ms();
    for request in &group.requests {
        table.row([
            request.text.clone().into(),
            request.by.clone().into(),
            time(request.asked_ms).into(),
            age(now.saturating_sub(request.asked_ms)).into(),
            match request.progress {
                Progress::Waiting => Cell::odd("waits for a leader"),
                Progress::UnderWay => "under way".into(),
            },
            request.why.clone().into(),
        ]);
    }
    table
}

/// How many of everything.
pub fn totals(group: &Group) -> String {
    let live = group
        .workers
        .iter()
        .filter(|worker| is_there(worker))
        .count();
    let owned = group
        .partitions
        .iter()
        .filter(|p| p.owner.is_some())
        .count();
    let mut text = format!(
        "{}, {}, {owned} owned",
        count(live, "worker"),
        count(group.partitions.len(), "partition")
    );
    let paused = group.partitions.iter().filter(|p| p.paused).count();
    if paused > 0 {
        text.push_str(&format!(", {paused} paused"));
    }
    let unserved = group.partitions.iter().filter(|p| p.is_idle()).count();
    if unserved > 0 {
        text.push_str(&format!(", {unserved} unserved"));
    }
    if !group.handoffs.is_empty() {
        text.push_str(&format!(", {} moving", group.handoffs.len()));
    }
    if let Some(lag) = group.lag() {
        text.push_str(&format!(", lag {lag}"));
    }
    text
}

/// Whether a session is not over.
pub fn is_there(worker: &WorkerView) -> bool {
    !worker.status.is_over()
}

/// Whether a worker that should renew its session has not for a while.
pub fn is_silent(worker: &WorkerView, now_ms: u64) -> bool {
    let silent = worker.silent_ms(now_ms);
    is_there(worker) && silent.is_some_and(|ms| ms > OLD_BEAT_MS)
}

/// Workers that are there or own something; with `all` also those that went.
pub fn workers(group: &Group, all: bool) -> Table {
    let mut table = Table::new([
        "WORKER",
        "STATUS",
        "LAST BEAT",
        ">PARTITIONS",
        ">PREPARING",
        "NOTE",
    ]);
    let now = now_ms();
    let shown = |worker: &&WorkerView| all || worker.owns > 0 || is_there(worker);
    for worker in group.workers.iter().filter(shown) {
        let silent = worker.silent_ms(now);
        let beat = silent.map_or_else(|| "-".to_owned(), |ms| format!("{} ago", age(ms)));
        let old = is_silent(worker, now);
        let status = word(worker.status);
        table.row([
            worker.id.to_string().into(),
            match worker.status {
                SessionStatus::Live if old => Cell::odd(status),
                SessionStatus::Live => Cell::good(status),
                status if !status.is_over() => Cell::odd(word(status)),
                _ => Cell::bad(status),
            },
            if old { Cell::odd(beat) } else { beat.into() },
            worker.owns.into(),
            worker.prepare.into(),
            note(worker, old).into(),
        ]);
    }
    table
}

/// What is to be said of a worker.
pub fn note(worker: &WorkerView, old: bool) -> String {
    let mut notes = Vec::new();
    if worker.leader {
        notes.push("leads".to_owned());
    }
    if worker.drained {
        notes.push("drained".to_owned());
    }
    if old {
        notes.push("silent: gone, unless clocks differ".to_owned());
    }
    if let Some(told) = worker.serve
        && told != worker.owns
    {
        notes.push(format!("told to serve {told}"));
    }
    if let Some(blocked) = worker.blocked_by.first() {
        notes.push(format!(
            "waits for {} of {}",
            blocked.partition, blocked.owner
        ));
    }
    notes.extend(worker.degraded.clone());
    notes.join("; ")
}

/// What is moving.
pub fn handoffs(group: &Group) -> Table {
    let mut table = Table::new(["MOVING", "FROM", "TO", "STAGE"]);
    for handoff in &group.handoffs {
        table.row([
            handoff.partition.to_string().into(),
            or_dash(handoff.from.as_ref()).into(),
            handoff.to.to_string().into(),
            word(handoff.stage).into(),
        ]);
    }
    table
}

/// Partitions, one a line.
pub fn partitions<'a>(partitions: impl IntoIterator<Item = &'a PartitionView>) -> Table {
    let mut table = Table::new([
        "PARTITION",
        "OWNER",
        ">EPOCH",
        ">OFFSET",
        ">NEXT",
        ">END",
        ">LAG",
        "NOTE",
    ]);
    for partition in partitions {
        let owner = or_dash(partition.owner.as_ref());
        table.row([
            partition.id.to_string().into(),
            match (&partition.owner, partition.is_served()) {
                (Some(_), false) => Cell::bad(owner),
                _ => owner.into(),
            },
            partition.epoch.into(),
            or_dash(partition.offset).into(),
            or_dash(partition.next_offset).into(),
            or_dash(partition.end).into(),
            or_dash(partition.lag).into(),
            partition_note(partition).into(),
        ]);
    }
    table
}

/// What is to be said of a partition.
pub fn partition_note(partition: &PartitionView) -> String {
    let mut notes = Vec::new();
    if partition.paused {
        notes.push("paused".to_owned());
    }
    if let Some(worker) = &partition.pinned_to {
        notes.push(format!("pinned to {worker}"));
    }
    if partition.owner.is_some() && !partition.is_served() {
        notes.push("its owner's session is over".to_owned());
    }
    if let Some(next) = &partition.prepared_by {
        notes.push(format!("moves to {next}"));
    } else if partition.assigned.is_some() && partition.assigned != partition.owner {
        notes.push(format!("goes to {}", or_dash(partition.assigned.as_ref())));
    }
    if let (Some(first), Some(next)) = (partition.first, partition.next_offset)
        && next < first
    {
        let removed = parti::core::text::count(first.0 - next.0, "message");
        // The offsets of a stream are shared: others' may lie between.
        notes.push(format!("up to {removed} removed unread"));
    }
    if let (Some(end), Some(next)) = (partition.end, partition.next_offset)
        && partition.lag == Some(0)
        && next > end
        && partition.first.is_some_and(|first| end > first)
    {
        notes.push("past its last message".to_owned());
    }
    // That it is paused is said already.
    notes.extend(partition.unserved.clone().filter(|_| !partition.paused));
    notes.join("; ")
}

/// Everything about one partition.
pub fn partition(partition: &PartitionView) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, text: String| lines.push_str(&format!("{name:<12}  {text}\n"));
    line("partition", partition.id.to_string());
    let owner = match (&partition.owner, partition.owner_session) {
        (Some(owner), Some(session)) => format!("{owner}, session {}", word(session)),
        _ => "-".to_owned(),
    };
    line("owner", owner);
    line("assigned to", or_dash(partition.assigned.as_ref()));
    line("prepared by", or_dash(partition.prepared_by.as_ref()));
    line("epoch", partition.epoch.to_string());
    line("offset", or_dash(partition.offset));
    line("next offset", or_dash(partition.next_offset));
    line("done above", partition.done_above.len().to_string());
    let begun = partition
        .begun
        .map(|begun| format!("offset {}, begun {} times", begun.offset, begun.times));
    line("suspicion", or_dash(begun));
    line("first", or_dash(partition.first));
    line("end", or_dash(partition.end));
    line("lag", or_dash(partition.lag));
    line(
        "paused",
        if partition.paused { "yes" } else { "no" }.to_owned(),
    );
    line("claimed at", time(partition.claimed_ms));
    line("updated at", time(partition.updated_ms));
    let note = partition_note(partition);
    if !note.is_empty() {
        line("note", note);
    }
    lines
}

/// What is wrong with the group as a whole, for a table of only a part of it.
pub fn warn_stranded(group: &Group) {
    if let Some(text) = stranded(group) {
        tell!("{}", plain(&text));
    }
}

/// Records that cannot be read, as a warning.
pub fn warn_unreadable(group: &Group) {
    for record in &group.unreadable {
        tell!(
            "{} cannot be read, and is left alone: {}",
            plain(&record.key),
            plain(&record.why)
        );
    }
}

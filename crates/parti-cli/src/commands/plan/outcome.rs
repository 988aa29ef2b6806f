//! What each strategy would do, as tables.

use parti::core::text::count;
use parti::inspect::whatif::{Apart, Case, Outcome};

use crate::table::{Table, or_dash};

/// Strategies side by side, then who gets what.
pub fn table(outcomes: &[Outcome], after: &Case) -> String {
    let mut strategies = Table::new([
        "STRATEGY",
        ">BALANCE",
        ">BY COUNT",
        ">MOVED",
        ">LEAST",
        ">PLACED",
        ">UNSERVED",
    ]);
    for outcome in outcomes {
        strategies.row([
            outcome.strategy.clone().into(),
            format!("{:.3}", outcome.balance_by_weight).into(),
            format!("{:.3}", outcome.balance_by_count).into(),
            outcome.moved.into(),
            outcome.least_moved.into(),
            outcome.placed.into(),
            outcome.unserved.into(),
        ]);
    }
    let mut headings = vec!["WORKER".to_owned()];
    headings.extend(outcomes.iter().map(|outcome| outcome.strategy.clone()));
    let mut shares = Table::wide(headings);
    let workers = outcomes.first().map(|outcome| outcome.workers.keys());
    for worker in workers.into_iter().flatten() {
        let mut cells = vec![worker.to_string().into()];
        let there = after.workers.binary_search(worker).is_ok();
        for outcome in outcomes {
            let share = outcome.workers.get(worker);
            let text = share.map(|share| match (share.before, share.after) {
                (before, _) if !there => format!("{before} -> gone"),
                (before, after) if before == after => after.to_string(),
                (before, after) => format!("{before} -> {after}"),
            });
            cells.push(or_dash(text).into());
        }
        shares.wide_row(cells);
    }
    format!("{strategies}\n{shares}{}", remarks(outcomes, after))
}

/// What stands above any strategy, and which is the group's own.
fn remarks(outcomes: &[Outcome], after: &Case) -> String {
    let mut lines = Vec::new();
    for worker in &after.workers {
        lines.extend(after.apart(worker).map(|why| match why {
            Apart::Drained => format!("{worker} is drained: it gets nothing"),
            Apart::Leaving => format!("{worker} is leaving: it gets nothing"),
            Apart::Degraded => format!("{worker} is degraded: it gets nothing new"),
        }));
    }
    match after.paused() {
        0 => {}
        1 => lines.push("1 partition is paused: nobody gets it".into()),
        paused => {
            let paused = count(paused as u64, "partition");
            lines.push(format!("{paused} are paused: nobody gets them"));
        }
    }
    if let Some(own) = after.strategy() {
        let is_there = outcomes.iter().any(|outcome| outcome.own);
        let but = if is_there {
            ""
        } else {
            ", which this program does not have"
        };
        lines.push(format!("the group goes by {own}{but}"));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!("\n{}\n", lines.join("\n"))
}

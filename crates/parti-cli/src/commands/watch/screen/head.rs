//! The two lines at the top: who leads and what is going on; how many of everything.

use parti::core::record::PlanState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::app::{App, Offsets};
use super::super::heads::Unseen;
use super::super::list::{Health, Standing};
use super::text::{Paint, items, put, rate, row, short};
use crate::show::{age, count, word};
use crate::view;

/// Draws both lines.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, paint: Paint) {
    let width = usize::from(area.width);
    let trouble = trouble(app);
    let (text, style) = match &trouble {
        Some(text) => (text.clone(), paint.health(Health::Bad)),
        None => (going_on(app), paint.health(state(app))),
    };
    let name = format!(" {} ", app.group.name);
    let room = width.saturating_sub(name.chars().count() + 1);
    let mut says = vec![text];
    says.extend(who(app));
    // What is wrong comes first; otherwise who leads does.
    if trouble.is_none() {
        says.reverse();
    }
    let says = items(&says, " · ", room);
    put(
        buffer,
        area,
        vec![
            ratatui::text::Span::styled(name, paint.chosen(paint.strong())),
            " ".into(),
            ratatui::text::Span::styled(says, style),
        ],
    );
    let totals = format!(" {}", items(&totals(app), " · ", width.saturating_sub(1)));
    put(buffer, row(area, 1), vec![totals.into()]);
}

/// Why what is shown may not be so.
fn trouble(app: &App) -> Option<String> {
    if app.gone {
        return Some("the group is gone: this is how it was".to_owned());
    }
    if let Some((why, since)) = &app.blind {
        let since = age(app.now_ms.saturating_sub(*since));
        return Some(format!("the store is silent for {since}: {why}"));
    }
    if app.group.closed {
        return Some("the group is being deleted".to_owned());
    }
    // Short enough for 80 columns; `d` stands in the line of keys.
    app.group.stranded().map(|stranded| {
        let partitions = count(stranded.partitions, "partition");
        format!("{partitions} without owner: all living workers drained, d undrains")
    })
}

fn who(app: &App) -> Option<String> {
    let group = &app.group;
    match (&group.leader, group.term) {
        (Some(leader), Some(term)) => Some(format!("{leader} leads, term {term}")),
        (None, Some(term)) => Some(format!("nobody leads, last term {term}")),
        _ => (!group.closed).then(|| group.coordination.clone()),
    }
}

fn going_on(app: &App) -> String {
    let Some(plan) = &app.group.plan else {
        return String::new();
    };
    let since = age(app.now_ms.saturating_sub(plan.started_ms));
    format!("{} for {since}: {}", word(plan.state), plan.reason)
}

fn state(app: &App) -> Health {
    match app.group.plan.as_ref().map(|plan| plan.state) {
        Some(PlanState::Stable) | None => Health::Good,
        Some(_) => Health::Odd,
    }
}

/// The most important first: what does not fit is left out.
fn totals(app: &App) -> Vec<String> {
    let group = &app.group;
    let there = group.workers.iter().filter(|own| view::is_there(own));
    let mut all = vec![
        count(there.count(), "worker"),
        count(group.partitions.len(), "partition"),
    ];
    if let Some(lag) = group.lag() {
        let most = app.offsets == Some(Offsets::Shared);
        all.push(format!(
            "lag {}{}",
            if most { "≤ " } else { "" },
            short(lag)
        ));
    }
    if let Some(per_second) = app.rates.incoming() {
        all.push(format!("in {}/s", rate(Some(per_second))));
    }
    let done = group.partitions.iter().filter_map(|own| app.done(&own.id));
    if let Some(done) = done.reduce(|a, b| a + b) {
        all.push(format!("done {}/s", rate(Some(done))));
    }
    match app.standings[Standing::Moving as usize] {
        0 => {}
        number => all.push(format!("{number} moving")),
    }
    match app.unseen {
        Some(Unseen::Silent) => all.push("the source does not answer".to_owned()),
        Some(Unseen::Other) if group.has_no_log() => {
            all.push("the group has no log: leave --source away".to_owned());
        }
        Some(Unseen::Other) => all.push("the source is not the group's".to_owned()),
        None => {}
    }
    if !group.unreadable.is_empty() {
        all.push(count(group.unreadable.len(), "unreadable record"));
    }
    all
}

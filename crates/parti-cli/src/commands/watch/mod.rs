//! `parti watch`
//!
//! ```text
//!   store ── one watch ──▶ inspect::follow ──┐
//!   source ── now and then ──▶ heads ────────┼──▶ App ──▶ screen, when something changed
//!   keyboard ──▶ terminal ───────────────────┤     └──▶ effects
//!   group ── answers ◀── operate::request ◀──┴──────────────┘
//! ```
//!
//! [`app`] is all state and what becomes of it, without a terminal; [`screen`] draws it, without
//! changing it. Here is only the loop.

mod app;
mod ask;
mod events;
mod heads;
mod list;
mod marks;
mod rates;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use futures_util::StreamExt;
use parti::inspect::{self, Group, Pace, Sight};
use parti::operate::{self, Reason};
use parti::source::place::Located;
use parti::store::GroupStore;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::app::{App, Effect, Input, Offsets};
use self::heads::Known;
use self::screen::Paint;
use self::terminal::{Screen, Typed};
use crate::exit::{CODES, Failure};
use crate::flags::{self, GroupFlags, SourceFlags};
use crate::places;
use crate::show::now_ms;
use crate::signals::Endings;

/// How often ages are shown anew.
const TICK: Duration = Duration::from_secs(1);
/// The shortest time between two drawings.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest, however long a drawing takes.
const LONGEST: Duration = Duration::from_millis(500);
/// A rest is so many times as long as the drawing before it.
const REST_FOR_DRAWING: u32 = 100;

/// Watch a group live in the terminal, and operate it: workers, partitions, lag, rates, events.
///
/// There are a table of workers, a map of partitions by owner, handoffs under way and what happened,
/// all fed by one watch of the store. With --source there are lags, and for logs rates, too.
///
/// Keys ask the group for something, as the commands of the same names do: drain (d) or evict (e) the
/// chosen worker; pause or resume (p), move (m) or unpin (u) the chosen partition; rebalance (b). Each
/// asks why, and whether that is meant; the group's history has your name, and the reason. The key ?
/// explains all others.
///
/// Example: parti watch --store nats://localhost:4222 --group billing --source log:data
#[derive(clap::Args)]
#[command(after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    source: SourceFlags,
    /// How long to wait for the effect of what is asked for by a key
    #[arg(long, default_value = "30s", value_parser = flags::duration, value_name = "TIME")]
    timeout: Duration,
}

/// Does it.
pub async fn run(args: Args) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "`parti watch` draws on a terminal, and this is none; `parti group describe` shows the \
             same once",
        ));
    }
    let store = places::records(&args.group).await?;
    let mut sights = inspect::follow(&store, Pace::Sparing);
    let group = first(&store, sights.next().await).await?;
    let source = places::opened(&args.source).await?;
    let offsets = source.as_ref().map(|source| match source {
        Located::Topic(_) => Offsets::Own,
        Located::Stream(_) => Offsets::Shared,
    });
    let (tell, known) = watch::channel(Known::of(&group));
    let (looks, mut looked) = mpsc::channel(1);
    if let Some(source) = source {
        tokio::spawn(heads::look(source, known, looks));
    }
    let (answers, mut answered) = mpsc::channel(1);
    let paint = Paint {
        colours: AutoStream::choice(&std::io::stdout()) != ColorChoice::Never,
    };
    let mut app = App::new(now_ms(), group, offsets);
    let mut endings = Endings::catch()?;
    let mut screen = Screen::open()?;
    let mut typed = terminal::typed();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // From when on to draw, if there is something to be drawn.
    let (mut rest, mut changed) = (Instant::now(), true);
    loop {
        let input = tokio::select! {
            typed = typed.recv() => match typed {
                Some(Typed::Key(key)) => Some(Input::Key(key)),
                Some(Typed::Resized) => None,
                None => return Err(Failure::failed("the terminal was closed")),
            },
            Some(sight) = sights.next() => Some(Input::Sight(sight)),
            Some(look) = looked.recv() => Some(Input::Look(look)),
            Some(answer) = answered.recv() => Some(answer),
            _ = tick.tick() => Some(Input::Tick),
            _ = endings.next() => return Ok(()),
            () = sleep_until(rest), if changed => {
                let began = Instant::now();
                screen.draw(|frame| screen::draw(frame, &mut app, paint))?;
                changed = false;
                let pause = began.elapsed() * REST_FOR_DRAWING;
                rest = Instant::now() + pause.clamp(SHORTEST, LONGEST);
                continue;
            }
        };
        changed = true;
        let Some(input) = input else { continue };
        match app.update(now_ms(), input) {
            Some(Effect::Quit) => return Ok(()),
            Some(Effect::Request(request, why)) => {
                let reason = Reason {
                    by: flags::user(),
                    why,
                };
                let (store, answers) = (store.clone(), answers.clone());
                tokio::spawn(async move {
                    let wanted = request.clone();
                    let asked = operate::request(&store, wanted, reason, args.timeout).await;
                    // If nobody listens any more, the group's history still has it.
                    let _ = answers.send(Input::Answer(request, asked)).await;
                });
            }
            None => {}
        }
        tell.send_if_modified(|known| {
            let new = !known.is_of(&app.group);
            if new {
                *known = Known::of(&app.group);
            }
            new
        });
    }
}

/// The group as it was first seen, before anything is drawn.
async fn first(store: &GroupStore, sight: Option<Sight>) -> Result<Group, Failure> {
    match sight {
        Some(Sight::Group(group)) => Ok(*group),
        Some(Sight::Blind(error)) => Err(error.into()),
        Some(Sight::NoGroup) | None => Err(places::no_group(store).await?),
    }
}

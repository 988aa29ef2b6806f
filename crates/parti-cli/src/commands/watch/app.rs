//! What the view knows, and what becomes of it: keys and news go in, effects come out. Nothing here
//! knows of a terminal.

use std::collections::BTreeMap;

use parti::core::record::Request;
use parti::inspect::{Bounds, Group, PartitionView, Sight, WorkerView};
use parti::operate::{self, CarriedOut};
use parti::{Offset, PartitionId, WorkerId};

use super::ask::{Asked, Asking};
use super::events::{self, Told};
use super::heads::{Look, Unseen};
use super::list::{self, Filter, Health, PartitionSort, WorkerRow, WorkerSort};
use super::marks::Marks;
use super::rates::Rates;

/// A key, or what came in.
#[derive(Debug)]
pub enum Input {
    /// Somebody pressed it.
    Key(Key),
    /// The store tells.
    Sight(Sight),
    /// The source tells.
    Look(Look),
    /// What became of a request.
    Answer(Request, Result<CarriedOut, operate::Error>),
    /// Time has passed.
    Tick,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Key {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    Enter,
    Escape,
    Backspace,
    /// Control and C.
    Interrupt,
    Char(char),
}

/// What somebody else has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End the view.
    Quit,
    /// Ask the group for this, for this reason, and answer when it is done.
    Request(Request, String),
}

/// What keys are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pane {
    /// The table of workers.
    #[default]
    Workers,
    /// The map of partitions.
    Partitions,
    /// What happened.
    Events,
}

/// What a cell of the map shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cells {
    /// Who owns the partition.
    #[default]
    Owners,
    /// How many digits its lag has.
    Lags,
}

/// What the lowest line is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Keys act at once.
    #[default]
    Look,
    /// A text is being typed that the focused pane is filtered by.
    Find,
    /// All keys are explained; the next one goes back.
    Help,
    /// Something is about to be asked of the group.
    Ask(Asking),
    /// The view is to end, though a request is not answered: that has to be confirmed.
    Leave,
}

/// Whose the offsets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offsets {
    /// Each partition counts for itself.
    Own,
    /// All partitions of a stream share its offsets: lags are upper bounds, and how many messages
    /// were done cannot be told.
    Shared,
}

/// Everything that the view knows.
#[derive(Debug)]
pub struct App {
    /// The group as it was last seen.
    pub group: Group,
    /// Now, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Why the store cannot be heard, and since when.
    pub blind: Option<(String, u64)>,
    /// The group's records are no longer there.
    pub gone: bool,
    /// Whose the offsets are, if there is a source.
    pub offsets: Option<Offsets>,
    /// Why nothing is known of the source, if so.
    pub unseen: Option<Unseen>,
    /// Who has which letter.
    pub marks: Marks,
    /// How fast everything goes.
    pub rates: Rates,
    /// Workers as they are shown.
    pub workers: Vec<WorkerRow>,
    /// How many partitions are how.
    pub standings: [usize; 6],
    /// Partitions as they are shown, by their place in the group.
    pub order: Vec<usize>,
    /// What keys are about.
    pub pane: Pane,
    /// By what workers are sorted.
    pub worker_sort: WorkerSort,
    /// By what partitions are sorted.
    pub partition_sort: PartitionSort,
    /// Which partitions are shown.
    pub filter: Filter,
    /// Text that an id must hold, or what happened, by [`Pane`].
    pub find: [String; 3],
    /// What a cell shows.
    pub cells: Cells,
    /// The chosen worker.
    pub worker: Option<WorkerId>,
    /// The chosen partition.
    pub partition: Option<PartitionId>,
    /// How many lines before the newest the cursor stands, in what happened.
    pub back: usize,
    /// What the lowest line is for.
    pub mode: Mode,
    /// What was asked of the group, and is not answered.
    pub asked: Vec<Asked>,
    /// What became of all that was asked for, newest last.
    pub told: Vec<Told>,
    /// What the lowest line says until the next key, and how that is.
    pub said: Option<(Health, String)>,
    /// How many cells a row of the map has, and how many rows there are. The screen tells.
    pub map_size: (usize, usize),
    bounds: BTreeMap<PartitionId, Bounds>,
    /// Checkpoints as of the last look at the source, and of the one before.
    stood: BTreeMap<PartitionId, (Option<Offset>, Option<Offset>)>,
}

impl App {
    /// The view of a group as it was first seen.
    pub fn new(now_ms: u64, group: Group, offsets: Option<Offsets>) -> Self {
        let mut app = Self {
            group,
            now_ms,
            blind: None,
            gone: false,
            offsets,
            unseen: None,
            marks: Marks::default(),
            rates: Rates::default(),
            workers: Vec::new(),
            standings: [0; 6],
            order: Vec::new(),
            pane: Pane::default(),
            worker_sort: WorkerSort::default(),
            partition_sort: PartitionSort::default(),
            filter: Filter::default(),
            find: Default::default(),
            cells: Cells::default(),
            worker: None,
            partition: None,
            back: 0,
            mode: Mode::default(),
            asked: Vec::new(),
            told: Vec::new(),
            said: None,
            map_size: (1, 1),
            bounds: BTreeMap::new(),
            stood: BTreeMap::new(),
        };
        app.see();
        app
    }

    /// Takes something in.
    pub fn update(&mut self, now_ms: u64, input: Input) -> Option<Effect> {
        self.now_ms = now_ms;
        match input {
            Input::Key(key) => self.key(key),
            Input::Sight(sight) => {
                self.sight(sight);
                None
            }
            Input::Look(look) => {
                self.look(look);
                None
            }
            Input::Answer(request, outcome) => {
                self.answer(&request, outcome);
                None
            }
            Input::Tick => {
                // Ages and rates, which change by themselves.
                self.workers = list::workers(self);
                None
            }
        }
    }

    fn sight(&mut self, sight: Sight) {
        match sight {
            Sight::Group(group) => {
                if self.back > 0 {
                    // The cursor stays where it is.
                    let find = &self.find[Pane::Events as usize];
                    self.back += events::newer(&group.history, &self.group.history, find);
                }
                self.group = *group;
                (self.blind, self.gone) = (None, false);
                self.see();
            }
            Sight::NoGroup => self.gone = true,
            Sight::Blind(error) => {
                let since = self.blind.take().map_or(self.now_ms, |(_, since)| since);
                self.blind = Some((error.to_string(), since));
            }
        }
    }

    fn look(&mut self, look: Look) {
        match look {
            Ok(found) => {
                self.unseen = None;
                let total = match self.offsets {
                    Some(Offsets::Shared) => found.values().map(|bounds| bounds.end.0).max(),
                    _ => Some(found.values().map(|bounds| bounds.head.0).sum()),
                };
                if let Some(total) = total {
                    self.rates.look(self.now_ms, total);
                }
                for id in found.keys() {
                    let next = self.group.partition(id).and_then(|one| one.next_offset);
                    let since = self.stood.entry(id.clone()).or_default();
                    *since = (next, since.0);
                }
                self.bounds.extend(found);
                self.locate();
                self.arrange();
            }
            Err(why) => {
                self.unseen = Some(why);
                if why == Unseen::Other {
                    self.bounds.clear();
                    for one in &mut self.group.partitions {
                        (one.first, one.end, one.lag) = (None, None, None);
                    }
                    self.arrange();
                }
            }
        }
    }

    /// Says where partitions begin and end. The source is asked now and then: where a checkpoint has
    /// moved on since, the end has, too. Past the end is only what was there before it was asked for.
    fn locate(&mut self) {
        self.group.locate(&self.bounds);
        for partition in &mut self.group.partitions {
            let stood = self.stood.get(&partition.id);
            if stood.is_none_or(|(_, before)| *before != partition.next_offset) {
                let next = partition.next_offset.unwrap_or_default();
                partition.end = partition.end.map(|end| end.max(next));
            }
        }
    }

    /// Makes everything anew that follows from the group's records.
    fn see(&mut self) {
        self.locate();
        if self.offsets == Some(Offsets::Own) {
            let partitions = &self.group.partitions;
            self.rates.checkpoints(self.now_ms, partitions);
        }
        let mut ids: Vec<&WorkerId> = self.group.workers.iter().map(|own| &own.id).collect();
        ids.sort_by_cached_key(|id| list::natural(id.as_str()));
        self.marks.see(ids);
        self.standings = list::standings(&self.group.partitions);
        self.arrange();
    }

    /// Sorts and filters anew. What is chosen stays chosen, as long as it is there.
    fn arrange(&mut self) {
        self.workers = list::workers(self);
        let chosen = self.worker.take();
        let rows = &self.workers;
        self.worker = chosen.filter(|id| rows.iter().any(|row| row.id == *id));
        self.worker = (self.worker.take()).or_else(|| rows.first().map(|row| row.id.clone()));
        self.order = list::partitions(self);
        let chosen = self.partition.take();
        self.partition = chosen.filter(|id| self.place_of(id).is_some());
        if self.partition.is_none() {
            self.partition = self.at(0).map(|partition| partition.id.clone());
        }
    }

    /// The partition at a place of the map.
    pub fn at(&self, place: usize) -> Option<&PartitionView> {
        self.group.partitions.get(*self.order.get(place)?)
    }

    fn place_of(&self, id: &PartitionId) -> Option<usize> {
        (0..self.order.len()).find(|place| self.at(*place).is_some_and(|known| known.id == *id))
    }

    /// Where the chosen partition is on the map.
    pub fn cursor(&self) -> usize {
        let place = self.partition.as_ref().and_then(|id| self.place_of(id));
        place.unwrap_or(0)
    }

    /// The chosen partition.
    pub fn chosen_partition(&self) -> Option<&PartitionView> {
        self.group.partition(self.partition.as_ref()?)
    }

    /// The chosen worker.
    pub fn chosen_worker(&self) -> Option<&WorkerView> {
        let chosen = self.worker.as_ref()?;
        self.group.workers.iter().find(|own| own.id == *chosen)
    }

    /// Where a worker is in the table.
    pub fn place_of_worker(&self, worker: Option<&WorkerId>) -> usize {
        let is_it = |row: &WorkerRow| Some(&row.id) == worker;
        self.workers.iter().position(is_it).unwrap_or(0)
    }

    /// The worker that the cursor stands at: the chosen one, or the one that is being chosen.
    pub fn pointed_worker(&self) -> Option<&WorkerId> {
        match (&self.mode, self.pane) {
            (Mode::Ask(Asking::Where { worker, .. }), _) => Some(worker),
            (_, Pane::Workers) => self.worker.as_ref(),
            _ => None,
        }
    }

    /// Where the cursor stands, in so many lines of what happened.
    pub fn event_place(&self, lines: usize) -> usize {
        lines.saturating_sub(1).saturating_sub(self.back)
    }

    /// Messages of a partition that are done, by second.
    pub fn done(&self, partition: &PartitionId) -> Option<f64> {
        match self.offsets {
            Some(Offsets::Own) => self.rates.done(self.now_ms, partition),
            _ => None,
        }
    }

    fn key(&mut self, key: Key) -> Option<Effect> {
        if key == Key::Interrupt {
            return Some(Effect::Quit);
        }
        match &self.mode {
            Mode::Help => self.mode = Mode::Look,
            Mode::Find => self.find_key(key),
            Mode::Look => {
                self.said = None;
                return self.look_key(key);
            }
            Mode::Ask(asking) => return self.ask_key(asking.clone(), key),
            Mode::Leave => {
                self.mode = Mode::Look;
                return matches!(key, Key::Char('y' | 'Y')).then_some(Effect::Quit);
            }
        }
        None
    }

    fn find_key(&mut self, key: Key) {
        let find = &mut self.find[self.pane as usize];
        match key {
            Key::Enter => self.mode = Mode::Look,
            Key::Escape => {
                find.clear();
                self.mode = Mode::Look;
            }
            Key::Backspace => drop(find.pop()),
            Key::Char(letter) => find.push(letter),
            _ => {}
        }
        self.back = 0;
        self.arrange();
    }

    fn look_key(&mut self, key: Key) -> Option<Effect> {
        match (key, self.pane) {
            (Key::Char('q'), _) if !self.asked.is_empty() => self.mode = Mode::Leave,
            (Key::Char('q'), _) => return Some(Effect::Quit),
            (Key::Char(wish @ ('d' | 'e' | 'p' | 'm' | 'u' | 'b')), _) => self.wish(wish),
            (Key::Char('?' | 'h'), _) => self.mode = Mode::Help,
            (Key::Char('/'), _) => self.mode = Mode::Find,
            (Key::Escape, _) => {
                self.find = Default::default();
                self.filter = Filter::default();
                self.back = 0;
                self.arrange();
            }
            (Key::Tab, Pane::Workers) => self.pane = Pane::Partitions,
            (Key::Tab, Pane::Partitions) => self.pane = Pane::Events,
            (Key::Tab, Pane::Events) => self.pane = Pane::Workers,
            (Key::Char('s'), Pane::Workers) => {
                self.worker_sort = self.worker_sort.next();
                self.arrange();
            }
            (Key::Char('s'), Pane::Partitions) => {
                self.partition_sort = self.partition_sort.next();
                self.arrange();
            }
            (Key::Char('f'), _) => {
                self.filter = self.filter.next();
                self.arrange();
            }
            (Key::Char('v'), _) => {
                self.cells = match self.cells {
                    Cells::Owners => Cells::Lags,
                    Cells::Lags => Cells::Owners,
                }
            }
            (_, Pane::Workers) => self.choose_worker(key),
            (_, Pane::Partitions) => self.choose_partition(key),
            (_, Pane::Events) => {
                let count = events::events(self).len();
                let place = step(key, self.event_place(count), count, 1, 10);
                self.back = count.saturating_sub(place + 1);
            }
        }
        None
    }

    fn choose_worker(&mut self, key: Key) {
        let place = self.place_of_worker(self.worker.as_ref());
        let place = step(key, place, self.workers.len(), 1, 10);
        self.worker = self.workers.get(place).map(|row| row.id.clone());
        if self.filter == Filter::Worker {
            self.arrange();
        }
    }

    fn choose_partition(&mut self, key: Key) {
        let (columns, rows) = self.map_size;
        let (place, count) = (self.cursor(), self.order.len());
        let place = match key {
            Key::Left => place.saturating_sub(1),
            Key::Right => place + 1,
            _ => step(key, place, count, columns, columns * rows),
        };
        let place = place.min(count.saturating_sub(1));
        self.partition = self.at(place).map(|partition| partition.id.clone());
    }
}

/// Where a key leads in a list.
pub(super) fn step(key: Key, place: usize, count: usize, line: usize, page: usize) -> usize {
    let last = count.saturating_sub(1);
    match key {
        Key::Up => place.checked_sub(line).unwrap_or(place),
        Key::Down if place + line <= last => place + line,
        Key::PageUp => place.saturating_sub(page),
        Key::PageDown => (place + page).min(last),
        Key::Home => 0,
        Key::End => last,
        _ => place,
    }
}

//! What top knows and what comes of a key, of data and of time: a state that changes, and commands for what cannot be done here. It has no
//! clock, no store and no terminal.

use std::collections::VecDeque;

use fencehold_contract::LeaseView;
use fencehold_contract::job::{JobDetail, JobView, QueueView};
use fencehold_core::job::JobId;
use fencehold_core::{Event, Key, Owner, Reason, Timestamp};

use super::action::{Action, Confirmation, TextField};
use super::keyboard::Key as Pressed;
use super::query::{Found, Held, LeaseFound, NewEvents, Page, Query, Trouble, job_filter, lease_request};
use super::rows::{Row, Target};
use super::workers::{self, Worker};
use crate::show::Colour;

/// So many events are kept; older ones are read again when they are needed.
const EVENTS_MAX: usize = 8_192;
/// For how long the status line says what came of something.
const NOTICE_MS: u64 = 20_000;
/// Lines above and below a list.
pub(super) const LINES_AROUND: u16 = 6;

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Leases,
    Queues,
    Jobs,
    Workers,
    Events,
}

impl Tab {
    pub(super) const ALL: [Tab; 5] = [Tab::Leases, Tab::Queues, Tab::Jobs, Tab::Workers, Tab::Events];

    pub(super) fn name(self) -> &'static str {
        match self {
            Tab::Leases => "Leases",
            Tab::Queues => "Queues",
            Tab::Jobs => "Jobs",
            Tab::Workers => "Workers",
            Tab::Events => "Events",
        }
    }

    pub(super) fn at(self) -> usize {
        self as usize
    }
}

/// What is opened from a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    Lease(Key),
    Job(JobId),
}

/// The job that is opened.
#[derive(Clone, Debug)]
pub(super) enum JobFound {
    NotYet,
    Missing,
    Found(Box<JobDetail>),
}

/// Which row is chosen, and from which on rows are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    pub(super) selected: usize,
    /// What it was known by; `None`: the first one, whichever that is.
    id: Option<String>,
    pub(super) offset: usize,
}

/// What lies above the lists.
#[derive(Clone, Debug)]
pub(super) enum Overlay {
    Nothing,
    Help,
    Filter(TextField),
    Confirm(Confirmation),
}

/// How old what is shown is.
#[derive(Clone, Debug, Default)]
pub(super) struct Freshness {
    /// When it was fetched, on both clocks.
    pub(super) fetched: Option<Timestamp>,
    /// Why it was not fetched since.
    pub(super) trouble: Option<Trouble>,
}

/// What came of something, for the status line.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) says: String,
    pub(super) colour: Colour,
    until_ms: u64,
}

/// The events that are known, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLog {
    pub(super) events: VecDeque<Event>,
    cursor: Option<u64>,
    /// Whether the store keeps none.
    pub(super) is_missing: bool,
}

impl EventLog {
    fn add(&mut self, new: Option<NewEvents>) {
        self.is_missing = new.is_none();
        let Some(new) = new else { return };
        if !new.follows {
            self.events.clear();
        }
        self.cursor = Some(new.cursor);
        self.events.extend(new.events);
        self.events.drain(..self.events.len().saturating_sub(EVENTS_MAX));
    }
}

/// Something that happened to top.
#[derive(Debug)]
pub(super) enum Input {
    Key(Pressed),
    Time(Timestamp),
    Size { columns: u16, rows: u16 },
    Found { serial: u64, result: Result<Found, Trouble> },
    Acted(Result<String, Trouble>),
}

/// What is to be done elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// In place of a fetch that is under way.
    Fetch {
        serial: u64,
        query: Query,
    },
    Act(Action, Option<Reason>),
    Redraw,
    Quit,
}

/// All that top knows.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, answered yes or no")]
pub(super) struct State {
    /// The store's URL, as it may be shown.
    pub(super) place: String,
    pub(super) namespace: String,
    pub(super) every_ms: u64,
    pub(super) has_colours: bool,
    pub(super) now: Timestamp,
    pub(super) columns: u16,
    pub(super) rows: u16,

    pub(super) tab: Tab,
    pub(super) detail: Option<Detail>,
    /// From which line on the detail is shown.
    pub(super) detail_offset: usize,
    pub(super) overlay: Overlay,
    pub(super) notice: Option<Notice>,
    pub(super) is_paused: bool,
    pub(super) has_free_keys: bool,
    pub(super) filters: [String; Tab::ALL.len()],
    pub(super) cursors: [Cursor; Tab::ALL.len()],
    /// Of each list, and of what is opened.
    freshness: [Freshness; Tab::ALL.len() + 1],

    pub(super) leases: Page<LeaseView>,
    pub(super) queues: Vec<QueueView>,
    pub(super) jobs: Page<JobView>,
    pub(super) held: Held,
    pub(super) workers: Vec<(Owner, Worker)>,
    pub(super) events: EventLog,
    pub(super) lease: Option<LeaseFound>,
    pub(super) lease_events: EventLog,
    pub(super) job: JobFound,

    /// The number of the last fetch that was begun.
    serial: u64,
    pub(super) is_fetching: bool,
    pub(super) is_acting: bool,
    /// When to fetch again, in store time.
    next_fetch_ms: u64,
}

impl State {
    pub(super) fn new(place: String, namespace: String, every_ms: u64, has_colours: bool) -> Self {
        State {
            place,
            namespace,
            every_ms,
            has_colours,
            now: Timestamp::default(),
            columns: 80,
            rows: 24,
            tab: Tab::Leases,
            detail: None,
            detail_offset: 0,
            overlay: Overlay::Nothing,
            notice: None,
            is_paused: false,
            has_free_keys: false,
            filters: Default::default(),
            cursors: Default::default(),
            freshness: Default::default(),
            leases: Page::default(),
            queues: Vec::new(),
            jobs: Page::default(),
            held: Held::default(),
            workers: Vec::new(),
            events: EventLog::default(),
            lease: None,
            lease_events: EventLog::default(),
            job: JobFound::NotYet,
            serial: 0,
            is_fetching: false,
            is_acting: false,
            next_fetch_ms: 0,
        }
    }

    /// What comes of an input.
    pub(super) fn update(&mut self, input: Input) -> Vec<Command> {
        let commands = match input {
            Input::Time(now) => self.time_is(now),
            Input::Size { columns, rows } => {
                (self.columns, self.rows) = (columns, rows);
                Vec::new()
            }
            Input::Key(key) => self.press(key),
            Input::Found { serial, result } => {
                // Of what was asked before something else was: it is not shown any more.
                if serial == self.serial {
                    self.is_fetching = false;
                    self.next_fetch_ms = self.now.store_ms + self.every_ms;
                    self.take(result);
                }
                Vec::new()
            }
            Input::Acted(result) => {
                self.is_acting = false;
                match result {
                    Ok(done) => self.notify(done, Colour::Good),
                    Err(trouble) => self.notify(trouble.says, Colour::Bad),
                }
                self.fetch()
            }
        };
        self.realign();
        commands
    }

    fn time_is(&mut self, now: Timestamp) -> Vec<Command> {
        self.now = now;
        if self.notice.as_ref().is_some_and(|notice| notice.until_ms <= now.store_ms) {
            self.notice = None;
        }
        let is_due = !self.is_paused && !self.is_fetching && now.store_ms >= self.next_fetch_ms;
        if is_due { self.fetch() } else { Vec::new() }
    }

    /// Begins to fetch what is shown, in place of what is being fetched.
    pub(super) fn fetch(&mut self) -> Vec<Command> {
        // What is under way is of no more interest.
        self.serial += 1;
        let query = self.query();
        self.is_fetching = query.is_ok();
        match query {
            Ok(query) => vec![Command::Fetch { serial: self.serial, query }],
            Err(says) => {
                self.freshness_mut().trouble = Some(Trouble { says, passes: false });
                self.next_fetch_ms = self.now.store_ms + self.every_ms;
                Vec::new()
            }
        }
    }

    fn query(&self) -> Result<Query, String> {
        let bad = |error: fencehold_core::BadInput| format!("filter: {error}");
        Ok(match (&self.detail, self.tab) {
            (Some(Detail::Lease(key)), _) => {
                Query::Lease { key: key.clone(), cursor: self.lease_events.cursor }
            }
            (Some(Detail::Job(job)), _) => Query::Job(*job),
            (None, Tab::Leases) => {
                Query::Leases(lease_request(self.filter(), self.has_free_keys).map_err(bad)?)
            }
            (None, Tab::Queues) => Query::Queues,
            (None, Tab::Jobs) => Query::Jobs(job_filter(self.filter()).map_err(bad)?.0),
            (None, Tab::Workers) => Query::Workers { cursor: self.events.cursor },
            (None, Tab::Events) => Query::Events { cursor: self.events.cursor },
        })
    }

    fn take(&mut self, result: Result<Found, Trouble>) {
        let found = match result {
            Ok(found) => found,
            // What was shown before is shown still, and said to be old.
            Err(trouble) => {
                self.freshness_mut().trouble = Some(trouble);
                return;
            }
        };
        *self.freshness_mut() = Freshness { fetched: Some(self.now), trouble: None };
        match found {
            Found::Leases(page) => self.leases = page,
            Found::Queues(mut queues) => {
                queues.sort_by(|one, other| one.name.cmp(&other.name));
                self.queues = queues;
            }
            Found::Jobs(page) => self.jobs = page,
            Found::Workers { held, events } => {
                self.events.add(events);
                self.workers = workers::gather(&held, self.events.events.iter());
                self.held = held;
            }
            Found::Events(events) => self.events.add(events),
            Found::Lease(mut lease) => {
                self.lease_events.add(lease.events.take());
                self.lease = Some(*lease);
            }
            Found::Job(job) => self.job = job.map_or(JobFound::Missing, JobFound::Found),
        }
    }

    pub(super) fn notify(&mut self, says: impl Into<String>, colour: Colour) {
        let until_ms = self.now.store_ms + NOTICE_MS;
        self.notice = Some(Notice { says: says.into(), colour, until_ms });
    }

    pub(super) fn filter(&self) -> &str {
        &self.filters[self.tab.at()]
    }

    /// Shows what matches from now on. What another filter found is not shown meanwhile.
    pub(super) fn set_filter(&mut self, tab: Tab, filter: String) {
        self.filters[tab.at()] = filter;
        self.cursors[tab.at()] = Cursor::default();
        match tab {
            Tab::Leases => self.leases = Page::default(),
            Tab::Jobs => self.jobs = Page::default(),
            // These are filtered here.
            Tab::Queues | Tab::Workers | Tab::Events => return,
        }
        self.freshness[tab.at()] = Freshness::default();
    }

    fn shown_at(&self) -> usize {
        if self.detail.is_some() { Tab::ALL.len() } else { self.tab.at() }
    }

    /// How old what is shown is.
    pub(super) fn freshness(&self) -> &Freshness {
        &self.freshness[self.shown_at()]
    }

    fn freshness_mut(&mut self) -> &mut Freshness {
        &mut self.freshness[self.shown_at()]
    }

    /// The rows of the list, as its filter has them.
    pub(super) fn list(&self) -> Vec<Row<'_>> {
        let rows: Vec<Row<'_>> = match self.tab {
            Tab::Leases => self.leases.rows.iter().map(Row::Lease).collect(),
            Tab::Queues => self.queues.iter().map(Row::Queue).collect(),
            Tab::Jobs => self.jobs.rows.iter().map(Row::Job).collect(),
            Tab::Workers => self.workers.iter().map(|(owner, worker)| Row::Worker(owner, worker)).collect(),
            // The newest first.
            Tab::Events => self.events.events.iter().rev().map(Row::Event).collect(),
        };
        let text = match self.tab {
            Tab::Jobs => job_filter(self.filter()).map(|(_, text)| text).unwrap_or_default(),
            _ => self.filter().to_owned(),
        };
        if text.is_empty() { rows } else { rows.into_iter().filter(|row| row.contains(&text)).collect() }
    }

    /// The chosen row.
    pub(super) fn selected(&self) -> Option<Row<'_>> {
        self.list().get(self.cursors[self.tab.at()].selected).copied()
    }

    /// How many rows there is room for.
    pub(super) fn page_rows(&self) -> usize {
        usize::from(self.rows.saturating_sub(LINES_AROUND)).max(1)
    }

    /// Chooses a row by its place.
    pub(super) fn select(&mut self, at: usize) {
        let list = self.list();
        let at = at.min(list.len().saturating_sub(1));
        // The newest event is whichever comes; any other row stays the same one.
        let id = list.get(at).filter(|_| at > 0 || self.tab != Tab::Events).map(Row::id);
        let cursor = &mut self.cursors[self.tab.at()];
        (cursor.selected, cursor.id) = (at, id);
    }

    /// Keeps the chosen row chosen, wherever it is now, and in sight.
    fn realign(&mut self) {
        let list = self.list();
        let cursor = &self.cursors[self.tab.at()];
        let found = cursor.id.as_ref().and_then(|id| list.iter().position(|row| row.id() == *id));
        let at = found.unwrap_or(cursor.selected);
        self.select(at);
        let rows = self.page_rows();
        let count = self.list().len();
        let cursor = &mut self.cursors[self.tab.at()];
        cursor.offset = cursor.offset.clamp((cursor.selected + 1).saturating_sub(rows), cursor.selected);
        cursor.offset = cursor.offset.min(count.saturating_sub(rows));
    }

    /// Shows a list.
    pub(super) fn show(&mut self, tab: Tab) -> Vec<Command> {
        self.detail = None;
        self.tab = tab;
        self.fetch()
    }

    /// Shows what a row leads to.
    pub(super) fn open(&mut self, target: Target) -> Vec<Command> {
        let detail = match target {
            Target::List(tab, filter) => {
                self.set_filter(tab, filter);
                return self.show(tab);
            }
            Target::Lease(key) => Detail::Lease(key),
            Target::Job(job) => Detail::Job(job),
        };
        self.detail = Some(detail);
        self.detail_offset = 0;
        (self.lease, self.lease_events, self.job) = (None, EventLog::default(), JobFound::NotYet);
        *self.freshness_mut() = Freshness::default();
        self.fetch()
    }
}

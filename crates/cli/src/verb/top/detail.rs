//! What is opened from a list, in lines: a lease with its timeline, or a job with its attempts.

use fencehold_contract::LeaseView;
use fencehold_contract::job::JobDetail;
use fencehold_core::lease::LeaseOutcome;

use super::query::LeaseFound;
use super::rows::{Cell, Column, WIDE, Width, left, time};
use super::state::{Detail, JobFound, State};
use super::timeline::{self, Hold, Incident, Lane, Mark};
use crate::duration::show_ms;
use crate::follow::{ended_colour, how_colour, state_colour};
use crate::show::{Colour, utc};

/// Owners get no more room than this in the picture.
const OWNER_COLUMNS: usize = 16;
const LANES_MAX: usize = 6;
/// Holds get as much room in the picture, on an average.
const HOLD_COLUMNS: usize = 7;

/// What stands below the token of a hold begins beside it.
const BELOW_TOKEN: &str = "         ";

/// A line of what is opened.
#[derive(Clone, Debug)]
pub(super) enum Line {
    /// Texts one after the other.
    Texts(Vec<Cell>),
    /// The head of a table, and its rows.
    Head(&'static [Column]),
    Row(&'static [Column], Vec<Cell>),
}

const HOLDS: &[Column] = &[
    Column { title: "TOKEN", width: Width::Fixed(7), is_number: true, from_columns: 0 },
    Column { title: "OWNER", width: Width::Share(3), is_number: false, from_columns: 0 },
    Column { title: "TASK", width: Width::Share(2), is_number: false, from_columns: WIDE },
    Column { title: "ACQUIRED", width: Width::Fixed(8), is_number: false, from_columns: 0 },
    Column { title: "ENDED", width: Width::Fixed(8), is_number: false, from_columns: 0 },
    Column { title: "HELD FOR", width: Width::Fixed(8), is_number: true, from_columns: 0 },
    Column { title: "HOW IT ENDED", width: Width::Share(2), is_number: false, from_columns: 0 },
];
const ATTEMPTS: &[Column] = &[
    Column { title: "TOKEN", width: Width::Fixed(7), is_number: true, from_columns: 0 },
    Column { title: "WORKER", width: Width::Share(3), is_number: false, from_columns: 0 },
    Column { title: "STARTED", width: Width::Fixed(8), is_number: false, from_columns: 0 },
    Column { title: "TOOK", width: Width::Fixed(8), is_number: true, from_columns: 0 },
    Column { title: "OUTCOME", width: Width::Share(2), is_number: false, from_columns: 0 },
];

fn plain(text: impl ToString) -> Line {
    Line::Texts(vec![Cell::new(text, Colour::Plain)])
}

fn faint(text: impl ToString) -> Line {
    Line::Texts(vec![Cell::new(text, Colour::Faint)])
}

/// Texts with a mark between them, in as many lines as they need.
fn facts(columns: u16, facts: Vec<Cell>) -> Vec<Line> {
    const BETWEEN: &str = " · ";
    let mut lines: Vec<Vec<Cell>> = Vec::new();
    let mut used = 0;
    for fact in facts {
        let width = BETWEEN.chars().count() + fact.text.chars().count();
        if let Some(line) = lines.last_mut().filter(|_| used + width <= usize::from(columns)) {
            line.extend([Cell::new(BETWEEN, Colour::Faint), fact]);
            used += width;
        } else {
            lines.push(vec![fact]);
            used = width;
        }
    }
    lines.into_iter().map(Line::Texts).collect()
}

/// So many of something.
fn count(count: impl Into<u64>, of: &str) -> Cell {
    let count = count.into();
    Cell::new(format!("{count} {of}{}", if count == 1 { "" } else { "s" }), Colour::Plain)
}

impl State {
    /// All lines of what is opened.
    pub(super) fn detail_lines(&self) -> Vec<Line> {
        match (&self.detail, &self.lease, &self.job) {
            (Some(Detail::Lease(key)), Some(found), _) => {
                let name = vec![Cell::new("lease ", Colour::Faint), Cell::new(key, Colour::Strong)];
                let mut lines = vec![Line::Texts(name)];
                lines.extend(self.lease_lines(found));
                lines
            }
            (Some(Detail::Job(_)), _, JobFound::Found(job)) => job_lines(job, self.columns, self.now.wall_ms),
            (Some(Detail::Job(id)), _, JobFound::Missing) => {
                vec![plain(format!("There is no job {id}: it was deleted, or forgotten after its time."))]
            }
            _ => Vec::new(),
        }
    }

    /// How far down the lines can be moved.
    pub(super) fn detail_offset_max(&self) -> usize {
        self.detail_lines().len().saturating_sub(self.page_rows() + 1)
    }

    fn lease_lines(&self, found: &LeaseFound) -> Vec<Line> {
        let events: Vec<_> = self.lease_events.events.iter().cloned().collect();
        let holds = timeline::holds(found.view.as_ref(), &events);
        let incidents = timeline::incidents(&holds, &events, found.contention.as_ref());
        let mut lines = match &found.view {
            Some(view) => standing(view, self.columns),
            None => vec![plain("free: never held, or forgotten")],
        };
        if let Some(contended) = &found.contention {
            let (times, since) = (contended.refused_count, time(contended.begins_at_ms));
            let refused = if times == 0 { String::new() } else { format!("refused {times}×, ") };
            lines.push(plain(format!(
                "since {since}: {refused}the longest line had {}",
                contended.max_waiter_count
            )));
        }
        if holds.is_empty() {
            return lines;
        }
        // A holder's clock, the store's and ours are not the same.
        let newest_ms = holds.values().filter_map(|hold| hold.to_ms.max(hold.from_ms)).max();
        let now_ms = self.now.wall_ms.max(newest_ms.unwrap_or(0));
        let columns = usize::from(self.columns).saturating_sub(OWNER_COLUMNS + 2);
        // So few that each has room for its token; the table has all of them.
        let last = holds.iter().rev().take((columns / HOLD_COLUMNS).max(1));
        let last = last.map(|(token, hold)| (*token, hold.clone())).collect();
        let from_ms = timeline::begins_at_ms(&last, now_ms);
        let picture = timeline::lanes(&last, &incidents, (from_ms, now_ms), columns, LANES_MAX);
        lines.push(plain(""));
        lines.extend(picture.iter().map(drawn));
        lines.push(axis(from_ms, now_ms, columns));
        lines.push(faint("━ held   ┥ given back   ✗ ended otherwise   ! refused, or asked to yield"));
        lines.push(plain(""));
        lines.push(Line::Head(HOLDS));
        let begun = |hold: &Hold| hold.from_ms.or(hold.to_ms).unwrap_or_default();
        let rows = holds
            .iter()
            .map(|(token, hold)| (begun(hold), hold_lines(token.get(), hold, now_ms)));
        let between = incidents
            .iter()
            .map(|incident| (incident.at_ms, vec![incident_line(incident, now_ms)]));
        let mut rows: Vec<(u64, Vec<Line>)> = rows.chain(between).collect();
        rows.sort_by_key(|(at_ms, _)| std::cmp::Reverse(*at_ms));
        lines.extend(rows.into_iter().flat_map(|(_, lines)| lines));
        if self.lease_events.is_missing {
            lines.push(faint(
                "This store keeps no events: these are the last holds that it remembers of the key.",
            ));
        }
        lines
    }
}

/// How the key stands now.
fn standing(view: &LeaseView, columns: u16) -> Vec<Line> {
    let Some(holder) = &view.holder else {
        let last = Cell::new(format!("last token {}", view.token), Colour::Plain);
        return facts(columns, vec![Cell::new("free", Colour::Plain), last, in_line(view)]);
    };
    let mut held = vec![
        Cell::new("held by ", Colour::Plain),
        Cell::new(&holder.owner, Colour::Strong),
        Cell::new(format!(" under token {}", view.token), Colour::Plain),
    ];
    held.extend(
        holder
            .task
            .as_ref()
            .map(|task| Cell::new(format!(" for task {task}"), Colour::Plain)),
    );
    let remaining = left(holder.remaining_ms, holder.ttl_ms);
    let ttl = show_ms(holder.ttl_ms);
    let mut times = vec![
        Cell::new(format!("{} left of {ttl}", remaining.text), remaining.colour),
        Cell::new(
            format!("held for {}, since {}", show_ms(holder.age_ms), time(holder.acquired_at_ms)),
            Colour::Plain,
        ),
    ];
    let renewed = holder.renewed_ago_ms.map(|ms| format!("renewed {} ago", show_ms(ms)));
    times.extend(renewed.map(|text| Cell::new(text, Colour::Plain)));
    times.push(in_line(view));
    let mut lines = vec![Line::Texts(held)];
    lines.extend(facts(columns, times));
    let mut more = Vec::new();
    more.extend(holder.max_age_ms.map(|ms| format!("max age {}", show_ms(ms))));
    more.extend((holder.priority != 0).then(|| format!("priority {}", holder.priority)));
    if !more.is_empty() {
        lines.push(plain(more.join(" · ")));
    }
    if let Some(asked) = &holder.yield_request {
        let text = format!("asked to yield by {} within {}", asked.contender, show_ms(asked.yield_in_ms));
        lines.push(Line::Texts(vec![Cell::new(text, Colour::Warning)]));
    }
    lines
}

fn in_line(view: &LeaseView) -> Cell {
    let colour = if view.waiter_count == 0 { Colour::Plain } else { Colour::Warning };
    Cell::new(format!("{} in line", view.waiter_count), colour)
}

/// The colour of a hold: of one that lasts, or of how it ended.
fn hold_colour(outcome: Option<LeaseOutcome>) -> Colour {
    outcome.map_or(Colour::Good, how_colour)
}

fn drawn(lane: &Lane) -> Line {
    let mut texts = vec![Cell::new(format!("{}  ", fitted(&lane.owner)), Colour::Plain)];
    for mark in &lane.marks {
        let (letter, colour) = match mark {
            Mark::Nothing => (' ', Colour::Plain),
            Mark::Held(outcome) => ('━', hold_colour(*outcome)),
            Mark::End(outcome) => {
                let is_given_back = matches!(outcome, LeaseOutcome::Released | LeaseOutcome::Yielded);
                (if is_given_back { '┥' } else { '✗' }, how_colour(*outcome))
            }
            Mark::Token(letter, outcome) => (*letter, hold_colour(*outcome)),
            Mark::Incident => ('!', Colour::Warning),
        };
        match texts.last_mut().filter(|last| last.colour == colour) {
            Some(last) => last.text.push(letter),
            None => texts.push(Cell::new(letter, colour)),
        }
    }
    Line::Texts(texts)
}

/// An owner in the room that it has in the picture: its end is what tells it from others.
fn fitted(owner: &str) -> String {
    let count = owner.chars().count();
    if count <= OWNER_COLUMNS {
        return format!("{owner:OWNER_COLUMNS$}");
    }
    let end: String = owner.chars().skip(count - (OWNER_COLUMNS - 1)).collect();
    format!("…{end}")
}

/// The axis of time: when it begins and ends, and the middle.
fn axis(from_ms: u64, now_ms: u64, columns: usize) -> Line {
    let (first, last) = (time(from_ms), time(now_ms));
    let middle = time(from_ms + (now_ms - from_ms) / 2);
    let room = columns.saturating_sub(first.len() + middle.len() + last.len());
    let gap = |columns: usize| " ".repeat(columns);
    let owner = gap(OWNER_COLUMNS + 2);
    let text = format!("{owner}{first}{}{middle}{}{last}", gap(room / 2), gap(room - room / 2));
    faint(text)
}

/// The time of day; of another day, that one.
fn moment(at_ms: u64, now_ms: u64) -> String {
    const DAY_MS: u64 = 86_400_000;
    if at_ms / DAY_MS == now_ms / DAY_MS {
        return time(at_ms);
    }
    let date = utc(at_ms);
    date.get(5..10).unwrap_or(&date).to_owned()
}

/// A hold in a row; who ended it by force and why, below it.
fn hold_lines(token: u64, hold: &Hold, now_ms: u64) -> Vec<Line> {
    let dash = || Cell::new("-", Colour::Faint);
    let at = |at_ms: Option<u64>| at_ms.map_or_else(dash, |ms| Cell::new(moment(ms, now_ms), Colour::Plain));
    let lasted = hold.from_ms.map(|from_ms| hold.to_ms.unwrap_or(now_ms).saturating_sub(from_ms));
    let outcome = hold
        .outcome
        .map_or_else(|| "held now".to_owned(), |outcome| outcome.to_string());
    let cells = vec![
        Cell::new(token, Colour::Plain),
        hold.owner.as_ref().map_or_else(dash, |owner| Cell::new(owner, Colour::Plain)),
        hold.task.as_ref().map_or_else(dash, |task| Cell::new(task, Colour::Plain)),
        at(hold.from_ms),
        at(hold.to_ms),
        lasted.map_or_else(dash, |ms| Cell::new(show_ms(ms), Colour::Plain)),
        Cell::new(outcome, hold_colour(hold.outcome)),
    ];
    let mut lines = vec![Line::Row(HOLDS, cells)];
    if let Some(by) = &hold.by {
        let reason = hold.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        lines.push(faint(format!("{BELOW_TOKEN}by {by}{reason}")));
    }
    lines
}

fn incident_line(incident: &Incident, now_ms: u64) -> Line {
    Line::Texts(vec![
        Cell::new("      !  ", Colour::Warning),
        Cell::new(format!("{}  ", moment(incident.at_ms, now_ms)), Colour::Plain),
        Cell::new(&incident.says, Colour::Warning),
    ])
}

fn job_lines(detail: &JobDetail, columns: u16, now_ms: u64) -> Vec<Line> {
    let job = &detail.job;
    let since = show_ms(now_ms.saturating_sub(job.state_changed_at_ms));
    let id = vec![Cell::new("job ", Colour::Faint), Cell::new(job.id, Colour::Strong)];
    let mut known = vec![
        Cell::new(job.state, state_colour(job.state)),
        Cell::new(format!("for {since}"), Colour::Plain),
        Cell::new(format!("kind {}", job.kind), Colour::Plain),
        Cell::new(format!("queue {}", job.queue), Colour::Plain),
        Cell::new(format!("enqueued at {}", moment(job.enqueued_at_ms, now_ms)), Colour::Plain),
        count(job.attempt_count, "attempt"),
        count(job.failure_count, "failure"),
        Cell::new(format!("{} crashed", job.crash_count), Colour::Plain),
        count(detail.effects.len() as u64, "effect"),
    ];
    known.extend(
        job.due_in_ms
            .map(|ms| Cell::new(format!("due in {}", show_ms(ms)), Colour::Plain)),
    );
    let mut lines = vec![Line::Texts(id)];
    lines.extend(facts(columns, known));
    if let Some(runner) = &job.runner {
        let remaining = left(runner.remaining_ms, runner.ttl_ms);
        let works = vec![
            Cell::new(format!("{} works on it under token {}", runner.owner, job.token), Colour::Good),
            Cell::new(format!("{} left", remaining.text), remaining.colour),
            Cell::new(format!("for {} so far", show_ms(runner.age_ms)), Colour::Plain),
        ];
        lines.extend(facts(columns, works));
        if let Some(by) = &runner.cancel_requested_by {
            let text = format!("{by} has called it off; its worker learns at its next renewal");
            lines.push(Line::Texts(vec![Cell::new(text, Colour::Warning)]));
        }
    }
    if let Some(progress) = &detail.progress {
        lines.push(plain(format!("progress {progress}")));
    }
    lines.push(plain(""));
    if detail.attempts.is_empty() {
        lines.push(faint("No attempt at it has ended."));
        return lines;
    }
    lines.push(Line::Head(ATTEMPTS));
    lines.extend(detail.attempts.iter().rev().flat_map(|attempt| {
        let took = show_ms(attempt.ended_at_ms.saturating_sub(attempt.started_at_ms));
        let cells = vec![
            Cell::new(attempt.token, Colour::Plain),
            Cell::new(&attempt.owner, Colour::Plain),
            Cell::new(moment(attempt.started_at_ms, now_ms), Colour::Plain),
            Cell::new(took, Colour::Plain),
            Cell::new(attempt.outcome, ended_colour(attempt.outcome)),
        ];
        let error = attempt.error.as_deref().map(|error| faint(format!("{BELOW_TOKEN}{error}")));
        std::iter::once(Line::Row(ATTEMPTS, cells)).chain(error)
    }));
    lines
}

//! The jobs of an engine: the working state of every job that has not come to its end.
//!
//! Nouns: a *slot* is such a job; its *arrival* is its place among all jobs, for life. The *archive* is where the rest is
//! kept. A *look* is an answer that is read from the archive once the changes of its batch have been kept.
//!
//! Claims are served once a batch, in the order in which they came, after everything else of the batch was decided: so
//! whoever waits is served before whoever just came, and one sync serves them all.

mod act;
mod archive;
mod ask;
mod check;
mod claim;
mod enqueue;
mod ledger;
mod look;
mod operation;
mod prune;
mod queues;
#[cfg(feature = "postgres")]
mod replay;
mod report;
mod schedule;
mod table;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencehold_core::job::{
    By, Command, Decision, Due, JobId, Outcome, Record, Refusal, Standing, State, Turns, decide,
};
use fencehold_core::lease::{Change as Deadline, Term};
use fencehold_core::ledger::Effect;
use fencehold_core::{Key, Namespace, Stamp, Token};
use hashbrown::HashMap;

#[cfg(any(feature = "file", feature = "postgres"))]
pub(crate) use archive::{About, KeptJob, KeptSchedule, KeptUnique, Note};
pub(crate) use archive::{Archive, Body, JobChange, MemoryArchive, Read};
#[cfg(feature = "file")]
pub(crate) use archive::{KeptJobs, KeptQueue, Row, Rows};
pub(crate) use ask::{JobAnswer, JobAsk};
#[cfg(feature = "remote")]
pub(crate) use check::unfit;
#[cfg(feature = "postgres")]
pub(crate) use check::{check_job, check_word};
#[cfg(feature = "postgres")]
pub(crate) use enqueue::{digest, unique_digest};
pub(crate) use look::Look;
#[cfg(feature = "postgres")]
pub(crate) use replay::{Brought, BroughtJob, Replay, Replayed};

use self::claim::Claimers;
use self::enqueue::Uniques;
use self::prune::Pruning;
use self::queues::Queues;
use self::schedule::Schedules;
use self::table::Table;
use self::wait::Waits;
use super::state::Engine;
use super::waiters::Ticket;
use super::wheel::Wheel;
use crate::error::StoreError;
#[cfg(feature = "file")]
use crate::job::Counts;

/// How many tokens are set aside at a time, so that giving one writes nothing of its own.
const TOKENS_AHEAD: u64 = 4_096;

/// The working state of every job of a store.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    table: Table,
    queues: Queues,
    uniques: Uniques,
    /// Scheduled jobs by what they wait for.
    due_store: BTreeSet<(u64, u32)>,
    due_wall: BTreeSet<(u64, u32)>,
    /// Claims by when they may have run out.
    wheel: Wheel,
    /// Claimed jobs by their token, and by whoever holds them.
    by_token: HashMap<Token, u32>,
    by_hold: HashMap<(u32, [u8; 16]), Vec<u32>>,
    turns: Turns,
    claimers: Claimers,
    waits: Waits,
    /// Who asks whom to yield: the slot of the waiting job, and of the one that is worked on.
    notices: HashMap<u32, u32>,
    schedules: Schedules,
    pruning: Pruning,
    /// How many jobs have come to their end and are still kept.
    finished: u64,
    /// The effects of jobs that are worked on, or were touched in this batch.
    ledgers: HashMap<u32, Vec<Effect>>,
    newest: Token,
    /// Tokens up to here may be given without keeping anything.
    ceiling: Token,
    last_arrival: u64,
    last_id: Option<JobId>,
    /// Wall time less store time, when they were last told.
    wall_ahead_ms: i128,
    batch: JobBatch,
    /// The archive could not be read: nothing more may be answered.
    broken: Option<String>,
}

/// What the steps since the last batch have changed about jobs.
#[derive(Debug, Default)]
struct JobBatch {
    /// Jobs that changed, in the order of their arrival, so that what is near on disk is written together.
    touched: BTreeMap<u64, Touch>,
    bodies: BTreeMap<u64, (JobId, Arc<Body>)>,
    others: Vec<JobChange>,
    queues: BTreeSet<u32>,
    /// Finished ones, to be let go of once they have been kept.
    leaving: Vec<u32>,
}

/// How a job changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    Term(u32),
    Put(u32),
    Drop,
}

impl Engine {
    /// Takes one request about jobs. Its answer comes with the batch, or with a later one if it waits.
    pub(super) fn ask_jobs(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        space: u32,
        ask: JobAsk,
        archive: &mut dyn Archive,
    ) {
        self.jobs.wall_ahead_ms = i128::from(now.wall_ms) - i128::from(now.store_ms);
        let result = match ask {
            JobAsk::Claim(request) => return self.claim(now, ticket, space, request),
            JobAsk::WaitFor(request) => return self.wait_for(now, ticket, space, &request, archive),
            JobAsk::Begin(request) => return self.begin(now, ticket, space, request, archive),
            JobAsk::Get(id) => return self.look(ticket, Look::Job { space, id }),
            JobAsk::List(request) => return self.look(ticket, Look::List { space, request }),
            JobAsk::Findings(request) => return self.look(ticket, Look::Findings { space, request }),
            JobAsk::Enqueue(jobs) => Ok(self.enqueue(now, space, jobs, archive)),
            JobAsk::Renew(attempts) => Ok(self.renew_claims(now, space, &attempts, archive)),
            JobAsk::Report(reports) => Ok(self.report(now, space, reports, archive)),
            JobAsk::Ledger(entries) => Ok(self.write_ledger(now, space, entries, archive)),
            JobAsk::Act(request) => Ok(self.act(now, space, request, archive)),
            JobAsk::Queues => Ok(JobAnswer::Queues(self.queue_views(space))),
            JobAsk::SetQueue(order) => Ok(self.set_queue(now, space, &order)),
            JobAsk::Schedules => Ok(JobAnswer::Schedules(self.schedule_views(space))),
            JobAsk::SetSchedule(spec) => self.set_schedule(now, space, *spec),
            JobAsk::RemoveSchedule { name, .. } => Ok(self.remove_schedule(space, &name)),
            JobAsk::Resolve(request) => Ok(JobAnswer::Resolved(self.resolve(now, space, &request, archive))),
        };
        self.answer(ticket, result.map(super::Answer::Job));
    }

    /// Decides one command on one job and carries it out.
    fn apply_to_job(
        &mut self,
        now: Stamp,
        at: u32,
        command: &Command,
        archive: &mut dyn Archive,
    ) -> Result<Outcome, Refusal> {
        let Some(slot) = self.jobs.table.at(at) else { return Err(Refusal::Unknown) };
        let standing = Standing { now, newest: self.jobs.newest, term: slot.term(now.store_ms) };
        let Decision { record, deadline, mut reply, facts } = decide(&standing, &slot.record, command);
        let (id, queue) = (slot.id, slot.queue);
        match deadline {
            Deadline::Keep | Deadline::Clear => {}
            Deadline::LastsMs(lasts_ms) => {
                if let Some(slot) = self.jobs.table.at_mut(at) {
                    slot.deadline_ms = now.store_ms.saturating_add(lasts_ms);
                    let (arrival, deadline_ms) = (slot.arrival, slot.deadline_ms);
                    self.jobs.batch.touched.entry(arrival).or_insert(Touch::Term(at));
                    self.jobs.wheel.schedule(at, deadline_ms);
                }
            }
        }
        if let Some(record) = record {
            // An expiry promises nothing to anybody: losing it to a power cut only lengthens the claim.
            self.batch.durable |= !matches!(command, Command::Expire { .. });
            self.become_job(now, at, record, archive);
        }
        if !facts.is_empty() {
            let space = self.jobs.queues.at(queue).space;
            self.note_job(now, space, id, facts);
        }
        if let Err(Refusal::OtherJob { token, job }) = &mut reply {
            *job = self.jobs.by_token.get(token).and_then(|at| Some(self.jobs.table.at(*at)?.id));
        }
        reply
    }

    /// Gives a job a new record, and moves it to where it then belongs.
    fn become_job(&mut self, now: Stamp, at: u32, record: Record, archive: &mut dyn Archive) {
        let state = record.state;
        self.leave_place(at);
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        let was = std::mem::replace(&mut slot.record, record);
        let (arrival, newest) = (slot.arrival, slot.record.token);
        self.jobs.batch.touched.insert(arrival, Touch::Put(at));
        self.raise_newest(newest);
        self.take_place(now, at);
        if state.is_final() && !was.state.is_final() {
            self.come_to_an_end(now, at, archive);
        }
        if state != State::Running && was.state == State::Running {
            self.jobs.forget_notice_of(at);
        }
    }

    /// Takes a job out of the place that its record gives it.
    fn leave_place(&mut self, at: u32) {
        let jobs = &mut self.jobs;
        let Some(slot) = jobs.table.at(at) else { return };
        let (record, queue_no) = (&slot.record, slot.queue);
        let queue = jobs.queues.at_mut(queue_no);
        let (priority, arrival) = (record.terms.priority, slot.arrival);
        let mut shown = record.state;
        match record.state {
            State::Queued => drop(queue.ready.remove(priority, arrival)),
            State::Scheduled => {
                let waited = match record.due {
                    Due::Store(at_ms) => jobs.due_store.remove(&(at_ms, at)),
                    Due::Wall(at_ms) => jobs.due_wall.remove(&(at_ms, at)),
                    Due::Now => false,
                };
                if !waited && queue.ready.remove(priority, arrival).is_some() {
                    shown = State::Queued;
                }
            }
            State::Running => {
                queue.running.remove(&(priority, at));
                jobs.by_token.remove(&record.token);
                if let Some(claim) = &record.claim {
                    let hold = (queue.space, *claim.hash.as_bytes());
                    if let Some(held) = jobs.by_hold.get_mut(&hold) {
                        held.retain(|other| *other != at);
                        if held.is_empty() {
                            jobs.by_hold.remove(&hold);
                        }
                    }
                }
            }
            _ => {}
        }
        let count = queue.counts.of(shown);
        *count = count.saturating_sub(1);
        if shown.is_final() {
            jobs.finished = jobs.finished.saturating_sub(1);
            jobs.batch.queues.insert(queue_no);
        }
    }

    /// Puts a job into the place that its record gives it.
    fn take_place(&mut self, now: Stamp, at: u32) {
        let jobs = &mut self.jobs;
        let Some(slot) = jobs.table.at(at) else { return };
        let (record, queue_no) = (&slot.record, slot.queue);
        let queue = jobs.queues.at_mut(queue_no);
        let (priority, arrival) = (record.terms.priority, slot.arrival);
        let shown = record.state_at(now);
        *queue.counts.of(shown) += 1;
        match shown {
            State::Queued => {
                queue.ready.insert(priority, arrival, at);
                jobs.queues.stirred.insert(queue_no);
            }
            State::Scheduled => match record.due {
                Due::Store(at_ms) => drop(jobs.due_store.insert((at_ms, at))),
                Due::Wall(at_ms) => drop(jobs.due_wall.insert((at_ms, at))),
                Due::Now => {}
            },
            State::Running => {
                queue.running.insert((priority, at));
                jobs.by_token.insert(record.token, at);
                if let Some(claim) = &record.claim {
                    jobs.by_hold.entry((queue.space, *claim.hash.as_bytes())).or_default().push(at);
                }
                jobs.wheel.schedule(at, slot.deadline_ms);
            }
            _ => {}
        }
        if shown.is_final() {
            jobs.finished += 1;
            jobs.batch.queues.insert(queue_no);
        }
    }

    /// A job has come to its end: whoever waits for it is told, what it undid counts, what it did is undone.
    fn come_to_an_end(&mut self, now: Stamp, at: u32, archive: &mut dyn Archive) {
        self.jobs.batch.leaving.push(at);
        self.answer_waits(at);
        let Some(slot) = self.jobs.table.at(at) else { return };
        if slot.undoes {
            self.undo_goes_on(now, at, archive);
        }
        self.begin_to_undo(now, at, archive);
    }

    /// The slot of a job of this namespace: of a live one, or of one that has come to its end, brought back for now.
    fn find_job(&mut self, space: u32, id: JobId, archive: &mut dyn Archive) -> Result<u32, Refusal> {
        let at = if let Some(at) = self.jobs.table.find(id) {
            at
        } else {
            let read = archive.finished(id);
            let job = self.archived(read).flatten().ok_or(Refusal::Unknown)?;
            let at = self.jobs.table.insert(job);
            self.jobs.batch.leaving.push(at);
            at
        };
        let queue = self.jobs.table.at(at).map(|slot| slot.queue).ok_or(Refusal::Unknown)?;
        if self.jobs.queues.at(queue).space == space { Ok(at) } else { Err(Refusal::Unknown) }
    }

    /// What was read from the archive. An archive that cannot be read ends this engine's service: nothing is answered then.
    fn archived<T>(&mut self, read: Read<T>) -> Option<T> {
        read.map_err(|why| self.jobs.broken = Some(why)).ok()
    }

    /// A job's body, also one that this batch has brought.
    fn body(&mut self, arrival: u64, archive: &mut dyn Archive) -> Option<Arc<Body>> {
        if let Some((_, body)) = self.jobs.batch.bodies.get(&arrival) {
            return Some(Arc::clone(body));
        }
        self.archived(archive.body(arrival)).flatten()
    }

    fn raise_newest(&mut self, token: Token) {
        if token <= self.jobs.newest {
            return;
        }
        self.jobs.newest = token;
        if token > self.jobs.ceiling {
            self.jobs.ceiling = token.lifted(TOKENS_AHEAD).unwrap_or(token);
            self.jobs
                .batch
                .others
                .push(JobChange::TokenCeiling { token: self.jobs.ceiling });
        }
    }

    fn note_job(&mut self, now: Stamp, space: u32, id: JobId, facts: Vec<fencehold_core::Fact>) {
        if let Ok(key) = Key::new(format!("job/{id}")) {
            self.note(now, space, &key, facts);
        }
    }

    /// An answer that is read from the archive once this batch has been kept.
    fn look(&mut self, ticket: Ticket, look: Look) {
        self.batch.answers.push(super::state::Answered::to_look(ticket, look));
    }

    /// Hands over what the steps since the last call changed about jobs.
    pub(super) fn take_job_changes(&mut self, into: &mut Vec<JobChange>) {
        let batch = std::mem::take(&mut self.jobs.batch);
        for (arrival, (id, body)) in batch.bodies {
            into.push(JobChange::Body { arrival, id, body });
        }
        for (arrival, touch) in batch.touched {
            into.push(match touch {
                Touch::Drop => JobChange::Drop { arrival },
                Touch::Put(at) | Touch::Term(at) => match (self.jobs.table.at_mut(at), touch) {
                    (None, _) => JobChange::Drop { arrival },
                    (Some(slot), Touch::Term(_)) => {
                        slot.renewed = true;
                        JobChange::Term { arrival, token: slot.record.token, deadline_ms: slot.deadline_ms }
                    }
                    (Some(slot), _) if slot.record.state.is_final() => JobChange::Finished(slot.kept()),
                    (Some(slot), _) => JobChange::Live(slot.kept()),
                },
            });
        }
        into.extend(batch.others);
        for number in batch.queues {
            let namespace = self.namespace(self.jobs.queues.at(number).space);
            into.push(JobChange::Queue(self.jobs.queues.kept(number, namespace)));
        }
        self.jobs.batch.leaving = batch.leaving;
    }

    /// The batch has been kept: what is in the archive now need not be in memory.
    pub(super) fn let_go(&mut self) {
        for at in std::mem::take(&mut self.jobs.batch.leaving) {
            match self.jobs.table.at_mut(at) {
                Some(slot) if slot.record.state.is_final() => drop(self.jobs.table.remove(at)),
                Some(slot) => slot.was_finished = false,
                None => {}
            }
        }
        let table = &self.jobs.table;
        self.jobs
            .ledgers
            .retain(|at, _| table.at(*at).is_some_and(|slot| slot.record.state == State::Running));
    }

    pub(super) fn namespace(&self, space: u32) -> Namespace {
        self.table.spaces[space as usize].name.clone()
    }

    /// Why nothing more may be answered.
    pub(crate) fn broken(&mut self) -> Option<String> {
        self.jobs.broken.take()
    }

    /// Notes what has run out and what has become due, at most `budget` of it. True: there is more.
    pub(super) fn sweep_jobs(&mut self, now: Stamp, budget: usize, archive: &mut dyn Archive) -> bool {
        self.jobs.wall_ahead_ms = i128::from(now.wall_ms) - i128::from(now.store_ms);
        self.dismiss_claimers(now);
        self.dismiss_waits(now);
        let fired = self.fire_schedules(now, archive);
        let mut left = budget;
        while left > 0 {
            left -= 1;
            let Some(at) = self.jobs.wheel.pop_due(now.store_ms) else { break };
            let Some(slot) = self.jobs.table.at(at).filter(|slot| slot.record.claim.is_some()) else {
                continue;
            };
            if now.store_ms < slot.deadline_ms {
                // Renewed since. The wheel is lazy: only now does it learn.
                self.jobs.wheel.schedule(at, slot.deadline_ms);
            } else {
                let random = slot.id.spread(slot.record.token.get());
                let _ = self.apply_to_job(now, at, &Command::Expire { random }, archive);
            }
        }
        while left > 0 && self.wake_one(now) {
            left -= 1;
        }
        let more = self.prune(now, archive);
        fired || left == 0 || more
    }

    /// Moves one scheduled job whose time has come to its place among the ready ones.
    fn wake_one(&mut self, now: Stamp) -> bool {
        let jobs = &mut self.jobs;
        let by_store = jobs.due_store.first().filter(|(at_ms, _)| *at_ms <= now.store_ms).copied();
        let by_wall = jobs.due_wall.first().filter(|(at_ms, _)| *at_ms <= now.wall_ms).copied();
        let at = match (by_store, by_wall) {
            (Some(due), _) => {
                jobs.due_store.remove(&due);
                due.1
            }
            (None, Some(due)) => {
                jobs.due_wall.remove(&due);
                due.1
            }
            (None, None) => return false,
        };
        let Some(slot) = jobs.table.at(at) else { return true };
        let queue = jobs.queues.at_mut(slot.queue);
        let count = queue.counts.of(State::Scheduled);
        *count = count.saturating_sub(1);
        queue.counts.queued += 1;
        queue.ready.insert(slot.record.terms.priority, slot.arrival, at);
        jobs.queues.stirred.insert(slot.queue);
        true
    }

    /// When the engine must be woken for a job although nobody asks anything.
    pub(super) fn next_job_due_ms(&self) -> Option<u64> {
        let jobs = &self.jobs;
        let to_store_ms = |wall_ms: u64| u64::try_from(i128::from(wall_ms) - jobs.wall_ahead_ms).unwrap_or(0);
        [
            jobs.wheel.next_ms(),
            jobs.due_store.first().map(|(at_ms, _)| *at_ms),
            jobs.due_wall.first().map(|(at_ms, _)| to_store_ms(*at_ms)),
            jobs.claimers.next_ms(),
            jobs.waits.next_ms(),
            jobs.schedules.next_wall_ms().map(to_store_ms),
            jobs.pruning.next_ms(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// After `store advance`: nothing from before speaks for a job any more.
    pub(super) fn advance_jobs(
        &mut self,
        now: Stamp,
        lift: u64,
        archive: &mut dyn Archive,
    ) -> Result<(), StoreError> {
        let Some(lifted) = self.jobs.newest.max(self.jobs.ceiling).lifted(lift) else {
            let what = "the tokens of jobs".to_owned();
            return Err(StoreError::Full { what, limit: fencehold_core::limits::TOKEN_MAX });
        };
        self.raise_newest(lifted);
        // Also of those that have run out: they may still speak, and must not.
        for at in self.jobs.table.with_attempts() {
            let _ = self.apply_to_job(now, at, &Command::Advance, archive);
        }
        Ok(())
    }

    /// Goes on from what was kept. All moments are on the clock that it will be asked by.
    #[cfg(feature = "file")]
    pub(super) fn restore_jobs(&mut self, now: Stamp, kept: KeptJobs) {
        self.jobs.wall_ahead_ms = i128::from(now.wall_ms) - i128::from(now.store_ms);
        for queue in kept.queues {
            let space = self.table.space(&queue.namespace);
            let Counts { completed, failed, cancelled, .. } = queue.finished;
            self.jobs.finished += completed + failed + cancelled;
            self.jobs.queues.restore(space, queue);
        }
        self.jobs.newest = kept.token_ceiling;
        self.jobs.ceiling = kept.token_ceiling;
        self.jobs.last_arrival = kept.last_arrival;
        self.jobs.last_id = kept.last_id;
        for mut job in kept.live {
            if !self.jobs.queues.has(job.queue) {
                continue;
            }
            if let Some(claim) = &mut job.record.claim {
                claim.notice = None;
            }
            let at = self.jobs.table.insert(job);
            self.take_place(now, at);
        }
        for unique in kept.uniques {
            let space = self.table.space(&unique.namespace);
            self.jobs.uniques.restore(space, &unique);
        }
        for schedule in kept.schedules {
            let space = self.table.space(&schedule.namespace);
            self.jobs.schedules.restore(space, schedule);
        }
        self.jobs.batch = JobBatch::default();
    }

    /// The last deadline of a claim that anybody may believe in.
    #[cfg(feature = "file")]
    pub(super) fn latest_claim_ms(&self) -> u64 {
        let slots = self.jobs.by_token.values().filter_map(|at| self.jobs.table.at(*at));
        slots.map(|slot| slot.deadline_ms).max().unwrap_or(0)
    }
}

impl Jobs {
    /// How many jobs there are that have not come to their end.
    pub(super) fn live(&self) -> u64 {
        self.table.len()
    }

    fn is_live(&self, at: u32, now: Stamp) -> bool {
        self.table
            .at(at)
            .is_some_and(|slot| matches!(slot.term(now.store_ms), Term::Live { .. }))
    }

    /// The attempt that holds a job.
    fn holder(&self, at: u32) -> Option<By> {
        let slot = self.table.at(at)?;
        Some(By { hash: slot.record.claim.as_ref()?.hash, token: slot.record.token })
    }

    fn forget_notice_of(&mut self, victim: u32) {
        self.notices.retain(|_, asked| *asked != victim);
    }
}

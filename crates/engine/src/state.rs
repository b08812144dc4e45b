//! The engine's state, and the one way in which a decision changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_contract::contention::ContentionLog;
use fencehold_contract::hold_changes::{HoldChanges, concerns_holder};
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::StoreResponse;
use fencehold_core::job::AttemptProof;
use fencehold_core::lease::{
    DeadlineChange as Deadline, LeaseCommand, LeaseCommandResult, LeaseStanding, decide,
};
use fencehold_core::limits::COLLECT_AFTER_FREE_MS;
use fencehold_core::{Event, EventData, HoldHash, Key, Namespace, Refusal, Timestamp};

use super::events::Events;
use super::jobs::{ArchiveRead, JobEngine};
use super::persistence::{Change, Changes};
use super::quota::LimitsSet;
use super::table::LeaseTable;
use super::waiters::{Ticket, Waiters, Watchers};
use super::wheel::Wheel;

/// The working state of every lease of a store.
#[derive(Debug, Default)]
pub struct Engine {
    /// The moment of the step under way.
    pub(super) now: Timestamp,
    /// The last moment that was kept.
    now_kept: Timestamp,
    pub(super) table: LeaseTable,
    pub(super) wheel: Wheel,
    pub(super) waiters: Waiters,
    pub(super) watchers: Watchers,
    pub(super) events: Events,
    /// Kept nowhere: another process that takes over begins anew.
    pub(super) contention: ContentionLog,
    pub(super) jobs: JobEngine,
    /// Nothing is granted before this moment.
    pub(super) closed_until_ms: u64,
    /// The longest ttl that was ever granted.
    pub(super) longest_ttl_ms: u64,
    /// How many keys have a hold on record.
    pub(super) held: u64,
    pub(super) set_aside: u64,
    pub(super) limits: LimitsSet,
    /// The process and the epoch that serve, where there are such.
    pub served_by: Option<(u32, u64)>,
    pub measures: Arc<StoreMetrics>,
    /// Those who listen for what others do to their holds.
    pub hold_changes: Arc<HoldChanges>,
    /// What they get once it is kept.
    to_tell: Vec<Arc<Event>>,
    pub(super) batch: LeaseBatch,
}

/// How often the moment is kept, while there is something else to keep.
const NOW_KEPT_EVERY_MS: u64 = 60_000;
/// A wall clock that is off by this much was set.
const STEP_MS: u64 = 1_000;

/// What the step under way has changed and answered so far.
#[derive(Debug, Default)]
pub(super) struct LeaseBatch {
    /// Slots that changed, in order, so that what is near on disk is written together.
    pub(super) touched: BTreeMap<u32, SlotChange>,
    pub(super) others: Vec<Change>,
    pub(super) durable: bool,
    pub(super) answers: Vec<OutgoingResponse>,
}

/// How a slot changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SlotChange {
    Term,
    Put,
    Drop,
}

/// An answer on its way out.
#[derive(Debug)]
pub struct OutgoingResponse {
    pub ticket: Ticket,
    pub result: ResponseBody,
    /// What was granted with it: given back if the caller has gone.
    pub granted: Option<Granted>,
}

/// What an answer says.
#[derive(Debug)]
pub enum ResponseBody {
    Said(Result<StoreResponse, StoreError>),
    /// It is read once the changes of its batch have been kept.
    ToRead(ArchiveRead),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    /// A lease: where, to which hold, and whether it is a fresh one.
    Lease { slot: u32, hash: HoldHash, fresh: bool },
    /// Claims of jobs.
    Jobs(Vec<(u32, AttemptProof)>),
    /// Claims of jobs that this hold was given before.
    Again(HoldHash),
}

impl Engine {
    /// An engine that holds nothing.
    pub fn new() -> Self {
        Engine::default()
    }

    /// From now on, counts there what happens.
    pub fn count_into(&mut self, measures: Arc<StoreMetrics>) {
        measures.facts.go_on_after(self.events.seen_by_all());
        self.measures = measures;
    }

    /// Every step begins with the moment at which it is taken.
    pub(super) fn begin_step(&mut self, now: Timestamp) {
        if self.now_kept == Timestamp::default() {
            self.now_kept = now;
        }
        self.now = now;
    }

    /// A step of the wall clock is noted at once: over a reboot it would be taken for time that has passed.
    fn now_must_be_kept(&self) -> bool {
        let passed_ms = self.now.store_ms.saturating_sub(self.now_kept.store_ms);
        let on_the_wall_ms = self.now_kept.wall_ms.saturating_add(passed_ms);
        passed_ms >= NOW_KEPT_EVERY_MS || self.now.wall_ms.abs_diff(on_the_wall_ms) >= STEP_MS
    }

    /// An engine that goes on from what was kept. All moments are on the clock that it will be asked by.
    pub fn from_kept(now: Timestamp, kept: super::persistence::StoredState) -> Self {
        let mut engine = Engine { now, ..Engine::default() };
        for (namespace, floor) in kept.floors {
            let space = engine.table.space(&namespace);
            engine.table.space_mut(space).floor = floor;
        }
        for kept in kept.namespaces {
            let space = engine.table.space(&kept.namespace);
            let space = engine.table.space_mut(space);
            (space.longest_ttl_ms, space.closed_until_ms) = (kept.longest_ttl_ms, kept.closed_until_ms);
        }
        for mut lease in kept.leases {
            let space = engine.table.space(&lease.namespace);
            if let Some(hold) = &mut lease.record.hold {
                // The line starts empty: a contender that still wants the holder to yield asks again.
                hold.yield_request = None;
            }
            engine.held += u64::from(lease.record.hold.is_some());
            engine
                .table
                .restore(lease.slot, space, lease.key, lease.record, lease.deadline_ms);
            engine.wheel.schedule(lease.slot, lease.deadline_ms);
        }
        engine.table.restored();
        engine.events = match kept.events {
            Some(events) => Events::from_kept(events, kept.last_seq),
            None => Events::unread(kept.last_seq),
        };
        engine.closed_until_ms = kept.closed_until_ms;
        engine.longest_ttl_ms = kept.longest_ttl_ms;
        engine.set_aside = kept.set_aside;
        for (namespace, limits) in kept.limits {
            engine.limits.put(namespace, limits);
        }
        match kept.jobs {
            Some(jobs) => engine.restore_jobs(jobs),
            None => engine.leave_jobs_for_later(),
        }
        engine
    }

    /// Decides one command on one key and carries it out. A key that is free afterwards is passed on at once.
    pub(super) fn apply(&mut self, at: u32, command: &LeaseCommand) -> Result<LeaseCommandResult, Refusal> {
        let Some(slot) = self.table.at(at) else { return Err(Refusal::NotHeld) };
        let now_ms = self.now.store_ms;
        let standing =
            LeaseStanding { now: self.now, floor: self.table.floor(slot.space), term: slot.term(now_ms) };
        let decision = decide(&standing, &slot.record, command);
        if let Ok(LeaseCommandResult::Renewed(_)) = decision.reply {
            let left_ms = slot.deadline_ms.saturating_sub(now_ms);
            self.measures.renewed(left_ms, u64::from(slot.lasts_ms));
        }
        // An expiry promises nothing to anybody: losing it to a power cut only lengthens the lease.
        let promises = !matches!(command, LeaseCommand::Expire);
        let Some(slot) = self.table.at_mut(at) else { return Err(Refusal::NotHeld) };
        if let Some(record) = decision.record {
            self.held += u64::from(record.hold.is_some());
            self.held -= u64::from(slot.record.hold.is_some());
            slot.record = record;
            self.batch.touched.insert(at, SlotChange::Put);
            self.batch.durable |= promises;
        }
        match decision.deadline {
            Deadline::Keep => {}
            Deadline::LastsMs(lasts_ms) => {
                slot.deadline_ms = self.now.store_ms.saturating_add(lasts_ms);
                slot.lasts_ms = u32::try_from(lasts_ms).unwrap_or(0);
                self.batch.touched.entry(at).or_insert(SlotChange::Term);
            }
            Deadline::Clear => slot.deadline_ms = self.now.store_ms.saturating_add(COLLECT_AFTER_FREE_MS),
        }
        self.wheel.schedule(at, slot.deadline_ms);
        if !decision.facts.is_empty() {
            let (space, key) = (slot.space, slot.key.clone());
            self.note(space, &key, decision.facts);
        }
        decision.reply
    }

    /// Records facts as events.
    pub(super) fn note(&mut self, space: u32, key: &Key, facts: Vec<EventData>) {
        let namespace = self.table.name_of(space).clone();
        self.note_in(&namespace, key, facts);
    }

    /// Records facts as events of a namespace that need not exist.
    pub(super) fn note_in(&mut self, namespace: &Namespace, key: &Key, facts: Vec<EventData>) {
        for fact in facts {
            self.events.add(self.now.wall_ms, namespace.clone(), key.clone(), fact);
        }
    }

    /// Tells holders what others did to their holds. For the code that has kept it.
    pub(super) fn tell_holders(&mut self) {
        let told = std::mem::take(&mut self.to_tell);
        if !told.is_empty() {
            self.hold_changes.tell(told.iter().map(|event| (&event.namespace, &event.key)));
        }
    }

    pub(super) fn answer(&mut self, ticket: Ticket, result: Result<StoreResponse, StoreError>) {
        self.respond(ticket, ResponseBody::Said(result), None);
    }

    /// Answers with what goes back if the caller has gone.
    pub(super) fn respond(&mut self, ticket: Ticket, result: ResponseBody, granted: Option<Granted>) {
        self.batch.answers.push(OutgoingResponse { ticket, result, granted });
    }

    /// How many answers the steps since the last batch have given.
    pub fn answers_so_far(&self) -> usize {
        self.batch.answers.len()
    }

    /// Hands over what the steps since the last call changed and answered. The answers may go out only when the
    /// changes have been kept.
    pub fn take_batch(&mut self, keeps: bool) -> (Changes, Vec<OutgoingResponse>) {
        self.answer_watchers();
        let batch = std::mem::take(&mut self.batch);
        let (events, old_events) = self.events.take_new();
        // Engines that decide for others have no listeners, and nothing that would take this away.
        if !events.is_empty() && self.hold_changes.has_listeners() {
            let concerned = events.iter().filter(|event| concerns_holder(&event.data));
            self.to_tell.extend(concerned.cloned());
        }
        let mut jobs = Vec::new();
        self.take_job_changes(&mut jobs);
        if !keeps {
            self.measures.facts.count_events(events.iter().map(AsRef::as_ref));
            return (Changes { jobs, ..Changes::default() }, batch.answers);
        }
        let mut rows: Vec<Change> = batch.others;
        for (slot, touch) in batch.touched {
            let change = match (touch, self.table.at(slot)) {
                (SlotChange::Drop, _) | (_, None) => Change::Drop { slot },
                (SlotChange::Term, Some(kept)) => {
                    Change::Term { slot, token: kept.record.counter, deadline_ms: kept.deadline_ms }
                }
                (SlotChange::Put, Some(kept)) => Change::Put {
                    slot,
                    namespace: self.table.name_of(kept.space).clone(),
                    key: kept.key.clone(),
                    record: kept.record.clone(),
                    deadline_ms: kept.deadline_ms,
                },
            };
            rows.push(change);
        }
        let keeps_something = !(rows.is_empty() && jobs.is_empty() && events.is_empty());
        if keeps_something && self.now_must_be_kept() {
            self.now_kept = self.now;
            rows.push(Change::Seen { now: self.now });
        }
        (Changes { rows, jobs, events, old_events, durable: batch.durable }, batch.answers)
    }

    /// The last deadline that anybody may believe in.
    pub fn latest_deadline_ms(&self) -> u64 {
        let slots = (0..self.table.len()).filter_map(|at| self.table.at(at));
        let held = slots.filter(|slot| slot.record.hold.is_some());
        held.map(|slot| slot.deadline_ms).max().unwrap_or(0).max(self.latest_claim_ms())
    }

    /// When the engine must be woken without a request.
    pub fn next_due_ms(&self) -> Option<u64> {
        let reopens_ms = Some(self.closed_until_ms).filter(|until_ms| *until_ms > 0);
        [
            self.wheel.next_ms(),
            self.waiters.waiting.next_ms(),
            self.watchers.waiting.next_ms(),
            self.next_job_due_ms(),
            reopens_ms,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

//! The store that is simulated: the real engine, one batch after the other on what it stands on, and the auditors beside
//! it. It does what the engine's own thread does: decide, keep, and only then answer.

use std::collections::BTreeMap;

use fencehold_contract::StoreError;
use fencehold_core::job::JobId;
use fencehold_core::{HoldHash, Timestamp};

use super::audit::{Outage, PendingRequest, RequestAndResponse};
use super::disk::CommitResult;
use super::plan;
use super::possible_states::{PossibleStates, StoreStep};
use super::random::SimRandom;
use super::storage::Storage;
use crate::simulated::{ImageState, Machine, MachineRequest, MachineResponse, ReadyResponse};

/// The most slots of one sweep: few, so that a sweep does not always come to its end.
const SWEEP_MAX: usize = 3;

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimCaller {
    pub(super) owner: usize,
    pub(super) life: u32,
    pub(super) sent_ms: u64,
}

pub(super) struct SimStore {
    machine: Option<Machine>,
    pub(super) storage: Storage,
    pub(super) accounts: PossibleStates,
    pending: BTreeMap<u64, (SimCaller, PendingRequest)>,
    next_ticket: u64,
    pub(super) decided: u64,
}

/// What a step came to.
pub(super) enum StepResult {
    /// These answers may go out.
    Kept(Vec<(SimCaller, MachineRequest, Result<MachineResponse, StoreError>)>),
    /// The disk failed: no answer goes out, and the owner stops.
    Stopped,
}

/// What was given to a caller that had gone, and goes back.
pub(super) enum ReturnedGrant {
    Lease(String, HoldHash),
    Jobs(Vec<JobId>),
}

impl SimStore {
    pub(super) fn new(storage: plan::StorageKind) -> Self {
        SimStore {
            machine: None,
            storage: Storage::new(storage),
            accounts: PossibleStates::default(),
            pending: BTreeMap::new(),
            next_ticket: 1,
            decided: 0,
        }
    }

    pub(super) fn serves(&self) -> bool {
        self.machine.is_some()
    }

    /// The process is gone, and with it everything that it did not keep.
    pub(super) fn stops(&mut self) {
        self.storage.is_left();
        self.machine = None;
        self.pending.clear();
    }

    /// A new process starts from what the disk holds. `None`: the disk would not let it.
    pub(super) fn starts(&mut self, now: Timestamp, gap: Outage) -> Result<Option<ImageState>, String> {
        let Some((machine, found)) = self.storage.starts(now, gap.found)? else { return Ok(None) };
        self.machine = Some(machine);
        self.accounts.restarted(&Outage { found, ..gap });
        Ok(Some(found))
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.machine.as_ref()?.next_due_ms()
    }

    /// Decides what has come, notes what has run out, keeps it all, and audits every answer. `is_there` says whether
    /// a caller still waits for an answer: what was granted to a caller that is gone is given back at once.
    pub(super) fn step(
        &mut self,
        now: Timestamp,
        arrived: Vec<(SimCaller, MachineRequest)>,
        random: &mut SimRandom,
        is_there: impl Fn(&SimCaller) -> bool,
    ) -> Result<StepResult, String> {
        let Some(machine) = &mut self.machine else { return Ok(StepResult::Stopped) };
        let mut ends = Vec::with_capacity(arrived.len());
        for (caller, question) in arrived {
            let ticket = self.next_ticket;
            self.next_ticket += 1;
            self.decided += 1;
            let asked = PendingRequest { question: question.clone(), arrived_ms: now.store_ms };
            self.pending.insert(ticket, (caller, asked));
            ends.push(machine.ask(now, ticket, question));
        }
        machine.sweep(now, SWEEP_MAX);
        let mut told = Vec::new();
        let mut abandoned = Vec::new();
        loop {
            let Ok(mut batch) = machine.take_batch(now) else { return Ok(StepResult::Stopped) };
            let kept = self.storage.keep(machine, &mut batch, random);
            ends.push(batch.answers());
            let (answers, unreadable) = match kept {
                CommitResult::No => return Ok(StepResult::Stopped),
                CommitResult::Yes | CommitResult::Landed => machine.answers(now, batch),
                CommitResult::Unknown => (Machine::untold(batch), None),
            };
            let groups = in_groups(&self.pending, &answers, &ends);
            ends.clear();
            let step = StoreStep { now, abandoned: &abandoned, groups: &groups };
            match kept {
                CommitResult::Unknown => self.accounts.may_have_happened(&step)?,
                _ => self.accounts.happened(&step)?,
            }
            if kept != CommitResult::Yes || unreadable.is_some() {
                return Ok(StepResult::Stopped);
            }
            abandoned = Vec::new();
            for given in answers {
                let Some((caller, asked)) = self.pending.remove(&given.ticket) else { continue };
                if !is_there(&caller)
                    && let Some(goes_back) = goes_back(&given, &asked.question)
                {
                    machine.abandon(now, &given);
                    abandoned.push(goes_back);
                }
                told.push((caller, asked.question, given.result));
            }
            if abandoned.is_empty() {
                // What fails here was answered already, and is noticed by the next batch.
                let _ = machine.tidy(true);
                return Ok(StepResult::Kept(told));
            }
        }
    }
}

/// What a response granted that must be given back if its caller has gone.
fn goes_back(given: &ReadyResponse, question: &MachineRequest) -> Option<ReturnedGrant> {
    match (&given.result, question) {
        (Ok(MachineResponse::Acquired(acquired)), MachineRequest::Acquire(request))
            if !acquired.grant.resumed =>
        {
            Some(ReturnedGrant::Lease(acquired.key.as_str().to_owned(), request.hold_id.hash()))
        }
        (Ok(MachineResponse::Claimed(claimed)), _) if given.hands_out_jobs() => {
            Some(ReturnedGrant::Jobs(claimed.jobs.iter().map(|job| job.id).collect()))
        }
        _ => None,
    }
}

/// The answers of each question together, in the order of the questions; and last what was read when all had happened.
fn in_groups<'a>(
    pending: &'a BTreeMap<u64, (SimCaller, PendingRequest)>,
    answers: &'a [ReadyResponse],
    ends: &[usize],
) -> Vec<Vec<RequestAndResponse<'a>>> {
    let mut groups: Vec<Vec<RequestAndResponse<'a>>> = Vec::with_capacity(ends.len() + 1);
    let mut last = Vec::new();
    let mut from = 0;
    for end in ends {
        let mut group = Vec::new();
        for ReadyResponse { ticket, result, .. } in &answers[from..*end] {
            if let Some((_, asked)) = pending.get(ticket) {
                let pair = RequestAndResponse { asked, result };
                if pair.is_read_last() { last.push(pair) } else { group.push(pair) }
            }
        }
        groups.push(group);
        from = *end;
    }
    groups.push(last);
    groups
}

//! The auditor: an account of its own of what was promised, kept from questions and answers alone. It knows nothing of
//! the engine's code and holds every answer against the promises.
//!
//! Deliberately weak in one place: after a disk failed or the power went, a lease that had run out may be live again for
//! a ttl (that is promised: trouble may only lengthen), so both answers are right for that time.

mod admin;
mod attempt;
mod job;
mod lease;

use std::collections::{BTreeMap, BTreeSet};

use fencehold_contract::StoreError;
use fencehold_core::job::JobId;
use fencehold_core::{HoldHash, Timestamp};

use crate::simulated::{ImageState, MachineRequest, MachineResponse};

pub(super) use self::admin::BEAT;
use self::job::AuditedJob;
use self::lease::AuditedKey;

pub(super) type Audit = Result<(), String>;

/// Something whose time has come has happened so long after it, while the store runs.
const HAPPENS_WITHIN_MS: u64 = 1_000;
/// Over a reboot the wall clock says how much time has passed. Where it says too little, delays and windows last longer:
/// store time goes on from when it was last noted, at most a minute before what waits began to.
const LATER_BY_MS: u64 = 90_000;

/// What is known of the time in which the store did not run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    /// When the store stopped, on the clock before.
    pub(super) stopped_ms: u64,
    /// When it starts, on its clock.
    pub(super) now_ms: u64,
    /// The same on the wall clock.
    pub(super) wall_ms: u64,
    /// How long it was down.
    pub(super) down_ms: u64,
    /// Whether the wall clock is not ahead of any moment before: then it makes no time pass that has not passed.
    pub(super) wall_is_sound: bool,
    /// By how much the wall clock was set forward so far, in all.
    pub(super) wall_forward_ms: u64,
    pub(super) found: ImageState,
}

impl Outage {
    /// The earliest moment, after the gap, of what was to be at this moment of the clock before.
    fn earliest_ms(&self, at_ms: u64) -> u64 {
        match self.found {
            ImageState::NewBoot if self.wall_is_sound => {
                self.now_ms + at_ms.saturating_sub(self.stopped_ms).saturating_sub(self.down_ms)
            }
            ImageState::NewBoot => 0,
            _ => at_ms,
        }
    }

    /// The latest.
    fn latest_ms(&self, at_ms: u64) -> u64 {
        match self.found {
            ImageState::NewBoot => {
                self.now_ms.saturating_add(at_ms.saturating_sub(self.stopped_ms)) + LATER_BY_MS
            }
            _ => at_ms,
        }
    }
}

/// How long something lasts, as far as questions and answers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DurationRange {
    /// No one else may have it before this moment.
    certain_until_ms: u64,
    /// It may be spoken of as live until this moment.
    possible_until_ms: u64,
}

impl DurationRange {
    fn until(until_ms: u64) -> DurationRange {
        DurationRange { certain_until_ms: until_ms, possible_until_ms: until_ms }
    }

    /// The store starts anew at this moment of its clock. `stopped_ms` is when it stopped, on the clock before.
    fn restarted(&mut self, stopped_ms: u64, now_ms: u64, ttl_ms: u64, found: ImageState) {
        if found == ImageState::SameBoot {
            return;
        }
        let anew_ms = now_ms + ttl_ms;
        if found == ImageState::Unsynced {
            // Nothing may be shorter; where something was lost, it is longer.
            self.possible_until_ms = self.possible_until_ms.max(anew_ms);
            return;
        }
        let judged_at_ms = if found == ImageState::NewBoot { stopped_ms } else { now_ms };
        let live = judged_at_ms < self.certain_until_ms;
        let longer =
            |until_ms: u64| if found == ImageState::NewBoot { anew_ms } else { anew_ms.max(until_ms) };
        self.possible_until_ms = longer(self.possible_until_ms);
        self.certain_until_ms = if live { longer(self.certain_until_ms) } else { 0 };
    }
}

/// The account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Auditor {
    keys: BTreeMap<String, AuditedKey>,
    jobs: BTreeMap<JobId, AuditedJob>,
    /// Which job has a unique key, with what payload, and for how long at least.
    uniques: BTreeMap<String, admin::UniqueJob>,
    /// Since when queues that were set are open; `None`: it is paused.
    open_since_ms: BTreeMap<String, Option<u64>>,
    /// The newest token that was given to any job.
    newest_claim: u64,
    /// Hold ids of claims that were given jobs: sent again, such a claim gets what it still has, which may be nothing.
    holds_given: BTreeSet<[u8; 16]>,
    /// Since when, on its clock, the store has been running without a gap.
    pub(super) awake_since_ms: u64,
    /// Over reboots, so much more time may have passed for the store than did.
    ahead_ms_most: u64,
}

/// A question that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    pub(super) question: MachineRequest,
    /// When it came to the store.
    pub(super) arrived_ms: u64,
}

/// One answer, with the question it belongs to.
#[derive(Clone, Copy)]
pub(super) struct RequestAndResponse<'a> {
    pub(super) asked: &'a PendingRequest,
    pub(super) result: &'a Result<MachineResponse, StoreError>,
}

impl RequestAndResponse<'_> {
    /// Whether it was read when everything else of its batch had happened. That a job is not there is known at once.
    pub(super) fn is_read_last(&self) -> bool {
        match self.asked.question {
            MachineRequest::Claim(_) => true,
            MachineRequest::Job(_) => !matches!(self.result, Ok(MachineResponse::Job(None))),
            _ => false,
        }
    }
}

impl Auditor {
    /// Audits the answers that one step of the store gave. They happened in some order, and the store does not say in
    /// which: one must be possible. Refusals change nothing and are tried first.
    pub(super) fn step(&mut self, now: Timestamp, mut pairs: Vec<RequestAndResponse<'_>>) -> Audit {
        self.uniques_end(now);
        self.moments_come(now);
        pairs.sort_by_key(|pair| match pair.result {
            Ok(MachineResponse::Job(_)) => 2,
            Ok(MachineResponse::Acquired(_)) => 1,
            _ => 0,
        });
        while !pairs.is_empty() {
            let mut why = String::new();
            let possible = pairs.iter().position(|pair| match self.answer(now, pair) {
                Ok(()) => true,
                Err(problem) => {
                    why = problem;
                    false
                }
            });
            match possible {
                Some(at) => drop(pairs.remove(at)),
                None => return Err(why),
            }
        }
        Ok(())
    }

    /// One answer, if it can be given now; and what follows from it.
    fn answer(&mut self, now: Timestamp, pair: &RequestAndResponse<'_>) -> Audit {
        let now_ms = now.store_ms;
        match (&pair.asked.question, pair.result) {
            (MachineRequest::Acquire(request), Ok(MachineResponse::Acquired(acquired))) => {
                let hold = *request.hold_id.hash().as_bytes();
                let (token, remaining_ms) = (acquired.grant.token.get(), acquired.grant.remaining_ms);
                pair.in_time(now_ms, request.wait_ms, &format!("token {token} was granted"))?;
                let key = self.key(acquired.key.as_str());
                if acquired.grant.resumed {
                    return key.resumed(now_ms, hold, token, remaining_ms);
                }
                key.granted(now_ms, hold, token, remaining_ms, request.ttl_ms)
            }
            (MachineRequest::Acquire(request), Err(StoreError::Refused { key, refusal })) => {
                let waited = request.wait_ms > 0 && now_ms >= pair.asked.arrived_ms + request.wait_ms;
                // In line, with the store awake to see it.
                let since_ms = self.awake_since_ms.max(pair.asked.arrived_ms);
                let waited_since_ms = waited.then_some(since_ms);
                self.key(key.as_str())
                    .refused(now_ms, request.hold_id.hash(), refusal, waited_since_ms)
            }
            (MachineRequest::Renew(holds), Ok(MachineResponse::Renewed(renewed))) => {
                holds.iter().zip(&renewed.results).try_for_each(|(hold, answer)| {
                    let key = self.key(hold.key.as_str());
                    let answer = answer.as_ref().map(|renewal| renewal.remaining_ms);
                    key.renewed(now_ms, *hold.hold_id.hash().as_bytes(), hold.token.get(), answer)
                })
            }
            (MachineRequest::Release(holds), Ok(MachineResponse::Released(answers))) => {
                holds.iter().zip(answers).try_for_each(|(hold, answer)| {
                    let key = self.key(hold.key.as_str());
                    key.released(now_ms, *hold.hold_id.hash().as_bytes(), hold.token.get(), answer.as_ref())
                })
            }
            (MachineRequest::Revoke(_), Ok(MachineResponse::Revoked(revoked))) => {
                revoked.iter().try_for_each(|lease| {
                    let (token, consumed) = (lease.revoked.token.get(), lease.revoked.consumed_token.get());
                    self.key(lease.key.as_str()).revoked(token, consumed)
                })
            }
            (MachineRequest::Get(name), Ok(MachineResponse::Lease(view))) => {
                let holder = view.as_ref().and_then(|view| view.holder.as_ref());
                let token = holder.and(view.as_ref()).map(|view| view.token.get());
                self.key(name.as_str()).seen(now_ms, token)
            }
            _ => self.job_answer(now, pair),
        }
    }

    fn key(&mut self, name: &str) -> &mut AuditedKey {
        self.keys.entry(name.to_owned()).or_default()
    }

    /// A grant whose caller had gone was given back.
    pub(super) fn abandoned(&mut self, name: &str, hold: HoldHash) {
        self.key(name).abandoned(hold);
    }

    /// Whether the lease under this token may have been ended by force: then its holder may believe in it for longer.
    pub(super) fn was_forced(&self, name: &str, token: u64) -> bool {
        self.keys.get(name).is_some_and(|key| key.was_forced(token))
    }

    /// The store starts anew.
    pub(super) fn restarted(&mut self, gap: &Outage) {
        let Outage { stopped_ms, now_ms, found, .. } = *gap;
        self.awake_since_ms = now_ms;
        if found == ImageState::NewBoot {
            self.ahead_ms_most = gap.wall_forward_ms;
        }
        self.open_since_ms
            .values_mut()
            .flatten()
            .for_each(|since_ms| *since_ms = now_ms);
        self.keys.values_mut().for_each(|key| key.restarted(stopped_ms, now_ms, found));
        self.jobs.values_mut().for_each(|job| job.restarted(gap));
        self.uniques.values_mut().for_each(|taken| taken.restarted(gap));
    }
}

impl RequestAndResponse<'_> {
    /// A caller that stood in line is given nothing when its time is up.
    fn in_time(&self, now_ms: u64, wait_ms: u64, what: &str) -> Audit {
        let arrived_ms = self.asked.arrived_ms;
        if wait_ms > 0 && arrived_ms < now_ms && now_ms >= arrived_ms + wait_ms {
            return Err(format!("P7: {what} to one whose time in line was up"));
        }
        Ok(())
    }
}

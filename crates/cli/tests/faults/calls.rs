//! The calls of a participant, each with its request and response on record.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ClaimJobsRequest, LedgerEntry, LedgerResponse, NewJob,
    Report,
};
use fencehold_contract::{
    AcquireLeaseRequest, CallContext, HoldRef, LeaseStore, RevokeLeasesRequest, RevokeTarget, StoreError,
};
use fencehold_core::job::{EffectName, JobId, JobKind, JobOptions, QueueName};
use fencehold_core::{HoldId, Key, Owner, Reason, Refusal, Token};
use fencehold_proof::history::{AskedCall, CallHalf, CallResult};
use fencehold_test_store::block_on;

use super::participant::Participant;

/// How often a request is sent again whose outcome is not known.
const RESENDS: usize = 8;

impl Participant {
    /// One call, with its request and response on record.
    fn asks(
        &mut self,
        ask: AskedCall,
        call: impl FnOnce(&dyn LeaseStore, &CallContext) -> Result<CallResult, StoreError>,
    ) -> CallResult {
        self.nth += 1;
        let sent = SystemClock.now();
        self.tells(sent);
        self.write(sent.store_ms, CallHalf::Asked(ask));
        let answer = self.store().and_then(|store| call(&*store, &self.call));
        let told = self.notes(answer).unwrap_or_else(told_of);
        // Rounded up: the response came no later than this.
        let answered_ms = SystemClock.now().store_ms + 1;
        self.write(answered_ms, CallHalf::Told(told.clone()));
        told
    }

    pub fn acquires(&mut self, key: &str) -> Option<(HoldId, u64)> {
        let hold = HoldId::from_random(self.random.bits());
        let owner = Owner::new(self.plan.who.as_str()).unwrap();
        let mut request = AcquireLeaseRequest::new(Key::new(key).unwrap(), hold, owner, self.plan.ttl_ms);
        for _ in 0..RESENDS {
            let (asked, ask) = (request.clone(), AskedCall::Acquire { key: key.to_owned() });
            let told = self.asks(ask, |store, call| {
                block_on(store.acquire(call, asked)).map(|acquired| CallResult::Granted {
                    token: acquired.grant.token.get(),
                    remaining_ms: acquired.grant.remaining_ms,
                })
            });
            match told {
                CallResult::Granted { token, .. } => return Some((hold, token)),
                CallResult::Unclear { .. } => request.hold_id_age_ms = request.hold_id_age_ms.max(1),
                _ => return None,
            }
        }
        None
    }

    /// Asks for a key, and is gone before the response: the request alone is on record.
    pub fn asks_and_is_not_told(&mut self, key: &str) {
        self.nth += 1;
        self.write(SystemClock.now().store_ms, CallHalf::Asked(AskedCall::Acquire { key: key.to_owned() }));
        let hold = HoldId::from_random(self.random.bits());
        let owner = Owner::new(self.plan.who.as_str()).unwrap();
        let request = AcquireLeaseRequest::new(Key::new(key).unwrap(), hold, owner, self.plan.ttl_ms);
        block_on(self.store().unwrap().acquire(&self.call, request)).unwrap();
    }

    pub fn renews(&mut self, key: &str, hold: HoldId, token: u64) {
        let proof = hold_ref(key, hold, token);
        self.asks(AskedCall::Renew { key: key.to_owned(), token }, |store, call| {
            let answers = block_on(store.renew(call, vec![proof]))?.results;
            Ok(of_a_hold(answers, |renewal| CallResult::Renewed { remaining_ms: renewal.remaining_ms }))
        });
    }

    pub fn releases(&mut self, key: &str, hold: HoldId, token: u64) {
        for _ in 0..RESENDS {
            let proof = hold_ref(key, hold, token);
            let told = self.asks(AskedCall::Release { key: key.to_owned(), token }, |store, call| {
                let answers = block_on(store.release(call, vec![proof]))?;
                if let [Err(refusal @ Refusal::Lost { outcome: None, .. })] = answers.as_slice() {
                    // So long ago that the record forgot: by an earlier sending of this very call, perhaps.
                    return Ok(CallResult::Unclear { why: refusal.to_string() });
                }
                Ok(of_a_hold(answers, |_| CallResult::Released))
            });
            if !matches!(told, CallResult::Unclear { .. }) {
                return;
            }
        }
    }

    pub fn looks(&mut self, key: &str) {
        let name = Key::new(key).unwrap();
        self.asks(AskedCall::Get { key: key.to_owned() }, |store, call| {
            let view = block_on(store.get(call, name))?;
            let held = view.filter(|view| view.holder.is_some());
            Ok(held.map_or(CallResult::Free, |view| CallResult::Held { token: view.token.get() }))
        });
    }

    /// Ends whatever hold there is, by force.
    pub fn revokes(&mut self, key: &str) {
        let which = RevokeTarget::Key { key: Key::new(key).unwrap(), only_token: None };
        let by = Owner::new(self.plan.who.as_str()).unwrap();
        let request = RevokeLeasesRequest { target: which, by, reason: Reason::new("a fault").unwrap() };
        self.asks(AskedCall::Revoke { key: key.to_owned() }, |store, call| {
            block_on(store.revoke(call, request)).map(|_| CallResult::Revoked)
        });
    }

    pub fn enqueues(&mut self) {
        let id = JobId::from_random(1_763_000_000_000, self.random.bits());
        let job = NewJob {
            // A job that is dropped by many is no poison here: its holders were killed.
            options: JobOptions { max_crashes: 10_000, max_failures: 10_000, ..JobOptions::default() },
            ..NewJob::new(id, queue(), JobKind::new("work").unwrap(), "{}")
        };
        for _ in 0..RESENDS {
            let job = job.clone();
            let told = self.asks(AskedCall::Enqueue { job: id.to_string() }, |store, call| {
                let answers = block_on(store.jobs().unwrap().enqueue(call, vec![job]))?;
                Ok(only(answers, |_| CallResult::Enqueued))
            });
            if !matches!(told, CallResult::Unclear { .. }) {
                return;
            }
        }
    }

    /// Claims a job, has its effect and completes it. False: there was none.
    pub fn works(&mut self, forgets: bool) -> bool {
        let hold = HoldId::from_random(self.random.bits());
        let owner = Owner::new(self.plan.who.as_str()).unwrap();
        let queues = vec![(queue(), 1)];
        let ttl_ms = self.plan.ttl_ms;
        let request = ClaimJobsRequest {
            queues,
            limit: 1,
            hold_id: hold,
            owner,
            ttl_ms,
            wait_ms: 0,
            waited_before_ms: 0,
        };
        let mut claimed = None;
        let slot = &mut claimed;
        self.asks(AskedCall::Claim, |store, call| {
            let jobs = block_on(store.jobs().unwrap().claim(call, request))?.jobs;
            Ok(jobs.first().map_or(CallResult::Nothing, |job| {
                let (token, remaining_ms) = (job.token.get(), job.remaining_ms);
                *slot = Some((job.id, token));
                CallResult::Claimed { job: job.id.to_string(), token, remaining_ms }
            }))
        });
        let Some((id, token)) = claimed else { return false };
        let attempt = AttemptRef { job_id: id, hold_id: hold, token: Token::new(token) };
        if forgets {
            return true;
        }
        self.records(&attempt);
        self.completes(&attempt);
        true
    }

    fn records(&mut self, attempt: &AttemptRef) {
        let value = attempt.token.get().to_string();
        let act = LedgerEntry::Record { effect: effect(), value: value.into(), compensation: None };
        let entry = AttemptLedgerEntry { attempt: attempt.clone(), entry: act };
        let ask = AskedCall::Record { job: attempt.job_id.to_string(), token: attempt.token.get() };
        self.asks(ask, |store, call| {
            let answers = block_on(store.jobs().unwrap().write_effects(call, vec![entry]))?;
            Ok(of_a_hold(answers, |answer| match answer {
                LedgerResponse::Recorded { recorded_effect: effect } => {
                    CallResult::Recorded { value: effect.value.as_deref().unwrap_or_default().to_owned() }
                }
                other => CallResult::Refused { why: format!("{other:?}") },
            }))
        });
    }

    fn completes(&mut self, attempt: &AttemptRef) {
        for _ in 0..RESENDS {
            let report =
                AttemptReport { attempt: attempt.clone(), report: Report::Complete { result: None } };
            let ask = AskedCall::Complete { job: attempt.job_id.to_string(), token: attempt.token.get() };
            let told = self.asks(ask, |store, call| {
                let answers = block_on(store.jobs().unwrap().report(call, vec![report]))?;
                Ok(of_a_hold(answers, |_| CallResult::Completed))
            });
            if !matches!(told, CallResult::Unclear { .. }) {
                return;
            }
        }
    }
}

fn queue() -> QueueName {
    QueueName::new("faults").unwrap()
}

fn effect() -> EffectName {
    EffectName::new("charge").unwrap()
}

fn hold_ref(key: &str, hold: HoldId, token: u64) -> HoldRef {
    HoldRef { key: Key::new(key).unwrap(), hold_id: hold, token: Token::new(token) }
}

/// The answer to a holder's call about one hold or claim: who is refused has it no more.
fn of_a_hold<T, R: std::fmt::Display>(
    answers: Vec<Result<T, R>>,
    told: impl FnOnce(T) -> CallResult,
) -> CallResult {
    match answers.into_iter().next() {
        Some(Err(refusal)) => CallResult::Lost { why: refusal.to_string() },
        answer => only(answer.into_iter().collect(), told),
    }
}

/// The answer to a call of one item. A refusal is an answer, too.
fn only<T, R: std::fmt::Display>(
    answers: Vec<Result<T, R>>,
    told: impl FnOnce(T) -> CallResult,
) -> CallResult {
    match answers.into_iter().next() {
        Some(Ok(answer)) => told(answer),
        Some(Err(refusal)) => CallResult::Refused { why: refusal.to_string() },
        None => CallResult::Refused { why: "no answer for one item".to_owned() },
    }
}

fn told_of(error: StoreError) -> CallResult {
    match error {
        StoreError::Refused { refusal: Refusal::Held { token, .. }, .. } => {
            CallResult::Held { token: token.get() }
        }
        error @ (StoreError::OutcomeUnknown { .. } | StoreError::Unavailable { .. }) => {
            CallResult::Unclear { why: error.to_string() }
        }
        error => CallResult::Refused { why: error.to_string() },
    }
}

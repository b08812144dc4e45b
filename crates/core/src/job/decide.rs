//! The decision: a pure function of how a job stands, what is kept of it, and what is asked.
//!
//! Here: claiming, renewing, and who may still speak for an attempt. How attempts end is in `report`; what operators
//! and sweeps do is in `force`.

use super::attempt::{AttemptOutcome, PastAttempt};
use super::command::{AttemptProof, AttemptRenewal, AttemptWrite, JobCommand, JobCommandResult, JobRefusal};
use super::record::{Claim, JobRecord};
use super::report::settle;
use super::state::{Due, JobState};
use crate::event::{BlockedAction, EventData};
use crate::hold::HoldHash;
use crate::key::Owner;
use crate::lease::{DeadlineChange, Decision, HoldState, answer};
use crate::time::Timestamp;
use crate::token::Token;

/// How a job stands in its store at the step that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStanding {
    /// The moment, by the store's clocks.
    pub now: Timestamp,
    /// The newest token that the store has given to any job. Tokens are the store's, not the job's: so each names one
    /// attempt of one job, and none comes back when a job has been pruned.
    pub newest: Token,
    /// Whether the recorded claim is live.
    pub term: HoldState,
}

/// What follows from a command on a job. Its deadline is the claim's.
pub type JobDecision = Decision<JobRecord, JobCommandResult, JobRefusal>;

/// A command that was not carried out. It changes nothing about the job; what a stale attempt tried is on record.
pub(super) struct Refused {
    refusal: JobRefusal,
    fact: Option<Box<EventData>>,
}

impl From<JobRefusal> for Refused {
    fn from(refusal: JobRefusal) -> Self {
        Refused { refusal, fact: None }
    }
}

pub(super) type Decided = Result<JobDecision, Refused>;

/// Decides one command. Total: every input has an answer.
///
/// # Panics
///
/// In debug builds, if the decision breaks an [invariant](super::JobViolation): that is a bug in the rules.
pub fn decide(standing: &JobStanding, record: &JobRecord, command: &JobCommand) -> JobDecision {
    let case = JobCase { standing, record };
    let decided = match command {
        JobCommand::Claim { hash, owner, ttl_ms } => case.claim(*hash, owner, *ttl_ms),
        JobCommand::Renew(by) => case.renew(*by),
        JobCommand::Complete(by) => case.complete(*by),
        JobCommand::Fail { by, error, retry_in_ms, for_good, random } => {
            case.fail(*by, error, *retry_in_ms, *for_good, *random)
        }
        JobCommand::Snooze { by, for_ms } => case.snooze(*by, *for_ms),
        JobCommand::HandBack(by) => case.hand_back(*by),
        JobCommand::Abandon(by) => Ok(case.abandon(*by)),
        JobCommand::Write { by, what } => case.write(*by, *what),
        JobCommand::StopAtIntent { by, effect } => case.stop_at_intent(*by, effect),
        JobCommand::Expire { random } => case.expire(*random),
        JobCommand::Cancel { by, reason, now } => case.cancel(by, reason.as_ref(), *now),
        JobCommand::EndByForce { state, by, reason } => case.end_by_force(*state, by, reason),
        JobCommand::Retry { by } => case.retry(by),
        JobCommand::Delete { force } => case.delete(*force),
        JobCommand::Preempt(preempt) => case.preempt(preempt),
        JobCommand::Withdraw => Ok(case.withdraw()),
        JobCommand::Advance => Ok(case.advance()),
    };
    let decision = decided.unwrap_or_else(|Refused { refusal, fact }| JobDecision {
        facts: fact.into_iter().map(|fact| *fact).collect(),
        ..answer(Err(refusal))
    });
    #[cfg(debug_assertions)]
    if let Err(violation) = super::invariant::check(standing, record, command, &decision) {
        panic!("{violation}: {command:?} on {record:?} at {standing:?} gave {decision:?}");
    }
    decision
}

pub(super) struct JobCase<'a> {
    pub(super) standing: &'a JobStanding,
    pub(super) record: &'a JobRecord,
}

/// Where an attempt stands that speaks with its own hold id and the job's newest token.
pub(super) enum AttemptStatus<'a> {
    /// Its claim is live.
    Live(&'a Claim, u64),
    /// Its claim has run out, and no sweep has noted it yet.
    Unnoted(&'a Claim),
    /// It is over, and no attempt has claimed the job since.
    Over(&'a PastAttempt),
}

impl JobCase<'_> {
    fn claim(&self, hash: HoldHash, owner: &Owner, ttl_ms: u64) -> Decided {
        self.check_not_running()?;
        let now = self.standing.now;
        let state = self.record.state_at(now);
        if state != JobState::Queued {
            return Err(not_now(state, "only queued jobs can be claimed"));
        }
        let newest = self.standing.newest.max(self.record.token);
        let token = newest.next_to_grant().ok_or(JobRefusal::TokensExhausted)?;
        let mut record = self.record.clone();
        settle(&mut record, (JobState::Running, Due::Now), now);
        record.token = token;
        let claim =
            Claim { hash, owner: owner.clone(), ttl_ms, since: now, cancel: None, yield_request: None };
        let lasts_ms = limit_left_ms(&record, &claim, now).map_or(ttl_ms, |left_ms| ttl_ms.min(left_ms));
        record.claim = Some(Box::new(claim));
        let attempt = record.attempt_count();
        Ok(JobDecision {
            record: Some(record),
            deadline: DeadlineChange::LastsMs(lasts_ms),
            reply: Ok(JobCommandResult::Claimed { token, remaining_ms: lasts_ms, attempt }),
            facts: vec![EventData::JobClaimed { token, owner: owner.clone(), attempt }],
        })
    }

    /// Refuses what a live claim stands in the way of.
    pub(super) fn check_not_running(&self) -> Result<(), Refused> {
        let (Some(claim), HoldState::Live { remaining_ms }) = (&self.record.claim, self.standing.term) else {
            return Ok(());
        };
        let (owner, token) = (claim.owner.clone(), self.record.token);
        Err(JobRefusal::JobRunning { owner, token, remaining_ms }.into())
    }

    fn renew(&self, by: AttemptProof) -> Decided {
        let (claim, remaining_ms) = self.live(by, BlockedAction::Renew)?;
        let now = self.standing.now;
        let mut lasts_ms = claim.ttl_ms;
        if let Some(left_ms) = limit_left_ms(self.record, claim, now) {
            lasts_ms = lasts_ms.min(left_ms);
        }
        if let Some(notice) = &claim.yield_request {
            lasts_ms = lasts_ms.min(notice.yield_at_ms.saturating_sub(now.store_ms));
        }
        // Never less than what was acknowledged before.
        let lasts_ms = lasts_ms.max(remaining_ms);
        let renewal = AttemptRenewal {
            token: by.token,
            remaining_ms: lasts_ms,
            cancel_requested: claim.cancel.is_some(),
            yield_request: claim.yield_request.as_ref().map(|asked| asked.seen_at(now.store_ms)),
        };
        Ok(JobDecision {
            deadline: DeadlineChange::LastsMs(lasts_ms),
            ..answer(Ok(JobCommandResult::Renewed(renewal)))
        })
    }

    fn write(&self, by: AttemptProof, what: AttemptWrite) -> Decided {
        let attempted = match what {
            AttemptWrite::Checkpoint => BlockedAction::Checkpoint,
            AttemptWrite::Progress => BlockedAction::Progress,
            AttemptWrite::Intent => BlockedAction::BeginEffect,
            AttemptWrite::Outcome => BlockedAction::RecordEffect,
        };
        let may_be_late = matches!(what, AttemptWrite::Checkpoint | AttemptWrite::Outcome);
        match self.speaker(by, attempted)? {
            AttemptStatus::Live(..) => {}
            AttemptStatus::Unnoted(_) if may_be_late => {}
            AttemptStatus::Unnoted(claim) => {
                return Err(self.refuse(by, self.how_it_ran_out(claim), attempted));
            }
            AttemptStatus::Over(attempt) if may_be_late && self.is_open_to(attempt) => {}
            AttemptStatus::Over(attempt) => return Err(self.refuse(by, attempt.outcome, attempted)),
        }
        Ok(answer(Ok(JobCommandResult::MayWrite)))
    }

    /// Whether an attempt whose claim simply ran out may still report its outcome: no other attempt has had the job since, and no
    /// one has decided about it.
    pub(super) fn is_open_to(&self, attempt: &PastAttempt) -> bool {
        attempt.outcome.ran_out()
            && matches!(self.record.state, JobState::Queued | JobState::Scheduled | JobState::Quarantined)
    }

    /// The live claim that this hold id and token speak for, or why they speak for none.
    pub(super) fn live(&self, by: AttemptProof, attempted: BlockedAction) -> Result<(&Claim, u64), Refused> {
        match self.speaker(by, attempted)? {
            AttemptStatus::Live(claim, remaining_ms) => Ok((claim, remaining_ms)),
            AttemptStatus::Unnoted(claim) => Err(self.refuse(by, self.how_it_ran_out(claim), attempted)),
            AttemptStatus::Over(attempt) => Err(self.refuse(by, attempt.outcome, attempted)),
        }
    }

    /// Who speaks, if it may speak at all: everybody else is refused, each for its own reason.
    pub(super) fn speaker(
        &self,
        by: AttemptProof,
        attempted: BlockedAction,
    ) -> Result<AttemptStatus<'_>, Refused> {
        let (token, current) = (by.token, self.record.token);
        if token > self.standing.newest {
            let current_token = self.standing.newest;
            return Err(Refused {
                refusal: JobRefusal::StoreRewound { token, current_token },
                fact: Some(Box::new(EventData::StoreRewound { token, current_token })),
            });
        }
        if let Some(claim) = self.record.claim.as_ref().filter(|_| by.token == current) {
            if claim.hash != by.hash {
                return Err(JobRefusal::WrongHoldId { token }.into());
            }
            return Ok(match self.standing.term {
                HoldState::Live { remaining_ms } => AttemptStatus::Live(claim, remaining_ms),
                HoldState::Over { .. } | HoldState::Free => AttemptStatus::Unnoted(claim),
            });
        }
        let attempt = self.record.attempt(by.token);
        if attempt.is_some_and(|attempt| attempt.hash != by.hash) {
            return Err(JobRefusal::WrongHoldId { token }.into());
        }
        match attempt {
            Some(attempt) if by.token == current => Ok(AttemptStatus::Over(attempt)),
            Some(attempt) => Err(self.stale(by, Some(attempt.outcome), attempted)),
            None if self.may_have_forgotten(token) => Err(self.stale(by, None, attempted)),
            None => Err(JobRefusal::WrongJob { token, job_id: None }.into()),
        }
    }

    fn may_have_forgotten(&self, token: Token) -> bool {
        let trail = self.record.trail.as_ref().filter(|trail| trail.forgotten > 0);
        trail
            .and_then(|trail| trail.attempts.first())
            .is_some_and(|oldest| token < oldest.token)
    }

    fn stale(&self, by: AttemptProof, how: Option<AttemptOutcome>, attempted: BlockedAction) -> Refused {
        let (token, current_token) = (by.token, self.record.token);
        self.blocked(JobRefusal::Stale { token, outcome: how, current_token }, by, how, attempted)
    }

    /// Refuses an attempt that is over, although no other attempt has had the job since.
    pub(super) fn refuse(&self, by: AttemptProof, how: AttemptOutcome, attempted: BlockedAction) -> Refused {
        // Who renews learns how its claim ended; who reports, that the job has come to its end without it.
        let asks_why = attempted == BlockedAction::Renew && how.ran_out();
        let refusal = if self.record.state.is_final() && !asks_why {
            JobRefusal::Finished { state: self.record.state }
        } else {
            JobRefusal::Over { token: by.token, outcome: how }
        };
        self.blocked(refusal, by, Some(how), attempted)
    }

    fn blocked(
        &self,
        refusal: JobRefusal,
        by: AttemptProof,
        how: Option<AttemptOutcome>,
        attempted: BlockedAction,
    ) -> Refused {
        let fact = EventData::StaleWriteBlocked {
            token: by.token,
            current_token: self.record.token,
            action: attempted,
            outcome: how.map(AttemptOutcome::how),
        };
        Refused { refusal, fact: Some(Box::new(fact)) }
    }

    /// Why the time of a claim that is over was up.
    pub(super) fn how_it_ran_out(&self, claim: &Claim) -> AttemptOutcome {
        let ended_at_ms = self.ran_out_at().store_ms;
        let ended_at = Timestamp { store_ms: ended_at_ms, ..self.standing.now };
        if limit_left_ms(self.record, claim, ended_at) == Some(0) {
            AttemptOutcome::TimedOut
        } else if claim
            .yield_request
            .as_ref()
            .is_some_and(|notice| notice.yield_at_ms <= ended_at_ms)
        {
            AttemptOutcome::Yielded
        } else {
            AttemptOutcome::Crashed
        }
    }

    /// When the claim that is over ran out.
    pub(super) fn ran_out_at(&self) -> Timestamp {
        match self.standing.term {
            HoldState::Over { since_ms } => self.standing.now.earlier(since_ms),
            HoldState::Free | HoldState::Live { .. } => self.standing.now,
        }
    }
}

/// How much of its time limit an attempt has left.
fn limit_left_ms(record: &JobRecord, claim: &Claim, now: Timestamp) -> Option<u64> {
    let limit_ms = u64::from(record.options.attempt_timeout_ms?.get());
    Some(claim.since.store_ms.saturating_add(limit_ms).saturating_sub(now.store_ms))
}

pub(super) fn not_now(state: JobState, why: &str) -> Refused {
    JobRefusal::WrongState { state, message: why.to_owned() }.into()
}

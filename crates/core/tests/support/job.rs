//! One job in the smallest store there can be: a record, a deadline, the store's newest token and clocks that the test
//! moves.

use std::num::NonZeroU32;
use std::time::Duration;

use fencehold_core::job::{
    AttemptOutcome, AttemptProof, AttemptRenewal, AttemptWrite, ForcedState, JobCommand, JobCommandResult,
    JobDecision, JobOptions, JobRecord, JobRefusal, JobStanding, JobState, ReportedAttempt, decide,
};
use fencehold_core::lease::{DeadlineChange, PreemptRequest};
use fencehold_core::retry::RetryPolicy;
use fencehold_core::{EventData, Owner, Reason, Timestamp, Token};

use super::{TTL_MS, changed, hold, owner, task, term};

/// The delay after every failure of a job that names no other.
pub(crate) const RETRY_MS: u64 = 60_000;

/// One job, as a store would keep it.
#[derive(Clone, Debug)]
pub(crate) struct OneJob {
    pub(crate) record: JobRecord,
    pub(crate) deadline_ms: Option<u64>,
    /// The newest token that the store has given to any job.
    pub(crate) newest: Token,
    pub(crate) now: Timestamp,
    /// What happened since the news were last read.
    pub(crate) facts: Vec<EventData>,
}

/// Terms on which every number is known: three attempts, two crashes, a fixed delay without jitter.
pub(crate) fn terms() -> JobOptions {
    let retry_ms = u32::try_from(RETRY_MS).expect("a short delay");
    let retry = RetryPolicy::fixed(Duration::from_millis(retry_ms.into()));
    JobOptions { max_failures: 3, max_crashes: 2, retry, ..JobOptions::default() }
}

/// A good reason.
pub(crate) fn reason() -> Reason {
    Reason::new("the customer left").expect("a good reason")
}

impl OneJob {
    /// A job that was just enqueued in a store that has given 100 tokens to others.
    pub(crate) fn new() -> Self {
        OneJob::with(terms())
    }

    /// The same with a time limit for every attempt.
    pub(crate) fn with_limit(limit_ms: u32) -> Self {
        OneJob::with(JobOptions { attempt_timeout_ms: NonZeroU32::new(limit_ms), ..terms() })
    }

    pub(crate) fn with(terms: JobOptions) -> Self {
        let now = Timestamp { store_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
        OneJob {
            record: JobRecord::new(terms, None, now),
            deadline_ms: None,
            newest: Token::new(100),
            now,
            facts: Vec::new(),
        }
    }

    /// A job that hold id 1 has just claimed, and what proves it; that is no news any more.
    pub(crate) fn held() -> (Self, AttemptProof) {
        OneJob::new().after(|job| job.claimed(1))
    }

    /// The job after something was done with it, and what proves the attempt; what has happened is no news any more.
    pub(crate) fn after(mut self, act: impl FnOnce(&mut Self) -> AttemptProof) -> (Self, AttemptProof) {
        let by = act(&mut self);
        self.facts.clear();
        (self, by)
    }

    /// A job that has come to this state in the usual way.
    pub(crate) fn in_state(state: JobState) -> Self {
        let mut job = OneJob::new();
        let mut report = |say: fn(&mut OneJob, AttemptProof) -> Result<ReportedAttempt, JobRefusal>| {
            let by = job.claimed(1);
            say(&mut job, by).expect("a live claim");
        };
        match state {
            JobState::Completed => report(OneJob::complete),
            JobState::Failed => report(OneJob::fail_for_good),
            JobState::InDoubt => report(OneJob::stop_at_intent),
            JobState::Scheduled => report(OneJob::fail),
            JobState::Cancelled => assert!(job.cancel(false).is_ok()),
            JobState::Quarantined => {
                job.quarantined();
            }
            _ => panic!("a job does not end {state}"),
        }
        assert_eq!(job.state(), state);
        job
    }

    /// Lets time pass on both clocks.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.store_ms += ms;
        self.now.wall_ms += ms;
    }

    pub(crate) fn standing(&self) -> JobStanding {
        JobStanding { now: self.now, newest: self.newest, term: term(self.deadline_ms, self.now) }
    }

    /// What would follow, without carrying it out.
    pub(crate) fn decision(&self, command: &JobCommand) -> JobDecision {
        decide(&self.standing(), &self.record, command)
    }

    /// Carries a command out. A refusal changes nothing.
    pub(crate) fn ask(&mut self, command: &JobCommand) -> Result<JobCommandResult, JobRefusal> {
        let decision = self.decision(command);
        if decision.reply.is_err() {
            let changes = (&decision.record, decision.deadline);
            assert_eq!(changes, (&None, DeadlineChange::Keep), "refused: {command:?}");
        }
        if let Some(record) = decision.record {
            self.record = record;
        }
        self.deadline_ms = changed(self.deadline_ms, decision.deadline, self.now);
        self.newest = self.newest.max(self.record.token);
        self.facts.extend(decision.facts);
        decision.reply
    }

    /// Other jobs of the store take tokens.
    pub(crate) fn others_take(&mut self, tokens: u64) {
        self.newest = Token::new(self.newest.get() + tokens);
    }

    pub(crate) fn claim(&mut self, id: u8) -> Result<Token, JobRefusal> {
        let answer = self.ask(&claiming("worker", id))?;
        assert_matches!(answer, JobCommandResult::Claimed { token, .. } => Ok(token))
    }

    /// Claims, and must be given the job.
    pub(crate) fn claimed(&mut self, id: u8) -> AttemptProof {
        AttemptProof { hash: hold(id), token: self.claim(id).expect("the job is ready") }
    }

    /// A claim of this hold id that has run out, unnoted.
    pub(crate) fn run_out(&mut self, id: u8) -> AttemptProof {
        let by = self.claimed(id);
        self.pass(TTL_MS);
        by
    }

    /// A claim of this hold id that has run out and was noted as a crash.
    pub(crate) fn crashed(&mut self, id: u8) -> AttemptProof {
        let by = self.run_out(id);
        assert_eq!(self.expire(0), Ok(JobCommandResult::Expired { how: AttemptOutcome::Crashed }));
        by
    }

    /// The holder dies so often that the job is quarantined.
    pub(crate) fn quarantined(&mut self) -> AttemptProof {
        loop {
            let by = self.crashed(200);
            if self.record.state == JobState::Quarantined {
                return by;
            }
        }
    }

    pub(crate) fn renew(&mut self, by: AttemptProof) -> Result<AttemptRenewal, JobRefusal> {
        assert_matches!(self.ask(&JobCommand::Renew(by))?, JobCommandResult::Renewed(renewal) => Ok(renewal))
    }

    pub(crate) fn complete(&mut self, by: AttemptProof) -> Result<ReportedAttempt, JobRefusal> {
        self.report(&JobCommand::Complete(by))
    }

    pub(crate) fn fail(&mut self, by: AttemptProof) -> Result<ReportedAttempt, JobRefusal> {
        self.report(&failing(by))
    }

    pub(crate) fn fail_for_good(&mut self, by: AttemptProof) -> Result<ReportedAttempt, JobRefusal> {
        let error = "no such customer".into();
        self.report(&JobCommand::Fail { by, error, retry_in_ms: None, for_good: true, random: 0 })
    }

    pub(crate) fn snooze(&mut self, by: AttemptProof, for_ms: u64) -> Result<ReportedAttempt, JobRefusal> {
        self.report(&JobCommand::Snooze { by, for_ms })
    }

    pub(crate) fn hand_back(&mut self, by: AttemptProof) -> Result<ReportedAttempt, JobRefusal> {
        self.report(&JobCommand::HandBack(by))
    }

    pub(crate) fn stop_at_intent(&mut self, by: AttemptProof) -> Result<ReportedAttempt, JobRefusal> {
        self.report(&JobCommand::StopAtIntent { by, effect: "charge".into() })
    }

    fn report(&mut self, command: &JobCommand) -> Result<ReportedAttempt, JobRefusal> {
        assert_matches!(self.ask(command)?, JobCommandResult::Reported(reported) => Ok(reported), "{command:?}")
    }

    pub(crate) fn write(
        &mut self,
        by: AttemptProof,
        what: AttemptWrite,
    ) -> Result<JobCommandResult, JobRefusal> {
        self.ask(&JobCommand::Write { by, what })
    }

    pub(crate) fn expire(&mut self, random: u64) -> Result<JobCommandResult, JobRefusal> {
        self.ask(&JobCommand::Expire { random })
    }

    pub(crate) fn cancel(&mut self, now: bool) -> Result<JobState, JobRefusal> {
        assert_matches!(self.ask(&cancelling(now))?, JobCommandResult::Cancelled { state } => Ok(state))
    }

    pub(crate) fn end_by_force(&mut self, state: ForcedState) -> Result<JobState, JobRefusal> {
        match self.ask(&JobCommand::EndByForce { state, by: operator(), reason: reason() })? {
            JobCommandResult::EndedByForce { state } => Ok(state),
            other => panic!("an end by force was answered {other:?}"),
        }
    }

    pub(crate) fn retry(&mut self) -> Result<JobCommandResult, JobRefusal> {
        self.ask(&JobCommand::Retry { by: operator() })
    }

    pub(crate) fn delete(&mut self, force: bool) -> Result<JobCommandResult, JobRefusal> {
        self.ask(&JobCommand::Delete { force })
    }

    pub(crate) fn preempt(
        &mut self,
        priority: i16,
        yield_in_ms: u64,
    ) -> Result<JobCommandResult, JobRefusal> {
        self.ask(&preempting(priority, yield_in_ms))
    }

    /// How the job stands at this moment.
    pub(crate) fn state(&self) -> JobState {
        self.record.state_at(self.now)
    }

    /// Failures and crashes so far.
    pub(crate) fn counts(&self) -> (u16, u16) {
        (self.record.failure_count, self.record.crash_count)
    }

    /// How the last attempt ended.
    pub(crate) fn how(&self) -> AttemptOutcome {
        self.record.attempts().last().expect("an attempt has ended").outcome
    }

    /// What happened since this was last asked.
    pub(crate) fn news(&mut self) -> Vec<EventData> {
        std::mem::take(&mut self.facts)
    }

    /// The record, the deadline and the newest token: what a refusal must leave alone.
    pub(crate) fn kept(&self) -> (JobRecord, Option<u64>, Token) {
        (self.record.clone(), self.deadline_ms, self.newest)
    }
}

pub(crate) fn operator() -> Owner {
    owner("operator")
}

pub(crate) fn claiming(name: &str, id: u8) -> JobCommand {
    JobCommand::Claim { hash: hold(id), owner: owner(name), ttl_ms: TTL_MS }
}

pub(crate) fn failing(by: AttemptProof) -> JobCommand {
    JobCommand::Fail { by, error: "no route to host".into(), retry_in_ms: None, for_good: false, random: 0 }
}

pub(crate) fn cancelling(now: bool) -> JobCommand {
    JobCommand::Cancel { by: operator(), reason: Some(reason()), now }
}

pub(crate) fn preempting(priority: i16, yield_in_ms: u64) -> JobCommand {
    JobCommand::Preempt(PreemptRequest {
        contender: owner("contender"),
        task: Some(task("urgent")),
        priority,
        yield_in_ms,
    })
}

/// The answer to a report that came in time.
pub(crate) fn reported(state: JobState, again_in_ms: Option<u64>) -> ReportedAttempt {
    ReportedAttempt { state, retry_in_ms: again_in_ms, late: false }
}

/// The answer to a report that came after the claim had run out.
pub(crate) fn late(state: JobState, again_in_ms: Option<u64>) -> ReportedAttempt {
    ReportedAttempt { state, retry_in_ms: again_in_ms, late: true }
}

/// What an attempt learns after which the job went on.
pub(crate) fn stale(by: AttemptProof, how: AttemptOutcome, current_token: Token) -> JobRefusal {
    JobRefusal::Stale { token: by.token, outcome: Some(how), current_token }
}

/// What an attempt learns that is over, and after which nothing went on.
pub(crate) fn over(by: AttemptProof, how: AttemptOutcome) -> JobRefusal {
    JobRefusal::Over { token: by.token, outcome: how }
}

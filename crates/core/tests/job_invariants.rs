//! Every invariant of a job bites: for each there is a wrong decision, made by hand, that it refuses by name.

use fencehold_core::Token;
use fencehold_core::job::{
    AttemptOutcome, AttemptProof, AttemptRenewal, Due, JobCommand, JobCommandResult, JobDecision, JobRecord,
    JobState, JobViolation, PastAttempt, ReportedAttempt, check,
};
use fencehold_core::lease::DeadlineChange;
use fencehold_core::limits::{TOKEN_MAX, TRAIL_MAX};

use crate::support::job::{OneJob, cancelling, claiming, failing, operator};
use crate::support::{TTL_MS, hold};

/// A holds the job under token 101 for another 20 s.
fn held() -> (OneJob, AttemptProof) {
    let mut job = OneJob::new();
    let by = job.claimed(1);
    job.pass(10_000);
    (job, by)
}

/// A's claim has run out, and no sweep has noted it.
fn over() -> (OneJob, AttemptProof) {
    let (mut job, by) = held();
    job.pass(TTL_MS);
    (job, by)
}

/// What the check says of the right decision made wrong. Untouched it must pass.
fn bites(job: &OneJob, command: &JobCommand, spoil: impl FnOnce(&mut JobDecision)) -> JobViolation {
    let right = job.decision(command);
    assert_eq!(check(&job.standing(), &job.record, command, &right), Ok(()), "the right decision passes");
    let mut wrong = right.clone();
    spoil(&mut wrong);
    assert_ne!(wrong, right, "nothing was spoilt");
    check(&job.standing(), &job.record, command, &wrong).expect_err("a wrong decision passed")
}

/// What the decision keeps; where it keeps nothing new, the record as it was.
fn record<'a>(job: &OneJob, decision: &'a mut JobDecision) -> &'a mut JobRecord {
    decision.record.get_or_insert_with(|| job.record.clone())
}

fn last_attempt(record: &mut JobRecord) -> &mut PastAttempt {
    let trail = record.trail.as_mut().expect("an attempt has ended");
    trail.attempts.last_mut().expect("an attempt has ended")
}

const REPORTED: ReportedAttempt =
    ReportedAttempt { state: JobState::Completed, retry_in_ms: None, late: false };

#[test]
fn a_live_claim_that_is_overwritten_makes_two_holders() {
    let (job, _) = held();
    let violation = bites(&job, &claiming("b", 2), |wrong| {
        let mut other = OneJob::new();
        other.others_take(1);
        other.claimed(2);
        let taken = other.record;
        let record = record(&job, wrong);
        record.claim = taken.claim;
        record.token = taken.token;
        wrong.reply = Ok(JobCommandResult::Claimed { token: taken.token, remaining_ms: TTL_MS, attempt: 2 });
        wrong.deadline = DeadlineChange::LastsMs(TTL_MS);
    });
    assert_eq!(violation, JobViolation::TwoHolders);
}

#[test]
fn tokens_that_go_down_stand_still_or_pass_the_cap_are_caught() {
    let (job, by) = held();
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| record(&job, wrong).token = Token::NONE);
    assert_eq!(violation, JobViolation::TokenDidNotGrow);
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| {
        record(&job, wrong).token = Token::new(TOKEN_MAX + 1);
    });
    assert_eq!(violation, JobViolation::TokenOverCap);

    let ready = OneJob::new();
    for wrong_token in [ready.newest, Token::new(7)] {
        let violation = bites(&ready, &claiming("b", 2), |wrong| {
            record(&ready, wrong).token = wrong_token;
            wrong.reply =
                Ok(JobCommandResult::Claimed { token: wrong_token, remaining_ms: TTL_MS, attempt: 1 });
        });
        assert_eq!(violation, JobViolation::TokenDidNotGrow, "another job has {wrong_token}");
    }
}

#[test]
fn a_renewal_that_changes_revives_shortens_or_lies_is_caught() {
    let (job, by) = held();
    let renew = JobCommand::Renew(by);
    let violation = bites(&job, &renew, |wrong| record(&job, wrong).since_wall_ms += 1);
    assert_eq!(violation, JobViolation::RenewalChangedTheRecord);
    let violation = bites(&job, &renew, |wrong| wrong.deadline = DeadlineChange::LastsMs(1));
    assert_eq!(violation, JobViolation::DeadlineMovedEarlier);
    let violation = bites(&job, &renew, |wrong| wrong.deadline = DeadlineChange::LastsMs(TTL_MS + 1));
    assert_eq!(violation, JobViolation::ToldAnotherDeadline);

    let (job, by) = over();
    let violation = bites(&job, &JobCommand::Renew(by), |wrong| {
        let (token, remaining_ms) = (by.token, TTL_MS);
        let cancel_requested = false;
        let renewal = AttemptRenewal { token, remaining_ms, cancel_requested, yield_request: None };
        wrong.reply = Ok(JobCommandResult::Renewed(renewal));
        wrong.deadline = DeadlineChange::LastsMs(TTL_MS);
    });
    assert_eq!(violation, JobViolation::RenewalRevived);
}

#[test]
fn a_sweep_that_ends_a_live_claim_is_caught() {
    let (job, _) = held();
    let expire = JobCommand::Expire { random: 0 };
    let violation = bites(&job, &expire, |wrong| {
        wrong.reply = Ok(JobCommandResult::Expired { how: AttemptOutcome::Crashed });
    });
    assert_eq!(violation, JobViolation::LiveClaimExpired);
    let violation = bites(&job, &expire, |wrong| {
        let mut late = job.clone();
        late.pass(TTL_MS);
        *wrong = late.decision(&expire);
    });
    assert_eq!(violation, JobViolation::LiveClaimExpired);
}

#[test]
fn a_stranger_that_is_believed_is_caught() {
    let (mut job, first) = over();
    job.expire(0).unwrap();
    let second = job.claimed(2);
    let right = job.decision(&JobCommand::Complete(second));
    let thief = AttemptProof { hash: hold(9), ..second };
    for stranger in [first, thief] {
        let violation = bites(&job, &JobCommand::Complete(stranger), |wrong| {
            *wrong = right.clone();
            wrong.facts.clear();
        });
        assert_eq!(violation, JobViolation::StrangerBelieved, "it completed the job");
        let violation = bites(&job, &JobCommand::Complete(stranger), |wrong| {
            wrong.reply = Ok(JobCommandResult::Reported(REPORTED));
        });
        assert_eq!(violation, JobViolation::StrangerBelieved, "the answer was that it had");
    }
}

#[test]
fn a_refusal_that_changes_something_is_caught() {
    let (job, _) = held();
    let violation = bites(&job, &claiming("b", 2), |wrong| record(&job, wrong).since_wall_ms += 1);
    assert_eq!(violation, JobViolation::RefusalChangedTheJob);
}

#[test]
fn an_end_that_does_not_stand_is_caught() {
    let (mut job, by) = held();
    job.complete(by).unwrap();
    for command in [failing(by), JobCommand::Retry { by: operator() }] {
        let violation = bites(&job, &command, |wrong| {
            let record = record(&job, wrong);
            record.state = JobState::Queued;
            record.token = Token::new(200);
            wrong.reply = Ok(JobCommandResult::Reported(REPORTED));
        });
        assert_eq!(violation, JobViolation::EndDidNotStand, "{command:?}");
    }
    let violation = bites(&OneJob::new(), &cancelling(false), |wrong| {
        wrong.reply = Ok(JobCommandResult::Cancelled { state: JobState::Running });
    });
    assert_eq!(violation, JobViolation::EndDidNotStand, "an answer had another state");
}

#[test]
fn force_without_a_token_is_caught() {
    let (job, by) = held();
    let violation = bites(&job, &cancelling(true), |wrong| record(&job, wrong).token = by.token);
    assert_eq!(violation, JobViolation::ForceWithoutToken);

    let (mut job, by) = held();
    job.fail_for_good(by).unwrap();
    let violation = bites(&job, &JobCommand::Retry { by: operator() }, |wrong| {
        record(&job, wrong).token = by.token;
    });
    assert_eq!(violation, JobViolation::ForceWithoutToken);
}

#[test]
fn an_attempt_that_vanishes_is_caught() {
    let (job, by) = held();
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| record(&job, wrong).trail = None);
    assert_eq!(violation, JobViolation::EndingNotRecorded);
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| {
        record(&job, wrong).trail.as_mut().unwrap().forgotten = 7;
    });
    assert_eq!(violation, JobViolation::EndingNotRecorded, "attempts that never were");
}

#[test]
fn a_trail_out_of_order_or_too_long_is_caught() {
    let (job, by) = held();
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| {
        last_attempt(record(&job, wrong)).token = Token::new(999);
    });
    assert_eq!(violation, JobViolation::TrailMalformed);
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| {
        let attempts = &mut record(&job, wrong).trail.as_mut().unwrap().attempts;
        let one = attempts[0].clone();
        let before =
            (1..=TRAIL_MAX as u64).map(|token| PastAttempt { token: Token::new(token), ..one.clone() });
        attempts.splice(..0, before);
    });
    assert_eq!(violation, JobViolation::TrailMalformed);
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| {
        let attempts = &mut record(&job, wrong).trail.as_mut().unwrap().attempts;
        attempts.push(attempts[0].clone());
    });
    assert_eq!(violation, JobViolation::TrailMalformed, "one attempt twice");
    let mut again = OneJob::new();
    again.crashed(1);
    again.pass(TTL_MS);
    let violation = bites(&again, &claiming("b", 2), |wrong| {
        let record = record(&again, wrong);
        let token = record.token;
        last_attempt(record).token = token;
    });
    assert_eq!(violation, JobViolation::TrailMalformed, "over, and under way as well");
}

#[test]
fn deadlines_and_claims_that_do_not_fit_are_caught() {
    let (job, by) = held();
    for deadline in [DeadlineChange::Keep, DeadlineChange::LastsMs(TTL_MS)] {
        let violation = bites(&job, &JobCommand::Complete(by), |wrong| wrong.deadline = deadline);
        assert_eq!(violation, JobViolation::DeadlineWithoutClaim, "completed, but {deadline:?}");
    }
    let ready = OneJob::new();
    for deadline in [DeadlineChange::Keep, DeadlineChange::Clear] {
        let violation = bites(&ready, &claiming("b", 2), |wrong| wrong.deadline = deadline);
        assert_eq!(violation, JobViolation::DeadlineWithoutClaim, "claimed, but {deadline:?}");
    }
    let violation = bites(&ready, &claiming("b", 2), |wrong| record(&ready, wrong).state = JobState::Queued);
    assert_eq!(violation, JobViolation::RunningWithoutClaim);
    let violation =
        bites(&job, &JobCommand::Complete(by), |wrong| record(&job, wrong).state = JobState::Running);
    assert_eq!(violation, JobViolation::RunningWithoutClaim);
}

#[test]
fn a_job_that_waits_for_nothing_is_caught() {
    let (job, by) = held();
    let snooze = JobCommand::Snooze { by, for_ms: 5 };
    let violation = bites(&job, &snooze, |wrong| record(&job, wrong).due = Due::Now);
    assert_eq!(violation, JobViolation::DueDoesNotFitState);
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| record(&job, wrong).due = Due::Store(5));
    assert_eq!(violation, JobViolation::DueDoesNotFitState);
}

#[test]
fn failures_and_crashes_that_are_not_counted_as_said_are_caught() {
    let expire = JobCommand::Expire { random: 0 };
    let (job, by) = held();
    let violation = bites(&job, &failing(by), |wrong| record(&job, wrong).failure_count = 0);
    assert_eq!(violation, JobViolation::Miscounted, "a failure");
    let violation = bites(&job, &JobCommand::HandBack(by), |wrong| record(&job, wrong).failure_count = 1);
    assert_eq!(violation, JobViolation::Miscounted, "a hand back");
    let (mut job, by) = over();
    let violation = bites(&job, &expire, |wrong| record(&job, wrong).crash_count = 0);
    assert_eq!(violation, JobViolation::Miscounted, "a crash");
    let violation = bites(&job, &expire, |wrong| record(&job, wrong).failure_count = 1);
    assert_eq!(violation, JobViolation::Miscounted, "a crash is not a failure");
    job.expire(0).unwrap();
    let violation = bites(&job, &JobCommand::Complete(by), |wrong| record(&job, wrong).crash_count = 1);
    assert_eq!(violation, JobViolation::Miscounted, "not given back");
    let violation =
        bites(&job, &JobCommand::Retry { by: operator() }, |wrong| record(&job, wrong).crash_count = 1);
    assert_eq!(violation, JobViolation::Miscounted, "not started over");
}

#[test]
fn a_job_that_is_tried_too_often_is_caught() {
    let (mut job, by) = held();
    job.record.failure_count = 2;
    let again = |record: &mut JobRecord| (record.state, record.due) = (JobState::Scheduled, Due::Store(5));
    let violation = bites(&job, &failing(by), |wrong| again(record(&job, wrong)));
    assert_eq!(violation, JobViolation::TriedTooOften, "a third failure of three");
    let (mut job, _) = over();
    job.record.crash_count = 1;
    let violation = bites(&job, &JobCommand::Expire { random: 0 }, |wrong| again(record(&job, wrong)));
    assert_eq!(violation, JobViolation::TriedTooOften, "a second crash of two");
}

#[test]
fn a_cancellation_that_is_forgotten_is_caught() {
    let (mut job, by) = held();
    job.cancel(false).unwrap();
    let violation =
        bites(&job, &JobCommand::HandBack(by), |wrong| record(&job, wrong).state = JobState::Queued);
    assert_eq!(violation, JobViolation::CancelForgotten);
}

#[test]
fn terms_that_change_are_caught() {
    let (job, by) = held();
    let violation =
        bites(&job, &JobCommand::Complete(by), |wrong| record(&job, wrong).options.max_crashes += 1);
    assert_eq!(violation, JobViolation::TermsChanged);
}

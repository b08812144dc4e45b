//! Every invariant of a job bites: for each there is a wrong decision, made by hand, that it refuses by name.

use fencehold_core::job::JobViolation::{
    self, CancelForgotten, DeadlineMovedEarlier, DeadlineWithoutClaim, DueDoesNotFitState, EndDidNotStand,
    EndingNotRecorded, ForceWithoutToken, LiveClaimExpired, Miscounted, RefusalChangedTheJob,
    RenewalChangedTheRecord, RenewalRevived, RunningWithoutClaim, StrangerBelieved, TermsChanged,
    TokenDidNotGrow, TokenOverCap, ToldAnotherDeadline, TrailMalformed, TriedTooOften, TwoHolders,
};
use fencehold_core::job::check;

use crate::prelude::*;

/// A holds the job under token 101 for another 20 s.
fn held() -> (OneJob, AttemptProof) {
    let (mut job, by) = OneJob::held();
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
#[track_caller]
fn violation(job: &OneJob, command: &JobCommand, spoil: impl FnOnce(&mut JobDecision)) -> JobViolation {
    let right = job.decision(command);
    assert_eq!(check(&job.standing(), &job.record, command, &right), Ok(()), "the right decision passes");
    let mut wrong = right.clone();
    spoil(&mut wrong);
    assert_ne!(wrong, right, "nothing was spoilt");
    check(&job.standing(), &job.record, command, &wrong).expect_err("a wrong decision passed")
}

/// The check refuses the right decision made wrong, by this name.
#[track_caller]
fn bites(job: &OneJob, command: &JobCommand, name: JobViolation, spoil: impl FnOnce(&mut JobDecision)) {
    assert_eq!(violation(job, command, spoil), name);
}

/// What the decision keeps; where it keeps nothing new, the record as it was.
fn record<'a>(job: &OneJob, decision: &'a mut JobDecision) -> &'a mut JobRecord {
    decision.record.get_or_insert_with(|| job.record.clone())
}

/// The same, where what is wrong is what the decision keeps.
#[track_caller]
fn bites_kept(job: &OneJob, command: &JobCommand, name: JobViolation, spoil: impl FnOnce(&mut JobRecord)) {
    bites(job, command, name, |wrong| spoil(record(job, wrong)));
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
    bites(&job, &claiming("b", 2), TwoHolders, |wrong| {
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
}

#[test]
fn tokens_that_go_down_stand_still_or_pass_the_cap_are_caught() {
    let (job, by) = held();
    let complete = JobCommand::Complete(by);
    bites_kept(&job, &complete, TokenDidNotGrow, |record| record.token = Token::NONE);
    bites_kept(&job, &complete, TokenOverCap, |record| record.token = Token::new(TOKEN_MAX + 1));

    let ready = OneJob::new();
    for wrong_token in [ready.newest, Token::new(7)] {
        let found = violation(&ready, &claiming("b", 2), |wrong| {
            record(&ready, wrong).token = wrong_token;
            wrong.reply =
                Ok(JobCommandResult::Claimed { token: wrong_token, remaining_ms: TTL_MS, attempt: 1 });
        });
        assert_eq!(found, TokenDidNotGrow, "another job has {wrong_token}");
    }
}

#[test]
fn a_renewal_that_changes_revives_shortens_or_lies_is_caught() {
    let (job, by) = held();
    let renew = JobCommand::Renew(by);
    bites_kept(&job, &renew, RenewalChangedTheRecord, |record| record.since_wall_ms += 1);
    bites(&job, &renew, DeadlineMovedEarlier, |wrong| wrong.deadline = DeadlineChange::LastsMs(1));
    bites(&job, &renew, ToldAnotherDeadline, |wrong| wrong.deadline = DeadlineChange::LastsMs(TTL_MS + 1));

    let (job, by) = over();
    bites(&job, &JobCommand::Renew(by), RenewalRevived, |wrong| {
        let (token, remaining_ms) = (by.token, TTL_MS);
        let cancel_requested = false;
        let renewal = AttemptRenewal { token, remaining_ms, cancel_requested, yield_request: None };
        wrong.reply = Ok(JobCommandResult::Renewed(renewal));
        wrong.deadline = DeadlineChange::LastsMs(TTL_MS);
    });
}

#[test]
fn a_sweep_that_ends_a_live_claim_is_caught() {
    let (job, _) = held();
    let expire = JobCommand::Expire { random: 0 };
    bites(&job, &expire, LiveClaimExpired, |wrong| {
        wrong.reply = Ok(JobCommandResult::Expired { how: AttemptOutcome::Crashed });
    });
    bites(&job, &expire, LiveClaimExpired, |wrong| {
        let mut late = job.clone();
        late.pass(TTL_MS);
        *wrong = late.decision(&expire);
    });
}

#[test]
fn a_stranger_that_is_believed_is_caught() {
    let (mut job, first) = over();
    job.expire(0).unwrap();
    let second = job.claimed(2);
    let right = job.decision(&JobCommand::Complete(second));
    let thief = AttemptProof { hash: hold(9), ..second };
    for stranger in [first, thief] {
        // It completed the job.
        bites(&job, &JobCommand::Complete(stranger), StrangerBelieved, |wrong| {
            *wrong = right.clone();
            wrong.facts.clear();
        });
        // The answer was that it had.
        bites(&job, &JobCommand::Complete(stranger), StrangerBelieved, |wrong| {
            wrong.reply = Ok(JobCommandResult::Reported(REPORTED));
        });
    }
}

#[test]
fn a_refusal_that_changes_something_is_caught() {
    let (job, _) = held();
    bites_kept(&job, &claiming("b", 2), RefusalChangedTheJob, |record| record.since_wall_ms += 1);
}

#[test]
fn an_end_that_does_not_stand_is_caught() {
    let (mut job, by) = held();
    job.complete(by).unwrap();
    for command in [failing(by), JobCommand::Retry { by: operator() }] {
        let found = violation(&job, &command, |wrong| {
            let record = record(&job, wrong);
            record.state = JobState::Queued;
            record.token = Token::new(200);
            wrong.reply = Ok(JobCommandResult::Reported(REPORTED));
        });
        assert_eq!(found, EndDidNotStand, "{command:?}");
    }
    // An answer had another state.
    bites(&OneJob::new(), &cancelling(false), EndDidNotStand, |wrong| {
        wrong.reply = Ok(JobCommandResult::Cancelled { state: JobState::Running });
    });
}

#[test]
fn force_without_a_token_is_caught() {
    let (job, by) = held();
    bites_kept(&job, &cancelling(true), ForceWithoutToken, |record| record.token = by.token);

    let (mut job, by) = held();
    job.fail_for_good(by).unwrap();
    bites_kept(&job, &JobCommand::Retry { by: operator() }, ForceWithoutToken, |record| {
        record.token = by.token;
    });
}

#[test]
fn an_attempt_that_vanishes_is_caught() {
    let (job, by) = held();
    let complete = JobCommand::Complete(by);
    bites_kept(&job, &complete, EndingNotRecorded, |record| record.trail = None);
    // Attempts that never were.
    bites_kept(&job, &complete, EndingNotRecorded, |record| record.trail.as_mut().unwrap().forgotten = 7);
}

#[test]
fn a_trail_out_of_order_or_too_long_is_caught() {
    let (job, by) = held();
    let complete = JobCommand::Complete(by);
    bites_kept(&job, &complete, TrailMalformed, |record| last_attempt(record).token = Token::new(999));
    bites(&job, &complete, TrailMalformed, |wrong| {
        let attempts = &mut record(&job, wrong).trail.as_mut().unwrap().attempts;
        let one = attempts[0].clone();
        let before =
            (1..=TRAIL_MAX as u64).map(|token| PastAttempt { token: Token::new(token), ..one.clone() });
        attempts.splice(..0, before);
    });
    // One attempt twice.
    bites(&job, &complete, TrailMalformed, |wrong| {
        let attempts = &mut record(&job, wrong).trail.as_mut().unwrap().attempts;
        attempts.push(attempts[0].clone());
    });
    let mut again = OneJob::new();
    again.crashed(1);
    again.pass(TTL_MS);
    // Over, and under way as well.
    bites(&again, &claiming("b", 2), TrailMalformed, |wrong| {
        let record = record(&again, wrong);
        let token = record.token;
        last_attempt(record).token = token;
    });
}

#[test]
fn deadlines_and_claims_that_do_not_fit_are_caught() {
    let (job, by) = held();
    let complete = JobCommand::Complete(by);
    for deadline in [DeadlineChange::Keep, DeadlineChange::LastsMs(TTL_MS)] {
        let found = violation(&job, &complete, |wrong| wrong.deadline = deadline);
        assert_eq!(found, DeadlineWithoutClaim, "completed, but {deadline:?}");
    }
    let ready = OneJob::new();
    for deadline in [DeadlineChange::Keep, DeadlineChange::Clear] {
        let found = violation(&ready, &claiming("b", 2), |wrong| wrong.deadline = deadline);
        assert_eq!(found, DeadlineWithoutClaim, "claimed, but {deadline:?}");
    }
    bites_kept(&ready, &claiming("b", 2), RunningWithoutClaim, |record| record.state = JobState::Queued);
    bites_kept(&job, &complete, RunningWithoutClaim, |record| record.state = JobState::Running);
}

#[test]
fn a_job_that_waits_for_nothing_is_caught() {
    let (job, by) = held();
    let snooze = JobCommand::Snooze { by, for_ms: 5 };
    bites_kept(&job, &snooze, DueDoesNotFitState, |record| record.due = Due::Now);
    bites_kept(&job, &JobCommand::Complete(by), DueDoesNotFitState, |record| record.due = Due::Store(5));
}

#[test]
fn failures_and_crashes_that_are_not_counted_as_said_are_caught() {
    let expire = JobCommand::Expire { random: 0 };
    let (job, by) = held();
    // A failure.
    bites_kept(&job, &failing(by), Miscounted, |record| record.failure_count = 0);
    // A hand back.
    bites_kept(&job, &JobCommand::HandBack(by), Miscounted, |record| record.failure_count = 1);
    let (mut job, by) = over();
    // A crash.
    bites_kept(&job, &expire, Miscounted, |record| record.crash_count = 0);
    // A crash is not a failure.
    bites_kept(&job, &expire, Miscounted, |record| record.failure_count = 1);
    job.expire(0).unwrap();
    // Not given back.
    bites_kept(&job, &JobCommand::Complete(by), Miscounted, |record| record.crash_count = 1);
    // Not started over.
    bites_kept(&job, &JobCommand::Retry { by: operator() }, Miscounted, |record| record.crash_count = 1);
}

#[test]
fn a_job_that_is_tried_too_often_is_caught() {
    let (mut job, by) = held();
    job.record.failure_count = 2;
    let again = |record: &mut JobRecord| (record.state, record.due) = (JobState::Scheduled, Due::Store(5));
    // A third failure of three.
    bites_kept(&job, &failing(by), TriedTooOften, again);
    let (mut job, _) = over();
    job.record.crash_count = 1;
    // A second crash of two.
    bites_kept(&job, &JobCommand::Expire { random: 0 }, TriedTooOften, again);
}

#[test]
fn a_cancellation_that_is_forgotten_is_caught() {
    let (mut job, by) = held();
    job.cancel(false).unwrap();
    bites_kept(&job, &JobCommand::HandBack(by), CancelForgotten, |record| record.state = JobState::Queued);
}

#[test]
fn terms_that_change_are_caught() {
    let (job, by) = held();
    bites_kept(&job, &JobCommand::Complete(by), TermsChanged, |record| record.options.max_crashes += 1);
}

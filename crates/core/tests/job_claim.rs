//! Claiming a job and keeping the claim.

use crate::prelude::*;

fn not_now(job: &mut OneJob) -> JobState {
    match job.claim(9) {
        Err(JobRefusal::WrongState { state, .. }) => state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_takes_the_next_token_of_the_store() {
    let mut job = OneJob::new();
    let claimed = job.ask(&claiming("a", 1));
    let token = Token::new(101);
    assert_eq!(claimed, Ok(JobCommandResult::Claimed { token, remaining_ms: TTL_MS, attempt: 1 }));
    assert_eq!(job.facts, [EventData::JobClaimed { token, owner: owner("a"), attempt: 1 }]);
    assert_eq!((job.state(), job.record.token), (JobState::Running, token));
    assert_eq!(job.deadline_ms, Some(job.now.store_ms + TTL_MS));
}

#[test]
fn no_two_attempts_of_any_job_have_one_token() {
    let (mut job, first) = OneJob::held();
    job.hand_back(first).unwrap();
    job.others_take(40);
    assert_eq!(job.claimed(1).token, Token::new(142), "above all that other jobs were given in between");
}

#[test]
fn a_job_that_somebody_works_on_names_its_holder() {
    let (mut job, holder) = OneJob::held();
    job.pass(10_000);
    let running =
        JobRefusal::JobRunning { owner: owner("worker"), token: holder.token, remaining_ms: TTL_MS - 10_000 };
    assert_eq!(job.claim(2), Err(running));
}

#[test]
fn only_what_is_ready_can_be_claimed() {
    use JobState::{Cancelled, Completed, Failed, InDoubt, Quarantined, Scheduled};
    for state in [Completed, Failed, Cancelled, Quarantined, InDoubt, Scheduled] {
        assert_eq!(not_now(&mut OneJob::in_state(state)), state);
    }
}

#[test]
fn a_claim_that_ran_out_unnoted_is_noted_before_the_job_is_given_away() {
    let mut job = OneJob::new();
    job.run_out(1);
    assert_eq!(not_now(&mut job), JobState::Running, "a crash would go uncounted");
}

#[test]
fn a_job_is_ready_when_its_wall_time_has_come_and_not_before() {
    let mut job = OneJob::new();
    let at_ms = job.now.wall_ms + 5_000;
    job.record = JobRecord::new(terms(), Some(at_ms), job.now);
    assert_eq!((job.record.state, job.record.due), (JobState::Scheduled, Due::Wall(at_ms)));
    job.pass(4_999);
    assert_eq!(not_now(&mut job), JobState::Scheduled);
    job.pass(1);
    assert_eq!(job.state(), JobState::Queued, "whether or not anybody has noticed");
    job.claimed(1);
    assert_eq!(job.record.due, Due::Now);
}

#[test]
fn a_job_for_the_past_is_ready_at_once() {
    let now = Timestamp { store_ms: 5, wall_ms: 1_000 };
    for past_ms in [0, 999, 1_000] {
        assert_eq!(JobRecord::new(terms(), Some(past_ms), now).state, JobState::Queued);
    }
}

#[test]
fn a_retry_waits_in_store_time_whatever_the_wall_clock_does() {
    // R20 and R21
    let (mut job, by) = OneJob::held();
    job.fail(by).unwrap();
    job.now.wall_ms += 3_600_000;
    assert_eq!(
        not_now(&mut job),
        JobState::Scheduled,
        "a wall clock that jumped ahead brings nothing forward"
    );
    job.now.wall_ms -= 7_200_000;
    job.now.store_ms += crate::support::job::RETRY_MS;
    job.claimed(2);
}

#[test]
fn attempts_are_counted_from_one_and_a_retry_by_hand_does_not_start_the_count_over() {
    let mut job = OneJob::new();
    for attempt in 1..=20 {
        let claimed = job.ask(&claiming("a", attempt));
        let Ok(JobCommandResult::Claimed { token, attempt: counted, .. }) = claimed else {
            panic!("{claimed:?}")
        };
        assert_eq!(counted, u32::from(attempt));
        job.hand_back(AttemptProof { hash: hold(attempt), token }).unwrap();
    }
    job.cancel(false).unwrap();
    job.retry().unwrap();
    job.claimed(1);
    assert_eq!(job.record.attempt_count(), 21, "also those that are forgotten count");
}

#[test]
fn at_the_cap_a_claim_is_refused_and_the_last_holder_can_still_be_fenced_out() {
    let mut job = OneJob::new();
    job.newest = Token::new(TOKEN_MAX - 2);
    let last = job.claimed(1);
    assert_eq!(last.token.get(), TOKEN_MAX - 1);
    assert_eq!(job.cancel(true), Ok(JobState::Cancelled));
    assert_eq!(job.record.token.get(), TOKEN_MAX);

    let mut other = OneJob::new();
    other.newest = Token::new(TOKEN_MAX);
    assert_eq!(other.claim(2), Err(JobRefusal::TokensExhausted));
    assert_eq!(other.state(), JobState::Queued);
}

#[test]
fn a_renewal_gives_another_ttl_and_changes_nothing_else() {
    let (mut job, by) = OneJob::held();
    let before = job.record.clone();
    for _ in 0..5 {
        job.pass(TTL_MS - 1);
        let renewal = job.renew(by).unwrap();
        assert_eq!((renewal.token, renewal.remaining_ms), (by.token, TTL_MS));
        assert!(!renewal.cancel_requested && renewal.yield_request.is_none());
    }
    assert_eq!(job.record, before);
}

#[test]
fn a_claim_that_ran_out_is_not_renewed_whether_or_not_anybody_noted_it() {
    let (mut job, by) = OneJob::new().after(|job| job.run_out(1));
    let over = over(by, AttemptOutcome::Crashed);
    assert_eq!(job.renew(by), Err(over.clone()));
    job.expire(0).unwrap();
    assert_eq!(job.renew(by), Err(over));
    assert_eq!(job.record.claim, None);
}

#[test]
fn the_time_limit_of_an_attempt_ends_its_renewals() {
    let (mut job, by) = OneJob::with_limit(70_000).after(|job| job.claimed(1));
    job.pass(25_000);
    assert_eq!(job.renew(by).unwrap().remaining_ms, TTL_MS);
    job.pass(25_000);
    assert_eq!(job.renew(by).unwrap().remaining_ms, 20_000, "only the rest");
    job.pass(19_999);
    assert_eq!(job.renew(by).unwrap().remaining_ms, 1);
    job.pass(1);
    assert_eq!(job.renew(by), Err(over(by, AttemptOutcome::TimedOut)));
}

#[test]
fn a_time_limit_below_the_ttl_shortens_the_claim_itself() {
    let mut job = OneJob::with_limit(1_000);
    let claimed = job.ask(&claiming("a", 1));
    let Ok(JobCommandResult::Claimed { remaining_ms, .. }) = claimed else { panic!("{claimed:?}") };
    assert_eq!(remaining_ms, 1_000);
}

#[test]
fn a_holder_that_dies_before_its_time_limit_crashed_and_did_not_time_out() {
    let mut job = OneJob::with_limit(70_000);
    job.run_out(1);
    assert_eq!(job.expire(0), Ok(JobCommandResult::Expired { how: AttemptOutcome::Crashed }));
    assert_eq!(job.counts(), (0, 1));
}

//! Expiry, and what a holder may still say after it: late is not stale.

use std::num::NonZeroU32;

use crate::prelude::*;

const TIMED_OUT: JobCommandResult = JobCommandResult::Expired { how: AttemptOutcome::TimedOut };

fn with_limit(limit_ms: u32, max_attempts: u16) -> OneJob {
    OneJob::with(JobOptions {
        attempt_timeout_ms: NonZeroU32::new(limit_ms),
        max_failures: max_attempts,
        ..terms()
    })
}

#[test]
fn a_sweep_that_comes_too_early_does_nothing() {
    // R03: whatever the sweep believed when it set out, a live claim is live.
    let (mut job, by) = OneJob::held();
    job.pass(TTL_MS - 1);
    assert_eq!(job.expire(0), Err(JobRefusal::NotExpired { remaining_ms: 1 }));
    job.renew(by).unwrap();
    job.pass(TTL_MS - 1);
    assert_eq!(job.expire(0), Err(JobRefusal::NotExpired { remaining_ms: 1 }));
}

#[test]
fn a_sweep_of_a_job_that_nobody_holds_does_nothing() {
    // R05: the claim on the old list is long over.
    let mut job = OneJob::new();
    assert_eq!(job.expire(0), Ok(JobCommandResult::Nothing));
    let by = job.claimed(1);
    job.complete(by).unwrap();
    let before = job.kept();
    assert_eq!(job.expire(0), Ok(JobCommandResult::Nothing));
    assert_eq!(job.kept(), before);
}

#[test]
fn a_crash_is_counted_and_the_job_comes_back_within_the_spread() {
    for (random, delay_ms) in [(0, 0), (1_234, 1_234), (CRASH_SPREAD_MS, CRASH_SPREAD_MS), (u64::MAX, 3_210)]
    {
        let (mut job, by) = OneJob::new().after(|job| job.run_out(1));
        assert_eq!(job.expire(random), Ok(JobCommandResult::Expired { how: AttemptOutcome::Crashed }));
        let due_ms = job.now.store_ms + delay_ms;
        assert_eq!((job.record.state, job.record.due), (JobState::Scheduled, Due::Store(due_ms)));
        assert_eq!(job.counts(), (0, 1));
        let [EventData::JobAttemptEnded { token, outcome: how, retry_in_ms: again_in_ms, .. }] =
            &job.facts[..]
        else {
            panic!("{:?}", job.facts)
        };
        assert_eq!((*token, *how, *again_in_ms), (by.token, AttemptOutcome::Crashed, Some(delay_ms)));
    }
}

/// Five ttls of waiting for a short claim would be worse than the herd.
#[test]
fn the_spread_is_never_longer_than_the_ttl() {
    for (random, delay_ms) in [(0, 0), (400, 400), (401, 0), (802, 0), (1_000, 198)] {
        let mut job = OneJob::new();
        job.ask(&JobCommand::Claim { hash: hold(1), owner: owner("worker"), ttl_ms: 400 })
            .unwrap();
        job.pass(400);
        job.expire(random).unwrap();
        assert_eq!(job.record.due, Due::Store(job.now.store_ms + delay_ms), "{random}");
    }
}

/// A slow sweep puts nothing off; but what ended in an outage does not come back as a herd when that is over.
#[test]
fn after_an_outage_the_spread_counts_from_when_the_crash_was_noticed() {
    for (late_ms, from_ms) in [(0, 0), (1_000, 0), (CRASH_NOTICED_MS, 0), (60_000, 60_000)] {
        let mut job = OneJob::new();
        job.claimed(1);
        let ended_ms = job.now.store_ms + TTL_MS;
        job.pass(TTL_MS + late_ms);
        job.expire(1_234).unwrap();
        assert_eq!(job.record.due, Due::Store(ended_ms + from_ms + 1_234), "{late_ms} ms late");
    }
}

#[test]
fn an_expiry_is_on_record_at_the_deadline_however_late_it_was_noted() {
    let mut job = OneJob::new();
    job.claimed(1);
    let deadline_ms = job.now.store_ms + TTL_MS;
    job.pass(TTL_MS + 77_000);
    job.expire(0).unwrap();
    assert_eq!(job.record.attempts()[0].ended.store_ms, deadline_ms);
}

#[test]
fn a_job_that_kills_every_holder_is_quarantined() {
    // R31
    let mut job = OneJob::new();
    job.crashed(1);
    assert_eq!(job.state(), JobState::Queued);
    job.crashed(2);
    assert_eq!((job.state(), job.counts()), (JobState::Quarantined, (0, 2)));
    job.pass(1 << 40);
    assert!(job.claim(3).is_err(), "no time lets it loose");
}

#[test]
fn crashes_are_not_failures_and_failures_are_not_crashes() {
    let mut job = OneJob::new();
    job.crashed(1);
    for id in [2, 3] {
        let by = job.claimed(id);
        job.fail(by).unwrap();
        job.pass(RETRY_MS);
    }
    assert_eq!((job.counts(), job.state()), ((2, 1), JobState::Queued), "one below each limit");
}

#[test]
fn an_attempt_over_its_time_limit_is_a_failure() {
    let mut job = with_limit(10_000, 2);
    job.run_out(1);
    assert_eq!(job.expire(9), Ok(TIMED_OUT));
    assert_eq!((job.counts(), job.record.state), ((1, 0), JobState::Scheduled));
    assert_eq!(job.record.due.in_ms(job.now), RETRY_MS, "after the delay of a failure, not of a crash");
    assert!(job.record.attempts()[0].error.is_some(), "people can read why");
    job.pass(RETRY_MS);
    job.run_out(2);
    assert_eq!(job.expire(9), Ok(TIMED_OUT));
    assert_eq!((job.counts(), job.state()), ((2, 0), JobState::Failed));
}

#[test]
fn a_completion_after_expiry_is_accepted_while_nobody_else_had_the_job() {
    // R07, from everywhere that a crash leads to: not noted yet, scheduled, queued, quarantined.
    let run_out = |job: &mut OneJob| job.run_out(1);
    let scheduled = |job: &mut OneJob| {
        let by = job.run_out(1);
        job.expire(5_000).unwrap();
        assert_eq!(job.state(), JobState::Scheduled);
        by
    };
    let queued = |job: &mut OneJob| job.crashed(1);
    let quarantined = |job: &mut OneJob| job.quarantined();
    let ways: [fn(&mut OneJob) -> AttemptProof; 4] = [run_out, scheduled, queued, quarantined];
    for (way, crashes_left) in ways.into_iter().zip([0, 0, 0, 1]) {
        let mut job = OneJob::new();
        let by = way(&mut job);
        job.news();
        assert_eq!(job.complete(by), Ok(late(JobState::Completed, None)));
        assert_eq!((job.state(), job.how()), (JobState::Completed, AttemptOutcome::CompletedLate));
        assert_eq!(job.counts(), (0, crashes_left), "its own crash is given back, no other");
        assert_eq!(job.record.attempts().last().unwrap().ended, job.now);
        let told = matches!(
            job.facts[..],
            [EventData::JobAttemptEnded { outcome: AttemptOutcome::CompletedLate, .. }]
        );
        assert!(told, "{:?}", job.facts);
        assert_eq!(job.complete(by), Ok(late(JobState::Completed, None)), "said again");
    }
}

#[test]
fn a_completion_after_takeover_is_stale_and_harms_nobody() {
    // R06 and R08
    let (mut job, first) = OneJob::new().after(|job| job.crashed(1));
    let second = job.claimed(2);
    job.news();
    let stale = stale(first, AttemptOutcome::Crashed, second.token);
    assert_eq!(job.complete(first), Err(stale.clone()));
    let (token, current_token, outcome) = (first.token, second.token, Some(LeaseOutcome::Expired));
    let action = BlockedAction::Complete;
    assert_eq!(job.news(), [EventData::StaleWriteBlocked { token, current_token, action, outcome }]);
    assert_eq!(job.renew(first), Err(stale.clone()), "a delayed renewal steals nothing back");
    assert_eq!(job.fail(first), Err(stale.clone()));
    for what in
        [AttemptWrite::Checkpoint, AttemptWrite::Progress, AttemptWrite::Intent, AttemptWrite::Outcome]
    {
        assert_eq!(job.write(first, what), Err(stale.clone()), "{what:?}");
    }
    assert_eq!(job.complete(second), Ok(reported(JobState::Completed, None)));
    assert_eq!(job.complete(first), Err(stale), "also afterwards");
}

#[test]
fn one_that_speaks_for_a_job_that_has_ended_is_seen() {
    let (mut job, by) = OneJob::held();
    job.complete(by).unwrap();
    job.news();
    assert_eq!(job.fail(by), Err(JobRefusal::Finished { state: JobState::Completed }));
    let (token, current_token, outcome) = (by.token, by.token, Some(LeaseOutcome::Released));
    let action = BlockedAction::Fail;
    assert_eq!(job.news(), [EventData::StaleWriteBlocked { token, current_token, action, outcome }]);
}

#[test]
fn the_same_worker_is_stale_under_its_older_token_even_with_the_same_hold_id() {
    // R09 and R10: neither a name nor a hold id speaks for an attempt, only its token.
    let (mut job, first) = OneJob::new().after(|job| job.crashed(1));
    let second = job.claimed(1);
    assert!(matches!(job.complete(first), Err(JobRefusal::Stale { .. })));
    job.complete(second).unwrap();
}

#[test]
fn a_failure_after_expiry_counts_as_a_failure_instead_of_a_crash() {
    let (mut job, by) = OneJob::new().after(|job| job.crashed(1));
    assert_eq!(job.fail(by), Ok(late(JobState::Scheduled, Some(RETRY_MS))));
    assert_eq!((job.counts(), job.how()), ((1, 0), AttemptOutcome::FailedLate));
    assert_eq!(job.fail(by), Ok(late(JobState::Scheduled, Some(RETRY_MS))), "said again");
    assert_eq!(job.counts(), (1, 0));

    let (mut quarantined, by) = OneJob::new().after(OneJob::quarantined);
    assert_eq!(quarantined.fail(by).unwrap().state, JobState::Scheduled);
    assert_eq!(quarantined.counts(), (1, 1));

    let (mut unnoted, by) = OneJob::new().after(|job| job.run_out(1));
    assert_eq!(unnoted.fail(by), Ok(late(JobState::Scheduled, Some(RETRY_MS))));
    assert_eq!(unnoted.counts(), (1, 0));
}

#[test]
fn what_a_holder_says_of_an_attempt_that_timed_out_counts_once_and_is_heard() {
    let (mut job, by) = with_limit(10_000, 3).after(|job| job.run_out(1));
    job.expire(0).unwrap();
    assert_eq!(job.fail(by), Ok(late(JobState::Scheduled, Some(RETRY_MS))));
    assert_eq!(job.counts(), (1, 0), "the time limit and the holder speak of one failure");
    assert_eq!(job.record.attempts()[0].error.as_deref(), Some("no route to host"));

    let (mut job, by) = with_limit(10_000, 3).after(|job| job.run_out(1));
    job.expire(0).unwrap();
    assert_eq!(
        job.fail_for_good(by),
        Ok(late(JobState::Failed, None)),
        "its holder knows better than to try again"
    );

    let (mut job, by) = with_limit(10_000, 3).after(|job| job.run_out(1));
    job.expire(0).unwrap();
    assert_eq!(job.complete(by), Ok(late(JobState::Completed, None)));
    assert_eq!(job.counts(), (0, 0), "its failure is given back");
}

#[test]
fn who_is_late_may_leave_a_checkpoint_and_an_outcome_but_begin_nothing() {
    for noted in [false, true] {
        let (mut job, by) = OneJob::new().after(|job| job.run_out(1));
        if noted {
            job.expire(0).unwrap();
        }
        let over = over(by, AttemptOutcome::Crashed);
        assert_eq!(job.write(by, AttemptWrite::Checkpoint), Ok(JobCommandResult::MayWrite));
        assert_eq!(job.write(by, AttemptWrite::Outcome), Ok(JobCommandResult::MayWrite));
        assert_eq!(job.write(by, AttemptWrite::Intent), Err(over.clone()));
        assert_eq!(job.write(by, AttemptWrite::Progress), Err(over.clone()));
        assert_eq!(job.renew(by), Err(over.clone()));
        assert_eq!(job.snooze(by, 1), Err(over.clone()));
        assert_eq!(job.hand_back(by), Err(over.clone()));
        assert_eq!(job.stop_at_intent(by), Err(over));
    }
}

#[test]
fn nobody_is_late_after_the_job_has_failed_or_was_called_off() {
    let (mut failed, by) = with_limit(10_000, 1).after(|job| job.run_out(1));
    failed.expire(0).unwrap();
    for say in [OneJob::complete, OneJob::fail] {
        assert_eq!(say(&mut failed, by), Err(JobRefusal::Finished { state: JobState::Failed }));
    }
    assert_eq!(failed.renew(by), Err(over(by, AttemptOutcome::TimedOut)), "it learns why");

    let (mut cancelled, by) = OneJob::new().after(|job| job.crashed(1));
    cancelled.cancel(false).unwrap();
    for say in [OneJob::complete, OneJob::fail] {
        assert_eq!(say(&mut cancelled, by), Err(JobRefusal::Finished { state: JobState::Cancelled }));
    }
    for what in [AttemptWrite::Checkpoint, AttemptWrite::Outcome] {
        assert_eq!(cancelled.write(by, what), Err(JobRefusal::Finished { state: JobState::Cancelled }));
    }
}

#[test]
fn nobody_is_late_after_an_operators_retry() {
    for quarantined in [true, false] {
        let mut job = OneJob::new();
        let by = if quarantined { job.quarantined() } else { job.crashed(1) };
        assert_eq!(job.retry(), Ok(JobCommandResult::Retried));
        assert_eq!(job.complete(by), Err(stale(by, AttemptOutcome::Crashed, job.record.token)));
        assert_eq!((job.state(), job.counts()), (JobState::Queued, (0, 0)));
    }
}

#[test]
fn who_had_to_yield_may_be_late_too() {
    let (mut job, by) = OneJob::held();
    job.preempt(1, 0).unwrap();
    job.pass(TTL_MS);
    job.expire(0).unwrap();
    assert_eq!((job.how(), job.state(), job.counts()), (AttemptOutcome::Yielded, JobState::Queued, (0, 0)));
    assert_eq!(job.complete(by), Ok(late(JobState::Completed, None)));
}

#[test]
fn a_wrong_hold_id_is_not_late() {
    let (mut job, by) = OneJob::new().after(|job| job.crashed(1));
    let before = job.kept();
    let thief = AttemptProof { hash: hold(2), ..by };
    assert_eq!(job.complete(thief), Err(JobRefusal::WrongHoldId { token: by.token }));
    assert_eq!(job.ask(&JobCommand::Abandon(thief)), Ok(JobCommandResult::Nothing));
    assert_eq!(job.kept(), before);
}

#[test]
fn a_crashed_job_stays_away_from_the_end_of_its_claim_when_the_sweep_is_late() {
    let mut job = OneJob::new();
    job.claimed(1);
    let deadline_ms = job.now.store_ms + TTL_MS;
    job.pass(TTL_MS + 1_000);
    job.expire(3_000).unwrap();
    assert_eq!(job.record.due, Due::Store(deadline_ms + 3_000));
    let [.., EventData::JobAttemptEnded { retry_in_ms: again_in_ms, .. }] = &job.facts[..] else {
        panic!("{:?}", job.facts)
    };
    assert_eq!(*again_in_ms, Some(2_000));
}

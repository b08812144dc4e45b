//! What others than its holder do to a job: calling off, starting over, deleting, asking for room, advancing.

use std::num::NonZeroU32;

use crate::prelude::*;

#[test]
fn a_job_that_nobody_holds_is_called_off_at_once() {
    let mut job = OneJob::new();
    assert_eq!(job.cancel(false), Ok(JobState::Cancelled));
    assert_eq!(job.facts, [EventData::JobCancelled { by: operator(), reason: Some(reason()) }]);
    let before = job.kept();
    assert_eq!(job.cancel(false), Ok(JobState::Cancelled), "said again");
    assert_eq!((job.kept(), job.facts.len()), (before, 1));
}

#[test]
fn the_holder_of_a_cancelled_job_learns_at_its_next_renewal_and_keeps_its_claim() {
    let (mut job, by) = OneJob::held();
    assert_eq!(job.cancel(false), Ok(JobState::Running), "called off, not ended");
    assert_eq!(job.cancel(false), Ok(JobState::Running), "said again");
    let (by_whom, reason) = (operator(), Some(reason()));
    assert_eq!(job.news(), [EventData::JobCancelRequested { token: by.token, by: by_whom, reason }]);
    let renewal = job.renew(by).unwrap();
    assert!(renewal.cancel_requested);
    assert_eq!(renewal.remaining_ms, TTL_MS);
    for what in [AttemptWrite::Intent, AttemptWrite::Outcome, AttemptWrite::Checkpoint] {
        assert_eq!(
            job.write(by, what),
            Ok(JobCommandResult::MayWrite),
            "it can still put its effects on record"
        );
    }
}

#[test]
fn a_cancelled_job_is_cancelled_however_its_attempt_ends() {
    // R40: and not before.
    let cancelled = reported(JobState::Cancelled, None);
    let snooze = |job: &mut OneJob, by| job.snooze(by, 5);
    for end in [OneJob::fail, OneJob::fail_for_good, OneJob::hand_back, OneJob::stop_at_intent, snooze] {
        let (mut job, by) = OneJob::held();
        job.cancel(false).unwrap();
        assert_eq!(job.state(), JobState::Running);
        assert_eq!(end(&mut job, by), Ok(cancelled));
        assert_eq!(job.state(), JobState::Cancelled);
        assert_eq!(end(&mut job, by), Ok(cancelled), "said again");
    }
    let (mut job, by) = OneJob::held();
    job.cancel(false).unwrap();
    job.ask(&JobCommand::Abandon(by)).unwrap();
    assert_eq!(job.state(), JobState::Cancelled);
    for limit_ms in [None, NonZeroU32::new(1_000)] {
        let mut job = OneJob::with(JobOptions { attempt_timeout_ms: limit_ms, ..terms() });
        job.claimed(1);
        job.cancel(false).unwrap();
        job.pass(TTL_MS);
        job.expire(0).unwrap();
        assert_eq!(job.state(), JobState::Cancelled);
        assert_eq!(job.counts(), (u16::from(limit_ms.is_some()), u16::from(limit_ms.is_none())));
    }
    let mut job = OneJob::new();
    job.claimed(1);
    job.cancel(false).unwrap();
    job.others_take(50);
    job.ask(&JobCommand::Advance).unwrap();
    assert_eq!(job.state(), JobState::Cancelled);
}

#[test]
fn of_a_cancellation_and_a_completion_one_wins_and_both_are_told_which() {
    // R33
    let (mut job, by) = OneJob::held();
    job.complete(by).unwrap();
    for now in [false, true] {
        assert_eq!(job.cancel(now), Err(JobRefusal::Finished { state: JobState::Completed }));
    }

    let (mut job, by) = OneJob::held();
    job.cancel(false).unwrap();
    assert_eq!(job.complete(by), Ok(reported(JobState::Completed, None)), "the work was done before it knew");
    assert_eq!(job.cancel(false), Err(JobRefusal::Finished { state: JobState::Completed }));

    let (mut job, by) = OneJob::held();
    assert_eq!(job.cancel(true), Ok(JobState::Cancelled));
    assert_eq!(job.complete(by), Err(stale(by, AttemptOutcome::Revoked, job.record.token)));
    assert_eq!(job.state(), JobState::Cancelled);
}

#[test]
fn a_job_that_failed_for_good_cannot_be_called_off() {
    let (mut job, by) = OneJob::held();
    job.fail_for_good(by).unwrap();
    assert_eq!(job.cancel(true), Err(JobRefusal::Finished { state: JobState::Failed }));
}

#[test]
fn cancelling_now_raises_the_token_first() {
    for ran_out in [false, true] {
        let mut job = OneJob::new();
        let by = if ran_out { job.run_out(1) } else { job.claimed(1) };
        job.others_take(7);
        let newest = job.newest;
        assert_eq!(job.cancel(true), Ok(JobState::Cancelled));
        assert!(job.record.token > newest, "a token that no attempt gets");
        assert_eq!(job.how(), AttemptOutcome::Revoked);
        let why = job.record.attempts()[0].error.as_deref().unwrap();
        assert!(why.contains("operator") && why.contains("the customer left"), "{why}");
        for what in [AttemptWrite::Intent, AttemptWrite::Outcome, AttemptWrite::Checkpoint] {
            assert!(matches!(job.write(by, what), Err(JobRefusal::Stale { .. })), "{what:?}");
        }
        assert_matches!(job.renew(by), Err(JobRefusal::Stale { outcome: Some(AttemptOutcome::Revoked), .. }));
    }
}

#[test]
fn a_claim_that_ran_out_unnoted_is_counted_before_its_job_is_called_off() {
    for (limit_ms, how) in
        [(None, AttemptOutcome::Crashed), (NonZeroU32::new(1_000), AttemptOutcome::TimedOut)]
    {
        let job = OneJob::with(JobOptions { attempt_timeout_ms: limit_ms, ..terms() });
        let (mut job, by) = job.after(|job| job.run_out(1));
        assert_eq!(job.cancel(false), Ok(JobState::Cancelled));
        assert_eq!(job.how(), how);
        assert_eq!(
            job.counts(),
            (u16::from(how == AttemptOutcome::TimedOut), u16::from(how == AttemptOutcome::Crashed))
        );
        let told =
            matches!(job.facts[..], [EventData::JobAttemptEnded { .. }, EventData::JobCancelled { .. }]);
        assert!(told, "{:?}", job.facts);
        assert_eq!(job.complete(by), Err(JobRefusal::Finished { state: JobState::Cancelled }));
    }
}

#[test]
fn an_operators_retry_starts_over_from_every_end_but_completion() {
    use JobState::{Cancelled, Failed, InDoubt, Quarantined, Scheduled};
    for state in [Failed, Cancelled, Quarantined, InDoubt, Scheduled] {
        let mut job = OneJob::in_state(state);
        job.others_take(3);
        let newest = job.newest;
        job.news();
        assert_eq!(job.retry(), Ok(JobCommandResult::Retried));
        assert_eq!(job.facts, [EventData::JobRetried { by: operator(), state }]);
        assert_eq!((job.state(), job.counts()), (JobState::Queued, (0, 0)));
        assert!(job.record.token > newest, "the holder before does not complete it afterwards");
        let before = job.kept();
        assert_eq!(job.retry(), Ok(JobCommandResult::Retried), "said again");
        assert_eq!(job.kept(), before);
        job.claimed(9);
    }
}

#[test]
fn what_is_done_stays_done_and_what_is_under_way_is_not_retried() {
    let (mut job, by) = OneJob::held();
    assert!(matches!(job.retry(), Err(JobRefusal::WrongState { state: JobState::Running, .. })));
    job.complete(by).unwrap();
    assert_eq!(job.retry(), Err(JobRefusal::Finished { state: JobState::Completed }));
}

#[test]
fn a_job_whose_effects_were_undone_is_not_retried() {
    for undo in [CompensationState::Running, CompensationState::Done, CompensationState::Stopped] {
        let mut job = OneJob::in_state(JobState::Cancelled);
        job.record.compensation_state = undo;
        assert_matches!(
            job.retry(),
            Err(JobRefusal::WrongState { state: JobState::Cancelled, .. }),
            "{undo:?}"
        );
    }
}

#[test]
fn a_running_job_is_deleted_only_by_force() {
    let (mut job, by) = OneJob::held();
    let running = JobRefusal::JobRunning { owner: owner("worker"), token: by.token, remaining_ms: TTL_MS };
    assert_eq!(job.delete(false), Err(running));
    assert_eq!(job.delete(true), Ok(JobCommandResult::Deleted));
    job.pass(TTL_MS);
    assert_eq!(job.delete(false), Ok(JobCommandResult::Deleted), "no attempt is running any more");
}

#[test]
fn a_job_whose_effects_are_being_undone_is_deleted_only_by_force() {
    let mut job = OneJob::in_state(JobState::Cancelled);
    job.record.compensation_state = CompensationState::Running;
    assert!(matches!(job.delete(false), Err(JobRefusal::WrongState { .. })));
    assert_eq!(job.delete(true), Ok(JobCommandResult::Deleted));
    job.record.compensation_state = CompensationState::Done;
    assert_eq!(job.delete(false), Ok(JobCommandResult::Deleted));
}

#[test]
fn a_holder_that_is_asked_to_yield_learns_for_whom_and_by_when() {
    let (mut job, by) = OneJob::held();
    assert_eq!(job.preempt(0, 50_000), Err(JobRefusal::PriorityTooLow { priority: 0 }));
    job.news();
    job.preempt(5, 50_000).unwrap();
    let (token, contender, task) = (by.token, owner("contender"), Some(task("urgent")));
    let asked = EventData::YieldRequested { token, contender, task, priority: 5, yield_in_ms: 50_000 };
    assert_eq!(job.news(), [asked]);
    job.pass(10_000);
    let renewal = job.renew(by).unwrap();
    let request = renewal.yield_request.unwrap();
    assert_eq!((request.contender, request.priority), (owner("contender"), 5));
    assert_eq!((renewal.remaining_ms, request.yield_in_ms), (TTL_MS, 40_000));
    job.pass(25_000);
    assert_eq!(job.renew(by).unwrap().remaining_ms, 15_000, "only the remainder");
    job.pass(15_000);
    assert_eq!(job.expire(0), Ok(JobCommandResult::Expired { how: AttemptOutcome::Yielded }));
    assert_eq!(
        (job.state(), job.counts()),
        (JobState::Queued, (0, 0)),
        "back in its place, and nothing counted"
    );
}

#[test]
fn a_claim_that_was_acknowledged_outlasts_an_earlier_yield_time() {
    let (mut job, by) = OneJob::held();
    job.preempt(5, 1_000).unwrap();
    job.pass(TTL_MS - 1);
    assert_eq!(job.renew(by).unwrap().remaining_ms, 1);
}

#[test]
fn only_a_higher_priority_takes_a_notice_over_and_never_to_a_later_time() {
    let (mut job, by) = OneJob::held();
    job.preempt(5, 10_000).unwrap();
    job.preempt(5, 0).unwrap();
    assert_eq!(job.renew(by).unwrap().yield_request.as_ref().map(|asked| asked.yield_in_ms), Some(10_000));
    job.preempt(6, 90_000).unwrap();
    let renewal = job.renew(by).unwrap();
    assert_eq!(
        (
            renewal.yield_request.as_ref().map(|asked| asked.yield_in_ms),
            renewal.yield_request.unwrap().priority
        ),
        (Some(10_000), 6)
    );
}

#[test]
fn a_notice_that_is_withdrawn_is_forgotten() {
    let (mut job, by) = OneJob::held();
    job.preempt(5, 1_000).unwrap();
    job.news();
    job.ask(&JobCommand::Withdraw).unwrap();
    assert_eq!(job.news(), [EventData::YieldWithdrawn { token: by.token }]);
    assert_eq!(job.ask(&JobCommand::Withdraw), Ok(JobCommandResult::Nothing));
    assert!(job.facts.is_empty());
    job.pass(TTL_MS - 1);
    assert_eq!(job.renew(by).unwrap().remaining_ms, TTL_MS);
}

#[test]
fn nobody_is_asked_to_yield_a_job_that_nobody_holds() {
    let mut job = OneJob::new();
    assert!(matches!(job.preempt(9, 0), Err(JobRefusal::WrongState { state: JobState::Queued, .. })));
    job.run_out(1);
    assert!(matches!(job.preempt(9, 0), Err(JobRefusal::WrongState { .. })));
}

#[test]
fn after_an_advance_nothing_from_before_speaks_for_a_job() {
    // What was live, what was late, and what was never claimed.
    let (mut live, by) = OneJob::held();
    live.newest = Token::new(1 << 32);
    live.ask(&JobCommand::Advance).unwrap();
    assert_eq!(
        (live.state(), live.how(), live.counts()),
        (JobState::Queued, AttemptOutcome::Advanced, (0, 0))
    );
    assert_eq!(live.complete(by), Err(stale(by, AttemptOutcome::Advanced, live.record.token)));

    let (mut crashed, by) = OneJob::new().after(|job| job.crashed(1));
    crashed.newest = Token::new(1 << 32);
    crashed.ask(&JobCommand::Advance).unwrap();
    assert_eq!(crashed.complete(by), Err(stale(by, AttemptOutcome::Crashed, crashed.record.token)));
    assert_eq!((crashed.state(), crashed.counts()), (JobState::Queued, (0, 1)));

    let mut fresh = OneJob::new();
    let before = fresh.kept();
    fresh.ask(&JobCommand::Advance).unwrap();
    assert_eq!(fresh.kept(), before);
}

#[test]
fn force_is_not_undone_by_time() {
    let (mut job, by) = OneJob::new().after(|job| job.run_out(1));
    assert_eq!(job.complete(by), Ok(late(JobState::Completed, None)));
    job.pass(RETRY_MS * 1_000);
    assert_eq!(job.expire(0), Ok(JobCommandResult::Nothing));
    assert_eq!(job.state(), JobState::Completed);
}

#[test]
fn an_end_by_force_consumes_a_token_and_says_who_and_why() {
    for (state, ended) in
        [(ForcedState::Completed, JobState::Completed), (ForcedState::Failed, JobState::Failed)]
    {
        for held in [true, false] {
            let mut job = OneJob::new();
            let by = held.then(|| job.claimed(1));
            job.others_take(7);
            job.news();
            let newest = job.newest;
            assert_eq!(job.end_by_force(state), Ok(ended));
            assert_eq!((job.state(), job.record.token), (ended, Token::new(newest.get() + 1)));
            let by_force = EventData::JobEndedByForce { by: operator(), reason: reason(), state: ended };
            let news = job.news();
            assert_eq!(news.last(), Some(&by_force));
            assert_eq!(news.len(), 1 + usize::from(held), "the end of the attempt comes first: {news:?}");
            if let Some(by) = by {
                assert_eq!(job.how(), AttemptOutcome::Revoked);
                assert!(matches!(job.complete(by), Err(JobRefusal::Stale { .. })));
                assert!(matches!(job.fail(by), Err(JobRefusal::Stale { .. })));
            }
            assert_eq!(
                job.end_by_force(state),
                Err(JobRefusal::Finished { state: ended }),
                "the first end stands"
            );
        }
    }
}

#[test]
fn what_has_ended_is_completed_by_force_but_not_failed() {
    let mut job = OneJob::new();
    job.cancel(false).unwrap();
    assert_eq!(
        job.end_by_force(ForcedState::Failed),
        Err(JobRefusal::Finished { state: JobState::Cancelled })
    );
    assert_eq!(job.end_by_force(ForcedState::Completed), Ok(JobState::Completed));
    for state in [CompensationState::Running, CompensationState::Stopped, CompensationState::Done] {
        let mut job = OneJob::new();
        let by = job.claimed(1);
        job.fail_for_good(by).unwrap();
        job.record.compensation_state = state;
        let refused = job.end_by_force(ForcedState::Completed);
        assert!(
            matches!(refused, Err(JobRefusal::WrongState { state: JobState::Failed, .. })),
            "{refused:?}"
        );
    }
}

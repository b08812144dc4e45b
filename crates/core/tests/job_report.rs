//! What a holder says of its job while its claim is live: the first word stands.

use crate::prelude::*;

#[test]
fn a_completion_ends_the_job_and_says_so() {
    let (mut job, by) = OneJob::held();
    assert_eq!(job.complete(by), Ok(reported(JobState::Completed, None)));
    let fact = EventData::JobAttemptEnded {
        token: by.token,
        owner: owner("worker"),
        outcome: AttemptOutcome::Completed,
        state: JobState::Completed,
        retry_in_ms: None,
    };
    assert_eq!(job.facts, [fact]);
    assert_eq!((job.deadline_ms, job.counts()), (None, (0, 0)));
}

#[test]
fn the_same_completion_twice_gets_the_same_answer_and_happens_once() {
    // R15
    let (mut job, by) = OneJob::held();
    let first = job.complete(by);
    let (before, _) = (job.kept(), job.news());
    job.pass(1_000_000);
    assert_eq!(job.complete(by), first);
    assert_eq!((job.kept(), job.facts.len()), (before, 0));
}

#[test]
fn a_failure_after_a_completion_changes_nothing() {
    // R16
    let (mut job, by) = OneJob::held();
    job.complete(by).unwrap();
    assert_eq!(job.fail(by), Err(JobRefusal::Finished { state: JobState::Completed }));
    assert_eq!(job.snooze(by, 1), Err(JobRefusal::Finished { state: JobState::Completed }));
    assert_eq!(job.hand_back(by), Err(JobRefusal::Finished { state: JobState::Completed }));
}

#[test]
fn a_renewal_that_arrives_after_the_end_of_its_attempt_revives_nothing() {
    // R12
    for end in [OneJob::complete, OneJob::fail, OneJob::hand_back, OneJob::stop_at_intent] {
        let (mut job, by) = OneJob::held();
        end(&mut job, by).unwrap();
        assert!(job.renew(by).is_err());
    }
}

#[test]
fn a_completion_after_a_failure_is_refused() {
    let (mut job, by) = OneJob::held();
    job.fail(by).unwrap();
    assert_eq!(job.complete(by), Err(over(by, AttemptOutcome::Failed)));
    assert_eq!(job.record.state, JobState::Scheduled);
}

#[test]
fn a_failure_counts_once_and_is_tried_again_after_its_delay() {
    let (mut job, by) = OneJob::held();
    assert_eq!(job.fail(by), Ok(reported(JobState::Scheduled, Some(RETRY_MS))));
    assert_eq!(job.counts(), (1, 0));
    job.pass(20_000);
    assert_eq!(
        job.fail(by),
        Ok(reported(JobState::Scheduled, Some(RETRY_MS - 20_000))),
        "the time that remains"
    );
    assert_eq!(job.counts(), (1, 0));
    assert_eq!(job.record.attempts()[0].error.as_deref(), Some("no route to host"));
    job.pass(RETRY_MS - 20_000);
    assert_eq!(job.state(), JobState::Queued);
}

#[test]
fn after_max_attempts_failures_the_job_has_failed_for_good() {
    let mut job = OneJob::new();
    for failures in 1..=3 {
        let by = job.claimed(failures);
        let answer = job.fail(by).unwrap();
        let state = if failures == 3 { JobState::Failed } else { JobState::Scheduled };
        assert_eq!((answer.state, job.record.failure_count), (state, u16::from(failures)));
        assert_eq!(job.fail(by).map(|answer| answer.state), Ok(state), "said again");
        job.pass(RETRY_MS);
    }
    assert_eq!(job.state(), JobState::Failed, "no time brings it back");
}

#[test]
fn a_failure_for_good_does_not_wait_for_max_attempts() {
    let (mut job, by) = OneJob::held();
    assert_eq!(job.fail_for_good(by), Ok(reported(JobState::Failed, None)));
    assert_eq!(job.fail_for_good(by), Ok(reported(JobState::Failed, None)));
    assert_eq!(job.counts(), (1, 0));
}

#[test]
fn a_holder_can_name_the_delay_itself() {
    let (mut job, by) = OneJob::held();
    let JobCommand::Fail { error, random, .. } = failing(by) else { unreachable!() };
    let fail = JobCommand::Fail { by, error, retry_in_ms: Some(7), for_good: false, random };
    assert_eq!(job.ask(&fail), Ok(JobCommandResult::Reported(reported(JobState::Scheduled, Some(7)))));
}

#[test]
fn an_error_is_cut_off_at_a_character_and_never_refused() {
    let (mut job, by) = OneJob::held();
    let error = format!("x{}", "é".repeat(ERROR_BYTES_KEPT));
    let fail = JobCommand::Fail { by, error: error.into(), retry_in_ms: None, for_good: false, random: 0 };
    job.ask(&fail).unwrap();
    let kept = job.record.attempts()[0].error.as_deref().unwrap();
    assert_eq!(kept.len(), ERROR_BYTES_KEPT - 1, "half a character is none");
}

#[test]
fn a_snooze_and_a_hand_back_count_as_nothing() {
    let (mut job, by) = OneJob::held();
    assert_eq!(job.snooze(by, 5_000), Ok(reported(JobState::Scheduled, Some(5_000))));
    assert_eq!(
        job.snooze(by, 9_000),
        Ok(reported(JobState::Scheduled, Some(5_000))),
        "the first word stands"
    );
    job.pass(5_000);
    let by = job.claimed(2);
    assert_eq!(job.hand_back(by), Ok(reported(JobState::Queued, Some(0))));
    assert_eq!(job.hand_back(by), Ok(reported(JobState::Queued, Some(0))));
    assert_eq!(job.counts(), (0, 0));
    let hows: Vec<AttemptOutcome> = job.record.attempts().iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(hows, [AttemptOutcome::Snoozed, AttemptOutcome::Released]);
}

#[test]
fn a_snooze_beyond_the_end_of_time_waits_for_ever_and_breaks_nothing() {
    let (mut job, by) = OneJob::held();
    job.snooze(by, u64::MAX).unwrap();
    job.pass(1 << 40);
    assert_eq!(job.state(), JobState::Scheduled);
}

#[test]
fn a_job_handed_to_somebody_who_had_gone_is_free_at_once() {
    // R14
    let (mut job, by) = OneJob::held();
    assert!(job.ask(&JobCommand::Abandon(by)).is_ok());
    assert_eq!((job.state(), job.how(), job.counts()), (JobState::Queued, AttemptOutcome::Abandoned, (0, 0)));
    let next = job.claimed(2);
    let before = job.kept();
    assert_eq!(
        job.ask(&JobCommand::Abandon(by)),
        Ok(JobCommandResult::Nothing),
        "a late freeing frees no one else's"
    );
    assert_eq!(job.kept(), before);
    job.renew(next).unwrap();
}

#[test]
fn an_attempt_in_doubt_stops_for_a_person() {
    let (mut job, by) = OneJob::held();
    assert_eq!(job.stop_at_intent(by), Ok(reported(JobState::InDoubt, None)));
    assert_eq!(job.stop_at_intent(by), Ok(reported(JobState::InDoubt, None)));
    assert!(job.record.attempts()[0].error.as_deref().unwrap().contains("charge"));
    assert_eq!(job.complete(by), Err(over(by, AttemptOutcome::InDoubt)));
    assert_eq!(job.counts(), (0, 0));
}

#[test]
fn a_live_holder_may_write_everything_and_one_that_is_over_nothing() {
    let all = [AttemptWrite::Checkpoint, AttemptWrite::Progress, AttemptWrite::Intent, AttemptWrite::Outcome];
    let (mut job, by) = OneJob::held();
    for what in all {
        assert_eq!(job.write(by, what), Ok(JobCommandResult::MayWrite));
    }
    job.complete(by).unwrap();
    for what in all {
        assert_eq!(job.write(by, what), Err(JobRefusal::Finished { state: JobState::Completed }), "{what:?}");
    }
    let (mut job, by) = OneJob::held();
    job.hand_back(by).unwrap();
    for what in all {
        let over = over(by, AttemptOutcome::Released);
        assert_eq!(job.write(by, what), Err(over), "{what:?}");
    }
}

#[test]
fn every_wrong_speaker_has_its_own_error() {
    let (mut job, first) = OneJob::held();
    job.hand_back(first).unwrap();
    job.others_take(5);
    let by = job.claimed(2);
    let token = by.token;

    let wrong_hold = AttemptProof { hash: hold(3), token };
    assert_eq!(job.complete(wrong_hold), Err(JobRefusal::WrongHoldId { token }));
    let wrong_hold = AttemptProof { hash: hold(3), ..first };
    assert_eq!(job.complete(wrong_hold), Err(JobRefusal::WrongHoldId { token: first.token }));
    let other = Token::new(first.token.get() + 2);
    assert_eq!(
        job.complete(AttemptProof { token: other, ..by }),
        Err(JobRefusal::WrongJob { token: other, job_id: None }),
        "a token between this job's own"
    );
    let above = Token::new(token.get() + 1);
    assert_eq!(
        job.complete(AttemptProof { token: above, ..by }),
        Err(JobRefusal::StoreRewound { token: above, current_token: token })
    );
    assert_eq!(job.complete(first), Err(stale(first, AttemptOutcome::Released, token)));
    job.renew(by).unwrap();
}

#[test]
fn a_rewound_store_is_an_alarm() {
    let (mut job, by) = OneJob::held();
    let shown = Token::new(by.token.get() + 9);
    job.renew(AttemptProof { token: shown, ..by }).unwrap_err();
    assert_eq!(job.facts, [EventData::StoreRewound { token: shown, current_token: by.token }]);
}

#[test]
fn of_many_attempts_the_last_ones_are_remembered_and_an_old_one_is_still_stale() {
    let mut job = OneJob::new();
    let attempts: Vec<AttemptProof> = (0..40)
        .map(|id| {
            let by = job.claimed(id);
            job.hand_back(by).unwrap();
            job.others_take(1);
            by
        })
        .collect();
    assert_eq!(job.record.attempts().len(), TRAIL_MAX);
    let current = job.record.token;
    let stale = JobRefusal::Stale { token: attempts[0].token, outcome: None, current_token: current };
    assert_eq!(job.complete(attempts[0]), Err(stale));
    let between = Token::new(attempts[39].token.get() - 1);
    let other = JobRefusal::WrongJob { token: between, job_id: None };
    assert_eq!(job.complete(AttemptProof { token: between, ..attempts[39] }), Err(other));
}

#[test]
fn a_late_answer_is_still_called_late_when_it_is_asked_for_again() {
    let (mut job, by) = OneJob::new().after(|job| job.run_out(1));
    assert_eq!(job.complete(by), Ok(late(JobState::Completed, None)));
    job.pass(TTL_MS);
    assert_eq!(job.complete(by), Ok(late(JobState::Completed, None)));
}

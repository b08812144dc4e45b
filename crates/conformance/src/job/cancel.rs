//! Calling jobs off, having them start over, forgetting them.

use super::prelude::*;

/// A job without a running attempt is cancelled at once, and stays it.
pub(super) fn a_job_that_nobody_holds_is_cancelled_at_once(g: &Fixture) {
    let later = NewJob { when: When::After { delay_ms: 60_000 }, ..g.job_for("q") };
    for id in [g.put("q"), g.put_with(later)] {
        assert_eq!(g.cancel(id, false), Ok(JobState::Cancelled));
        assert_eq!(g.cancel(id, true), Ok(JobState::Cancelled), "said again");
    }
    assert!(g.try_work("q", "A").is_none());
    assert_eq!(g.count("q", JobState::Cancelled), 2);
}

/// The holder of a job that is called off learns at its next renewal; the job is cancelled when its attempt has ended.
pub(super) fn a_holder_learns_of_a_cancellation_at_its_next_renewal(g: &Fixture) {
    for (how, word) in [
        ("failed", failed()),
        ("handed back", Report::Release {}),
        ("snoozed", Report::Snooze { delay_ms: 9 }),
    ] {
        let work = g.new_work("q", "A");
        assert!(!g.renew_work(&work).expect("a live claim").cancel_requested);
        assert_eq!(g.cancel(work.job.id, false), Ok(JobState::Running), "called off, not ended");
        assert!(g.renew_work(&work).expect("a live claim").cancel_requested);
        let runner = g.detail(work.job.id).job.runner.expect("an attempt is running");
        assert_eq!(runner.cancel_requested_by.map(|by| by.to_string()).as_deref(), Some("P"));
        g.say(&work, word).expect("a live claim");
        assert_eq!(g.state(work.job.id), JobState::Cancelled, "{how}");
        assert!(g.try_work("q", "B").is_none(), "{how}");
    }
}

/// A holder that dies after its job was called off leaves it cancelled.
pub(super) fn a_cancelled_job_whose_holder_dies_is_cancelled(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.cancel(work.job.id, false).expect("a running job");
    g.crash(&work);
    assert_eq!(
        (g.state(work.job.id), g.ended(work.job.id)),
        (JobState::Cancelled, Some(AttemptOutcome::Crashed))
    );
    assert_eq!(g.complete(&work), Err(JobRefusal::Finished { state: JobState::Cancelled }));
}

/// R33: work that was done before its holder knew is done.
pub(super) fn a_completion_beats_a_request_to_cancel(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.cancel(work.job.id, false).expect("a running job");
    assert_eq!(g.complete(&work).map(|answer| answer.state), Ok(JobState::Completed));
    for now in [false, true] {
        assert_eq!(g.cancel(work.job.id, now), Err(JobRefusal::Finished { state: JobState::Completed }));
    }
}

/// R33: cancel and complete at once: one end, and both learn which.
pub(super) fn cancel_and_complete_at_once_have_one_end(g: &Fixture) {
    for round in 0..30 {
        let work = g.new_work("q", "A");
        let now = round % 2 == 0;
        let mut answers = at_once(2, |nth| {
            if nth == 0 { g.complete(&work).map(|answer| answer.state) } else { g.cancel(work.job.id, now) }
        })
        .into_iter();
        let (completed, cancelled) = (answers.next().expect("one"), answers.next().expect("another"));
        match g.state(work.job.id) {
            JobState::Completed => {
                assert_eq!(completed, Ok(JobState::Completed));
                let told = [Err(JobRefusal::Finished { state: JobState::Completed }), Ok(JobState::Running)];
                assert!(told.contains(&cancelled), "{cancelled:?}");
                assert!(!now || cancelled.is_err(), "cancelled now, and completed all the same");
            }
            JobState::Cancelled => {
                assert_eq!(cancelled, Ok(JobState::Cancelled));
                assert!(matches!(completed, Err(JobRefusal::Stale { .. })), "{completed:?}");
            }
            other => panic!("{other}"),
        }
    }
}

/// Cancelling now raises the token first: whatever the holder still says is stale.
pub(super) fn cancelling_now_fences_the_holder_out(g: &Fixture) {
    let work = g.new_work("q", "A");
    assert_eq!(g.cancel(work.job.id, true), Ok(JobState::Cancelled));
    let raised = g.detail(work.job.id).job.token;
    assert!(raised > work.job.token);
    assert_stale(g.renew_work(&work), work.job.token, raised);
    assert_stale(g.complete(&work), work.job.token, raised);
    assert_stale(g.record(&work, "charge", "1").map(drop), work.job.token, raised);
    let attempt = g.detail(work.job.id).attempts.pop().expect("an attempt");
    assert_eq!(attempt.outcome, AttemptOutcome::Revoked);
    let why = attempt.error.expect("who, and why");
    assert!(why.contains('P') && why.contains("the customer left"), "{why}");
    let next = g.new_work("q", "B");
    assert!(next.job.token > raised, "no attempt gets the token that was consumed");
}

/// An operator's retry starts over what has failed, was called off or waits; what is done stays done.
pub(super) fn a_retry_starts_over_all_but_what_is_done(g: &Fixture) {
    let failed = g.new_work("q", "A");
    g.fail_for_good(&failed).expect("a live claim");
    let waits = g.new_work("q", "A");
    g.fail(&waits).expect("a live claim");
    let cancelled = g.new_work("q", "A");
    g.cancel(cancelled.job.id, true).expect("a running job");
    for work in [&failed, &waits, &cancelled] {
        let id = work.job.id;
        assert_eq!(g.retry(id), Ok(JobState::Queued));
        assert_eq!((g.state(id), g.counts_of(id)), (JobState::Queued, (0, 0)));
        let again = g.work("q", "B");
        assert_eq!((again.job.id, again.job.attempt), (id, 2));
        assert_matches!(g.complete(work), Err(JobRefusal::Stale { .. }), "no earlier attempt reports on it");
        assert!(matches!(g.retry(id), Err(JobRefusal::WrongState { state: JobState::Running, .. })));
        g.complete(&again).expect("a live claim");
        assert_eq!(g.retry(id), Err(JobRefusal::Finished { state: JobState::Completed }));
    }
    assert_eq!((g.count("q", JobState::Completed), g.count("q", JobState::Failed)), (3, 0));
}

/// Deleting a running job is refused unless forced; what is deleted is unknown from then on.
pub(super) fn a_running_job_is_deleted_only_by_force(g: &Fixture) {
    let work = g.new_work("q", "A");
    let refused = g.delete(work.job.id, false);
    let holder = assert_matches!(refused, Err(JobRefusal::JobRunning { owner, token, .. }) => (owner, token));
    assert_eq!(holder, (owner("A"), work.job.token));
    assert_eq!(g.delete(work.job.id, true), Ok(JobState::Running));
    assert!(g.find(work.job.id).is_none());
    assert_eq!(g.renew_work(&work), Err(JobRefusal::JobNotFound));
    assert_eq!(g.complete(&work), Err(JobRefusal::JobNotFound));
    assert_eq!(g.delete(work.job.id, true), Err(JobRefusal::JobNotFound));
    until("a queue that is empty", || g.count("q", JobState::Running) == 0);
}

/// A job in any other state can be deleted, and is then in no count.
pub(super) fn a_job_that_nobody_holds_can_be_deleted(g: &Fixture) {
    let done = g.new_work("q", "A");
    g.complete(&done).expect("a live claim");
    let waits = g.new_work("q", "A");
    g.fail(&waits).expect("a live claim");
    let ready = g.put("q");
    let states =
        [(done.job.id, JobState::Completed), (waits.job.id, JobState::Scheduled), (ready, JobState::Queued)];
    for (id, state) in states {
        assert_eq!(g.delete(id, false), Ok(state));
        assert!(g.find(id).is_none());
        assert_eq!(g.count("q", state), 0);
    }
    g.pass_if_it_can(2 * RETRY_MS);
    assert!(g.try_work("q", "B").is_none());
}

/// It need not wait for its next renewal: neither when it is asked to stop, nor when it was fenced out.
pub(super) fn a_holder_hears_of_a_cancellation_at_once(g: &Fixture) {
    let heard = g.hear_of_holds();
    let ids: Vec<JobId> = (0..4).map(|_| g.new_work("q", "A").job.id).collect();
    for (nth, id) in ids.into_iter().enumerate() {
        heard.forget();
        g.cancel(id, nth % 2 == 1).expect("a running job");
        heard.of(&g.call.namespace, &format!("job/{id}"));
    }
}

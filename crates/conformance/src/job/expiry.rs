//! Holders that die, and what they may still say: late is not stale. Crashes are not failures.

use super::prelude::*;

/// A crashed job comes back after at most five seconds, and then stands at its original place.
pub(super) fn a_crashed_job_comes_back_to_its_original_place(g: &Fixture) {
    let work = g.new_work("q", "A");
    let put = g.put_many("q", 2);
    g.die(&work);
    let view = g.detail(work.job.id).job;
    assert!(view.due_in_ms.is_none_or(|ms| ms <= CRASH_SPREAD_MS), "{:?}", view.due_in_ms);
    g.pass(CRASH_SPREAD_MS);
    let works = g.claim(ClaimJobsRequest { limit: 10, ..g.claim_for("q", "B") });
    let order: Vec<JobId> = works.iter().map(|work| work.job.id).collect();
    assert_eq!(order, [work.job.id, put[0], put[1]]);
    assert_eq!((works[0].job.attempt, works[0].job.crash_count, works[0].job.failure_count), (2, 1, 0));
}

/// One job whose holder died is no herd: it is there as soon as that is noticed.
pub(super) fn a_crashed_job_comes_back_at_once_where_few_crash(g: &Fixture) {
    g.put_many("q", CRASHES_AT_ONCE_MAX);
    let limit = CRASHES_AT_ONCE_MAX;
    let crashed = g.claim(ClaimJobsRequest { limit, ..g.claim_for("q", "A") });
    assert_eq!(crashed.len(), limit);
    g.pass(crashed[0].job.remaining_ms);
    until("dead holders that are noticed", || g.count("q", JobState::Running) == 0);
    assert_eq!(g.claim(ClaimJobsRequest { limit, ..g.claim_for("q", "B") }).len(), limit);
}

/// The time in which a crashed job stays away counts from the end of its claim: a sweep that is a little late puts nothing off.
pub(super) fn a_crashed_job_stays_away_from_the_end_of_its_claim(g: &Fixture) {
    const LATE_MS: u64 = 200;
    let work = g.new_work("q", "A");
    g.pass(work.job.remaining_ms + LATE_MS);
    until("a dead holder that is noticed", || g.state(work.job.id) != JobState::Running);
    g.pass(CRASH_SPREAD_MS - LATE_MS);
    until("a job that is ready", || g.try_work("q", "B").is_some());
}

/// P4: a dead holder is noticed without a request: a waiter gets its job.
pub(super) fn a_dead_holders_job_goes_to_one_who_waits(g: &Fixture) {
    let work = g.new_work("q", "A");
    let waiting = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    g.crash(&work);
    let claimed = waiting.answer().expect("a claim that is answered");
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [work.job.id]);
    assert!(claimed.jobs[0].token > work.job.token);
}

/// R31: a job that kills every holder is quarantined, and no time lets it loose.
pub(super) fn a_poison_job_is_quarantined(g: &Fixture) {
    let id = g.put_with(NewJob { options: JobOptions { max_crashes: 3, ..terms() }, ..g.job_for("q") });
    for crashes in 1..=3 {
        g.crash(&g.work("q", "A"));
        assert_eq!(g.counts_of(id), (0, crashes));
    }
    assert_eq!(g.state(id), JobState::Quarantined);
    g.pass(100 * CRASH_SPREAD_MS);
    assert!(g.try_work("q", "B").is_none());
    assert_eq!(g.count("q", JobState::Quarantined), 1);
    assert_eq!(g.retry(id), Ok(JobState::Queued), "a person can");
    assert_eq!(g.counts_of(id), (0, 0));
    assert_eq!(g.work("q", "B").job.id, id);
}

/// Crashes are not failures, and failures are not crashes: each has its own limit.
pub(super) fn crashes_are_not_failures(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.crash(&work);
    for _ in 0..2 {
        g.fail(&g.work("q", "A")).expect("a live claim");
        g.pass(RETRY_MS);
    }
    assert_eq!(
        (g.counts_of(work.job.id), g.state(work.job.id)),
        ((2, 1), JobState::Queued),
        "one below each limit"
    );
}

/// R07: a completion after expiry is accepted as late while no other attempt has had the job; its crash is not counted.
pub(super) fn a_completion_after_expiry_that_nobody_took_is_accepted_as_late(g: &Fixture) {
    // Unnoticed, waiting to come back, and ready again.
    let ways: [&dyn Fn(&ClaimedWork); 3] =
        [&|_| g.pass(g.ttl_ms()), &|work| g.die(work), &|work| g.crash(work)];
    for way in ways {
        let work = g.new_work("q", "A");
        way(&work);
        let answer = g.complete(&work).expect("no other attempt had it");
        assert_eq!((answer.state, answer.late), (JobState::Completed, true));
        assert_eq!(g.complete(&work), Ok(answer), "the same word, the same answer");
        assert_eq!(
            (g.counts_of(work.job.id), g.ended(work.job.id)),
            ((0, 0), Some(AttemptOutcome::CompletedLate))
        );
        assert_eq!(g.detail(work.job.id).result.as_deref(), Some("{\"sent\":true}"));
        g.pass(2 * CRASH_SPREAD_MS);
        assert!(g.try_work("q", "B").is_none(), "it is out of its queue");
        assert_eq!((g.count("q", JobState::Queued), g.count("q", JobState::Scheduled)), (0, 0));
    }
}

/// R07: also from quarantine.
pub(super) fn a_late_completion_brings_a_job_out_of_quarantine(g: &Fixture) {
    let id = g.put_with(NewJob { options: JobOptions { max_crashes: 1, ..terms() }, ..g.job_for("q") });
    let work = g.work("q", "A");
    g.die(&work);
    assert_eq!(g.state(id), JobState::Quarantined);
    assert_eq!(g.complete(&work).map(|answer| answer.late), Ok(true));
    assert_eq!((g.state(id), g.counts_of(id)), (JobState::Completed, (0, 0)));
    assert_eq!(g.count("q", JobState::Quarantined), 0);
}

/// A failure that is reported late counts as a failure instead of a crash.
pub(super) fn a_late_failure_counts_as_a_failure_and_not_as_a_crash(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.crash(&work);
    let answer = g.fail(&work).expect("no other attempt had it");
    assert_eq!((answer.state, answer.late), (JobState::Scheduled, true));
    assert_eq!(g.counts_of(work.job.id), (1, 0));
    assert!(g.try_work("q", "B").is_none(), "it waits for its retry");
    g.pass(RETRY_MS);
    assert_eq!(g.work("q", "B").job.id, work.job.id);
}

/// R06: A stalls, B claims, A completes: A is stale, B unaffected, and it is on record.
pub(super) fn a_completion_after_takeover_is_stale(g: &Fixture) {
    let a = g.new_work("q", "A");
    g.crash(&a);
    let b = g.work("q", "B");
    assert_stale(g.complete(&a), a.job.token, b.job.token);
    assert_stale(g.fail(&a), a.job.token, b.job.token);
    assert_stale(g.say(&a, Report::Checkpoint { checkpoint: b"mine".to_vec() }), a.job.token, b.job.token);
    assert_stale(g.say(&a, Report::Progress { progress: "1".into() }), a.job.token, b.job.token);
    assert_stale(g.say(&a, Report::Snooze { delay_ms: 1 }), a.job.token, b.job.token);
    assert_stale(g.say(&a, Report::Release {}), a.job.token, b.job.token);
    let detail = g.detail(a.job.id);
    assert_eq!((detail.job.state, detail.result, detail.checkpoint), (JobState::Running, None, None));
    let by_b = Report::Complete { result: Some("\"by B\"".into()) };
    g.say(&b, by_b).expect("a live claim");
    assert_stale(g.complete(&a), a.job.token, b.job.token);
    assert_eq!(g.detail(a.job.id).result.as_deref(), Some("\"by B\""));
    if g.has(TestCapability::TellsEvents) {
        let blocked = |fact: &EventData| {
            matches!(fact, EventData::StaleWriteBlocked { token: stale_token, current_token, action: BlockedAction::Complete, .. }
                if *stale_token == a.job.token && *current_token == b.job.token)
        };
        assert_eq!(g.job_facts(a.job.id).into_iter().filter(blocked).count(), 2, "stale_write_blocked");
    }
}

/// A write that was refused elsewhere under the claim of a job is in the job's events; under a live claim nothing is recorded.
pub(super) fn a_write_that_was_refused_elsewhere_under_a_claim_is_recorded_unless_it_is_live(g: &Fixture) {
    let a = g.new_work("q", "A");
    g.crash(&a);
    let b = g.work("q", "B");
    let before = g.job_facts(a.job.id).len();
    assert!(!g.report_blocked_claim(&b), "it is live");
    assert!(g.report_blocked_claim(&a));
    g.complete(&b).expect("a live claim");
    assert!(g.report_blocked_claim(&b), "it is over");
    let blocked = g.job_facts(a.job.id).split_off(before);
    let blocked: Vec<_> = blocked
        .into_iter()
        .filter_map(|fact| match fact {
            EventData::StaleWriteBlocked { token, current_token, action, .. } => {
                Some((token, current_token, action))
            }
            _ => None,
        })
        .collect();
    let refused = |token| (token, b.job.token, BlockedAction::Complete);
    assert_eq!(blocked, [refused(a.job.token), refused(b.job.token)]);
}

/// R09: one worker, two attempts at one job: the first thread is stale, whatever its name.
pub(super) fn the_first_of_two_attempts_of_one_worker_is_stale(g: &Fixture) {
    let first = g.new_work("q", "W");
    g.crash(&first);
    let second = g.work("q", "W");
    assert_eq!(second.job.id, first.job.id);
    assert_stale(g.complete(&first), first.job.token, second.job.token);
    assert_stale(g.renew_work(&first), first.job.token, second.job.token);
    assert_eq!(g.state(first.job.id), JobState::Running);
    assert_eq!(g.complete(&second).map(|answer| answer.late), Ok(false));
}

/// R06, R07: a late completion and a claim at the same moment: either the completion came first and there is nothing to
/// claim, or the claim did and the completion is stale.
pub(super) fn a_late_completion_against_a_claim_has_one_winner(g: &Fixture) {
    for _ in 0..20 {
        let a = g.new_work("q", "A");
        g.crash(&a);
        let (completed, claimed) = {
            let answers = at_once(2, |nth| {
                if nth == 0 { (Some(g.complete(&a)), None) } else { (None, g.try_work("q", "B")) }
            });
            let mut answers = answers.into_iter();
            let completed = answers.next().and_then(|answer| answer.0).expect("a completion");
            (completed, answers.next().and_then(|answer| answer.1))
        };
        match claimed {
            None => assert_eq!(completed.map(|answer| answer.late), Ok(true)),
            Some(b) => {
                assert_stale(completed, a.job.token, b.job.token);
                g.complete(&b).expect("a live claim");
            }
        }
        assert_eq!(g.state(a.job.id), JobState::Completed);
    }
}

/// No late report counts after an operator has decided: not after a cancellation, a retry or a deletion.
pub(super) fn nobody_is_late_after_an_operator_has_decided(g: &Fixture) {
    let cancelled = g.new_work("q", "A");
    g.crash(&cancelled);
    g.cancel(cancelled.job.id, false).expect("a job that can be called off");
    assert_eq!(g.complete(&cancelled), Err(JobRefusal::Finished { state: JobState::Cancelled }));

    let deleted = g.new_work("q", "A");
    g.crash(&deleted);
    g.delete(deleted.job.id, false).expect("no attempt is running");
    assert_eq!(g.complete(&deleted), Err(JobRefusal::JobNotFound));

    let retried = g.new_work("q", "A");
    g.crash(&retried);
    g.retry(retried.job.id).expect("a job that can start over");
    assert!(matches!(g.complete(&retried), Err(JobRefusal::Stale { .. })));
    assert_eq!(g.state(retried.job.id), JobState::Queued);
}

/// One who is late may leave a checkpoint, but neither renews, nor puts the job off, nor gives it back.
pub(super) fn one_who_is_late_may_leave_a_checkpoint_and_little_else(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.crash(&work);
    g.say(&work, Report::Checkpoint { checkpoint: b"page 7".to_vec() })
        .expect("no other attempt had it");
    assert_over(g.renew_work(&work), &work, AttemptOutcome::Crashed);
    for word in
        [Report::Release {}, Report::Snooze { delay_ms: 1 }, Report::Progress { progress: "1".into() }]
    {
        assert_over(g.say(&work, word), &work, AttemptOutcome::Crashed);
    }
    assert_eq!(g.work("q", "B").job.checkpoint.as_deref(), Some(&b"page 7"[..]));
}

/// R28: two claimers and a sweep on one job: it is given to one, under one token, and its crash is counted once.
pub(super) fn two_claimers_and_a_sweep_find_one_job_and_one_token(g: &Fixture) {
    for _ in 0..10 {
        let a = g.new_work("q", "A");
        g.pass(g.ttl_ms());
        // The sweep comes with the time that passes, the claimers with it.
        let claimed: Vec<ClaimedWork> = at_once(4, |nth| {
            if nth == 0 {
                g.pass(CRASH_SPREAD_MS + 1_000);
                None
            } else {
                g.try_work("q", ["A", "B"][nth % 2])
            }
        })
        .into_iter()
        .flatten()
        .collect();
        assert!(claimed.len() <= 1, "{claimed:?}");
        let b = claimed.into_iter().next().unwrap_or_else(|| {
            // No claim was in time, or the crash was noted when the clock had moved on.
            until("a dead holder that is noticed", || g.state(a.job.id) != JobState::Running);
            g.pass(CRASH_SPREAD_MS);
            g.work("q", "B")
        });
        let view = g.detail(a.job.id).job;
        assert_eq!((view.token, view.attempt_count, view.crash_count), (b.job.token, 2, 1));
        g.complete(&b).expect("a live claim");
    }
}

/// R29: a great many claims end in one moment: all are noted, none comes back as a herd, and renewals go on.
pub(super) fn a_mass_expiry_is_spread_and_starves_nobody(g: &Fixture) {
    const JOBS: usize = 5_000;
    let kept = g.new_work("kept", "B");
    g.put_many("q", JOBS);
    let claimed = g.claim(ClaimJobsRequest { limit: JOBS, ..g.claim_for("q", "A") });
    assert_eq!(claimed.len(), JOBS);
    g.pass(g.ttl_ms() - 1);
    g.renew_work(&kept).expect("a live claim");
    g.pass(1);
    g.renew_work(&kept)
        .expect("a holder that renews in time is not held up by those who did not");
    until("all of them on record", || g.count("q", JobState::Running) == 0);
    assert_eq!(g.state(kept.job.id), JobState::Running);
    assert_spread(g, JOBS);
    g.pass(CRASH_SPREAD_MS);
    until("all of them ready", || g.count("q", JobState::Queued) == JOBS as u64);
}

/// R29: claims that ended long before anybody could notice, in an outage, do not come back all at once when it is over.
pub(super) fn what_ran_out_in_an_outage_is_spread_from_its_end(g: &Fixture) {
    const JOBS: usize = 1_000;
    g.put_many("q", JOBS);
    assert_eq!(g.claim(ClaimJobsRequest { limit: JOBS, ..g.claim_for("q", "A") }).len(), JOBS);
    g.pass(g.ttl_ms() + 20 * CRASH_SPREAD_MS);
    until("all of them on record", || g.count("q", JobState::Running) == 0);
    assert_spread(g, JOBS);
    g.pass(CRASH_SPREAD_MS);
    until("all of them ready", || g.count("q", JobState::Queued) == JOBS as u64);
}

/// About a fifth of the jobs of a queue comes back in each of the next five seconds.
fn assert_spread(g: &Fixture, many: usize) {
    let jobs = g.jobs_where(&JobFilter { queue: Some(queue("q")), ..JobFilter::default() }, 1_000);
    assert_eq!(jobs.len(), many);
    let mut by_second = [0; 5];
    for job in jobs {
        let due_in_ms = usize::try_from(job.due_in_ms.unwrap_or(0)).expect("a short time");
        by_second[(due_in_ms / 1_000).min(4)] += 1;
    }
    let fair = many / 5;
    let fair = fair * 7 / 10..=fair * 13 / 10;
    assert!(by_second.iter().all(|came| fair.contains(came)), "a fifth in each second: {by_second:?}");
}

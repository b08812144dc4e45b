//! Keeping a claim: a renewal is only a renewal, and a sweep trusts no list.

use std::num::NonZeroU32;

use super::prelude::*;

/// P3: a renewal gives another ttl under the same token, and changes nothing else.
pub(super) fn a_renewal_keeps_token_and_ttl(g: &Fixture) {
    let work = g.new_work("q", "A");
    for _ in 0..3 {
        g.pass_if_it_can(g.ttl_ms() / 2);
        let renewal = g.renew_work(&work).expect("a live claim");
        assert_eq!(renewal.token, work.job.token);
        g.assert_ms("a full ttl", renewal.remaining_ms, g.ttl_ms());
        assert!(!renewal.cancel_requested && renewal.yield_request.is_none());
    }
    assert_eq!((g.state(work.job.id), g.detail(work.job.id).job.attempt_count), (JobState::Running, 1));
}

/// Many renewals in one call are answered each, in order; a bad one costs the others nothing.
pub(super) fn many_renewals_are_answered_each_and_in_order(g: &Fixture) {
    g.put_many("q", 3);
    let works = g.claim(ClaimJobsRequest { limit: 3, ..g.claim_for("q", "A") });
    g.complete(&works[1]).expect("a live claim");
    let mut attempts: Vec<AttemptRef> = works.iter().map(super::fixture::ClaimedWork::attempt).collect();
    attempts.insert(1, AttemptRef { job_id: fresh_id().0, ..attempts[0].clone() });
    let answers = g.renew_attempts(attempts);
    assert_eq!(answers.len(), 4);
    assert!(answers[0].is_ok() && answers[3].is_ok(), "{answers:?}");
    assert_eq!(answers[1], Err(JobRefusal::JobNotFound));
    assert_eq!(answers[2], Err(JobRefusal::Finished { state: JobState::Completed }));
}

/// R12: a heartbeat that arrives behind its holder's own report revives nothing. Nor does it count as a stale write.
pub(super) fn a_renewal_never_revives_an_attempt_that_is_over(g: &Fixture) {
    let stale_writes = || g.counted().into_iter().map(|[.., stale]| stale).sum::<u64>();
    let before = stale_writes();
    let handed_back = g.new_work("q", "A");
    g.say(&handed_back, Report::Release {}).expect("a live claim");
    assert_over(g.renew_work(&handed_back), &handed_back, AttemptOutcome::Released);
    assert_eq!(g.state(handed_back.job.id), JobState::Queued);
    g.complete(&g.work("q", "A")).expect("a live claim");

    let failed = g.new_work("q", "A");
    g.fail(&failed).expect("a live claim");
    assert_over(g.renew_work(&failed), &failed, AttemptOutcome::Failed);

    let completed = g.new_work("q", "A");
    g.complete(&completed).expect("a live claim");
    assert_eq!(g.renew_work(&completed), Err(JobRefusal::Finished { state: JobState::Completed }));
    assert_eq!(g.state(completed.job.id), JobState::Completed);
    assert_eq!(stale_writes(), before);
}

/// R12: at the same moment, in whatever order they are decided.
pub(super) fn a_hand_back_beats_heartbeats_under_way(g: &Fixture) {
    for _ in 0..20 {
        let work = g.new_work("q", "A");
        at_once(4, |nth| {
            if nth == 0 {
                g.say(&work, Report::Release {}).expect("a live claim");
            } else {
                // Granted before, refused after.
                let _ = g.renew_work(&work);
            }
        });
        assert_eq!(g.state(work.job.id), JobState::Queued);
        assert_over(g.renew_work(&work), &work, AttemptOutcome::Released);
        g.complete(&g.work("q", "B")).expect("a live claim");
    }
}

/// P3: a claim that ran out is not renewed, whether or not anybody has noticed.
pub(super) fn a_claim_that_ran_out_is_not_renewed(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.pass(g.ttl_ms());
    assert_over(g.renew_work(&work), &work, AttemptOutcome::Crashed);
    g.pass(1_000);
    assert_over(g.renew_work(&work), &work, AttemptOutcome::Crashed);
}

/// R08: the delayed renewal of a former holder steals nothing back.
pub(super) fn a_late_renewal_steals_nothing_back(g: &Fixture) {
    let a = g.new_work("q", "A");
    g.crash(&a);
    let b = g.work("q", "B");
    assert_stale(g.renew_work(&a), a.job.token, b.job.token);
    let runner = g.detail(a.job.id).job.runner.expect("a worker has it");
    assert_eq!(runner.owner.as_str(), "B");
    g.complete(&b).expect("a live claim");
}

/// R10: a worker that comes back under its old name adopts nothing.
pub(super) fn a_reused_worker_name_adopts_nothing(g: &Fixture) {
    let work = g.new_work("q", "A");
    assert!(g.try_work("q", "A").is_none(), "the job of its predecessor is not its own");
    let guess = AttemptRef { hold_id: fresh_hold(), ..work.attempt() };
    let wrong = JobRefusal::WrongHoldId { token: work.job.token };
    assert_eq!(g.renew_attempts(vec![guess.clone()]), [Err(wrong.clone())]);
    assert_eq!(g.say_as(guess, super::fixture::completed()), Err(wrong));
    g.complete(&work).expect("a live claim");
}

/// R03: a sweep that comes to a claim which was renewed in the meantime leaves it alone.
pub(super) fn a_sweep_never_ends_a_claim_that_was_renewed_in_time(g: &Fixture) {
    let work = g.new_work("q", "A");
    for _ in 0..5 {
        // By what it was first told, its time would be up in the middle of this.
        g.pass(g.ttl_ms() - 1);
        g.renew_work(&work).expect("renewed in time");
    }
    assert_eq!((g.state(work.job.id), g.counts_of(work.job.id)), (JobState::Running, (0, 0)));
}

/// R05: an old note that a claim is due, acted on when the next holder has the job, does it no harm.
pub(super) fn a_stale_sweep_leaves_the_next_holder_alone(g: &Fixture) {
    let a = g.new_work("q", "A");
    g.pass(g.ttl_ms() / 2);
    g.say(&a, Report::Release {}).expect("a live claim");
    let b = g.work("q", "B");
    // A's deadline, which may still be on a list.
    g.pass(g.ttl_ms() / 2);
    assert_eq!(g.state(b.job.id), JobState::Running);
    g.pass(g.ttl_ms() / 2 - 1);
    g.renew_work(&b).expect("a live claim");
    assert_eq!(g.counts_of(b.job.id), (0, 0));
}

/// The store enforces the time limit of an attempt by refusing renewals; it counts as a failure, not as a crash.
pub(super) fn the_time_limit_of_an_attempt_ends_its_renewals(g: &Fixture) {
    let limit_ms = g.ttl_ms() + g.ttl_ms() / 2;
    let attempt_ms = u32::try_from(limit_ms).ok().and_then(NonZeroU32::new);
    let id = g.put_with(NewJob {
        options: JobOptions { attempt_timeout_ms: attempt_ms, ..terms() },
        ..g.job_for("q")
    });
    let work = g.work("q", "A");
    g.pass(g.ttl_ms() - 1);
    let renewal = g.renew_work(&work).expect("a live claim");
    assert_eq!(renewal.remaining_ms, g.ttl_ms() / 2 + 1, "only the rest");
    g.pass(g.ttl_ms() / 2);
    assert_eq!(g.renew_work(&work).expect("a live claim").remaining_ms, 1);
    g.pass(1);
    assert_over(g.renew_work(&work), &work, AttemptOutcome::TimedOut);
    g.pass(1_000);
    crate::fixture::until("an attempt that is over", || g.state(id) == JobState::Scheduled);
    assert_eq!((g.counts_of(id), g.ended(id)), ((1, 0), Some(AttemptOutcome::TimedOut)));
    g.pass(RETRY_MS);
    assert_eq!(g.work("q", "B").job.failure_count, 1);
}

/// R20, R21: a wall clock that is set forward or back ends no claim, keeps none alive, and brings no retry forward.
pub(super) fn a_wall_clock_that_jumps_decides_nothing_about_a_claim(g: &Fixture) {
    for by_ms in [3_600_000, -7_200_000] {
        let waits = g.new_work("q", "A");
        g.fail(&waits).expect("a live claim");
        let work = g.new_work("q", "A");
        g.test_store.shift_wall(by_ms);
        g.pass(1);
        g.renew_work(&work).expect("a live claim");
        assert_eq!(g.state(waits.job.id), JobState::Scheduled, "its retry waits in store time");
        g.pass(g.ttl_ms());
        assert_over(g.renew_work(&work), &work, AttemptOutcome::Crashed);
        g.pass(RETRY_MS);
        let again = g.work("q", "B");
        assert_eq!(again.job.id, waits.job.id);
        g.complete(&again).expect("a live claim");
        g.cancel(work.job.id, true).expect("a job that can be called off");
    }
}

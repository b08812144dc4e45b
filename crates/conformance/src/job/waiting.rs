//! Standing in line for jobs: first come, first served; no claim gets anything after its time, or after it left.

use std::sync::Mutex;

use super::prelude::*;

/// One who waits is given the first job that comes, at once and without asking again.
pub(super) fn one_who_waits_is_given_the_first_job_that_comes(g: &Fixture) {
    let waiting = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    let id = g.put("q");
    let claimed = waiting.answer().expect("a claim that is answered");
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    until("an empty line", || g.queue_view("q").is_some_and(|view| view.waiting_claim_count == 0));
}

/// The answer says how long the request stood in line, so that its holder can count from before it asked.
pub(super) fn a_claim_says_how_long_it_stood_in_line(g: &Fixture) {
    let waiting = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    g.pass(g.ttl_ms() / 2);
    g.put("q");
    let claimed = waiting.answer().expect("a claim that is answered");
    let stood_ms = g.ttl_ms() / 2;
    assert!((stood_ms..stood_ms + g.ttl_ms() / 3).contains(&claimed.waited_ms), "{} ms", claimed.waited_ms);
    g.assert_ms("a full ttl from the claim", claimed.jobs[0].remaining_ms, g.ttl_ms());
}

/// Those who wait are served in the order in which they came.
pub(super) fn those_who_wait_are_served_in_order(g: &Fixture) {
    let names = ["first", "second", "third"];
    let waiting = names.map(|name| g.enqueue_waiters(g.claim_and_wait("q", name)));
    for (name, waiting) in names.into_iter().zip(waiting) {
        let id = g.put("q");
        let claimed = waiting.answer().expect("a claim that is answered");
        assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id], "{name}");
        assert_eq!(g.detail(id).job.runner.map(|runner| runner.owner.to_string()).as_deref(), Some(name));
    }
}

/// R19: one whose own time is up is given nothing afterwards, and the job goes to the next.
pub(super) fn one_whose_time_is_up_is_given_nothing(g: &Fixture) {
    let wait_ms = g.ttl_ms() / 3;
    let short = g.enqueue_waiters(ClaimJobsRequest { wait_ms, ..g.claim_for("q", "B") });
    let patient = g.enqueue_waiters(g.claim_and_wait("q", "C"));
    g.pass(wait_ms);
    let id = g.put("q");
    let claimed = patient.answer().expect("a claim that is answered");
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    assert_eq!(short.answer().expect("a claim that is answered").jobs, []);
    assert_eq!(g.detail(id).job.attempt_count, 1, "no other claim got it in between");
}

/// R19: to the millisecond.
pub(super) fn one_who_waits_is_served_until_its_time_is_up_and_not_at_it(g: &Fixture) {
    let wait_ms = g.ttl_ms() / 2;
    for (early_ms, given) in [(1, 1), (0, 0)] {
        let name = format!("q{early_ms}");
        let waiting = g.enqueue_waiters(ClaimJobsRequest { wait_ms, ..g.claim_for(&name, "B") });
        g.pass(wait_ms - early_ms);
        let id = g.put(&name);
        let claimed = waiting.answer().expect("a claim that is answered");
        assert_eq!(claimed.jobs.len(), given, "{early_ms} ms before its time is up");
        assert_eq!(g.state(id) == JobState::Running, given == 1);
    }
}

/// R14: jobs are handed over, and the one who waited for them is not there any more: they go back at once, and it
/// counts as nothing.
pub(super) fn jobs_that_nobody_picks_up_go_back_at_once(g: &Fixture) {
    let waiting = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    waiting.freeze();
    let id = g.put_with(NewJob { options: terms(), ..g.job_for("q") });
    until("the late claim", || g.state(id) == JobState::Running);
    assert!(waiting.leave().is_none(), "it never saw its job");
    until("a job that is ready again", || g.state(id) == JobState::Queued);
    let ended = g.ended(id);
    assert_matches!(ended, Some(AttemptOutcome::Abandoned | AttemptOutcome::Released), "visible as such");
    assert_eq!(g.counts_of(id), (0, 0));
    assert_eq!(g.work("q", "C").job.id, id);
}

/// R14: a claim leaves at the very moment at which a job comes: it gets the job, or the job is queued again, and is never lost.
pub(super) fn one_that_gives_up_leaves_no_orphan(g: &Fixture) {
    for _ in 0..40 {
        let request = g.claim_and_wait("q", "B");
        let hold = request.hold_id;
        let waiting = Mutex::new(Some(g.enqueue_waiters(request)));
        let job = g.job_for("q");
        let id = job.id;
        let picked_up = at_once(2, |nth| {
            if nth == 0 {
                g.put_with(job.clone());
                return None;
            }
            let waiting = waiting.lock().expect("a lock").take().expect("one who waits");
            waiting.leave()
        });
        let picked_up = picked_up.into_iter().flatten().next();
        let work = if let Some(claimed) = picked_up {
            works(hold, claimed.expect("a claim that is answered")).pop().expect("a job")
        } else {
            // While it stands in line it may take the job; after that, it may be about to give it back. In this order: what is seen of
            // the job before the line may be over by then.
            until("a job that anybody can have", || {
                g.queue_view("q").is_some_and(|view| view.waiting_claim_count == 0)
                    && g.state(id) == JobState::Queued
            });
            g.work("q", "C")
        };
        assert_eq!(work.job.id, id);
        g.complete(&work).expect("a live claim");
    }
}

/// One that leaves the line is passed over.
pub(super) fn one_that_leaves_the_line_is_passed_over(g: &Fixture) {
    let gone = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    let stays = g.enqueue_waiters(g.claim_and_wait("q", "C"));
    assert!(gone.leave().is_none());
    until("a shorter line", || g.queue_view("q").is_some_and(|view| view.waiting_claim_count == 1));
    let id = g.put("q");
    assert_eq!(stays.answer().expect("a claim that is answered").jobs.len(), 1);
    assert_eq!(g.detail(id).job.attempt_count, 1);
}

/// P7: the same request again, while the first still stands in line, takes its place.
pub(super) fn the_same_claim_again_keeps_its_place_in_line(g: &Fixture) {
    let request = g.claim_and_wait("q", "B");
    let first = g.enqueue_waiters(request.clone());
    g.pass(10);
    let behind = g.enqueue_waiters(g.claim_and_wait("q", "C"));
    g.pass(10);
    let again = g.start_claim(request);
    assert_matches!(first.answer(), Err(StoreError::Unavailable { .. }), "the earlier sending got");
    let id = g.put("q");
    let claimed = again.answer().expect("a claim that is answered");
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    g.put("q");
    assert_eq!(behind.answer().expect("a claim that is answered").jobs.len(), 1);
}

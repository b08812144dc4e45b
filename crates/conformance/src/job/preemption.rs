//! Making room: a job of higher priority may ask one that is worked on to yield.

use super::prelude::*;

/// A job that asks for room within this time.
fn urgent(g: &Fixture, priority: i16, yield_within_ms: u64) -> NewJob {
    let terms = JobOptions { priority, ..terms() };
    NewJob { options: terms, preempt_within_ms: Some(yield_within_ms), ..g.job_for("q") }
}

/// The holder learns at its renewal for whom and by when; it leaves a checkpoint and hands back, and goes on later.
pub(super) fn a_holder_learns_at_its_renewal_that_it_should_yield(g: &Fixture) {
    let work = g.new_work("q", "A");
    let id = g.put_with(urgent(g, 5, 10_000));
    let renewal = g.renew_work(&work).expect("a live claim");
    let notice = renewal.yield_request.expect("a notice");
    assert_eq!(notice.priority, 5);
    assert!(notice.contender.as_str().contains(&id.to_string()), "{}", notice.contender);
    g.assert_ms("by when", notice.yield_in_ms, 10_000);
    g.say(&work, Report::Checkpoint { checkpoint: b"page 7".to_vec() })
        .expect("a live claim");
    g.say(&work, Report::Release {}).expect("a live claim");
    assert_eq!(g.work("q", "B").job.id, id, "who asked is first");
    let again = g.work("q", "A");
    assert_eq!((again.job.id, again.job.checkpoint.as_deref()), (work.job.id, Some(&b"page 7"[..])));
    assert_eq!(g.counts_of(work.job.id), (0, 0));
}

/// Renewals get only the remainder until the yield time; then the claim ends, and it counts as nothing.
pub(super) fn a_holder_that_does_not_yield_is_ended_and_nothing_is_counted(g: &Fixture) {
    let work = g.new_work("q", "A");
    let id = g.put_with(urgent(g, 5, g.ttl_ms() + g.ttl_ms() / 2));
    g.pass(g.ttl_ms() - 1);
    assert_eq!(g.renew_work(&work).expect("a live claim").remaining_ms, g.ttl_ms() / 2 + 1);
    g.pass(g.ttl_ms() / 2 + 1);
    assert_over(g.renew_work(&work), &work, AttemptOutcome::Yielded);
    until("a claim that is over", || g.state(work.job.id) == JobState::Queued);
    assert_eq!((g.ended(work.job.id), g.counts_of(work.job.id)), (Some(AttemptOutcome::Yielded), (0, 0)));
    assert_eq!(g.work("q", "B").job.id, id);
}

/// No holder yields to an equal, to a job that does not ask, or to one in another queue.
pub(super) fn nobody_yields_to_an_equal_or_to_one_who_does_not_ask(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.put_with(urgent(g, 0, 1_000));
    g.put_with(NewJob { preempt_within_ms: None, ..urgent(g, 9, 1_000) });
    g.put_with(NewJob { queue: super::fixture::queue("r"), ..urgent(g, 9, 1_000) });
    let renewal = g.renew_work(&work).expect("a live claim");
    assert_eq!(renewal.yield_request, None);
}

/// The notice is withdrawn when the job that asked is served elsewhere, or is called off.
pub(super) fn a_notice_is_withdrawn_when_its_contender_needs_no_room(g: &Fixture) {
    let work = g.new_work("q", "A");
    let asked = |g: &Fixture| g.renew_work(&work).expect("a live claim").yield_request.is_some();
    g.put_with(urgent(g, 5, 10_000));
    assert!(asked(g));
    let served = g.work("q", "B");
    assert!(!asked(g), "it is worked on");
    g.complete(&served).expect("a live claim");
    let id = g.put_with(urgent(g, 5, 10_000));
    assert!(asked(g));
    g.cancel(id, false).expect("no attempt is running");
    assert!(!asked(g), "it was called off");
    let id = g.put_with(urgent(g, 5, 10_000));
    assert!(asked(g));
    g.delete(id, false).expect("no attempt is running");
    assert!(!asked(g), "it was deleted");
}

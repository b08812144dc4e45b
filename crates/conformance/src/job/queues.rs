//! Queues: pausing, resuming, draining, counting.

use super::prelude::*;
use super::schedule;

/// A paused queue takes jobs and hands none out, until it is resumed.
pub(super) fn a_paused_queue_hands_nothing_out(g: &Fixture) {
    let running = g.new_work("q", "A");
    assert_eq!(g.set_queue("q", QueueMode::Paused).mode, QueueMode::Paused);
    let id = g.put("q");
    assert!(g.try_work("q", "B").is_none());
    assert_eq!(g.queue_view("q").map(|view| view.mode), Some(QueueMode::Paused));
    g.renew_work(&running).expect("who is at work goes on");
    g.complete(&running).expect("a live claim");
    assert_eq!(g.set_queue("q", QueueMode::Open).mode, QueueMode::Open);
    assert_eq!(g.work("q", "B").job.id, id);
}

/// Pausing one queue leaves the others of a claim alone.
pub(super) fn a_claim_passes_over_a_paused_queue(g: &Fixture) {
    g.put("paused");
    let id = g.put("open");
    g.set_queue("paused", QueueMode::Paused);
    let queues = vec![(queue("paused"), 9), (queue("open"), 1)];
    let works = g.claim(ClaimJobsRequest { queues, limit: 10, ..g.claim_for("q", "A") });
    assert_eq!(works.iter().map(|work| work.job.id).collect::<Vec<_>>(), [id]);
}

/// Who waits for jobs of a paused queue is served when it is resumed.
pub(super) fn a_resumed_queue_serves_those_who_wait(g: &Fixture) {
    g.set_queue("q", QueueMode::Paused);
    let waiting = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    let id = g.put("q");
    assert_eq!(g.state(id), JobState::Queued);
    assert!(waiting.answered().is_none());
    g.set_queue("q", QueueMode::Open);
    let claimed = waiting.answer().expect("a claim that is answered");
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
}

/// A queue that is drained hands its jobs out and takes no new ones; what is tried again comes back to it.
pub(super) fn a_draining_queue_takes_no_new_jobs(g: &Fixture) {
    let known = g.job_for("q");
    g.put_with(known.clone());
    g.set_queue("q", QueueMode::Draining);
    assert_eq!(g.enqueue(g.job_for("q")), Err(JobRefusal::QueueDraining { queue: queue("q") }));
    assert_eq!(g.enqueue(known).map(|enqueued| enqueued.existed), Ok(true), "what is there is there");
    let work = g.work("q", "A");
    g.say(&work, Report::Release {}).expect("a live claim");
    g.complete(&g.work("q", "A")).expect("a live claim");
    g.set_queue("q", QueueMode::Open);
    g.put("q");
}

/// The counts of a queue add up in every state.
pub(super) fn the_counts_of_a_queue_add_up(g: &Fixture) {
    let fragile = JobOptions { max_crashes: 1, ..terms() };
    let poison = g.put_with(NewJob { options: fragile, ..g.job_for("q") });
    g.die(&g.work("q", "A"));
    assert_eq!(g.state(poison), JobState::Quarantined);
    g.complete(&g.new_work("q", "A")).expect("a live claim");
    g.fail_for_good(&g.new_work("q", "A")).expect("a live claim");
    g.fail(&g.new_work("q", "A")).expect("a live claim");
    let called_off = g.put("q");
    g.cancel(called_off, false).expect("no attempt is running");
    let in_doubt = g.new_work("q", "A");
    g.announce(&in_doubt, "charge", InDoubtPolicy::Manual).expect("a live claim");
    g.say(&in_doubt, Report::Release {}).expect("a live claim");
    let again = g.work("q", "A");
    g.announce(&again, "charge", InDoubtPolicy::Manual).expect("a live claim");
    g.new_work("q", "A");
    g.put_with(NewJob { when: When::After { delay_ms: 60_000 }, ..g.job_for("q") });
    g.put("q");
    g.put("other");
    let counts = g.queue_view("q").expect("a queue").job_counts;
    let expected = JobCounts {
        queued: 1,
        scheduled: 2,
        running: 1,
        completed: 1,
        failed: 1,
        cancelled: 1,
        quarantined: 1,
        in_doubt: 1,
    };
    assert_eq!(counts, expected);
    assert_eq!(g.count("other", JobState::Queued), 1);
}

/// A queue shows how many wait for its jobs.
pub(super) fn a_queue_shows_how_many_wait_for_its_jobs(g: &Fixture) {
    let both =
        ClaimJobsRequest { queues: vec![(queue("q"), 1), (queue("r"), 1)], ..g.claim_and_wait("q", "B") };
    let one = g.enqueue_waiters(both);
    let two = g.enqueue_waiters(g.claim_and_wait("q", "C"));
    let claimers = |name: &str| g.queue_view(name).map_or(0, |view| view.waiting_claim_count);
    assert_eq!((claimers("q"), claimers("r")), (2, 1));
    g.put("r");
    assert_eq!(one.answer().expect("a claim that is answered").jobs.len(), 1);
    until("one who waits less", || (claimers("q"), claimers("r")) == (1, 0));
    drop(two);
    until("no claim that waits", || claimers("q") == 0);
}

/// P10: a queue that only claims have named leaves nothing behind.
pub(super) fn a_queue_that_only_claims_have_named_is_kept_nowhere(g: &Fixture) {
    for nth in 0..10 {
        assert!(g.try_work(&format!("typo-{nth}"), "A").is_none());
        assert_eq!(g.queue_view(&format!("typo-{nth}")), None);
    }
}

fn yearly(name: &str) -> ScheduleSpec {
    ScheduleSpec { queue: queue(name), ..schedule::spec("0 0 1 1 *") }
}

/// A queue that has no job, no schedule, no claim that waits and no order of an operator is not kept.
pub(super) fn a_queue_with_nothing_left_in_it_vanishes(g: &Fixture) {
    let id = g.put("q");
    assert!(g.queue_view("q").is_some());
    g.delete(id, false).expect("a job that waits");
    until("the queue has vanished", || g.queue_view("q").is_none());
    g.put("q");
    assert_eq!(g.count("q", JobState::Queued), 1, "the same name again");
    g.complete(&g.work("q", "A")).expect("a live claim");
    g.set_queue("paused", QueueMode::Paused);
    g.set_queue("paused", QueueMode::Open);
    until("a queue that was opened again has vanished", || g.queue_view("paused").is_none());
    assert_eq!(g.count("q", JobState::Completed), 1, "a finished job keeps its queue");
}

/// What an operator has set, what a schedule enqueues into, and what a claim waits for stays.
pub(super) fn a_queue_that_is_still_used_stays(g: &Fixture) {
    for name in ["paused", "scheduled", "plain"] {
        let id = g.put(name);
        match name {
            "paused" => drop(g.set_queue(name, QueueMode::Paused)),
            "scheduled" => drop(schedule::set(g, &yearly(name))),
            _ => {}
        }
        g.delete(id, false).expect("a job that waits");
    }
    // By then the others would have gone too.
    until("the plain one has vanished", || g.queue_view("plain").is_none());
    assert_eq!(g.queue_view("paused").map(|view| view.mode), Some(QueueMode::Paused));
    assert!(g.queue_view("scheduled").is_some(), "a schedule enqueues into it");
    assert!(schedule::remove(g));
    until("it goes with its schedule", || g.queue_view("scheduled").is_none());
}

/// A queue is removed when it has no jobs and no schedules; until then the refusal says what is in it.
pub(super) fn a_queue_is_removed_when_it_is_empty_and_not_before(g: &Fixture) {
    assert_eq!(g.remove_queue("q"), Ok(false), "there is none");
    let (first, _) = (g.put("q"), g.put("q"));
    g.set_queue("q", QueueMode::Paused);
    schedule::set(g, &yearly("q"));
    let refused = g.remove_queue("q").expect_err("it has jobs");
    let StoreError::QueueNotEmpty { queue: told, message: holds } = &refused else { panic!("{refused:?}") };
    assert_eq!((told, holds.as_str()), (&queue("q"), "2 queued, 1 schedules"), "{refused}");
    g.delete(first, false).expect("a job that waits");
    g.set_queue("q", QueueMode::Open);
    g.complete(&g.work("q", "A")).expect("a live claim");
    g.set_queue("q", QueueMode::Paused);
    let refused = g.remove_queue("q").expect_err("it has a finished job");
    assert!(refused.to_string().contains("1 completed, 1 schedules"), "{refused}");
    let empty = g.put("empty");
    g.set_queue("empty", QueueMode::Paused);
    g.delete(empty, false).expect("a job that waits");
    assert_eq!(g.remove_queue("empty"), Ok(true), "an operator's order goes with it");
    assert!(g.queue_view("empty").is_none());
    assert_eq!(g.remove_queue("empty"), Ok(false), "sent again");
}

//! Closing and opening again: what was acknowledged is there, and nothing is given early.

use super::prelude::*;
use super::schedule;

/// R23: claims in flight survive: none is given early, and their holders go on.
pub(super) fn a_live_claim_survives_a_restart(g: &Fixture) {
    let request = ClaimJobsRequest { limit: 2, ..g.claim_for("q", "A") };
    g.put_many("q", 2);
    let works = g.claim(request.clone());
    g.test_store.restart();
    assert!(g.try_work("q", "B").is_none());
    assert_eq!((g.state(works[0].job.id), g.count("q", JobState::Running)), (JobState::Running, 2));
    let again = g.claim(request);
    let told: Vec<_> = again.iter().map(|work| (work.job.id, work.job.token)).collect();
    assert_eq!(told, works.iter().map(|work| (work.job.id, work.job.token)).collect::<Vec<_>>(), "R13");
    assert_eq!(g.renew_work(&works[0]).map(|renewal| renewal.token), Ok(works[0].job.token));
    for work in &works {
        g.complete(work).expect("a live claim");
    }
}

/// R23: all end within a ttl and a second, also those that no caller asks about, and their crashes are counted.
pub(super) fn a_claim_in_flight_ends_on_time_after_a_restart(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.pass(g.ttl_ms() / 2);
    g.test_store.restart();
    assert!(g.try_work("q", "B").is_none());
    let waiting = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    g.crash(&work);
    let claimed = waiting.answer().expect("a claim that is answered").jobs;
    assert_eq!((claimed[0].id, claimed[0].crash_count), (work.job.id, 1));
    assert!(claimed[0].token > work.job.token);
    assert_stale(g.complete(&work), work.job.token, claimed[0].token);
}

/// R23: time passes while the store is down; a holder that comes back late is late, not lost.
pub(super) fn a_claim_that_ran_out_while_nobody_served_is_over(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.test_store.restart();
    g.pass(g.ttl_ms());
    assert_over(g.renew_work(&work), &work, AttemptOutcome::Crashed);
    assert_eq!(g.complete(&work).map(|answer| answer.late), Ok(true));
}

/// P2: tokens go on above every one that was given, and above those that force consumed.
pub(super) fn tokens_of_jobs_grow_over_a_restart(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.cancel(work.job.id, true).expect("a running job");
    let consumed = g.detail(work.job.id).job.token;
    for _ in 0..3 {
        g.test_store.restart();
        let next = g.new_work("q", "A");
        assert!(next.job.token > consumed, "{} after {consumed}", next.job.token);
        g.complete(&next).expect("a live claim");
        assert_stale(g.renew_work(&work), work.job.token, consumed);
    }
}

/// P6: jobs in every state, with all that belongs to them, are there again.
pub(super) fn jobs_in_every_state_survive_a_restart(g: &Fixture) {
    let done = g.new_work("q", "A");
    g.complete(&done).expect("a live claim");
    let failed = g.new_work("q", "A");
    g.fail_for_good(&failed).expect("a live claim");
    let waits = g.new_work("q", "A");
    g.say(&waits, Report::Checkpoint { checkpoint: b"page 7".to_vec() })
        .expect("a live claim");
    g.record(&waits, "charge", "7").expect("a live claim");
    g.announce(&waits, "ship", InDoubtPolicy::Manual).expect("a live claim");
    g.fail(&waits).expect("a live claim");
    let called_off = g.new_work("q", "A");
    g.cancel(called_off.job.id, false).expect("a running job");
    let later = g.put_with(NewJob {
        when: When::After { delay_ms: 60_000 },
        labels: vec![label("tenant", "acme")],
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..g.job_for("q")
    });
    let ready = g.put("q");
    let ids = [done.job.id, failed.job.id, waits.job.id, called_off.job.id, later, ready];
    let before: Vec<_> = ids.iter().map(|id| g.detail(*id)).collect();
    let counts = g.queue_view("q").expect("a queue").job_counts;
    g.test_store.restart();
    let after: Vec<_> = ids.iter().map(|id| g.detail(*id)).collect();
    assert_eq!(after, before);
    assert_eq!(g.queue_view("q").expect("a queue").job_counts, counts);
    assert!(g.renew_work(&called_off).expect("a live claim").cancel_requested);
    let listed: Vec<_> = g.jobs_where(&JobFilter::default(), 3).into_iter().map(|job| job.id).collect();
    assert_eq!(listed, ids);
    g.pass(RETRY_MS);
    let next = g.work("q", "B");
    assert_eq!((next.job.id, next.job.checkpoint.as_deref()), (waits.job.id, Some(&b"page 7"[..])));
    assert_eq!(next.job.effects.len(), 2);
    assert_eq!(g.announce(&next, "ship", InDoubtPolicy::Manual), IN_DOUBT);
}

/// The order in which jobs came, and their rank, hold over a restart.
pub(super) fn the_order_of_jobs_survives_a_restart(g: &Fixture) {
    let mut expected = g.put_many("q", 4);
    let mut high = terms();
    high.priority = 5;
    expected.insert(0, g.put_with(NewJob { options: high, ..g.job_for("q") }));
    let first = g.work("q", "A");
    g.say(&first, Report::Release {}).expect("a live claim");
    g.test_store.restart();
    expected.push(g.put("q"));
    let works = g.claim(ClaimJobsRequest { limit: 10, ..g.claim_for("q", "A") });
    assert_eq!(works.iter().map(|work| work.job.id).collect::<Vec<_>>(), expected);
}

/// P7: what was enqueued before is not enqueued again afterwards, by id or by unique key.
pub(super) fn nothing_is_enqueued_twice_over_a_restart(g: &Fixture) {
    let job = NewJob { unique: unique("invoice-42", 3_600_000), ..g.job_for("q") };
    let id = g.put_with(job.clone());
    let other = g.job_for("q");
    g.put_with(other.clone());
    g.test_store.restart();
    assert_eq!(g.enqueue(job.clone()), Ok(EnqueuedJob { job_id: id, existed: true }));
    assert_eq!(g.enqueue(NewJob { id: fresh_id().0, ..job }), Ok(EnqueuedJob { job_id: id, existed: true }));
    assert_eq!(g.enqueue(other.clone()), Ok(EnqueuedJob { job_id: other.id, existed: true }));
    let conflict = g.enqueue(NewJob { unique: unique("invoice-42", 3_600_000), ..g.job_for("q") });
    assert_matches!(conflict, Err(JobRefusal::Conflict { job_id: first, .. }) if first == id);
}

/// R15: a completion that was acknowledged gets the same answer afterwards.
pub(super) fn a_completion_gets_the_same_answer_after_a_restart(g: &Fixture) {
    let work = g.new_work("q", "A");
    let first = g.complete(&work);
    assert!(first.is_ok());
    g.test_store.restart();
    assert_eq!(g.complete(&work), first);
    assert_eq!(g.fail(&work), Err(JobRefusal::Finished { state: JobState::Completed }));
}

/// A chain of undo jobs goes on where it was, once each.
pub(super) fn a_chain_of_undo_jobs_goes_on_after_a_restart(g: &Fixture) {
    let work = g.new_work("q", "A");
    for name in ["reserve", "charge", "ship"] {
        g.record_undoable(&work, name);
    }
    g.fail_for_good(&work).expect("a live claim");
    for name in ["ship", "charge", "reserve"] {
        g.test_store.restart();
        let undo = g.work("undo", "B");
        assert_eq!(undo.job.compensates.as_ref().map(|of| of.effect.as_str()), Some(name));
        g.test_store.restart();
        g.complete(&undo).expect("a live claim");
    }
    g.test_store.restart();
    assert!(g.try_work("undo", "B").is_none());
    assert_eq!(
        (g.detail(work.job.id).job.compensation_state, g.count("undo", JobState::Completed)),
        (CompensationState::Done, 3)
    );
}

/// A paused queue stays paused.
pub(super) fn a_paused_queue_stays_paused_over_a_restart(g: &Fixture) {
    g.put("q");
    g.set_queue("q", QueueMode::Paused);
    g.set_queue("r", QueueMode::Draining);
    g.test_store.restart();
    assert!(g.try_work("q", "A").is_none());
    assert!(matches!(g.enqueue(g.job_for("r")), Err(JobRefusal::QueueDraining { .. })));
    g.set_queue("q", QueueMode::Open);
    g.work("q", "A");
}

/// A schedule goes on; what fell due while no process served is fired once.
pub(super) fn a_schedule_makes_up_for_downtime_once(g: &Fixture) {
    schedule::set(g, &schedule::spec("*/5 * * * *"));
    g.test_store.restart();
    g.pass(60 * 60_000);
    until("a firing", || g.count("q", JobState::Queued) > 0);
    g.test_store.restart();
    assert_eq!(g.count("q", JobState::Queued), 1, "one, not twelve");
    g.pass(5 * 60_000);
    until("the next firing", || g.count("q", JobState::Queued) == 2);
}

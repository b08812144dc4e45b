//! Putting jobs into their queues: once each, whatever is sent twice.

use super::prelude::*;

/// How long a window of these cases is: not shorter than the step in which a store may forget them.
const WINDOW_MS: u64 = 120_000;

/// A job is in its queue with all that was said about it.
pub(super) fn a_job_stands_in_its_queue_with_all_that_was_said(g: &Fixture) {
    let job = NewJob {
        options: terms(),
        labels: vec![label("tenant", "acme"), label("tier", "gold")],
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        unique: unique("invoice-42", WINDOW_MS),
        ..g.job_for("q")
    };
    let id = g.put_with(job.clone());
    let detail = g.detail(id);
    assert_eq!((detail.payload, detail.traceparent), (job.payload, job.traceparent));
    let view = detail.job;
    assert_eq!((view.id, view.queue, view.kind), (id, job.queue, job.kind));
    assert_eq!((view.options, view.labels, view.state), (job.options, job.labels, JobState::Queued));
    assert_eq!((view.attempt_count, view.failure_count, view.crash_count), (0, 0, 0));
    assert_eq!(view.unique_key, job.unique.map(|unique| unique.key));
    assert!(view.runner.is_none() && view.due_in_ms.is_none() && view.compensates.is_none());
    assert_eq!(g.count("q", JobState::Queued), 1);
}

/// P7: the same enqueue again makes no second job, however the first one stands.
pub(super) fn the_same_id_makes_one_job(g: &Fixture) {
    let job = g.job_for("q");
    let id = g.put_with(job.clone());
    let existed = Ok(EnqueuedJob { job_id: id, existed: true });
    assert_eq!(g.enqueue(job.clone()), existed);
    let work = g.work("q", "A");
    assert_eq!(g.enqueue(job.clone()), existed);
    g.complete(&work).expect("a live claim");
    assert_eq!(g.enqueue(job), existed, "also one that has come to its end");
    assert!(g.try_work("q", "B").is_none(), "there was one job");
}

/// An id names one job: the same one with another payload is a conflict that names it.
pub(super) fn an_id_that_is_taken_by_another_payload_is_a_conflict(g: &Fixture) {
    let job = g.job_for("q");
    let id = g.put_with(job.clone());
    let other = NewJob { payload: "{\"other\":true}".into(), ..job };
    assert_matches!(g.enqueue(other), Err(JobRefusal::Conflict { job_id, .. }) if job_id == id);
    assert_eq!(g.count("q", JobState::Queued), 1);
}

/// The same unique key and payload is the same job: the first one's id is given.
pub(super) fn the_same_unique_key_makes_one_job(g: &Fixture) {
    let first = NewJob { unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") };
    let id = g.put_with(first.clone());
    let again = NewJob { id: fresh_id().0, ..first.clone() };
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: id, existed: true }));
    assert!(g.find(again.id).is_none());
    g.put_with(NewJob { unique: unique("invoice-43", WINDOW_MS), ..g.job_for("q") });
    assert_eq!(g.count("q", JobState::Queued), 2, "another key is another job");
}

/// The same unique key with another payload is a conflict that names the first job.
pub(super) fn a_unique_key_with_another_payload_is_a_conflict_that_names_the_first_job(g: &Fixture) {
    let id = g.put_with(NewJob { unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") });
    match g.enqueue(NewJob { unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") }) {
        Err(refusal @ JobRefusal::Conflict { .. }) => {
            assert!(refusal.to_string().contains(&id.to_string()), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(g.count("q", JobState::Queued), 1);
}

/// The same request is the same queue, kind and payload; a conflict says which of them is not the same.
pub(super) fn a_conflict_says_what_differs(g: &Fixture) {
    let by_key = NewJob { unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") };
    let by_id = g.job_for("q");
    for first in [by_key, by_id] {
        let id = g.put_with(first.clone());
        // Under a unique key the id is another one, without one it is the same.
        let fresh = || if first.unique.is_some() { fresh_id().0 } else { id };
        let again = NewJob { id: fresh(), ..first.clone() };
        assert_eq!(g.enqueue(again), Ok(EnqueuedJob { job_id: id, existed: true }));
        let others = [
            ("queue", NewJob { id: fresh(), queue: queue("r"), ..first.clone() }),
            ("kind", NewJob { id: fresh(), kind: kind("other"), ..first.clone() }),
            ("payload", NewJob { id: fresh(), payload: "7".into(), ..first.clone() }),
        ];
        for (differs, other) in others {
            match g.enqueue(other) {
                Err(refusal @ JobRefusal::Conflict { .. }) => {
                    let text = refusal.to_string();
                    let says = text.contains(&format!("another {differs}")) && text.contains(&id.to_string());
                    assert!(says, "{differs}: {text}");
                }
                other => panic!("{differs}: {other:?}"),
            }
        }
    }
    assert_eq!(
        (g.count("q", JobState::Queued), g.queue_view("r").is_none_or(|view| view.job_counts.queued == 0)),
        (2, true)
    );
}

/// The order of members and white space say nothing: the same payload, written otherwise, is the same request.
pub(super) fn how_a_payload_was_written_does_not_matter(g: &Fixture) {
    let payload = "{\"to\":\"bob\",\"lines\":[{\"a\":1,\"b\":2}]}";
    let otherwise = "{ \"lines\": [ {\"b\": 2, \"a\": 1} ], \"to\": \"b\\u006fb\" }";
    let by_key = NewJob { payload: payload.into(), unique: unique("k", WINDOW_MS), ..g.job_for("q") };
    let id = g.put_with(by_key.clone());
    let again = NewJob { id: fresh_id().0, payload: otherwise.into(), ..by_key };
    assert_eq!(g.enqueue(again), Ok(EnqueuedJob { job_id: id, existed: true }));
    let by_id = NewJob { payload: payload.into(), ..g.job_for("q") };
    let id = g.put_with(by_id.clone());
    let again = NewJob { payload: otherwise.into(), ..by_id };
    assert_eq!(g.enqueue(again), Ok(EnqueuedJob { job_id: id, existed: true }));
    assert_eq!(g.detail(id).payload.as_ref(), payload, "the first one is kept as it was written");
}

/// A unique key is taken for its window, also when its job has long been done; and then it is free.
pub(super) fn a_unique_key_is_free_again_after_its_window(g: &Fixture) {
    let job = NewJob { unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") };
    let id = g.put_with(job.clone());
    g.complete(&g.work("q", "A")).expect("a live claim");
    g.pass(WINDOW_MS - 1);
    let again = NewJob { id: fresh_id().0, ..job };
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: id, existed: true }));
    g.pass(WINDOW_MS);
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: again.id, existed: false }));
}

/// A unique key is taken for as long as its job has not come to its end, window or not.
pub(super) fn a_unique_key_is_taken_while_its_job_lives(g: &Fixture) {
    let job = NewJob { unique: unique("invoice-42", 1), ..g.job_for("q") };
    let id = g.put_with(job.clone());
    g.pass(10 * WINDOW_MS);
    let again = NewJob { id: fresh_id().0, ..job };
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: id, existed: true }));
    let work = g.work("q", "A");
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: id, existed: true }));
    g.complete(&work).expect("a live claim");
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: again.id, existed: false }));
}

/// A job that failed and is retried has its unique key again, however long the key was free; unless it was taken.
pub(super) fn a_job_that_goes_on_has_its_unique_key_again(g: &Fixture) {
    let job = NewJob { unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") };
    let id = g.put_with(job.clone());
    g.fail_for_good(&g.work("q", "A")).expect("a live claim");
    // Long enough for the task that tidies up, which looks from time to time.
    for _ in 0..5 {
        g.pass(WINDOW_MS + 60_000);
    }
    assert_eq!(g.retry(id), Ok(JobState::Queued));
    let again = NewJob { id: fresh_id().0, ..job };
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: id, existed: true }));
    g.fail_for_good(&g.work("q", "A")).expect("a live claim");
    assert_eq!(g.enqueue(again.clone()), Ok(EnqueuedJob { job_id: again.id, existed: false }), "it is free");
    assert_eq!(g.retry(id), Ok(JobState::Queued));
    let third = NewJob { id: fresh_id().0, ..again.clone() };
    assert_eq!(
        g.enqueue(third),
        Ok(EnqueuedJob { job_id: again.id, existed: true }),
        "the key is the second's"
    );
}

/// A job that was deleted leaves its unique key behind for others.
pub(super) fn a_deleted_job_frees_its_unique_key(g: &Fixture) {
    let job = NewJob { unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") };
    let id = g.put_with(job.clone());
    g.delete(id, false).expect("no attempt is running");
    g.put_with(NewJob { id: fresh_id().0, ..job });
}

/// A job for later is scheduled until its time, and then ready without being asked for.
pub(super) fn a_job_for_later_is_ready_when_its_time_has_come(g: &Fixture) {
    let id = g.put_with(NewJob { when: When::After { delay_ms: 5_000 }, ..g.job_for("q") });
    let view = g.detail(id).job;
    assert_eq!((view.state, view.due_in_ms), (JobState::Scheduled, Some(5_000)));
    let at = When::At { wall_ms: view.enqueued_at_ms + 7_000 };
    let later = g.put_with(NewJob { when: at, ..g.job_for("q") });
    assert_eq!(g.count("q", JobState::Scheduled), 2);
    g.pass(4_999);
    assert!(g.try_work("q", "A").is_none(), "too early");
    let waiting = g.enqueue_waiters(g.claim_and_wait("q", "B"));
    g.pass(1);
    let claimed = waiting.answer().expect("a claim that is answered");
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    g.pass(2_000);
    assert_eq!(g.work("q", "A").job.id, later);
}

/// A job for a time that is past is ready at once.
pub(super) fn a_job_for_the_past_is_ready_at_once(g: &Fixture) {
    for when in [When::At { wall_ms: 0 }, When::At { wall_ms: 1 }, When::After { delay_ms: 0 }] {
        let id = g.put_with(NewJob { when, ..g.job_for("q") });
        assert_eq!(g.state(id), JobState::Queued, "{when:?}");
    }
}

/// The moment of a job is on the wall clock: set forward, it comes sooner.
pub(super) fn a_job_for_a_moment_goes_by_the_wall_clock(g: &Fixture) {
    let now_ms = g.detail(g.put("probe")).job.enqueued_at_ms;
    let id = g.put_with(NewJob { when: When::At { wall_ms: now_ms + 3_600_000 }, ..g.job_for("q") });
    g.test_store.shift_wall(3_600_000);
    g.pass(1);
    until("a job that is ready", || g.state(id) == JobState::Queued);
    assert_eq!(g.work("q", "A").job.id, id);
}

/// A batch in which some items are bad: the good ones go through, each bad one has its own error.
pub(super) fn a_bad_item_costs_the_good_ones_nothing(g: &Fixture) {
    let taken = g.put_with(NewJob { unique: unique("taken", WINDOW_MS), ..g.job_for("q") });
    let twice = g.job_for("q");
    let answers = g.enqueue_all(vec![
        g.job_for("q"),
        NewJob { payload: "{not json".into(), ..g.job_for("q") },
        twice.clone(),
        NewJob { unique: unique("taken", WINDOW_MS), ..g.job_for("q") },
        twice.clone(),
        NewJob { kind: kind("other"), ..twice.clone() },
    ]);
    assert!(matches!(answers[0], Ok(EnqueuedJob { existed: false, .. })), "{answers:?}");
    assert!(matches!(answers[1], Err(JobRefusal::BadInput(_))), "{answers:?}");
    assert_eq!(answers[2], Ok(EnqueuedJob { job_id: twice.id, existed: false }));
    assert_matches!(answers[3], Err(JobRefusal::Conflict { job_id: first, .. }) if first == taken);
    assert_eq!(answers[4], Ok(EnqueuedJob { job_id: twice.id, existed: true }), "twice in one batch");
    assert_matches!(answers[5], Err(JobRefusal::Conflict { job_id: first, .. }) if first == twice.id);
    assert_eq!(g.count("q", JobState::Queued), 3);
}

/// However many enqueue the same thing at the same moment, there is one job, and all learn its id.
pub(super) fn the_same_unique_key_many_times_at_once_makes_one_job(g: &Fixture) {
    let payload: Box<str> = "{\"invoice\":42}".into();
    let answers = at_once(8, |_| {
        let job =
            NewJob { payload: payload.clone(), unique: unique("invoice-42", WINDOW_MS), ..g.job_for("q") };
        g.enqueue(job).expect("the same job")
    });
    let first = answers[0].job_id;
    assert!(answers.iter().all(|answer| answer.job_id == first), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| !answer.existed).count(), 1);
    assert_eq!(g.count("q", JobState::Queued), 1);
}

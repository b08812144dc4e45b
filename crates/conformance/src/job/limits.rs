//! What one namespace may have of jobs and queues.

use super::prelude::*;
use super::schedule;

fn refused(g: &Fixture, job: NewJob, what: &str, most: u64) {
    match g.enqueue(job) {
        Err(JobRefusal::LimitReached { message: told, limit }) => {
            let named = format!("{what} of namespace {}", g.call.namespace);
            assert!(told.starts_with(&named) && limit == most, "{told}: {limit}");
        }
        other => panic!("more {what} than {most}: {other:?}"),
    }
}

/// Jobs are counted until they are done; what was enqueued before is found again.
pub(super) fn a_namespace_has_no_more_jobs_than_its_limit(g: &Fixture) {
    g.set_limits(Quota { max_jobs: Some(2), ..Quota::default() });
    let known = g.job_for("q");
    g.put_with(known.clone());
    g.put("q");
    refused(g, g.job_for("q"), "jobs that are not done", 2);
    assert_eq!(g.enqueue(known).map(|enqueued| enqueued.existed), Ok(true), "what is there is there");
    g.in_namespace("elsewhere").put("q");
    g.complete(&g.work("q", "A")).expect("a live claim");
    g.put("q");
    refused(g, g.job_for("q"), "jobs that are not done", 2);
    let work = g.work("q", "A");
    g.fail(&work).expect("a live claim");
    refused(g, g.job_for("q"), "jobs that are not done", 2);
    let id = work.job.id;
    g.cancel(id, false).expect("no attempt is running");
    g.put("q");
    assert_eq!(g.look_at_limits(None, false).usage.job_count, 2);
}

/// The same for payloads, queues and schedules.
pub(super) fn a_namespace_has_no_more_bytes_queues_and_schedules_than_its_limits(g: &Fixture) {
    let of_bytes =
        |bytes: usize| NewJob { payload: format!("\"{}\"", "x".repeat(bytes - 2)).into(), ..g.job_for("q") };
    let limits =
        Quota { max_bytes: Some(100), max_queues: Some(2), max_schedules: Some(1), ..Quota::default() };
    g.set_limits(limits);
    let first = g.put_with(of_bytes(60));
    refused(g, of_bytes(41), "bytes of payload", 100);
    g.put_with(NewJob { queue: queue("r"), ..of_bytes(10) });
    refused(g, NewJob { queue: queue("s"), ..of_bytes(10) }, "queues", 2);
    let order = SetQueueModeRequest { queue: queue("s"), mode: QueueMode::Paused, by: owner("P") };
    let paused = g.drive(jobs_of(&*g.test_store.store()).set_queue_mode(&g.call, order));
    assert!(matches!(paused, Err(StoreError::LimitReached { limit: 2, .. })), "{paused:?}");
    g.delete(first, false).expect("a job that waits");
    until("its queue has vanished", || g.queue_view("q").is_none());
    g.put_with(NewJob { queue: queue("s"), ..of_bytes(90) });
    schedule::set(g, &schedule::spec("0 0 1 1 *"));
    schedule::set(g, &schedule::spec("0 0 2 1 *"));
    let another =
        ScheduleSpec { name: ScheduleName::new("another").expect("a name"), ..schedule::spec("0 0 1 1 *") };
    match schedule::try_set(g, &another) {
        Err(StoreError::LimitReached { message: what, limit: 1 }) => {
            assert!(what.starts_with("schedules of namespace"), "{what}");
        }
        other => panic!("a second schedule: {other:?}"),
    }
    let used = g.look_at_limits(None, false).usage;
    assert_eq!((used.payload_bytes, used.queue_count, used.schedule_count), (100, 2, 1));
}

/// A claim is held to the longest ttl as a lease is.
pub(super) fn a_claim_above_the_longest_ttl_of_its_namespace_is_refused(g: &Fixture) {
    g.set_limits(Quota { max_ttl_ms: Some(g.ttl_ms()), ..Quota::default() });
    g.put("q");
    let store = g.test_store.store();
    let long = ClaimJobsRequest { ttl_ms: g.ttl_ms() + 1, ..g.claim_for("q", "A") };
    let claimed = g.drive(jobs_of(&*store).claim(&g.call, long));
    assert_matches!(claimed, Err(StoreError::BadInput(bad)) if bad.field == "ttl");
    g.work("q", "A");
}

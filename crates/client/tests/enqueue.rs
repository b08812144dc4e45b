//! Jobs are put into queues on the terms that were asked for, each once, and can be followed from outside.

use std::time::{Duration, UNIX_EPOCH};

use fencehold::job::{Backoff, JobFilter, JobSelector, JobState, QueueMode, RetryPolicy};
use fencehold::store::StoreError;
use fencehold::{ChangedJobs, Error, JobId, SelectedJobsError};

use crate::gated_store::{CallFate, FIRST_BACKOFF_MS, GatedCall, GatedFixture, done, secs, within};

#[tokio::test]
async fn a_job_is_kept_on_the_terms_that_were_asked_for() {
    let fixture = GatedFixture::new().await;
    let retry = RetryPolicy::new(Backoff::Linear, Duration::from_millis(500), Duration::from_millis(9_000));
    let job = fixture
        .fh
        .queue("emails")
        .job("send", &("anna", 7))
        .priority(-3)
        .delay(secs(40))
        .retry(retry)
        .max_failures(2)
        .max_crashes(3)
        .attempt_timeout(secs(50))
        .unique("mail-7", secs(600))
        .label("team", "a")
        .traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let enqueued = done(job.clone().enqueue()).await;
    assert!(!enqueued.existed);
    let detail = done(fixture.fh.jobs().get(enqueued.job_id)).await;
    assert_eq!((detail.job.queue.as_str(), detail.job.kind.as_str()), ("emails", "send"));
    assert_eq!(&*detail.payload, r#"["anna",7]"#);
    let terms = detail.job.options;
    assert_eq!((terms.priority, terms.max_failures, terms.max_crashes), (-3, 2, 3));
    assert_eq!((terms.attempt_timeout_ms.unwrap().get(), terms.retry), (50_000, retry));
    assert_eq!((detail.job.state, detail.job.due_in_ms), (JobState::Scheduled, Some(40_000)));
    assert_eq!(detail.job.unique_key.unwrap().as_str(), "mail-7");
    assert_eq!(detail.job.labels, [("team".into(), "a".into())]);
    assert!(detail.traceparent.unwrap().starts_with("00-0af7"));

    let again = done(job.enqueue()).await;
    assert_eq!((again.job_id, again.existed), (enqueued.job_id, true), "the same key is the same job");
    let other = fixture.fh.queue("emails").job("send", &("ben", 8)).unique("mail-7", secs(600));
    let conflict = within(other.enqueue()).await.unwrap_err();
    assert!(matches!(&conflict, Error::Conflict { job_id, .. } if *job_id == enqueued.job_id), "{conflict}");
    assert!(!conflict.is_retryable());
}

#[tokio::test]
async fn a_moment_is_kept_as_it_was_given() {
    let fixture = GatedFixture::new().await;
    let wall_ms = fixture.fh.clock().now().wall_ms;
    let at = UNIX_EPOCH + Duration::from_millis(wall_ms + 5_000);
    let id = done(fixture.fh.queue("q").job("k", &()).run_at(at).enqueue()).await.job_id;
    assert_eq!(fixture.job(id).await.job.due_in_ms, Some(5_000));
    let early = fixture.fh.queue("q").job("k", &()).run_at(UNIX_EPOCH - secs(1)).enqueue();
    assert_eq!(within(early).await.unwrap_err().to_string(), "run_at is before 1970");
}

#[tokio::test]
async fn bad_input_is_told_when_the_job_is_enqueued() {
    let fixture = GatedFixture::new().await;
    let queue = fixture.fh.queue("q");
    let job = || queue.job("k", &());
    let unwritable = queue.job("k", &std::collections::HashMap::from([((1, 2), 3)]));
    for (bad, words) in [
        (fixture.fh.queue("").job("k", &()), "queue must not be empty"),
        (queue.job("", &()), "kind must not be empty"),
        (unwritable, "payload cannot be written as JSON: key must be a string"),
        (job().max_failures(0), "max_failures is 0; it takes 1 to 10000"),
        (job().attempt_timeout(secs(0)), "attempt_timeout_ms is 0; leave it out for no limit"),
        (job().unique("", secs(1)), "unique key must not be empty"),
        (job().traceparent("01"), "trace does not have four fields between hyphens"),
    ] {
        let error = within(bad.enqueue()).await.unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
        assert!(matches!(error, Error::BadInput(_)));
    }
    assert!(fixture.gate.enqueues().is_empty(), "nothing of it has reached the store");
}

fn is_unknown<T>(result: Result<T, Error>, id: JobId) -> bool {
    matches!(result, Err(Error::JobNotFound { job_id, .. }) if job_id == id)
}

#[tokio::test]
async fn a_bad_job_costs_the_good_ones_nothing() {
    let fixture = GatedFixture::new().await;
    let queue = fixture.fh.queue("q");
    let jobs =
        [queue.job("a", &1), queue.job("", &2), queue.job("b", &"x".repeat(2 << 20)), queue.job("c", &4)];
    let batch = within(queue.enqueue_batch(jobs)).await;
    let answers = batch.results();
    assert!(answers[0].is_ok() && answers[3].is_ok());
    assert!(matches!(answers[1], Err(Error::BadInput(_))), "{:?}", answers[1]);
    assert!(matches!(answers[2], Err(Error::BadInput(_))), "{:?}", answers[2]);
    assert_eq!(
        Err(&batch.clone().all().unwrap_err()),
        answers[1].as_ref().map(drop),
        "the first error of all"
    );
    assert_eq!(done(queue.counts()).await.queued, 2);
}

#[tokio::test]
async fn many_jobs_go_in_as_few_calls_as_they_fit_into() {
    let fixture = GatedFixture::new().await;
    let queue = fixture.fh.queue("q");
    let jobs = (0..12_000).map(|nth| queue.job("k", &nth));
    assert_eq!(done(async { queue.enqueue_batch(jobs).await.all() }).await.len(), 12_000);
    assert_eq!(fixture.gate.enqueues(), [10_000, 2_000]);
    let large = "x".repeat(1 << 19);
    let jobs = (0..40).map(|_| queue.job("k", &large));
    done(async { queue.enqueue_batch(jobs).await.all() }).await;
    assert!(fixture.gate.enqueues()[2..].iter().all(|jobs| *jobs <= 32), "{:?}", fixture.gate.enqueues());
    assert_eq!(done(fixture.fh.jobs().counts()).await.queued, 12_040);
}

/// What was answered before a call failed is not lost, and what comes after it is not sent.
#[tokio::test]
async fn a_call_that_fails_takes_no_result_from_the_jobs_before_it() {
    let fixture = GatedFixture::new().await;
    let queue = fixture.fh.queue("q");
    fixture.gate.next(GatedCall::Enqueue, CallFate::Pass);
    let revoked = || StoreError::Forbidden { message: "the access token was revoked".to_owned() };
    fixture.gate.next(GatedCall::Enqueue, CallFate::Refuse(revoked()));
    let jobs = (0..40_001).map(|nth| queue.job(if nth == 40_000 { "" } else { "k" }, &nth));
    let batch = within(queue.enqueue_batch(jobs)).await;
    let results = batch.results();
    assert!(results[..10_000].iter().all(Result::is_ok));
    let refused = Err(Error::from(revoked()));
    assert!(results[10_000..40_000].iter().all(|result| *result == refused), "{:?}", results[10_000]);
    assert!(matches!(results[40_000], Err(Error::BadInput(_))), "{:?}", results[40_000]);
    assert_eq!(fixture.gate.enqueues(), [10_000, 10_000]);
    assert_eq!(done(queue.counts()).await.queued, 10_000);
}

#[tokio::test]
async fn a_lost_answer_makes_no_second_job() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Enqueue, CallFate::LoseAnswer);
    let time = fixture.time.clone();
    let (enqueued, ()) = tokio::join!(within(fixture.fh.queue("q").job("k", &()).enqueue()), async {
        fixture.gate.arrived(GatedCall::Enqueue, 1).await;
        time.pass_to_next(FIRST_BACKOFF_MS).await;
    });
    assert!(enqueued.unwrap().existed);
    assert_eq!(done(fixture.fh.queue("q").counts()).await.queued, 1);
}

#[tokio::test]
async fn a_queue_is_paused_resumed_and_drained() {
    let fixture = GatedFixture::new().await;
    let queue = fixture.fh.queue("q");
    assert_eq!(done(queue.view()).await, None);
    let id = fixture.enqueue("k").await;
    assert_eq!(done(queue.pause()).await.mode, QueueMode::Paused);
    let worker = fixture
        .worker()
        .handle("k", async |_job: fencehold::Job, (): ()| Ok::<_, fencehold::JobError>(7));
    let worker = worker.start().unwrap();
    fixture.gate.arrived(GatedCall::Claim, 1).await;
    assert_eq!(fixture.job(id).await.job.state, JobState::Queued);
    assert_eq!(done(queue.resume()).await.mode, QueueMode::Open);
    assert_eq!(within(fixture.fh.jobs().result::<u8>(id, secs(60))).await, Ok(7));
    assert_eq!(done(queue.drain()).await.mode, QueueMode::Draining);
    let refused = within(queue.job("k", &()).enqueue()).await.unwrap_err();
    assert!(matches!(&refused, Error::QueueDraining { queue, .. } if queue.as_str() == "q"), "{refused}");
    done(worker.drain()).await;
}

#[tokio::test]
async fn waiting_for_a_job_ends_when_the_time_is_up() {
    let fixture = GatedFixture::new().await;
    let id = fixture.enqueue("k").await;
    let jobs = fixture.fh.jobs();
    let time = fixture.time.clone();
    let (waited, ()) = tokio::join!(within(jobs.result::<()>(id, secs(5))), async {
        // Asked after it, and so answered when the store has begun to wait.
        fixture.job(id).await;
        time.pass(5_000);
    });
    let waited = waited.unwrap_err();
    assert!(matches!(waited, Error::JobNotFinished { state: JobState::Queued, .. }), "{waited}");
    let nobody = fencehold::JobId::from_random(7, [7; 10]);
    assert!(is_unknown(within(jobs.result::<()>(nobody, secs(5))).await, nobody));
    assert!(is_unknown(within(jobs.get(nobody)).await, nobody));
}

#[tokio::test]
async fn jobs_are_cancelled_retried_and_deleted() {
    let fixture = GatedFixture::new().await;
    let jobs = fixture.fh.jobs();
    let id = fixture.enqueue("k").await;
    assert_eq!(within(jobs.cancel(id, None)).await, Ok(JobState::Cancelled));
    let ended = within(jobs.result::<()>(id, secs(5))).await.unwrap_err();
    assert!(matches!(ended, Error::JobFailed { state: JobState::Cancelled, .. }), "{ended}");
    assert_eq!(within(jobs.retry(id)).await, Ok(JobState::Queued));
    done(jobs.delete(id)).await;
    assert!(is_unknown(within(jobs.cancel(id, None)).await, id));
    for _ in 0..5 {
        fixture.enqueue("k").await;
    }
    // The gate has two on each page.
    let in_state =
        |state| JobSelector::Filter { filter: JobFilter { states: vec![state], ..JobFilter::default() } };
    let changed = |changed: Result<ChangedJobs, SelectedJobsError>| changed.unwrap().all().unwrap().len();
    let queued = in_state(JobState::Queued);
    assert_eq!(changed(within(jobs.select(queued.clone()).dry_run().cancel(None)).await), 5, "a dry run");
    assert_eq!(done(jobs.counts()).await.queued, 5);
    assert_eq!(changed(within(jobs.select(queued.clone()).cancel(None)).await), 5);
    assert_eq!(done(jobs.counts()).await.cancelled, 5);
    assert_eq!(changed(within(jobs.select(in_state(JobState::Cancelled)).retry()).await), 5);
    assert_eq!(done(jobs.counts()).await.queued, 5);
    // The access token is revoked after the first page.
    fixture.gate.next(GatedCall::Change, CallFate::Pass);
    let revoked = StoreError::Forbidden { message: "the access token was revoked".to_owned() };
    fixture.gate.next(GatedCall::Change, CallFate::Refuse(revoked.clone()));
    let stopped = within(jobs.select(queued.clone()).delete()).await.unwrap_err();
    assert_eq!((stopped.changed.results().len(), &stopped.error), (2, &Error::from(revoked)));
    assert!(stopped.to_string().starts_with("after 2 jobs: "), "{stopped}");
    assert_eq!(done(jobs.counts()).await.queued, 3);
    assert_eq!(changed(within(jobs.select(queued).delete()).await), 3);
    assert_eq!(done(jobs.counts()).await.queued, 0);
}

#[tokio::test]
async fn a_schedule_is_made_seen_and_removed() {
    let fixture = GatedFixture::new().await;
    let nightly = fixture.fh.schedule("nightly").cron("30 3 * * *").time_zone("Europe/Berlin");
    let nightly = nightly.job("q", "k", &7);
    let view = done(nightly.clone().set()).await;
    assert!(view.next_run_at_ms.unwrap() > fixture.fh.clock().now().wall_ms);
    assert_eq!(done(fixture.fh.jobs().schedules()).await, [view]);
    let bad = within(nightly.clone().cron("61 * * * *").set()).await.unwrap_err();
    assert!(matches!(bad, Error::BadInput(_)), "{bad}");
    assert_eq!(within(nightly.clone().delete()).await, Ok(true));
    assert_eq!(within(nightly.delete()).await, Ok(false));
    let nothing = within(fixture.fh.schedule("s").cron("* * * * *").set()).await.unwrap_err();
    assert_eq!(nothing.to_string(), "schedule does not say which job to enqueue");
}

//! Handlers: what they are given, what they say, and how many run at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencehold::job::{AttemptOutcome, JobState, RetryPolicy};
use fencehold::{Error, Job, JobError, Outcome, WorkerEvent};
use tokio::sync::{mpsc, oneshot};

use crate::gated_store::{
    CallFate, FIRST_BACKOFF_MS, GatedCall, GatedFixture, done, next, secs, with, within,
};

#[tokio::test]
async fn a_typed_handler_gets_its_payload_and_gives_a_typed_result() {
    let fixture = GatedFixture::new().await;
    let worker = fixture.worker();
    let worker = worker
        .handle("sum", async |_job: Job, numbers: Vec<u32>| Ok::<_, JobError>(numbers.iter().sum::<u32>()));
    let worker = worker.start().unwrap();
    let sum = done(fixture.fh.queue("q").job("sum", &[1, 2, 3]).enqueue()).await;
    assert_eq!(within(fixture.fh.jobs().result::<u32>(sum.job_id, secs(60))).await, Ok(6));
    let drained = done(worker.drain()).await;
    assert_eq!((drained.finished, drained.released, drained.still_running), (1, 0, 0));
}

#[tokio::test]
async fn errors_panics_misfits_and_unknown_kinds_are_failures_with_clear_words() {
    let fixture = GatedFixture::new().await;
    let worker = fixture
        .worker()
        .concurrency(4)
        .handle("errs", async |_job: Job, (): ()| {
            "x".parse::<u8>()?;
            Ok::<_, JobError>(())
        })
        .handle("panics", async |_job: Job, (): ()| -> Result<(), JobError> { panic!("out of {}", "paper") })
        .handle_blocking("blocks and panics", |(): ()| -> Result<(), JobError> { panic!("out of ink") })
        .handle("misfits", async |_job: Job, _: u32| {})
        .start()
        .unwrap();
    for (kind, words) in [
        ("errs", "invalid digit found in string"),
        ("panics", "the handler panicked: out of paper"),
        ("blocks and panics", "the handler panicked: out of ink"),
        ("misfits", "the handler of kind misfits cannot read this job: its payload does not fit"),
        (
            "unheard of",
            "this worker has no handler of kind unheard of (it has blocks and panics, errs, misfits",
        ),
    ] {
        let id = fixture.enqueue(kind).await;
        let failed = fixture.until_failed(id).await;
        assert_eq!(failed.job.state, JobState::Scheduled, "{kind} is tried again");
        let error = failed.attempts[0].error.as_deref().unwrap();
        assert!(error.starts_with(words), "{kind}: {error}");
    }
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_failure_for_good_ends_a_job_and_a_delay_of_its_own_is_kept() {
    let fixture = GatedFixture::new().await;
    let worker = fixture
        .worker()
        .handle("for good", async |_job: Job, (): ()| -> Result<(), _> {
            Err(JobError::new("no such customer").permanent())
        })
        .handle("later", async |_job: Job, (): ()| -> Result<(), _> {
            Err(JobError::new("busy").retry_in(secs(77)))
        })
        .handle("snooze", async |job: Job, (): ()| job.snooze(secs(88)))
        .start()
        .unwrap();
    let id = fixture.enqueue("for good").await;
    let ended = within(fixture.fh.jobs().result::<()>(id, secs(60))).await.unwrap_err();
    assert!(
        matches!(&ended, Error::JobFailed { state: JobState::Failed, error: Some(error), .. } if error == "no such customer"),
        "{ended}"
    );
    let id = fixture.enqueue("later").await;
    let later = fixture.until_state(id, JobState::Scheduled).await;
    assert_eq!(later.job.due_in_ms, Some(77_000));
    let id = fixture.enqueue("snooze").await;
    let snoozed = fixture.until_state(id, JobState::Scheduled).await;
    assert_eq!((snoozed.job.due_in_ms, snoozed.job.failure_count), (Some(88_000), 0));
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_failed_job_is_tried_again_when_its_time_has_come() {
    let fixture = GatedFixture::new().await;
    let worker = fixture.worker().handle("flaky", async |job: Job, (): ()| match job.attempt() {
        1 => Err(JobError::new("not yet")),
        attempt => Ok((attempt, job.failure_count(), job.token().get())),
    });
    let worker = worker.start().unwrap();
    let retry = RetryPolicy::fixed(Duration::from_millis(5_000)).jitter_percent(0);
    let flaky = fixture.fh.queue("q").job("flaky", &()).retry(retry).enqueue();
    let id = done(flaky).await.job_id;
    fixture.until_failed(id).await;
    fixture.pass(5_000);
    let (attempt, failures, token) = fixture.result::<(u32, u16, u64)>(id).await;
    assert_eq!((attempt, failures), (2, 1));
    assert!(token >= 2);
    done(worker.drain()).await;
}

#[tokio::test]
async fn as_many_run_at_once_as_there_are_slots_and_no_more() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let at_once = Arc::new(AtomicUsize::new(0));
    let (of_handlers, counted) = (Arc::clone(&go), Arc::clone(&at_once));
    let handler = with((begun, of_handlers, counted), |(begun, go, at_once), _job, ()| async move {
        begun.send(at_once.fetch_add(1, Ordering::SeqCst) + 1)?;
        go.acquire().await?.forget();
        at_once.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    let worker = fixture.worker().concurrency(3).handle("wait", handler).start().unwrap();
    for _ in 0..6 {
        fixture.enqueue("wait").await;
    }
    for nth in 1..=3 {
        assert_eq!(within(beginnings.recv()).await, Some(nth));
    }
    let counts = done(fixture.fh.queue("q").counts()).await;
    assert_eq!((counts.running, counts.queued), (3, 3), "nothing is claimed ahead of its slot");
    go.add_permits(6);
    for _ in 0..3 {
        assert!(next(&mut beginnings).await <= 3);
    }
    assert_eq!(done(worker.drain()).await.finished, 6);
}

#[tokio::test]
async fn what_a_job_was_enqueued_with_reaches_its_handler() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let handler = with(told, |told, job, ()| async move {
        let labels: Vec<String> = job.labels().map(|(name, value)| format!("{name}={value}")).collect();
        let trace = job.traceparent().map(str::to_owned);
        Ok(told.send((job.queue().to_string(), job.kind().to_string(), labels, trace))?)
    });
    let worker = fixture
        .worker()
        .weighted_queue("other", 3)
        .handle("look", handler)
        .start()
        .unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let job = fixture.fh.queue("other").job("look", &()).label("team", "a").traceparent(trace);
    done(job.enqueue()).await;
    let seen = next(&mut telling).await;
    let labels = vec!["team=a".to_owned()];
    assert_eq!(seen, ("other".to_owned(), "look".to_owned(), labels, Some(trace.to_owned())));
    let queues = fixture.gate.claims()[0].queues.clone();
    let queues: Vec<_> = queues.iter().map(|(queue, weight)| (queue.as_str(), *weight)).collect();
    assert_eq!(queues, [("q", 1), ("other", 3)]);
    done(worker.drain()).await;
}

#[tokio::test]
async fn progress_is_seen_while_the_job_runs_and_only_the_newest_travels() {
    let fixture = GatedFixture::new().await;
    let (finish, finished) = oneshot::channel::<()>();
    let finished = Arc::new(std::sync::Mutex::new(Some(finished)));
    let worker = fixture.worker().handle("long", move |job: Job, (): ()| {
        let finished = finished.lock().unwrap().take();
        async move {
            for step in 0..100 {
                job.progress(&step)?;
            }
            finished.unwrap().await?;
            Ok::<_, JobError>(())
        }
    });
    let worker = worker.start().unwrap();
    let answer = fixture.gate.delay_answer(GatedCall::Report);
    let id = fixture.enqueue("long").await;
    fixture.gate.arrived(GatedCall::Report, 1).await;
    drop(answer);
    fixture.until_job(id, |detail| detail.progress.as_deref() == Some("99")).await;
    finish.send(()).unwrap();
    done(worker.drain()).await;
    let words: usize = fixture.gate.reports().iter().map(Vec::len).sum();
    assert!(words < 50, "{words} words for a hundred steps");
}

/// A worker that is started in a Tokio runtime runs its handlers in that one's context, as the test kit does.
#[tokio::test]
async fn a_handler_has_the_runtime_in_which_its_worker_was_started() {
    async fn sleep(_job: fencehold::Job, (): ()) -> Result<&'static str, fencehold::JobError> {
        // A timer needs the runtime's own; it is over at once.
        let slept = tokio::time::timeout(std::time::Duration::ZERO, std::future::pending::<()>()).await;
        assert!(slept.is_err());
        Ok(tokio::spawn(async { "slept" }).await?)
    }
    let fixture = GatedFixture::new().await;
    let worker = fixture.worker().handle("sleep", sleep).start().unwrap();
    let id = fixture.enqueue("sleep").await;
    let detail = fixture
        .until_job(id, |detail| detail.job.state.is_final() || detail.job.failure_count > 0)
        .await;
    assert_eq!((detail.job.state, detail.result.as_deref()), (JobState::Completed, Some("\"slept\"")));
    done(worker.drain()).await;
    let trial = fencehold::testing::TestJob::new("sleep", &()).run(sleep).await;
    assert_eq!(trial.result::<String>().as_deref(), Some("slept"));
}

#[tokio::test]
async fn a_queue_of_no_weight_is_refused() {
    let fixture = GatedFixture::new().await;
    let worker = fixture.worker().weighted_queue("none", 0);
    let worker = worker.handle("do", async |_job: fencehold::Job, (): ()| {});
    let refused = worker.start().unwrap_err().to_string();
    assert!(refused.contains("weight of queue none is 0"), "{refused}");
}

#[tokio::test]
async fn one_handler_runs_every_kind_that_has_none_of_its_own() {
    let fixture = GatedFixture::new().await;
    let worker = fixture
        .worker()
        .handle("own", async |_job: Job, (): ()| Ok::<_, JobError>("its own".to_owned()))
        .handle_any(async |job: Job, (): ()| Ok::<_, JobError>(format!("any, for {}", job.kind())))
        .start()
        .unwrap();
    for (kind, result) in [("own", "its own"), ("unheard of", "any, for unheard of")] {
        let id = fixture.enqueue(kind).await;
        assert_eq!(within(fixture.fh.jobs().result::<String>(id, secs(60))).await.as_deref(), Ok(result));
    }
    done(worker.drain()).await;
    let any = || fixture.worker().handle_any(async |_job: Job, (): ()| {});
    let refused = any().handle_any_blocking(|(): ()| {}).start().unwrap_err();
    assert_eq!(refused.to_string(), "worker has two handlers of any kind");
}

/// The second attempt is ready as soon as the first one is reported, which is after a claim has found nothing.
#[tokio::test]
async fn a_worker_that_is_to_empty_its_queues_ends_when_nothing_is_ready_and_nothing_runs() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let waits = Arc::clone(&go);
    let handler = with((begun, waits), |(begun, go), job, ()| async move {
        begun.send(job.attempt())?;
        go.acquire().await?.forget();
        if job.attempt() == 1 { Err(JobError::new("not yet").retry_in(secs(0))) } else { Ok(()) }
    });
    let worker = fixture.worker().concurrency(2).until_empty().handle("flaky", handler);
    let id = fixture.enqueue("flaky").await;
    let later = fixture.fh.queue("q").job("flaky", &()).delay(secs(3_600)).enqueue();
    let later = done(later).await.job_id;
    let run = tokio::spawn(worker.run_until(std::future::pending::<()>()));
    assert_eq!(within(beginnings.recv()).await, Some(1));
    fixture.gate.arrived(GatedCall::Claim, 2).await;
    go.add_permits(1);
    assert_eq!(within(beginnings.recv()).await, Some(2), "it has not ended");
    go.add_permits(1);
    let drained = within(run).await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.still_running), (2, 0));
    assert_eq!(fixture.job(id).await.job.state, JobState::Completed);
    assert_eq!(fixture.job(later).await.job.state, JobState::Scheduled, "its time has not come");
    let claims = fixture.gate.claims();
    let waits: Vec<bool> = claims.iter().map(|claim| claim.wait_ms > 0).collect();
    assert_eq!(waits[..2], [false, true], "it stands in line while something runs");
    assert_eq!(waits.last(), Some(&false), "and not at the end");
}

/// With a slot free for it, a job is run for which another one waits.
#[tokio::test]
async fn a_worker_that_is_to_empty_its_queues_runs_what_its_jobs_wait_for() {
    let fixture = GatedFixture::new().await;
    let (fh, gate) = (fixture.fh.clone(), Arc::clone(&fixture.gate));
    let worker = fixture
        .worker()
        .concurrency(2)
        .until_empty()
        .handle("parent", move |job: Job, (): ()| {
            let (fh, gate) = (fh.clone(), Arc::clone(&gate));
            async move {
                // By the time that this is kept, the next claim has found nothing.
                gate.arrived(GatedCall::Claim, 2).await;
                job.checkpoint(*b"begun").await?;
                let child = fh.queue("q").job("child", &()).enqueue().await?;
                fh.jobs().result::<String>(child.job_id, secs(60)).await
            }
        });
    let worker = worker.handle("child", async |_job: Job, (): ()| Ok::<_, JobError>("from the child"));
    let parent = fixture.enqueue("parent").await;
    let drained = done(worker.run_until(std::future::pending::<()>())).await;
    assert_eq!((drained.finished, drained.released), (2, 0));
    assert_eq!(fixture.job(parent).await.result.as_deref(), Some("\"from the child\""));
}

/// A job is given to a claim in line, and its answer is still on the way when nothing runs any more.
#[tokio::test]
async fn a_worker_that_is_to_empty_its_queues_misses_no_job_that_is_given_to_it_at_the_end() {
    let fixture = GatedFixture::new().await;
    let fh = fixture.fh.clone();
    let worker = fixture
        .worker()
        .concurrency(2)
        .until_empty()
        .handle("parent", move |_job: Job, (): ()| {
            let fh = fh.clone();
            async move {
                fh.queue("q")
                    .job("child", &())
                    .enqueue()
                    .await
                    .map(|job| job.job_id.to_string())
            }
        });
    let worker = worker.handle("child", async |_job: Job, (): ()| {});
    fixture.gate.next(GatedCall::Claim, CallFate::Pass);
    let answer = fixture.gate.delay_answer(GatedCall::Claim);
    fixture.enqueue("parent").await;
    let run = tokio::spawn(worker.run_until(std::future::pending::<()>()));
    // The first claim found the parent, the second one has the child, and the third one asks for it.
    fixture.gate.arrived(GatedCall::Claim, 3).await;
    let claims = fixture.gate.claims();
    assert_eq!((claims[2].hold_id, claims[2].wait_ms), (claims[1].hold_id, 0));
    drop(answer);
    let drained = within(run).await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.released), (2, 0));
}

#[tokio::test]
async fn every_attempt_that_ends_is_an_event_with_the_answer_of_the_store() {
    let fixture = GatedFixture::new().await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let worker = fixture.worker().handle_any(async |job: Job, (): ()| match job.kind().as_str() {
        "fails" => Err(JobError::new("busy").retry_in(secs(7))),
        "expires" => Ok(Outcome::let_expire()),
        _ => Outcome::complete("done"),
    });
    let worker = worker.on_event(move |event| {
        if let WorkerEvent::AttemptEnded(end) = event {
            let answer = end.response.clone().map(|answer| answer.map(|at| (at.state, at.retry_in_ms)));
            ended.send((end.job.id(), end.outcome, answer)).unwrap();
            panic!("other people's code");
        }
    });
    let worker = worker.start().unwrap();
    let completes = (Some(AttemptOutcome::Completed), Ok(Some((JobState::Completed, None))));
    let fails = (Some(AttemptOutcome::Failed), Ok(Some((JobState::Scheduled, Some(7_000)))));
    for (kind, (reported, answer)) in
        [("completes", completes), ("fails", fails), ("expires", (None, Ok(None)))]
    {
        let id = fixture.enqueue(kind).await;
        assert_eq!(within(ends.recv()).await, Some((id, reported, answer)), "{kind}");
    }
    let drained = done(worker.drain()).await;
    assert_eq!((drained.finished, drained.released, fixture.gate.reports().len()), (2, 0, 2));
}

#[tokio::test]
async fn a_report_that_cannot_be_sent_yet_is_an_event_once() {
    let fixture = GatedFixture::new().await;
    let (said, mut events) = mpsc::unbounded_channel();
    fixture.gate.close(GatedCall::Report);
    let worker = fixture
        .worker()
        .handle_any(async |_job: Job, (): ()| {})
        .on_event(move |event| {
            said.send(match event {
                WorkerEvent::ReportDelayed { job, .. } => ("delayed", job.id()),
                WorkerEvent::AttemptEnded(end) => ("ended", end.job.id()),
                event => panic!("{event:?}"),
            })
            .unwrap();
        });
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("do").await;
    assert_eq!(within(events.recv()).await, Some(("delayed", id)));
    fixture.pass_to_next(FIRST_BACKOFF_MS).await;
    fixture.gate.arrived(GatedCall::Report, 2).await;
    fixture.gate.open(GatedCall::Report);
    fixture.pass_to_next(2 * FIRST_BACKOFF_MS).await;
    assert_eq!(within(events.recv()).await, Some(("ended", id)), "once for an attempt");
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_store_that_gives_no_jobs_is_an_event_once() {
    let fixture = GatedFixture::new().await;
    let (failed, mut failures) = mpsc::unbounded_channel();
    fixture.gate.close(GatedCall::Claim);
    let worker = fixture
        .worker()
        .handle_any(async |_job: Job, (): ()| {})
        .on_event(move |event| {
            if let WorkerEvent::ClaimFailed { error, .. } = event {
                failed.send(error.to_string()).unwrap();
            }
        });
    let worker = worker.start().unwrap();
    assert!(within(failures.recv()).await.is_some());
    while fixture.gate.calls(GatedCall::Claim) < 5 {
        fixture.pass_to_next(10_000).await;
    }
    assert!(failures.is_empty(), "once, until a claim gets through");
    done(worker.drain()).await;
}

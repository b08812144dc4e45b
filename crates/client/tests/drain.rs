//! A worker that is asked to stop ends in good order, and leaves nothing behind to clean up.

use std::pin::Pin;
use std::sync::Mutex;

use fencehold::job::{AttemptOutcome, JobState};
use fencehold::{Error, Job, JobError, StopReason};
use tokio::sync::{mpsc, oneshot};

use crate::gated_store::{
    CallFate, FIRST_BACKOFF_MS, GatedCall, GatedFixture, done, next, secs, with, within,
};

type Handling = Pin<Box<dyn Future<Output = Result<&'static str, JobError>> + Send>>;

/// A handler that waits for a signal, what says that it has begun, and the signal.
fn waiting() -> (impl Fn(Job, ()) -> Handling, mpsc::UnboundedReceiver<()>, oneshot::Sender<()>) {
    let (begun, beginnings) = mpsc::unbounded_channel();
    let (go, gone) = oneshot::channel();
    let gone = Mutex::new(Some(gone));
    let handler = move |_job, ()| -> Handling {
        let (begun, gone) = (begun.clone(), gone.lock().unwrap().take());
        Box::pin(async move {
            begun.send(())?;
            match gone {
                Some(gone) => gone.await?,
                None => std::future::pending().await,
            }
            Ok("done")
        })
    };
    (handler, beginnings, go)
}

#[tokio::test]
async fn what_runs_may_end_and_nothing_new_is_begun() {
    let fixture = GatedFixture::new().await;
    let (wait, mut beginnings, go) = waiting();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = fixture.worker().handle("wait", wait);
    let run = tokio::spawn(worker.run_until(stopped));
    let first = fixture.enqueue("wait").await;
    next(&mut beginnings).await;
    let second = fixture.enqueue("wait").await;
    stop.send(()).unwrap();
    // It has left the line when no claim waits for the queue any more.
    fixture.until_queue(|view| view.waiting_claim_count == 0).await;
    go.send(()).unwrap();
    let drained = within(run).await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.released, drained.still_running), (1, 0, 0));
    assert_eq!(fixture.job(first).await.job.state, JobState::Completed);
    let second = fixture.job(second).await;
    assert_eq!((second.job.state, second.job.attempt_count), (JobState::Queued, 0));
}

#[tokio::test]
async fn what_does_not_end_in_time_is_dropped_and_handed_back_and_counts_as_nothing() {
    let fixture = GatedFixture::new().await;
    let (wait, mut beginnings, _go) = waiting();
    let worker = fixture.worker().drain_timeout(secs(2)).handle("wait", wait).start().unwrap();
    let id = fixture.enqueue("wait").await;
    next(&mut beginnings).await;
    let time = fixture.time.clone();
    let (drained, ()) = tokio::join!(within(worker.drain()), async {
        time.pass(2_000);
    });
    let drained = drained.unwrap();
    assert_eq!((drained.finished, drained.released, drained.still_running), (0, 1, 0));
    let detail = fixture.job(id).await;
    let job = &detail.job;
    assert_eq!((job.state, job.failure_count, job.crash_count), (JobState::Queued, 0, 0));
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
}

#[tokio::test]
async fn a_handler_learns_that_its_worker_is_stopping() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let handler = with(begun, |begun, job, ()| async move {
        begun.send(())?;
        assert_eq!(job.stop_requested().await, StopReason::Draining);
        job.checkpoint(*b"half").await?;
        Ok(fencehold::Outcome::release())
    });
    let worker = fixture.worker().handle("long", handler).start().unwrap();
    let id = fixture.enqueue("long").await;
    next(&mut beginnings).await;
    assert_eq!(done(worker.drain()).await.released, 1);
    let detail = fixture.job(id).await;
    assert_eq!(detail.job.state, JobState::Queued);
    assert_eq!(detail.checkpoint.as_deref(), Some(b"half".as_slice()));
}

#[tokio::test]
async fn a_handler_that_cannot_be_stopped_keeps_its_job_until_it_ends() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let (live, mut lives) = mpsc::unbounded_channel();
    let worker = fixture.worker().drain_timeout(secs(1)).handle_blocking(
        "block",
        move |job: fencehold::blocking::Job, (): ()| {
            begun.send(())?;
            let _ = gone.lock().unwrap().recv();
            Ok::<_, fencehold::JobError>(live.send(job.is_live())?)
        },
    );
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("block").await;
    next(&mut beginnings).await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let draining = async {
        let drained = within(worker.drain()).await;
        over.store(true, std::sync::atomic::Ordering::SeqCst);
        drained
    };
    let is_over = |_: &fencehold::job::JobDetail| over.load(std::sync::atomic::Ordering::SeqCst);
    let (drained, _) = tokio::join!(draining, fixture.pass_until_job(id, &[], is_over));
    let drained = drained.unwrap();
    assert_eq!((drained.released, drained.still_running), (0, 1));
    let state = fixture.job(id).await.job.state;
    assert_eq!(state, JobState::Running, "no other worker runs it beside this handler");
    drop(go);
    assert_eq!(within(lives.recv()).await, Some(true));
    fixture.until_state(id, JobState::Completed).await;
}

#[tokio::test]
async fn a_dropped_worker_hands_back_what_it_had() {
    let fixture = GatedFixture::new().await;
    let (wait, mut beginnings, _go) = waiting();
    let worker = fixture.worker().handle("wait", wait).start().unwrap();
    let id = fixture.enqueue("wait").await;
    next(&mut beginnings).await;
    drop(worker);
    fixture.until_state(id, JobState::Queued).await;
}

#[tokio::test]
async fn jobs_of_a_claim_whose_answer_was_lost_are_handed_back_by_a_worker_that_stops() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Claim, CallFate::LoseAnswer);
    let id = fixture.enqueue("do").await;
    let worker = fixture.worker().handle("do", async |_job: Job, (): ()| {}).start().unwrap();
    fixture.until_state(id, JobState::Running).await;
    fixture.gate.arrived(GatedCall::Claim, 1).await;
    // It waits to ask again, and is asked to stop instead.
    fixture.sleeps(FIRST_BACKOFF_MS).await;
    done(worker.drain()).await;
    let detail = fixture.until_state(id, JobState::Queued).await;
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
}

#[tokio::test]
async fn a_worker_on_a_closed_handle_ends_and_says_so() {
    let fixture = GatedFixture::new().await;
    let (wait, mut beginnings, _go) = waiting();
    let worker = fixture.worker().handle("wait", wait);
    let run = tokio::spawn(worker.run_until(std::future::pending::<()>()));
    fixture.enqueue("wait").await;
    next(&mut beginnings).await;
    within(fixture.fh.close()).await;
    let ended = done(run).await;
    assert!(matches!(&ended, Err(Error::Closed)), "{ended:?}");
}

#[tokio::test]
async fn a_job_that_no_slot_comes_free_for_is_handed_back() {
    let fixture = GatedFixture::new().await;
    let (wait, mut beginnings, go) = waiting();
    let worker = fixture.worker().prefetch(1).handle("quick", async |_job: Job, (): ()| {});
    let worker = worker.handle("wait", wait).start().unwrap();
    // Quick jobs have shown that it is worth claiming ahead.
    let quick = fixture.enqueue("quick").await;
    fixture.until_state(quick, JobState::Completed).await;
    let waits = fixture.enqueue("wait").await;
    next(&mut beginnings).await;
    let shelved = fixture.enqueue("quick").await;
    fixture.until_state(shelved, JobState::Running).await;
    let detail = fixture
        .pass_until_job(shelved, &[waits], |detail| detail.job.state == JobState::Queued)
        .await;
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
    go.send(()).unwrap();
    fixture.until_state(shelved, JobState::Completed).await;
    done(worker.drain()).await;
}

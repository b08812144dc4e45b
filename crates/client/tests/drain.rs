//! A worker that is asked to stop ends in good order, and leaves nothing behind to clean up.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use fencehold::job::{AttemptOutcome, JobState};
use fencehold::{Error, Job, JobError, StopReason};
use tokio::sync::{mpsc, oneshot};

use crate::gated_store::{CallFate, FIRST_BACKOFF_MS, GatedCall, GatedFixture, secs, within};

type Handling = Pin<Box<dyn Future<Output = Result<&'static str, JobError>> + Send>>;

/// A handler that tells when it has begun, and waits for a signal.
fn waiting(begun: mpsc::UnboundedSender<()>, go: oneshot::Receiver<()>) -> impl Fn(Job, ()) -> Handling {
    let go = Arc::new(Mutex::new(Some(go)));
    move |_job, ()| {
        let (begun, go) = (begun.clone(), go.lock().unwrap().take());
        Box::pin(async move {
            begun.send(())?;
            match go {
                Some(go) => go.await?,
                None => std::future::pending().await,
            }
            Ok("done")
        })
    }
}

#[tokio::test]
async fn what_runs_may_end_and_nothing_new_is_begun() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (go, gone) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = fixture.worker().handle("wait", waiting(begun, gone));
    let run = tokio::spawn(worker.run_until(stopped));
    let first = fixture.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
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
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (_go, gone) = oneshot::channel();
    let worker = fixture
        .worker()
        .drain_timeout(secs(2))
        .handle("wait", waiting(begun, gone))
        .start()
        .unwrap();
    let id = fixture.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    let time = fixture.time.clone();
    let (drained, ()) = tokio::join!(within(worker.drain()), async {
        time.pass(2_000);
    });
    let drained = drained.unwrap();
    assert_eq!((drained.finished, drained.released, drained.still_running), (0, 1, 0));
    let detail = fixture.job(id).await;
    assert_eq!(
        (detail.job.state, detail.job.failure_count, detail.job.crash_count),
        (JobState::Queued, 0, 0)
    );
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
}

#[tokio::test]
async fn a_handler_learns_that_its_worker_is_stopping() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = fixture
        .worker()
        .handle("long", move |job: Job, (): ()| {
            let begun = begun.clone();
            async move {
                begun.send(())?;
                assert_eq!(job.stop_requested().await, StopReason::Draining);
                job.checkpoint(*b"half").await?;
                Ok(fencehold::Outcome::release())
            }
        })
        .start()
        .unwrap();
    let id = fixture.enqueue("long").await;
    within(beginnings.recv()).await.unwrap();
    assert_eq!(within(worker.drain()).await.unwrap().released, 1);
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
    let worker = fixture
        .worker()
        .drain_timeout(secs(1))
        .handle_blocking("block", move |job, (): ()| {
            begun.send(())?;
            let _ = gone.lock().unwrap().recv();
            Ok(live.send(job.is_live())?)
        })
        .start()
        .unwrap();
    let id = fixture.enqueue("block").await;
    within(beginnings.recv()).await.unwrap();
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
    assert_eq!(
        fixture.job(id).await.job.state,
        JobState::Running,
        "no other worker runs it beside this handler"
    );
    drop(go);
    assert_eq!(within(lives.recv()).await, Some(true));
    fixture.until_job(id, |detail| detail.job.state == JobState::Completed).await;
}

#[tokio::test]
async fn a_dropped_worker_hands_back_what_it_had() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (_go, gone) = oneshot::channel();
    let worker = fixture.worker().handle("wait", waiting(begun, gone)).start().unwrap();
    let id = fixture.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    drop(worker);
    fixture.until_job(id, |detail| detail.job.state == JobState::Queued).await;
}

#[tokio::test]
async fn jobs_of_a_claim_whose_answer_was_lost_are_handed_back_by_a_worker_that_stops() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Claim, CallFate::LoseAnswer);
    let id = fixture.enqueue("do").await;
    let worker = fixture.worker().handle("do", async |_job: Job, (): ()| Ok(())).start().unwrap();
    fixture.until_job(id, |detail| detail.job.state == JobState::Running).await;
    fixture.gate.arrived(GatedCall::Claim, 1).await;
    // It waits to ask again, and is asked to stop instead.
    fixture.sleeps(FIRST_BACKOFF_MS).await;
    within(worker.drain()).await.unwrap();
    let detail = fixture.until_job(id, |detail| detail.job.state == JobState::Queued).await;
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
}

#[tokio::test]
async fn a_worker_on_a_closed_handle_ends_and_says_so() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (_go, gone) = oneshot::channel();
    let worker = fixture.worker().handle("wait", waiting(begun, gone));
    let run = tokio::spawn(worker.run_until(std::future::pending::<()>()));
    fixture.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    within(fixture.fh.close()).await;
    let ended = within(run).await.unwrap();
    assert!(matches!(&ended, Err(Error::Unavailable { message }) if message.contains("closed")), "{ended:?}");
}

#[tokio::test]
async fn a_job_that_no_slot_comes_free_for_is_handed_back() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (go, gone) = oneshot::channel();
    let worker = fixture
        .worker()
        .prefetch(1)
        .handle("quick", async |_job: Job, (): ()| Ok(()))
        .handle("wait", waiting(begun, gone))
        .start()
        .unwrap();
    // Quick jobs have shown that it is worth claiming ahead.
    let quick = fixture.enqueue("quick").await;
    fixture.until_job(quick, |detail| detail.job.state == JobState::Completed).await;
    let waits = fixture.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    let shelved = fixture.enqueue("quick").await;
    fixture.until_job(shelved, |detail| detail.job.state == JobState::Running).await;
    let detail = fixture
        .pass_until_job(shelved, &[waits], |detail| detail.job.state == JobState::Queued)
        .await;
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
    go.send(()).unwrap();
    fixture
        .until_job(shelved, |detail| detail.job.state == JobState::Completed)
        .await;
    within(worker.drain()).await.unwrap();
}

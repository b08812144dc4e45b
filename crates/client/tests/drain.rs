//! A worker that is asked to stop ends in good order, and leaves nothing behind to clean up.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use fencehold::job::{AttemptOutcome, JobState};
use fencehold::{Error, Job, JobError, StopReason};
use tokio::sync::{mpsc, oneshot};

use crate::gate::{FIRST_BACKOFF_MS, Fate, Verb, World, secs, within};

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
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (go, gone) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = world.worker().handle("wait", waiting(begun, gone));
    let run = tokio::spawn(worker.run_until(stopped));
    let first = world.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    let second = world.enqueue("wait").await;
    stop.send(()).unwrap();
    // It has left the line when no claim waits for the queue any more.
    world.until_queue(|view| view.waiting_claim_count == 0).await;
    go.send(()).unwrap();
    let drained = within(run).await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.released, drained.still_running), (1, 0, 0));
    assert_eq!(world.job(first).await.job.state, JobState::Completed);
    let second = world.job(second).await;
    assert_eq!((second.job.state, second.job.attempt_count), (JobState::Queued, 0));
}

#[tokio::test]
async fn what_does_not_end_in_time_is_dropped_and_handed_back_and_counts_as_nothing() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (_go, gone) = oneshot::channel();
    let worker = world
        .worker()
        .drain_timeout(secs(2))
        .handle("wait", waiting(begun, gone))
        .start()
        .unwrap();
    let id = world.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    let time = world.time.clone();
    let (drained, ()) = tokio::join!(within(worker.drain()), async {
        time.pass(2_000);
    });
    let drained = drained.unwrap();
    assert_eq!((drained.finished, drained.released, drained.still_running), (0, 1, 0));
    let detail = world.job(id).await;
    assert_eq!(
        (detail.job.state, detail.job.failure_count, detail.job.crash_count),
        (JobState::Queued, 0, 0)
    );
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
}

#[tokio::test]
async fn a_handler_learns_that_its_worker_is_stopping() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = world
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
    let id = world.enqueue("long").await;
    within(beginnings.recv()).await.unwrap();
    assert_eq!(within(worker.drain()).await.unwrap().released, 1);
    let detail = world.job(id).await;
    assert_eq!(detail.job.state, JobState::Queued);
    assert_eq!(detail.checkpoint.as_deref(), Some(b"half".as_slice()));
}

#[tokio::test]
async fn a_handler_that_cannot_be_stopped_keeps_its_job_until_it_ends() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let (live, mut lives) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .drain_timeout(secs(1))
        .handle_blocking("block", move |job, (): ()| {
            begun.send(())?;
            let _ = gone.lock().unwrap().recv();
            Ok(live.send(job.is_live())?)
        })
        .start()
        .unwrap();
    let id = world.enqueue("block").await;
    within(beginnings.recv()).await.unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let draining = async {
        let drained = within(worker.drain()).await;
        over.store(true, std::sync::atomic::Ordering::SeqCst);
        drained
    };
    let is_over = |_: &fencehold::job::JobDetail| over.load(std::sync::atomic::Ordering::SeqCst);
    let (drained, _) = tokio::join!(draining, world.pass_until_job(id, &[], is_over));
    let drained = drained.unwrap();
    assert_eq!((drained.released, drained.still_running), (0, 1));
    assert_eq!(
        world.job(id).await.job.state,
        JobState::Running,
        "no other worker runs it beside this handler"
    );
    drop(go);
    assert_eq!(within(lives.recv()).await, Some(true));
    world.until_job(id, |detail| detail.job.state == JobState::Completed).await;
}

#[tokio::test]
async fn a_dropped_worker_hands_back_what_it_had() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (_go, gone) = oneshot::channel();
    let worker = world.worker().handle("wait", waiting(begun, gone)).start().unwrap();
    let id = world.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    drop(worker);
    world.until_job(id, |detail| detail.job.state == JobState::Queued).await;
}

#[tokio::test]
async fn jobs_of_a_claim_whose_answer_was_lost_are_handed_back_by_a_worker_that_stops() {
    let world = World::new().await;
    world.gate.next(Verb::Claim, Fate::LoseAnswer);
    let id = world.enqueue("do").await;
    let worker = world.worker().handle("do", async |_job: Job, (): ()| Ok(())).start().unwrap();
    world.until_job(id, |detail| detail.job.state == JobState::Running).await;
    world.gate.arrived(Verb::Claim, 1).await;
    // It waits to ask again, and is asked to stop instead.
    world.sleeps(FIRST_BACKOFF_MS).await;
    within(worker.drain()).await.unwrap();
    let detail = world.until_job(id, |detail| detail.job.state == JobState::Queued).await;
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
}

#[tokio::test]
async fn a_worker_on_a_closed_handle_ends_and_says_so() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (_go, gone) = oneshot::channel();
    let worker = world.worker().handle("wait", waiting(begun, gone));
    let run = tokio::spawn(worker.run_until(std::future::pending::<()>()));
    world.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    within(world.fh.close()).await;
    let ended = within(run).await.unwrap();
    assert!(matches!(&ended, Err(Error::Unavailable { message }) if message.contains("closed")), "{ended:?}");
}

#[tokio::test]
async fn a_job_that_no_slot_comes_free_for_is_handed_back() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (go, gone) = oneshot::channel();
    let worker = world
        .worker()
        .prefetch(1)
        .handle("quick", async |_job: Job, (): ()| Ok(()))
        .handle("wait", waiting(begun, gone))
        .start()
        .unwrap();
    // Quick jobs have shown that it is worth claiming ahead.
    let quick = world.enqueue("quick").await;
    world.until_job(quick, |detail| detail.job.state == JobState::Completed).await;
    let waits = world.enqueue("wait").await;
    within(beginnings.recv()).await.unwrap();
    let shelved = world.enqueue("quick").await;
    world.until_job(shelved, |detail| detail.job.state == JobState::Running).await;
    let detail = world
        .pass_until_job(shelved, &[waits], |detail| detail.job.state == JobState::Queued)
        .await;
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
    go.send(()).unwrap();
    world.until_job(shelved, |detail| detail.job.state == JobState::Completed).await;
    within(worker.drain()).await.unwrap();
}

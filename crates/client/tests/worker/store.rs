//! What a worker says to the store: in few calls, and as often as it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fencehold::job::JobState;
use fencehold::{Error, Job, StopReason, WorkerEvent};
use tokio::sync::mpsc;

use crate::gated_store::{CallFate, FIRST_BACKOFF_MS, GatedCall, GatedFixture, done, next, secs, with};

#[tokio::test]
async fn nobody_waits_for_anothers_completion_and_many_go_in_one_call() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let handler = with(begun, |begun, job, ()| async move { Ok(begun.send(job.id())?) });
    let worker = fixture.worker().handle("quick", handler).start().unwrap();
    let answer = fixture.gate.delay_answer(GatedCall::Report);
    fixture.enqueue("quick").await;
    next(&mut beginnings).await;
    fixture.gate.arrived(GatedCall::Report, 1).await;
    // The first completion is on its way and stays there. The others are worked on all the same.
    for _ in 0..5 {
        fixture.enqueue("quick").await;
        next(&mut beginnings).await;
    }
    drop(answer);
    assert_eq!(done(worker.drain()).await.finished, 6);
    let sizes: Vec<usize> = fixture.gate.reports().iter().map(Vec::len).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 6);
    assert!(sizes.len() <= 3, "one by itself, and the rest together: {sizes:?}");
}

#[tokio::test]
async fn a_report_in_which_the_store_panics_ends_its_attempt_and_the_next_one_is_sent() {
    let fixture = GatedFixture::new().await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let worker = fixture
        .worker()
        .handle("do", async |_job: Job, (): ()| {})
        .on_event(move |event| {
            if let WorkerEvent::AttemptEnded(end) = event {
                ended.send((end.job.clone(), end.response.clone())).unwrap();
            }
        });
    let worker = worker.start().unwrap();
    fixture.gate.next(GatedCall::Report, CallFate::Panic);
    for panics in [true, false] {
        fixture.enqueue("do").await;
        let (job, answer) = next(&mut ends).await;
        assert_eq!(matches!(answer, Err(Error::OutcomeUnknown { .. })), panics, "{answer:?}");
        assert!(!job.is_live(), "its claim is not renewed for as long as this process lives");
    }
    done(worker.drain()).await;
}

#[tokio::test]
async fn all_running_jobs_are_renewed_in_one_call() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let handler = with(begun, |begun, job, ()| async move {
        begun.send(job.clone())?;
        Ok(matches!(job.stop_requested().await, StopReason::Draining))
    });
    let worker = fixture.worker().concurrency(3).handle("wait", handler).start().unwrap();
    let mut jobs = Vec::new();
    for _ in 0..3 {
        fixture.enqueue("wait").await;
        jobs.push(next(&mut beginnings).await);
    }
    for _ in 0..10 {
        fixture.pass_renewal(&jobs[2], 10_000).await;
    }
    assert!(fixture.gate.claim_renewals().iter().all(|call| call.len() == 3));
    let drained = done(worker.drain()).await;
    assert_eq!(drained.finished, 3);
    for job in jobs {
        let detail = fixture.job(job.id()).await;
        assert_eq!((detail.job.state, detail.job.attempt_count), (JobState::Completed, 1));
        assert_eq!(detail.result.as_deref(), Some("true"));
    }
}

#[tokio::test]
async fn a_lost_answer_of_a_claim_or_a_completion_costs_nothing() {
    let fixture = GatedFixture::new().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    fixture.gate.next(GatedCall::Claim, CallFate::LoseAnswer);
    fixture.gate.next(GatedCall::Report, CallFate::LoseAnswer);
    let id = fixture.enqueue("count").await;
    let handler = with(counted, |runs, _job, ()| async move { Ok(runs.fetch_add(1, Ordering::SeqCst)) });
    let worker = fixture.worker().handle("count", handler).start().unwrap();
    fixture.gate.arrived(GatedCall::Claim, 1).await;
    fixture.pass_to_next(FIRST_BACKOFF_MS).await;
    fixture.gate.arrived(GatedCall::Report, 1).await;
    fixture.pass_to_next(FIRST_BACKOFF_MS).await;
    let drained = done(worker.drain()).await;
    assert_eq!((drained.finished, runs.load(Ordering::SeqCst)), (1, 1));
    let holds: Vec<_> = fixture.gate.claims().iter().map(|claim| claim.hold_id).collect();
    assert_eq!(holds[0], holds[1], "the same claim, asked for again");
    let again = &fixture.gate.claims()[1];
    assert!(again.waited_before_ms > 0, "it keeps its place in line");
    let detail = fixture.job(id).await;
    assert_eq!((detail.job.state, detail.job.attempt_count), (JobState::Completed, 1));
}

#[tokio::test]
async fn a_worker_outlives_a_store_that_is_away_for_long() {
    let fixture = GatedFixture::new().await;
    fixture.gate.close(GatedCall::Claim);
    let worker = fixture.worker().handle("do", async |_job: Job, (): ()| {}).start().unwrap();
    let id = fixture.enqueue("do").await;
    while fixture.gate.calls(GatedCall::Claim) < 12 {
        assert_eq!(fixture.job(id).await.job.state, JobState::Queued);
        fixture.pass(100);
    }
    fixture.gate.open(GatedCall::Claim);
    fixture
        .pass_until_job(id, &[], |detail| detail.job.state == JobState::Completed)
        .await;
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_worker_that_can_never_work_says_why() {
    let fixture = GatedFixture::new().await;
    let handler = async |_job: Job, (): ()| {};
    let bad = |worker: fencehold::Worker| worker.start().unwrap_err().to_string();
    let worker = || fixture.fh.worker();
    assert_eq!(bad(worker().handle("k", handler)), "worker takes from 0 queues; it takes 1 to 64");
    assert_eq!(bad(fixture.worker()), "worker has no handler, so every job would fail");
    assert_eq!(
        bad(fixture.worker().handle("k", handler).concurrency(0)),
        "concurrency is 0; it takes 1 to 5000"
    );
    assert_eq!(bad(fixture.worker().handle("k", handler).handle("k", handler)), "kind k has two handlers");
    assert!(bad(fixture.worker().handle("", handler)).starts_with("kind must not be empty"));
    assert!(bad(worker().queue("fencehold/operations").handle("k", handler)).contains("is reserved"));
    assert!(bad(fixture.worker().handle("k", handler).ttl(secs(0))).starts_with("ttl is 0 ms"));
}

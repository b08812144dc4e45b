//! Handlers that are stopped: their claim is lost or was ended, their job called off, their place or their time is up.

use fencehold::job::{AttemptOutcome, JobState};
use fencehold::{Job, JobError, LeaseState, Outcome, WorkerEvent};
use tokio::sync::mpsc;

use crate::gated_store::{GatedCall, GatedFixture, RENEWED_BY_MS, done, next, secs, with, within};

/// Tells when it is dropped.
struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

#[tokio::test]
async fn a_lost_claim_drops_the_handler_and_the_job_is_handed_back() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let handler = with(told, |told, job, ()| async move {
        if job.attempt() > 1 {
            return Ok("done");
        }
        told.send("begun")?;
        let _dropped = Dropped(told);
        std::future::pending().await
    });
    let worker = fixture.worker().handle("wait", handler).start().unwrap();
    let id = fixture.enqueue("wait").await;
    assert_eq!(within(telling.recv()).await, Some("begun"));
    fixture.gate.close(GatedCall::RenewClaims);
    fixture.pass(9_000);
    assert_eq!(within(telling.recv()).await, Some("dropped"), "at nine tenths of the ttl");
    let detail = fixture.until_state(id, JobState::Completed).await;
    assert_eq!((detail.job.attempt_count, detail.job.crash_count), (2, 0));
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_claim_that_was_ended_by_force_stops_the_handler_and_nothing_is_said() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let handler = with(told, |told, _job, ()| async move {
        told.send("begun")?;
        let _dropped = Dropped(told);
        std::future::pending::<Result<(), JobError>>().await
    });
    let worker = fixture.worker().handle("wait", handler).start().unwrap();
    let id = fixture.enqueue("wait").await;
    assert_eq!(within(telling.recv()).await, Some("begun"));
    assert_eq!(within(fixture.fh.jobs().force_cancel(id, None)).await, Ok(JobState::Cancelled));
    fixture.pass(RENEWED_BY_MS);
    assert_eq!(within(telling.recv()).await, Some("dropped"));
    done(worker.drain()).await;
    assert!(fixture.gate.reports().is_empty());
    assert_eq!(fixture.job(id).await.job.state, JobState::Cancelled);
}

#[tokio::test]
async fn a_handler_learns_that_its_job_was_called_off_and_stops_at_a_good_place() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let handler = with(begun, |begun, job, ()| async move {
        begun.send(job.is_cancelled())?;
        assert!(job.cancelled().await);
        assert!(job.is_cancelled() && job.is_live());
        Ok(Outcome::release())
    });
    let worker = fixture.worker().handle("wait", handler).start().unwrap();
    let id = fixture.enqueue("wait").await;
    assert_eq!(within(beginnings.recv()).await, Some(false));
    let state = within(fixture.fh.jobs().cancel(id, None)).await;
    assert_eq!(state, Ok(JobState::Running), "its holder learns first");
    fixture.pass(RENEWED_BY_MS);
    fixture.until_state(id, JobState::Cancelled).await;
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_handler_that_does_not_heed_a_cancel_is_dropped_after_its_time() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let handler = with(told, |told, job, ()| async move {
        let _dropped = Dropped(told.clone());
        told.send("begun")?;
        job.cancelled().await;
        told.send("called off")?;
        std::future::pending::<Result<(), JobError>>().await
    });
    let worker = fixture.worker().cancel_timeout(secs(2)).handle("deaf", handler);
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("deaf").await;
    assert_eq!(within(telling.recv()).await, Some("begun"));
    done(fixture.fh.jobs().cancel(id, None)).await;
    fixture.pass(RENEWED_BY_MS);
    assert_eq!(within(telling.recv()).await, Some("called off"));
    fixture.pass(2_000);
    assert_eq!(within(telling.recv()).await, Some("dropped"));
    fixture.until_state(id, JobState::Cancelled).await;
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_job_yields_to_an_urgent_one_and_goes_on_from_its_checkpoint() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let handler = with(told, |told, job, name: String| async move {
        let from = job.last_checkpoint().map(<[u8]>::to_vec);
        told.send(format!("{name} from {from:?}"))?;
        if name == "patient" && from.is_none() {
            let notice = job.yield_requested().await.expect("still held");
            assert_eq!(notice.priority, 5);
            job.checkpoint(vec![7]).await?;
            return Ok(Outcome::release());
        }
        Outcome::complete(&name)
    });
    let worker = fixture.worker().handle("work", handler).start().unwrap();
    let queue = fixture.fh.queue("q");
    let patient = done(queue.job("work", "patient").enqueue()).await.job_id;
    assert_eq!(next(&mut telling).await, "patient from None");
    let urgent = queue.job("work", "urgent").priority(5).preempt_within(secs(60)).enqueue();
    done(urgent).await;
    fixture.pass(RENEWED_BY_MS);
    assert_eq!(next(&mut telling).await, "urgent from None");
    assert_eq!(next(&mut telling).await, "patient from Some([7])");
    assert_eq!(fixture.result::<String>(patient).await, "patient");
    done(worker.drain()).await;
}

#[tokio::test]
async fn an_attempt_over_its_time_limit_is_stopped_and_is_a_failure() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let handler = with((told, begun), |(told, begun), job, ()| async move {
        begun.send(job)?;
        let _dropped = Dropped(told);
        std::future::pending::<Result<(), JobError>>().await
    });
    let worker = fixture.worker().handle("slow", handler).start().unwrap();
    let slow = fixture.fh.queue("q").job("slow", &()).attempt_timeout(secs(15)).enqueue();
    let id = done(slow).await.job_id;
    let job = next(&mut beginnings).await;
    let began_ms = fixture.now_ms();
    fixture.pass_renewal(&job, 10_000).await;
    fixture.pass_renewal(&job, 15_000 - 2 * RENEWED_BY_MS).await;
    assert!(job.is_live() && telling.is_empty());
    fixture.pass_to(began_ms + 14_000);
    assert_eq!(within(telling.recv()).await, Some("dropped"), "a tenth of the ttl before");
    let detail = fixture.until_failed(id).await;
    assert_eq!(detail.job.state, JobState::Scheduled);
    let error = "the attempt was ended after 14.0 s: its time limit is 15.0 s, and it must have stopped before another worker may begin";
    assert_eq!(detail.attempts[0].error.as_deref(), Some(error));
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_claim_that_is_left_to_expire_is_renewed_no_more_and_counts_as_a_crash() {
    let fixture = GatedFixture::new().await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let (left, mut leaves) = mpsc::unbounded_channel();
    let leave = with(left, |left, job, ()| async move {
        if job.attempt() > 1 {
            return Outcome::complete(&job.attempt());
        }
        left.send(job.watch())?;
        Ok(Outcome::let_expire())
    });
    let worker = fixture.worker().handle_any(leave).on_event(move |event| {
        if let WorkerEvent::AttemptEnded(end) = event {
            ended.send(end.job.token()).unwrap();
        }
    });
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("leave").await;
    let token = next(&mut ends).await;
    // What could not be stopped, and waits beside the handler, hears that it has to.
    within(next(&mut leaves).await.lost()).await;
    for _ in 0..3 {
        fixture.pass(RENEWED_BY_MS);
        fixture.job(id).await;
    }
    let detail = fixture.until_job(id, |detail| detail.job.crash_count > 0).await;
    assert_eq!((detail.attempts[0].token, detail.attempts[0].outcome), (token, AttemptOutcome::Crashed));
    let renewals = fixture.gate.claim_renewals();
    assert!(renewals.iter().flatten().all(|renewed| renewed.token != token));
    done(worker.drain()).await;
}

/// A child process, say, must be ended, and cannot be dropped.
#[tokio::test]
async fn a_blocking_handler_learns_that_it_must_stop_and_has_its_time_for_it() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let (gone, go) = std::sync::mpsc::channel::<()>();
    let go = std::sync::Mutex::new(go);
    let worker = fixture.worker().drain_timeout(secs(2)).stop_timeout(secs(3_600));
    let worker = worker.handle_any_blocking(move |job: fencehold::blocking::Job, (): ()| {
        told.send("begun")?;
        job.drain_timed_out();
        told.send("stopping")?;
        let _ = go.lock().unwrap().recv();
        Ok::<_, fencehold::JobError>(Outcome::release())
    });
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("block").await;
    assert_eq!(within(telling.recv()).await, Some("begun"));
    let (drained, ()) = tokio::join!(within(worker.drain()), async {
        fixture.pass(2_000);
        assert_eq!(within(telling.recv()).await, Some("stopping"));
        // Longer than a handler has that is only dropped.
        fixture.pass(2_000);
        gone.send(()).unwrap();
    });
    let drained = drained.unwrap();
    assert_eq!((drained.released, drained.still_running), (1, 0));
    assert_eq!(fixture.job(id).await.job.state, JobState::Queued);
}

#[tokio::test]
async fn a_claim_is_followed_from_beside_it() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let handler = with(begun, |begun, job, ()| async move {
        begun.send(job.clone())?;
        std::future::pending::<Result<(), JobError>>().await
    });
    let worker = fixture.worker().handle("wait", handler).start().unwrap();
    let id = fixture.enqueue("wait").await;
    let job = next(&mut beginnings).await;
    let mut watch = job.watch();
    assert_eq!((watch.key().as_str(), watch.token()), (format!("job/{id}").as_str(), job.token()));
    let began_ms = fixture.now_ms();
    assert_eq!(within(watch.changed()).await.unwrap().lost_at_ms, began_ms + 9_000);
    fixture.pass(RENEWED_BY_MS);
    let renewed = crate::gated_store::until(&mut watch, |now| now.lost_at_ms > began_ms + 9_000).await;
    assert_eq!(renewed.deadline_ms, began_ms + RENEWED_BY_MS + 10_000);
    done(fixture.fh.jobs().force_cancel(id, None)).await;
    fixture.pass(RENEWED_BY_MS);
    crate::gated_store::until(&mut watch, |now| now.state == LeaseState::Lost).await;
    done(worker.drain()).await;
}

/// An unreachable store must not keep a process that was asked to stop, once or twice.
#[tokio::test]
async fn who_is_told_to_stop_waits_for_the_store_no_longer_than_to_drain_or_its_patience() {
    for cut_short in [true, false] {
        let fixture = GatedFixture::new().await;
        let worker = fixture.worker().ttl(secs(86_400)).drain_timeout(secs(600));
        let worker = worker.handle_any(async |_job: Job, (): ()| {}).start().unwrap();
        fixture.gate.close(GatedCall::Report);
        fixture.enqueue("do").await;
        fixture.gate.arrived(GatedCall::Report, 1).await;
        let began_ms = fixture.now_ms();
        let told_again = async move {
            if !cut_short {
                std::future::pending::<()>().await;
            }
        };
        let mut draining = std::pin::pin!(within(worker.drain_until(told_again)));
        let drained = loop {
            tokio::select! {
                drained = &mut draining => break drained,
                () = fixture.pass_to_next(20_000) => {}
            }
        };
        assert_eq!(drained.unwrap().finished, 1);
        let took_ms = fixture.now_ms() - began_ms;
        assert!(took_ms < 3_600_000, "the report itself is worth trying for two days");
        assert_eq!(took_ms >= 600_000, !cut_short, "{took_ms} ms: reports have the time to drain");
    }
}

//! A worker runs jobs, says what came of them, and knows when they are no longer its own.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod gate;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fencehold::job::{Backoff, Ended, JobState, Retry};
use fencehold::{Error, Job, JobError, Outcome, StopReason};
use gate::{FIRST_BACKOFF_MS, Fate, RENEWED_BY_MS, Verb, World, secs, within};
use tokio::sync::{mpsc, oneshot};

/// Tells when it is dropped.
struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

#[tokio::test]
async fn a_typed_handler_gets_its_payload_and_gives_a_typed_result() {
    let world = World::new().await;
    let worker = world
        .worker()
        .handle("sum", async |_job: Job, numbers: Vec<u32>| Ok(numbers.iter().sum::<u32>()))
        .start()
        .unwrap();
    let sum = within(world.fh.queue("q").job("sum", &[1, 2, 3]).enqueue()).await.unwrap();
    assert_eq!(within(world.fh.jobs().wait::<u32>(sum.id, secs(60))).await, Ok(6));
    let drained = within(worker.drain()).await.unwrap();
    assert_eq!((drained.finished, drained.handed_back, drained.left_running), (1, 0, 0));
}

#[tokio::test]
async fn errors_panics_misfits_and_unknown_kinds_are_failures_with_clear_words() {
    let world = World::new().await;
    let worker = world
        .worker()
        .concurrency(4)
        .handle("errs", async |_job: Job, (): ()| {
            "x".parse::<u8>()?;
            Ok(())
        })
        .handle("panics", async |_job: Job, (): ()| -> Result<(), JobError> { panic!("out of {}", "paper") })
        .handle_blocking("blocks and panics", |_job, (): ()| -> Result<(), JobError> { panic!("out of ink") })
        .handle("misfits", async |_job: Job, _: u32| Ok(()))
        .start()
        .unwrap();
    for (kind, words) in [
        ("errs", "invalid digit found in string"),
        ("panics", "the handler panicked: out of paper"),
        ("blocks and panics", "the handler panicked: out of ink"),
        ("misfits", "no handler of kind misfits can take this job: its payload does not fit"),
        (
            "unheard of",
            "this worker has no handler of kind unheard of (it has blocks and panics, errs, misfits",
        ),
    ] {
        let id = world.enqueue(kind).await;
        let failed = world.until_job(id, |detail| detail.job.failures == 1).await;
        assert_eq!(failed.job.state, JobState::Scheduled, "{kind} is tried again");
        let error = failed.attempts[0].error.as_deref().unwrap();
        assert!(error.starts_with(words), "{kind}: {error}");
    }
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn a_failure_for_good_ends_a_job_and_a_delay_of_its_own_is_kept() {
    let world = World::new().await;
    let worker = world
        .worker()
        .handle("for good", async |_job: Job, (): ()| -> Result<(), _> {
            Err(JobError::new("no such customer").for_good())
        })
        .handle("later", async |_job: Job, (): ()| -> Result<(), _> {
            Err(JobError::new("busy").retry_in(secs(77)))
        })
        .handle("snooze", async |job: Job, (): ()| Ok(job.snooze(secs(88))))
        .start()
        .unwrap();
    let id = world.enqueue("for good").await;
    let ended = within(world.fh.jobs().wait::<()>(id, secs(60))).await.unwrap_err();
    assert!(
        matches!(&ended, Error::JobFailed { state: JobState::Failed, error: Some(error), .. } if error == "no such customer"),
        "{ended}"
    );
    let id = world.enqueue("later").await;
    let later = world.until_job(id, |detail| detail.job.state == JobState::Scheduled).await;
    assert_eq!(later.job.due_in_ms, Some(77_000));
    let id = world.enqueue("snooze").await;
    let snoozed = world.until_job(id, |detail| detail.job.state == JobState::Scheduled).await;
    assert_eq!((snoozed.job.due_in_ms, snoozed.job.failures), (Some(88_000), 0));
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn a_failed_job_is_tried_again_when_its_time_has_come() {
    let world = World::new().await;
    let worker = world
        .worker()
        .handle("flaky", async |job: Job, (): ()| match job.attempt() {
            1 => Err(JobError::new("not yet")),
            attempt => Ok((attempt, job.failures(), job.token().get())),
        })
        .start()
        .unwrap();
    let retry = Retry::new(Backoff::Fixed, 5_000, 5_000).jitter_percent(0);
    let flaky = world.fh.queue("q").job("flaky", &()).retry(retry).enqueue();
    let id = within(flaky).await.unwrap().id;
    world.until_job(id, |detail| detail.job.failures == 1).await;
    world.pass(5_000);
    let (attempt, failures, token) =
        within(world.fh.jobs().wait::<(u32, u16, u64)>(id, secs(60))).await.unwrap();
    assert_eq!((attempt, failures), (2, 1));
    assert!(token >= 2);
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn as_many_run_at_once_as_there_are_slots_and_no_more() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let at_once = Arc::new(AtomicUsize::new(0));
    let (of_handlers, counted) = (Arc::clone(&go), Arc::clone(&at_once));
    let worker = world
        .worker()
        .concurrency(3)
        .handle("wait", move |_job: Job, (): ()| {
            let (begun, go, at_once) = (begun.clone(), Arc::clone(&of_handlers), Arc::clone(&counted));
            async move {
                begun.send(at_once.fetch_add(1, Ordering::SeqCst) + 1)?;
                go.acquire().await?.forget();
                at_once.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .start()
        .unwrap();
    for _ in 0..6 {
        world.enqueue("wait").await;
    }
    for nth in 1..=3 {
        assert_eq!(within(beginnings.recv()).await, Some(nth));
    }
    let counts = within(world.fh.queue("q").counts()).await.unwrap();
    assert_eq!((counts.running, counts.queued), (3, 3), "nothing is claimed ahead of its slot");
    go.add_permits(6);
    for _ in 0..3 {
        assert!(within(beginnings.recv()).await.unwrap() <= 3);
    }
    assert_eq!(within(worker.drain()).await.unwrap().finished, 6);
}

#[tokio::test]
async fn nobody_waits_for_anothers_completion_and_many_go_in_one_call() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .handle("quick", move |job: Job, (): ()| {
            let begun = begun.clone();
            async move { Ok(begun.send(job.id())?) }
        })
        .start()
        .unwrap();
    let answer = world.gate.delay_answer(Verb::Report);
    world.enqueue("quick").await;
    within(beginnings.recv()).await.unwrap();
    world.gate.arrived(Verb::Report, 1).await;
    // The first completion is on its way and stays there. The others are worked on all the same.
    for _ in 0..5 {
        world.enqueue("quick").await;
        within(beginnings.recv()).await.unwrap();
    }
    drop(answer);
    assert_eq!(within(worker.drain()).await.unwrap().finished, 6);
    let sizes: Vec<usize> = world.gate.reports().iter().map(Vec::len).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 6);
    assert!(sizes.len() <= 3, "one by itself, and the rest together: {sizes:?}");
}

#[tokio::test]
async fn all_running_jobs_are_renewed_in_one_call() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .concurrency(3)
        .handle("wait", move |job: Job, (): ()| {
            let begun = begun.clone();
            async move {
                begun.send(job.clone())?;
                Ok(matches!(job.stop_asked().await, StopReason::Draining))
            }
        })
        .start()
        .unwrap();
    let mut jobs = Vec::new();
    for _ in 0..3 {
        world.enqueue("wait").await;
        jobs.push(within(beginnings.recv()).await.unwrap());
    }
    for _ in 0..10 {
        world.pass_renewal(&jobs[2], 10_000).await;
    }
    assert!(world.gate.claim_renewals().iter().all(|call| call.len() == 3));
    let drained = within(worker.drain()).await.unwrap();
    assert_eq!(drained.finished, 3);
    for job in jobs {
        let detail = world.job(job.id()).await;
        assert_eq!((detail.job.state, detail.job.attempts), (JobState::Completed, 1));
        assert_eq!(detail.result.as_deref(), Some("true"));
    }
}

#[tokio::test]
async fn a_lost_claim_drops_the_handler_and_the_job_is_handed_back() {
    let world = World::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .handle("wait", move |job: Job, (): ()| {
            let told = told.clone();
            async move {
                if job.attempt() > 1 {
                    return Ok("done");
                }
                told.send("begun")?;
                let _dropped = Dropped(told);
                std::future::pending().await
            }
        })
        .start()
        .unwrap();
    let id = world.enqueue("wait").await;
    assert_eq!(within(telling.recv()).await, Some("begun"));
    world.gate.close(Verb::RenewClaims);
    world.pass(9_000);
    assert_eq!(within(telling.recv()).await, Some("dropped"), "at nine tenths of the ttl");
    let detail = world.until_job(id, |detail| detail.job.state == JobState::Completed).await;
    assert_eq!((detail.job.attempts, detail.job.crashes), (2, 0));
    assert_eq!(detail.attempts[0].how, Ended::HandedBack);
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn a_claim_that_was_ended_by_force_stops_the_handler_and_nothing_is_said() {
    let world = World::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .handle("wait", move |_job: Job, (): ()| {
            let told = told.clone();
            async move {
                told.send("begun")?;
                let _dropped = Dropped(told);
                std::future::pending::<Result<(), JobError>>().await
            }
        })
        .start()
        .unwrap();
    let id = world.enqueue("wait").await;
    assert_eq!(within(telling.recv()).await, Some("begun"));
    assert_eq!(within(world.fh.jobs().cancel_now(id, None)).await, Ok(JobState::Cancelled));
    world.pass(RENEWED_BY_MS);
    assert_eq!(within(telling.recv()).await, Some("dropped"));
    within(worker.drain()).await.unwrap();
    assert!(world.gate.reports().is_empty());
    assert_eq!(world.job(id).await.job.state, JobState::Cancelled);
}

#[tokio::test]
async fn a_handler_learns_that_its_job_was_called_off_and_stops_at_a_good_place() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .handle("wait", move |job: Job, (): ()| {
            let begun = begun.clone();
            async move {
                begun.send(job.is_cancelled())?;
                assert!(job.cancelled().await);
                assert!(job.is_cancelled() && job.is_live());
                Ok(Outcome::hand_back())
            }
        })
        .start()
        .unwrap();
    let id = world.enqueue("wait").await;
    assert_eq!(within(beginnings.recv()).await, Some(false));
    let state = within(world.fh.jobs().cancel(id, None)).await;
    assert_eq!(state, Ok(JobState::Running), "its holder is told first");
    world.pass(RENEWED_BY_MS);
    world.until_job(id, |detail| detail.job.state == JobState::Cancelled).await;
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn a_handler_that_does_not_heed_a_cancel_is_dropped_after_its_time() {
    let world = World::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .cancel_within(secs(2))
        .handle("deaf", move |job: Job, (): ()| {
            let told = told.clone();
            async move {
                let _dropped = Dropped(told.clone());
                told.send("begun")?;
                job.cancelled().await;
                told.send("called off")?;
                std::future::pending::<Result<(), JobError>>().await
            }
        })
        .start()
        .unwrap();
    let id = world.enqueue("deaf").await;
    assert_eq!(within(telling.recv()).await, Some("begun"));
    within(world.fh.jobs().cancel(id, None)).await.unwrap();
    world.pass(RENEWED_BY_MS);
    assert_eq!(within(telling.recv()).await, Some("called off"));
    world.pass(2_000);
    assert_eq!(within(telling.recv()).await, Some("dropped"));
    world.until_job(id, |detail| detail.job.state == JobState::Cancelled).await;
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn a_job_yields_to_an_urgent_one_and_goes_on_from_its_checkpoint() {
    let world = World::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .handle("work", move |job: Job, name: String| {
            let told = told.clone();
            async move {
                let from = job.last_checkpoint().map(<[u8]>::to_vec);
                told.send(format!("{name} from {from:?}"))?;
                if name == "patient" && from.is_none() {
                    let notice = job.yield_asked().await.expect("still held");
                    assert_eq!(notice.priority, 5);
                    job.checkpoint(vec![7]).await?;
                    return Ok(Outcome::hand_back());
                }
                Outcome::done(&name)
            }
        })
        .start()
        .unwrap();
    let queue = world.fh.queue("q");
    let patient = within(queue.job("work", "patient").enqueue()).await.unwrap().id;
    assert_eq!(within(telling.recv()).await.unwrap(), "patient from None");
    let urgent = queue.job("work", "urgent").priority(5).yield_within(secs(60)).enqueue();
    within(urgent).await.unwrap();
    world.pass(RENEWED_BY_MS);
    assert_eq!(within(telling.recv()).await.unwrap(), "urgent from None");
    assert_eq!(within(telling.recv()).await.unwrap(), "patient from Some([7])");
    assert_eq!(within(world.fh.jobs().wait::<String>(patient, secs(60))).await.unwrap(), "patient");
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn an_attempt_over_its_time_limit_is_stopped_and_is_a_failure() {
    let world = World::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .handle("slow", move |job: Job, (): ()| {
            let (told, begun) = (told.clone(), begun.clone());
            async move {
                begun.send(job)?;
                let _dropped = Dropped(told);
                std::future::pending::<Result<(), JobError>>().await
            }
        })
        .start()
        .unwrap();
    let slow = world.fh.queue("q").job("slow", &()).time_limit(secs(15)).enqueue();
    let id = within(slow).await.unwrap().id;
    let job = within(beginnings.recv()).await.unwrap();
    let began_ms = world.now_ms();
    world.pass_renewal(&job, 10_000).await;
    world.pass_renewal(&job, 15_000 - 2 * RENEWED_BY_MS).await;
    assert!(job.is_live() && telling.is_empty());
    world.pass_to(began_ms + 14_000);
    assert_eq!(within(telling.recv()).await, Some("dropped"), "a tenth of the ttl before");
    let detail = world.until_job(id, |detail| detail.job.failures == 1).await;
    assert_eq!(detail.job.state, JobState::Scheduled);
    assert_eq!(detail.attempts[0].error.as_deref(), Some("the attempt ran over its time limit of 15000 ms"));
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn what_a_job_was_enqueued_with_reaches_its_handler() {
    let world = World::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = world
        .worker()
        .queue("other", 3)
        .handle("look", move |job: Job, (): ()| {
            let told = told.clone();
            async move {
                let labels: Vec<String> =
                    job.labels().map(|(name, value)| format!("{name}={value}")).collect();
                let trace = job.trace().map(str::to_owned);
                Ok(told.send((job.queue().to_string(), job.kind().to_string(), labels, trace))?)
            }
        })
        .start()
        .unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let job = world.fh.queue("other").job("look", &()).label("team", "a").trace(trace);
    within(job.enqueue()).await.unwrap();
    let seen = within(telling.recv()).await.unwrap();
    let labels = vec!["team=a".to_owned()];
    assert_eq!(seen, ("other".to_owned(), "look".to_owned(), labels, Some(trace.to_owned())));
    let queues = world.gate.claims()[0].queues.clone();
    assert_eq!(
        queues
            .iter()
            .map(|(queue, weight)| (queue.as_str(), *weight))
            .collect::<Vec<_>>(),
        [("q", 1), ("other", 3)]
    );
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn progress_is_seen_while_the_job_runs_and_only_the_newest_travels() {
    let world = World::new().await;
    let (finish, finished) = oneshot::channel::<()>();
    let finished = Arc::new(std::sync::Mutex::new(Some(finished)));
    let worker = world
        .worker()
        .handle("long", move |job: Job, (): ()| {
            let finished = finished.lock().unwrap().take();
            async move {
                for step in 0..100 {
                    job.progress(&step)?;
                }
                finished.unwrap().await?;
                Ok(())
            }
        })
        .start()
        .unwrap();
    let answer = world.gate.delay_answer(Verb::Report);
    let id = world.enqueue("long").await;
    world.gate.arrived(Verb::Report, 1).await;
    drop(answer);
    world.until_job(id, |detail| detail.progress.as_deref() == Some("99")).await;
    finish.send(()).unwrap();
    within(worker.drain()).await.unwrap();
    let words: usize = world.gate.reports().iter().map(Vec::len).sum();
    assert!(words < 50, "{words} words for a hundred steps");
}

#[tokio::test]
async fn a_lost_answer_of_a_claim_or_a_completion_costs_nothing() {
    let world = World::new().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    world.gate.next(Verb::Claim, Fate::LoseAnswer);
    world.gate.next(Verb::Report, Fate::LoseAnswer);
    let id = world.enqueue("count").await;
    let worker = world
        .worker()
        .handle("count", move |_job: Job, (): ()| {
            let runs = Arc::clone(&counted);
            async move { Ok(runs.fetch_add(1, Ordering::SeqCst)) }
        })
        .start()
        .unwrap();
    world.gate.arrived(Verb::Claim, 1).await;
    world.pass_to_next(FIRST_BACKOFF_MS).await;
    world.gate.arrived(Verb::Report, 1).await;
    world.pass_to_next(FIRST_BACKOFF_MS).await;
    let drained = within(worker.drain()).await.unwrap();
    assert_eq!((drained.finished, runs.load(Ordering::SeqCst)), (1, 1));
    let holds: Vec<_> = world.gate.claims().iter().map(|claim| claim.hold).collect();
    assert_eq!(holds[0], holds[1], "the same claim, asked for again");
    let detail = world.job(id).await;
    assert_eq!((detail.job.state, detail.job.attempts), (JobState::Completed, 1));
}

#[tokio::test]
async fn a_worker_outlives_a_store_that_is_away_for_long() {
    let world = World::new().await;
    world.gate.close(Verb::Claim);
    let worker = world.worker().handle("do", async |_job: Job, (): ()| Ok(())).start().unwrap();
    let id = world.enqueue("do").await;
    while world.gate.calls(Verb::Claim) < 12 {
        assert_eq!(world.job(id).await.job.state, JobState::Queued);
        world.pass(100);
    }
    world.gate.open(Verb::Claim);
    world.pass_until_job(id, |detail| detail.job.state == JobState::Completed).await;
    within(worker.drain()).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_can_never_work_says_why() {
    let world = World::new().await;
    let handler = async |_job: Job, (): ()| Ok(());
    let bad = |worker: fencehold::Worker| worker.start().unwrap_err().to_string();
    let worker = || world.fh.worker();
    assert_eq!(bad(worker().handle("k", handler)), "worker takes from 0 queues; it takes 1 to 64");
    assert_eq!(bad(world.worker()), "worker has no handler, so every job would fail");
    assert_eq!(
        bad(world.worker().handle("k", handler).concurrency(0)),
        "concurrency is 0; it takes 1 to 5000"
    );
    assert_eq!(bad(world.worker().handle("k", handler).handle("k", handler)), "kind k has two handlers");
    assert!(bad(world.worker().handle("", handler)).starts_with("kind must not be empty"));
    assert!(bad(worker().queue("fencehold/operations", 1).handle("k", handler)).contains("is reserved"));
    assert!(bad(world.worker().handle("k", handler).ttl(secs(0))).starts_with("ttl is 0 ms"));
}

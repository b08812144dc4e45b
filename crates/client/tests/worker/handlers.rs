//! Handlers as people write them: what they take, what they fail with, and where they run.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use fencehold::handler::{AttemptRequest, HandlerService};
use fencehold::job::JobState;
use fencehold::testing::{TestControl, TestJob};
use fencehold::{Fencehold, Job, JobBuilder, JobError, Outcome, State, TypedJob, blocking};
use fencehold_test_servers::is_alone;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Barrier, mpsc};
use tower::Service as _;

use crate::gated_store::{GatedCall, GatedFixture, done, next, secs, within};

#[derive(Clone, Debug, PartialEq, Eq)]
struct App {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit(u32);

#[derive(Debug, Serialize, Deserialize)]
struct Email {
    to: String,
}

impl TypedJob for Email {
    const KIND: &'static str = "email";
    type Result = u32;

    fn options(job: JobBuilder<Self>) -> JobBuilder<Self> {
        job.max_failures(3).priority(7)
    }
}

#[tokio::test]
async fn a_handler_takes_the_job_the_payload_and_states_or_some_of_them_in_any_order() {
    let fixture = GatedFixture::new().await;
    let all = async |State(limit): State<Limit>, email: Email, job: Job, State(app): State<App>| {
        Ok::<_, JobError>(format!("{} {} {} {}", limit.0, email.to, job.attempt(), app.name))
    };
    let blocks = |State(app): State<App>, job: blocking::Job| {
        Ok::<_, JobError>(format!("{} {}", app.name, job.attempt()))
    };
    let (said, mut saying) = mpsc::unbounded_channel();
    let worker = fixture
        .worker()
        .state(App { name: "app" })
        .state(Limit(9))
        .handle("all", all)
        .handle_blocking("blocks", blocks)
        .handle("none", move || {
            let _ = said.send(());
            async {}
        })
        .start()
        .unwrap();
    let jobs = fixture.fh.jobs();
    let email = Email { to: "ada".to_owned() };
    let job = done(fixture.fh.queue("q").job("all", &email).enqueue()).await;
    assert_eq!(within(jobs.result::<String>(job.job_id, secs(60))).await, Ok("9 ada 1 app".to_owned()));
    let job = fixture.enqueue("blocks").await;
    assert_eq!(within(jobs.result::<String>(job, secs(60))).await, Ok("app 1".to_owned()));
    fixture.enqueue("none").await;
    next(&mut saying).await;
    done(worker.drain()).await;
}

#[tokio::test]
async fn arguments_that_cannot_be_had_are_an_error_before_any_job_is_claimed() {
    let fixture = GatedFixture::new().await;
    let takes = async |State(_): State<App>| {};
    let refused = fixture.worker().handle("k", takes).start().unwrap_err();
    let words = refused.to_string();
    assert!(words.contains("handler of kind k takes State<"), "{words}");
    assert!(
        words.contains("handlers::App>, and no state of this type was given: call `state` with one"),
        "{words}"
    );
    let takes = |State(_): State<App>| {};
    let refused = fixture.worker().handle_any_blocking(takes).start().unwrap_err();
    assert!(refused.to_string().contains("handler of every other kind takes State<"), "{refused}");
    let twice = fixture
        .worker()
        .state(Limit(1))
        .state(Limit(2))
        .handle("k", async || {})
        .start()
        .unwrap_err();
    assert!(twice.to_string().ends_with("handlers::Limit was given twice"), "{twice}");
    let forgotten = async |_: Email, _: String| {};
    let refused = fixture.worker().handle("k", forgotten).start().unwrap_err();
    assert!(refused.to_string().contains("takes two payloads, "), "{refused}");
    assert!(refused.to_string().ends_with("is one of them meant to be a State?"), "{refused}");
    let refused = TestJob::new("k", &()).run(takes_limit).await;
    assert!(refused.lost().is_some_and(|why| why.contains("of the test takes State<")), "{refused:?}");
    let twice = TestJob::new("k", &()).state(Limit(1)).state(Limit(2)).run(takes_limit).await;
    assert!(twice.lost().is_some_and(|why| why.ends_with("was given twice")), "{twice:?}");
}

async fn takes_limit(State(limit): State<Limit>) -> Result<u32, JobError> {
    Ok(limit.0)
}

#[tokio::test]
async fn a_failure_has_the_text_of_its_error_and_of_its_causes() {
    fn number() -> Result<u8, std::num::ParseIntError> {
        "x".parse()
    }
    let test = || TestJob::new("k", &());
    let digit = "invalid digit found in string";

    let run = test().run(async || number()).await;
    assert_eq!(run.failure(), Some(digit));
    let run = test()
        .run(async || number().map_err(|error| -> Box<dyn std::error::Error + Send + Sync> { error.into() }))
        .await;
    assert_eq!(run.failure(), Some(digit));
    let run = test().run(async || anyhow::Context::context(number(), "no port")).await;
    assert_eq!(run.failure(), Some(&*format!("no port: {digit}")));
    let run = test().run(async || eyre::WrapErr::wrap_err(number(), "no port")).await;
    assert_eq!(run.failure(), Some(&*format!("no port: {digit}")));
    let run = test().run(async || Err::<(), _>("out of paper")).await;
    assert_eq!(run.failure(), Some("out of paper"));
    let run = test().run(async || Err::<(), _>(format!("out of {}", "ink"))).await;
    assert_eq!(run.failure(), Some("out of ink"));
    let run = test().run(async || Err::<(), Box<str>>("out of ink".into())).await;
    assert_eq!(run.failure(), Some("out of ink"));
    let run = test()
        .run(async || Err::<(), std::borrow::Cow<'static, str>>("out of ink".into()))
        .await;
    assert_eq!(run.failure(), Some("out of ink"));
    let run = test().run_blocking(|| Err::<(), _>(anyhow::anyhow!("out of toner")));
    assert_eq!(run.failure(), Some("out of toner"));
    let run = test().run(async || Outcome::snooze(secs(5))).await;
    assert_eq!(run.snoozed(), Some(secs(5)));
}

#[tokio::test]
async fn what_an_error_says_of_the_attempt_counts_however_deep_it_is_wrapped() {
    let wrapped =
        |error: JobError| anyhow::Error::new(error.into_error()).context("charging").context("paying");
    let pay = async |job: Job| -> anyhow::Result<()> {
        let charged = job.once("a", async |_| Ok(())).await;
        charged.map_err(wrapped)
    };
    let run = TestJob::new("k", &()).lost().run(pay).await;
    assert!(run.failure().is_none() && run.lost().is_some(), "a lost claim is no failure: {run:?}");
    let permanent = TestJob::new("k", &())
        .run(async || Err::<(), _>(wrapped(JobError::new("no").permanent())))
        .await;
    assert_eq!((permanent.failure(), permanent.failed_permanently()), (Some("paying: charging: no"), true));
    let waits = TestJob::new("k", &())
        .run(async || Err::<(), _>(wrapped(JobError::new("no").retry_in(secs(9)))))
        .await;
    assert_eq!(waits.retry_in(), Some(secs(9)));
    // Within a handler that fails with a `JobError`, too.
    let passed_on = async || -> Result<(), JobError> {
        Err(JobError::from_error(wrapped(JobError::new("no").permanent())))
    };
    let permanent = TestJob::new("k", &()).run(passed_on).await;
    assert_eq!((permanent.failure(), permanent.failed_permanently()), (Some("paying: charging: no"), true));
    let boxed: Box<dyn std::error::Error + Send + Sync> = JobError::new("no").permanent().into();
    let boxed = Mutex::new(Some(boxed));
    let permanent =
        TestJob::new("k", &()).run_blocking(|| Err::<(), _>(boxed.lock().unwrap().take().unwrap()));
    assert!(permanent.failed_permanently());
}

#[tokio::test]
async fn a_typed_job_has_the_options_of_its_kind_and_the_result_of_its_type() {
    let fixture = GatedFixture::new().await;
    let queue = fixture.fh.queue("q");
    let email = Email { to: "ada".to_owned() };
    let job = done(queue.typed_job(&email).unique("u", secs(60)).enqueue()).await;
    let again = done(queue.typed_job(&email).unique("u", secs(60)).enqueue()).await;
    assert_eq!((job.existed(), again.existed(), job.id()), (Some(false), Some(true), again.id()));
    let detail = done(job.get()).await;
    assert_eq!((detail.job.kind.as_str(), detail.job.options.priority), ("email", 7));
    let send = async |email: Email| Ok::<_, JobError>(u32::try_from(email.to.len())?);
    let worker = fixture.worker().handle_typed(send).start().unwrap();
    let by_id = fixture.fh.jobs().typed::<Email>(job.id());
    assert_eq!(by_id.existed(), None);
    assert_eq!(within(by_id.result(secs(60))).await, Ok(3));
    done(worker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_async_handlers_run_at_once_in_a_process_of_at_most_sixteen_threads() {
    const MANY: usize = 1_000;
    const THREADS_MAX: usize = 16;
    if !is_alone(
        "worker::handlers::a_thousand_async_handlers_run_at_once_in_a_process_of_at_most_sixteen_threads",
    ) {
        return;
    }
    let fh = Fencehold::connect("memory:").await.unwrap();
    let queue = fh.queue("q");
    let jobs = (0..MANY).map(|nth| queue.job("k", &nth));
    queue.enqueue_batch(jobs).await.all().unwrap();
    let (counted, mut count) = mpsc::unbounded_channel::<usize>();
    let handler = async |State(all): State<Arc<Barrier>>, State(counted): State<UnboundedSender<usize>>| {
        // None goes on before all have begun.
        if all.wait().await.is_leader() {
            counted.send(std::fs::read_dir("/proc/self/task")?.count())?;
        }
        Ok::<_, JobError>(())
    };
    let worker = fh.worker().queue("q").concurrency(MANY).handle("k", handler);
    let worker = worker.state(Arc::new(Barrier::new(MANY))).state(counted);
    let drained = within(worker.until_empty().run_until(std::future::pending::<()>()))
        .await
        .unwrap();
    assert_eq!(drained.finished, MANY as u64);
    let threads: usize = count.recv().await.unwrap();
    println!("{threads} threads");
    assert!(threads <= THREADS_MAX, "{threads} threads");
}

#[test]
fn a_runtime_that_ends_under_a_worker_releases_its_jobs_and_the_worker_says_so() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (own, other) = (runtime(), runtime());
    let fh = other.block_on(Fencehold::connect("memory:")).unwrap();
    let id = other.block_on(fh.queue("q").job("k", &()).enqueue()).unwrap().job_id;
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let handler = move || {
        let _ = begun.send(());
        std::future::pending::<()>()
    };
    let entered = own.enter();
    let worker = fh.worker().queue("q").concurrency(5_000).handle("k", handler).start().unwrap();
    drop(entered);
    other.block_on(next(&mut beginning));
    own.shutdown_background();
    // So many at once as could overflow a stack.
    let queue = fh.queue("q");
    let many = other.block_on(queue.enqueue_batch((0..5_000).map(|nth| queue.job("k", &nth))));
    many.all().unwrap();
    other.block_on(within(worker.until(std::future::pending::<()>())));
    let ended = other.block_on(within(worker.drain())).unwrap_err();
    assert!(
        ended
            .to_string()
            .contains("the runtime in which the worker was started has ended"),
        "{ended}"
    );
    let detail = other.block_on(fh.jobs().get(id)).unwrap();
    assert_eq!((detail.job.state, detail.job.crash_count), (JobState::Queued, 0));
    let counts = other.block_on(fh.jobs().counts()).unwrap();
    assert_eq!((counts.queued, counts.running), (5_001, 0));
}

#[test]
fn jobs_that_a_busy_runtime_does_not_get_to_are_released() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(GatedFixture::new());
    let fh = &fixture.fh;
    let queue = fh.queue("q");
    // Started in a runtime that nothing drives: its tasks never run.
    let undriven = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let entered = undriven.enter();
    let worker = fixture.worker().concurrency(3).handle("k", async || {}).start().unwrap();
    drop(entered);
    runtime.block_on(async {
        let claimed = fixture.gate.arrived(GatedCall::Report, 1);
        let jobs = queue.enqueue_batch((0..3).map(|nth| queue.job("k", &nth))).await;
        jobs.all().unwrap();
        within(async {
            while worker.stats().prefetched == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        fixture.pass(2_000);
        within(claimed).await;
        assert_eq!(worker.stats().running, 0);
    });
    drop(worker);
    runtime.block_on(within(async {
        while fh.jobs().counts().await.unwrap().queued < 3 {
            tokio::task::yield_now().await;
        }
    }));
}

#[tokio::test]
async fn there_are_never_more_threads_than_slots() {
    let fixture = GatedFixture::new().await;
    let threads: Arc<Mutex<HashSet<ThreadId>>> = Arc::default();
    let seen = Arc::clone(&threads);
    let handler = move || {
        seen.lock().unwrap().insert(thread::current().id());
    };
    let worker = fixture.worker().concurrency(2).handle_blocking("k", handler);
    let queue = fixture.fh.queue("q");
    let jobs = (0..1_000).map(|nth| queue.job("k", &nth));
    queue.enqueue_batch(jobs).await.all().unwrap();
    let drained = done(worker.until_empty().run_until(std::future::pending::<()>())).await;
    assert_eq!(drained.finished, 1_000);
    assert!(threads.lock().unwrap().len() <= 2, "{threads:?}");
}

#[tokio::test]
async fn tower_stops_a_handler_after_its_timeout() {
    let fixture = GatedFixture::new().await;
    let worker = fixture
        .worker()
        .layer(tower::timeout::TimeoutLayer::new(std::time::Duration::from_millis(1)))
        .handle("k", std::future::pending::<()>)
        .start()
        .unwrap();
    let job = fixture.enqueue("k").await;
    let failed = fixture.until_failed(job).await;
    assert_eq!(failed.attempts[0].error.as_deref(), Some("request timed out"));
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_test_cancels_loses_drains_or_times_out_a_handler_in_the_middle() {
    async fn stops(job: Job, State(begun): State<mpsc::UnboundedSender<()>>) -> Result<Outcome, JobError> {
        begun.send(())?;
        let reason = job.stop_requested().await;
        Outcome::complete(&format!("{reason:?}"))
    }
    async fn stopped_by(act: impl FnOnce(&TestControl)) -> fencehold::testing::TestResult {
        let (begun, mut beginning) = mpsc::unbounded_channel::<()>();
        let test = TestJob::new("k", &()).state(begun);
        let control = test.control();
        let act = async {
            next(&mut beginning).await;
            act(&control);
        };
        tokio::join!(test.run(stops), act).0
    }
    let run = stopped_by(TestControl::cancel).await;
    assert_eq!(run.result::<String>().as_deref(), Some("Cancelled"));
    let run = stopped_by(TestControl::drain).await;
    assert_eq!(run.result::<String>().as_deref(), Some("Draining"));
    let run = stopped_by(|control| control.request_yield(fencehold::Owner::new("urgent").unwrap(), 5)).await;
    assert!(run.result::<String>().is_some_and(|reason| reason.starts_with("Yield")), "{run:?}");
    let run = stopped_by(TestControl::drain_time_out).await;
    assert!(run.released());
    let run = stopped_by(TestControl::time_out).await;
    assert!(run.failure().is_some_and(|why| why.contains("its time limit is")), "{run:?}");
    let run = stopped_by(TestControl::lose).await;
    assert!(run.lost().is_some_and(|why| why.contains("expired")), "{run:?}");
}

#[tokio::test]
async fn layers_are_around_every_async_handler_the_last_one_outermost() {
    let fixture = GatedFixture::new().await;
    let (said, mut saying) = mpsc::unbounded_channel();
    let says = |word: &'static str| {
        let said = said.clone();
        tower::util::MapRequestLayer::new(move |request: AttemptRequest| {
            said.send(format!("{word} {}", request.job().kind())).unwrap();
            request
        })
    };
    let fails = tower::layer::layer_fn(|inner: HandlerService| {
        tower::service_fn(move |request: AttemptRequest| {
            let (mut inner, kind) = (inner.clone(), request.job().kind().to_string());
            async move {
                if kind == "refused" {
                    return Err(anyhow::anyhow!("a layer refused it"));
                }
                Ok(inner.call(request).await.unwrap())
            }
        })
    });
    let worker = fixture
        .worker()
        .layer(fails)
        .layer(says("inner"))
        .layer(says("outer"))
        .handle("k", async || {})
        .handle("refused", async || {})
        .start()
        .unwrap();
    let job = fixture.enqueue("k").await;
    assert_eq!(within(fixture.fh.jobs().result::<()>(job, secs(60))).await, Ok(()));
    assert_eq!(
        (next(&mut saying).await, next(&mut saying).await),
        ("outer k".to_owned(), "inner k".to_owned())
    );
    let job = fixture.enqueue("refused").await;
    let failed = fixture.until_failed(job).await;
    assert_eq!(failed.attempts[0].error.as_deref(), Some("a layer refused it"));
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_worker_counts_what_it_does_and_how_attempts_ended() {
    let fixture = GatedFixture::new().await;
    let (begun, mut beginning) = mpsc::unbounded_channel::<()>();
    let (go, gone) = tokio::sync::watch::channel(false);
    let waits = move |State(begun): State<mpsc::UnboundedSender<()>>| {
        let mut gone = gone.clone();
        async move {
            begun.send(())?;
            gone.wait_for(|gone| *gone).await?;
            Ok::<_, JobError>(())
        }
    };
    let worker = fixture
        .worker()
        .state(begun)
        .handle("waits", waits)
        .handle("fails", async || Err::<(), _>("no"))
        .handle("snoozes", async || Outcome::snooze(secs(60)))
        .handle("expires", async || Outcome::let_expire())
        .start()
        .unwrap();
    fixture.enqueue("waits").await;
    next(&mut beginning).await;
    assert_eq!((worker.stats().running, worker.stats().completed), (1, 0));
    go.send(true).unwrap();
    for kind in ["fails", "snoozes", "expires", "waits"] {
        fixture.enqueue(kind).await;
    }
    next(&mut beginning).await;
    let stats = within(async {
        loop {
            let stats = worker.stats();
            if stats.completed == 2 && stats.running + stats.unreported == 0 {
                return stats;
            }
            tokio::task::yield_now().await;
        }
    });
    let stats = stats.await;
    assert_eq!((stats.completed, stats.failed, stats.snoozed, stats.released, stats.lost), (2, 1, 1, 0, 1));
    assert_eq!(done(worker.drain()).await.finished, 4);
}

//! A worker that is killed (`kill -9`) at every step of its own transaction: what it did and the record of it are there together, once,
//! whatever the driver.
//!
//! Everything is ordered by what the processes say. That a claim runs out takes its real time.

use std::sync::{Arc, mpsc};

use fencehold::job::{EffectState, JobState};
use fencehold::{Job, JobError};
use serde::{Deserialize, Serialize};

use super::Fixture;
use super::open::{Adapter, Open};
use crate::worker_processes::{AttemptEvent, TIMEOUT, TTL, WorkDirectory, WorkerProcess, WorkerSide};

const QUEUE: &str = "kills";
const FIRST: &str = "A";

/// After which step the first worker is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    Claim,
    Begin,
    Write,
    Record,
    Completion,
    Commit,
}

const STEPS: [Step; 6] =
    [Step::Claim, Step::Begin, Step::Write, Step::Record, Step::Completion, Step::Commit];

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sale {
    adapter: Adapter,
    killed_after: Step,
    url: String,
    table: String,
}

/// A worker, in a process of its own. Does nothing when it is run as one of the tests.
#[tokio::test(flavor = "multi_thread")]
async fn the_worker() {
    let Some(post) = WorkerSide::of_this_process().await else { return };
    let fh = post.work_dir.connect(&post.name).await;
    let of_handler = Arc::clone(&post);
    let worker = fh.worker().queue(QUEUE).prefetch(0).ttl(TTL);
    let worker = worker.handle("sell", move |job: Job, sale: Sale| {
        // A driver's connection needs the runtime of the test.
        let attempt = tokio::spawn(sell(job, sale, Arc::clone(&of_handler)));
        async move { attempt.await.unwrap() }
    });
    worker.run_until(post.dismissed()).await.unwrap();
    fh.close().await;
}

/// The first worker holds at its step, in whichever attempt it gets there: on a busy machine a claim may run out before.
async fn sell(job: Job, sale: Sale, post: Arc<WorkerSide>) -> Result<u64, JobError> {
    let after = async |step| {
        if post.name == FIRST && step == sale.killed_after {
            post.hold(&job).await;
        }
    };
    after(Step::Claim).await;
    let mut connection = sale.adapter.connect(&sale.url).await;
    let mut transaction = connection.begin().await;
    after(Step::Begin).await;
    let sell = async |transaction: &mut Open<'_>| {
        let sql = format!("INSERT INTO {} VALUES ('under {}')", sale.table, job.token());
        transaction.execute(&sql).await?;
        after(Step::Write).await;
        Ok(job.token().get())
    };
    let seller = job.once_in(&mut transaction, "sell", sell).await?;
    after(Step::Record).await;
    job.complete_in(&mut transaction, &seller).await?;
    after(Step::Completion).await;
    transaction.commit().await;
    after(Step::Commit).await;
    Ok(seller)
}

/// Side by side: each waits for a claim to run out.
async fn killed_at_every_step(adapter: Adapter) {
    let steps = STEPS.map(|step| tokio::spawn(killed(adapter, step)));
    for step in steps {
        step.await.unwrap();
    }
}

async fn killed(adapter: Adapter, step: Step) {
    let fixture = Fixture::open().await;
    let directory = tempfile::tempdir().unwrap();
    let work_dir = WorkDirectory::new(directory.path());
    work_dir.put_up_sign(&super::cluster().url_text(&fixture.schema));
    let (url, table) = (fixture.url.clone(), fixture.table());
    let sale = Sale { adapter, killed_after: step, url, table };
    let job = fixture.fh.queue(QUEUE).job("sell", &sale).enqueue().await.unwrap().job_id;
    let start = |name| {
        let (tell, told) = mpsc::channel();
        let process = WorkerProcess::start("transaction::kills::the_worker", name, &work_dir, move |said| {
            // No one listens to the second.
            let _ = tell.send(said);
        });
        (process, told)
    };
    let (mut first, told) = start(FIRST);
    let first = tokio::task::spawn_blocking(move || {
        let said = told.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(said.what, AttemptEvent::Holds, "{adapter:?}, {step:?}");
        first.kill();
        said.attempt.1
    });
    let killed = first.await.unwrap();
    let (second, _told) = start("B");
    let seller = fixture.fh.jobs().result::<u64>(job, TIMEOUT).await.unwrap();
    tokio::task::spawn_blocking(|| second.finish()).await.unwrap();
    // What was committed was not undone, and what was not was done by a later attempt: one that says so.
    assert_eq!(seller == killed, step == Step::Commit, "{adapter:?}, {step:?}: {seller}");
    assert_eq!(fixture.written().await, format!("under {seller}"), "{adapter:?}, {step:?}");
    let detail = fixture.detail(job).await;
    assert_eq!(detail.job.state, JobState::Completed);
    let [effect] = &detail.effects[..] else { panic!("{:?}", detail.effects) };
    assert_eq!((effect.state, effect.value.as_deref()), (EffectState::Done, Some(&*seller.to_string())));
}

#[tokio::test]
async fn killed_at_any_step_of_a_transaction_of_tokio_postgres_it_has_happened_once() {
    killed_at_every_step(Adapter::TokioPostgres).await;
}

#[tokio::test]
async fn killed_at_any_step_of_a_transaction_of_sqlx_it_has_happened_once() {
    killed_at_every_step(Adapter::Sqlx).await;
}

#[tokio::test]
async fn killed_at_any_step_of_a_transaction_of_diesel_async_it_has_happened_once() {
    killed_at_every_step(Adapter::DieselAsync).await;
}

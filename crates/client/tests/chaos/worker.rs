//! The worker: each job records an effect, and in it appends a line. It holds still where a kill or a stop does most harm.

use std::sync::Arc;

use fencehold::{Job, JobError, blocking};
use serde::{Deserialize, Serialize};

use super::QUEUE;
use crate::worker_processes::{TTL, WorkerSide};

/// Where in its work an attempt holds still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PausePoint {
    Append,
    Record,
    Completion,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ChaosJob {
    pub(crate) number: u64,
    pub(crate) holds_before: PausePoint,
}

/// A worker, in a process of its own. Does nothing when it is run as one of the tests.
#[tokio::test]
async fn the_worker() {
    let Some(post) = WorkerSide::of_this_process().await else { return };
    let fh = post.work_dir.connect(&post.name).await;
    let (of_async, of_blocking) = (Arc::clone(&post), Arc::clone(&post));
    let worker = fh.worker().queue(QUEUE).concurrency(3).prefetch(0).ttl(TTL);
    let worker = worker.handle("async", move |job, task| work(job, task, Arc::clone(&of_async)));
    // It does not stop when its claim is lost: only fences and the store keep it from doing harm.
    let worker = worker.handle_blocking("blocking", move |job: blocking::Job, task| {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(work(job.as_async().clone(), task, Arc::clone(&of_blocking)))
    });
    worker.run_until(post.dismissed()).await.unwrap();
    fh.close().await;
}

async fn work(job: Job, task: ChaosJob, post: Arc<WorkerSide>) -> Result<u64, JobError> {
    let _work = post.begin(&job).await?;
    let moment = async |moment| {
        // Later attempts come through sooner or later.
        if task.holds_before == moment && job.attempt() <= 3 {
            post.hold(&job).await;
        }
    };
    let number = job
        .once("line", async |key| {
            moment(PausePoint::Append).await;
            post.append(&job, &key, &format!("{} under token {}", task.number, job.token()))
                .await?;
            moment(PausePoint::Record).await;
            Ok(task.number)
        })
        .await?;
    moment(PausePoint::Completion).await;
    Ok(number)
}

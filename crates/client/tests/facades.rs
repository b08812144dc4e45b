//! What other crates of an application see of the library: metrics, cancellation tokens, ids.

use fencehold::fence::FenceError;
use fencehold::testing::{ManualClockStore, TestJob};
use fencehold::transaction::TransactionError;
use fencehold::{
    BadInput, Error, Fencehold, Job, JobBuilder, JobError, JobHandle, JobId, JobQueue, Jobs, Leader, Lease,
    LeaseWatch, Observer, Operation, OperationError, Operations, RunningWorker, TypedJob, blocking,
};
use fencehold_test_servers::is_alone;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::gated_store::{GatedFixture, RENEWED_BY_MS, done, secs, within};

#[derive(serde::Serialize, serde::Deserialize)]
struct Email;

impl TypedJob for Email {
    const KIND: &'static str = "email";
    type Result = ();
}

#[tokio::test]
async fn leases_and_attempts_are_counted_under_the_names_of_the_server() {
    if !is_alone("facades::leases_and_attempts_are_counted_under_the_names_of_the_server") {
        return;
    }
    let recorder = DebuggingRecorder::new();
    let seen = recorder.snapshotter();
    recorder.install().unwrap();
    let fixture = GatedFixture::new().await;
    done(fixture.fh.lease("a").acquire()).await.release().await.unwrap();
    let lost = done(fixture.fh.lease("b").ttl(secs(10)).acquire()).await;
    fixture.revoke("b").await;
    fixture.pass(RENEWED_BY_MS);
    within(lost.lost()).await;
    let (ok, fails) = (fixture.enqueue("ok").await, fixture.enqueue("fails").await);
    let worker = fixture
        .worker()
        .handle("ok", async || {})
        .handle("fails", async || Err::<(), _>("no"))
        .start()
        .unwrap();
    within(fixture.fh.jobs().result::<()>(ok, secs(60))).await.unwrap();
    fixture.until_failed(fails).await;
    done(worker.drain()).await;
    let lines: Vec<String> = seen
        .snapshot()
        .into_vec()
        .into_iter()
        .filter_map(|(key, _, _, value)| {
            let (_, key) = key.into_parts();
            let labels: Vec<String> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            match value {
                DebugValue::Counter(count) => Some(format!("{} {} {count}", key.name(), labels.join(","))),
                DebugValue::Histogram(samples) => {
                    Some(format!("{} {} {}", key.name(), labels.join(","), samples.len()))
                }
                DebugValue::Gauge(_) => None,
            }
        })
        .collect();
    for line in [
        "fencehold_leases_acquired_total  2",
        "fencehold_acquire_wait_duration_seconds  2",
        "fencehold_leases_ended_total outcome=released 1",
        "fencehold_leases_ended_total outcome=revoked 1",
        "fencehold_renewals_total outcome=refused 1",
        "fencehold_jobs_enqueued_total  2",
        "fencehold_job_attempts_started_total queue=q,kind=ok 1",
        "fencehold_job_attempts_ended_total queue=q,kind=ok,outcome=completed 1",
        "fencehold_job_attempts_ended_total queue=q,kind=fails,outcome=failed 1",
        "fencehold_job_attempt_duration_seconds queue=q,kind=fails,outcome=failed 1",
    ] {
        assert!(lines.iter().any(|seen| seen == line), "{line} is not in {lines:#?}");
    }
}

#[tokio::test]
async fn a_cancellation_token_is_cancelled_when_its_lease_is_over() {
    let fixture = GatedFixture::new().await;
    let lease = done(fixture.fh.lease("a").ttl(secs(10)).acquire()).await;
    let token = lease.cancellation_token();
    assert!(!token.is_cancelled());
    fixture.revoke("a").await;
    fixture.pass(10_000);
    within(token.cancelled()).await;
}

#[tokio::test]
async fn a_cancellation_token_is_cancelled_when_its_job_should_stop() {
    async fn until_cancelled(job: Job) -> Result<bool, JobError> {
        let token = job.cancellation_token();
        token.cancelled().await;
        Ok(job.is_cancelled())
    }
    let fixture = GatedFixture::new().await;
    let worker = fixture.worker().handle("k", until_cancelled).start().unwrap();
    fixture.enqueue("k").await;
    within(async {
        while worker.running() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(done(worker.drain()).await.finished, 1);

    let test = TestJob::new("k", &());
    let control = test.control();
    let (run, ()) =
        within(async { tokio::join!(test.run(until_cancelled), async { control.cancel() }) }).await;
    assert_eq!(run.result(), Some(true));
}

#[test]
fn an_id_of_a_job_is_a_uuid() {
    let id = JobId::from_random(1_800_000_000_000, [7; 10]);
    let uuid = uuid::Uuid::from(id);
    assert_eq!((uuid.to_string(), JobId::from(uuid)), (id.to_string(), id));
}

#[test]
fn what_a_program_keeps_can_go_to_another_thread_and_its_errors_into_any_other() {
    fn moves<T: Send + Sync + 'static>() {}
    fn fails<E: std::error::Error + Send + Sync + 'static>() {}
    moves::<(Fencehold, Lease, Leader, Observer, LeaseWatch)>();
    moves::<(JobQueue, JobBuilder, Jobs, JobHandle<Email>, Job, Operation, Operations)>();
    moves::<(RunningWorker, TestJob, ManualClockStore, blocking::Fencehold, blocking::Job)>();
    fails::<Error>();
    fails::<FenceError>();
    fails::<TransactionError>();
    fails::<OperationError<std::io::Error>>();
    fails::<BadInput>();
}

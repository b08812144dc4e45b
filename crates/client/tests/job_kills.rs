//! Jobs whose workers are stopped or killed where it hurts most, as real processes: taking over (R06, R09), effects
//! (R17), and undoing what was done.
//!
//! Everything is ordered by what processes say and by what the store tells. That a claim runs out takes its real time.

#![allow(clippy::print_stdout, reason = "a race prints its trace")]

use std::fs;
use std::io::Write;
use std::sync::{Arc, mpsc};

use fencehold::job::{
    AttemptOutcome, CompensationState, EffectState, FindingKind, JobState, ListEffectsRequest,
};
use fencehold::store::ListEventsRequest;
use fencehold::{
    BlockedAction, Error, Event, EventData, Fencehold, InDoubtPolicy, Job, JobError, JobId, blocking,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::worker_processes::{
    AttemptEvent, AttemptKey, ProcessEvent, TIMEOUT, TTL, WorkDirectory, WorkerProcess, WorkerSide,
};

const QUEUE: &str = "kills";
/// The worker that runs two jobs at once.
const TWO_SLOTS: &str = "W";
/// Comes back as often as it takes.
const CRASHES: u16 = 1_000;

/// Before which step of its work the first attempt holds still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum KillPoint {
    Append,
    Record,
    Completion,
}

/// A worker, in a process of its own. Does nothing when it is run as one of the tests.
#[tokio::test]
async fn the_worker() {
    let Some(post) = WorkerSide::of_this_process().await else { return };
    let fh = post.work_dir.connect(&post.name).await;
    let of = || Arc::clone(&post);
    let (for_lines, for_charges, for_trips, for_undoing) = (of(), of(), of(), of());
    // One who has a slot free stands in line, and would be given the job while it is stopped.
    let slots = if post.name == TWO_SLOTS { 2 } else { 1 };
    let worker = fh.worker().queue(QUEUE).concurrency(slots).prefetch(0).ttl(TTL);
    let worker = worker
        .handle("charge", move |job, policy| charge(job, policy, Arc::clone(&for_charges)))
        .handle("trip", move |job, ()| trip(job, Arc::clone(&for_trips)))
        .handle("undo", move |job, what| undo(job, what, Arc::clone(&for_undoing)))
        // A blocking handler goes on when its claim is lost: only fences and the store keep it from doing harm.
        .handle_blocking("line", move |job: blocking::Job, held| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(line(job.as_async().clone(), held, Arc::clone(&for_lines)))
        });
    worker.run_until(post.dismissed()).await.unwrap();
    fh.close().await;
}

/// Appends one line in an effect. Its result says under which token.
async fn line(job: Job, held: KillPoint, post: Arc<WorkerSide>) -> Result<u64, JobError> {
    let _work = post.begin(&job).await?;
    let before = async |step| {
        if job.attempt() == 1 && step == held {
            post.hold(&job).await;
        }
    };
    let effect = job.once("line", async |key| {
        before(KillPoint::Append).await;
        post.append(&job, &key, "the line").await?;
        before(KillPoint::Record).await;
        Ok(())
    });
    effect.await?;
    before(KillPoint::Completion).await;
    Ok(job.token().get())
}

/// Calls a service that writes down every call and its key, and is killed before it can record that it did.
async fn charge(job: Job, policy: Option<InDoubtPolicy>, post: Arc<WorkerSide>) -> Result<(), JobError> {
    let _work = post.begin(&job).await?;
    let call = async |key: String| {
        let mut calls = fs::OpenOptions::new().append(true).create(true).open(post.work_dir.file())?;
        writeln!(calls, "{key}")?;
        if job.attempt() == 1 {
            post.hold(&job).await;
        }
        Ok(())
    };
    match policy {
        Some(policy) => job.once_with_intent("charge", policy, call).await,
        None => job.once("charge", call).await,
    }
}

/// Three effects, each with what undoes it; then it fails for good.
async fn trip(job: Job, post: Arc<WorkerSide>) -> Result<(), JobError> {
    let _work = post.begin(&job).await?;
    for name in ["flight", "hotel", "car"] {
        let book = job.once(name, async |key| {
            post.append(&job, &key, &format!("book {name}")).await?;
            if job.attempt() == 1 && name == "hotel" {
                post.hold(&job).await;
            }
            Ok(())
        });
        book.compensate_with("undo", name).await?;
    }
    Err(JobError::new("there is no boat").permanent())
}

/// Every one is killed at its first attempt: the hotel's before it did anything, the others' when they had.
async fn undo(job: Job, name: String, post: Arc<WorkerSide>) -> Result<(), JobError> {
    let _work = post.begin(&job).await?;
    if job.attempt() == 1 && name == "hotel" {
        post.hold(&job).await;
    }
    let key = job.idempotency_key("undo")?;
    post.append(&job, &key, &format!("undo {name}")).await?;
    if job.attempt() == 1 && name != "hotel" {
        post.hold(&job).await;
    }
    Ok(())
}

/// A room, a handle on its store, and what is known of it so far.
struct KillFixture {
    _directory: TempDir,
    work_dir: WorkDirectory,
    fh: Fencehold,
    seen: u64,
}

impl KillFixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let work_dir = WorkDirectory::new(directory.path());
        let fh = work_dir.connect("test").await;
        KillFixture { _directory: directory, work_dir, fh, seen: 0 }
    }

    async fn enqueue(&self, kind: &str, payload: &impl Serialize) -> JobId {
        let job = self.fh.queue(QUEUE).job(kind, payload).max_crashes(CRASHES);
        job.enqueue().await.unwrap().job_id
    }

    fn start(&self, name: &str) -> (WorkerProcess, mpsc::Receiver<ProcessEvent>) {
        let (tell, told) = mpsc::channel();
        let process = WorkerProcess::start("job_kills::the_worker", name, &self.work_dir, move |said| {
            drop(tell.send(said));
        });
        (process, told)
    }

    /// The next thing that the store tells and that is of interest.
    async fn next<T>(&mut self, interest: impl Fn(&Event) -> Option<T>) -> T {
        loop {
            let request = ListEventsRequest {
                cursor: Some(self.seen),
                limit: 1,
                wait_ms: 60_000,
                ..Default::default()
            };
            let page = self.fh.store().list_events(&self.fh.call(), request).await.unwrap();
            assert!(!page.events.is_empty(), "the store has nothing more to tell");
            self.seen = page.next_cursor;
            if let Some(found) = page.events.first().and_then(&interest) {
                return found;
            }
        }
    }

    /// The next claim, as a line of a trace.
    async fn acquired(&mut self) -> Value {
        self.next(|Event { key, data: fact, .. }| match fact {
            EventData::JobClaimed { token, owner, .. } => {
                Some(json!({"event": "lease_acquired", "key": key, "token": token, "owner": owner}))
            }
            _ => None,
        })
        .await
    }

    /// The next claim that runs out, as a line of a trace.
    async fn expired(&mut self) -> Value {
        self.next(|Event { key, data: fact, .. }| match fact {
            EventData::JobAttemptEnded { token, outcome: AttemptOutcome::Crashed, .. } => {
                Some(json!({"event": "lease_expired", "key": key, "token": token, "forced": true}))
            }
            _ => None,
        })
        .await
    }

    /// The next write that is refused to this attempt, which is late, as a line of a trace.
    async fn blocked(&mut self, late: &AttemptKey) -> (BlockedAction, Value) {
        self.next(|Event { key, data: fact, .. }| match fact {
            // Renewals are refused, too, while the late one still works.
            EventData::StaleWriteBlocked { action: BlockedAction::Renew, .. } => None,
            EventData::StaleWriteBlocked { token: stale_token, current_token, action: attempted, .. }
                if stale_token.get() == late.1 =>
            {
                assert!(current_token > stale_token, "{current_token}");
                let blocked = json!({
                    "event": "stale_write_blocked", "key": key, "stale_token": stale_token,
                    "current_token": current_token, "reason": "superseded",
                });
                Some((*attempted, blocked))
            }
            _ => None,
        })
        .await
    }
}

/// Waits until a worker says this.
fn hear(told: &mpsc::Receiver<ProcessEvent>, what: AttemptEvent) -> AttemptKey {
    loop {
        let said = told.recv_timeout(TIMEOUT).expect("it says something");
        if said.what == what {
            return said.attempt;
        }
    }
}

fn started((key, token): &AttemptKey) -> Value {
    json!({"event": "execution_started", "key": key, "token": token})
}

fn left(owner: &str, reason: &str) -> Value {
    json!({"event": "worker_exit", "owner": owner, "reason": reason})
}

/// Prints a trace as JSON lines, and says what happened in it in which order.
fn printed(race: &str, trace: &[Value]) -> Vec<String> {
    for line in trace {
        println!("{race} {line}");
    }
    trace.iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect()
}

/// The line and the effect are there once; the job is completed, with the result of another attempt than this late one.
/// Gives whether it was the late one that recorded the effect.
async fn assert_done_once_after(fixture: &KillFixture, id: JobId, late: &AttemptKey) -> bool {
    let detail = fixture.fh.jobs().get(id).await.unwrap();
    assert_eq!(detail.job.state, JobState::Completed);
    let completed_under: u64 = detail.result.unwrap().parse().unwrap();
    assert!(completed_under > late.1, "{completed_under}");
    let [effect] = &detail.effects[..] else { panic!("{:?}", detail.effects) };
    assert_eq!(effect.state, EffectState::Done);
    assert_eq!(fixture.work_dir.lines(), ["the line"]);
    effect.token.get() == late.1
}

/// R06: A stalls before `held`, its claim runs out, B has the job and completes it; then A goes on.
async fn complete_after_takeover(held: KillPoint, refused: BlockedAction) {
    let mut fixture = KillFixture::new().await;
    let id = fixture.enqueue("line", &held).await;
    let (mut a, a_told) = fixture.start("A");
    let mut trace = vec![fixture.acquired().await];
    let of_a = hear(&a_told, AttemptEvent::Holds);
    trace.push(started(&of_a));
    a.stop();
    trace.push(fixture.expired().await);

    let (b, b_told) = fixture.start("B");
    trace.push(fixture.acquired().await);
    let of_b = hear(&b_told, AttemptEvent::Begun);
    trace.push(started(&of_b));
    assert!(of_b.0 == of_a.0 && of_b.1 > of_a.1, "{of_a:?}, {of_b:?}");
    fixture.fh.jobs().result::<u64>(id, TIMEOUT).await.unwrap();
    trace.push(left("B", "success"));

    a.let_go(&of_a);
    a.resume();
    let (attempted, blocked) = fixture.blocked(&of_a).await;
    assert_eq!(attempted, refused);
    trace.extend([blocked, left("A", "stale")]);
    if held == KillPoint::Append {
        assert_eq!(hear(&a_told, AttemptEvent::Refused), of_a, "the fence has seen the second token");
    }
    a.finish();
    b.finish();
    let events = printed("R06", &trace);
    let takeover =
        ["lease_acquired", "execution_started", "lease_expired", "lease_acquired", "execution_started"];
    assert_eq!(events[..5], takeover);
    assert_eq!(events[5..], ["worker_exit", "stale_write_blocked", "worker_exit"]);
    let recorded_by_a = assert_done_once_after(&fixture, id, &of_a).await;
    assert_eq!(recorded_by_a, held == KillPoint::Completion);
}

#[tokio::test]
async fn r06_one_who_slept_before_its_append_is_refused_by_the_fence_and_its_word_by_the_store() {
    complete_after_takeover(KillPoint::Append, BlockedAction::Fail).await;
}

#[tokio::test]
async fn r06_one_who_slept_before_its_record_records_nothing() {
    complete_after_takeover(KillPoint::Record, BlockedAction::RecordEffect).await;
}

#[tokio::test]
async fn r06_one_who_slept_before_its_completion_completes_nothing() {
    complete_after_takeover(KillPoint::Completion, BlockedAction::Complete).await;
}

#[tokio::test]
async fn r09_of_one_worker_with_two_attempts_the_first_is_stale() {
    let mut fixture = KillFixture::new().await;
    let id = fixture.enqueue("line", &KillPoint::Completion).await;
    let (mut w, told) = fixture.start(TWO_SLOTS);
    let mut trace = vec![fixture.acquired().await];
    let first = hear(&told, AttemptEvent::Holds);
    trace.push(started(&first));
    w.stop();
    trace.push(fixture.expired().await);
    w.resume();
    // Its first thread stands where it stood; its second takes the job again.
    trace.push(fixture.acquired().await);
    let second = hear(&told, AttemptEvent::Begun);
    trace.push(started(&second));
    assert!(second.0 == first.0 && second.1 > first.1, "{first:?}, {second:?}");
    fixture.fh.jobs().result::<u64>(id, TIMEOUT).await.unwrap();

    w.let_go(&first);
    let (attempted, blocked) = fixture.blocked(&first).await;
    assert_eq!(attempted, BlockedAction::Complete);
    trace.push(blocked);
    w.finish();
    trace.push(left("W", "success"));
    assert_eq!((&trace[0]["owner"], &trace[3]["owner"]), (&json!("W"), &json!("W")), "one name");
    printed("R09", &trace);
    assert!(assert_done_once_after(&fixture, id, &first).await, "it was recorded before it slept");
}

/// Starts a worker, kills it where it first holds still, and starts the next.
fn kill_where_it_holds(fixture: &KillFixture) -> (WorkerProcess, mpsc::Receiver<ProcessEvent>) {
    let (mut first, told) = fixture.start("A");
    hear(&told, AttemptEvent::Holds);
    first.kill();
    fixture.start("B")
}

/// R17
#[tokio::test]
async fn killed_between_effect_and_record_the_second_attempt_calls_under_the_same_key() {
    let fixture = KillFixture::new().await;
    for policy in [None, Some(InDoubtPolicy::Retry)] {
        let id = fixture.enqueue("charge", &policy).await;
        let (second, _told) = kill_where_it_holds(&fixture);
        fixture.fh.jobs().result::<()>(id, TIMEOUT).await.unwrap();
        second.finish();
        let calls = fixture.work_dir.lines();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert_eq!(calls[0], calls[1], "the service knows the repetition by its key");
        assert_eq!(fixture.fh.jobs().get(id).await.unwrap().effects.len(), 1);
        fs::remove_file(fixture.work_dir.file()).unwrap();
    }
}

/// R17
#[tokio::test]
async fn killed_after_an_intent_that_asks_the_job_stops_for_a_person() {
    let mut fixture = KillFixture::new().await;
    let id = fixture.enqueue("charge", &Some(InDoubtPolicy::Manual)).await;
    let (second, _told) = kill_where_it_holds(&fixture);
    let stopped = |event: &Event| {
        matches!(&event.data, EventData::JobAttemptEnded { outcome: AttemptOutcome::InDoubt, .. })
            .then_some(())
    };
    fixture.next(stopped).await;
    second.finish();
    assert_eq!(fixture.work_dir.lines().len(), 1, "no second call");
    let request = ListEffectsRequest { cursor: None, limit: 10 };
    let findings = fixture.fh.jobs().effects(request).await.unwrap().effects;
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.job_id, id);
    assert_eq!((finding.finding, finding.job_state), (FindingKind::InDoubt, JobState::InDoubt));
}

/// The process that is killed owns the directory, too: no other process is there.
#[tokio::test]
async fn however_often_it_is_killed_a_failed_job_is_undone_backwards_and_once() {
    let mut fixture = KillFixture::new().await;
    let id = fixture.enqueue("trip", &()).await;
    fixture.fh.close().await;
    // In the second booking, and in each of the three undo jobs.
    for nth in 1..=4 {
        let (mut worker, told) = fixture.start(&format!("worker-{nth}"));
        hear(&told, AttemptEvent::Holds);
        worker.kill();
    }
    let (last, _told) = fixture.start("worker-5");
    fixture.fh = fixture.work_dir.connect("test").await;
    let failed = fixture.fh.jobs().result::<()>(id, TIMEOUT).await;
    assert!(matches!(failed, Err(Error::JobFailed { state: JobState::Failed, .. })), "{failed:?}");
    fixture
        .next(|event| {
            matches!(&event.data, EventData::EffectCompensationEnded { effect, .. } if effect == "flight")
                .then_some(())
        })
        .await;
    last.finish();
    let detail = fixture.fh.jobs().get(id).await.unwrap();
    assert_eq!(detail.job.compensation_state, CompensationState::Done);
    for effect in &detail.effects {
        assert_eq!(effect.state, EffectState::Compensated, "{}", effect.name);
    }
    let story = ["book flight", "book hotel", "book car", "undo car", "undo hotel", "undo flight"];
    assert_eq!(fixture.work_dir.lines(), story);
    let counts = fixture.fh.jobs().counts().await.unwrap();
    assert_eq!((counts.get(JobState::Failed), counts.get(JobState::Completed)), (1, 3));
}

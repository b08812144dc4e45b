//! The thread around the engine: answers go out after their batch was kept, and to a caller that is there.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use fencehold_conformance::assert_matches;
use fencehold_contract::clock::ManualClock;
use fencehold_contract::job::{BeginOperationRequest, OperationStatus};
use fencehold_contract::operation::{CallHold, JobRequest, JobResponse, StoreRequest, StoreResponse};
use fencehold_contract::{AcquireLeaseRequest, HoldRef, LeaseView, StoreError};
use fencehold_core::Namespace;
use fencehold_core::job::{JobId, JobState, UniqueKey};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::ledger::InDoubtPolicy;

use super::super::jobs::{Archive, MemoryArchive};
use super::super::persistence::{Changes, MemoryPersistence, PersistError, Persistence};
use super::super::writer::BATCH_REQUESTS_MAX;
use super::super::{Handle, Writer};
use super::{Engine, acquired, key, request};

type Result<T> = std::result::Result<T, StoreError>;

/// Longer than any answer takes: only a broken writer waits for it.
const LONG: Duration = Duration::from_secs(20);

fn start(persistence: impl Persistence + 'static) -> Writer {
    Writer::start("test", Arc::new(ManualClock::new()), Engine::new(), persistence, true, |_, _, _| {})
        .unwrap()
}

/// Sends a request whose answer is taken, or not.
fn send(handle: &Handle, ask: StoreRequest, taken: bool) -> Receiver<Result<StoreResponse>> {
    let (sender, answer) = mpsc::channel();
    let reply = Box::new(move |result| {
        let _ = sender.send(result);
        taken
    });
    handle.send(Namespace::default(), ask, u64::MAX, reply).unwrap();
    answer
}

/// Sends a request, and waits for the answer.
fn answer(handle: &Handle, ask: StoreRequest) -> Result<StoreResponse> {
    send(handle, ask, true).recv_timeout(LONG).unwrap()
}

fn view(handle: &Handle) -> LeaseView {
    assert_matches!(answer(handle, StoreRequest::Get(key("k"))), Ok(StoreResponse::Lease(Some(view))) => view)
}

fn take(handle: &Handle, request: AcquireLeaseRequest) -> HoldRef {
    acquired(request.hold_id, answer(handle, StoreRequest::Acquire(request)))
}

/// A writer whose batches arrive at a gate, and go on as they are let.
fn gated() -> (Writer, Receiver<Changes>, Sender<std::result::Result<(), PersistError>>) {
    let (arrived, at_gate) = mpsc::channel();
    let (open, go_on) = mpsc::channel();
    (start(GatedPersistence { arrived, go_on, archive: MemoryArchive::default() }), at_gate, open)
}

/// R14: no caller takes the response, so the key is free again before the next response.
#[test]
fn a_grant_that_nobody_takes_is_given_back() {
    let writer = start(MemoryPersistence::default());
    let handle = &writer.handle;
    let held = take(handle, request("k", 1));
    let waiter = AcquireLeaseRequest { wait_ms: 60_000, ..request("k", 2) };
    let never_taken = send(handle, StoreRequest::Acquire(waiter), false);
    answer(handle, StoreRequest::Release(vec![held])).unwrap();
    assert!(matches!(never_taken.recv_timeout(LONG).unwrap(), Ok(StoreResponse::Acquired(_))));
    let view = view(handle);
    assert_eq!(view.holder, None);
    let endings: Vec<_> = view.endings.iter().map(|ending| ending.outcome).collect();
    assert_eq!(endings, [LeaseOutcome::Released, LeaseOutcome::Abandoned]);
}

/// R13: the same request was sent twice, and one of the two was answered: that one has the lease.
#[test]
fn a_grant_that_one_of_two_sendings_takes_is_kept() {
    let writer = start(MemoryPersistence::default());
    let handle = &writer.handle;
    take(handle, request("k", 1));
    // The caller of the second sending has gone, but it is not a fresh grant.
    let again = AcquireLeaseRequest { hold_id_age_ms: 1, ..request("k", 1) };
    send(handle, StoreRequest::Acquire(again), false)
        .recv_timeout(LONG)
        .unwrap()
        .unwrap();
    assert_eq!(view(handle).holder.unwrap().owner.as_str(), "owner-1");
}

/// Sends the request again, as a call that was the only one to send it or not, and drops the answer once it is there.
fn drop_the_answer_to_a_repeat(handle: &Handle, own: bool) {
    let again = AcquireLeaseRequest { hold_id_age_ms: 1, ..request("k", 1) };
    let claim = CallHold { hold: again.hold_id, own };
    let asked = handle.ask(Namespace::default(), StoreRequest::Acquire(again), Some(claim), u64::MAX);
    // Whatever is asked later is answered later.
    view(handle);
    drop(asked);
}

/// R14: an owner granted it and went before its answer arrived; the next one was asked again, by a call that has gone.
#[test]
fn a_resumed_grant_that_only_this_call_can_know_of_is_given_back() {
    let writer = start(MemoryPersistence::default());
    take(&writer.handle, request("k", 1));
    drop_the_answer_to_a_repeat(&writer.handle, true);
    assert_eq!(view(&writer.handle).holder, None);
}

/// P7: an earlier call may have been answered, and be at work.
#[test]
fn a_resumed_grant_that_an_earlier_call_may_have_is_left_alone() {
    let writer = start(MemoryPersistence::default());
    take(&writer.handle, request("k", 1));
    drop_the_answer_to_a_repeat(&writer.handle, false);
    assert_eq!(view(&writer.handle).holder.unwrap().owner.as_str(), "owner-1");
}

/// The same, where the asker goes before it is answered.
#[test]
fn a_resumed_grant_whose_asker_left_the_line_is_given_back() {
    let (writer, at_gate, open) = gated();
    let handle = &writer.handle;
    let taken = send(handle, StoreRequest::Acquire(request("k", 1)), true);
    at_gate.recv_timeout(LONG).unwrap();
    // Both come while the engine is held, so they are in one batch.
    let again = AcquireLeaseRequest { hold_id_age_ms: 1, ..request("k", 1) };
    let claim = CallHold { hold: again.hold_id, own: true };
    drop(handle.ask(Namespace::default(), StoreRequest::Acquire(again), Some(claim), u64::MAX));
    drop(open);
    taken.recv_timeout(LONG).unwrap().unwrap();
    // This may be decided in that batch too, before it is known that the caller has gone.
    view(handle);
    assert_eq!(view(handle).holder, None);
}

/// R13: a call was cut off before it took its answer, and the same hold id was sent again: its sender works under it.
#[test]
fn a_call_that_is_found_gone_after_a_repeat_was_answered_gives_nothing_back() {
    let writer = start(MemoryPersistence::default());
    let handle = &writer.handle;
    let claim = CallHold { hold: request("k", 1).hold_id, own: true };
    let cut_off =
        handle.ask(Namespace::default(), StoreRequest::Acquire(request("k", 1)), Some(claim), u64::MAX);
    take(handle, AcquireLeaseRequest { hold_id_age_ms: 1, ..request("k", 1) });
    drop(cut_off);
    assert_eq!(view(handle).holder.unwrap().owner.as_str(), "owner-1");
}

/// The same of an operation, both sendings in one batch.
#[test]
fn an_operation_that_one_of_two_sendings_takes_is_kept() {
    let (writer, at_gate, open) = gated();
    let handle = &writer.handle;
    let _held = send(handle, StoreRequest::Acquire(request("k", 1)), true);
    at_gate.recv_timeout(LONG).unwrap();
    let AcquireLeaseRequest { hold_id: hold, owner, ttl_ms, .. } = request("k", 2);
    let id = JobId::from_random(1, [7; 10]);
    let begin = BeginOperationRequest {
        job_id: id,
        idempotency_key: UniqueKey::new("pay-42").unwrap(),
        payload: "1".into(),
        hold_id: hold,
        owner,
        ttl_ms,
        idempotency_window_ms: 60_000,
        in_doubt_policy: InDoubtPolicy::Manual,
    };
    let _gone = send(handle, StoreRequest::Job(JobRequest::BeginOperation(begin.clone())), false);
    let again = send(handle, StoreRequest::Job(JobRequest::BeginOperation(begin)), true);
    drop(open);
    let told = again.recv_timeout(LONG).unwrap();
    let told = assert_matches!(told, Ok(StoreResponse::Job(JobResponse::BegunOperation(Ok(told)))) => told);
    assert_matches!(told.operation, OperationStatus::Started { .. });
    let job = answer(handle, StoreRequest::Job(JobRequest::Get(id)));
    let detail = assert_matches!(job, Ok(StoreResponse::Job(JobResponse::Job(Some(detail)))) => detail);
    assert_eq!(detail.job.state, JobState::Running);
}

/// Keeps a batch when it is asked to, and as it is asked.
struct GatedPersistence {
    arrived: Sender<Changes>,
    go_on: Receiver<std::result::Result<(), PersistError>>,
    archive: MemoryArchive,
}

impl Persistence for GatedPersistence {
    const KEEPS: bool = true;

    fn keep(&mut self, changes: &mut Changes) -> std::result::Result<(), PersistError> {
        self.arrived.send(changes.clone()).unwrap();
        let end = self.go_on.recv().unwrap_or(Ok(()));
        if end.is_ok() {
            changes.jobs.drain(..).for_each(|change| self.archive.take(change));
        }
        end
    }

    fn confirm(&mut self) -> std::result::Result<(), PersistError> {
        self.arrived.send(Changes::default()).unwrap();
        self.go_on.recv().unwrap_or(Ok(()))
    }

    fn tidy(&mut self, _: bool) -> std::result::Result<(), PersistError> {
        Ok(())
    }

    fn archive(&mut self) -> &mut dyn Archive {
        &mut self.archive
    }
}

/// However many come while a batch is kept: the first of them waits for a bounded number of others, not for all.
#[test]
fn a_flood_is_taken_in_batches_that_have_their_bound() {
    let (writer, batches, let_go) = gated();
    let first = send(&writer.handle, StoreRequest::Acquire(request("first", 0)), true);
    batches.recv_timeout(LONG).unwrap();
    let many = 2 * BATCH_REQUESTS_MAX as u64 + 100;
    let ask = |nth| send(&writer.handle, StoreRequest::Acquire(request(&format!("k{nth}"), nth)), true);
    let flood: Vec<_> = (1..=many).map(ask).collect();
    drop(let_go);
    for answer in std::iter::once(first).chain(flood) {
        assert!(matches!(answer.recv_timeout(LONG), Ok(Ok(StoreResponse::Acquired(_)))));
    }
    let sizes: Vec<usize> = batches.try_iter().map(|changes| changes.rows.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>() as u64, many);
    assert!(sizes.iter().all(|size| *size <= BATCH_REQUESTS_MAX), "{sizes:?}");
}

/// P6: what is acknowledged was kept before.
#[test]
fn no_answer_goes_out_before_its_batch_was_kept() {
    let (writer, at_gate, open) = gated();
    let answer = send(&writer.handle, StoreRequest::Acquire(request("k", 1)), true);
    let changes = at_gate.recv_timeout(LONG).unwrap();
    assert!(changes.durable && !changes.rows.is_empty() && !changes.events.is_empty());
    assert!(answer.try_recv().is_err(), "it has not been kept yet");
    open.send(Ok(())).unwrap();
    assert!(answer.recv_timeout(LONG).unwrap().is_ok());

    // One that changes nothing waits until it is sure that this is still the one that serves.
    let answer = send(&writer.handle, StoreRequest::Get(key("k")), true);
    assert!(at_gate.recv_timeout(LONG).unwrap().is_empty());
    assert!(answer.try_recv().is_err());
    open.send(Ok(())).unwrap();
    assert!(answer.recv_timeout(LONG).unwrap().is_ok());
}

/// R26: nothing is acknowledged that may be gone.
#[test]
fn a_batch_that_could_not_be_kept_is_never_answered() {
    for error in [PersistError::Failed("no space".to_owned()), PersistError::Superseded] {
        let (writer, at_gate, open) = gated();
        let answer = send(&writer.handle, StoreRequest::Acquire(request("k", 1)), true);
        at_gate.recv_timeout(LONG).unwrap();
        open.send(Err(error)).unwrap();
        // The reply is dropped unused: the caller learns that the engine has stopped.
        assert_eq!(answer.recv_timeout(LONG).err(), Some(mpsc::RecvTimeoutError::Disconnected));
        drop(writer);
    }
}

/// A disk that is busy for a moment is asked again, with the same batch.
#[test]
fn a_batch_that_met_a_busy_disk_is_kept_later() {
    let (writer, at_gate, open) = gated();
    let answer = send(&writer.handle, StoreRequest::Acquire(request("k", 1)), true);
    let first = at_gate.recv_timeout(LONG).unwrap();
    open.send(Err(PersistError::Busy("another write".to_owned()))).unwrap();
    let second = at_gate.recv_timeout(LONG).unwrap();
    assert_eq!(first, second);
    open.send(Ok(())).unwrap();
    assert!(answer.recv_timeout(LONG).unwrap().is_ok());
}

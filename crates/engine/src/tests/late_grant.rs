//! R14: a grant whose caller has gone, of a lease or of an operation.

use fencehold_conformance::assert_matches;
use fencehold_contract::job::{BeginOperationRequest, OperationStatus};
use fencehold_contract::operation::{JobRequest, JobResponse, StoreRequest, StoreResponse};
use fencehold_contract::{AcquireLeaseRequest, HoldRef};
use fencehold_core::job::{JobId, UniqueKey};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::ledger::InDoubtPolicy;

use super::super::state::{Granted, ResponseBody};
use super::{OutgoingResponse, TestEngine, request};

fn granted_to(answers: &[OutgoingResponse], ticket: super::Ticket) -> Granted {
    let answered = answers.iter().find(|answered| answered.ticket == ticket).expect("an answer");
    assert_matches!(answered.result, ResponseBody::Said(Ok(StoreResponse::Acquired(_))));
    answered.granted.clone().expect("a grant says where")
}

fn release(rig: &mut TestEngine, hold: &HoldRef) -> Vec<OutgoingResponse> {
    rig.ask(StoreRequest::Release(vec![hold.clone()])).1
}

#[test]
fn a_grant_that_finds_nobody_goes_to_the_next_in_line_under_a_larger_token() {
    let mut rig = TestEngine::new();
    let holder = rig.take(request("k", 1));
    let (gone, next) = (rig.in_line(2, 60_000), rig.in_line(3, 60_000));
    let granted = granted_to(&release(&mut rig, &holder), gone);
    assert!(matches!(granted, Granted::Lease { fresh: true, .. }));
    rig.engine.abandon(rig.now, granted, &mut rig.archive);
    let (changes, answers) = rig.engine.take_batch(true);
    granted_to(&answers, next);
    assert!(changes.durable, "the next grant is a promise");
    let view = rig.view("k").unwrap();
    assert_eq!(view.holder.unwrap().owner.as_str(), "owner-3");
    let endings = view.endings.iter();
    let endings: Vec<_> = endings.map(|ending| (ending.owner.as_str(), ending.outcome)).collect();
    assert_eq!(endings, [("owner-1", LeaseOutcome::Released), ("owner-2", LeaseOutcome::Abandoned)]);
    assert!(view.token > view.endings[1].token);
}

/// By the time that it is known that the caller was gone, another may hold the key.
#[test]
fn abandoning_a_hold_that_is_over_does_nothing() {
    let mut rig = TestEngine::new();
    let holder = rig.take(request("k", 1));
    let gone = rig.in_line(2, 60_000);
    let granted = granted_to(&release(&mut rig, &holder), gone);
    rig.pass(super::TTL_MS);
    let newer = rig.take(request("k", 3));
    rig.engine.abandon(rig.now, granted, &mut rig.archive);
    assert_eq!(rig.renew(&newer), Ok(newer.token));
}

#[test]
fn one_that_was_cancelled_before_its_turn_is_granted_nothing() {
    let mut rig = TestEngine::new();
    let holder = rig.take(request("k", 1));
    let gone = rig.in_line(2, 60_000);
    rig.engine.cancel(rig.now, gone);
    let answers = release(&mut rig, &holder);
    assert!(answers.iter().all(|answered| answered.ticket != gone));
    assert_eq!(rig.view("k").unwrap().holder, None);
}

/// The same operation, begun by another request each time.
fn begin(nth: u64) -> StoreRequest {
    let AcquireLeaseRequest { hold_id, owner, ttl_ms, .. } = request("k", nth);
    StoreRequest::Job(JobRequest::BeginOperation(BeginOperationRequest {
        job_id: JobId::from_random(nth, [7; 10]),
        idempotency_key: UniqueKey::new("pay-7").unwrap(),
        payload: "7".into(),
        hold_id,
        owner,
        ttl_ms,
        idempotency_window_ms: 60_000,
        in_doubt_policy: InDoubtPolicy::Manual,
    }))
}

/// What a beginning is given, if the operation is its own to carry out.
fn begun(rig: &mut TestEngine, nth: u64) -> Result<Granted, OperationStatus> {
    let answered = rig.ask(begin(nth)).1.pop().expect("an answer");
    match answered.result {
        ResponseBody::ToRead(_) => Ok(answered.granted.expect("a claim says where")),
        ResponseBody::Said(said) => Err(
            assert_matches!(said, Ok(StoreResponse::Job(JobResponse::BegunOperation(Ok(begun)))) => begun.operation),
        ),
    }
}

/// Nothing was done for a beginning that no caller has seen, so no person needs to look.
#[test]
fn an_operation_whose_caller_had_gone_is_not_in_doubt() {
    let mut rig = TestEngine::new();
    let gone = begun(&mut rig, 1).expect("it is new");
    rig.engine.abandon(rig.now, gone, &mut rig.archive);
    rig.engine.take_batch(true);
    let next = begun(&mut rig, 2);
    assert!(matches!(next, Ok(Granted::Jobs(_))), "the next request carries it out: {next:?}");
}

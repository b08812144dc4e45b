//! What has run out, but has not been noticed yet: requests that come before the sweep must be decided as if it had.

use fencehold_conformance::assert_matches;
use fencehold_contract::StoreError;
use fencehold_contract::operation::{StoreRequest, StoreResponse};
use fencehold_core::Refusal;
use fencehold_core::lease::LeaseOutcome;

use super::super::state::ResponseBody;
use super::{OutgoingResponse, TTL_MS, TestEngine, Ticket, request};

fn answer_to(answers: &[OutgoingResponse], ticket: Ticket) -> &Result<StoreResponse, StoreError> {
    let answered = answers.iter().find(|answered| answered.ticket == ticket);
    match &answered.expect("an answer").result {
        ResponseBody::Said(result) => result,
        ResponseBody::ToRead(look) => panic!("still to be read: {look:?}"),
    }
}

/// R19: the waiter's time is up, unnoticed, and the holder releases.
#[test]
fn a_release_passes_nothing_to_one_whose_time_is_up() {
    let mut rig = TestEngine::new();
    let holder = rig.take(request("k", 1));
    let late = rig.in_line(2, 500);
    let patient = rig.in_line(3, 5_000);
    rig.pass(500);
    let (_, answers) = rig.ask(StoreRequest::Release(vec![holder]));
    assert!(answer_to(&answers, late).is_err());
    assert!(answer_to(&answers, patient).is_ok());
}

/// R19: the same where the key has run out and another caller asks.
#[test]
fn a_key_that_ran_out_is_not_passed_to_one_whose_time_is_up() {
    let mut rig = TestEngine::new();
    rig.take(request("k", 1));
    let late = rig.in_line(2, TTL_MS);
    rig.pass(TTL_MS);
    rig.send(StoreRequest::Acquire(request("k", 3)));
    let (_, answers) = rig.engine.take_batch(true);
    assert!(answer_to(&answers, late).is_err());
    assert_eq!(rig.view("k").unwrap().holder.unwrap().owner.as_str(), "owner-3");
}

/// One who comes just when the lease has run out stands behind those in line.
#[test]
fn a_try_before_the_sweep_does_not_pass_the_line() {
    let mut rig = TestEngine::new();
    rig.take(request("k", 1));
    let first = rig.in_line(2, 5 * TTL_MS);
    rig.pass(TTL_MS);
    let tries = rig.send(StoreRequest::Acquire(request("k", 3)));
    let (_, answers) = rig.engine.take_batch(true);
    assert!(answer_to(&answers, first).is_ok());
    let Err(StoreError::Refused { refusal, .. }) = answer_to(&answers, tries) else { panic!("{answers:?}") };
    assert_matches!(refusal, Refusal::Held { owner, .. } if owner.as_str() == "owner-2");
}

/// R13: nor does the holder itself, that comes back too late, hold up the line.
#[test]
fn a_hold_id_that_comes_back_after_its_end_passes_the_key_on() {
    let mut rig = TestEngine::new();
    rig.take(request("k", 1));
    let first = rig.in_line(2, 5 * TTL_MS);
    rig.pass(TTL_MS);
    let mut again = request("k", 1);
    again.hold_id_age_ms = TTL_MS;
    let again = rig.send(StoreRequest::Acquire(again));
    let (_, answers) = rig.engine.take_batch(true);
    let Err(StoreError::Refused { refusal, .. }) = answer_to(&answers, again) else { panic!("{answers:?}") };
    assert_matches!(refusal, Refusal::HoldIdUsed { outcome: Some(LeaseOutcome::Expired), .. });
    assert!(answer_to(&answers, first).is_ok());
}

/// P3: a renewal that comes before the sweep is as late as one that comes after it.
#[test]
fn a_renewal_before_the_sweep_revives_nothing() {
    let mut rig = TestEngine::new();
    let held = rig.take(request("k", 1));
    let first = rig.in_line(2, 5 * TTL_MS);
    rig.pass(TTL_MS);
    rig.send(StoreRequest::Renew(vec![held]));
    let (_, answers) = rig.engine.take_batch(true);
    assert!(answer_to(&answers, first).is_ok(), "and the key goes to the first in line");
    assert_eq!(rig.view("k").unwrap().endings[0].outcome, LeaseOutcome::Expired);
}

/// What people see does not wait for a sweep either.
#[test]
fn a_look_before_the_sweep_shows_a_free_key() {
    let mut rig = TestEngine::new();
    rig.take(request("k", 1));
    rig.pass(TTL_MS - 1);
    assert!(rig.view("k").unwrap().holder.is_some());
    rig.pass(1);
    assert_eq!(rig.view("k").unwrap().holder, None);
}

//! Every invariant bites: for each there is a wrong decision, made by hand, that it refuses by name.

use fencehold_core::LeaseViolation::{
    self, DeadlineMovedEarlier, DeadlineWithoutHold, EndedHoldRevived, EndingNotRecorded, ForceWithoutToken,
    HistoryMalformed, LiveLeaseExpired, ReleasedByAStranger, RenewalChangedTheRecord, RenewalRevived,
    TokenDidNotGrow, TokenOverCap, ToldAnotherDeadline, TwoHolders,
};
use fencehold_core::check;

use crate::prelude::*;

/// A holds the key under token 1 for another 20 s.
fn held() -> (OneKey, Token) {
    let (mut key, token) = OneKey::held();
    key.pass(10_000);
    (key, token)
}

/// A's lease has run out, and no sweep has noted it.
fn over() -> (OneKey, Token) {
    let (mut key, token) = held();
    key.pass(TTL_MS);
    (key, token)
}

/// A gave its lease back.
fn released() -> (OneKey, Token) {
    let (mut key, token) = held();
    key.release(1, token).expect("a live lease");
    (key, token)
}

fn acquire(id: u8) -> LeaseCommand {
    LeaseCommand::Acquire(ask("b", id))
}

fn renewal(id: u8, token: Token) -> LeaseCommand {
    LeaseCommand::Renew { hash: hold(id), token }
}

fn granted(token: Token, resumed: bool) -> LeaseCommandResult {
    LeaseCommandResult::Granted(Grant { token, remaining_ms: TTL_MS, resumed })
}

fn renewed(token: Token) -> LeaseCommandResult {
    LeaseCommandResult::Renewed(LeaseRenewal { token, remaining_ms: TTL_MS, yield_request: None })
}

/// What the check says of the right decision made wrong. Untouched it must pass.
#[track_caller]
fn violation(key: &OneKey, command: &LeaseCommand, spoil: impl FnOnce(&mut LeaseDecision)) -> LeaseViolation {
    let right = key.decision(command);
    assert_eq!(check(&key.standing(), &key.record, command, &right), Ok(()), "the right decision passes");
    let mut wrong = right.clone();
    spoil(&mut wrong);
    assert_ne!(wrong, right, "nothing was spoilt");
    check(&key.standing(), &key.record, command, &wrong).expect_err("a wrong decision passed")
}

/// The check refuses the right decision made wrong, by this name.
#[track_caller]
fn bites(key: &OneKey, command: &LeaseCommand, name: LeaseViolation, spoil: impl FnOnce(&mut LeaseDecision)) {
    assert_eq!(violation(key, command, spoil), name);
}

/// What the decision keeps; where it keeps nothing new, the record as it was.
fn record<'a>(key: &OneKey, decision: &'a mut LeaseDecision) -> &'a mut LeaseRecord {
    decision.record.get_or_insert_with(|| key.record.clone())
}

/// Ends the hold as the rules would, so that a decision is wrong in one thing only.
fn end_by_hand(key: &OneKey, record: &mut LeaseRecord) {
    let Hold { hash, owner, task, .. } = record.hold.take().expect("something is held");
    let (token, how, at) = (record.counter, LeaseOutcome::Expired, key.now);
    let ending = Ending { token, hash, owner, task, outcome: how, at, by: None, reason: None };
    record.history.get_or_insert_default().endings.push(ending);
}

fn new_hold(key: &OneKey, id: u8) -> Hold {
    let Acquire { hash, owner, task, ttl_ms, max_age_ms, priority, .. } = ask("b", id);
    Hold { hash, owner, task, ttl_ms, max_age_ms, since: key.now, priority, yield_request: None }
}

#[test]
fn a_live_lease_that_is_overwritten_makes_two_holders() {
    let (key, _) = held();
    let overwrite = |wrong: &mut LeaseDecision| {
        let record = record(&key, wrong);
        end_by_hand(&key, record);
        record.counter = Token::new(2);
        record.hold = Some(new_hold(&key, 2));
        wrong.deadline = DeadlineChange::LastsMs(TTL_MS);
    };
    // Although it answers "held".
    bites(&key, &acquire(2), TwoHolders, overwrite);
    bites(&key, &acquire(2), TwoHolders, |wrong| {
        overwrite(wrong);
        wrong.reply = Ok(granted(Token::new(2), false));
    });
}

#[test]
fn a_contender_that_is_told_it_was_granted_makes_two_holders() {
    let (key, _) = held();
    bites(&key, &acquire(2), TwoHolders, |wrong| {
        record(&key, wrong).counter = Token::new(2);
        wrong.reply = Ok(granted(Token::new(2), false));
    });
}

#[test]
fn a_contender_that_is_handed_the_holders_own_lease_makes_two_holders() {
    let (key, token) = held();
    bites(&key, &acquire(2), TwoHolders, |wrong| wrong.reply = Ok(granted(token, true)));
}

#[test]
fn a_counter_that_went_down_is_a_token_that_did_not_grow() {
    let (key, _) = released();
    bites(&key, &LeaseCommand::Expire, TokenDidNotGrow, |wrong| record(&key, wrong).counter = Token::NONE);
}

#[test]
fn a_token_given_twice_did_not_grow() {
    let (key, token) = released();
    bites(&key, &acquire(2), TokenDidNotGrow, |wrong| {
        record(&key, wrong).counter = token;
        wrong.reply = Ok(granted(token, false));
    });
}

#[test]
fn a_token_at_the_floor_did_not_grow() {
    let key = OneKey { floor: Token::new(9), ..OneKey::new() };
    bites(&key, &acquire(2), TokenDidNotGrow, |wrong| {
        record(&key, wrong).counter = key.floor;
        wrong.reply = Ok(granted(key.floor, false));
    });
}

#[test]
fn an_answer_with_another_token_than_the_record_did_not_grow() {
    let (key, _) = released();
    bites(&key, &acquire(2), TokenDidNotGrow, |wrong| wrong.reply = Ok(granted(Token::new(7), false)));
}

#[test]
fn a_token_past_the_cap_is_over_it() {
    let (key, _) = released();
    bites(&key, &acquire(2), TokenOverCap, |wrong| {
        record(&key, wrong).counter = Token::new(TOKEN_MAX + 1);
        wrong.reply = Ok(granted(Token::new(TOKEN_MAX + 1), false));
    });
}

#[test]
fn a_renewal_that_writes_another_ttl_changed_the_record() {
    let (key, token) = held();
    bites(&key, &renewal(1, token), RenewalChangedTheRecord, |wrong| {
        record(&key, wrong).hold.as_mut().unwrap().ttl_ms = 5 * TTL_MS;
    });
}

#[test]
fn a_renewal_that_answers_another_token_changed_the_record() {
    let (key, token) = held();
    let other = Token::new(2);
    bites(&key, &renewal(1, token), RenewalChangedTheRecord, |wrong| wrong.reply = Ok(renewed(other)));
}

#[test]
fn a_renewal_of_a_lease_that_ran_out_revived_it() {
    let (key, token) = over();
    bites(&key, &renewal(1, token), RenewalRevived, |wrong| {
        wrong.record = None;
        wrong.deadline = DeadlineChange::LastsMs(TTL_MS);
        wrong.reply = Ok(renewed(token));
    });
}

#[test]
fn a_renewal_of_a_released_lease_revived_it() {
    let (key, token) = released();
    bites(&key, &renewal(1, token), RenewalRevived, |wrong| wrong.reply = Ok(renewed(token)));
}

#[test]
fn a_renewal_that_cuts_the_lease_short_moved_its_deadline() {
    let (key, token) = held();
    let left_ms = key.remaining_ms().unwrap();
    bites(&key, &renewal(1, token), DeadlineMovedEarlier, |wrong| {
        wrong.deadline = DeadlineChange::LastsMs(left_ms - 1);
    });
}

#[test]
fn a_notice_that_cuts_the_lease_short_moved_its_deadline() {
    let (mut key, _) = held();
    key.preempt("urgent", 5, 1_000).unwrap();
    bites(&key, &LeaseCommand::Withdraw, DeadlineMovedEarlier, |wrong| {
        wrong.deadline = DeadlineChange::LastsMs(1_000);
    });
}

#[test]
fn a_sweep_that_ends_a_live_lease_expired_it() {
    let (key, token) = held();
    // Also when it does not say so.
    let expired = LeaseCommandResult::Expired { token, how: LeaseOutcome::Expired };
    for outcome in [expired, LeaseCommandResult::Nothing] {
        bites(&key, &LeaseCommand::Expire, LiveLeaseExpired, |wrong| {
            end_by_hand(&key, record(&key, wrong));
            wrong.deadline = DeadlineChange::Clear;
            wrong.reply = Ok(outcome);
        });
    }
}

#[test]
fn a_live_lease_is_not_even_said_to_have_expired() {
    let (key, token) = held();
    bites(&key, &LeaseCommand::Abandon { hash: hold(2) }, LiveLeaseExpired, |wrong| {
        wrong.reply = Ok(LeaseCommandResult::Expired { token, how: LeaseOutcome::Expired });
    });
}

#[test]
fn a_holder_that_is_told_of_more_than_was_set_was_told_another_deadline() {
    bites(&OneKey::new(), &acquire(2), ToldAnotherDeadline, |wrong| {
        let Ok(LeaseCommandResult::Granted(grant)) = &mut wrong.reply else { panic!("not granted") };
        grant.remaining_ms += 1;
    });

    let (key, token) = held();
    bites(&key, &renewal(1, token), ToldAnotherDeadline, |wrong| {
        wrong.reply = Ok(LeaseCommandResult::Renewed(LeaseRenewal {
            token,
            remaining_ms: TTL_MS + 1,
            yield_request: None,
        }));
    });
}

#[test]
fn a_release_that_takes_the_token_for_proof_was_a_strangers() {
    let (key, token) = held();
    let release = LeaseCommand::Release { hash: hold(2), token };
    bites(&key, &release, ReleasedByAStranger, |wrong| {
        end_by_hand(&key, record(&key, wrong));
        wrong.deadline = DeadlineChange::Clear;
        wrong.reply = Ok(LeaseCommandResult::Released { token });
    });
}

#[test]
fn a_hold_that_ended_and_is_granted_again_is_revived() {
    let (key, _) = released();
    bites(&key, &acquire(1), EndedHoldRevived, |wrong| {
        let record = record(&key, wrong);
        record.counter = Token::new(2);
        record.hold = Some(new_hold(&key, 1));
        wrong.deadline = DeadlineChange::LastsMs(TTL_MS);
        wrong.reply = Ok(granted(Token::new(2), false));
    });
}

#[test]
fn a_hold_that_ran_out_and_is_resumed_is_revived() {
    let (key, token) = over();
    bites(&key, &acquire(1), EndedHoldRevived, |wrong| {
        wrong.record = None;
        wrong.deadline = DeadlineChange::Keep;
        wrong.reply = Ok(granted(token, true));
    });
}

#[test]
fn force_that_consumes_nothing_is_force_without_token() {
    let (key, token) = held();
    let command = revocation(None);
    let nothing = Revoked { token, consumed_token: token, owner: owner("a"), task: None };
    bites(&key, &command, ForceWithoutToken, |wrong| wrong.reply = Ok(LeaseCommandResult::Revoked(nothing)));

    // Said to be consumed, and not.
    bites(&key, &command, ForceWithoutToken, |wrong| record(&key, wrong).counter = token);
}

#[test]
fn an_end_that_leaves_no_trace_is_not_recorded() {
    let (key, token) = held();
    let release = LeaseCommand::Release { hash: hold(1), token };
    bites(&key, &release, EndingNotRecorded, |wrong| record(&key, wrong).history = None);

    let (key, _) = over();
    // Taken over, and the last holder is forgotten.
    bites(&key, &acquire(2), EndingNotRecorded, |wrong| record(&key, wrong).history = None);
}

#[test]
fn an_end_under_another_token_is_not_recorded() {
    let mut key = OneKey::with_counter(4);
    let token = key.granted(ask("a", 1));
    let release = LeaseCommand::Release { hash: hold(1), token };
    bites(&key, &release, EndingNotRecorded, |wrong| {
        record(&key, wrong).history.as_mut().unwrap().endings[0].token = Token::new(3);
    });
}

#[test]
fn an_alarm_that_writes_is_caught() {
    let (key, _) = over();
    bites(&key, &renewal(1, Token::new(9)), EndingNotRecorded, |wrong| {
        end_by_hand(&key, record(&key, wrong));
        wrong.deadline = DeadlineChange::Clear;
    });
}

#[test]
fn a_history_that_is_too_long_or_out_of_order_is_malformed() {
    let (mut key, _) = released();
    for id in 2..=5 {
        key.one_life(id);
    }
    let spoilt = |spoil: fn(&mut Vec<Ending>)| {
        violation(&key, &acquire(9), |wrong| {
            spoil(&mut record(&key, wrong).history.as_mut().unwrap().endings);
        })
    };
    assert_eq!(spoilt(|endings| endings.reverse()), HistoryMalformed);
    assert_eq!(spoilt(|endings| endings[1].token = Token::new(1)), HistoryMalformed);
    assert_eq!(spoilt(|endings| endings[4].token = Token::new(99)), HistoryMalformed);

    let mut full = OneKey::with_counter(100);
    let one = key.last_ending().clone();
    let endings = (1..=HISTORY_MAX as u64).map(|token| Ending { token: Token::new(token), ..one.clone() });
    full.record.history = Some(Box::new(HoldHistory { endings: endings.collect(), forgotten_at_ms: None }));
    bites(&full, &acquire(9), HistoryMalformed, |wrong| {
        let endings = &mut record(&full, wrong).history.as_mut().unwrap().endings;
        endings.push(Ending { token: Token::new(50), ..one });
    });
}

#[test]
fn a_deadline_without_a_hold_and_a_hold_without_a_deadline_are_caught() {
    let (key, token) = held();
    let release = LeaseCommand::Release { hash: hold(1), token };
    for deadline in [DeadlineChange::Keep, DeadlineChange::LastsMs(TTL_MS)] {
        let found = violation(&key, &release, |wrong| wrong.deadline = deadline);
        assert_eq!(found, DeadlineWithoutHold, "released, but {deadline:?}");
    }
    // Renewed, but without a deadline.
    bites(&key, &renewal(1, token), DeadlineWithoutHold, |wrong| wrong.deadline = DeadlineChange::Clear);

    let (key, _) = released();
    for deadline in [DeadlineChange::Keep, DeadlineChange::Clear] {
        let found = violation(&key, &acquire(2), |wrong| wrong.deadline = deadline);
        assert_eq!(found, DeadlineWithoutHold, "granted, but {deadline:?}");
    }
}

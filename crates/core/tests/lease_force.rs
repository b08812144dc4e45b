//! Ending a lease from outside: revocation, the sweep, and the cure for a rewound store.

use crate::prelude::*;

fn held() -> (OneKey, Token) {
    let mut key = OneKey::new();
    let token = key.granted(Acquire { task: Some(task("run-42")), ..ask("a", 1) });
    (key, token)
}

#[test]
fn a_revocation_consumes_a_token_that_nobody_gets() {
    let (mut key, token) = held();

    let revoked = key.revoke(None).unwrap();

    let consumed = Token::new(2);
    assert_eq!(
        revoked,
        Revoked { token, consumed_token: consumed, owner: owner("a"), task: Some(task("run-42")) }
    );
    assert_eq!(key.record.counter, consumed);
    assert!(key.is_free());
    assert_eq!(key.granted(ask("b", 2)), Token::new(3));
}

#[test]
fn force_leaves_a_trace_with_a_name_and_a_reason() {
    let (mut key, token) = held();
    key.pass(7_000);
    key.news();
    key.revoke(None).unwrap();

    let (by, reason) = (Some(owner("operator")), Some(Reason::new("stuck since noon").unwrap()));
    let ending = key.last_ending();
    assert_eq!((ending.token, ending.outcome, ending.at), (token, LeaseOutcome::Revoked, key.now));
    assert_eq!((&ending.by, &ending.reason, ending.hash), (&by, &reason, hold(1)));
    let fact = EventData::LeaseEnded {
        token,
        owner: owner("a"),
        task: Some(task("run-42")),
        outcome: LeaseOutcome::Revoked,
        by,
        reason,
    };
    assert_eq!(key.facts, [fact]);
}

#[test]
fn a_renewal_that_lands_after_a_revocation_is_refused() {
    // R04 and R11: wherever the renewal was when the revocation came, it is decided after it.
    let (mut key, token) = held();
    let consumed = key.revoke(None).unwrap().consumed_token;
    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::Revoked, consumed)));
    assert_eq!(key.release(1, token), Err(lost(token, LeaseOutcome::Revoked, consumed)));

    let current = key.granted(ask("b", 2));
    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::Revoked, current)));
}

#[test]
fn the_consumed_token_is_nobodys_proof() {
    let (mut key, _) = held();
    let consumed = key.revoke(None).unwrap().consumed_token;
    assert_eq!(key.renew(1, consumed), Err(Refusal::WrongHoldId { token: consumed }));
    assert!(key.is_free());
}

#[test]
fn a_lease_that_ran_out_unnoticed_can_still_be_fenced_out() {
    // No other holder has taken the key, so only the consumed token keeps the old holder's late writes out.
    let (mut key, token) = held();
    key.pass(TTL_MS + 1);
    let revoked = key.revoke(Some(token)).unwrap();
    assert_eq!((revoked.token, revoked.consumed_token), (token, Token::new(2)));
    assert_eq!(key.last_ending().outcome, LeaseOutcome::Revoked);
}

#[test]
fn even_the_last_holder_can_be_fenced_out() {
    let mut key = OneKey::with_counter(TOKEN_MAX - 2);
    let token = key.granted(ask("a", 1));
    let revoked = key.revoke(None).unwrap();
    assert_eq!((token, revoked.consumed_token), (Token::new(TOKEN_MAX - 1), Token::new(TOKEN_MAX)));
    assert_eq!(key.acquire(ask("b", 2)), Err(Refusal::TokensExhausted));
}

#[test]
fn a_revocation_meant_for_one_token_spares_the_next() {
    let (mut key, meant) = held();
    key.pass(TTL_MS);
    let current = key.granted(ask("b", 2));
    assert_eq!(key.revoke(Some(meant)), Err(lost(meant, LeaseOutcome::Expired, current)));

    assert_eq!(key.revoke(Some(current)).unwrap().token, current);
}

#[test]
fn a_revocation_sent_twice_ends_one_lease() {
    let (mut key, meant) = held();
    let consumed = key.revoke(Some(meant)).unwrap().consumed_token;
    assert_eq!(key.revoke(Some(meant)), Err(Refusal::NotHeld));

    let current = key.granted(ask("b", 2));
    assert!(current > consumed);
    assert_eq!(key.revoke(Some(meant)), Err(lost(meant, LeaseOutcome::Revoked, current)));
    assert!(key.renew(2, current).is_ok());
}

#[test]
fn nothing_is_revoked_where_nothing_is_held() {
    let mut key = OneKey::with_counter(4);
    assert_eq!(key.revoke(None), Err(Refusal::NotHeld));
    assert_eq!(key.facts, []);
}

#[test]
fn a_revocation_that_shows_a_token_above_the_counter_proves_a_rewound_store() {
    let (mut key, current) = held();
    let shown = Token::new(2);
    assert_eq!(key.revoke(Some(shown)), Err(Refusal::StoreRewound { token: shown, current_token: current }));
    let alarm = EventData::StoreRewound { token: shown, current_token: current };
    assert_eq!(key.facts.last(), Some(&alarm));
}

#[test]
fn a_sweep_cannot_expire_a_renewed_lease() {
    // R03: the sweep has the key on its list; the holder renews; the sweep acts.
    let (mut key, token) = held();
    key.pass(TTL_MS - 1);
    key.renew(1, token).unwrap();
    key.pass(1);
    key.news();

    assert_eq!(key.expire(), Err(Refusal::NotExpired { remaining_ms: TTL_MS - 1 }));
    assert_eq!(key.facts, []);
}

#[test]
fn a_stale_sweep_leaves_the_next_holder_alone() {
    // R05: another sweep came first, and B has the key.
    let (mut key, _) = held();
    key.pass(TTL_MS);
    key.expire().unwrap();
    let current = key.granted(ask("b", 2));
    assert_eq!(key.expire(), Err(Refusal::NotExpired { remaining_ms: TTL_MS }));
    assert!(key.renew(2, current).is_ok());
}

#[test]
fn a_sweep_notes_when_the_time_was_up_and_not_when_it_came_by() {
    let (mut key, token) = held();
    key.pass(TTL_MS);
    let ran_out_at = key.now;
    key.pass(900);
    key.news();

    assert_eq!(key.expire(), Ok(expired(token, LeaseOutcome::Expired)));

    assert_eq!(key.last_ending().at, ran_out_at);
    assert!(key.is_free());
    let outcome = LeaseOutcome::Expired;
    let task = Some(task("run-42"));
    assert_eq!(
        key.facts,
        [EventData::LeaseEnded { token, owner: owner("a"), task, outcome, by: None, reason: None }]
    );
}

#[test]
fn a_sweep_of_a_free_key_does_nothing() {
    let (mut key, _) = held();
    key.pass(TTL_MS);
    key.expire().unwrap();
    let (before, _) = (key.state(), key.news());
    assert_eq!(key.expire(), Ok(LeaseCommandResult::Nothing));
    assert_eq!((key.state(), key.news()), (before, vec![]));
}

#[test]
fn an_advance_ends_the_lease_and_lifts_the_counter() {
    let (mut key, token) = held();
    assert_eq!(key.advance(ADVANCE_BY), Ok(LeaseCommandResult::Nothing));

    assert_eq!(key.record.counter, Token::new(1 + ADVANCE_BY));
    assert!(key.is_free());
    let ending = key.last_ending();
    assert_eq!(
        (ending.token, ending.outcome, &ending.by),
        (token, LeaseOutcome::Advanced, &Some(owner("operator")))
    );
    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::Advanced, Token::new(1 + ADVANCE_BY))));
}

#[test]
fn an_advance_lifts_a_free_key_too_and_starts_from_the_floor() {
    let mut key = OneKey { floor: Token::new(9), ..OneKey::with_counter(4) };
    key.advance(100).unwrap();
    assert_eq!(key.record.counter, Token::new(109));
    assert_eq!(key.facts, [], "nothing ended");
}

#[test]
fn an_advance_past_the_cap_is_refused_whole() {
    let (mut key, token) = held();
    assert_eq!(key.advance(TOKEN_MAX), Err(Refusal::TokensExhausted));
    assert_eq!(key.advance(u64::MAX), Err(Refusal::TokensExhausted));
    assert!(key.renew(1, token).is_ok());
}

#[test]
fn after_a_rewind_and_an_advance_no_token_comes_twice() {
    // R24: a backup is taken, three more tokens are given, the backup is restored.
    let (mut key, token) = held();
    key.release(1, token).unwrap();
    let backup = key.clone();
    let given: Vec<Token> = (2..5).map(|id| key.one_life(id)).collect();
    let newest = *given.last().unwrap();

    let mut key = backup;
    let seen_token = Some(newest);
    let refused = key.acquire(Acquire { seen_token, ..ask("b", 9) });
    assert_eq!(refused, Err(Refusal::StoreRewound { token: newest, current_token: token }));

    key.advance(ADVANCE_BY).unwrap();
    let next = key.granted(Acquire { seen_token, ..ask("b", 9) });
    assert!(next > newest, "{next} after {newest}");
    assert!(matches!(key.renew(4, newest), Err(Refusal::Lost { .. })), "who was lost is stale, and no alarm");
}

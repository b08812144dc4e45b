//! Taking a key: who gets it, under which token, for how long, and who is refused.

use crate::prelude::*;

#[test]
fn a_key_that_was_never_held_is_granted_under_token_one() {
    let mut key = OneKey::new();

    let grant = key.acquire(Acquire { task: Some(task("run-42")), priority: 7, ..ask("a", 1) });

    assert_eq!(grant, Ok(Grant { token: Token::new(1), remaining_ms: TTL_MS, resumed: false }));
    assert_eq!(key.remaining_ms(), Some(TTL_MS));
    assert_eq!(key.record.counter, Token::new(1));
    let recorded = Hold {
        hash: hold(1),
        owner: owner("a"),
        task: Some(task("run-42")),
        ttl_ms: TTL_MS,
        max_age_ms: None,
        since: key.now,
        priority: 7,
        yield_request: None,
    };
    assert_eq!(key.record.hold, Some(recorded));
    let acquired = EventData::LeaseAcquired {
        token: Token::new(1),
        owner: owner("a"),
        task: Some(task("run-42")),
        ttl_ms: TTL_MS,
    };
    assert_eq!(key.facts, [acquired]);
}

#[test]
fn a_held_key_is_refused_with_holder_task_time_left_and_token() {
    let mut key = OneKey::new();
    let token = key.granted(Acquire { task: Some(task("run-42")), ..ask("a", 1) });
    key.pass(10_000);
    key.news();

    let refused = key.acquire(ask("b", 2));

    let held =
        Refusal::Held { owner: owner("a"), task: Some(task("run-42")), remaining_ms: TTL_MS - 10_000, token };
    assert_eq!(refused, Err(held));
    assert_eq!(key.facts, [], "being refused is no event");
}

#[test]
fn a_lease_is_live_to_its_last_millisecond_and_not_longer() {
    let mut key = OneKey::new();
    key.granted(ask("a", 1));

    key.pass(TTL_MS - 1);
    assert!(matches!(key.acquire(ask("b", 2)), Err(Refusal::Held { remaining_ms: 1, .. })));

    key.pass(1);
    assert_eq!(key.granted(ask("b", 2)), Token::new(2));
}

#[test]
fn a_lease_that_ran_out_unnoticed_is_noted_by_whoever_takes_the_key() {
    let (mut key, first) = OneKey::held();
    key.pass(TTL_MS);
    let ran_out_at = key.now;
    key.pass(5_000);
    key.news();

    let second = key.granted(ask("b", 2));

    let ending = key.last_ending();
    assert_eq!((ending.token, ending.outcome, ending.at), (first, LeaseOutcome::Expired, ran_out_at));
    assert_eq!((ending.owner.as_str(), ending.hash), ("a", hold(1)));
    let told = key.news();
    let [EventData::LeaseEnded { token, outcome, by, .. }, EventData::LeaseAcquired { token: next, .. }] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((*token, *outcome, by, *next), (first, LeaseOutcome::Expired, &None, second));
}

#[test]
fn of_two_that_reclaim_one_wins_and_the_loser_sees_the_winner() {
    // R02: both have seen the same expired lease, and both act on it.
    let mut key = OneKey::new();
    key.granted(ask("dead", 1));
    key.pass(TTL_MS + 1);

    let won = key.acquire(ask("a", 2));
    let lost = key.acquire(ask("b", 3));

    let token = Token::new(2);
    assert_eq!(won, Ok(Grant { token, remaining_ms: TTL_MS, resumed: false }));
    assert_eq!(lost, Err(Refusal::Held { owner: owner("a"), task: None, remaining_ms: TTL_MS, token }));
}

#[test]
fn the_recorded_ttl_counts_whatever_a_contender_has_configured() {
    // R32
    let (mut key, token) = OneKey::held();
    key.pass(1_000);

    let refused = key.acquire(Acquire { ttl_ms: 100, ..ask("b", 2) });

    assert!(matches!(refused, Err(Refusal::Held { remaining_ms: 29_000, .. })), "{refused:?}");
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, TTL_MS);
}

#[test]
fn an_owner_that_comes_back_under_its_old_name_adopts_nothing() {
    // R10: the name is the same, the hold id is not.
    let mut key = OneKey::new();
    let token = key.granted(ask("worker-1", 1));

    let refused = key.acquire(ask("worker-1", 2));

    assert!(matches!(refused, Err(Refusal::Held { .. })), "{refused:?}");
    assert_eq!(key.renew(2, token), Err(Refusal::WrongHoldId { token }));
}

#[test]
fn the_same_acquire_again_gets_the_time_that_remains() {
    // R13: the first answer was lost.
    let (mut key, token) = OneKey::held();
    key.pass(12_000);
    let (before, _) = (key.state(), key.news());

    let again = key.acquire(Acquire { hold_age_ms: 12_000, ..ask("a", 1) });

    assert_eq!(again, Ok(Grant { token, remaining_ms: TTL_MS - 12_000, resumed: true }));
    assert_eq!(key.state(), before, "the deadline does not move");
    assert_eq!(key.facts, []);
}

#[test]
fn the_same_acquire_again_cannot_change_its_terms() {
    let mut key = OneKey::new();
    key.granted(ask("a", 1));
    let before = key.state();

    let other_terms = Acquire { ttl_ms: 500_000, priority: 9, ..ask_with_max_age("z", 1, 5) };
    let again = key.acquire(other_terms).unwrap();

    assert_eq!(again.remaining_ms, TTL_MS);
    assert_eq!(key.state(), before);
}

#[test]
fn a_collected_key_starts_above_the_floor() {
    // R36: the record is gone; the floor, raised in the same step, is what is left of its counter.
    let mut key = OneKey { floor: Token::new(41), ..OneKey::new() };
    assert_eq!(key.granted(ask("a", 1)), Token::new(42));
}

#[test]
fn the_larger_of_counter_and_floor_counts() {
    let mut above = OneKey { floor: Token::new(3), ..OneKey::with_counter(7) };
    assert_eq!(above.granted(ask("a", 1)), Token::new(8));

    let mut below = OneKey { floor: Token::new(7), ..OneKey::with_counter(3) };
    assert_eq!(below.granted(ask("a", 1)), Token::new(8));
}

#[test]
fn tokens_are_refused_at_the_cap_and_never_wrap() {
    let mut last = OneKey::with_counter(TOKEN_MAX - 2);
    let token = last.granted(ask("a", 1));
    assert_eq!(token, Token::new(TOKEN_MAX - 1));
    assert!(last.renew(1, token).is_ok(), "the last holder is a holder like any other");

    for mut used_up in [
        OneKey::with_counter(TOKEN_MAX - 1),
        OneKey::with_counter(TOKEN_MAX),
        OneKey { floor: Token::new(TOKEN_MAX - 1), ..OneKey::with_counter(5) },
    ] {
        assert_eq!(used_up.acquire(ask("a", 1)), Err(Refusal::TokensExhausted));
    }
}

#[test]
fn a_lease_that_ran_out_is_noted_even_when_no_token_is_left() {
    let mut key = OneKey::with_counter(TOKEN_MAX - 2);
    let token = key.granted(ask("a", 1));
    key.pass(TTL_MS);

    assert_eq!(key.acquire(ask("b", 2)), Err(Refusal::TokensExhausted));

    assert_eq!((key.last_ending().token, key.last_ending().outcome), (token, LeaseOutcome::Expired));
    assert!(key.is_free());
}

#[test]
fn a_grant_never_outlasts_its_max_age() {
    let mut short = OneKey::new();
    let grant = short.acquire(ask_with_max_age("a", 1, 5_000)).unwrap();
    assert_eq!((grant.remaining_ms, short.remaining_ms()), (5_000, Some(5_000)));
    assert_eq!(short.record.hold.unwrap().ttl_ms, TTL_MS, "the ttl is recorded as it was asked for");

    let mut long = OneKey::new();
    let grant = long.acquire(ask_with_max_age("a", 1, 90_000)).unwrap();
    assert_eq!((grant.remaining_ms, long.remaining_ms()), (TTL_MS, Some(TTL_MS)));
}

#[test]
fn a_seen_token_above_the_counter_stops_an_acquire() {
    let mut key = OneKey::with_counter(7);
    let refused = key.acquire(Acquire { seen_token: Some(Token::new(8)), ..ask("a", 1) });

    let (shown, current) = (Token::new(8), Token::new(7));
    assert_eq!(refused, Err(Refusal::StoreRewound { token: shown, current_token: current }));
    assert_eq!(key.facts, [EventData::StoreRewound { token: shown, current_token: current }]);
}

#[test]
fn a_seen_token_that_counter_or_floor_accounts_for_is_no_alarm() {
    let seen_token = Some(Token::new(7));
    let mut counted = OneKey::with_counter(7);
    assert_eq!(counted.granted(Acquire { seen_token, ..ask("a", 1) }), Token::new(8));

    let mut collected = OneKey { floor: Token::new(7), ..OneKey::new() };
    assert_eq!(collected.granted(Acquire { seen_token, ..ask("a", 1) }), Token::new(8));
}

#[test]
fn a_rewound_store_grants_nothing_and_notes_nothing() {
    // The backup still shows A under 7, run out; B was granted 9 in the time that was lost.
    let mut key = OneKey::with_counter(6);
    let token = key.granted(ask("a", 1));
    key.pass(TTL_MS + 1);
    let seen_token = Some(Token::new(9));

    let decision = key.decision(&LeaseCommand::Acquire(Acquire { seen_token, ..ask("b", 2) }));

    assert_eq!(decision.reply, Err(Refusal::StoreRewound { token: Token::new(9), current_token: token }));
    assert_eq!((decision.record, decision.deadline), (None, DeadlineChange::Keep));
}

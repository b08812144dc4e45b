//! Keeping a lease and giving it back: only its holder can, only while it is live, and who cannot learns why.

use crate::prelude::*;

/// What the last fact says a stale holder tried.
fn attempted(key: &OneKey) -> String {
    match key.facts.last() {
        Some(EventData::StaleWriteBlocked { action: attempted, .. }) => format!("{attempted:?}"),
        other => panic!("a blocked write is an event, not {other:?}"),
    }
}

#[test]
fn a_renewal_lasts_a_full_ttl_from_the_deciding_moment() {
    let (mut key, token) = OneKey::held();
    key.pass(20_000);
    let renewal = key.renew(1, token);
    let expected = LeaseRenewal { token, remaining_ms: TTL_MS, yield_request: None };
    assert_eq!(renewal, Ok(expected));
    assert_eq!(key.remaining_ms(), Some(TTL_MS));
}

#[test]
fn a_renewal_changes_nothing_but_the_deadline() {
    let (mut key, token) = OneKey::held();
    key.pass(20_000);
    let decision = key.decision(&LeaseCommand::Renew { hash: hold(1), token });
    assert_eq!((decision.record, decision.deadline), (None, DeadlineChange::LastsMs(TTL_MS)));
    assert_eq!(decision.facts, [], "heartbeats are no events");
}

#[test]
fn a_holder_that_renews_in_its_last_millisecond_keeps_the_lease() {
    let (mut key, token) = OneKey::held();
    for _ in 0..50 {
        key.pass(TTL_MS - 1);
        assert_eq!(key.renew(1, token).unwrap().remaining_ms, TTL_MS);
    }
}

#[test]
fn a_renewal_never_shortens_what_was_acknowledged() {
    // A store that came back after a reboot may have given more than a ttl.
    let (mut key, token) = OneKey::held();
    key.deadline_ms = Some(key.now.store_ms + 2 * TTL_MS);
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, 2 * TTL_MS);
    assert_eq!(key.remaining_ms(), Some(2 * TTL_MS));
}

#[test]
fn renewal_never_revives_a_released_lease() {
    // R12: the holder's own heartbeat was queued behind its release.
    let (mut key, token) = OneKey::held();
    key.release(1, token).unwrap();
    key.news();

    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::Released, token)));
    let blocked = &key.facts[0];
    assert_matches!(blocked, EventData::StaleWriteBlocked { outcome: Some(LeaseOutcome::Released), .. });
}

#[test]
fn renewal_never_revives_a_lease_that_ran_out_and_notes_its_end() {
    let (mut key, token) = OneKey::held();
    key.pass(TTL_MS);
    let ran_out_at = key.now;
    key.pass(1);
    key.news();

    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::Expired, token)));

    assert!(key.is_free());
    assert_eq!((key.last_ending().outcome, key.last_ending().at), (LeaseOutcome::Expired, ran_out_at));
    assert!(matches!(key.facts[0], EventData::LeaseEnded { outcome: LeaseOutcome::Expired, .. }));
    assert_eq!(attempted(&key), "Renew");
    assert_eq!(
        key.renew(1, token),
        Err(lost(token, LeaseOutcome::Expired, token)),
        "asked again, told the same"
    );
}

#[test]
fn renewal_never_revives_an_abandoned_or_advanced_lease() {
    let (mut key, token) = OneKey::held();
    key.abandon(1).unwrap();
    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::Abandoned, token)));

    let (mut key, token) = OneKey::held();
    key.advance(10).unwrap();
    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::Advanced, Token::new(11))));
}

#[test]
fn a_delayed_renewal_cannot_steal_the_key_back() {
    // R08: B reclaimed it; then A's renewal arrives.
    let (mut key, stale) = OneKey::held();
    key.pass(TTL_MS);
    let current = key.granted(ask("b", 2));
    key.news();

    assert_eq!(key.renew(1, stale), Err(lost(stale, LeaseOutcome::Expired, current)));
    let EventData::StaleWriteBlocked { token: stale_token, current_token, .. } = &key.facts[0] else {
        panic!("{:?}", key.facts)
    };
    assert_eq!((*stale_token, *current_token), (stale, current));
    assert_eq!(attempted(&key), "Renew");
}

#[test]
fn a_second_hold_of_the_same_owner_does_not_carry_the_first() {
    // R09, for leases: W lost the key and took it again; its first thread still renews.
    let (mut key, first) = OneKey::held();
    key.pass(TTL_MS);
    let second = key.granted(ask("a", 2));

    assert_eq!(key.renew(1, first), Err(lost(first, LeaseOutcome::Expired, second)));
    assert_eq!(key.release(1, first), Err(lost(first, LeaseOutcome::Expired, second)));
    assert!(key.renew(2, second).is_ok());
}

#[test]
fn the_right_token_with_a_wrong_hold_id_is_refused() {
    let (mut key, token) = OneKey::held();
    key.pass(10_000);
    assert_eq!(key.renew(2, token), Err(Refusal::WrongHoldId { token }));
    assert_eq!(key.release(2, token), Err(Refusal::WrongHoldId { token }));
}

#[test]
fn a_wrong_hold_id_is_called_wrong_even_when_the_floor_has_risen_above_the_holder() {
    // Another key of the namespace was collected, at 50. The lease under 1 is live all the same.
    let (mut key, token) = OneKey::held();
    key.floor = Token::new(50);
    assert_eq!(key.renew(2, token), Err(Refusal::WrongHoldId { token }));
    assert!(key.renew(1, token).is_ok());
    assert_eq!(key.remaining_ms(), Some(TTL_MS));
}

#[test]
fn the_right_hold_id_with_an_older_token_is_refused() {
    let mut key = OneKey::with_counter(7);
    let token = key.granted(ask("a", 1));
    let older = Token::new(7);
    let refusal = forgotten(older, token);
    assert_eq!(key.renew(1, older), Err(refusal.clone()));
    assert_eq!(key.release(1, older), Err(refusal));
}

#[test]
fn a_holder_that_the_history_has_forgotten_is_lost_all_the_same() {
    let (mut key, token) = OneKey::held();
    key.release(1, token).unwrap();
    for id in 2..=u8::try_from(HISTORY_MAX).unwrap() + 1 {
        key.one_life(id);
    }
    let refusal = forgotten(token, key.record.counter);
    assert_eq!(key.renew(1, token), Err(refusal.clone()));
    assert_eq!(key.release(1, token), Err(refusal));
}

#[test]
fn a_holder_that_wakes_after_its_key_was_collected_is_lost() {
    // R36: nothing is left of its key but the floor, which is at its own token or above.
    for floor in [5, 9] {
        let mut key = OneKey { floor: Token::new(floor), ..OneKey::new() };
        let refused = key.renew(1, Token::new(5));
        assert!(matches!(refused, Err(Refusal::Lost { outcome: None, .. })), "floor {floor}: {refused:?}");
        assert_eq!(attempted(&key), "Renew");
        let refused = key.release(1, Token::new(5));
        assert!(matches!(refused, Err(Refusal::Lost { outcome: None, .. })), "floor {floor}: {refused:?}");
        assert_eq!(attempted(&key), "Release");
    }
}

#[test]
fn a_token_above_the_counter_proves_a_rewound_store() {
    let (mut key, current) = OneKey::held();
    let shown = Token::new(2);
    let alarm = EventData::StoreRewound { token: shown, current_token: current };

    for id in [1, 2] {
        assert_eq!(key.renew(id, shown), Err(Refusal::StoreRewound { token: shown, current_token: current }));
        assert_eq!(
            key.release(id, shown),
            Err(Refusal::StoreRewound { token: shown, current_token: current })
        );
        assert_eq!(key.news().last(), Some(&alarm));
    }
}

#[test]
fn max_age_caps_a_hold_that_is_renewed_for_ever() {
    let mut key = OneKey::new();
    let token = key.granted(ask_with_max_age("a", 1, 70_000));
    key.pass(25_000);
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, TTL_MS);
    key.pass(25_000);
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, 20_000, "only what is left of its age");
    key.pass(19_999);
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, 1);
    key.pass(1);

    assert_eq!(key.renew(1, token), Err(lost(token, LeaseOutcome::AgedOut, token)));
    assert_eq!(key.last_ending().outcome, LeaseOutcome::AgedOut);
}

#[test]
fn a_hold_with_a_max_age_that_dies_before_it_has_expired() {
    let mut key = OneKey::new();
    let token = key.granted(ask_with_max_age("a", 1, 70_000));
    key.pass(500_000);
    assert_eq!(key.expire(), Ok(expired(token, LeaseOutcome::Expired)), "noted late, but not aged out");
}

#[test]
fn a_released_key_is_free_at_once_and_its_end_is_on_record() {
    let mut key = OneKey::new();
    let token = key.granted(Acquire { task: Some(task("run-42")), ..ask("a", 1) });
    key.pass(1_000);
    key.news();

    assert_eq!(key.release(1, token), Ok(LeaseCommandResult::Released { token }));

    assert!(key.is_free());
    assert_eq!(key.record.counter, token, "the counter stays");
    let ending = key.last_ending().clone();
    assert_eq!((ending.token, ending.hash, ending.outcome), (token, hold(1), LeaseOutcome::Released));
    assert_eq!((ending.at, ending.by, ending.reason), (key.now, None, None));
    assert_eq!((ending.owner.as_str(), ending.task), ("a", Some(task("run-42"))));
    assert!(matches!(key.facts[..], [EventData::LeaseEnded { outcome: LeaseOutcome::Released, .. }]));
    assert_eq!(key.granted(ask("b", 2)), Token::new(2));
}

#[test]
fn a_release_sent_twice_gets_the_same_answer() {
    let (mut key, token) = OneKey::held();
    let first = key.release(1, token);
    let before = key.state();
    key.news();
    assert_eq!(key.release(1, token), first);
    assert_eq!((key.state(), key.news()), (before, vec![]), "and happens once");

    let current = key.granted(ask("b", 2));
    let before = key.state();
    assert_eq!(key.release(1, token), first, "also when the key has gone to another");
    assert_eq!(key.state(), before);
    assert!(key.renew(2, current).is_ok());
}

#[test]
fn a_late_release_leaves_the_new_holder_alone() {
    // R01: A's lease expired, B has the key, and A gives back what it thinks is its own.
    let (mut key, stale) = OneKey::held();
    key.pass(TTL_MS);
    let current = key.granted(ask("b", 2));
    assert_eq!(key.release(1, stale), Err(lost(stale, LeaseOutcome::Expired, current)));
    assert_eq!(attempted(&key), "Release");
}

#[test]
fn a_release_after_the_end_is_told_that_the_lease_expired() {
    let (mut key, token) = OneKey::held();
    key.pass(TTL_MS);
    assert_eq!(key.release(1, token), Err(lost(token, LeaseOutcome::Expired, token)));
    assert_eq!(key.last_ending().outcome, LeaseOutcome::Expired, "it is not counted as given back in time");
    assert_eq!(key.release(1, token), Err(lost(token, LeaseOutcome::Expired, token)));
}

#[test]
fn a_grant_to_a_waiter_that_has_gone_is_freed_at_once() {
    // R14
    let (mut key, token) = OneKey::held();
    key.news();
    assert_eq!(key.abandon(1), Ok(LeaseCommandResult::Nothing));
    assert_eq!((key.last_ending().token, key.last_ending().outcome), (token, LeaseOutcome::Abandoned));
    assert_matches!(key.facts[..], [EventData::LeaseEnded { outcome: LeaseOutcome::Abandoned, .. }]);
    assert!(key.granted(ask("b", 2)) > token);
}

#[test]
fn abandoning_touches_nobody_elses_hold() {
    let (mut key, _) = OneKey::held();
    let before = key.state();
    assert_eq!(key.abandon(2), Ok(LeaseCommandResult::Nothing));
    assert_eq!(key.state(), before);

    let mut free = OneKey::with_counter(3);
    let before = free.state();
    assert_eq!(free.abandon(1), Ok(LeaseCommandResult::Nothing));
    assert_eq!(free.state(), before);
}

#[test]
fn abandoning_does_not_rename_an_expiry() {
    let (mut key, token) = OneKey::held();
    key.pass(TTL_MS);
    assert_eq!(key.abandon(1), Ok(LeaseCommandResult::Nothing));
    assert_eq!(key.expire(), Ok(expired(token, LeaseOutcome::Expired)));
}

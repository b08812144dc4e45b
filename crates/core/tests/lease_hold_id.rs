//! A hold id is used once: what has ended is never granted again, not even when its ending is forgotten.

use crate::prelude::*;

const ENDED_LONG_AGO: Refusal = Refusal::HoldIdUsed { token: None, outcome: None };

fn ended(token: Token, how: LeaseOutcome) -> Refusal {
    Refusal::HoldIdUsed { token: Some(token), outcome: Some(how) }
}

/// A key whose hold 1 has ended in this way, and the token that it had.
fn ended_as(how: LeaseOutcome) -> (OneKey, Token) {
    let mut key = OneKey::new();
    let token = key.granted(ask_with_max_age("a", 1, 100_000));
    let ending = match how {
        LeaseOutcome::Released => key.release(1, token),
        LeaseOutcome::Expired => {
            key.pass(TTL_MS);
            key.expire()
        }
        LeaseOutcome::Revoked => key.revoke(None).map(LeaseCommandResult::Revoked),
        LeaseOutcome::AgedOut => {
            for _ in 0..5 {
                key.pass(20_000);
                let _ = key.renew(1, token);
            }
            key.expire()
        }
        LeaseOutcome::Yielded => {
            key.preempt("urgent", 1, 1_000).expect("a higher priority");
            key.pass(TTL_MS);
            key.expire()
        }
        LeaseOutcome::Abandoned => key.abandon(1),
        LeaseOutcome::Advanced => key.advance(1),
        other => panic!("a new way to end, {other:?}, wants a line here"),
    };
    assert!(ending.is_ok(), "{how}: {ending:?}");
    assert_eq!(key.last_ending().outcome, how);
    (key, token)
}

#[test]
fn a_hold_id_that_ended_is_never_granted_again() {
    // R13, after the end: however it ended, the key is free, and only for another hold id.
    for how in LeaseOutcome::ALL {
        let (mut key, token) = ended_as(how);
        assert_eq!(key.acquire(ask("a", 1)), Err(ended(token, how)));
        assert!(key.granted(ask("a", 2)) > token, "{how}");
    }
}

#[test]
fn a_hold_id_that_ended_is_told_so_even_while_another_holds_the_key() {
    for how in LeaseOutcome::ALL {
        let (mut key, token) = ended_as(how);
        key.granted(ask("b", 2));
        assert_eq!(
            key.acquire(ask("a", 1)),
            Err(ended(token, how)),
            "else it would stand in line for nothing"
        );
    }
}

#[test]
fn a_hold_id_that_ran_out_unnoticed_is_answered_ended_and_noted() {
    let (mut key, token) = OneKey::held();
    key.pass(TTL_MS);
    key.news();

    assert_eq!(key.acquire(ask("a", 1)), Err(ended(token, LeaseOutcome::Expired)));

    assert!(key.is_free());
    assert_eq!(key.last_ending().token, token);
    assert!(matches!(key.facts[..], [EventData::LeaseEnded { outcome: LeaseOutcome::Expired, .. }]));
}

#[test]
fn every_acquisition_takes_a_larger_token_however_the_last_one_ended() {
    for how in LeaseOutcome::ALL {
        let (mut key, token) = ended_as(how);
        let counter = key.record.counter;
        let next = key.granted(ask("b", 2));
        assert!(next > token && next > counter, "{how}: {next} after {token}, counter {counter}");
    }
}

#[test]
fn a_record_knows_the_hold_ids_that_it_shows_and_no_others() {
    let (mut key, _) = ended_as(LeaseOutcome::Released);
    key.granted(ask("b", 2));
    assert_eq!([1, 2, 3].map(|id| key.record.knows(hold(id))), [true, true, false]);
}

/// A key on which hold 1 ended at the returned moment, and so many others since that it is forgotten.
fn hold_one_forgotten() -> (OneKey, u64) {
    let mut key = OneKey::new();
    key.one_life(1);
    let forgotten_at_ms = key.now.store_ms;
    for id in 2..10 {
        key.pass(1_000);
        key.one_life(id);
    }
    assert_eq!(key.record.endings()[0].hash, hold(2));
    (key, forgotten_at_ms)
}

/// The age of a hold id that was made then.
fn age_ms(key: &OneKey, made_at_ms: u64) -> u64 {
    key.now.store_ms - made_at_ms
}

#[test]
fn a_hold_id_older_than_the_kept_history_is_answered_ended() {
    let (mut key, forgotten_at_ms) = hold_one_forgotten();
    let at_the_limit_ms = age_ms(&key, forgotten_at_ms + ROUNDING_MS);

    // The id itself, and one that is as old: neither can be distinguished from the other.
    for id in [1, 99] {
        for hold_age_ms in [at_the_limit_ms, age_ms(&key, forgotten_at_ms), u64::MAX] {
            let answer = key.acquire(Acquire { hold_age_ms, ..ask("a", id) });
            assert_eq!(answer, Err(ENDED_LONG_AGO), "id {id}, {hold_age_ms} ms old");
        }
    }
}

#[test]
fn a_hold_id_older_than_the_kept_history_is_not_put_in_line() {
    // A held key answers likewise: who is let into the line need not be asked for its age again.
    let (mut key, forgotten_at_ms) = hold_one_forgotten();
    key.granted(ask("b", 50));
    key.pass(1_000);
    let hold_age_ms = age_ms(&key, forgotten_at_ms);
    assert_eq!(key.acquire(Acquire { hold_age_ms, ..ask("a", 1) }), Err(ENDED_LONG_AGO));
    assert_matches!(key.acquire(Acquire { hold_age_ms: 500, ..ask("c", 99) }), Err(Refusal::Held { .. }));
}

#[test]
fn the_live_holder_is_resumed_at_any_age() {
    let (mut key, _) = hold_one_forgotten();
    let token = key.granted(ask("b", 50));
    let again = key.acquire(Acquire { hold_age_ms: u64::MAX, ..ask("b", 50) }).unwrap();
    assert_eq!((again.token, again.resumed), (token, true));
}

#[test]
fn a_hold_id_younger_than_all_that_was_forgotten_is_granted() {
    let (mut key, forgotten_at_ms) = hold_one_forgotten();
    let hold_age_ms = age_ms(&key, forgotten_at_ms + ROUNDING_MS + 1);
    assert_eq!(key.granted(Acquire { hold_age_ms, ..ask("a", 99) }), Token::new(10));
}

#[test]
fn a_hold_id_of_no_age_is_granted_however_busy_the_key_was() {
    // More lives than the history keeps, all in one millisecond; every hold id is new.
    let mut key = OneKey::new();
    for id in 1..=100 {
        key.one_life(id);
    }
    assert_eq!(key.record.counter, Token::new(100));
    let sent_before = Acquire { hold_age_ms: 1, ..ask("a", 200) };
    assert_eq!(key.acquire(sent_before), Err(ENDED_LONG_AGO), "a repeat could have been among them");
}

#[test]
fn any_age_will_do_while_nothing_was_forgotten() {
    let mut key = OneKey::new();
    for id in 1..=u8::try_from(HISTORY_MAX).unwrap() {
        key.one_life(id);
    }
    assert_eq!(key.granted(Acquire { hold_age_ms: u64::MAX, ..ask("a", 99) }), Token::new(9));
}

#[test]
fn the_age_that_is_too_old_moves_on_with_the_history() {
    let (mut key, _) = hold_one_forgotten();
    for id in 20..40 {
        key.pass(1_000);
        key.one_life(id);
    }
    let newest_forgotten_at_ms = key.record.endings()[0].at.store_ms - 1_000;
    let hold_age_ms = age_ms(&key, newest_forgotten_at_ms + ROUNDING_MS);

    assert_eq!(key.acquire(Acquire { hold_age_ms, ..ask("a", 99) }), Err(ENDED_LONG_AGO));
    assert!(key.acquire(Acquire { hold_age_ms: hold_age_ms - 1, ..ask("a", 99) }).is_ok());
}

#[test]
fn history_keeps_the_last_eight_oldest_first() {
    let mut key = OneKey::new();
    for id in 1..=12 {
        assert_eq!(key.one_life(id), Token::new(id.into()));
    }
    let kept: Vec<u64> = key.record.endings().iter().map(|ending| ending.token.get()).collect();
    assert_eq!((HISTORY_MAX, kept), (8, (5..=12).collect::<Vec<u64>>()));
}

#[test]
fn every_kind_of_end_counts_in_the_history() {
    let mut key = OneKey::new();
    key.one_life(1);
    key.granted(ask("b", 2));
    key.pass(TTL_MS);
    key.granted(ask("c", 3));
    key.revoke(None).unwrap();
    key.granted(ask("d", 4));
    key.abandon(4).unwrap();
    key.granted(ask("e", 5));
    key.advance(10).unwrap();

    let told: Vec<(u64, LeaseOutcome)> =
        key.record.endings().iter().map(|e| (e.token.get(), e.outcome)).collect();
    let expected = [
        (1, LeaseOutcome::Released),
        (2, LeaseOutcome::Expired),
        (3, LeaseOutcome::Revoked),
        (5, LeaseOutcome::Abandoned),
        (6, LeaseOutcome::Advanced),
    ];
    assert_eq!(told, expected);
}

//! Asking a holder to yield: it learns of it when it renews, and loses nothing that it was promised.

use crate::prelude::*;

#[test]
fn the_holder_learns_at_its_next_renewal_for_whom_and_by_when() {
    let (mut key, token) = OneKey::held();
    assert_eq!(key.renew(1, token).unwrap().yield_request, None);
    key.news();

    assert_eq!(key.preempt("urgent", 5, 60_000), Ok(60_000));
    let (contender, task, priority) = (owner("urgent"), Some(task("urgent")), 5);
    let notice =
        YieldRequest { contender: contender.clone(), task: task.clone(), priority, yield_in_ms: 50_000 };
    let asked = EventData::YieldRequested { token, contender, task, priority, yield_in_ms: 60_000 };
    assert_eq!(key.facts, [asked]);

    key.pass(10_000);
    let renewal = key.renew(1, token).unwrap();
    assert_eq!(renewal.yield_request, Some(notice));
    assert_eq!(renewal.remaining_ms, TTL_MS, "there is time yet");
}

#[test]
fn a_deadline_already_acknowledged_stands() {
    let (mut key, token) = OneKey::held();
    let before = key.deadline_ms;

    assert_eq!(key.preempt("urgent", 5, 1_000), Ok(TTL_MS), "free when the acknowledged time is up");

    assert_eq!(key.deadline_ms, before);
    key.pass(20_000);
    let renewal = key.renew(1, token).unwrap();
    assert_eq!(
        (renewal.remaining_ms, renewal.yield_request.as_ref().map(|asked| asked.yield_in_ms)),
        (10_000, Some(0)),
        "no more, but no less"
    );
    assert_eq!(key.deadline_ms, before);
}

#[test]
fn renewals_get_only_the_remainder() {
    let (mut key, token) = OneKey::held();
    key.preempt("urgent", 5, 45_000).unwrap();
    key.pass(20_000);
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, 25_000);
    key.pass(20_000);
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, 5_000);
    key.pass(5_000);

    let (how, by) = (Some(LeaseOutcome::Yielded), Some(owner("urgent")));
    let yielded = Refusal::Lost { token, outcome: how, by, reason: None, current_token: token };
    assert_eq!(key.renew(1, token), Err(yielded));
    assert_eq!(key.last_ending().outcome, LeaseOutcome::Yielded);
    assert!(key.granted(ask("urgent", 2)) > token);
}

#[test]
fn the_key_is_free_no_later_than_the_contender_was_told() {
    for yield_in_ms in [0, 1, 10_000, 26_999, 27_000, 27_001, 100_000] {
        let (mut key, token) = OneKey::held();
        key.pass(3_000);
        let free_in_ms = key.preempt("urgent", 5, yield_in_ms).unwrap();
        let free_at_ms = key.now.store_ms + free_in_ms;
        while key.now.store_ms < free_at_ms {
            key.pass(1_500);
            let _ = key.renew(1, token);
            assert!(key.deadline_ms.is_none_or(|at_ms| at_ms <= free_at_ms), "asked for {yield_in_ms}");
        }
        assert!(key.granted(ask("urgent", 2)) > token, "asked for {yield_in_ms}");
    }
}

#[test]
fn a_holder_that_dies_before_its_yield_time_has_expired() {
    let (mut key, token) = OneKey::held();
    key.preempt("urgent", 5, 60_000).unwrap();
    key.pass(80_000);
    assert_eq!(key.expire(), Ok(expired(token, LeaseOutcome::Expired)), "a crash is a crash");
}

#[test]
fn a_holder_at_the_end_of_its_age_has_aged_out_whoever_asked() {
    let mut key = OneKey::new();
    let token = key.granted(ask_with_max_age("a", 1, 20_000));
    key.preempt("urgent", 5, 1_000).unwrap();
    key.pass(20_000);
    assert_eq!(key.expire(), Ok(expired(token, LeaseOutcome::AgedOut)));
}

#[test]
fn a_holder_that_hands_back_early_frees_the_key_at_once() {
    let (mut key, token) = OneKey::held();
    key.preempt("urgent", 5, 60_000).unwrap();
    key.release(1, token).unwrap();
    assert_eq!((key.last_ending().outcome, key.last_ending().by.clone()), (LeaseOutcome::Yielded, None));
    key.release(1, token).expect("the same request again gets the same answer");
    key.granted(ask("urgent", 2));
    assert_eq!(key.record.hold.as_ref().unwrap().yield_request, None, "the notice was the old holder's");
}

#[test]
fn only_a_contender_of_higher_priority_may_ask() {
    let mut key = OneKey::new();
    key.granted(Acquire { priority: 3, ..ask("a", 1) });
    key.news();
    for priority in [i16::MIN, 0, 2, 3] {
        assert_eq!(key.preempt("other", priority, 1_000), Err(Refusal::PriorityTooLow { priority: 3 }));
    }
    assert_eq!(key.facts, []);
    assert!(key.preempt("other", 4, 1_000).is_ok());
}

#[test]
fn nobody_is_asked_where_nobody_holds() {
    let mut free = OneKey::new();
    assert_eq!(free.preempt("urgent", 5, 1_000), Err(Refusal::NotHeld));

    let (mut over, _) = OneKey::held();
    over.pass(TTL_MS);
    let before = over.state();
    assert_eq!(over.preempt("urgent", 5, 1_000), Err(Refusal::NotHeld));
    assert_eq!(over.state(), before);
}

#[test]
fn the_first_to_ask_stands_against_the_same_rank_or_a_lower_one() {
    let (mut key, token) = OneKey::held();
    key.preempt("first", 5, 60_000).unwrap();
    key.pass(10_000);
    let (before, _) = (key.state(), key.news());

    assert_eq!(key.preempt("second", 5, 1_000), Ok(50_000));
    assert_eq!(key.preempt("third", 4, 1_000), Ok(50_000));
    assert_eq!(key.preempt("first", 5, 60_000), Ok(50_000), "sent again, the time does not start anew");

    assert_eq!((key.state(), key.news()), (before, vec![]));
    assert_eq!(key.renew(1, token).unwrap().yield_request.unwrap().contender, owner("first"));
}

#[test]
fn a_higher_contender_takes_the_place_of_a_lower_one() {
    let (mut key, token) = OneKey::held();
    key.preempt("first", 5, 100_000).unwrap();
    assert_eq!(key.preempt("higher", 6, 40_000), Ok(40_000));

    let renewal = key.renew(1, token).unwrap();
    let request = renewal.yield_request.unwrap();
    assert_eq!((request.contender, request.yield_in_ms), (owner("higher"), 40_000));
}

#[test]
fn a_notice_that_is_withdrawn_leaves_the_holder_its_full_ttl() {
    let (mut key, token) = OneKey::held();
    key.preempt("urgent", 5, 20_000).unwrap();
    key.pass(15_000);
    assert_eq!(key.renew(1, token).unwrap().remaining_ms, 15_000);
    key.news();

    assert_eq!(key.withdraw(), Ok(LeaseCommandResult::Nothing));

    assert_eq!(key.facts, [EventData::YieldWithdrawn { token }]);
    let renewal = key.renew(1, token).unwrap();
    assert_eq!((renewal.remaining_ms, renewal.yield_request), (TTL_MS, None));
    key.pass(TTL_MS);
    assert_eq!(key.expire(), Ok(expired(token, LeaseOutcome::Expired)));
}

#[test]
fn withdrawing_what_was_never_asked_does_nothing() {
    for (mut key, name) in [(OneKey::held().0, "held"), (OneKey::new(), "free")] {
        let (before, _) = (key.state(), key.news());
        assert_eq!(key.withdraw(), Ok(LeaseCommandResult::Nothing), "{name}");
        assert_eq!((key.state(), key.news()), (before, vec![]), "{name}");
    }
}

#[test]
fn a_withdrawal_after_the_end_does_not_rewrite_how_it_ended() {
    // The holder's time was cut short for the contender. That it was no crash must not depend on who is quicker,
    // the sweep or the contender that gives up.
    let (mut key, token) = OneKey::held();
    key.preempt("urgent", 5, 10_000).unwrap();
    key.pass(TTL_MS);
    key.withdraw().unwrap();
    assert_eq!(key.expire(), Ok(expired(token, LeaseOutcome::Yielded)));
}

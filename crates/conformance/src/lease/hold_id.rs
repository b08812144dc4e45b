//! Asking again with the same hold id: the same lease while it lasts, never a new one afterwards.

use super::prelude::*;

/// R13: the answer was lost; asking again gives the same lease, token and the time that remains.
pub(super) fn the_same_hold_id_gets_the_same_lease_with_the_time_that_remains(g: &Fixture) {
    let request = g.ask("k", "A");
    let first = g.take_with(request.clone());
    assert!(!first.resumed);
    let mut gone_ms = 0;
    if g.has(TestCapability::MovesTime) {
        gone_ms = g.ttl_ms() / 3;
        g.pass(gone_ms);
    }
    let again = g.take_with(AcquireLeaseRequest { hold_id_age_ms: gone_ms.max(1), ..request });
    assert!(again.resumed, "it had that lease already");
    assert_eq!(again.token, first.token);
    g.assert_ms("the time that remains", again.remaining_ms, g.ttl_ms() - gone_ms);
    assert_held_by(g.try_take("k", "B"), &first);
}

/// P7: the same request is sent again, word for word or with its age, and its answer is not read: the lease stays.
pub(super) fn a_repetition_that_is_not_read_takes_nothing_away(g: &Fixture) {
    let mut all = Vec::new();
    for round in 0..20 {
        let held = g.take_with(g.ask(&format!("k/{round}"), "A"));
        for hold_age_ms in [0, 1] {
            let store = g.test_store.store();
            let again = AcquireLeaseRequest { hold_id_age_ms: hold_age_ms, ..held.request.clone() };
            g.send_and_go(store.acquire(&g.call, again), store.get(&g.call, held.key.clone()));
        }
        g.renew(&held).expect("a live lease");
        all.push(held);
    }
    for held in all {
        g.renew(&held).expect("a live lease");
    }
}

/// R13, P4: asking again is no renewal.
pub(super) fn asking_again_does_not_move_the_deadline(g: &Fixture) {
    let request = g.ask("k", "A");
    let first = g.take_with(request.clone());
    g.pass(g.ttl_ms() / 2);
    g.take_with(AcquireLeaseRequest { hold_id_age_ms: g.ttl_ms() / 2, ..request });
    g.pass(g.ttl_ms() - g.ttl_ms() / 2);
    assert_lost(g.renew(&first), &first, LeaseOutcome::Expired);
}

/// R13: one that ended is never granted again, on a free key as on a held one, however it ended.
pub(super) fn an_ended_hold_id_is_never_granted_again(g: &Fixture) {
    let again =
        |held: &HeldLease| g.try_with(AcquireLeaseRequest { hold_id_age_ms: 1, ..held.request.clone() });

    let released = g.take("k", "A");
    g.release(&released).expect("a live lease");
    assert_ended(again(&released), &released, LeaseOutcome::Released);

    let expired = g.take_and_run_out("k", "A");
    assert_ended(again(&expired), &expired, LeaseOutcome::Expired);
    assert_eq!(g.holder("k"), None, "nothing was granted");

    let revoked = g.take("k", "A");
    g.revoke_key("k");
    assert_ended(again(&revoked), &revoked, LeaseOutcome::Revoked);

    let holder = g.take("k", "B");
    assert_ended(again(&released), &released, LeaseOutcome::Released);
    assert_ended(again(&expired), &expired, LeaseOutcome::Expired);
    assert_ended(again(&revoked), &revoked, LeaseOutcome::Revoked);
    assert_eq!(g.holder_name("k").as_deref(), Some("B"));
    g.renew(&holder).expect("untouched");
}

/// R13: nor does an ended hold id stand in line.
pub(super) fn an_ended_hold_id_does_not_stand_in_line(g: &Fixture) {
    let ended = g.take("k", "A");
    g.release(&ended).expect("a live lease");
    g.take("k", "B");
    let patient = AcquireLeaseRequest { wait_ms: g.ttl_ms(), hold_id_age_ms: 1, ..ended.request.clone() };
    assert_ended(g.try_with(patient), &ended, LeaseOutcome::Released);
}

/// R13: where the history no longer reaches back as far as the hold id is old, it may have ended there.
pub(super) fn a_hold_id_older_than_the_history_is_refused(g: &Fixture) {
    let ended = g.take("k", "A");
    g.release(&ended).expect("a live lease");
    g.pass(1_000);
    g.churn("k", HISTORY_MAX);
    g.pass(1_000);
    let unknown = Refusal::HoldIdUsed { token: None, outcome: None };
    let old = AcquireLeaseRequest { hold_id_age_ms: 3_000 + HISTORY_MAX as u64, ..ended.request.clone() };
    assert_eq!(g.try_with(old.clone()).map(|held| held.token), Err(unknown.clone()));
    assert_eq!(g.holder("k"), None);
    if g.has(TestCapability::OwnClock) {
        // One that was made after what was forgotten cannot have been among it.
        g.take_with(AcquireLeaseRequest { hold_id_age_ms: 500, ..g.ask("k", "B") });
    } else {
        g.take("k", "B");
    }
    // On a held key it is refused likewise, and does not stand in line first.
    let patient = AcquireLeaseRequest { wait_ms: g.ttl_ms(), ..old };
    assert_eq!(g.try_with(patient).map(|held| held.token), Err(unknown));
}

/// R13: also where it would be content with another key.
pub(super) fn a_hold_id_older_than_the_history_of_one_key_is_granted_no_other(g: &Fixture) {
    let any =
        |names: &[&str], request: AcquireLeaseRequest| AcquireLeaseRequest { any_of: keys(names), ..request };
    let ended = g.take_with(any(&["k", "spare"], g.ask("k", "A")));
    assert_eq!(ended.key.as_str(), "k");
    g.release(&ended).expect("a live lease");
    g.churn("k", HISTORY_MAX);
    g.take("k", "B");
    for order in [["k", "spare"], ["spare", "k"]] {
        let again =
            AcquireLeaseRequest { hold_id_age_ms: HOLD_AGE_MS_MAX / 2, ..any(&order, ended.request.clone()) };
        let answer = g.try_with(again).map(|held| held.key);
        assert_eq!(
            answer,
            Err(Refusal::HoldIdUsed { token: None, outcome: None }),
            "asked in the order {order:?}"
        );
    }
    assert_eq!(g.holder("spare"), None);
}

/// A fresh hold id is not mistaken for an old one, however busy the key is.
pub(super) fn a_busy_key_goes_to_every_fresh_hold_id(g: &Fixture) {
    for nth in 0..5 * HISTORY_MAX {
        let held = g
            .try_take("k", "A")
            .unwrap_or_else(|refusal| panic!("acquisition {nth}: {refusal}"));
        g.release(&held).expect("a live lease");
    }
}

/// A record keeps its last endings, oldest first, and no more.
pub(super) fn a_key_remembers_its_last_endings(g: &Fixture) {
    let mut tokens = Vec::new();
    for _ in 0..HISTORY_MAX + 3 {
        let held = g.take("k", "A");
        g.release(&held).expect("a live lease");
        tokens.push(held.token);
    }
    let endings = g.view("k").expect("a key that was held").endings;
    let kept: Vec<_> = endings.iter().map(|ending| ending.token).collect();
    assert_eq!(kept, tokens[3..]);
    assert!(endings.iter().all(|ending| ending.outcome == LeaseOutcome::Released));
}

//! Many at once, started by a barrier: no matter who comes first, the rules hold.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use super::prelude::*;

const CONTENDERS: usize = 12;

/// R02: many reclaim the same dead lease: exactly one wins, and every loser sees the winner.
pub(super) fn a_dead_lease_is_reclaimed_exactly_once(g: &Fixture) {
    for round in 0..g.test_store.rounds() {
        let name = format!("k/{round}");
        let dead = g.take_and_run_out(&name, "A");
        let answers = at_once(CONTENDERS, |nth| g.try_take(&name, &format!("contender-{nth}")));
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        let winners: Vec<HeldLease> = won.into_iter().filter_map(Result::ok).collect();
        assert_eq!(winners.len(), 1, "exactly one wins");
        assert!(winners[0].token > dead.token);
        for loser in lost {
            assert_held_by(loser, &winners[0]);
        }
        assert_eq!(g.view(&name).expect("a held key").endings.len(), 1, "the dead lease ended once");
    }
}

/// R02: a key that was never held is taken exactly once.
pub(super) fn a_new_key_is_taken_exactly_once(g: &Fixture) {
    for round in 0..g.test_store.rounds() {
        let name = format!("k/{round}");
        let answers = at_once(CONTENDERS, |nth| g.try_take(&name, &format!("contender-{nth}")));
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    }
}

/// R13: the same request sent many times at once gets one lease.
pub(super) fn the_same_request_many_times_at_once_gets_one_lease(g: &Fixture) {
    for round in 0..g.test_store.rounds() {
        let request = AcquireLeaseRequest { hold_id_age_ms: 1, ..g.ask(&format!("k/{round}"), "A") };
        let held = at_once(CONTENDERS, |_| g.take_with(request.clone()));
        assert!(held.iter().all(|again| again.token == held[0].token));
        assert_eq!(held.iter().filter(|again| !again.resumed).count(), 1, "one grant, the others told of it");
    }
}

/// R04, R11: renewals and a revocation at once: whatever the order, the lease is over afterwards.
pub(super) fn a_revocation_beats_renewals_under_way(g: &Fixture) {
    for round in 0..g.test_store.rounds() {
        let name = format!("k/{round}");
        let a = g.take(&name, "A");
        at_once(4, |nth| {
            if nth == 0 {
                g.revoke_key(&name);
            } else if let Err(refusal) = g.renew(&a) {
                assert_matches!(refusal, Refusal::Lost { outcome: Some(LeaseOutcome::Revoked), .. });
            }
        });
        assert_eq!(g.holder(&name), None);
        assert_lost(g.renew(&a), &a, LeaseOutcome::Revoked);
    }
}

/// R12: a release and the holder's own heartbeats at once: it stays released.
pub(super) fn a_release_beats_heartbeats_under_way(g: &Fixture) {
    for round in 0..g.test_store.rounds() {
        let name = format!("k/{round}");
        let a = g.take(&name, "A");
        at_once(4, |nth| {
            if nth == 0 {
                assert_eq!(g.release(&a), Ok(a.token));
            } else if let Err(refusal) = g.renew(&a) {
                assert_matches!(refusal, Refusal::Lost { outcome: Some(LeaseOutcome::Released), .. });
            }
        });
        assert_eq!(g.holder(&name), None);
        assert_lost(g.renew(&a), &a, LeaseOutcome::Released);
    }
}

/// R01: a stale release and a newcomer at once: the newcomer keeps what it got.
pub(super) fn a_stale_release_never_hits_a_newcomer(g: &Fixture) {
    for round in 0..g.test_store.rounds() {
        let name = format!("k/{round}");
        let a = g.take_and_run_out(&name, "A");
        let taken = at_once(2, |nth| {
            if nth == 0 {
                assert_lost(g.release(&a), &a, LeaseOutcome::Expired);
                None
            } else {
                Some(g.take(&name, "B"))
            }
        });
        let b = taken.into_iter().flatten().next().expect("a newcomer");
        g.renew(&b).expect("untouched");
    }
}

/// P9: two operators revoke at once: the hold ends once, and each token is consumed once.
pub(super) fn two_revocations_at_once_end_one_hold(g: &Fixture) {
    for round in 0..g.test_store.rounds() {
        let name = format!("k/{round}");
        let a = g.take(&name, "A");
        let which = || RevokeTarget::Key { key: key(&name), only_token: Some(a.token) };
        let answers = at_once(2, |_| g.revoke(which()));
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        assert_eq!(g.view(&name).expect("a key that was held").endings.len(), 1);
    }
}

/// R14: a waiter gives up just when the key comes free: it has the lease, or no one has.
pub(super) fn one_that_gives_up_leaves_no_orphan(g: &Fixture) {
    for round in 0..2 * g.test_store.rounds() {
        let name = format!("k/{round}");
        let a = g.take(&name, "A");
        let waiting = Mutex::new(Some(g.stand_in_line(g.ask_to_wait(&name, "B"))));
        let mut picked_up = at_once(2, |nth| {
            if nth == 0 {
                assert_eq!(g.release(&a), Ok(a.token));
                return None;
            }
            let waiting = waiting.lock().expect("one thread only").take().expect("one that waits");
            waiting.leave()
        });
        match picked_up.remove(1) {
            Some(answer) => {
                let b = answer.expect("a key that came free");
                assert_eq!(g.holder_name(&name).as_deref(), Some("B"));
                g.release(&b).expect("its own lease");
            }
            None => until("a key without an orphan", || g.holder(&name).is_none()),
        }
    }
}

/// P1, P2: many take and give back few keys, waiting for them: never two holders of one, and tokens only grow.
pub(super) fn few_keys_pass_through_many_hands_one_at_a_time(g: &Fixture) {
    // Per key: whether someone holds it, and the newest token that a holder has seen.
    let inside = [const { AtomicU64::new(0) }; 2];
    let newest = [const { AtomicU64::new(0) }; 2];
    at_once(CONTENDERS, |nth| {
        for _ in 0..g.test_store.rounds() {
            let any = AcquireLeaseRequest {
                any_of: keys(&["k/0", "k/1"]),
                ..g.ask_to_wait("k/0", &format!("hand-{nth}"))
            };
            let held = g.take_with(any);
            let at = usize::from(held.key.as_str() == "k/1");
            assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0, "two holders of one key");
            let before = newest[at].swap(held.token.get(), Ordering::SeqCst);
            assert!(held.token.get() > before, "token {} after {before}", held.token);
            inside[at].fetch_sub(1, Ordering::SeqCst);
            g.release(&held).expect("a live lease");
        }
    });
    assert_eq!((g.holder("k/0"), g.holder("k/1")), (None, None));
}

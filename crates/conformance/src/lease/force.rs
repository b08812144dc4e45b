//! Force leaves a trace: a name, a reason, and a consumed token.

use super::prelude::*;

/// P9.
pub(super) fn a_revocation_ends_the_lease_and_consumes_a_token(g: &Fixture) {
    let a = g.take_with(AcquireLeaseRequest { task: Some(task("run-42")), ..g.ask("k", "A") });
    let RevokedLease { key: revoked_key, revoked } = g.revoke_key("k");
    assert_eq!(revoked_key, key("k"));
    assert_eq!((revoked.token, revoked.owner, revoked.task), (a.token, owner("A"), Some(task("run-42"))));
    assert!(revoked.consumed_token > a.token);
    let view = g.view("k").expect("a key that was held");
    assert_eq!(view.holder, None, "it ends at once");
    assert_eq!(view.token, revoked.consumed_token, "fences learn the consumed token");
    assert_lost(g.renew(&a), &a, LeaseOutcome::Revoked);
    assert_lost(g.release(&a), &a, LeaseOutcome::Revoked);
}

/// P9: who and why, for later callers.
pub(super) fn a_revocation_leaves_name_and_reason(g: &Fixture) {
    assert!(Reason::new("").is_err(), "no force without a reason");
    let a = g.take("k", "A");
    g.revoke_key("k");
    let ending = g.ending_of(&a).expect("how it ended");
    assert_eq!(ending.outcome, LeaseOutcome::Revoked);
    assert_eq!(ending.by, Some(owner("P")));
    assert_eq!(ending.reason.as_ref().map(Reason::as_str), Some("it was stuck"));
    if g.has(TestCapability::TellsEvents) {
        let told = g.facts("k").into_iter().any(|fact| match fact {
            EventData::LeaseEnded { token, outcome: how, by, reason, .. } => {
                (token, how, by, reason)
                    == (a.token, LeaseOutcome::Revoked, ending.by.clone(), ending.reason.clone())
            }
            _ => false,
        });
        assert!(told, "the event says it too");
    }
}

/// A revocation meant for one holder does not hit the next.
pub(super) fn a_revocation_of_one_token_spares_every_other(g: &Fixture) {
    let only = |held_token: Token| RevokeTarget::Key { key: key("k"), only_token: Some(held_token) };
    let a = g.take_and_run_out("k", "A");
    let b = g.take("k", "B");
    let refused = g.revoke(only(a.token)).map_err(refusal);
    let tokens =
        assert_matches!(refused, Err(Refusal::Lost { token, current_token, .. }) => (token, current_token));
    assert_eq!(tokens, (a.token, b.token));
    assert_held_by(g.try_take("k", "C"), &b);
    assert_eq!(g.view("k").map(|view| view.token), Some(b.token), "nothing was consumed");
    let revoked = g.revoke(only(b.token)).expect("its own token");
    assert_eq!(revoked.len(), 1);
    assert_eq!(g.holder("k"), None);
}

/// There is nothing to end on a free key.
pub(super) fn a_free_key_has_nothing_to_revoke(g: &Fixture) {
    let one = || g.revoke(RevokeTarget::Key { key: key("k"), only_token: None }).map_err(refusal);
    assert_eq!(one(), Err(Refusal::NotHeld), "never held");
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    assert_eq!(one(), Err(Refusal::NotHeld), "given back");
    assert_eq!(g.view("k").map(|view| view.token), Some(a.token), "nothing was consumed");
    assert_eq!(g.revoke(RevokeTarget::Owner(owner("nobody"))), Ok(vec![]));
}

/// P9: a hold that has run out is fenced by a revocation too, or was found free: never left as it was.
pub(super) fn a_revocation_after_the_end_never_finds_a_live_lease(g: &Fixture) {
    let a = g.take_and_run_out("k", "A");
    let answer = g.revoke(RevokeTarget::Key { key: key("k"), only_token: None }).map_err(refusal);
    match answer {
        Ok(revoked) => assert!(revoked.iter().all(|lease| lease.revoked.consumed_token > a.token)),
        Err(refused) => assert_eq!(refused, Refusal::NotHeld),
    }
    assert!(g.renew(&a).is_err());
    assert!(g.take("k", "B").token > a.token);
}

/// What a supervisor ends with a task is all that its descendants hold, and nothing else.
pub(super) fn a_revocation_by_task_ends_those_below_it_and_spares_neighbours(g: &Fixture) {
    let take = |name: &str| {
        g.take_with(AcquireLeaseRequest { task: Some(task(name)), ..g.ask(&key_for(name), "A") })
    };
    let held = TASKS.map(|name| (name, take(name)));
    let plain = g.take("for none", "A");
    let other_namespace = g.in_namespace("elsewhere");
    let untouched = other_namespace
        .take_with(AcquireLeaseRequest { task: Some(task("run-42/a")), ..g.ask("for run-42/a", "A") });
    let mut over: Vec<&str> = Vec::new();
    for (above, below) in COVERED {
        let ended = g.revoke(RevokeTarget::TaskPrefix(task(above))).expect("force");
        let mut ended: Vec<_> = ended.iter().map(|lease| lease.key.to_string()).collect();
        ended.sort();
        let meant = below.iter().filter(|name| !over.contains(name));
        assert_eq!(ended, meant.map(|name| key_for(name)).collect::<Vec<_>>(), "{above}");
        over.extend(below);
        for (name, hold) in &held {
            assert_eq!(g.renew(hold).is_ok(), !over.contains(name), "{name}, after {above}");
        }
    }
    g.renew(&plain).expect("it serves no task");
    other_namespace.renew(&untouched).expect("another namespace is another world");
}

/// All of a task, of an owner, or under a prefix; no others.
pub(super) fn a_revocation_of_many_ends_exactly_those(g: &Fixture) {
    let take = |name: &str, who: &str, serves: &str| {
        g.take_with(AcquireLeaseRequest { task: Some(task(serves)), ..g.ask(name, who) })
    };
    let held = [
        take("gpu/1", "A", "run-1"),
        take("gpu/2", "B", "run-2"),
        take("gpu/3", "C", "run-1"),
        take("cpu/1", "A", "run-3"),
        take("cpu/2", "D", "run-10"),
    ];
    let other_namespace = g.in_namespace("elsewhere");
    let untouched =
        other_namespace.take_with(AcquireLeaseRequest { task: Some(task("run-1")), ..g.ask("gpu/1", "A") });
    let ended = |which| {
        let mut names: Vec<String> = g
            .revoke(which)
            .expect("force")
            .into_iter()
            .map(|lease| lease.key.to_string())
            .collect();
        names.sort();
        names
    };
    assert_eq!(ended(RevokeTarget::Task(task("run-1"))), ["gpu/1", "gpu/3"]);
    assert_eq!(ended(RevokeTarget::Owner(owner("A"))), ["cpu/1"], "its other hold had ended already");
    assert_eq!(ended(RevokeTarget::Prefix("gpu/".to_owned())), ["gpu/2"]);
    for (hold, lives) in held.iter().zip([false, false, false, false, true]) {
        assert_eq!(g.renew(hold).is_ok(), lives, "{}", hold.key);
    }
    other_namespace.renew(&untouched).expect("another namespace is another world");
    for name in ["gpu/1", "gpu/2", "gpu/3", "cpu/1"] {
        let ending = g.view(name).expect("a key that was held").endings.pop().expect("how it ended");
        assert_eq!((ending.outcome, ending.by), (LeaseOutcome::Revoked, Some(owner("P"))), "{name}");
    }
}

/// A key that is revoked goes to the first in line, under a token above the consumed one.
pub(super) fn a_revoked_key_goes_to_the_first_in_line(g: &Fixture) {
    g.take("k", "A");
    let waiting = g.stand_in_line(g.ask_to_wait("k", "B"));
    let revoked = g.revoke_key("k").revoked;
    let b = waiting.answer().expect("a key that came free");
    assert!(b.token > revoked.consumed_token);
}

/// P9: it need not wait for its next renewal. A hint that changes may have been missed is as good: it renews then, too.
pub(super) fn a_holder_hears_of_its_revocation_at_once(g: &Fixture) {
    let heard = g.hear_of_holds();
    let (keys, other_namespace) = (["k/0", "k/1", "k/2"], g.in_namespace("elsewhere"));
    for name in keys {
        g.take(name, "A");
        other_namespace.take(name, "A");
    }
    // A store that begins to listen with the first grant says once that it may have missed something, and no more.
    for name in keys {
        heard.forget();
        g.revoke_key(name);
        heard.of(&g.call.namespace, name);
    }
}

/// Of what is done in the same process, every store can tell at once.
pub(super) fn a_holder_hears_of_a_revocation_through_its_own_handle(g: &Fixture) {
    let heard = g.hear_of_holds();
    for name in ["k/0", "k/1"] {
        g.take(name, "A");
        heard.forget();
        let which = RevokeTarget::Key { key: key(name), only_token: None };
        let reason = Reason::new("it was stuck").expect("a reason");
        let request = RevokeLeasesRequest { target: which, by: owner("P"), reason };
        g.drive(g.test_store.store().revoke(&g.call, request))
            .expect("a hold that can be revoked");
        heard.of(&g.call.namespace, name);
    }
}

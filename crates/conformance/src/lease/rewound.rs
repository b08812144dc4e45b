//! A store that was rewound: noticed by the tokens that people show, cured by `advance`.

use super::prelude::*;

fn assert_rewound<T: std::fmt::Debug>(answer: Result<T, Refusal>, shown_token: Token) {
    match answer {
        Err(Refusal::StoreRewound { token: shown, current_token: current }) => {
            assert_eq!(shown, shown_token);
            assert!(current < shown);
        }
        other => panic!("a token that was never given got {other:?}"),
    }
}

/// P2: a token above the counter is refused everywhere, an alarm is recorded, and nothing changes.
pub(super) fn a_token_that_was_never_given_is_refused_with_an_alarm(g: &Fixture) {
    let a = g.take("k", "A");
    let above = Token::new(a.token.get() + 5);
    let later = HeldLease { token: above, ..a.clone() };
    assert_rewound(g.renew(&later), above);
    assert_rewound(g.release(&later), above);
    assert_rewound(
        g.revoke(RevokeTarget::Key { key: key("k"), only_token: Some(above) })
            .map_err(refusal),
        above,
    );
    let saw = AcquireLeaseRequest { seen_token: Some(above), ..g.ask("k", "B") };
    assert_rewound(g.try_with(saw).map(|held| held.token), above);
    assert_held_by(g.try_take("k", "C"), &a);
    if g.has(TestCapability::TellsEvents) {
        let alarms = g.facts("k").into_iter();
        let alarms: Vec<_> = alarms.filter(|f| matches!(f, EventData::StoreRewound { .. })).collect();
        let alarm = EventData::StoreRewound { token: above, current_token: a.token };
        assert_eq!(alarms, [alarm.clone(), alarm.clone(), alarm.clone(), alarm]);
    }
}

/// P2: also on a key that this store has never seen, which then stays unseen.
pub(super) fn a_token_of_an_unknown_key_is_refused_with_an_alarm(g: &Fixture) {
    let shown = Token::new(41);
    let saw = AcquireLeaseRequest { seen_token: Some(shown), ..g.ask("k", "A") };
    assert_rewound(g.try_with(saw).map(|held| held.token), shown);
    assert_eq!(g.view("k"), None);
    if g.has(TestCapability::TellsEvents) {
        let alarm = EventData::StoreRewound { token: shown, current_token: Token::NONE };
        assert_eq!(g.facts("k"), [alarm]);
    }
}

/// A token that was seen and is not above the counter is no alarm.
pub(super) fn a_token_that_was_given_is_no_alarm(g: &Fixture) {
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    g.take_with(AcquireLeaseRequest { seen_token: Some(a.token), ..g.ask("k", "B") });
}

/// R24: `advance` ends every lease of every namespace and lifts every counter.
pub(super) fn advance_ends_all_leases_and_lifts_all_counters(g: &Fixture) {
    let other_namespace = g.in_namespace("elsewhere");
    let a = g.take("k", "A");
    let b = other_namespace.take("k", "B");
    let free = g.take("free", "A");
    g.release(&free).expect("a live lease");
    let advanced = g.advance(ADVANCE_BY).expect("an advance");
    assert_eq!((advanced.key_count, advanced.ended_count), (3, 2));
    assert_lost(g.renew(&a), &a, LeaseOutcome::Advanced);
    assert_lost(other_namespace.renew(&b), &b, LeaseOutcome::Advanced);
    for (world, name, last) in [(g, "k", &a), (g, "free", &free), (&other_namespace, "k", &b)] {
        let view = world.view(name).expect("a key that was held");
        assert_eq!(view.holder, None, "{name}");
        assert!(view.token.get() >= last.token.get() + ADVANCE_BY, "{name}");
    }
}

/// R24: it closes the store for the longest ttl that was held: a holder that the store has forgotten is gone by then.
pub(super) fn advance_closes_the_store_for_the_longest_ttl(g: &Fixture) {
    let long_ms = g.ttl_ms() * 3;
    let a = g.take("k", "A");
    g.take_with(AcquireLeaseRequest { ttl_ms: long_ms, ..g.ask("long", "A") });
    g.pass(g.ttl_ms() / 2);
    let advanced = g.advance(10).expect("an advance");
    assert_eq!(advanced.closed_for_ms, long_ms);
    let elsewhere = g.in_namespace("elsewhere");
    let closed = |world: &Fixture, name: &str| match world.acquire(world.ask(name, "B")) {
        Err(StoreError::Unavailable { .. }) => true,
        Err(other) => panic!("closed for another reason: {other}"),
        Ok(_) => false,
    };
    assert!(closed(g, "k") && closed(g, "new") && closed(&elsewhere, "k"));
    g.pass(long_ms - 1);
    assert!(closed(g, "k"), "one millisecond too early");
    // Advancing once more starts anew: what was granted in lost time is not known by what is held here.
    assert_eq!(g.advance(10).map(|again| again.closed_for_ms), Ok(long_ms));
    g.pass(long_ms - 1);
    assert!(closed(g, "k"));
    g.pass(1);
    let b = g.take("k", "B");
    assert!(b.token.get() > a.token.get() + 20);
}

/// A long ttl in one namespace closes no other for as long, nor keeps one for longer over a restart.
pub(super) fn advance_closes_a_namespace_for_its_own_longest_ttl(g: &Fixture) {
    let elsewhere = g.in_namespace("elsewhere");
    let (a, b) = (g.take("k", "A"), elsewhere.ask("long", "B"));
    elsewhere.take_with(AcquireLeaseRequest { ttl_ms: g.ttl_ms() * 3, ..b });
    // One that has ended counts as well.
    elsewhere.revoke_key("long");
    elsewhere.take("long", "B");
    let advanced = g.advance(10).expect("an advance");
    let [own_ms, long_ms] = [1, 3].map(|times| g.test_store.over_after_ms(g.ttl_ms() * times));
    let told = advanced.namespaces.iter();
    let told = told.map(|closed| (closed.namespace.as_str(), closed.closed_for_ms));
    let own = g.call.namespace.as_str();
    assert_eq!(told.collect::<Vec<_>>(), [("elsewhere", long_ms), (own, own_ms)]);
    assert_eq!(advanced.closed_for_ms, long_ms, "in a namespace that it has never heard of");
    g.restart_if_it_can();
    let closed = |world: &Fixture, name: &str| match world.acquire(world.ask(name, "B")) {
        Err(StoreError::Unavailable { .. }) => true,
        Err(other) => panic!("closed for another reason: {other}"),
        Ok(_) => false,
    };
    let unknown = g.in_namespace("never-heard-of");
    // Where each handle counts for itself, it begins with this.
    assert!(closed(g, "k") && closed(g, "new"));
    let others = [(&elsewhere, "long"), (&elsewhere, "new"), (&unknown, "k")];
    assert!(others.iter().all(|(world, name)| closed(world, name)));
    assert!(g.closed_for_ms() > 0 && g.closed_for_ms() <= own_ms);
    let early_ms = if g.has(TestCapability::StandsStill) { own_ms - 1 } else { 0 };
    g.test_store.open_again(early_ms);
    assert!(closed(g, "k"), "one millisecond too early");
    g.test_store.open_again(own_ms - early_ms);
    assert_eq!(g.closed_for_ms(), 0);
    assert!(g.take("k", "C").token.get() > a.token.get() + 10);
    assert!(!closed(g, "new"));
    assert!(others.iter().all(|(world, name)| closed(world, name)));
    assert!(elsewhere.closed_for_ms() > 0 && unknown.closed_for_ms() > 0);
    g.test_store.open_again(long_ms - own_ms);
    assert!(!others.iter().any(|(world, name)| closed(world, name)));
}

/// An operator who knows that no holder is left does not have to wait.
pub(super) fn what_advance_closed_can_be_opened_at_once(g: &Fixture) {
    let a = g.take("k", "A");
    g.advance(10).expect("an advance");
    g.open_now().expect("a store that opens");
    let b = g.take("k", "B");
    assert!(b.token.get() > a.token.get() + 10, "tokens are lifted all the same");
    assert!(g.renew(&a).is_err(), "and the lease is over");
    g.in_namespace("never-heard-of").take("k", "C");
}

/// A load balancer asks for that, and a person who reads the status.
pub(super) fn a_closed_store_says_for_how_long(g: &Fixture) {
    g.take("k", "A");
    assert_eq!((g.closed_for_ms(), g.status().closed_for_ms), (0, 0), "it grants");
    let advanced = g.advance(10).expect("an advance");
    assert!(g.closed_for_ms() > 0, "it grants nothing");
    assert!(g.status().closed_for_ms > 0, "and its status says so");
    g.test_store.open_again(advanced.closed_for_ms);
    assert_eq!((g.closed_for_ms(), g.status().closed_for_ms), (0, 0), "it grants again");
}

/// R24: after the advance no token comes twice: not on a key that the restored store knows, nor on one that it has
/// never heard of, nor in a namespace that it has never heard of.
pub(super) fn after_an_advance_no_token_comes_twice(g: &Fixture) {
    let a = g.take("known", "A");
    g.release(&a).expect("a live lease");
    let advanced = g.advance(1_000).expect("an advance");
    g.test_store.open_again(advanced.closed_for_ms);
    let elsewhere = g.in_namespace("never-heard-of");
    for (world, name) in [(g, "known"), (g, "unknown"), (&elsewhere, "unknown")] {
        let token = world.take(name, "B").token;
        assert!(token.get() > 1_000, "{name}: token {token}");
    }
}

/// R24, R13: the hold ids that it ended stay ended.
pub(super) fn a_hold_id_that_advance_ended_stays_ended(g: &Fixture) {
    let a = g.take("k", "A");
    let advanced = g.advance(10).expect("an advance");
    g.test_store.open_again(advanced.closed_for_ms);
    let again = AcquireLeaseRequest { hold_id_age_ms: g.ttl_ms(), ..a.request.clone() };
    assert_ended(g.try_with(again), &a, LeaseOutcome::Advanced);
}

/// Who stands in line is sent home, and told so at once.
pub(super) fn advance_sends_those_in_line_home(g: &Fixture) {
    g.take("k", "A");
    let waiting = g.start_raw(g.ask_to_wait("k", "B"));
    until("standing in line", || g.waiters("k") == 1);
    g.advance(10).expect("an advance");
    assert_matches!(waiting.answer(), Err(StoreError::Unavailable { .. }));
}

/// P2: at the cap it is refused, nothing wraps, and nothing was changed on the way.
pub(super) fn an_advance_past_the_cap_changes_nothing(g: &Fixture) {
    let a = g.take("k", "A");
    g.churn("l", 3);
    let b = g.take("l", "B");
    // One of the two could be lifted so far.
    assert_matches!(g.advance(TOKEN_MAX - a.token.get()).map_err(refusal), Err(Refusal::TokensExhausted));
    for (held, name) in [(&a, "k"), (&b, "l")] {
        assert_eq!(g.view(name).map(|view| view.token), Some(held.token));
        g.renew(held).expect("untouched");
    }
    g.take("still-open", "C");
}

/// P2: tokens stay below 2^53; at the cap acquisition is refused, and the last holder can still be fenced out.
pub(super) fn at_the_cap_nothing_is_granted_and_nothing_wraps(g: &Fixture) {
    let first = g.take("k", "A");
    g.release(&first).expect("a live lease");
    let advanced = g.advance(TOKEN_MAX - 3 - first.token.get()).expect("an advance");
    g.test_store.open_again(advanced.closed_for_ms);
    let last = loop {
        let held = g.take("k", "A");
        assert!(held.token.get() < TOKEN_MAX);
        if held.token.get() == TOKEN_MAX - 1 {
            break held;
        }
        g.release(&held).expect("a live lease");
    };
    assert_eq!(g.revoke_key("k").revoked.consumed_token.get(), TOKEN_MAX);
    assert_lost(g.renew(&last), &last, LeaseOutcome::Revoked);
    assert_eq!(g.try_take("k", "B").map(|held| held.token), Err(Refusal::TokensExhausted));
    g.advance(1)
        .expect("what has no token left keeps no advance from being carried out");
    assert_eq!(g.view("k").map(|view| view.token.get()), Some(TOKEN_MAX));
}

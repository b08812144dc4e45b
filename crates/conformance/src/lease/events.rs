//! What happened: in order, from a cursor, waited for, and kept for a bounded time.

use super::prelude::*;

fn after(cursor: Option<u64>) -> ListEventsRequest {
    ListEventsRequest { cursor, limit: 100, ..ListEventsRequest::default() }
}

/// Waits until a namespace that has too many events has lost its oldest: some stores leave that to their maintenance.
fn until_bounded(g: &Fixture) {
    until("what is too much is forgotten", || match g.events_page(after(Some(0))) {
        Err(StoreError::CursorTooOld { oldest_cursor: oldest, .. }) => {
            g.status().newest_event_seq - oldest < EVENTS_KEPT as u64
        }
        _ => false,
    });
}

/// A key's story, told in order.
pub(super) fn events_tell_a_keys_story_in_order(g: &Fixture) {
    let a = g.take_with(AcquireLeaseRequest { task: Some(task("run-42")), ..g.ask("k", "A") });
    g.release(&a).expect("a live lease");
    let b = g.take_and_run_out("k", "B");
    let c = g.take("k", "C");
    g.renew(&c).expect("a live lease");
    let acquired = |held: &HeldLease| EventData::LeaseAcquired {
        token: held.token,
        owner: held.request.owner.clone(),
        task: held.request.task.clone(),
        ttl_ms: g.ttl_ms(),
    };
    let ended = |held: &HeldLease, how| EventData::LeaseEnded {
        token: held.token,
        owner: held.request.owner.clone(),
        task: held.request.task.clone(),
        outcome: how,
        by: None,
        reason: None,
    };
    let story = [
        acquired(&a),
        ended(&a, LeaseOutcome::Released),
        acquired(&b),
        ended(&b, LeaseOutcome::Expired),
        acquired(&c),
    ];
    assert_eq!(g.facts("k"), story, "a renewal is no event");
    let events = g.events();
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq), "numbers grow");
}

/// A cursor goes on where it was, with pages of any size and with a prefix.
pub(super) fn a_cursor_goes_on_where_it_was(g: &Fixture) {
    for name in ["gpu/1", "cpu/1", "gpu/2", "gpu/3", "cpu/2"] {
        let held = g.take(name, "A");
        g.release(&held).expect("a live lease");
    }
    let all = g.events();
    assert_eq!(all.len(), 10);
    for limit in [1, 3, 10] {
        let mut seen = Vec::new();
        let mut cursor = None;
        // One page more than there are events: the last one is empty.
        for _ in 0..=all.len() {
            let page = g.events_page(ListEventsRequest { limit, ..after(cursor) }).expect("a page");
            assert!(page.events.len() <= limit);
            cursor = Some(page.next_cursor);
            seen.extend(page.events);
        }
        assert_eq!(seen, all, "by pages of {limit}");
    }
    let gpus = ListEventsRequest { prefix: Some("gpu/".to_owned()), ..after(Some(all[1].seq)) };
    let page = g.events_page(gpus).expect("a page");
    let names: Vec<_> = page.events.iter().map(|event| event.key.as_str()).collect();
    assert_eq!(names, ["gpu/2", "gpu/2", "gpu/3", "gpu/3"]);
    let rest = g.events_page(after(Some(page.next_cursor))).expect("a page");
    assert!(rest.events.is_empty(), "no event comes twice");
}

/// A watcher is notified when something happens.
pub(super) fn one_who_waits_is_told_when_something_happens(g: &Fixture) {
    g.take("before", "A");
    let cursor = g.events_page(after(None)).expect("a page").next_cursor;
    let wait =
        ListEventsRequest { wait_ms: g.ttl_ms(), prefix: Some("gpu/".to_owned()), ..after(Some(cursor)) };
    let waiting = g.start_events(wait);
    for _ in 0..200 {
        // Time for the request to arrive; what it is not interested in does not answer it.
        g.renew(&g.take("cpu", "A")).map(drop).expect("a live lease");
        g.revoke_key("cpu");
    }
    assert!(waiting.answered().is_none(), "nothing has happened yet that it asked for");
    g.take("gpu/1", "B");
    let page = waiting.answer().expect("a page");
    assert_eq!(page.events.len(), 1);
    assert_eq!(page.events[0].key.as_str(), "gpu/1");
    assert_matches!(&page.events[0].data, EventData::LeaseAcquired { owner: who, .. } if *who == owner("B"));
    assert!(page.next_cursor >= page.events[0].seq);
}

/// A supervisor reads what happened to what its descendants hold, and nothing else.
pub(super) fn events_by_task_are_of_those_below_it_and_no_neighbours(g: &Fixture) {
    for name in TASKS {
        let held = g.take_with(AcquireLeaseRequest { task: Some(task(name)), ..g.ask(&key_for(name), "A") });
        g.release(&held).expect("a live lease");
    }
    let plain = g.take("for none", "A");
    g.release(&plain).expect("a live lease");
    for (above, below) in COVERED {
        let request = ListEventsRequest { task_prefix: Some(task(above)), ..after(None) };
        let page = g.events_page(request.clone()).expect("a page");
        let names: Vec<_> = page.events.iter().map(|event| event.key.to_string()).collect();
        // Acquired, and ended.
        let meant: Vec<_> = below.iter().flat_map(|name| [key_for(name), key_for(name)]).collect();
        assert_eq!(names, meant, "{above}");
        let mut one_by_one = Vec::new();
        let mut cursor = None;
        for _ in 0..=page.events.len() {
            let request = ListEventsRequest { cursor, limit: 1, ..request.clone() };
            let next = g.events_page(request).expect("a page");
            cursor = Some(next.next_cursor);
            one_by_one.extend(next.events);
        }
        assert_eq!(one_by_one, page.events, "{above}");
        let rest = g.events_page(after(Some(page.next_cursor))).expect("a page");
        assert!(rest.events.is_empty(), "{above}: the cursor is past all that it was not interested in");
    }
    let keys = Some("for run-42/a/".to_owned());
    let both = ListEventsRequest { task_prefix: Some(task("run-42")), prefix: keys, ..after(None) };
    assert_eq!(g.events_page(both).expect("a page").events.len(), 2, "each filter counts beside the other");
}

/// A supervisor is notified of what its descendants take, and of nothing else.
pub(super) fn one_who_waits_for_a_task_is_told_of_those_below_it(g: &Fixture) {
    let ask = |serves: &str, who: &str| AcquireLeaseRequest {
        task: Some(task(serves)),
        ..g.ask(&key_for(serves), who)
    };
    g.take_with(ask("run-42", "A"));
    let cursor = g.events_page(after(None)).expect("a page").next_cursor;
    let task_prefix = Some(task("run-42"));
    let waiting =
        g.start_events(ListEventsRequest { wait_ms: g.ttl_ms(), task_prefix, ..after(Some(cursor)) });
    for _ in 0..200 {
        // Time for the request to arrive; what it is not interested in does not answer it.
        g.renew(&g.take_with(ask("run-420", "A"))).map(drop).expect("a live lease");
        g.revoke_key(&key_for("run-420"));
    }
    assert!(waiting.answered().is_none(), "nothing has happened yet that it asked for");
    g.take_with(ask("run-42/a", "B"));
    let page = waiting.answer().expect("a page");
    let names: Vec<_> = page.events.iter().map(|event| event.key.to_string()).collect();
    assert_eq!(names, [key_for("run-42/a")]);
    assert!(page.next_cursor >= page.events[0].seq);
}

/// Who has waited for long enough gets an empty page and a cursor to go on from.
pub(super) fn one_who_has_waited_long_enough_gets_an_empty_page(g: &Fixture) {
    g.take_with(AcquireLeaseRequest { ttl_ms: g.ttl_ms() * 100, ..g.ask("k", "A") });
    let cursor = g.events_page(after(None)).expect("a page").next_cursor;
    let waiting = g.start_events(ListEventsRequest { wait_ms: 100, ..after(Some(cursor)) });
    let answer = std::cell::RefCell::new(None);
    until("an answer", || {
        g.pass(1);
        answer.replace(waiting.answered());
        g.status();
        answer.borrow().is_some()
    });
    let page = answer.into_inner().expect("an answer").expect("a page");
    assert!(page.events.is_empty() && page.next_cursor >= cursor);
    assert!(g.events_page(after(Some(page.next_cursor))).expect("a page").events.is_empty());
}

/// A cursor that is too old gets its own error, and says from where one can go on.
pub(super) fn a_cursor_that_is_too_old_is_told_so(g: &Fixture) {
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    let first = g.events()[0].seq;
    // Every stale renewal is an event.
    let stale = vec![a.as_ref(); BATCH_MAX];
    for _ in 0..EVENTS_KEPT.div_ceil(BATCH_MAX) {
        g.renew_refs(stale.clone()).expect("answers");
    }
    until_bounded(g);
    match g.events_page(after(Some(first))) {
        Err(StoreError::CursorTooOld { cursor, oldest_cursor: oldest }) => {
            assert_eq!(cursor, first);
            assert!(oldest > first + 1);
            let page = g.events_page(after(Some(oldest - 1))).expect("the oldest that is kept");
            assert_eq!(page.events[0].seq, oldest);
        }
        other => panic!("{:?}", other.map(|page| page.events.len())),
    }
    assert_eq!(g.events().len(), EVENTS_KEPT, "bounded, and full");
}

/// A cursor that this store cannot have given is refused: it belongs to another, or this one was rewound.
pub(super) fn a_cursor_ahead_of_the_store_is_refused(g: &Fixture) {
    g.take("k", "A");
    let last = g.status().newest_event_seq;
    let page = g.events_page(after(Some(last + 1)));
    assert_matches!(page, Err(StoreError::BadInput(BadInput { field, .. })) if field == "cursor");
    assert!(g.events_page(after(Some(last))).expect("a page").events.is_empty());
}

/// R36: the collection of a key is reported, with its last token.
pub(super) fn a_collected_key_is_told_of(g: &Fixture) {
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    super::collected::until_collected(g, "k");
    let last: Option<Token> = g.facts("k").into_iter().find_map(|fact| match fact {
        EventData::KeyCollected { token } => Some(token),
        _ => None,
    });
    assert_eq!(last, Some(a.token));
}

/// One that does much keeps to its share of the history, and a cursor in another is no older for it; also after a restart.
pub(super) fn no_namespace_pushes_out_the_events_of_another(g: &Fixture) {
    let (quiet, loud) = (g.in_namespace("quiet"), g.in_namespace("loud"));
    let first = quiet.take("q/1", "A");
    quiet.release(&first).expect("a live lease");
    let told = quiet.events();
    assert_eq!(told.len(), 2);
    let a = loud.take("k", "A");
    loud.release(&a).expect("a live lease");
    // Every stale renewal is an event.
    let stale = vec![a.as_ref(); BATCH_MAX];
    let push_count = |count: usize| {
        for done in (0..count).step_by(BATCH_MAX) {
            let some = &stale[..BATCH_MAX.min(count - done)];
            loud.renew_refs(some.to_vec()).expect("answers");
        }
    };
    let push = || push_count(EVENTS_KEPT + BATCH_MAX);
    if g.has(TestCapability::Restarts) {
        push_count(EVENTS_KEPT - 500);
        // The next owner begins with a full history, and ends before a request has read it.
        g.test_store.restart();
        push_count(900);
        g.test_store.restart();
        assert_eq!(
            quiet.events(),
            told,
            "its own events are kept, although they are no longer among the newest"
        );
    }
    push();
    let check = |told: &[Event]| {
        assert_eq!(quiet.events(), told, "its own events are kept");
        let page = quiet
            .events_page(after(Some(told[0].seq)))
            .expect("a cursor whose events are kept");
        assert_eq!(page.events, told[1..], "from a cursor in between");
        let page = quiet.events_page(after(Some(0))).expect("nothing was lost here");
        assert_eq!(page.events, told, "from the beginning");
        until_bounded(&loud);
        let loud_ones = loud.events();
        assert!(loud_ones.len() + told.len() >= EVENTS_KEPT, "full: {}", loud_ones.len());
        let contiguous = loud_ones.windows(2).all(|pair| pair[0].seq < pair[1].seq);
        assert!(contiguous, "in order");
        match loud.events_page(after(Some(told[1].seq))) {
            Err(StoreError::CursorTooOld { oldest_cursor: oldest, .. }) => {
                let page = loud.events_page(after(Some(oldest - 1))).expect("the oldest that is kept");
                assert_eq!(page.events[0], loud_ones[0]);
            }
            other => panic!("{:?}", other.map(|page| page.events.len())),
        }
    };
    check(&told);
    if g.has(TestCapability::Restarts) {
        g.test_store.restart();
        check(&told);
        push();
        let second = quiet.take("q/2", "A");
        quiet.release(&second).expect("a live lease");
        let told: Vec<Event> = quiet.events();
        assert_eq!(told.len(), 4);
        check(&told);
        g.test_store.restart();
        check(&told);
    }
}

/// A stale write that was refused outside the store is in the events; of a live holder nothing is recorded.
pub(super) fn a_write_that_was_refused_elsewhere_is_recorded_unless_its_holder_is_live(g: &Fixture) {
    let late = g.take_and_run_out("k", "A");
    let next = g.take("k", "B");
    let before = g.facts("k").len();
    assert!(!g.report_blocked_write(&next), "it is live");
    assert!(g.report_blocked_write(&late));
    g.release(&next).expect("a live lease");
    assert!(g.report_blocked_write(&next), "it is over");
    let blocked = |held: &HeldLease, outcome| EventData::StaleWriteBlocked {
        token: held.token,
        current_token: next.token,
        action: BlockedAction::Write,
        outcome: Some(outcome),
    };
    let story = g.facts("k").split_off(before);
    let blocked = [blocked(&late, LeaseOutcome::Expired), blocked(&next, LeaseOutcome::Released)];
    assert_eq!((&story[0], &story[2]), (&blocked[0], &blocked[1]), "{story:?}");
    assert_eq!(story.len(), 3);
}

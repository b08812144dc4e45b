//! Looking around: lists with filters and cursors, and how much there is.

use std::collections::BTreeSet;

use super::prelude::*;

/// More pages than any list here has.
const PAGES_MAX: usize = 1_000;

fn listed(g: &Fixture, request: ListLeasesRequest) -> Vec<String> {
    let mut names = all_pages(g, ListLeasesRequest { limit: 100, ..request });
    names.sort();
    names
}

/// The keys of every page, in the order in which they came.
fn all_pages(g: &Fixture, mut request: ListLeasesRequest) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = g.list(request.clone()).expect("a page");
        assert!(page.leases.len() <= request.limit, "{} in a page of {}", page.leases.len(), request.limit);
        names.extend(page.leases.into_iter().map(|lease| lease.key.to_string()));
        if page.next_cursor.is_none() {
            return names;
        }
        request.cursor = page.next_cursor;
    }
    panic!("a list without an end");
}

fn everything() -> ListLeasesRequest {
    ListLeasesRequest::default()
}

/// By prefix, owner and task, and all of them together.
pub(super) fn a_list_shows_what_its_filters_ask_for(g: &Fixture) {
    let take = |name: &str, who: &str, serves: &str| {
        g.take_with(AcquireLeaseRequest { task: Some(task(serves)), ..g.ask(name, who) });
    };
    take("gpu/1", "A", "run-1");
    take("gpu/2", "B", "run-1");
    take("gpu/10", "A", "run-2");
    take("cpu/1", "A", "run-1");
    g.take("plain", "C");
    assert_eq!(listed(g, everything()), ["cpu/1", "gpu/1", "gpu/10", "gpu/2", "plain"]);
    let prefix = |text: &str| Some(text.to_owned());
    assert_eq!(
        listed(g, ListLeasesRequest { prefix: prefix("gpu/"), ..everything() }),
        ["gpu/1", "gpu/10", "gpu/2"]
    );
    assert_eq!(listed(g, ListLeasesRequest { prefix: prefix("gpu/1"), ..everything() }), ["gpu/1", "gpu/10"]);
    let of_a = ListLeasesRequest { owner: Some(owner("A")), ..everything() };
    assert_eq!(listed(g, of_a.clone()), ["cpu/1", "gpu/1", "gpu/10"]);
    let run_1 = ListLeasesRequest { task: Some(task("run-1")), ..everything() };
    assert_eq!(listed(g, run_1.clone()), ["cpu/1", "gpu/1", "gpu/2"]);
    let all_three = ListLeasesRequest { owner: of_a.owner, prefix: prefix("gpu"), ..run_1 };
    assert_eq!(listed(g, all_three), ["gpu/1"]);
    assert_eq!(listed(g, ListLeasesRequest { prefix: prefix("none"), ..everything() }), [""; 0]);
}

/// A supervisor finds what its descendants hold, whatever letters are in their names, and nothing else.
pub(super) fn a_list_by_task_shows_those_below_it_and_no_neighbours(g: &Fixture) {
    for name in TASKS {
        g.take_with(AcquireLeaseRequest { task: Some(task(name)), ..g.ask(&key_for(name), "A") });
    }
    g.take("for none", "A");
    let ended =
        g.take_with(AcquireLeaseRequest { task: Some(task("run-42/ended")), ..g.ask("for ended", "A") });
    g.release(&ended).expect("a live lease");
    for (above, below) in COVERED {
        let under = ListLeasesRequest { task_prefix: Some(task(above)), ..everything() };
        let below: Vec<String> = below.iter().map(|name| key_for(name)).collect();
        assert_eq!(listed(g, under.clone()), below, "{above}");
        let too = ListLeasesRequest { include_free: true, ..under };
        assert_eq!(listed(g, too), below, "{above}: a free key serves no task");
    }
    let under = ListLeasesRequest { task_prefix: Some(task("run-42")), ..everything() };
    let filters = [
        ListLeasesRequest { task: Some(task("run-42/a")), ..under.clone() },
        ListLeasesRequest { prefix: Some("for run-42/a".to_owned()), ..under.clone() },
        ListLeasesRequest { owner: Some(owner("B")), ..under },
    ];
    let counts = filters.map(|filter| listed(g, filter).len());
    assert_eq!(counts, [1, 2, 0], "each filter counts beside the others");
}

/// Free keys are shown only to who asks for them; a lease that has run out is free.
pub(super) fn free_keys_are_shown_to_who_asks_for_them(g: &Fixture) {
    g.take_and_run_out("expired", "A");
    let released = g.take("released", "A");
    g.release(&released).expect("a live lease");
    g.take("held", "A");
    assert_eq!(listed(g, everything()), ["held"]);
    let too = ListLeasesRequest { include_free: true, ..everything() };
    assert_eq!(listed(g, too.clone()), ["expired", "held", "released"]);
    assert_eq!(
        listed(g, ListLeasesRequest { owner: Some(owner("A")), ..too }),
        ["held"],
        "a free key has no owner"
    );
}

/// A row of a list says what `get` says.
pub(super) fn a_list_says_what_get_says(g: &Fixture) {
    g.churn("k", 2);
    g.take_with(AcquireLeaseRequest { task: Some(task("run-1")), ..g.ask("k", "A") });
    let page = g.list(ListLeasesRequest { limit: 10, ..everything() }).expect("a page");
    let listed = page.leases.into_iter().next().expect("a row");
    let got = g.view("k").expect("a held key");
    if g.has(TestCapability::StandsStill) {
        assert_eq!(listed, got);
    } else {
        assert_eq!((listed.token, listed.endings), (got.token, got.endings));
    }
}

/// Pages of any size show every key once, also when keys come and go between them.
pub(super) fn pages_show_every_key_exactly_once(g: &Fixture) {
    let held: Vec<HeldLease> = (0..23).map(|nth| g.take(&format!("k/{nth:02}"), "A")).collect();
    for limit in [1, 7, 23, 24] {
        let seen = all_pages(g, ListLeasesRequest { limit, ..everything() });
        let once: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!((seen.len(), once.len()), (held.len(), held.len()), "by pages of {limit}");
    }
    let first = g.list(ListLeasesRequest { limit: 10, ..everything() }).expect("a page");
    let shown: BTreeSet<_> = first.leases.iter().map(|lease| lease.key.clone()).collect();
    for gone in held.iter().filter(|held| shown.contains(&held.key)) {
        g.release(gone).expect("a live lease");
    }
    let rest = ListLeasesRequest { cursor: first.next_cursor, ..everything() };
    assert_eq!(listed(g, rest).len(), held.len() - shown.len(), "nothing is skipped because others ended");
}

/// How much there is, and where.
pub(super) fn the_status_counts_keys_holds_and_waiters(g: &Fixture) {
    let status = g.status();
    assert_eq!(status.store, g.capabilities().store);
    assert_eq!((status.key_count, status.held_count, status.waiter_count), (0, 0, 0));
    g.take("k", "A");
    let free = g.take("free", "A");
    g.release(&free).expect("a live lease");
    g.in_namespace("elsewhere").take("k", "A");
    let _waiting = g
        .capabilities()
        .supports_waiting
        .then(|| g.stand_in_line(g.ask_to_wait("k", "B")));
    let status = g.status();
    assert_eq!((status.key_count, status.held_count), (3, 2), "of every namespace");
    assert_eq!(status.waiter_count, u64::from(g.capabilities().supports_waiting));
}

/// How leases ended is counted, each once, and for each namespace alone.
pub(super) fn the_statistics_count_how_leases_ended(g: &Fixture) {
    let before = g.stats();
    assert_eq!((before.total(), before.complete), (0, true), "{before:?}");
    let elsewhere = g.in_namespace("elsewhere");
    for (name, h) in [("a", g), ("b", g), ("a", &elsewhere)] {
        let held = h.take(name, "A");
        h.release(&held).expect("a live lease");
    }
    g.take("r", "A");
    g.revoke_key("r");
    let late = g.take_and_run_out("x", "A");
    let next = g.take("x", "B");
    assert!(g.renew(&late).is_err(), "its time is up");
    g.renew(&next).expect("a live lease");
    let stats = g.stats();
    assert_eq!(
        (stats.released_count, stats.revoked_count, stats.expired_count, stats.total(), stats.complete),
        (2, 1, 1, 4, true),
        "{stats:?}"
    );
    assert_eq!(elsewhere.stats().total(), 1);
}

/// What happens to leases is counted where it happens, on every store.
pub(super) fn the_metrics_count_how_leases_ended(g: &Fixture) {
    let before = g.counted();
    let held = g.take("a", "A");
    g.release(&held).expect("a live lease");
    g.release(&held).expect("the same again is answered, and counts once");
    assert!(g.renew(&held).is_err(), "a renewal that its own release has overtaken is no stale write");
    let late = g.take_and_run_out("x", "A");
    let next = g.take("x", "A");
    assert!(g.renew(&late).is_err(), "its time is up");
    g.release(&next).expect("a live lease");
    // By the handle that did it, where each counts its own.
    let more = g.counted().into_iter().zip(before).map(|(after, before)| {
        let pairs = after.into_iter().zip(before);
        pairs.map(|(after, before)| after - before).collect::<Vec<u64>>()
    });
    assert_eq!(more.max().expect("counts"), [3, 2, 1, 1], "granted, released, expired, stale");
}

fn contention_of(g: &Fixture, name: &str) -> Option<KeyContention> {
    let request = ListContentionRequest { key: Some(key(name)), prefix: None };
    g.contention(request).pop()
}

/// Each refused acquisition counts, by name the last, and each key for itself. What was never refused is not listed.
pub(super) fn contention_tells_who_was_refused_and_how_long_the_line_was(g: &Fixture) {
    let all = || g.contention(ListContentionRequest::default());
    assert_eq!(all(), []);
    let held = g.take("busy", "A");
    g.take("quiet", "A");
    g.in_namespace("elsewhere").take("busy", "B");
    assert_eq!(all(), [], "nothing was refused yet");
    assert_held_by(g.try_take("busy", "B"), &held);
    let asks = AcquireLeaseRequest { task: Some(task("run-1")), ..g.ask("busy", "C") };
    assert_held_by(g.try_with(asks.clone()), &held);
    let again = AcquireLeaseRequest { hold_id_age_ms: 1, ..asks };
    assert_held_by(g.try_with(again), &held);
    let busy = contention_of(g, "busy").expect("a contended key");
    let last = busy.last_refused.clone().expect("a refusal");
    assert_eq!((last.owner, last.task), (owner("C"), Some(task("run-1"))));
    assert_eq!((busy.refused_count, busy.max_waiter_count), (2, 0), "the same request again counts once");
    assert!(busy.begins_at_ms <= last.refused_at_ms, "{busy:?}");
    if g.capabilities().supports_waiting {
        let line = |count| {
            let seen = || contention_of(g, "busy").is_some_and(|busy| busy.max_waiter_count == count);
            until("the line is on record", seen);
        };
        let waits = g.stand_in_line(g.ask_to_wait("busy", "B"));
        line(1);
        let also_waits = g.stand_in_line(g.ask_to_wait("busy", "C"));
        line(2);
        g.release(&held).expect("a live lease");
        let next = waits.answer().expect("the first in line");
        g.release(&next).expect("a live lease");
        also_waits.answer().expect("the second in line");
        let busy = contention_of(g, "busy").expect("a contended key");
        assert_eq!((busy.refused_count, busy.max_waiter_count), (2, 2), "one that waits is not refused");
    } else {
        g.release(&held).expect("a live lease");
    }
    let listed: Vec<Key> = all().into_iter().map(|seen| seen.key).collect();
    assert_eq!(listed, keys(&["busy"]), "also once it is free");
    assert_eq!(g.contention(ListContentionRequest { prefix: Some("q".to_owned()), key: None }), []);
    assert_eq!(g.in_namespace("elsewhere").contention(ListContentionRequest::default()), []);
}

/// One that stood in line until its time was up was refused.
pub(super) fn a_wait_that_was_in_vain_is_contention(g: &Fixture) {
    let held = g.take_with(AcquireLeaseRequest { ttl_ms: g.ttl_ms() * 10, ..g.ask("k", "A") });
    let request = AcquireLeaseRequest { wait_ms: 200, ..g.ask("k", "B") };
    let waits = if g.has(TestCapability::MovesTime) {
        let waits = g.stand_in_line(request);
        g.pass(201);
        waits
    } else {
        g.start(request)
    };
    assert_held_by(waits.answer(), &held);
    let seen = contention_of(g, "k").expect("a contended key");
    let last = seen.last_refused.expect("a refusal");
    assert_eq!((last.owner, seen.refused_count, seen.max_waiter_count), (owner("B"), 1, 1));
}

pub(super) fn an_acquisition_of_any_of_several_keys_contends_for_each(g: &Fixture) {
    g.take("a", "A");
    g.take("b", "A");
    let either = AcquireLeaseRequest { any_of: keys(&["a", "b"]), ..g.ask("a", "B") };
    assert!(g.try_with(either).is_err(), "both are held");
    let seen = g.contention(ListContentionRequest::default()).into_iter();
    let counts: Vec<(Key, u64)> = seen.map(|seen| (seen.key, seen.refused_count)).collect();
    assert_eq!(counts, [(key("a"), 1), (key("b"), 1)]);
}

//! Bad input: refused with the field and the limit, and nothing is done.

use super::prelude::*;

/// The answer must name the field, and the limit where there is one.
#[track_caller]
fn assert_bad<T>(answer: Result<T, StoreError>, field: &str, limit: Option<u64>) {
    match answer {
        Err(StoreError::BadInput(BadInput { field: named, message: problem })) => {
            assert_eq!(named, field, "{problem}");
            if let Some(limit) = limit {
                assert!(problem.contains(&limit.to_string()), "the limit of {limit} is not in: {problem}");
            }
        }
        Err(other) => panic!("a bad {field} got: {other}"),
        Ok(_) => panic!("a bad {field} was accepted"),
    }
}

/// A ttl of 0, below the store's least, or huge.
pub(super) fn a_ttl_out_of_bounds_is_refused(g: &Fixture) {
    let least_ms = g.capabilities().min_ttl_ms;
    let ask = |ttl_ms| g.acquire(AcquireLeaseRequest { ttl_ms, ..g.ask("k", "A") });
    assert_bad(ask(0), "ttl", Some(least_ms));
    assert_bad(ask(least_ms - 1), "ttl", Some(least_ms));
    assert_bad(ask(TTL_MS_MAX + 1), "ttl", Some(TTL_MS_MAX));
    assert_bad(ask(u64::MAX), "ttl", Some(TTL_MS_MAX));
    assert_eq!(g.view("k"), None, "nothing was done");
    g.take_with(AcquireLeaseRequest { ttl_ms: least_ms, ..g.ask("least", "A") });
    g.take_with(AcquireLeaseRequest { ttl_ms: TTL_MS_MAX, ..g.ask("most", "A") });
}

/// A `max_age` of 0, or huge.
pub(super) fn a_max_age_out_of_bounds_is_refused(g: &Fixture) {
    let ask = |max_age_ms| g.acquire(AcquireLeaseRequest { max_age_ms: Some(max_age_ms), ..g.ask("k", "A") });
    assert_bad(ask(0), "max_age", None);
    assert_bad(ask(MAX_AGE_MS_MAX + 1), "max_age", Some(MAX_AGE_MS_MAX));
    assert_eq!(g.view("k"), None, "nothing was done");
    assert!(ask(MAX_AGE_MS_MAX).is_ok());
}

/// A wait, an age of the hold id, or a time to yield over its limit.
pub(super) fn a_time_over_its_limit_is_refused(g: &Fixture) {
    let ask = || g.ask("k", "A");
    let waits = |wait_ms| g.acquire(AcquireLeaseRequest { wait_ms, ..ask() });
    assert_bad(waits(WAIT_MS_MAX + 1), "wait", Some(WAIT_MS_MAX));
    let aged = |hold_age_ms| g.acquire(AcquireLeaseRequest { hold_id_age_ms: hold_age_ms, ..ask() });
    assert_bad(aged(HOLD_AGE_MS_MAX + 1), "age of the hold id", Some(HOLD_AGE_MS_MAX));
    let yields = |ms| g.acquire(AcquireLeaseRequest { preempt_within_ms: Some(ms), ..ask() });
    assert_bad(yields(YIELD_MS_MAX + 1), "yield time", Some(YIELD_MS_MAX));
    assert_eq!(g.view("k"), None, "nothing was done");
    let at_the_limits = AcquireLeaseRequest {
        wait_ms: WAIT_MS_MAX,
        // The way to the store may add a moment.
        hold_id_age_ms: HOLD_AGE_MS_MAX - 1_000,
        preempt_within_ms: Some(YIELD_MS_MAX),
        ..ask()
    };
    g.take_with(at_the_limits);
}

/// No key, too many keys, or the same key twice.
pub(super) fn keys_that_are_none_too_many_or_doubled_are_refused(g: &Fixture) {
    let ask = |keys: Vec<Key>| g.acquire(AcquireLeaseRequest { any_of: keys, ..g.ask("k/0", "A") });
    let many = |count: usize| (0..count).map(|nth| key(&format!("k/{nth}"))).collect::<Vec<_>>();
    let limit = Some(KEYS_PER_ACQUIRE_MAX as u64);
    assert_bad(ask(vec![]), "keys", limit);
    assert_bad(ask(many(KEYS_PER_ACQUIRE_MAX + 1)), "keys", limit);
    assert_bad(ask(keys(&["k/0", "l", "k/0"])), "keys", None);
    assert_eq!((g.view("k/0"), g.view("l")), (None, None), "nothing was done");
    assert!(ask(many(KEYS_PER_ACQUIRE_MAX)).is_ok());
}

/// A page of nothing, or of too much.
pub(super) fn a_page_out_of_bounds_is_refused(g: &Fixture) {
    for limit in [0, PAGE_MAX + 1] {
        let page = g.list(ListLeasesRequest { limit, ..ListLeasesRequest::default() });
        assert_bad(page, "limit", Some(PAGE_MAX as u64));
    }
    let page = g.list(ListLeasesRequest { limit: PAGE_MAX, ..ListLeasesRequest::default() });
    page.expect("a page at its limit");
    if g.has(TestCapability::TellsEvents) {
        for limit in [0, PAGE_MAX + 1] {
            let page = g.events_page(ListEventsRequest { limit, ..ListEventsRequest::default() });
            assert_bad(page, "limit", Some(PAGE_MAX as u64));
        }
        let page = g.events_page(ListEventsRequest { limit: PAGE_MAX, ..ListEventsRequest::default() });
        page.expect("a page at its limit");
    }
}

/// A batch over its limit is refused as a whole.
pub(super) fn a_batch_over_its_limit_is_refused_as_a_whole(g: &Fixture) {
    let a = g.take("k", "A");
    let refs = vec![a.as_ref(); BATCH_MAX + 1];
    let limit = Some(BATCH_MAX as u64);
    assert_bad(g.renew_refs(refs.clone()), "renewals", limit);
    assert_bad(g.release_refs(refs.clone()), "releases", limit);
    assert_eq!(g.holder_name("k").as_deref(), Some("A"), "nothing was done");
    let answers = g.renew_refs(refs[1..].to_vec()).expect("a batch at its limit");
    assert_eq!(answers.len(), BATCH_MAX);
    assert!(answers.iter().all(Result::is_ok));
}

/// An advance by nothing cures nothing.
pub(super) fn an_advance_by_nothing_is_refused(g: &Fixture) {
    let a = g.take("k", "A");
    assert_bad(g.advance(0), "increment", None);
    g.renew(&a).expect("untouched");
}

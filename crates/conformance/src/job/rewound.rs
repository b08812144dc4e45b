//! A store that was rewound: the alarm, and the cure.

use super::prelude::*;

/// After an advance nothing from before speaks for a job: neither who held it nor who was late.
pub(super) fn after_an_advance_nothing_from_before_speaks_for_a_job(g: &Fixture) {
    let late = g.new_work("q", "A");
    g.crash(&late);
    let live = {
        let work = g.new_work("r", "A");
        g.renew_work(&work).expect("a live claim");
        work
    };
    g.advance(1_000).expect("an advance");
    g.pass(g.ttl_ms());
    for work in [&late, &live] {
        assert!(matches!(g.complete(work), Err(JobRefusal::Stale { .. })), "{:?}", g.complete(work));
        assert_eq!(g.state(work.job.id), JobState::Queued);
    }
    assert_eq!(g.ended(live.job.id), Some(AttemptOutcome::Advanced));
    assert_eq!(g.counts_of(live.job.id), (0, 0));
    let next = g.work("r", "B");
    assert!(next.job.token.get() > live.job.token.get() + 1_000, "no token comes twice");
}

/// Until the longest ttl is over nothing is given out: a holder from the time that was lost may still be at work.
pub(super) fn an_advance_closes_the_queues_for_the_longest_ttl(g: &Fixture) {
    g.new_work("q", "A");
    g.advance(1_000).expect("an advance");
    assert_matches!(
        g.claim_raw(g.claim_for("q", "B")),
        Err(StoreError::Unavailable { .. }),
        "given too early"
    );
    g.put("q");
    g.pass(g.ttl_ms());
    g.work("q", "B");
}

/// A claim with a long ttl in one namespace closes no other for as long.
pub(super) fn an_advance_closes_the_queues_of_a_namespace_for_its_own_longest_ttl(g: &Fixture) {
    let long_ms = g.ttl_ms() * 3;
    let elsewhere = g.in_namespace("elsewhere");
    let closed = |world: &Fixture| match world.claim_raw(world.claim_for("q", "B")) {
        Err(StoreError::Unavailable { .. }) => true,
        Err(other) => panic!("closed for another reason: {other}"),
        Ok(_) => false,
    };
    g.new_work("q", "A");
    elsewhere.put("q");
    let long = ClaimJobsRequest { ttl_ms: long_ms, ..elsewhere.claim_for("q", "A") };
    assert_eq!(elsewhere.claim(long).len(), 1);
    g.advance(1_000).expect("an advance");
    g.pass(g.ttl_ms() - 1);
    assert!(closed(g), "one millisecond too early");
    g.pass(1);
    g.work("q", "B");
    g.pass(long_ms - g.ttl_ms() - 1);
    assert!(closed(&elsewhere), "one millisecond too early");
    g.pass(1);
    elsewhere.work("q", "B");
}

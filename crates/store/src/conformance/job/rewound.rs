//! A store that was rewound: the alarm, and the cure.

use fencehold_core::job::{Ended, Refusal, State};

use crate::arena::Power;
use crate::conformance::Verdict;
use crate::conformance::ground::Ground;

/// After an advance nothing from before speaks for a job: neither who held it nor who was late.
pub(super) fn after_an_advance_nothing_from_before_speaks_for_a_job(g: &Ground) -> Verdict {
    g.needs(Power::Advances)?;
    g.needs(Power::MovesTime)?;
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
        assert!(matches!(g.complete(work), Err(Refusal::Stale { .. })), "{:?}", g.complete(work));
        assert_eq!(g.state(work.job.id), State::Queued);
    }
    assert_eq!(g.ended(live.job.id), Some(Ended::Advanced));
    assert_eq!(g.counts_of(live.job.id), (0, 0));
    let next = g.work("r", "B");
    assert!(next.job.token.get() > live.job.token.get() + 1_000, "no token comes twice");
    Ok(())
}

/// Until the longest ttl is over nobody is given anything: somebody from the time that was lost may still be at work.
pub(super) fn an_advance_closes_the_queues_for_the_longest_ttl(g: &Ground) -> Verdict {
    g.needs(Power::Advances)?;
    g.needs(Power::MovesTime)?;
    g.new_work("q", "A");
    g.advance(1_000).expect("an advance");
    match g.claim_raw(g.claim_for("q", "B")) {
        Err(crate::error::StoreError::Unavailable { .. }) => {}
        other => panic!("given too early: {other:?}"),
    }
    g.put("q");
    g.pass(g.ttl_ms());
    g.work("q", "B");
    Ok(())
}

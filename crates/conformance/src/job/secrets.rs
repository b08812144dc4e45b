//! A hold id is a secret: it is in nothing that a store tells of a job.

use super::prelude::*;

/// P5: neither a hold id nor its hash is in anything that can be printed.
pub(super) fn no_hold_id_is_in_anything_that_is_told_of_a_job(g: &Fixture) {
    let id = g.put("q");
    let claim = |hold_id| ClaimJobsRequest { hold_id, ..g.claim_for("q", "A") };
    let claims = SECRETS.map(HoldId::from_random).map(claim);
    let first = g.claim(claims[0].clone()).pop().expect("a job");
    let mut shown = vec![
        format!("{:?}", claims[0]),
        format!("{:?}", first.attempt()),
        format!("{:?}", g.claim_raw(claims[0].clone())),
        format!("{:?}", g.announce(&first, "charge", InDoubtPolicy::Manual)),
        format!("{:?}", g.detail(id)),
        format!("{:?}", g.renew_work(&first)),
        format!("{:?}", g.say(&first, Report::Release {})),
    ];
    let second = g.claim(claims[1].clone()).pop().expect("a job");
    shown.extend([
        format!("{:?}", g.complete(&first)),
        format!("{:?}", g.announce(&second, "charge", InDoubtPolicy::Manual)),
        format!("{:?}", g.detail(id)),
        format!("{:?}", g.jobs_where(&JobFilter::default(), 10)),
        format!("{:?}", g.findings()),
        format!("{:?}", g.delete(id, true)),
        format!("{:?}", g.test_store.store()),
        format!("{:?}", g.test_store.other()),
    ]);
    if g.has(TestCapability::TellsEvents) {
        shown.push(format!("{:?}", g.events()));
    }
    assert_no_secret_in(&shown);
}

//! A hold id is a secret: it is in nothing that a store tells of a job.

use fencehold_contract::job::{ClaimJobsRequest, JobFilter, Report};
use fencehold_core::HoldId;
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_test_store::TestCapability;

use crate::CaseResult;
use crate::fixture::Fixture;

/// P5: neither a hold id nor its hash is in anything that can be printed.
pub(super) fn no_hold_id_is_in_anything_that_is_told_of_a_job(g: &Fixture) -> CaseResult {
    let holds = [HoldId::from_random([0xa7; 16]), HoldId::from_random([0xb9; 16])];
    let id = g.put("q");
    let claims = holds.map(|hold| ClaimJobsRequest { hold_id: hold, ..g.claim_for("q", "A") });
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
    for hold in holds {
        let secret = hold.reveal();
        let hash = *hold.hash().as_bytes();
        let hex: Vec<String> = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let list: Vec<String> = hash[..4].iter().map(u8::to_string).collect();
        for told in &shown {
            for secret in [&secret[..8], &hex.concat(), &list.join(", "), "167, 167", "185, 185"] {
                assert!(!told.contains(secret), "a secret is in {told}");
            }
        }
    }
    Ok(())
}

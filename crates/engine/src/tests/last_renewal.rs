//! When a holder last gave a sign of life, also where its term was cut short.

use fencehold_contract::AcquireLeaseRequest;

use super::{TTL_MS, TestEngine, request};

fn beat_ms_ago(rig: &mut TestEngine) -> Option<u64> {
    rig.view("k").unwrap().holder.unwrap().renewed_ago_ms
}

#[test]
fn a_view_says_how_long_ago_the_holder_renewed() {
    let mut rig = TestEngine::new();
    let held = rig.take(AcquireLeaseRequest { max_age_ms: Some(TTL_MS + 2_000), ..request("k", 1) });
    rig.pass(TTL_MS - 1_000);
    assert_eq!(beat_ms_ago(&mut rig), Some(TTL_MS - 1_000), "it was granted then");
    rig.renew(&held).unwrap();
    assert_eq!(beat_ms_ago(&mut rig), Some(0));
    rig.pass(500);
    assert_eq!(beat_ms_ago(&mut rig), Some(500), "although this term is shorter than a ttl");
}

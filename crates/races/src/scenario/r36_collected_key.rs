//! R36, collected key: A key is released and stays free for so long that its record is removed; B takes it.

use fencehold_core::limits::COLLECT_AFTER_FREE_MS;
use fencehold_test_store::TestCapability;

use super::Race;
use crate::protocol::LeaseCall;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R36",
    name: "collected key",
    promise: "P2 Tokens only grow",
    schedule: "A key is released and stays free for so long that its record is removed; B takes it",
    must_hold: "the token is larger than before",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::Collects, "it collects no keys")?;
    let (a, b) = (script.actor("A"), script.actor("B"));
    let lease = a.acquires()?;
    a.releases(&lease);
    script.passes(COLLECT_AFTER_FREE_MS + 1)?;
    // A call has waited for the sweep.
    script.actor("sweep").does(LeaseCall::Sweep(script.key.clone()));
    let new = b.acquires()?;
    script.must(new.token > lease.token, "tokens grow over a collected key")
}

//! R23, restart with leases in flight: A holds the key; the store restarts; B asks; the ttl passes; B asks again.

use fencehold_test_store::TestCapability;

use super::Race;
use crate::protocol::LeaseReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R23",
    name: "restart with leases in flight",
    promise: "P6 Acknowledged is durable",
    schedule: "A holds the key; the store restarts; B asks; the ttl passes; B asks again",
    must_hold: "B gets nothing early, and the key with a larger token on time",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::Restarts, "it cannot be restarted")?;
    let (a, b) = (script.actor("A"), script.actor("B"));
    let lease = a.acquires()?;
    script.restarts();
    script
        .must(matches!(b.asks(b.wish()), LeaseReply::Held { .. }), "nothing is free because of a restart")?;
    script.must(matches!(a.renews(&lease), LeaseReply::Renewed { .. }), "its holder goes on")?;
    script.expires(&lease);
    let new = b.acquires()?;
    script.must(new.token > lease.token, "tokens grow over a restart")
}

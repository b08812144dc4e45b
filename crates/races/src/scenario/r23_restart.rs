//! R23, restart with leases in flight: A holds the key; the store restarts; B asks; the ttl passes; B asks again.

use fencehold_test_store::Power;

use super::Race;
use crate::protocol::Told;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R23",
    name: "restart with leases in flight",
    promise: "P6 Acknowledged is durable",
    schedule: "A holds the key; the store restarts; B asks; the ttl passes; B asks again",
    must_hold: "B gets nothing early, and the key with a larger token on time",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::Restarts, "it cannot be restarted")?;
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let lease = a.acquires()?;
    stage.restarts();
    stage.must(matches!(b.asks(b.wish()), Told::Held { .. }), "nothing is free because of a restart")?;
    stage.must(matches!(a.renews(&lease), Told::Renewed { .. }), "its holder goes on")?;
    stage.expires(&lease);
    let new = b.acquires()?;
    stage.must(new.token > lease.token, "tokens grow over a restart")
}

//! R36, collected key: A key is released and stays free for so long that its record is removed; B takes it.

use fencehold_core::limits::COLLECT_AFTER_FREE_MS;
use fencehold_test_store::Power;

use super::Race;
use crate::protocol::Act;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R36",
    name: "collected key",
    promise: "P2 Tokens only grow",
    schedule: "A key is released and stays free for so long that its record is removed; B takes it",
    must_hold: "the token is larger than before",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::Collects, "it collects no keys")?;
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let lease = a.acquires()?;
    a.releases(&lease);
    stage.passes(COLLECT_AFTER_FREE_MS + 1)?;
    // A call has waited for the sweep.
    stage.actor("sweep").does(Act::Sweep(stage.key.clone()));
    let new = b.acquires()?;
    stage.must(new.token > lease.token, "tokens grow over a collected key")
}

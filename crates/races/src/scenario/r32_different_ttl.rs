//! R32, different ttl: A holds the key with its ttl; B, which has a much shorter ttl configured, asks, and
//! again when that would be over.

use super::Race;
use crate::protocol::{Told, Wish};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R32",
    name: "different ttl",
    promise: "P4 The store's clock decides",
    schedule: "A holds the key with its ttl; B, which has a much shorter ttl configured, asks, and again when that \
               would be over",
    must_hold: "the recorded ttl counts",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let lease = a.acquires()?;
    let short = || Wish { ttl_ms: stage.ttl_ms() / 10, ..b.wish() };
    stage.must(matches!(b.asks(short()), Told::Held { .. }), "B sees the holder")?;
    stage.passes(stage.ttl_ms() / 5)?;
    stage.must(matches!(b.asks(short()), Told::Held { .. }), "no early theft by a shorter ttl")?;
    stage.must(matches!(a.renews(&lease), Told::Renewed { .. }), "its holder can renew")
}

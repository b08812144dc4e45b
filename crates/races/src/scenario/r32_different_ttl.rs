//! R32, different ttl: A holds the key with its ttl; B, which has a much shorter ttl configured, asks, and
//! again when that would be over.

use super::Race;
use crate::protocol::{AcquireTerms, LeaseReply};
use crate::script::{Script, ScriptResult};

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

fn script(script: &Script) -> ScriptResult {
    let (a, b) = (script.actor("A"), script.actor("B"));
    let lease = a.acquires()?;
    let short = || AcquireTerms { ttl_ms: script.ttl_ms() / 10, ..b.wish() };
    script.must(matches!(b.asks(short()), LeaseReply::Held { .. }), "B sees the holder")?;
    script.passes(script.ttl_ms() / 5)?;
    script.must(matches!(b.asks(short()), LeaseReply::Held { .. }), "no early theft by a shorter ttl")?;
    script.must(matches!(a.renews(&lease), LeaseReply::Renewed { .. }), "its holder can renew")
}

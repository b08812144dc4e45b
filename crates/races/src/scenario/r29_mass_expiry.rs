//! R29, mass expiry: More leases end in one moment than one sweep looks at; A renews its own; B takes one of theirs.

use fencehold_core::lease::LeaseOutcome;
use fencehold_test_store::TestCapability;

use super::Race;
use crate::protocol::{AcquireTerms, LeaseReply};
use crate::script::{Script, ScriptResult};

/// More than any store sweeps in one go.
const MANY: usize = 600;
/// How long a sweep that needs several goes may take, by the store's clock.
const SWEPT_WITHIN_MS: u64 = 1_000;

pub(super) const RACE: Race = Race {
    id: "R29",
    name: "mass expiry",
    promise: "P10 Nothing to clean",
    schedule: "More leases end in one moment than one sweep looks at; A renews its own; B takes one of theirs",
    must_hold: "A and B are answered, and every one of them is over without anybody asking",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::MovesTime, "its time cannot be moved")?;
    script.needs(TestCapability::OwnClock, "it has no clock of its own")?;
    let (a, b, crowd) = (script.actor("A"), script.actor("B"), script.actor("crowd"));
    let LeaseReply::Granted(own) = a.asks(AcquireTerms { ttl_ms: script.ttl_ms() * 4, ..a.wish() }) else {
        return script.must(false, "a free key is granted");
    };
    let theirs = crowd.takes_others(MANY)?;
    script.passes(script.ttl_ms())?;
    script.must(matches!(a.renews(&own), LeaseReply::Renewed { .. }), "A is answered while others end")?;
    let one = &theirs[MANY / 2];
    let told = b.asks(AcquireTerms { key: one.key.clone(), ..b.wish() });
    script.must(
        matches!(&told, LeaseReply::Granted(new) if new.token > one.token),
        "B gets what has run out, swept or not",
    )?;
    script.passes(SWEPT_WITHIN_MS)?;
    script.comes("all that have run out are over", || script.held() == Some(2))?;
    let told = crowd.renews_all(&theirs);
    script.must(told.iter().all(|told| told.is_lost(LeaseOutcome::Expired)), "each of them learns so")?;
    script.must(script.holder().as_deref() == Some("A"), "A still has its own")
}

//! R29, mass expiry: More leases end in one moment than one sweep looks at; A renews its own; B takes one of theirs.

use fencehold_core::lease::LeaseOutcome;
use fencehold_test_store::Power;

use super::Race;
use crate::protocol::{Told, Wish};
use crate::stage::{Played, Stage};

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

fn script(stage: &Stage) -> Played {
    stage.needs(Power::MovesTime, "its time cannot be moved")?;
    stage.needs(Power::OwnClock, "it has no clock of its own")?;
    let (a, b, crowd) = (stage.actor("A"), stage.actor("B"), stage.actor("crowd"));
    let Told::Granted(own) = a.asks(Wish { ttl_ms: stage.ttl_ms() * 4, ..a.wish() }) else {
        return stage.must(false, "a free key is granted");
    };
    let theirs = crowd.takes_others(MANY)?;
    stage.passes(stage.ttl_ms())?;
    stage.must(matches!(a.renews(&own), Told::Renewed { .. }), "A is answered while others end")?;
    let one = &theirs[MANY / 2];
    let told = b.asks(Wish { key: one.key.clone(), ..b.wish() });
    stage.must(
        matches!(&told, Told::Granted(new) if new.token > one.token),
        "B gets what has run out, swept or not",
    )?;
    stage.passes(SWEPT_WITHIN_MS)?;
    stage.comes("all that have run out are over", || stage.held() == Some(2))?;
    let told = crowd.renews_all(&theirs);
    stage.must(told.iter().all(|told| told.is_lost(LeaseOutcome::Expired)), "each of them learns so")?;
    stage.must(stage.holder().as_deref() == Some("A"), "A still has its own")
}

//! R08, steal back: A's renewal is delayed; the lease expires and B takes the key; the renewal arrives.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R08",
    name: "steal back",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal is delayed; the lease expires and B takes the key; the renewal arrives",
    must_hold: "it is refused, and B still holds the key",
    naive: Some("having been the holder is enough: A retakes"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let old = a.acquires()?;
    let delayed = a.begins(Act::Renew(old.clone()))?;
    stage.expires(&old);
    b.acquires()?;
    let told = delayed.goes_on()?;
    stage.must(stage.holder().as_deref() == Some("B"), "B still holds the key")?;
    stage.must(matches!(told, Told::Lost { .. }), "A learns that it lost the lease")
}

//! R11, revoke against a renewal in flight: A's renewal is in flight; P revokes and B takes the key; the renewal
//! lands.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R11",
    name: "revoke against a renewal in flight",
    promise: "P9 Force leaves a trace",
    schedule: "A's renewal is in flight; P revokes and B takes the key; the renewal lands",
    must_hold: "it is refused, B holds the key, and a token was consumed by force",
    naive: Some("the lease is revived over B's"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b, p) = (stage.actor("A"), stage.actor("B"), stage.actor("P"));
    let old = a.acquires()?;
    let renewal = a.begins(Act::Renew(old.clone()))?;
    let forced = p.revokes();
    let new = b.acquires()?;
    let told = renewal.goes_on()?;
    stage.must(stage.holder().as_deref() == Some("B"), "B holds the key")?;
    stage.must(matches!(told, Told::Lost { .. }), "A learns that it lost the lease")?;
    let Told::Revoked { consumed } = forced else { return stage.must(false, "force ends the lease") };
    stage.must(old.token < consumed && consumed < new.token, "force consumed a token of its own")
}

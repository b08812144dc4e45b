//! R28, two claimers and a sweep: A lease is over; a sweep and two claimers come to it in turn, all having set out
//! before.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R28",
    name: "two claimers and a sweep",
    promise: "P1 One holder",
    schedule: "A lease is over; a sweep and two claimers come to it in turn, all having set out before",
    must_hold: "one hold and one token",
    naive: Some("the sweep deletes what the first claimer took, and the second takes it too"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b, s) = (stage.actor("A"), stage.actor("B"), stage.actor("sweep"));
    let dead = stage.actor("D").acquires()?;
    stage.expires(&dead);
    let sweep = s.begins(Act::Sweep(stage.key.clone()))?;
    let first = a.begins(Act::Acquire(a.wish()))?;
    let second = b.begins(Act::Acquire(b.wish()))?;
    let first = first.goes_on()?;
    sweep.goes_on()?;
    let second = second.goes_on()?;
    stage.must(matches!(first, Told::Granted(_)), "the first claimer gets it")?;
    stage.must(matches!(second, Told::Held { .. }), "the second does not")?;
    stage.must(stage.holder().as_deref() == Some("A"), "the first still holds it")
}

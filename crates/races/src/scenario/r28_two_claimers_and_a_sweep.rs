//! R28, two claimers and a sweep: A lease is over; a sweep and two claimers come to it in turn, all having set out
//! before.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R28",
    name: "two claimers and a sweep",
    promise: "P1 One holder",
    schedule: "A lease is over; a sweep and two claimers come to it in turn, all having set out before",
    must_hold: "one hold and one token",
    naive: Some("the sweep deletes what the first claimer took, and the second takes it too"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b, s) = (script.actor("A"), script.actor("B"), script.actor("sweep"));
    let dead = script.actor("D").acquires()?;
    script.expires(&dead);
    let sweep = s.begins(LeaseCall::Sweep(script.key.clone()))?;
    let first = a.begins(LeaseCall::Acquire(a.wish()))?;
    let second = b.begins(LeaseCall::Acquire(b.wish()))?;
    let first = first.goes_on()?;
    sweep.goes_on()?;
    let second = second.goes_on()?;
    script.must(matches!(first, LeaseReply::Granted(_)), "the first claimer gets it")?;
    script.must(matches!(second, LeaseReply::Held { .. }), "the second does not")?;
    script.must(script.holder().as_deref() == Some("A"), "the first still holds it")
}

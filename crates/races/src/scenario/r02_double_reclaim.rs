//! R02, double reclaim: A lease is over; A and B both set out to take it; both arrive.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R02",
    name: "double reclaim",
    promise: "P1 One holder",
    schedule: "A lease is over; A and B both set out to take it; both arrive",
    must_hold: "exactly one wins, and the loser sees the winner",
    naive: Some("delete and recreate: both win"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let dead = script.actor("D").acquires()?;
    script.expires(&dead);
    let (a, b) = (script.actor("A"), script.actor("B"));
    let first = a.begins(LeaseCall::Acquire(a.wish()))?;
    let second = b.begins(LeaseCall::Acquire(b.wish()))?;
    let (first, second) = (first.goes_on()?, second.goes_on()?);
    let winners = [&first, &second]
        .into_iter()
        .filter(|told| matches!(told, LeaseReply::Granted(_)))
        .count();
    script.must(winners == 1, "exactly one of the two is granted the key")?;
    let sees =
        |told: &LeaseReply, winner: &str| matches!(told, LeaseReply::Held { owner } if owner == winner);
    script.must(sees(&first, "B") || sees(&second, "A"), "the loser sees the winner")
}

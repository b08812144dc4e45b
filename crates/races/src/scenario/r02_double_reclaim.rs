//! R02, double reclaim: A lease is over; A and B both set out to take it; both arrive.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R02",
    name: "double reclaim",
    promise: "P1 One holder",
    schedule: "A lease is over; A and B both set out to take it; both arrive",
    must_hold: "exactly one wins, and the loser sees the winner",
    naive: Some("delete and recreate: both win"),
    script,
};

fn script(stage: &Stage) -> Played {
    let dead = stage.actor("D").acquires()?;
    stage.expires(&dead);
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let first = a.begins(Act::Acquire(a.wish()))?;
    let second = b.begins(Act::Acquire(b.wish()))?;
    let (first, second) = (first.goes_on()?, second.goes_on()?);
    let winners = [&first, &second]
        .into_iter()
        .filter(|told| matches!(told, Told::Granted(_)))
        .count();
    stage.must(winners == 1, "exactly one of the two is granted the key")?;
    let sees = |told: &Told, winner: &str| matches!(told, Told::Held { owner } if owner == winner);
    stage.must(sees(&first, "B") || sees(&second, "A"), "the loser sees the winner")
}

//! R15, complete twice: A completes; the same completion arrives twice.

use super::Race;
use crate::gate::Fate;
use crate::protocol::Told;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R15",
    name: "complete twice",
    promise: "P7 Unknown is said",
    schedule: "A completes; the same completion arrives twice",
    must_hold: "the same answer both times, and one effect",
    naive: Some("the effect runs twice"),
    script,
};

fn script(stage: &Stage) -> Played {
    let a = stage.actor("A");
    let lease = a.acquires()?;
    a.next_meets("complete", Fate::Doubled);
    stage.must(matches!(a.completes(&lease, "done"), Told::Completed), "the same answer both times")?;
    stage.must(stage.shelf.look().effects == 1, "one effect")?;
    stage.must(matches!(a.releases(&lease), Told::Released), "the holder can give it back")?;
    stage.must(matches!(a.releases(&lease), Told::Released), "the same release gets the same answer")
}

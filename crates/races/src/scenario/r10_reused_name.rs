//! R10, reused name: W dies with its lease and starts again under its old name, with a new hold id.

use super::Race;
use crate::protocol::Told;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R10",
    name: "reused name",
    promise: "P5 Check and write are one act",
    schedule: "W dies with its lease and starts again under its old name, with a new hold id",
    must_hold: "nothing of the dead one is adopted: the new one waits like anybody else",
    naive: Some("the name matches: the orphan looks alive"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (dead, new) = (stage.actor("W"), stage.actor("W again").named("W"));
    let orphan = dead.acquires()?;
    let adopted = crate::protocol::Lease { hold: new.wish().hold, ..orphan.clone() };
    stage.must(!matches!(new.renews(&adopted), Told::Renewed { .. }), "a name renews nothing")?;
    stage.must(
        matches!(new.asks(new.wish()), Told::Held { .. }),
        "the orphan is in the way until it expires",
    )?;
    stage.expires(&orphan);
    let own = new.acquires()?;
    stage.must(own.token > orphan.token, "the new one gets a larger token")
}

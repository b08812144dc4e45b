//! R10, reused name: W dies with its lease and starts again under its old name, with a new hold id.

use super::Race;
use crate::protocol::LeaseReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R10",
    name: "reused name",
    promise: "P5 Check and write are one act",
    schedule: "W dies with its lease and starts again under its old name, with a new hold id",
    must_hold: "nothing of the dead one is adopted: the new one waits like anybody else",
    naive: Some("the name matches: the orphan looks alive"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (dead, new) = (script.actor("W"), script.actor("W again").named("W"));
    let orphan = dead.acquires()?;
    let adopted = crate::protocol::HeldLease { hold: new.wish().hold, ..orphan.clone() };
    script.must(!matches!(new.renews(&adopted), LeaseReply::Renewed { .. }), "a name renews nothing")?;
    script.must(
        matches!(new.asks(new.wish()), LeaseReply::Held { .. }),
        "the orphan is in the way until it expires",
    )?;
    script.expires(&orphan);
    let own = new.acquires()?;
    script.must(own.token > orphan.token, "the new one gets a larger token")
}

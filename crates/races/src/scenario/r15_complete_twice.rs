//! R15, complete twice: A completes; the same completion arrives twice.

use super::Race;
use crate::gate::MessageFate;
use crate::protocol::LeaseReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R15",
    name: "complete twice",
    promise: "P7 Unknown is said",
    schedule: "A completes; the same completion arrives twice",
    must_hold: "the same answer both times, and one effect",
    naive: Some("the effect runs twice"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let a = script.actor("A");
    let lease = a.acquires()?;
    a.next_meets("complete", MessageFate::Doubled);
    script
        .must(matches!(a.completes(&lease, "done"), LeaseReply::Completed), "the same answer both times")?;
    script.must(script.resource.look().effects == 1, "one effect")?;
    script.must(matches!(a.releases(&lease), LeaseReply::Released), "the holder can give it back")?;
    script.must(matches!(a.releases(&lease), LeaseReply::Released), "the same release gets the same answer")
}

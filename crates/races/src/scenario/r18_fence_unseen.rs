//! R18, fence unseen: A is paused; B takes the key, raises the fence, and has not written yet; A writes.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R18",
    name: "fence unseen",
    promise: "P5 Check and write are one act",
    schedule: "A is paused; B takes the key, raises the fence, and has not written yet; A writes",
    must_hold: "A is refused before B's first write",
    naive: Some("the first write that B's would have stopped is accepted"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b) = (script.actor("A"), script.actor("B"));
    let old = a.acquires()?;
    let late = a.begins(LeaseCall::Complete(old.clone(), "by A".to_owned()))?;
    script.expires(&old);
    let new = b.acquires()?;
    b.raises_the_fence(&new);
    let told = late.goes_on()?;
    script.must(script.resource.look().result.is_none(), "nothing stale was written")?;
    script.must(matches!(told, LeaseReply::Stale { .. }), "A learns that it is stale")
}

//! R06, complete after takeover: A stalls with its result on the way; the lease expires; B takes over and
//! completes; A's result arrives.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R06",
    name: "complete after takeover",
    promise: "P5 Check and write are one act",
    schedule: "A stalls with its result on the way; the lease expires; B takes over and completes; A's result arrives",
    must_hold: "A's result is refused as stale, B's stands",
    naive: Some("A's result overwrites B's"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b) = (script.actor("A"), script.actor("B"));
    let old = a.acquires()?;
    let late = a.begins(LeaseCall::Complete(old.clone(), "by A".to_owned()))?;
    script.expires(&old);
    let new = b.acquires()?;
    script.must(matches!(b.completes(&new, "by B"), LeaseReply::Completed), "the holder completes")?;
    let told = late.goes_on()?;
    let stands = script.resource.look().result;
    script.must(stands == Some((new.token, "by B".to_owned())), "the result of the holder stands")?;
    script.must(matches!(told, LeaseReply::Stale { .. }), "the late one learns that it is stale")?;
    a.exits("stale");
    b.exits("success");
    Ok(())
}

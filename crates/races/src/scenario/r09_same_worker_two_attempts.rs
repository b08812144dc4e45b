//! R09, same worker, two attempts: W takes the key, loses it and takes it again; then its first thread completes,
//! as W.

use super::Race;
use crate::protocol::LeaseReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R09",
    name: "same worker, two attempts",
    promise: "P5 Check and write are one act",
    schedule: "W takes the key, loses it and takes it again; then its first thread completes, as W",
    must_hold: "the first attempt is stale, although the owner's name matches",
    naive: Some("the owner's name matches: the dead attempt completes"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (first, second) = (script.actor("W, 1st").named("W"), script.actor("W, 2nd").named("W"));
    let old = first.acquires()?;
    script.expires(&old);
    let new = second.acquires()?;
    script.must(
        matches!(second.completes(&new, "2nd attempt"), LeaseReply::Completed),
        "the holder completes",
    )?;
    let told = first.completes(&old, "1st attempt");
    let stands = script.resource.look().result;
    script.must(stands == Some((new.token, "2nd attempt".to_owned())), "the result of the holder stands")?;
    script.must(matches!(told, LeaseReply::Stale { .. }), "the first attempt learns that it is stale")
}

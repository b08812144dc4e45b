//! R19, wait, then grant: A waits in line; A's own time is up; the holder releases.

use super::Race;
use crate::protocol::{AcquireTerms, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R19",
    name: "wait, then grant",
    promise: "P7 Unknown is said",
    schedule: "A waits in line; A's own time is up; the holder releases",
    must_hold: "A is not told 'granted', and the key is free",
    naive: Some("A is granted a key that it no longer waits for"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (holder, a, b) = (script.actor("H"), script.actor("A"), script.actor("B"));
    let lease = holder.acquires()?;
    let wait_ms = script.ttl_ms() / 3;
    let waiting = a.waits(AcquireTerms { wait_ms, ..a.wish() })?;
    script.passes(wait_ms)?;
    script.must(matches!(holder.releases(&lease), LeaseReply::Released), "the holder can give it back")?;
    let told = waiting.told()?;
    script.must(!matches!(told, LeaseReply::Granted(_)), "a caller whose time is up never gets 'granted'")?;
    b.acquires().map(drop)
}

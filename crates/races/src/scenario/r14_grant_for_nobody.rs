//! R14, grant without a caller: A waits in line and looks away; the holder releases, and the grant to A commits; A goes.

use fencehold_test_store::TestCapability;

use super::Race;
use crate::protocol::{AcquireTerms, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R14",
    name: "grant without a caller",
    promise: "P10 Nothing to clean",
    schedule: "A waits in line and looks away; the holder releases, and the grant to A commits; A goes",
    must_hold: "the key is free at once, and its next token is larger than that of the lost grant",
    naive: Some("the key stays with one who is gone"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::NoticesLeaving, "it does not notice that a caller has gone")?;
    let (holder, a, b) = (script.actor("H"), script.actor("A"), script.actor("B"));
    let lease = holder.acquires()?;
    let waiting = a.waits(AcquireTerms { wait_ms: script.ttl_ms(), ..a.wish() })?;
    waiting.is_not_looked_at();
    script.must(matches!(holder.releases(&lease), LeaseReply::Released), "the holder can give it back")?;
    script.comes("the key goes to who waits", || script.holder().as_deref() == Some("A"))?;
    script.trace.note("A", "is granted it, and does not see that");
    waiting.loses_its_sender()?;
    script.comes("a grant whose caller has gone is given back", || script.holder().is_none())?;
    script.trace.note("store", "gives it up for A");
    let new = b.acquires()?;
    script.must(new.token > lease.token + 1, "the token of the lost grant is not given again")
}

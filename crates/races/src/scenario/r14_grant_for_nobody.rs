//! R14, grant without a caller: A waits in line and looks away; the holder releases, and the grant to A commits; A goes.

use fencehold_test_store::Power;

use super::Race;
use crate::protocol::{Told, Wish};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R14",
    name: "grant without a caller",
    promise: "P10 Nothing to clean",
    schedule: "A waits in line and looks away; the holder releases, and the grant to A commits; A goes",
    must_hold: "the key is free at once, and its next token is larger than that of the lost grant",
    naive: Some("the key stays with one who is gone"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::NoticesLeaving, "it does not notice that a caller has gone")?;
    let (holder, a, b) = (stage.actor("H"), stage.actor("A"), stage.actor("B"));
    let lease = holder.acquires()?;
    let waiting = a.waits(Wish { wait_ms: stage.ttl_ms(), ..a.wish() })?;
    waiting.is_not_looked_at();
    stage.must(matches!(holder.releases(&lease), Told::Released), "the holder can give it back")?;
    stage.comes("the key goes to who waits", || stage.holder().as_deref() == Some("A"))?;
    stage.trace.note("A", "is granted it, and does not see that");
    waiting.loses_its_sender()?;
    stage.comes("a grant whose caller has gone is given back", || stage.holder().is_none())?;
    stage.trace.note("store", "gives it up for A");
    let new = b.acquires()?;
    stage.must(new.token > lease.token + 1, "the token of the lost grant is not given again")
}

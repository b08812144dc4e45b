//! R19, wait, then grant: A waits in line; A's own time is up; the holder releases.

use super::Race;
use crate::protocol::{Told, Wish};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R19",
    name: "wait, then grant",
    promise: "P7 Unknown is said",
    schedule: "A waits in line; A's own time is up; the holder releases",
    must_hold: "A is not told 'granted', and the key is free",
    naive: Some("A is granted a key that it no longer waits for"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (holder, a, b) = (stage.actor("H"), stage.actor("A"), stage.actor("B"));
    let lease = holder.acquires()?;
    let wait_ms = stage.ttl_ms() / 3;
    let waiting = a.waits(Wish { wait_ms, ..a.wish() })?;
    stage.passes(wait_ms)?;
    stage.must(matches!(holder.releases(&lease), Told::Released), "the holder can give it back")?;
    let told = waiting.told()?;
    stage.must(!matches!(told, Told::Granted(_)), "a caller whose time is up never gets 'granted'")?;
    b.acquires().map(drop)
}

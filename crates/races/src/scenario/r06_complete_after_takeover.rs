//! R06, complete after takeover: A stalls with its result on the way; the lease expires; B takes over and
//! completes; A's result arrives.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R06",
    name: "complete after takeover",
    promise: "P5 Check and write are one act",
    schedule: "A stalls with its result on the way; the lease expires; B takes over and completes; A's result arrives",
    must_hold: "A's result is refused as stale, B's stands",
    naive: Some("A's result overwrites B's"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let old = a.acquires()?;
    let late = a.begins(Act::Complete(old.clone(), "by A".to_owned()))?;
    stage.expires(&old);
    let new = b.acquires()?;
    stage.must(matches!(b.completes(&new, "by B"), Told::Completed), "the holder completes")?;
    let told = late.goes_on()?;
    let stands = stage.shelf.look().result;
    stage.must(stands == Some((new.token, "by B".to_owned())), "the result of the holder stands")?;
    stage.must(matches!(told, Told::Stale { .. }), "the late one learns that it is stale")?;
    a.exits("stale");
    b.exits("success");
    Ok(())
}

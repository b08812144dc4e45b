//! R09, same worker, two attempts: W takes the key, loses it and takes it again; then its first thread completes,
//! as W.

use super::Race;
use crate::protocol::Told;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R09",
    name: "same worker, two attempts",
    promise: "P5 Check and write are one act",
    schedule: "W takes the key, loses it and takes it again; then its first thread completes, as W",
    must_hold: "the first attempt is stale, although the owner's name matches",
    naive: Some("the owner's name matches: the dead attempt completes"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (first, second) = (stage.actor("W, 1st").named("W"), stage.actor("W, 2nd").named("W"));
    let old = first.acquires()?;
    stage.expires(&old);
    let new = second.acquires()?;
    stage.must(matches!(second.completes(&new, "2nd attempt"), Told::Completed), "the holder completes")?;
    let told = first.completes(&old, "1st attempt");
    let stands = stage.shelf.look().result;
    stage.must(stands == Some((new.token, "2nd attempt".to_owned())), "the result of the holder stands")?;
    stage.must(matches!(told, Told::Stale { .. }), "the first attempt learns that it is stale")
}

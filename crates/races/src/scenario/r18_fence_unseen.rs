//! R18, fence unseen: A is paused; B takes the key, raises the fence, and has not written yet; A writes.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R18",
    name: "fence unseen",
    promise: "P5 Check and write are one act",
    schedule: "A is paused; B takes the key, raises the fence, and has not written yet; A writes",
    must_hold: "A is refused before B's first write",
    naive: Some("the first write that B's would have stopped is accepted"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let old = a.acquires()?;
    let late = a.begins(Act::Complete(old.clone(), "by A".to_owned()))?;
    stage.expires(&old);
    let new = b.acquires()?;
    b.raises_the_fence(&new);
    let told = late.goes_on()?;
    stage.must(stage.shelf.look().result.is_none(), "nothing stale was written")?;
    stage.must(matches!(told, Told::Stale { .. }), "A learns that it is stale")
}

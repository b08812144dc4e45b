//! R01, delete after reclaim: A's release is on its way; the lease expires; B takes the key; the release arrives.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R01",
    name: "delete after reclaim",
    promise: "P5 Check and write are one act",
    schedule: "A's release is on its way; the lease expires; B takes the key; the release arrives",
    must_hold: "B's lease is untouched, and A learns that it was superseded",
    naive: Some("read, compare, delete: B's lease is destroyed"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let old = a.acquires()?;
    let release = a.begins(Act::Release(old.clone()))?;
    stage.expires(&old);
    let new = b.acquires()?;
    let told = release.goes_on()?;
    stage.must(stage.holder().as_deref() == Some("B"), "B's lease is untouched")?;
    stage.must(matches!(told, Told::Lost { .. }), "A learns that it lost the lease")?;
    stage.must(matches!(b.renews(&new), Told::Renewed { .. }), "B can renew")
}

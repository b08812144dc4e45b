//! R24, backup put back: A shows a token that the store has lost with all it did since its backup; the operator
//! advances; A shows it again; B takes the key.

use fencehold_test_store::Power;

use super::Race;
use crate::protocol::{Lease, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R24",
    name: "backup put back",
    promise: "P2 Tokens only grow",
    schedule: "A shows a token that the store has lost with all it did since its backup; the operator advances; A \
               shows it again; B takes the key",
    must_hold: "A is refused with an alarm, then as fenced out; B's token is larger than A's",
    naive: Some("the token is not checked, and no one notices"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::Advances, "it cannot be advanced")?;
    stage.needs(Power::MovesTime, "its time cannot be moved")?;
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let kept = a.acquires()?;
    // To a store that was put back, what it gave since is a token that it has never given.
    let lost = Lease { token: kept.token + 7, ..kept };
    stage
        .must(matches!(a.renews(&lost), Told::Rewound { .. }), "a token that was never given is an alarm")?;
    stage.is_advanced()?;
    let told = a.renews(&lost);
    stage.must(matches!(told, Told::Lost { current, .. } if current > lost.token), "A is fenced out")?;
    let new = b.acquires()?;
    stage.must(new.token > lost.token, "no token comes twice")
}

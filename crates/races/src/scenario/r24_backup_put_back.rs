//! R24, backup put back: A shows a token that the store has lost with all it did since its backup; the operator
//! advances; A shows it again; B takes the key.

use fencehold_test_store::TestCapability;

use super::Race;
use crate::protocol::{HeldLease, LeaseReply};
use crate::script::{Script, ScriptResult};

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

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::Advances, "it cannot be advanced")?;
    script.needs(TestCapability::MovesTime, "its time cannot be moved")?;
    let (a, b) = (script.actor("A"), script.actor("B"));
    let kept = a.acquires()?;
    // To a store that was put back, what it gave since is a token that it has never given.
    let lost = HeldLease { token: kept.token + 7, ..kept };
    script.must(
        matches!(a.renews(&lost), LeaseReply::Rewound { .. }),
        "a token that was never given is an alarm",
    )?;
    script.is_advanced()?;
    let told = a.renews(&lost);
    script
        .must(matches!(told, LeaseReply::Lost { current, .. } if current > lost.token), "A is fenced out")?;
    let new = b.acquires()?;
    script.must(new.token > lost.token, "no token comes twice")
}

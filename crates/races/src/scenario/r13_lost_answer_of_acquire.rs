//! R13, lost answer of acquire: A's request is lost; sent again it is granted, and the answer is lost; time passes; A
//! sends it again; later once more.

use super::Race;
use crate::gate::MessageFate;
use crate::protocol::{AcquireTerms, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R13",
    name: "lost answer of acquire",
    promise: "P7 Unknown is said",
    schedule: "A's request is lost; sent again it is granted, and the answer is lost; time passes; A sends it \
               again; later once more",
    must_hold: "the same lease with the time that remains; after its end: ended, never a new grant",
    naive: Some("A waits for itself"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let a = script.actor("A");
    let wish = a.wish();
    a.next_meets("acquire", MessageFate::Lost);
    a.asks(wish.clone());
    script.must(script.holder().is_none(), "a request that never arrived does nothing")?;
    a.next_meets("acquire", MessageFate::AnswerLost);
    a.asks(AcquireTerms { hold_age_ms: 1, ..wish.clone() });
    let (waited_ms, ttl_ms) = (10_000.min(script.ttl_ms() / 3), script.ttl_ms());
    script.passes(waited_ms)?;
    let again = AcquireTerms { hold_age_ms: waited_ms, ..wish.clone() };
    let LeaseReply::Granted(lease) = a.asks(again) else {
        return script.must(false, "the same hold id gets its own lease");
    };
    script.must(lease.resumed, "the lease is the one that was granted")?;
    script.must(lease.remaining_ms <= ttl_ms - waited_ms, "it lasts for the time that remains")?;
    script.expires(&lease);
    let late = AcquireTerms { hold_age_ms: ttl_ms, ..wish };
    script.must(
        matches!(a.asks(late), LeaseReply::Ended { .. }),
        "a hold id that has ended is never granted again",
    )
}

//! R13, lost answer of acquire: A's request is lost; sent again it is granted, and the answer is lost; time passes; A
//! sends it again; later once more.

use super::Race;
use crate::gate::Fate;
use crate::protocol::{Told, Wish};
use crate::stage::{Played, Stage};

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

fn script(stage: &Stage) -> Played {
    let a = stage.actor("A");
    let wish = a.wish();
    a.next_meets("acquire", Fate::Lost);
    a.asks(wish.clone());
    stage.must(stage.holder().is_none(), "a request that never arrived does nothing")?;
    a.next_meets("acquire", Fate::AnswerLost);
    a.asks(Wish { hold_age_ms: 1, ..wish.clone() });
    let (waited_ms, ttl_ms) = (10_000.min(stage.ttl_ms() / 3), stage.ttl_ms());
    stage.passes(waited_ms)?;
    let again = Wish { hold_age_ms: waited_ms, ..wish.clone() };
    let Told::Granted(lease) = a.asks(again) else {
        return stage.must(false, "the same hold id gets its own lease");
    };
    stage.must(lease.resumed, "the lease is the one that was granted")?;
    stage.must(lease.remaining_ms <= ttl_ms - waited_ms, "it lasts for the time that remains")?;
    stage.expires(&lease);
    let late = Wish { hold_age_ms: ttl_ms, ..wish };
    stage.must(matches!(a.asks(late), Told::Ended { .. }), "a hold id that has ended is never granted again")
}

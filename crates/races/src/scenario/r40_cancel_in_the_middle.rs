//! R40, cancel in the middle: A has recorded one effect; P cancels; A, which has not heard of it, has another; then
//! it hears of it and releases it.

use fencehold_core::job::JobState;
use fencehold_core::ledger::InDoubtPolicy;

use super::Race;
use crate::job::{JobCall, JobReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R40",
    name: "cancel in the middle",
    promise: "P8 Effects once",
    schedule: "A has recorded one effect; P cancels; A, which has not heard of it, has another; then it hears of \
               it and releases it",
    must_hold: "every recorded effect is undone once, the last one first, and none before the attempt has ended",
    naive: Some("undone too early, and the second effect stays"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, p, u) = (script.worker("A"), script.worker("P"), script.worker("undo"));
    let work = a.claims()?;
    a.announces(&work, "charge", InDoubtPolicy::Retry);
    script.must(a.records(&work, "charge") == JobReply::Recorded, "an effect is recorded")?;
    p.does(JobCall::Cancel { now: false });
    script.must(u.undoes().is_none() && script.job()?.undone.is_empty(), "nothing is undone too early")?;
    a.announces(&work, "ship", InDoubtPolicy::Retry);
    script.must(a.records(&work, "ship") == JobReply::Recorded, "so is the next")?;
    let told = a.renews(&work);
    script.must(told == JobReply::Renewed { cancel_requested: true }, "A hears of it at its next renewal")?;
    script.must(
        a.hands_back(&work).leaves_it(JobState::Cancelled),
        "the job is cancelled when its attempt ends",
    )?;
    let undone = [u.undoes(), u.undoes(), u.undoes()];
    let expected = [Some("ship".to_owned()), Some("charge".to_owned()), None];
    script.must(undone == expected, "each effect is undone once, the last one first")
}

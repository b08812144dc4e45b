//! R40, cancel in the middle: A has recorded one effect; P cancels; A, which has not heard of it, has another; then
//! it hears of it and releases it.

use fencehold_core::job::JobState;
use fencehold_core::ledger::InDoubtPolicy;

use super::Race;
use crate::job::{JobAct, JobTold};
use crate::stage::{Played, Stage};

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

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, p, u) = (stage.worker("A"), stage.worker("P"), stage.worker("undo"));
    let work = a.claims()?;
    a.announces(&work, "charge", InDoubtPolicy::Retry);
    stage.must(a.records(&work, "charge") == JobTold::Recorded, "an effect is recorded")?;
    p.does(JobAct::Cancel { now: false });
    stage.must(u.undoes().is_none() && stage.job()?.undone.is_empty(), "nothing is undone too early")?;
    a.announces(&work, "ship", InDoubtPolicy::Retry);
    stage.must(a.records(&work, "ship") == JobTold::Recorded, "so is the next")?;
    let told = a.renews(&work);
    stage.must(told == JobTold::Renewed { cancel_requested: true }, "A hears of it at its next renewal")?;
    stage.must(
        a.hands_back(&work).leaves_it(JobState::Cancelled),
        "the job is cancelled when its attempt ends",
    )?;
    let undone = [u.undoes(), u.undoes(), u.undoes()];
    let expected = [Some("ship".to_owned()), Some("charge".to_owned()), None];
    stage.must(undone == expected, "each effect is undone once, the last one first")
}

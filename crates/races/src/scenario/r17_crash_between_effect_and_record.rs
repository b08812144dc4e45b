//! R17, crash between effect and record: A announces an effect and has it; it is killed before it can record that; B
//! takes the job up.

use fencehold_core::job::JobState;
use fencehold_core::ledger::InDoubtPolicy;

use super::Race;
use crate::job::JobTold;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R17",
    name: "crash between effect and record",
    promise: "P8 Effects once",
    schedule: "A announces an effect and has it; it is killed before it can record that; B takes the job up",
    must_hold: "the same idempotency key reaches the downstream; or, where the policy is to ask, the job is \
                in doubt",
    naive: Some("it is done twice, silently"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, b) = (stage.worker("A"), stage.worker("B"));
    let old = a.claims()?;
    stage.must(a.announces(&old, "charge", InDoubtPolicy::Retry) == JobTold::Go, "an effect may happen")?;
    a.pays("charge");
    stage.must(a.announces(&old, "ship", InDoubtPolicy::Manual) == JobTold::Go, "another may, too")?;
    stage.crashes(&old)?;
    let new = b.claims()?;
    stage.must(b.announces(&new, "charge", InDoubtPolicy::Retry) == JobTold::Go, "B may do it again")?;
    b.pays("charge");
    stage.must(stage.till.times_paid() == 1, "the till was paid once")?;
    stage.must(b.records(&new, "charge") == JobTold::Recorded, "and that is on record")?;
    stage.must(
        b.announces(&new, "ship", InDoubtPolicy::Manual) == JobTold::InDoubt,
        "the doubt is reported",
    )?;
    stage.must(stage.job()?.state == JobState::InDoubt, "the job waits for a person")
}

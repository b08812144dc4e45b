//! R17, crash between effect and record: A announces an effect and has it; it is killed before it can record that; B
//! takes the job up.

use fencehold_core::job::JobState;
use fencehold_core::ledger::InDoubtPolicy;

use super::Race;
use crate::job::JobReply;
use crate::script::{Script, ScriptResult};

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

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let old = a.claims()?;
    script.must(a.announces(&old, "charge", InDoubtPolicy::Retry) == JobReply::Go, "an effect may happen")?;
    a.pays("charge");
    script.must(a.announces(&old, "ship", InDoubtPolicy::Manual) == JobReply::Go, "another may, too")?;
    script.crashes(&old)?;
    let new = b.claims()?;
    script.must(b.announces(&new, "charge", InDoubtPolicy::Retry) == JobReply::Go, "B may do it again")?;
    b.pays("charge");
    script.must(script.payments.times_paid() == 1, "the till was paid once")?;
    script.must(b.records(&new, "charge") == JobReply::Recorded, "and that is on record")?;
    script.must(
        b.announces(&new, "ship", InDoubtPolicy::Manual) == JobReply::InDoubt,
        "the doubt is reported",
    )?;
    script.must(script.job()?.state == JobState::InDoubt, "the job waits for a person")
}

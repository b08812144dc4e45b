//! R06-job, complete after takeover, a job: A stalls with its completion on the way; its claim expires; B claims the
//! job and completes it; A's completion arrives.

use fencehold_core::job::JobState;

use super::Race;
use crate::job::JobCall;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R06-job",
    name: "complete after takeover, a job",
    promise: "P5 Check and write are one act",
    schedule: "A stalls with its completion on the way; its claim expires; B claims the job and completes it; A's \
               completion arrives",
    must_hold: "A's is refused as stale, B's stands",
    naive: Some("A's result overwrites B's"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let old = a.claims()?;
    let late = a.begins(JobCall::Complete(old.clone(), "by A"))?;
    script.crashes(&old)?;
    let new = b.claims()?;
    script.must(b.completes(&new, "by B").leaves_it(JobState::Completed), "the holder completes the job")?;
    let told = late.goes_on()?;
    script.must(script.job()?.result.as_deref() == Some("by B"), "the result of the holder stands")?;
    script.must(told.is_stale(), "the late one learns that it is stale")?;
    a.exits("stale");
    b.exits("success");
    Ok(())
}

//! R09-job, same worker, two attempts at a job: W claims the job, loses it and claims it again; then its first thread
//! completes, as W.

use fencehold_core::job::JobState;

use super::Race;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R09-job",
    name: "same worker, two attempts at a job",
    promise: "P5 Check and write are one act",
    schedule: "W claims the job, loses it and claims it again; then its first thread completes, as W",
    must_hold: "the first attempt is stale, although the owner's name matches",
    naive: Some("the owner's name matches: the dead attempt completes"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (first, second) = (script.worker("W, 1st").named("W"), script.worker("W, 2nd").named("W"));
    let old = first.claims()?;
    script.crashes(&old)?;
    let new = second.claims()?;
    script.must(new.token > old.token, "every attempt has a token of its own")?;
    let told = first.completes(&old, "1st attempt");
    script.must(script.job()?.state == JobState::Running, "the second attempt goes on")?;
    script.must(told.is_stale(), "the first attempt learns that it is stale")?;
    script.must(second.completes(&new, "2nd attempt").leaves_it(JobState::Completed), "the second completes")
}

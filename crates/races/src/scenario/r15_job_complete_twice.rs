//! R15-job, complete a job twice: A completes; the same completion arrives twice.

use fencehold_core::job::JobState;

use super::Race;
use crate::gate::MessageFate;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R15-job",
    name: "complete a job twice",
    promise: "P7 Unknown is said",
    schedule: "A completes; the same completion arrives twice",
    must_hold: "the same answer both times, and the job is completed once",
    naive: Some("what follows a completion follows twice"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let a = script.worker("A");
    let work = a.claims()?;
    a.next_meets("complete", MessageFate::Doubled);
    script.must(a.completes(&work, "done").leaves_it(JobState::Completed), "the same answer both times")?;
    script.must(script.job()?.completions == 1, "completed once")
}

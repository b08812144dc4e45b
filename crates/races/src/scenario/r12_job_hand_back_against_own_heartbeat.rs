//! R12-job, release against own heartbeat: A releases the job; a renewal that it had sent before arrives.

use super::Race;
use crate::job::{JobCall, JobReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R12-job",
    name: "release against own heartbeat",
    promise: "P3 Renewal is only renewal",
    schedule: "A releases the job; a renewal that it had sent before arrives",
    must_hold: "the job stays free, and B can have it",
    naive: Some("revived: no worker has it, and all wait"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let work = a.claims()?;
    let heartbeat = a.begins(JobCall::Renew(work.clone()))?;
    a.hands_back(&work);
    let told = heartbeat.goes_on()?;
    script.must(script.job()?.worker.is_none(), "a job that was released stays so")?;
    script.must(matches!(told, JobReply::Over { .. }), "the renewal learns that the attempt is over")?;
    b.claims().map(drop)
}

//! R12-job, release against own heartbeat: A releases the job; a renewal that it had sent before arrives.

use super::Race;
use crate::job::{JobAct, JobTold};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R12-job",
    name: "release against own heartbeat",
    promise: "P3 Renewal is only renewal",
    schedule: "A releases the job; a renewal that it had sent before arrives",
    must_hold: "the job stays free, and B can have it",
    naive: Some("revived: no worker has it, and all wait"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, b) = (stage.worker("A"), stage.worker("B"));
    let work = a.claims()?;
    let heartbeat = a.begins(JobAct::Renew(work.clone()))?;
    a.hands_back(&work);
    let told = heartbeat.goes_on()?;
    stage.must(stage.job()?.worker.is_none(), "a job that was released stays so")?;
    stage.must(matches!(told, JobTold::Over { .. }), "the renewal learns that the attempt is over")?;
    b.claims().map(drop)
}

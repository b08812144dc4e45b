//! R15-job, complete a job twice: A completes; the same completion arrives twice.

use fencehold_core::job::JobState;

use super::Race;
use crate::gate::Fate;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R15-job",
    name: "complete a job twice",
    promise: "P7 Unknown is said",
    schedule: "A completes; the same completion arrives twice",
    must_hold: "the same answer both times, and the job is completed once",
    naive: Some("what follows a completion follows twice"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let a = stage.worker("A");
    let work = a.claims()?;
    a.next_meets("complete", Fate::Doubled);
    stage.must(a.completes(&work, "done").leaves_it(JobState::Completed), "the same answer both times")?;
    stage.must(stage.job()?.completions == 1, "completed once")
}

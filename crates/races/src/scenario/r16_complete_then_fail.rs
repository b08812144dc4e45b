//! R16, complete, then fail: A's completion arrives; its answer is lost; A reports a failure.

use fencehold_core::job::JobState;

use super::Race;
use crate::gate::Fate;
use crate::job::{JobAct, JobTold};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R16",
    name: "complete, then fail",
    promise: "P7 Unknown is said",
    schedule: "A's completion arrives; its answer is lost; A reports a failure",
    must_hold: "the first terminal state stands",
    naive: Some("the job is tried again"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, b) = (stage.worker("A"), stage.worker("B"));
    let work = a.claims()?;
    a.next_meets("complete", Fate::AnswerLost);
    a.completes(&work, "by A");
    let told = a.does(JobAct::Fail(work));
    stage.must(stage.job()?.state == JobState::Completed, "what was completed stays completed")?;
    stage.must(told == JobTold::Finished { state: JobState::Completed }, "A learns that it is completed")?;
    stage.must(b.asks(&b.wish())?.is_none(), "no worker does it again")
}

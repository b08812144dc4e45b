//! R33, cancel against complete: A's completion and P's cancellation set out at once; the cancellation arrives first.

use fencehold_core::job::JobState;

use super::Race;
use crate::job::{JobAct, JobTold};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R33",
    name: "cancel against complete",
    promise: "P5 Check and write are one act",
    schedule: "A's completion and P's cancellation set out at once; the cancellation arrives first",
    must_hold: "one terminal state, and both learn which",
    naive: Some("both learn that they won"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, p) = (stage.worker("A"), stage.worker("P"));
    let work = a.claims()?;
    let completion = a.begins(JobAct::Complete(work.clone(), "by A"))?;
    let cancellation = p.begins(JobAct::Cancel { now: true })?;
    let cancelled = cancellation.goes_on()?;
    let completed = completion.goes_on()?;
    stage.must(cancelled.leaves_it(JobState::Cancelled), "what arrives first is carried out")?;
    stage.must(stage.job()?.state == JobState::Cancelled, "the first terminal state stands")?;
    stage.must(completed.is_stale(), "A learns that it is over")?;
    let again = p.does(JobAct::Cancel { now: true });
    let same = matches!(again, JobTold::Stands { state: JobState::Cancelled, .. });
    stage.must(same, "the same word again gets the same answer")
}

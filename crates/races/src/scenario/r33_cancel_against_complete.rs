//! R33, cancel against complete: A's completion and P's cancellation set out at once; the cancellation arrives first.

use fencehold_core::job::JobState;

use super::Race;
use crate::job::{JobCall, JobReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R33",
    name: "cancel against complete",
    promise: "P5 Check and write are one act",
    schedule: "A's completion and P's cancellation set out at once; the cancellation arrives first",
    must_hold: "one terminal state, and both learn which",
    naive: Some("both learn that they won"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, p) = (script.worker("A"), script.worker("P"));
    let work = a.claims()?;
    let completion = a.begins(JobCall::Complete(work.clone(), "by A"))?;
    let cancellation = p.begins(JobCall::Cancel { now: true })?;
    let cancelled = cancellation.goes_on()?;
    let completed = completion.goes_on()?;
    script.must(cancelled.leaves_it(JobState::Cancelled), "what arrives first is carried out")?;
    script.must(script.job()?.state == JobState::Cancelled, "the first terminal state stands")?;
    script.must(completed.is_stale(), "A learns that it is over")?;
    let again = p.does(JobCall::Cancel { now: true });
    let same = matches!(again, JobReply::Stands { state: JobState::Cancelled, .. });
    script.must(same, "the same word again gets the same answer")
}

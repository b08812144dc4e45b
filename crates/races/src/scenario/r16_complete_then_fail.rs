//! R16, complete, then fail: A's completion arrives; its answer is lost; A reports a failure.

use fencehold_core::job::JobState;

use super::Race;
use crate::gate::MessageFate;
use crate::job::{JobCall, JobReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R16",
    name: "complete, then fail",
    promise: "P7 Unknown is said",
    schedule: "A's completion arrives; its answer is lost; A reports a failure",
    must_hold: "the first terminal state stands",
    naive: Some("the job is tried again"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let work = a.claims()?;
    a.next_meets("complete", MessageFate::AnswerLost);
    a.completes(&work, "by A");
    let told = a.does(JobCall::Fail(work));
    script.must(script.job()?.state == JobState::Completed, "what was completed stays completed")?;
    script
        .must(told == JobReply::Finished { state: JobState::Completed }, "A learns that it is completed")?;
    script.must(b.asks(&b.wish())?.is_none(), "no worker does it again")
}

//! R13-job, lost answer of a claim: A's claim is granted; the answer is lost; A asks again with the same hold id.

use super::Race;
use crate::gate::MessageFate;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R13-job",
    name: "lost answer of a claim",
    promise: "P7 Unknown is said",
    schedule: "A's claim is granted; the answer is lost; A asks again with the same hold id",
    must_hold: "the same job under the same token, and B gets nothing",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let wish = a.wish();
    a.next_meets("claim", MessageFate::AnswerLost);
    script.must(a.asks(&wish)?.is_none(), "its answer is lost")?;
    script.must(b.asks(&b.wish())?.is_none(), "the job is not handed out twice")?;
    let Some(work) = a.asks(&wish)? else {
        return script.must(false, "the same hold id gets the job that it has");
    };
    let again = a.asks(&wish)?.map(|work| work.token);
    script.must(again == Some(work.token), "under the same token each time")?;
    script.must(script.job()?.worker.as_deref() == Some("A"), "A works on it")
}

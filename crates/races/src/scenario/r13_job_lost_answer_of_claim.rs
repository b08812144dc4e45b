//! R13-job, lost answer of a claim: A's claim is granted; the answer is lost; A asks again with the same hold id.

use super::Race;
use crate::gate::Fate;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R13-job",
    name: "lost answer of a claim",
    promise: "P7 Unknown is said",
    schedule: "A's claim is granted; the answer is lost; A asks again with the same hold id",
    must_hold: "the same job under the same token, and B gets nothing",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, b) = (stage.worker("A"), stage.worker("B"));
    let wish = a.wish();
    a.next_meets("claim", Fate::AnswerLost);
    stage.must(a.asks(&wish)?.is_none(), "its answer is lost")?;
    stage.must(b.asks(&b.wish())?.is_none(), "the job is not handed out twice")?;
    let Some(work) = a.asks(&wish)? else {
        return stage.must(false, "the same hold id gets the job that it has");
    };
    let again = a.asks(&wish)?.map(|work| work.token);
    stage.must(again == Some(work.token), "under the same token each time")?;
    stage.must(stage.job()?.worker.as_deref() == Some("A"), "A works on it")
}

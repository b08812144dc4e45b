//! R07, complete after expiry, not taken since: A's claim expires; no worker takes the job; A completes it.

use fencehold_core::job::JobState;

use super::Race;
use crate::job::JobReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R07",
    name: "complete after expiry, not taken since",
    promise: "P7 Unknown is said",
    schedule: "A's claim expires; no worker takes the job; A completes it",
    must_hold: "accepted as late, and no worker does the work again",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let work = a.claims()?;
    script.claim_runs_out(&work)?;
    let told = a.completes(&work, "by A");
    script.must(
        told == JobReply::Stands { state: JobState::Completed, late: true },
        "work that was done is done, and on record as late",
    )?;
    script.must(b.asks(&b.wish())?.is_none(), "no worker does it again")?;
    script.must(script.job()?.result.as_deref() == Some("by A"), "its result is kept")
}

//! R10-job, reused name, a job: W dies with its claim and starts again under its old name.

use super::Race;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R10-job",
    name: "reused name, a job",
    promise: "P5 Check and write are one act",
    schedule: "W dies with its claim and starts again under its old name",
    must_hold: "nothing of the dead one is adopted: the new one waits until the claim is over",
    naive: Some("the name matches: the new one adopts a job of which it knows nothing"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (dead, again) = (script.worker("W"), script.worker("W again").named("W"));
    let orphan = dead.claims()?;
    script.must(again.asks(&again.wish())?.is_none(), "a claim is not adopted by its owner's name")?;
    script.crashes(&orphan)?;
    let work = again.claims()?;
    script.must(work.token > orphan.token, "the new attempt has a token of its own")
}

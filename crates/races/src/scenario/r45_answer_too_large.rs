//! R45, answer too large: Jobs that carry more than one answer has room for are claimed together.

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ChangeJobsRequest, ClaimJobsRequest, JobAction,
    JobSelector, JobStore, LedgerEntry, NewJob, Report,
};
use fencehold_contract::{CallContext, LeaseStore, StoreError};
use fencehold_core::Owner;
use fencehold_core::job::{EffectName, JobId, JobKind, QueueName};
use fencehold_core::ledger::Compensation;
use fencehold_core::limits::PAYLOAD_BYTES_MAX;

use super::Race;
use crate::script::{Script, ScriptEnd, ScriptResult};

/// With a megabyte each: more than one message between processes has room for.
const JOBS: usize = 34;

pub(super) const RACE: Race = Race {
    id: "R45",
    name: "answer too large",
    promise: "P10 Nothing to clean",
    schedule: "Jobs whose effects exceed one answer are given back, then claimed together",
    must_hold: "fewer are claimed at a time, each can be read, and none counts as crashed",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    let ours = script.ours()?;
    let (a, b) = (ours.test_store.store(), ours.test_store.other());
    if a.jobs().is_none() {
        return Err(ScriptEnd::NotApplicable("it keeps no jobs".to_owned()));
    }
    let large = Large::new(script, ours.call.clone())?;
    let played = large.play(script, &*a, &*b);
    // Nothing stays behind in a store that others use.
    let _ = script.drive(large.remove(&*a));
    played
}

struct Large {
    call: CallContext,
    queue: QueueName,
    ids: Vec<JobId>,
}

impl Large {
    fn new(script: &Script, call: CallContext) -> Result<Self, ScriptEnd> {
        let queue = QueueName::new(format!("large-{}", script.fresh_job().to_string().to_lowercase()));
        let queue =
            queue.map_err(|bad| ScriptEnd::Broken(format!("broken: a queue has a name, but: {bad}")))?;
        Ok(Large { call, queue, ids: (0..JOBS).map(|_| script.fresh_job()).collect() })
    }

    fn play(&self, script: &Script, a: &dyn LeaseStore, b: &dyn LeaseStore) -> ScriptResult {
        script
            .trace
            .note("A", format!("records a megabyte in each of {JOBS} jobs, and gives them back"));
        let filled = script.drive(self.fill(script, a));
        script.must(filled.is_ok(), &format!("jobs can be filled, but: {filled:?}"))?;
        let mut done = 0;
        while done < JOBS {
            let hold = script.fresh_hold();
            let claimed = script.drive(jobs(b).claim(&self.call, self.request("B", hold, script.ttl_ms())));
            let claimed = claimed.map(|claimed| claimed.jobs);
            let failed = claimed.as_ref().err().map(ToString::to_string);
            script.must(failed.is_none(), &format!("a claim is answered, but: {failed:?}"))?;
            let claimed = claimed.unwrap_or_default();
            script
                .trace
                .note("B", format!("claims all that there are, and gets {}", claimed.len()));
            script.must(!claimed.is_empty(), "a job that is ready is handed out")?;
            let whole = claimed.iter().all(|job| job.effects.len() == 1 && job.crash_count == 0);
            script.must(whole, "each carries all that was stored, and none counts as crashed")?;
            done += claimed.len();
            let completed = claimed.iter().map(|job| AttemptReport {
                attempt: AttemptRef { job_id: job.id, hold_id: hold, token: job.token },
                report: Report::Complete { result: None },
            });
            let reported = script.drive(jobs(b).report(&self.call, completed.collect()));
            let reported = reported.is_ok_and(|answers| answers.iter().all(Result::is_ok));
            script.must(reported, "the holder of a job can complete it")?;
        }
        Ok(())
    }

    async fn fill(&self, script: &Script, store: &dyn LeaseStore) -> Result<(), StoreError> {
        let jobs = jobs(store);
        let kind = JobKind::new("work")?;
        let new = self
            .ids
            .iter()
            .map(|id| NewJob::new(*id, self.queue.clone(), kind.clone(), "{}"));
        jobs.enqueue(&self.call, new.collect()).await?;
        let hold = script.fresh_hold();
        let claimed = jobs.claim(&self.call, self.request("A", hold, script.ttl_ms())).await?.jobs;
        for job in claimed {
            let attempt = AttemptRef { job_id: job.id, hold_id: hold, token: job.token };
            let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2)).into();
            let undo = Some(Compensation { kind: kind.clone(), queue: None, payload });
            let act = LedgerEntry::Record {
                effect: EffectName::new("charge")?,
                value: "1".into(),
                compensation: undo,
            };
            jobs.write_effects(&self.call, vec![AttemptLedgerEntry { attempt: attempt.clone(), entry: act }])
                .await?;
            jobs.report(&self.call, vec![AttemptReport { attempt, report: Report::Release {} }])
                .await?;
        }
        Ok(())
    }

    fn request(&self, owner: &str, hold: fencehold_core::HoldId, ttl_ms: u64) -> ClaimJobsRequest {
        ClaimJobsRequest {
            queues: vec![(self.queue.clone(), 1)],
            limit: JOBS,
            hold_id: hold,
            owner: Owner::new(owner).expect("a short name"),
            // Long enough for all that is written and read, also where time passes by itself.
            ttl_ms: ttl_ms * 20,
            wait_ms: 0,
            waited_before_ms: 0,
        }
    }

    async fn remove(&self, store: &dyn LeaseStore) -> Result<(), StoreError> {
        let (on, action) =
            (JobSelector::Ids { job_ids: self.ids.clone() }, JobAction::Delete { force: true });
        let by = Owner::new("race")?;
        jobs(store)
            .change_jobs(&self.call, ChangeJobsRequest::new(on, action, by))
            .await?;
        Ok(())
    }
}

fn jobs(store: &dyn LeaseStore) -> &dyn JobStore {
    store.jobs().expect("a store that keeps jobs")
}

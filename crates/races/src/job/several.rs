//! Workers of several jobs, where a script is about more than the one of its race. Fencehold's own side alone has them.

use fencehold_contract::LeaseStore;
use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ClaimJobsRequest, ClaimedJob, JobDetail, JobStore,
    LedgerEntry, NewJob, Report,
};
use fencehold_core::HoldId;
use fencehold_core::job::JobId;
use fencehold_core::ledger::Compensation;

use super::RaceWorker;
use super::ours::{claim, effect, kind};
use crate::script::{ScriptEnd, ScriptResult};

impl RaceWorker<'_> {
    /// A job for the queue of this race.
    pub(crate) fn new_job(&self, id: JobId) -> Result<NewJob, ScriptEnd> {
        Ok(NewJob::new(id, self.script.ours()?.names.queue.clone(), kind("work"), "{}"))
    }

    /// Enqueues jobs, and gives the ids that they have.
    pub(crate) fn enqueues(&self, new: Vec<NewJob>) -> Result<Vec<JobId>, ScriptEnd> {
        let (script, ours) = (self.script, self.script.ours()?);
        let store = ours.store(self.name);
        let answers = script.ask(jobs(&*store).enqueue(&ours.call, new))?;
        let enqueued = answers.into_iter().map(|answer| answer.map(|enqueued| enqueued.job_id));
        let enqueued: Result<Vec<_>, _> = enqueued.collect();
        enqueued.or_else(|refusal| {
            script.broken(&format!("a job can be enqueued, but: {}", ours.explain_refusal(&refusal)))
        })
    }

    /// Claims up to so many for so long.
    pub(crate) fn claims_up_to(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<(HoldId, Vec<ClaimedJob>), ScriptEnd> {
        let (script, ours) = (self.script, self.script.ours()?);
        let (store, hold) = (ours.store(self.name), script.fresh_hold());
        let request = ClaimJobsRequest { limit, ..claim(&ours.names.queue, hold, self.owner(), ttl_ms) };
        Ok((hold, script.ask(jobs(&*store).claim(&ours.call, request))?.jobs))
    }

    /// Says the same of each, which must be accepted.
    pub(crate) fn reports(&self, hold: HoldId, claimed: &[ClaimedJob], report: &Report) -> ScriptResult {
        let (script, ours) = (self.script, self.script.ours()?);
        let store = ours.store(self.name);
        let reports = claimed
            .iter()
            .map(|job| AttemptReport { attempt: attempt(hold, job), report: report.clone() });
        let answers = script.ask(jobs(&*store).report(&ours.call, reports.collect()))?;
        script
            .must(answers.iter().all(Result::is_ok), &format!("a worker can report on its job: {answers:?}"))
    }

    /// Records an effect of one of them, and what undoes it.
    pub(crate) fn records_one(&self, hold: HoldId, job: &ClaimedJob, payload: String) -> ScriptResult {
        let (script, ours) = (self.script, self.script.ours()?);
        let store = ours.store(self.name);
        let undo = Compensation { kind: kind("work"), queue: None, payload: payload.into() };
        let entry =
            LedgerEntry::Record { effect: effect("charge"), value: "1".into(), compensation: Some(undo) };
        let entry = AttemptLedgerEntry { attempt: attempt(hold, job), entry };
        let written = script.ask(jobs(&*store).write_effects(&ours.call, vec![entry]))?;
        script.must(written.iter().all(Result::is_ok), &format!("jobs can be filled, but: {written:?}"))
    }

    /// A job as anybody can see it. `None`: there is none.
    pub(crate) fn sees(&self, id: JobId) -> Result<Option<JobDetail>, ScriptEnd> {
        let ours = self.script.ours()?;
        let store = ours.store(self.name);
        self.script.ask(jobs(&*store).get_job(&ours.call, id))
    }
}

fn attempt(hold: HoldId, job: &ClaimedJob) -> AttemptRef {
    AttemptRef { job_id: job.id, hold_id: hold, token: job.token }
}

fn jobs(store: &dyn LeaseStore) -> &dyn JobStore {
    store.jobs().expect("a store that keeps jobs")
}

//! Who acts upon the job, and what becomes of claims that are not renewed.

use fencehold_core::job::{JobOptions, JobState};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::limits::CRASH_SPREAD_MS;

use super::{ClaimTerms, GrantedClaim, JobCall, JobReply, RaceWorker, SeenJob};
use crate::actor::PendingCall;
use crate::script::{Script, ScriptEnd, ScriptResult};
use crate::trace::fields;

impl Script {
    /// Goes on only where the store keeps jobs.
    pub(crate) fn keeps_jobs(&self) -> ScriptResult {
        if self.ours().is_ok() && self.test_store.store().jobs().is_none() {
            return Err(ScriptEnd::NotApplicable("it keeps no jobs".to_owned()));
        }
        Ok(())
    }

    /// Puts the job of this race into its queue.
    pub(crate) fn has_a_job(&self, terms: JobOptions) -> ScriptResult {
        let put = self.drive(self.protocols.jobs.put(terms));
        self.must(put.is_ok(), &format!("a job can be enqueued, but: {put:?}"))?;
        self.trace
            .event("store", "has a job", "job_enqueued", fields!(key: self.key.as_str()));
        Ok(())
    }

    pub(crate) fn worker(&self, name: &'static str) -> RaceWorker<'_> {
        RaceWorker::new(self, name)
    }

    /// The job as anybody can see it.
    pub(crate) fn job(&self) -> Result<SeenJob, ScriptEnd> {
        self.drive(self.protocols.jobs.look())
            .or_else(|why| self.broken(&format!("a job can be read, but: {why}")))
    }

    /// Lets the claim run out, and returns when the store's own rules take it for over.
    pub(crate) fn claim_runs_out(&self, work: &GrantedClaim) -> ScriptResult {
        if self.time_can_be_moved() {
            self.moves_time(self.job()?.remaining_ms);
        }
        self.sees("a claim that is not renewed runs out", |job| job.state != JobState::Running)?;
        let fields = fields!(key: self.key.as_str(), token: work.token, forced: true);
        self.trace
            .event("clock", format!("token {} runs out", work.token), "lease_expired", fields);
        Ok(())
    }

    /// Lets the claim run out, and the time pass in which a crashed job comes back.
    pub(crate) fn crashes(&self, work: &GrantedClaim) -> ScriptResult {
        self.claim_runs_out(work)?;
        if self.time_can_be_moved() {
            self.moves_time(CRASH_SPREAD_MS);
        }
        self.sees("a crashed job comes back", |job| job.state == JobState::Queued)
    }

    /// Looks until the job is seen so.
    pub(crate) fn sees(&self, promise: &str, so: impl Fn(&SeenJob) -> bool) -> ScriptResult {
        self.looks(promise, || Ok(so(&self.job()?)))
    }
}

impl<'a> RaceWorker<'a> {
    /// The terms of an ordinary claim: a fresh hold id, the arena's ttl.
    pub(crate) fn wish(&self) -> ClaimTerms {
        ClaimTerms {
            hold: self.script.fresh_hold(),
            owner: self.owner(),
            ttl_ms: self.script.ttl_ms(),
            wait_ms: 0,
        }
    }

    /// Asks for the job, which may not be ready.
    pub(crate) fn asks(&self, wish: &ClaimTerms) -> Result<Option<GrantedClaim>, ScriptEnd> {
        match self.does(JobCall::Claim(wish.clone())) {
            JobReply::Claimed(claim) => Ok(Some(claim)),
            JobReply::Nothing | JobReply::Unheard => Ok(None),
            told => self
                .script
                .broken(&format!("a claim is answered, but {} got {told:?}", self.name)),
        }
    }

    /// Whether there is no job for it.
    pub(crate) fn finds_nothing(&self) -> Result<bool, ScriptEnd> {
        Ok(self.asks(&self.wish())?.is_none())
    }

    /// Stands in line for a job, and returns when it can be seen there.
    pub(crate) fn waits(&self) -> Result<PendingCall<'a, JobReply>, ScriptEnd> {
        let script = self.script;
        script.trace.note(self.name, "stands in line for a job");
        let wish = ClaimTerms { wait_ms: script.ttl_ms() * 20, ..self.wish() };
        let under_way = self.starts(JobCall::Claim(wish), None);
        let in_line = || script.drive(script.protocols.jobs.in_line()) > 0;
        script.comes("one who waits stands in line", in_line)?;
        Ok(under_way)
    }

    /// Claims the job, which must be ready.
    pub(crate) fn claims(&self) -> Result<GrantedClaim, ScriptEnd> {
        match self.asks(&self.wish())? {
            Some(claim) => Ok(claim),
            None => self
                .script
                .broken(&format!("a job that is ready is handed out, but {} got none", self.name)),
        }
    }

    pub(crate) fn renews(&self, work: &GrantedClaim) -> JobReply {
        self.does(JobCall::Renew(work.clone()))
    }

    pub(crate) fn completes(&self, work: &GrantedClaim, result: &'static str) -> JobReply {
        self.does(JobCall::Complete(work.clone(), result))
    }

    pub(crate) fn hands_back(&self, work: &GrantedClaim) -> JobReply {
        self.does(JobCall::HandBack(work.clone()))
    }

    pub(crate) fn announces(
        &self,
        work: &GrantedClaim,
        effect: &'static str,
        policy: InDoubtPolicy,
    ) -> JobReply {
        self.does(JobCall::Announce(work.clone(), effect, policy))
    }

    pub(crate) fn records(&self, work: &GrantedClaim, effect: &'static str) -> JobReply {
        self.does(JobCall::Record(work.clone(), effect))
    }

    /// Pays into the till, under the effect's idempotency key where there is one.
    pub(crate) fn pays(&self, effect: &'static str) {
        let paid = self.script.payments.pay(self.script.protocols.jobs.idempotency_key(effect));
        let says = if paid { "pays" } else { "pays again: the till knows the key" };
        let fields = fields!(effect: effect, taken: paid);
        self.script.trace.event(self.name, says, "till_paid", fields);
    }

    /// Undoes the next effect that is to be undone, and says which.
    pub(crate) fn undoes(&self) -> Option<String> {
        let undone = self.script.drive(self.script.protocols.jobs.undo_next(self.name))?;
        let fields = fields!(key: self.script.key.as_str(), effect: undone);
        self.script
            .trace
            .event(self.name, format!("undoes {undone}"), "effect_undone", fields);
        Some(undone)
    }
}

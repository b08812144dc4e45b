//! Who acts upon the job, and what becomes of claims that are not renewed.

use std::sync::Arc;

use fencehold_core::Owner;
use fencehold_core::job::{JobOptions, JobState};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::limits::CRASH_SPREAD_MS;
use fencehold_test_store::TestCapability;

use super::record::record;
use super::{ClaimTerms, HeldClaim, JobCall, JobReply, SeenJob};
use crate::actor::{PendingCall, RaceActor};
use crate::gate::MessageFate;
use crate::script::{Script, ScriptEnd, ScriptResult};
use crate::trace::fields;

impl Script {
    /// Goes on only where the store keeps jobs, and puts the one of this race into its queue.
    pub(crate) fn has_a_job(&self) -> ScriptResult {
        self.has_a_job_on(JobOptions::default())
    }

    /// Goes on only where the store keeps jobs.
    pub(crate) fn keeps_jobs(&self) -> ScriptResult {
        if self.ours().is_ok() && self.test_store.store().jobs().is_none() {
            return Err(ScriptEnd::NotApplicable("it keeps no jobs".to_owned()));
        }
        Ok(())
    }

    pub(crate) fn has_a_job_on(&self, terms: JobOptions) -> ScriptResult {
        self.keeps_jobs()?;
        let put = self.drive(self.jobs.put(terms));
        self.must(put.is_ok(), &format!("a job can be enqueued, but: {put:?}"))?;
        self.trace
            .event("store", "has a job", "job_enqueued", fields!(key: self.key.as_str()));
        Ok(())
    }

    /// Leaves nothing behind in a store that others use.
    pub(crate) fn removes_its_job(&self) {
        self.drive(self.jobs.remove());
    }

    pub(crate) fn worker(&self, name: &'static str) -> RaceWorker<'_> {
        RaceWorker { script: self, actor: self.actor(name) }
    }

    /// The job as anybody can see it.
    pub(crate) fn job(&self) -> Result<SeenJob, ScriptEnd> {
        self.drive(self.jobs.look())
            .map_err(|why| ScriptEnd::Broken(format!("broken: a job can be read, but: {why}")))
    }

    /// Lets the claim run out, and returns when the store's own rules take it for over.
    pub(crate) fn claim_runs_out(&self, work: &HeldClaim) -> ScriptResult {
        if self.needs(TestCapability::MovesTime, "").is_ok() {
            self.moves_time(self.job()?.remaining_ms);
        }
        self.sees("a claim that is not renewed runs out", |job| job.state != JobState::Running)?;
        let fields = fields!(key: self.key.as_str(), token: work.token, forced: true);
        self.trace
            .event("clock", format!("token {} runs out", work.token), "lease_expired", fields);
        Ok(())
    }

    /// Lets the claim run out, and the time pass in which a crashed job comes back.
    pub(crate) fn crashes(&self, work: &HeldClaim) -> ScriptResult {
        self.claim_runs_out(work)?;
        if self.needs(TestCapability::MovesTime, "").is_ok() {
            self.moves_time(CRASH_SPREAD_MS);
        }
        self.sees("a crashed job comes back", |job| job.state == JobState::Queued)
    }

    /// Looks until the job is seen so.
    pub(crate) fn sees(&self, promise: &str, so: impl Fn(&SeenJob) -> bool) -> ScriptResult {
        for _ in 0..self.looks_max() {
            if so(&self.job()?) {
                return Ok(());
            }
            self.lets_others();
        }
        self.must(false, promise)
    }
}

/// One who works on the job, or acts upon it.
#[derive(Clone, Copy)]
pub(crate) struct RaceWorker<'a> {
    script: &'a Script,
    actor: RaceActor<'a>,
}

impl RaceWorker<'_> {
    /// The same worker under another owner's name.
    pub(crate) fn named(self, owner: &'static str) -> Self {
        RaceWorker { actor: self.actor.named(owner), ..self }
    }

    fn owner(&self) -> Owner {
        Owner::new(self.actor.owner).expect("a short name")
    }

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
    pub(crate) fn asks(&self, wish: &ClaimTerms) -> Result<Option<HeldClaim>, ScriptEnd> {
        match self.does(JobCall::Claim(wish.clone())) {
            JobReply::Claimed { claim } => {
                Ok(Some(HeldClaim { hold: wish.hold, owner: wish.owner.clone(), token: claim.token }))
            }
            JobReply::Nothing | JobReply::Unheard => Ok(None),
            told => Err(ScriptEnd::Broken(format!(
                "broken: a claim is answered, but {} got {told:?}",
                self.actor.name
            ))),
        }
    }

    /// Stands in line for a job, and returns when it can be seen there.
    pub(crate) fn waits(&self) -> Result<PendingCall<JobReply>, ScriptEnd> {
        let (script, who) = (self.script, self.actor.name);
        let act = JobCall::Claim(ClaimTerms { wait_ms: script.ttl_ms() * 20, ..self.wish() });
        let (jobs, trace, key) = (Arc::clone(&script.jobs), Arc::clone(&script.trace), script.key.clone());
        trace.note(who, "stands in line for a job");
        let under_way = self.actor.starts(
            async move {
                let told = jobs.perform(who, &act).await;
                record(&trace, &key, who, &act, &told);
                told
            },
            None,
        );
        script.comes("one who waits stands in line", || script.drive(script.jobs.in_line()) > 0)?;
        Ok(under_way)
    }

    /// Claims the job, which must be ready.
    pub(crate) fn claims(&self) -> Result<HeldClaim, ScriptEnd> {
        self.asks(&self.wish())?.ok_or_else(|| {
            ScriptEnd::Broken(format!(
                "broken: a job that is ready is handed out, but {} got none",
                self.actor.name
            ))
        })
    }

    pub(crate) fn renews(&self, work: &HeldClaim) -> JobReply {
        self.does(JobCall::Renew(work.clone()))
    }

    pub(crate) fn completes(&self, work: &HeldClaim, result: &'static str) -> JobReply {
        self.does(JobCall::Complete(work.clone(), result))
    }

    pub(crate) fn hands_back(&self, work: &HeldClaim) -> JobReply {
        self.does(JobCall::HandBack(work.clone()))
    }

    pub(crate) fn announces(
        &self,
        work: &HeldClaim,
        effect: &'static str,
        policy: InDoubtPolicy,
    ) -> JobReply {
        self.does(JobCall::Announce(work.clone(), effect, policy))
    }

    pub(crate) fn records(&self, work: &HeldClaim, effect: &'static str) -> JobReply {
        self.does(JobCall::Record(work.clone(), effect))
    }

    /// Pays into the till, under the effect's idempotency key where there is one.
    pub(crate) fn pays(&self, effect: &'static str) {
        let paid = self.script.payments.pay(self.script.jobs.idempotency_key(effect));
        let says = if paid { "pays" } else { "pays again: the till knows the key" };
        let fields = fields!(effect: effect, taken: paid);
        self.script.trace.event(self.actor.name, says, "till_paid", fields);
    }

    /// Undoes the next effect that is to be undone, and says which.
    pub(crate) fn undoes(&self) -> Option<String> {
        let undone = self.script.drive(self.script.jobs.undo_next(self.actor.name));
        if let Some(effect) = &undone {
            let fields = fields!(key: self.script.key.as_str(), effect: effect);
            self.script
                .trace
                .event(self.actor.name, format!("undoes {effect}"), "effect_undone", fields);
        }
        undone
    }

    pub(crate) fn does(&self, act: JobCall) -> JobReply {
        let script = self.script;
        let told = script.drive(script.jobs.perform(self.actor.name, &act));
        record(&script.trace, &script.key, self.actor.name, &act, &told);
        told
    }

    pub(crate) fn next_meets(&self, message: &'static str, fate: MessageFate) {
        self.actor.next_meets(message, fate);
    }

    /// Begins a call, and returns when its message that changes something is on its way.
    pub(crate) fn begins(&self, act: JobCall) -> Result<PendingCall<JobReply>, ScriptEnd> {
        let (script, who) = (self.script, self.actor.name);
        let (jobs, trace, key) = (Arc::clone(&script.jobs), Arc::clone(&script.trace), script.key.clone());
        self.actor.begins_call(act.message(), async move {
            let told = jobs.perform(who, &act).await;
            record(&trace, &key, who, &act, &told);
            told
        })
    }

    pub(crate) fn exits(&self, reason: &str) {
        self.actor.exits(reason);
    }
}

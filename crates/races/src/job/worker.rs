//! Who acts upon the job, and what becomes of claims that are not renewed.

use std::sync::Arc;

use fencehold_core::Owner;
use fencehold_core::job::{JobOptions, JobState};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::limits::CRASH_SPREAD_MS;
use fencehold_test_store::Power;

use super::record::record;
use super::{ClaimWish, JobAct, JobTold, Seen, Work};
use crate::actor::{Actor, UnderWay};
use crate::gate::Fate;
use crate::stage::{Played, Stage, Stop};
use crate::trace::fields;

impl Stage {
    /// Goes on only where the store keeps jobs, and puts the one of this race into its queue.
    pub(crate) fn has_a_job(&self) -> Played {
        self.has_a_job_on(JobOptions::default())
    }

    /// Goes on only where the store keeps jobs.
    pub(crate) fn keeps_jobs(&self) -> Played {
        if self.ours().is_ok() && self.arena.store().jobs().is_none() {
            return Err(Stop::NotApplicable("it keeps no jobs".to_owned()));
        }
        Ok(())
    }

    pub(crate) fn has_a_job_on(&self, terms: JobOptions) -> Played {
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

    pub(crate) fn worker(&self, name: &'static str) -> Worker<'_> {
        Worker { stage: self, actor: self.actor(name) }
    }

    /// The job as anybody can see it.
    pub(crate) fn job(&self) -> Result<Seen, Stop> {
        self.drive(self.jobs.look())
            .map_err(|why| Stop::Broken(format!("broken: a job can be read, but: {why}")))
    }

    /// Lets the claim run out, and returns when the store's own rules take it for over.
    pub(crate) fn claim_runs_out(&self, work: &Work) -> Played {
        if self.needs(Power::MovesTime, "").is_ok() {
            self.moves_time(self.job()?.remaining_ms);
        }
        self.sees("a claim that is not renewed runs out", |job| job.state != JobState::Running)?;
        let fields = fields!(key: self.key.as_str(), token: work.token, forced: true);
        self.trace
            .event("clock", format!("token {} runs out", work.token), "lease_expired", fields);
        Ok(())
    }

    /// Lets the claim run out, and the time pass in which a crashed job comes back.
    pub(crate) fn crashes(&self, work: &Work) -> Played {
        self.claim_runs_out(work)?;
        if self.needs(Power::MovesTime, "").is_ok() {
            self.moves_time(CRASH_SPREAD_MS);
        }
        self.sees("a crashed job comes back", |job| job.state == JobState::Queued)
    }

    /// Looks until the job is seen so.
    pub(crate) fn sees(&self, promise: &str, so: impl Fn(&Seen) -> bool) -> Played {
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
pub(crate) struct Worker<'a> {
    stage: &'a Stage,
    actor: Actor<'a>,
}

impl Worker<'_> {
    /// The same worker under another owner's name.
    pub(crate) fn named(self, owner: &'static str) -> Self {
        Worker { actor: self.actor.named(owner), ..self }
    }

    fn owner(&self) -> Owner {
        Owner::new(self.actor.owner).expect("a short name")
    }

    /// The terms of an ordinary claim: a fresh hold id, the arena's ttl.
    pub(crate) fn wish(&self) -> ClaimWish {
        ClaimWish {
            hold: self.stage.fresh_hold(),
            owner: self.owner(),
            ttl_ms: self.stage.ttl_ms(),
            wait_ms: 0,
        }
    }

    /// Asks for the job, which may not be ready.
    pub(crate) fn asks(&self, wish: &ClaimWish) -> Result<Option<Work>, Stop> {
        match self.does(JobAct::Claim(wish.clone())) {
            JobTold::Claimed { claim } => {
                Ok(Some(Work { hold: wish.hold, owner: wish.owner.clone(), token: claim.token }))
            }
            JobTold::Nothing | JobTold::Unheard => Ok(None),
            told => Err(Stop::Broken(format!(
                "broken: a claim is answered, but {} got {told:?}",
                self.actor.name
            ))),
        }
    }

    /// Stands in line for a job, and returns when it can be seen there.
    pub(crate) fn waits(&self) -> Result<UnderWay<JobTold>, Stop> {
        let (stage, who) = (self.stage, self.actor.name);
        let act = JobAct::Claim(ClaimWish { wait_ms: stage.ttl_ms() * 20, ..self.wish() });
        let (jobs, trace, key) = (Arc::clone(&stage.jobs), Arc::clone(&stage.trace), stage.key.clone());
        trace.note(who, "stands in line for a job");
        let under_way = self.actor.starts(
            async move {
                let told = jobs.perform(who, &act).await;
                record(&trace, &key, who, &act, &told);
                told
            },
            None,
        );
        stage.comes("one who waits stands in line", || stage.drive(stage.jobs.in_line()) > 0)?;
        Ok(under_way)
    }

    /// Claims the job, which must be ready.
    pub(crate) fn claims(&self) -> Result<Work, Stop> {
        self.asks(&self.wish())?.ok_or_else(|| {
            Stop::Broken(format!(
                "broken: a job that is ready is handed out, but {} got none",
                self.actor.name
            ))
        })
    }

    pub(crate) fn renews(&self, work: &Work) -> JobTold {
        self.does(JobAct::Renew(work.clone()))
    }

    pub(crate) fn completes(&self, work: &Work, result: &'static str) -> JobTold {
        self.does(JobAct::Complete(work.clone(), result))
    }

    pub(crate) fn hands_back(&self, work: &Work) -> JobTold {
        self.does(JobAct::HandBack(work.clone()))
    }

    pub(crate) fn announces(&self, work: &Work, effect: &'static str, policy: InDoubtPolicy) -> JobTold {
        self.does(JobAct::Announce(work.clone(), effect, policy))
    }

    pub(crate) fn records(&self, work: &Work, effect: &'static str) -> JobTold {
        self.does(JobAct::Record(work.clone(), effect))
    }

    /// Pays into the till, under the effect's idempotency key where there is one.
    pub(crate) fn pays(&self, effect: &'static str) {
        let paid = self.stage.till.pay(self.stage.jobs.idempotency_key(effect));
        let says = if paid { "pays" } else { "pays again: the till knows the key" };
        let fields = fields!(effect: effect, taken: paid);
        self.stage.trace.event(self.actor.name, says, "till_paid", fields);
    }

    /// Undoes the next effect that is to be undone, and says which.
    pub(crate) fn undoes(&self) -> Option<String> {
        let undone = self.stage.drive(self.stage.jobs.undo_next(self.actor.name));
        if let Some(effect) = &undone {
            let fields = fields!(key: self.stage.key.as_str(), effect: effect);
            self.stage
                .trace
                .event(self.actor.name, format!("undoes {effect}"), "effect_undone", fields);
        }
        undone
    }

    pub(crate) fn does(&self, act: JobAct) -> JobTold {
        let stage = self.stage;
        let told = stage.drive(stage.jobs.perform(self.actor.name, &act));
        record(&stage.trace, &stage.key, self.actor.name, &act, &told);
        told
    }

    pub(crate) fn next_meets(&self, message: &'static str, fate: Fate) {
        self.actor.next_meets(message, fate);
    }

    /// Begins a call, and returns when its message that changes something is on its way.
    pub(crate) fn begins(&self, act: JobAct) -> Result<UnderWay<JobTold>, Stop> {
        let (stage, who) = (self.stage, self.actor.name);
        let (jobs, trace, key) = (Arc::clone(&stage.jobs), Arc::clone(&stage.trace), stage.key.clone());
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

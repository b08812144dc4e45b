//! Taking jobs, and beginning to run them.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::job::{AttemptRef, ClaimRequest, Claimed, ClaimedJob, Word};
use fencehold_core::HoldId;
use fencehold_core::ttl::{Deadlines, Term};
use tokio::sync::watch;

use super::{CLAIM_WAIT_MS, News, Shift, jobs};
use crate::failure::Failure;
use crate::hold;
use crate::output::note;
use crate::process::{Tenure, boot_ms, most_grace_ms};
use crate::work::run::run;
use crate::work::running::Running;
use crate::work::tries::{AGAIN_MS, random};

impl Shift {
    pub(super) fn claim(&mut self) {
        let hold = match hold::fresh() {
            Ok(hold) => hold,
            Err(failure) => return self.stop(failure),
        };
        let request = ClaimRequest {
            queues: self.plan.queues.clone(),
            limit: self.plan.concurrency - self.running.len(),
            hold,
            owner: self.plan.owner.clone(),
            ttl_ms: self.plan.ttl_ms,
            wait_ms: if self.plan.until_empty { 0 } else { CLAIM_WAIT_MS },
            waited_before_ms: 0,
        };
        let (store, call) = (Arc::clone(&self.store), self.call.clone());
        let claiming = async move {
            let began_ms = boot_ms();
            loop {
                let sent_ms = boot_ms();
                let waited_ms = sent_ms - began_ms;
                let wait_ms = request.wait_ms.saturating_sub(waited_ms);
                let again = ClaimRequest { wait_ms, waited_before_ms: waited_ms, ..request.clone() };
                let answer = match jobs(&*store) {
                    Ok(jobs) => jobs.claim(&call, again).await,
                    Err(error) => Err(error),
                };
                // The same hold id gets the jobs that it has, if it has any: it is asked until that is known.
                if !matches!(answer, Err(StoreError::Unknown { .. })) {
                    return News::Claimed { hold, sent_ms, answered_ms: boot_ms(), answer };
                }
                tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
            }
        };
        self.claiming = Some(self.tasks.spawn(claiming));
    }

    pub(super) fn claimed(
        &mut self,
        hold: HoldId,
        sent_ms: u64,
        answered_ms: u64,
        answer: Result<Claimed, StoreError>,
    ) {
        self.claiming = None;
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Full { .. })) => {
                if self.claims.failures == 0 {
                    note(&format!("no jobs can be claimed at the moment: {error}; trying again"));
                }
                return self.claims.failed();
            }
            Err(error) => {
                let failure = Failure::of_store(error, &self.place);
                return self.stop(failure);
            }
        };
        self.claims.went_well();
        self.dry = self.plan.until_empty && claimed.jobs.is_empty();
        for job in claimed.jobs {
            let term = Term::new(sent_ms, claimed.waited_ms, answered_ms, job.remaining_ms);
            self.begin(job, hold, term);
        }
        self.hurry_after_claim();
    }

    fn begin(&mut self, job: ClaimedJob, hold: HoldId, term: Term) {
        let now_ms = boot_ms();
        let attempt = AttemptRef { job: job.id, hold, token: job.token };
        let deadlines = Deadlines::new(term);
        let kill_at_ms = deadlines.lost_at_ms();
        let (tell, tenure) = watch::channel(Tenure::Until { kill_at_ms });
        let running = Running {
            attempt,
            kind: job.kind.clone(),
            nth: job.attempt,
            began_ms: now_ms,
            tell,
            deadlines,
            renew_at_ms: term.renew_at_ms(random()),
            told: None,
        };
        // A job whose time limit is shorter than the ttl leaves a shorter grace too. With the whole one it would never begin.
        let grace_ms = self.plan.grace_ms.min(most_grace_ms(job.remaining_ms));
        // One that came when the shift was over, or too late to begin, is somebody else's.
        if self.over_at_ms.is_some() || now_ms.saturating_add(grace_ms) >= kill_at_ms {
            return self.say(&running, None, Word::HandBack);
        }
        let token = job.token;
        let (words, voice) = (Arc::clone(&self.plan.words), self.voice.clone());
        self.running.insert(token, running);
        self.tasks.spawn(async move {
            let ran = run(job, words, grace_ms, tenure, voice).await;
            News::Ended { token, ran }
        });
    }
}

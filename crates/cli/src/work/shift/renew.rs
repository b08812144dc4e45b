//! Keeping the claims of jobs that run, and learning what is wanted of their holders.

use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_contract::job::{AttemptRef, RenewedJobs};
use fencehold_core::Token;
use fencehold_core::ttl::Term;

use super::{News, Shift, jobs};
use crate::process::{Tenure, boot_ms};
use crate::work::running::Told;
use crate::work::tries::random;

impl Shift {
    /// Renews all claims in one call.
    pub(super) fn renew(&mut self) {
        let renewable = self.renewable().map(|running| running.attempt.clone());
        let attempts: Vec<AttemptRef> = renewable.collect();
        let tokens = attempts.iter().map(|attempt| attempt.token).collect();
        let (store, sent_ms) = (Arc::clone(&self.store), boot_ms());
        // One that takes longer than a claim lasts is of no use to it.
        let call = self.call.clone().with_patience_ms(self.call.patience_ms.min(self.plan.ttl_ms));
        self.renewing = true;
        self.tasks.spawn(async move {
            let answer = match jobs(&*store) {
                Ok(jobs) => jobs.renew_claims(&call, attempts).await,
                Err(error) => Err(error),
            };
            News::Renewed { tokens, sent_ms, answered_ms: boot_ms(), answer }
        });
    }

    pub(super) fn renewed(
        &mut self,
        tokens: &[Token],
        sent_ms: u64,
        answered_ms: u64,
        answer: Result<RenewedJobs, StoreError>,
    ) {
        self.renewing = false;
        let renewed = match answer {
            Ok(renewed) => renewed,
            Err(error) => {
                tracing::warn!(%error, "claims could not be renewed");
                let again_ms = boot_ms().saturating_add((self.plan.ttl_ms / 20).clamp(10, 1_000));
                self.running.values_mut().for_each(|running| running.renew_at_ms = again_ms);
                return;
            }
        };
        let (waited_ms, ttl_ms) = (renewed.waited_ms, self.plan.ttl_ms);
        for (token, answer) in tokens.iter().zip(renewed.answers) {
            let Some(running) = self.running.get_mut(token) else { continue };
            match answer {
                Ok(renewal) => {
                    let term = Term::new(sent_ms, waited_ms, answered_ms, renewal.remaining_ms);
                    running.deadlines.renew(term, ttl_ms);
                    running.renew_at_ms = term.renew_at_ms(random());
                    if running.told.is_none() {
                        running.tell.send_replace(Tenure::Until { kill_at_ms: running.kill_at_ms() });
                    }
                    if renewal.cancel_requested {
                        running.end(Told::Cancelled);
                    } else if renewal.notice.is_some() {
                        running.end(Told::Yield);
                    }
                }
                Err(refusal) => running.lose(&refusal),
            }
        }
        self.hurry_after_renewal();
    }
}

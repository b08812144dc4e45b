//! Claimed jobs that never reached their caller are returned to their queues.

use fencehold_contract::job::ClaimedJobs;
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::job::{AttemptProof, JobId};
use fencehold_core::{HoldHash, Token};
use fencehold_engine::Replay;

use super::decide::{DecisionScope, decide_in};
use crate::statement::{Parameter, StatementBudget, query};
use crate::value::{Uuid128, from_sql, to_sql};
use crate::{PostgresInner, ResendPolicy};

/// For how long it is tried at least to return jobs: the caller has gone, and waits for none of it.
const UNDO_WITHIN_MS: u64 = 10_000;

impl PostgresInner {
    /// Returns jobs to their queues that were claimed for a caller that has gone, unless the same claim was sent again and has
    /// them.
    pub(super) async fn undo_claim(&self, call: &CallContext, hash: HoldHash, claimed: ClaimedJobs) {
        let given = claimed
            .jobs
            .iter()
            .map(|job| (job.id, AttemptProof { hash, token: job.token }))
            .collect();
        self.undo(call, Ok(given)).await;
    }

    /// The same where it is not known whether the claim got any.
    pub(super) async fn undo_unknown_claim(&self, call: &CallContext, hash: HoldHash) {
        let sql = "SELECT * FROM fencehold.job_untaken($1, $2)";
        let asked: [&dyn Parameter; 2] = [&call.namespace.as_str(), &Uuid128::from(hash)];
        let found: Result<Vec<(Uuid128, i64)>, _> =
            self.rows(&mut self.budget(UNDO_WITHIN_MS, 0), sql, &asked).await;
        let proof = |token| AttemptProof { hash, token: Token::new(from_sql(token)) };
        let claimed = |(id, token): (Uuid128, i64)| (JobId::from(id), proof(token));
        let given = found.map(|found| found.into_iter().map(claimed).collect());
        self.undo(call, given).await;
    }

    async fn undo(&self, call: &CallContext, given: Result<Vec<(JobId, AttemptProof)>, StoreError>) {
        let undone = match given {
            Ok(given) if given.is_empty() => Ok(()),
            Ok(given) => {
                let timeout_ms = call.timeout_ms.max(UNDO_WITHIN_MS);
                self.hand_back(&mut self.budget(timeout_ms, 0), call, &given).await
            }
            Err(why) => Err(why),
        };
        if let Err(why) = undone {
            tracing::warn!(%why, "undelivered jobs could not be returned; their claims will run out");
        }
    }

    async fn hand_back(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        given: &[(JobId, AttemptProof)],
    ) -> Result<(), StoreError> {
        let ids: Vec<Uuid128> = given.iter().map(|(id, _)| (*id).into()).collect();
        let tokens: Vec<i64> = given.iter().map(|(_, by)| to_sql(by.token.get())).collect();
        let lock_ms = PostgresInner::lock_ms(budget);
        let decided = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let transaction = client.transaction().await?;
                let sql = self.sql("SELECT * FROM fencehold.job_unheard($1, $2)");
                let unheard: Vec<(Uuid128,)> = query(&transaction, &sql, &[&ids, &tokens]).await?;
                let unheard: Vec<JobId> = unheard.into_iter().map(|(id,)| id.into()).collect();
                let given: Vec<(JobId, AttemptProof)> =
                    given.iter().filter(|(id, _)| unheard.contains(id)).copied().collect();
                let about = DecisionScope::jobs(&call.namespace, unheard).ending();
                let act = |replay: &mut Replay| replay.abandon(&given);
                decide_in(self, transaction, &about, lock_ms, None, act).await
            })
            .await?;
        // What another session came in between is rolled back: the claims run out by themselves.
        self.kept(decided).map(drop)
    }
}

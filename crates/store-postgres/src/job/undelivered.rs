//! Claimed jobs that never reached their caller are returned to their queues.

use std::collections::VecDeque;

use fencehold_contract::job::ClaimedJobs;
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::job::{AttemptProof, JobId};
use fencehold_core::{HoldHash, Token};
use fencehold_engine::Replay;
use tokio_postgres::types::Type;

use super::decide::{DecisionResult, DecisionScope, decide_in};
use super::value::{Uuid128, from_sql, to_sql};
use crate::budget::StatementBudget;
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
        let namespace = call.namespace.as_str();
        let sql = self.sql("SELECT * FROM fencehold.job_untaken($1, $2)");
        let mut budget = self.budget(UNDO_WITHIN_MS, 0);
        let given = self
            .run(&mut budget, ResendPolicy::Safe, async |client| {
                let asked: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                    [(&namespace, Type::TEXT), (&Uuid128::from(hash), Type::UUID)];
                let rows = client.query_typed(&sql, &asked).await?;
                let claimed = |row: &tokio_postgres::Row| {
                    let token = Token::new(from_sql(row.get(1)));
                    (JobId::from_bytes(row.get::<_, Uuid128>(0).0), AttemptProof { hash, token })
                };
                Ok(rows.iter().map(claimed).collect())
            })
            .await;
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
                let rows = transaction
                    .query_typed(&sql, &[(&ids, Type::UUID_ARRAY), (&tokens, Type::INT8_ARRAY)])
                    .await?;
                let unheard: Vec<JobId> =
                    rows.iter().map(|row| JobId::from_bytes(row.get::<_, Uuid128>(0).0)).collect();
                let given: Vec<(JobId, AttemptProof)> =
                    given.iter().filter(|(id, _)| unheard.contains(id)).copied().collect();
                let about = DecisionScope::jobs(&call.namespace, unheard).ending();
                let act = |replay: &mut Replay| replay.abandon(&given);
                let decided = decide_in(self, &transaction, &about, lock_ms, VecDeque::new(), act).await?;
                if matches!(decided, DecisionResult::Kept(())) {
                    transaction.commit().await?;
                }
                Ok(decided)
            })
            .await?;
        match decided {
            // Another session came in between, and it was rolled back: the claims run out by themselves.
            DecisionResult::Kept(()) | DecisionResult::Again => Ok(()),
            DecisionResult::Damaged(why) => Err(self.unusable(why)),
        }
    }
}

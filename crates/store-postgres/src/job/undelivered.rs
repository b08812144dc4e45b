//! Claimed jobs that never reached their caller are returned to their queues.

use std::collections::VecDeque;

use fencehold_contract::job::ClaimedJobs;
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::HoldHash;
use fencehold_core::job::{By, JobId};
use fencehold_engine::Replay;
use tokio_postgres::types::Type;

use super::decide::{About, Decided, decide_in};
use super::value::{Bits, to_sql};
use crate::budget::StatementBudget;
use crate::{Core, Repeat};

impl Core {
    /// Returns jobs to their queues that were claimed for a caller that has gone, unless the same claim was sent again and has
    /// them.
    pub(super) async fn undo_claim(&self, call: &CallContext, hash: HoldHash, claimed: ClaimedJobs) {
        if claimed.jobs.is_empty() {
            return;
        }
        let given: Vec<_> = claimed.jobs.iter().map(|job| (job.id, By { hash, token: job.token })).collect();
        if let Err(why) = self.hand_back(&mut self.budget(call.timeout_ms, 0), call, &given).await {
            tracing::warn!(%why, "undelivered jobs could not be returned; their claims will run out");
        }
    }

    async fn hand_back(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        given: &[(JobId, By)],
    ) -> Result<(), StoreError> {
        let ids: Vec<Bits> = given.iter().map(|(id, _)| (*id).into()).collect();
        let tokens: Vec<i64> = given.iter().map(|(_, by)| to_sql(by.token.get())).collect();
        let lock_ms = Core::lock_ms(budget);
        let decided = self
            .run(budget, Repeat::Safe, async |client| {
                let transaction = client.transaction().await?;
                let sql = self.sql("SELECT * FROM fencehold.job_unheard($1, $2)");
                let rows = transaction
                    .query_typed(&sql, &[(&ids, Type::UUID_ARRAY), (&tokens, Type::INT8_ARRAY)])
                    .await?;
                let unheard: Vec<JobId> =
                    rows.iter().map(|row| JobId::from_bytes(row.get::<_, Bits>(0).0)).collect();
                let given: Vec<(JobId, By)> =
                    given.iter().filter(|(id, _)| unheard.contains(id)).copied().collect();
                let about = About::jobs(&call.namespace, unheard).ending();
                let act = |replay: &mut Replay| replay.abandon(&given);
                let decided = decide_in(self, &transaction, &about, lock_ms, VecDeque::new(), act).await?;
                if matches!(decided, Decided::Kept(())) {
                    transaction.commit().await?;
                }
                Ok(decided)
            })
            .await?;
        match decided {
            // Somebody came in between, and it was rolled back: their claims run out by themselves.
            Decided::Kept(()) | Decided::Again => Ok(()),
            Decided::Damaged(why) => Err(self.unusable(why)),
        }
    }
}

//! Claimed jobs that never reached their caller are returned to their queues.

use fencehold_contract::job::{ClaimedJob, ClaimedJobs};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::job::{AttemptProof, JobId};
use fencehold_core::{HoldHash, Token};
use fencehold_engine::Replay;

use super::decide::{DecisionScope, decide_in};
use crate::statement::{Call, query};
use crate::value::{Uuid128, from_sql, to_sql};
use crate::{PostgresInner, ResendPolicy};

/// For how long it is tried at least to return jobs: the caller has gone, and waits for none of it.
const UNDO_WITHIN_MS: u64 = 10_000;

impl PostgresInner {
    /// Returns jobs to their queues that were claimed for a caller that has gone, unless the same claim was sent again and has
    /// them. `None`: it is not known whether the claim got any.
    pub(super) async fn undo_claim(&self, about: &CallContext, hash: HoldHash, claimed: Option<ClaimedJobs>) {
        let proof = |job: ClaimedJob| (job.id, AttemptProof { hash, token: job.token });
        let given = match claimed {
            Some(claimed) => Ok(claimed.jobs.into_iter().map(proof).collect()),
            None => self.call(about, UNDO_WITHIN_MS, 0).untaken(hash).await,
        };
        let undone = match given {
            Ok(given) if given.is_empty() => Ok(()),
            Ok(given) => {
                let timeout_ms = about.timeout_ms.max(UNDO_WITHIN_MS);
                self.call(about, timeout_ms, 0).hand_back(&given).await
            }
            Err(why) => Err(why),
        };
        if let Err(why) = undone {
            tracing::warn!(%why, "undelivered jobs could not be returned; their claims will run out");
        }
    }
}

impl Call<'_> {
    async fn untaken(&mut self, hash: HoldHash) -> Result<Vec<(JobId, AttemptProof)>, StoreError> {
        let sql = "SELECT * FROM fencehold.job_untaken($1, $2)";
        let found: Vec<(Uuid128, i64)> = self.rows(sql, &[&self.namespace(), &Uuid128::from(hash)]).await?;
        let proof = |token| AttemptProof { hash, token: Token::new(from_sql(token)) };
        Ok(found.into_iter().map(|(id, token)| (id.into(), proof(token))).collect())
    }

    async fn hand_back(&mut self, given: &[(JobId, AttemptProof)]) -> Result<(), StoreError> {
        let ids: Vec<Uuid128> = given.iter().map(|(id, _)| (*id).into()).collect();
        let tokens: Vec<i64> = given.iter().map(|(_, by)| to_sql(by.token.get())).collect();
        let (core, namespace) = (self.core, &self.about.namespace);
        let decided = self
            .run(ResendPolicy::Safe, async |client, lock_ms| {
                let transaction = client.transaction().await?;
                let sql = core.sql("SELECT * FROM fencehold.job_unheard($1, $2)");
                let unheard: Vec<(Uuid128,)> = query(&transaction, &sql, &[&ids, &tokens]).await?;
                let unheard: Vec<JobId> = unheard.into_iter().map(|(id,)| id.into()).collect();
                let given: Vec<(JobId, AttemptProof)> =
                    given.iter().filter(|(id, _)| unheard.contains(id)).copied().collect();
                let about = DecisionScope::jobs(namespace, unheard).ending();
                let act = |replay: &mut Replay| replay.abandon(&given);
                decide_in(core, transaction, &about, lock_ms, None, act).await
            })
            .await?;
        // Where another session came in between, it was rolled back: the claims run out by themselves.
        self.kept(decided).map(drop)
    }
}

//! Claimed jobs on their way to whoever asked for them: what is never picked up goes back.

use std::collections::VecDeque;

use fencehold_contract::job::Claimed;
use fencehold_contract::{Call, StoreError};
use fencehold_core::HoldHash;
use fencehold_core::job::{By, JobId};
use fencehold_engine::Replay;
use tokio::sync::mpsc;
use tokio_postgres::types::Type;

use super::decide::{About, Decided, decide_in};
use super::value::{Bits, to_sql};
use crate::errand::Errand;
use crate::{Core, Order, Repeat};

/// Dropped on the way, they go back.
pub(super) struct Handed {
    claimed: Option<Claimed>,
    given: Vec<(JobId, By)>,
    call: Call,
    orders: mpsc::UnboundedSender<Order>,
}

impl Handed {
    pub(super) fn new(
        call: &Call,
        orders: &mpsc::UnboundedSender<Order>,
        hash: HoldHash,
        claimed: Claimed,
    ) -> Self {
        let given = claimed.jobs.iter().map(|job| (job.id, By { hash, token: job.token })).collect();
        Handed { claimed: Some(claimed), given, call: call.clone(), orders: orders.clone() }
    }

    /// They have arrived.
    pub(super) fn take(mut self) -> Claimed {
        self.claimed
            .take()
            .unwrap_or(Claimed { jobs: Vec::new(), waited_ms: 0, resumed: false })
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if self.claimed.take().is_none() || self.given.is_empty() {
            return;
        }
        let (given, call) = (std::mem::take(&mut self.given), self.call.clone());
        let _ = self.orders.send(Box::new(move |core| {
            Box::pin(async move {
                let mut errand = Errand::new(&core.clock, &core.place, call.patience_ms, 0);
                if let Err(why) = core.hand_back(&mut errand, &call, &given).await {
                    tracing::warn!(%why, "jobs that nobody picked up could not be given back; their claims will run out");
                }
            })
        }));
    }
}

impl Core {
    /// Gives jobs back that were claimed for somebody who had gone, unless the same claim was sent again and has them.
    async fn hand_back(
        &self,
        errand: &mut Errand,
        call: &Call,
        given: &[(JobId, By)],
    ) -> Result<(), StoreError> {
        let ids: Vec<Bits> = given.iter().map(|(id, _)| (*id).into()).collect();
        let tokens: Vec<i64> = given.iter().map(|(_, by)| to_sql(by.token.get())).collect();
        let lock_ms = Core::lock_ms(errand);
        let decided = self
            .run(errand, Repeat::Safe, async |client| {
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
            Decided::Damaged(why) => Err(StoreError::Unusable { place: self.place.clone(), why }),
        }
    }
}

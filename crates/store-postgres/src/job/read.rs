//! Looking at jobs, at many of them, and waiting for the end of one.

use fencehold_contract::job::{
    EffectPage, JobCounts, JobDetail, JobFilter, JobPage, ListEffectsRequest, ListJobsRequest, QueueView,
    WaitRequest,
};
use fencehold_contract::operation::{JobRequest, JobResponse};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_net::sleep;
use tokio_postgres::types::Type;

use super::columns::{mode_of, state_number};
use super::decide::{DecisionScope, json};
use super::value::{Uuid128, from_sql, to_sql};
use crate::budget::StatementBudget;
use crate::{PostgresInner, ResendPolicy};

/// How many jobs one page looks at, so that listing a million of them never takes long at a time.
const LOOK_AT_MAX: i32 = 10_000;
/// How often a caller that waits for a job looks without a notification.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

impl PostgresInner {
    pub(super) async fn job(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        id: JobId,
    ) -> Result<Option<JobDetail>, StoreError> {
        Ok(self.job_and_moment(budget, call, id).await?.0)
    }

    async fn job_and_moment(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        id: JobId,
    ) -> Result<(Option<JobDetail>, u64), StoreError> {
        let about = DecisionScope::jobs(&call.namespace, vec![id]).with_notes();
        let (answer, now_ms) = self
            .look(budget, &about, |replay| {
                (replay.ask(&call.namespace, JobRequest::Get(id)), replay.now_ms())
            })
            .await?;
        match answer? {
            JobResponse::Job(detail) => Ok((detail.map(|detail| *detail), now_ms)),
            _ => Err(fencehold_contract::operation::unexpected_response()),
        }
    }

    pub(super) async fn wait_for(
        &self,
        call: &CallContext,
        request: WaitRequest,
    ) -> Result<Option<JobDetail>, StoreError> {
        let WaitRequest { id, wait_ms } = request;
        let listener = self.listen(&format!("job/{id}"));
        let mut budget = self.budget(call.timeout_ms, 0);
        let (detail, since_ms) = self.job_and_moment(&mut budget, call, id).await?;
        let settled =
            |detail: &Option<JobDetail>| detail.as_ref().is_none_or(|found| found.job.state.is_settled());
        if settled(&detail) || wait_ms == 0 {
            return Ok(detail);
        }
        // Who may only look adds no row for this, and looks now and then.
        if self.works() {
            self.await_end(&mut budget, id, wait_ms).await?;
        }
        loop {
            let mut budget = self.budget(call.timeout_ms, 0);
            let (detail, now_ms) = self.job_and_moment(&mut budget, call, id).await?;
            if settled(&detail) || now_ms.saturating_sub(since_ms) >= wait_ms {
                return Ok(detail);
            }
            tokio::select! {
                () = listener.heard() => {}
                () = sleep(LOOK_EVERY) => {}
                () = self.closing.wait() => return Err(crate::closed()),
            }
        }
    }

    /// From now on the end of this job is notified.
    async fn await_end(
        &self,
        budget: &mut StatementBudget,
        id: JobId,
        wait_ms: u64,
    ) -> Result<(), StoreError> {
        let (id, wait_ms) = (Uuid128::from(id), to_sql(wait_ms));
        self.run(budget, ResendPolicy::Safe, async |client| {
            let sql = self.sql("SELECT fencehold.job_await($1, $2)");
            client
                .query_typed(&sql, &[(&id, Type::UUID), (&wait_ms, Type::INT8)])
                .await
                .map(drop)
        })
        .await
    }

    pub(super) async fn list_jobs(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        request: &ListJobsRequest,
    ) -> Result<JobPage, StoreError> {
        let (ids, next) = self
            .matching(budget, call, &request.filter, request.cursor, request.limit)
            .await?;
        let about = DecisionScope::jobs(&call.namespace, ids.clone());
        let jobs = self.look(budget, &about, |replay| replay.views(&ids)).await?;
        Ok(JobPage { jobs, next_cursor: next })
    }

    /// A page of the jobs that match, in the order of their arrival, and where the next one starts.
    pub(super) async fn matching(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        filter: &JobFilter,
        cursor: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<JobId>, Option<u64>), StoreError> {
        let JobFilter { queue, kind, states, labels, owner, payload_contains } = filter;
        let namespace = call.namespace.as_str();
        let from = to_sql(cursor.unwrap_or(0));
        let (queue, kind) = (queue.as_ref().map(QueueName::as_str), kind.as_ref().map(JobKind::as_str));
        let states: Vec<i16> = states.iter().map(|state| state_number(*state).into()).collect();
        let states = Some(states).filter(|states| !states.is_empty());
        let labels = json(labels);
        let owner = owner.as_ref().map(Owner::as_str);
        // No payload has such a character in it.
        if payload_contains.as_ref().is_some_and(|text| text.contains('\0')) {
            return Ok((Vec::new(), None));
        }
        let limit_and_one = i32::try_from(limit).unwrap_or(i32::MAX - 1) + 1;
        let rows = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let sql =
                    self.sql("SELECT * FROM fencehold.job_list($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
                let rows = client
                    .query_typed(
                        &sql,
                        &[
                            (&namespace, Type::TEXT),
                            (&from, Type::INT8),
                            (&queue, Type::TEXT),
                            (&kind, Type::TEXT),
                            (&states, Type::INT2_ARRAY),
                            (&labels, Type::JSONB),
                            (&owner, Type::TEXT),
                            (payload_contains, Type::TEXT),
                            (&limit_and_one, Type::INT4),
                            (&LOOK_AT_MAX, Type::INT4),
                        ],
                    )
                    .await?;
                let told = |row: &tokio_postgres::Row| {
                    (row.get::<_, Option<i64>>(0).map(from_sql), row.get::<_, Option<Uuid128>>(1))
                };
                Ok(rows.iter().map(told).collect::<Vec<_>>())
            })
            .await?;
        let mut ids = Vec::new();
        for (arrival, id) in rows {
            match id {
                Some(_) if ids.len() == limit => return Ok((ids, arrival)),
                Some(id) => ids.push(JobId::from_bytes(id.0)),
                None => return Ok((ids, arrival.map(|last| last + 1))),
            }
        }
        Ok((ids, None))
    }

    pub(super) async fn findings(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        request: ListEffectsRequest,
    ) -> Result<EffectPage, StoreError> {
        let namespace = call.namespace.as_str();
        let (from, limit) = (to_sql(request.cursor.unwrap_or(0)), to_sql(request.limit as u64));
        let found = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let sql = self.sql("SELECT * FROM fencehold.job_with_effects($1, $2, $3)");
                let rows = client
                    .query_typed(&sql, &[(&namespace, Type::TEXT), (&from, Type::INT8), (&limit, Type::INT8)])
                    .await?;
                let told = |row: &tokio_postgres::Row| {
                    (from_sql(row.get::<_, i64>(0)), JobId::from_bytes(row.get::<_, Uuid128>(1).0))
                };
                Ok(rows.iter().map(told).collect::<Vec<_>>())
            })
            .await?;
        // By what was found: some of it may be gone when it is looked at, and what is behind it is still to come.
        let next = found.last().filter(|_| found.len() == request.limit).map(|(last, _)| last + 1);
        let about = DecisionScope::jobs(&call.namespace, found.into_iter().map(|(_, id)| id).collect());
        let ask = JobRequest::Effects(request);
        match self
            .look(budget, &about, |replay| replay.ask(&call.namespace, ask.clone()))
            .await??
        {
            JobResponse::Effects(page) => Ok(EffectPage { next_cursor: next, ..page }),
            _ => Err(fencehold_contract::operation::unexpected_response()),
        }
    }

    pub(super) async fn queue_views(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        only: Option<&QueueName>,
    ) -> Result<Vec<QueueView>, StoreError> {
        let (namespace, only) = (call.namespace.as_str(), only.map(QueueName::as_str));
        let rows = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let sql = self.sql("SELECT * FROM fencehold.job_queues($1, $2)");
                client.query_typed(&sql, &[(&namespace, Type::TEXT), (&only, Type::TEXT)]).await
            })
            .await?;
        let view = |row: &tokio_postgres::Row| {
            let mut counts = JobCounts::default();
            let told: Vec<i64> = row.get(2);
            for (state, count) in fencehold_core::job::JobState::ALL.into_iter().zip(told) {
                *counts.of(state) = from_sql(count);
            }
            Some(QueueView {
                name: QueueName::new(row.get::<_, &str>(0)).ok()?,
                mode: mode_of(u8::try_from(row.get::<_, i16>(1)).unwrap_or(0)),
                job_counts: counts,
                waiting_claim_count: from_sql(row.get(3)),
            })
        };
        Ok(rows.iter().filter_map(view).collect())
    }
}

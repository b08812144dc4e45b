//! What operators, schedulers and request handlers ask: all of it is decided by the rules.

use std::collections::VecDeque;

use fencehold_contract::job::{
    BeginOperationRequest, BegunOperation, ChangeJobBatchResponse, ChangeJobsRequest, Contents, JobAction,
    JobCounts, JobFilter, JobSelector, QueueView, ResolveEffectRequest, ScheduleSpec, ScheduleView,
    SetQueueModeRequest,
};
use fencehold_contract::operation::{JobRequest, JobResponse};
use fencehold_contract::quota::{Limited, full};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, JobRefusal, JobState, QueueName, ScheduleName};
use fencehold_engine::{Replay, unique_digest};
use tokio_postgres::types::Type;

use super::decide::{DecisionResult, DecisionScope, decide_in, locking, read};
use super::load::ScheduleRow;
use super::value::from_sql;
use crate::budget::StatementBudget;
use crate::{PostgresInner, ResendPolicy};

impl PostgresInner {
    pub(super) async fn act(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError> {
        let all = JobFilter::default();
        let (ids, next, filter) = match &request.selector {
            JobSelector::Ids { job_ids } => (job_ids.clone(), None, None),
            JobSelector::Filter { filter } => {
                let (ids, next) = self.matching(budget, call, filter, request.cursor, request.limit).await?;
                (ids, next, Some(filter))
            }
            JobSelector::All {} => {
                let (ids, next) = self.matching(budget, call, &all, request.cursor, request.limit).await?;
                (ids, next, Some(&all))
            }
        };
        // A person's act is not repeated: the job could have gone on since.
        let repeat = if request.dry_run { ResendPolicy::Safe } else { ResendPolicy::Never };
        // A request that only asks the holder to stop waits for no fence.
        let forced = matches!(
            request.action,
            JobAction::Cancel { force: true, .. } | JobAction::Delete { force: true }
        );
        let about = DecisionScope::jobs(&call.namespace, ids.clone());
        let about = if forced && !request.dry_run { about.ending() } else { about };
        let one = |replay: &mut Replay, id: JobId| {
            let selector = JobSelector::Ids { job_ids: vec![id] };
            let ask = JobRequest::Change(ChangeJobsRequest { selector, ..request.clone() });
            match replay.ask(&call.namespace, ask)? {
                JobResponse::Changed(acted) => Ok(acted.results),
                _ => Err(fencehold_contract::operation::unexpected_response()),
            }
        };
        let items: Result<Vec<_>, StoreError> = self
            .decide(budget, repeat, &about, |replay| {
                let mut items = Vec::new();
                for id in &ids {
                    // What was found is locked only now: it counts if it still is what was meant.
                    if filter.is_none_or(|filter| replay.still_stands(*id, filter)) {
                        items.extend(one(replay, *id)?);
                    }
                }
                Ok(items)
            })
            .await?;
        Ok(ChangeJobBatchResponse { results: items?, next_cursor: next })
    }

    pub(super) async fn set_queue(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        order: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError> {
        let (queue, mode) = (order.queue.clone(), order.mode);
        let about = DecisionScope {
            queues: vec![queue.clone()],
            sets_queue: true,
            ..DecisionScope::jobs(&call.namespace, Vec::new())
        };
        self.by_the_rules(budget, call, &about, JobRequest::SetQueueMode(order)).await?;
        budget.outcome_unknown = true;
        let mut views = self.queue_views(budget, call, Some(&queue)).await?;
        // One that is open and empty is not shown.
        let unused =
            || QueueView { name: queue, mode, job_counts: JobCounts::default(), waiting_claim_count: 0 };
        Ok(views.pop().unwrap_or_else(unused))
    }

    pub(super) async fn schedules(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
    ) -> Result<Vec<ScheduleView>, StoreError> {
        let namespace = call.namespace.as_str();
        let texts = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let sql = self.sql("SELECT * FROM fencehold.job_schedules($1)");
                let rows = client.query_typed(&sql, &[(&namespace, Type::TEXT)]).await?;
                Ok(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>())
            })
            .await?;
        let mut views = Vec::with_capacity(texts.len());
        for text in texts {
            let row: ScheduleRow = read("schedule", &text).map_err(|why| self.unusable(why))?;
            let ScheduleRow { spec, next_ms, last_ms, .. } = row;
            views.push(ScheduleView { spec: spec.into(), next_run_at_ms: next_ms, last_run_at_ms: last_ms });
        }
        Ok(views)
    }

    pub(super) async fn set_schedule(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        spec: ScheduleSpec,
    ) -> Result<ScheduleView, StoreError> {
        let (namespace, name) = (call.namespace.as_str(), spec.name.as_str());
        let ask = JobRequest::SetSchedule(Box::new(spec.clone()));
        let lock_ms = PostgresInner::lock_ms(budget);
        let decided = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let transaction = client.transaction().await?;
                let sql = self.sql(&locking("job_schedule_hold($1, $2)"));
                let rows = transaction
                    .query_typed(&sql, &[(&namespace, Type::TEXT), (&name, Type::TEXT)])
                    .await?;
                let text: Option<&str> = rows.first().and_then(|row| row.get(0));
                let earlier: Option<ScheduleRow> = text.and_then(|text| read("schedule", text).ok());
                let count: i64 = rows.first().map_or(0, |row| row.get(1));
                if earlier.is_none() {
                    let sql = self.sql("SELECT fencehold.job_schedules_most($1)");
                    let most = &transaction.query_typed(&sql, &[(&namespace, Type::TEXT)]).await?[0];
                    let most: i64 = most.try_get(0)?;
                    if count >= most {
                        let full = full(Limited::Schedules, &call.namespace, from_sql(most));
                        return Ok(DecisionResult::Kept(Err(full)));
                    }
                }
                let earlier: VecDeque<_> = earlier.into_iter().map(ScheduleRow::kept).collect();
                let about = DecisionScope::jobs(&call.namespace, Vec::new());
                let act = |replay: &mut Replay| replay.ask(&call.namespace, ask.clone());
                let decided = decide_in(self, &transaction, &about, lock_ms, earlier, act).await?;
                // What was not decided to its end is rolled back, all of it.
                if matches!(decided, DecisionResult::Kept(_)) {
                    transaction.commit().await?;
                }
                Ok(decided)
            })
            .await?;
        match decided {
            DecisionResult::Kept(answer) => match answer? {
                JobResponse::Schedule(view) => Ok(*view),
                _ => Err(fencehold_contract::operation::unexpected_response()),
            },
            DecisionResult::Again => Err(fencehold_contract::operation::unexpected_response()),
            DecisionResult::Damaged(why) => Err(self.unusable(why)),
        }
    }

    pub(super) async fn remove_schedule(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        name: &ScheduleName,
        _by: &Owner,
    ) -> Result<bool, StoreError> {
        let (namespace, name) = (call.namespace.as_str(), name.as_str());
        self.run(budget, ResendPolicy::Safe, async |client| {
            let sql = self.sql("SELECT fencehold.job_unschedule($1, $2)");
            let rows = client
                .query_typed(&sql, &[(&namespace, Type::TEXT), (&name, Type::TEXT)])
                .await?;
            Ok(rows.first().is_some_and(|row| row.get(0)))
        })
        .await
    }

    pub(super) async fn remove_queue(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        queue: &QueueName,
        by: &Owner,
    ) -> Result<bool, StoreError> {
        let (namespace, name, by) = (call.namespace.as_str(), queue.as_str(), by.as_str());
        let row = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let sql = self.sql("SELECT * FROM fencehold.job_queue_remove($1, $2, $3)");
                let values = [(&namespace as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT)];
                let values = values.into_iter().chain([(&name as _, Type::TEXT), (&by as _, Type::TEXT)]);
                let rows = client.query_typed(&sql, &values.collect::<Vec<_>>()).await?;
                let row = rows.first();
                Ok(row.map(|row| {
                    (row.get::<_, bool>(0), row.get::<_, Option<Vec<i64>>>(1), row.get::<_, i64>(2))
                }))
            })
            .await?;
        let Some((removed, told, schedules)) = row else { return Ok(false) };
        let mut counts = JobCounts::default();
        for (state, count) in JobState::ALL.into_iter().zip(told.unwrap_or_default()) {
            *counts.of(state) = from_sql(count);
        }
        if removed {
            Contents { counts, schedules: from_sql(schedules) }.check(queue)?;
        }
        Ok(removed)
    }

    pub(super) async fn begin(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        request: BeginOperationRequest,
    ) -> Result<Result<BegunOperation, JobRefusal>, StoreError> {
        let about = DecisionScope {
            keys: vec![unique_digest("operation", &request.idempotency_key)],
            queues: vec![fencehold_core::job::QueueName::operations()],
            ..DecisionScope::jobs(&call.namespace, vec![request.job_id]).with_notes()
        };
        match self
            .by_the_rules(budget, call, &about, JobRequest::BeginOperation(request))
            .await?
        {
            JobResponse::BegunOperation(began) => Ok(began),
            _ => Err(fencehold_contract::operation::unexpected_response()),
        }
    }

    pub(super) async fn resolve(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<Result<(), JobRefusal>, StoreError> {
        let about = DecisionScope::jobs(&call.namespace, vec![request.job_id]);
        let ask = JobRequest::ResolveEffect(request);
        let act = |replay: &mut Replay| replay.ask(&call.namespace, ask.clone());
        match self.decide(budget, ResendPolicy::Never, &about, act).await?? {
            JobResponse::ResolvedEffect(answer) => Ok(answer),
            _ => Err(fencehold_contract::operation::unexpected_response()),
        }
    }
}

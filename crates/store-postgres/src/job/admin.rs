//! What operators, schedulers and request handlers ask: all of it is decided by the rules.

use fencehold_contract::job::{
    BeginOperationRequest, ChangeJobBatchResponse, ChangeJobsRequest, Contents, JobAction, JobCounts,
    JobFilter, JobSelector, QueueView, ResolveEffectRequest, ScheduleSpec, ScheduleView, SetQueueModeRequest,
};
use fencehold_contract::operation::{JobRequest, JobResponse, unexpected_response};
use fencehold_contract::quota::{Limited, full};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, QueueName, ScheduleName};
use fencehold_engine::{Replay, unique_digest};

use super::decide::{DecisionResult, DecisionScope, decide_in, locking, read};
use super::load::ScheduleRow;
use super::read::job_counts;
use crate::statement::{Parameter, StatementBudget, query, query_one};
use crate::value::from_sql;
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
        let ends = forced && !request.dry_run;
        let about = DecisionScope { ends, ..DecisionScope::jobs(&call.namespace, ids.clone()) };
        let one = |replay: &mut Replay, id: JobId| {
            let selector = JobSelector::Ids { job_ids: vec![id] };
            let ask = JobRequest::Change(ChangeJobsRequest { selector, ..request.clone() });
            match replay.ask(&call.namespace, ask)? {
                JobResponse::Changed(acted) => Ok(acted.results),
                _ => Err(unexpected_response()),
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
            ..DecisionScope::jobs(&call.namespace, [])
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
        let sql = "SELECT * FROM fencehold.job_schedules($1)";
        let texts: Vec<(String,)> = self.rows(budget, sql, &[&call.namespace.as_str()]).await?;
        let view = |(text,): (String,)| {
            let row: ScheduleRow = read("schedule", &text).map_err(|why| self.unusable(why))?;
            let ScheduleRow { spec, next_ms, last_ms, .. } = row;
            Ok(ScheduleView { spec: spec.into(), next_run_at_ms: next_ms, last_run_at_ms: last_ms })
        };
        texts.into_iter().map(view).collect()
    }

    pub(super) async fn set_schedule(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        spec: ScheduleSpec,
    ) -> Result<JobResponse, StoreError> {
        let (namespace, name) = (call.namespace.as_str(), spec.name.as_str());
        let ask = JobRequest::SetSchedule(Box::new(spec.clone()));
        let lock_ms = PostgresInner::lock_ms(budget);
        let decided = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let transaction = client.transaction().await?;
                let sql = self.sql(&locking("job_schedule_hold($1, $2)"));
                let rows: Vec<(Option<String>, i64)> =
                    query(&transaction, &sql, &[&namespace, &name]).await?;
                let (text, count) = rows.into_iter().next().unwrap_or_default();
                let earlier = text.and_then(|text| read::<ScheduleRow>("schedule", &text).ok());
                if earlier.is_none() {
                    let sql = self.sql("SELECT fencehold.job_schedules_most($1)");
                    let (most,) = query_one(&transaction, &sql, &[&namespace]).await?;
                    if count >= most {
                        let full = full(Limited::Schedules, &call.namespace, from_sql(most));
                        return Ok(DecisionResult::Kept(Err(full)));
                    }
                }
                let about = DecisionScope::jobs(&call.namespace, []);
                let act = |replay: &mut Replay| replay.ask(&call.namespace, ask.clone());
                let earlier = earlier.map(ScheduleRow::kept);
                decide_in(self, transaction, &about, lock_ms, earlier, act).await
            })
            .await?;
        self.kept(decided)?.ok_or_else(unexpected_response)?
    }

    pub(super) async fn remove_schedule(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        name: &ScheduleName,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT fencehold.job_unschedule($1, $2)";
        self.value(budget, sql, &[&call.namespace.as_str(), &name.as_str()]).await
    }

    pub(super) async fn remove_queue(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        queue: &QueueName,
        by: &Owner,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT * FROM fencehold.job_queue_remove($1, $2, $3)";
        let asked: [&dyn Parameter; 3] = [&call.namespace.as_str(), &queue.as_str(), &by.as_str()];
        let rows: Vec<(bool, Option<Vec<i64>>, i64)> = self.rows(budget, sql, &asked).await?;
        let (removed, counts, schedules) = rows.into_iter().next().unwrap_or_default();
        let counts = job_counts(&counts.unwrap_or_default());
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
    ) -> Result<JobResponse, StoreError> {
        let about = DecisionScope {
            keys: vec![unique_digest("operation", &request.idempotency_key)],
            queues: vec![QueueName::operations()],
            ..DecisionScope::jobs(&call.namespace, [request.job_id]).with_notes()
        };
        self.by_the_rules(budget, call, &about, JobRequest::BeginOperation(request))
            .await
    }

    pub(super) async fn resolve(
        &self,
        budget: &mut StatementBudget,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<JobResponse, StoreError> {
        let about = DecisionScope::jobs(&call.namespace, [request.job_id]);
        let ask = JobRequest::ResolveEffect(request);
        let act = |replay: &mut Replay| replay.ask(&call.namespace, ask.clone());
        self.decide(budget, ResendPolicy::Never, &about, act).await?
    }
}

//! What operators, schedulers and request handlers ask: all of it is decided by the rules.

use fencehold_contract::StoreError;
use fencehold_contract::job::{
    BeginOperationRequest, ChangeJobBatchResponse, ChangeJobsRequest, Contents, JobAction, JobCounts,
    JobFilter, JobSelector, QueueView, ResolveEffectRequest, ScheduleSpec, ScheduleView, SetQueueModeRequest,
};
use fencehold_contract::operation::{JobRequest, JobResponse, unexpected_response};
use fencehold_contract::quota::{Limited, full};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, QueueName, ScheduleName};
use fencehold_engine::{Replay, unique_digest};

use super::decide::{DecisionResult, DecisionScope, decide_in, locking, read};
use super::load::ScheduleRow;
use super::read::job_counts;
use crate::ResendPolicy;
use crate::statement::{Call, Parameter, query, query_one};
use crate::value::from_sql;

impl Call<'_> {
    pub(super) async fn act(
        &mut self,
        request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError> {
        let all = JobFilter::default();
        let (ids, next, filter) = match &request.selector {
            JobSelector::Ids { job_ids } => (job_ids.clone(), None, None),
            JobSelector::Filter { filter } => {
                let (ids, next) = self.matching(filter, request.cursor, request.limit).await?;
                (ids, next, Some(filter))
            }
            JobSelector::All {} => {
                let (ids, next) = self.matching(&all, request.cursor, request.limit).await?;
                (ids, next, Some(&all))
            }
        };
        // A person's act is not repeated: the job could have gone on since.
        let repeat = if request.dry_run { ResendPolicy::Safe } else { ResendPolicy::Never };
        // A request that only asks the holder to stop waits for no fence.
        let forced = matches!(
            request.action,
            JobAction::Cancel { force: true, .. }
                | JobAction::Delete { force: true }
                | JobAction::Complete { .. }
                | JobAction::Fail { .. }
        );
        let ends = forced && !request.dry_run;
        let about = DecisionScope { ends, ..self.scope(ids.clone()) };
        let one = |replay: &mut Replay, id: JobId| {
            let selector = JobSelector::Ids { job_ids: vec![id] };
            let ask = JobRequest::Change(ChangeJobsRequest { selector, ..request.clone() });
            match replay.ask(&self.about.namespace, ask)? {
                JobResponse::Changed(acted) => Ok(acted.results),
                _ => Err(unexpected_response()),
            }
        };
        let items: Result<Vec<_>, StoreError> = self
            .decide(repeat, &about, |replay| {
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

    pub(super) async fn set_queue(&mut self, order: SetQueueModeRequest) -> Result<QueueView, StoreError> {
        let (queue, mode) = (order.queue.clone(), order.mode);
        let about = DecisionScope { queues: vec![queue.clone()], sets_queue: true, ..self.scope([]) };
        self.by_the_rules(&about, JobRequest::SetQueueMode(order)).await?;
        self.budget.outcome_unknown = true;
        let mut views = self.queue_views(&queue).await?;
        // One that is open and empty is not shown.
        let unused =
            || QueueView { name: queue, mode, job_counts: JobCounts::default(), waiting_claim_count: 0 };
        Ok(views.pop().unwrap_or_else(unused))
    }

    pub(super) async fn schedules(&mut self) -> Result<Vec<ScheduleView>, StoreError> {
        let sql = "SELECT * FROM fencehold.job_schedules($1)";
        let texts: Vec<(String,)> = self.rows(sql, &[&self.namespace()]).await?;
        let view = |(text,): (String,)| {
            let row: ScheduleRow = read("schedule", &text).map_err(|why| self.unusable(why))?;
            let ScheduleRow { spec, next_ms, last_ms, .. } = row;
            Ok(ScheduleView { spec: spec.into(), next_run_at_ms: next_ms, last_run_at_ms: last_ms })
        };
        texts.into_iter().map(view).collect()
    }

    pub(super) async fn set_schedule(&mut self, spec: ScheduleSpec) -> Result<JobResponse, StoreError> {
        let (about, namespace, name) = (self.scope([]), self.namespace(), spec.name.as_str());
        let ask = JobRequest::SetSchedule(Box::new(spec.clone()));
        let core = self.core;
        let decided = self
            .run(ResendPolicy::Safe, async |client, lock_ms| {
                let transaction = client.transaction().await?;
                let sql = core.sql(&locking("job_schedule_hold($1, $2)"));
                let rows: Vec<(Option<String>, i64)> =
                    query(&transaction, &sql, &[&namespace, &name]).await?;
                let (text, count) = rows.into_iter().next().unwrap_or_default();
                let earlier = text.and_then(|text| read::<ScheduleRow>("schedule", &text).ok());
                if earlier.is_none() {
                    let sql = core.sql("SELECT fencehold.job_schedules_most($1)");
                    let (most,) = query_one(&transaction, &sql, &[&namespace]).await?;
                    if count >= most {
                        let full = full(Limited::Schedules, &about.namespace, from_sql(most));
                        return Ok(DecisionResult::Kept(Err(full)));
                    }
                }
                let act = |replay: &mut Replay| replay.ask(&about.namespace, ask.clone());
                let earlier = earlier.map(ScheduleRow::kept);
                decide_in(core, transaction, &about, lock_ms, earlier, act).await
            })
            .await?;
        self.kept(decided)?.ok_or_else(unexpected_response)?
    }

    pub(super) async fn remove_schedule(&mut self, name: &ScheduleName) -> Result<bool, StoreError> {
        let sql = "SELECT fencehold.job_unschedule($1, $2)";
        self.value(sql, &[&self.namespace(), &name.as_str()]).await
    }

    pub(super) async fn remove_queue(&mut self, queue: &QueueName, by: &Owner) -> Result<bool, StoreError> {
        let sql = "SELECT * FROM fencehold.job_queue_remove($1, $2, $3)";
        let asked: [&dyn Parameter; 3] = [&self.namespace(), &queue.as_str(), &by.as_str()];
        let rows: Vec<(bool, Option<Vec<i64>>, i64)> = self.rows(sql, &asked).await?;
        let (removed, counts, schedules) = rows.into_iter().next().unwrap_or_default();
        let counts = job_counts(&counts.unwrap_or_default());
        if removed {
            Contents { counts, schedules: from_sql(schedules) }.check(queue)?;
        }
        Ok(removed)
    }

    pub(super) async fn begin(&mut self, request: BeginOperationRequest) -> Result<JobResponse, StoreError> {
        let about = DecisionScope {
            keys: vec![unique_digest("operation", &request.idempotency_key)],
            queues: vec![QueueName::operations()],
            ..self.scope([request.job_id]).with_notes()
        };
        self.by_the_rules(&about, JobRequest::BeginOperation(request)).await
    }

    pub(super) async fn resolve(&mut self, request: ResolveEffectRequest) -> Result<JobResponse, StoreError> {
        let about = self.scope([request.job_id]);
        let ask = JobRequest::ResolveEffect(request);
        let act = |replay: &mut Replay| replay.ask(&self.about.namespace, ask.clone());
        self.decide(ResendPolicy::Never, &about, act).await?
    }
}

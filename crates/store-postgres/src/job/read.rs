//! Looking at jobs, at many of them, and waiting for the end of one.

use fencehold_contract::StoreError;
use fencehold_contract::job::{
    EffectPage, JobCounts, JobDetail, JobFilter, JobPage, ListEffectsRequest, ListJobsRequest, QueueList,
    QueueView, WaitRequest,
};
use fencehold_contract::operation::{JobRequest, JobResponse, unexpected_response};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, JobKind, JobState, QueueName};
use fencehold_net::sleep;

use super::columns::{mode_of, state_number};
use super::decide::json;
use crate::statement::{Call, Parameter};
use crate::value::{Uuid128, from_sql, limit_to_sql, to_sql};

/// How many jobs one page looks at, so that listing a million of them never takes long at a time.
const LOOK_AT_MAX: i32 = 10_000;
/// How often a caller that waits for a job looks without a notification.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

impl Call<'_> {
    /// A job, and the moment at which it was looked at.
    pub(super) async fn job_and_moment(
        &mut self,
        id: JobId,
    ) -> Result<(Option<Box<JobDetail>>, u64), StoreError> {
        let about = self.scope([id]).with_notes();
        let (answer, now_ms) = self
            .look(&about, |replay| (replay.ask(&self.about.namespace, JobRequest::Get(id)), replay.now_ms()))
            .await?;
        match answer? {
            JobResponse::Job(detail) => Ok((detail, now_ms)),
            _ => Err(unexpected_response()),
        }
    }

    pub(super) async fn wait_for(
        &mut self,
        request: WaitRequest,
    ) -> Result<Option<Box<JobDetail>>, StoreError> {
        let WaitRequest { id, wait_ms } = request;
        let listener = self.listen(&format!("job/{id}"));
        let (detail, since_ms) = self.job_and_moment(id).await?;
        let settled = |detail: &Option<Box<JobDetail>>| {
            detail.as_ref().is_none_or(|found| found.job.state.is_settled())
        };
        if settled(&detail) || wait_ms == 0 {
            return Ok(detail);
        }
        // Who may only look adds no row for this, and looks now and then.
        if self.works() {
            // From now on the end of this job is notified.
            let sql = "SELECT fencehold.job_await($1, $2)";
            self.execute(sql, &[&Uuid128::from(id), &to_sql(wait_ms)]).await?;
        }
        loop {
            // Each look is a request of its own, and its timeout starts with it.
            let mut look = self.core.call(self.about, self.about.timeout_ms, 0);
            let (detail, now_ms) = look.job_and_moment(id).await?;
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

    pub(super) async fn list_jobs(&mut self, request: &ListJobsRequest) -> Result<JobPage, StoreError> {
        let (ids, next) = self.matching(&request.filter, request.cursor, request.limit).await?;
        let about = self.scope(ids.clone());
        let jobs = self.look(&about, |replay| replay.views(&ids)).await?;
        Ok(JobPage { jobs, next_cursor: next })
    }

    /// A page of the jobs that match, in the order of their arrival, and where the next one starts.
    pub(super) async fn matching(
        &mut self,
        filter: &JobFilter,
        cursor: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<JobId>, Option<u64>), StoreError> {
        let JobFilter { queue, kind, states, labels, owner, payload_contains } = filter;
        // No payload has such a character in it.
        if payload_contains.as_ref().is_some_and(|text| text.contains('\0')) {
            return Ok((Vec::new(), None));
        }
        let states: Vec<i16> = states.iter().map(|state| state_number(*state).into()).collect();
        let sql = "SELECT * FROM fencehold.job_list($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let asked: [&dyn Parameter; 10] = [
            &self.namespace(),
            &to_sql(cursor.unwrap_or(0)),
            &queue.as_ref().map(QueueName::as_str),
            &kind.as_ref().map(JobKind::as_str),
            &Some(states).filter(|states| !states.is_empty()),
            &json(labels),
            &owner.as_ref().map(Owner::as_str),
            &payload_contains.as_deref(),
            &limit_to_sql(limit).saturating_add(1),
            &LOOK_AT_MAX,
        ];
        let rows: Vec<(Option<i64>, Option<Uuid128>)> = self.rows(sql, &asked).await?;
        let mut ids = Vec::new();
        for (arrival, id) in rows {
            let arrival = arrival.map(from_sql);
            match id {
                Some(_) if ids.len() == limit => return Ok((ids, arrival)),
                Some(id) => ids.push(id.into()),
                None => return Ok((ids, arrival.map(|last| last + 1))),
            }
        }
        Ok((ids, None))
    }

    pub(super) async fn findings(&mut self, request: ListEffectsRequest) -> Result<EffectPage, StoreError> {
        let sql = "SELECT * FROM fencehold.job_with_effects($1, $2, $3)";
        let (from, limit) = (to_sql(request.cursor.unwrap_or(0)), to_sql(request.limit as u64));
        let found: Vec<(i64, Uuid128)> = self.rows(sql, &[&self.namespace(), &from, &limit]).await?;
        // By what was found: some of it may be gone when it is looked at, and what is behind it is still to come.
        let next = found
            .last()
            .filter(|_| found.len() == request.limit)
            .map(|(last, _)| from_sql(last + 1));
        let about = self.scope(found.into_iter().map(|(_, id)| id.into()));
        let ask = JobRequest::Effects(request);
        match self
            .look(&about, |replay| replay.ask(&self.about.namespace, ask.clone()))
            .await??
        {
            JobResponse::Effects(page) => Ok(EffectPage { next_cursor: next, ..page }),
            _ => Err(unexpected_response()),
        }
    }

    pub(super) async fn queue_views(&mut self, only: &QueueName) -> Result<Vec<QueueView>, StoreError> {
        let sql = "SELECT * FROM fencehold.job_queues($1, $2)";
        let asked: [&dyn Parameter; 2] = [&self.namespace(), &only.as_str()];
        let rows: Vec<QueueRow> = self.rows(sql, &asked).await?;
        Ok(rows.into_iter().filter_map(queue_view).collect())
    }

    pub(super) async fn list_queues(&mut self) -> Result<QueueList, StoreError> {
        let sql = "SELECT queues::text, event_seq FROM fencehold.job_queue_list($1)";
        let (rows, event_seq): (String, Option<i64>) = self.row(sql, &[&self.namespace()]).await?;
        let rows: Vec<QueueRow> = self.read(&rows)?;
        Ok(QueueList {
            queues: rows.into_iter().filter_map(queue_view).collect(),
            event_seq: event_seq.map(from_sql),
        })
    }
}

/// Of a queue its name, its mode, its jobs by state, and how many claims wait for them.
type QueueRow = (String, i16, Vec<i64>, i64);

fn queue_view((name, mode, counts, waiting): QueueRow) -> Option<QueueView> {
    Some(QueueView {
        name: QueueName::new(name).ok()?,
        mode: mode_of(u8::try_from(mode).unwrap_or(0)),
        job_counts: job_counts(&counts),
        waiting_claim_count: from_sql(waiting),
    })
}

/// By state, in the order of the states.
pub(super) fn job_counts(by_state: &[i64]) -> JobCounts {
    let mut counts = JobCounts::default();
    for (state, count) in JobState::ALL.into_iter().zip(by_state) {
        *counts.get_mut(state) = from_sql(*count);
    }
    counts
}

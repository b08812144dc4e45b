//! Putting jobs into their queues: the new ones in one statement; what was there already, by the rules.

use fencehold_contract::StoreError;
use fencehold_contract::job::{EnqueuedJob, NewJob, When};
use fencehold_contract::operation::{JobRequest, JobResponse, check_job, unexpected_response};
use fencehold_core::Timestamp;
use fencehold_core::job::JobRefusal;
use fencehold_engine::{digest, unique_digest};
use tokio_postgres::error::SqlState;

use super::columns::{JobExtra, kept_terms};
use super::decide::{DecisionScope, json, within};
use crate::ResendPolicy;
use crate::fault::StatementError;
use crate::response::{completed, unanswered};
use crate::statement::{Call, Parameter, query};
use crate::value::{Json, Uuid128, to_sql};

/// How long an enqueue waits at a time for what another transaction is about to make. Between two tries it uses no connection.
const LOCK_MS: i64 = 250;

type EnqueueResults = Vec<Result<EnqueuedJob, JobRefusal>>;

impl Call<'_> {
    pub(super) async fn enqueue(&mut self, jobs: Vec<NewJob>) -> Result<EnqueueResults, StoreError> {
        self.begin_nothing_outdated()?;
        let jobs: Vec<NewJob> = jobs.into_iter().map(without_nul).collect();
        // Whether a job can be enqueued at all does not depend on the moment.
        let mut answers: Vec<Option<Result<EnqueuedJob, JobRefusal>>> = jobs
            .iter()
            .map(|job| check_job(job, Timestamp::default()).err().map(|bad| Err(bad.into())))
            .collect();
        let good: Vec<usize> = (0..jobs.len()).filter(|nth| answers[*nth].is_none()).collect();
        if !good.is_empty() {
            let batch = JobColumns::of(good.iter().map(|nth| &jobs[*nth]));
            let made = self.make_jobs(&batch).await?;
            // From here on 'nothing was done' would not be true.
            self.budget.outcome_unknown |= !made.is_empty();
            for (nth,) in made {
                if nth == 0 {
                    self.jobs
                        .notification
                        .note(&self.about.namespace, good.iter().map(|nth| &jobs[*nth].queue));
                    continue;
                }
                let nth = good[usize::try_from(nth - 1).unwrap_or(0)];
                answers[nth] = Some(Ok(EnqueuedJob { job_id: jobs[nth].id, existed: false }));
            }
        }
        if good
            .iter()
            .any(|nth| answers[*nth].is_some() && jobs[*nth].preempt_within_ms.is_some())
        {
            self.make_room_or_leave_it().await;
        }
        self.tell_lines().await;
        // What an earlier sending of this call had made is there now, and is found to be.
        let rest = unanswered(&jobs, &answers);
        if rest.is_empty() {
            return completed(answers, Vec::new());
        }
        completed(answers, self.enqueue_by_the_rules(rest).await?)
    }

    /// Makes those that are new, and says which those are: their numbers, from 1.
    async fn make_jobs(&mut self, batch: &JobColumns<'_>) -> Result<Vec<(i64,)>, StoreError> {
        loop {
            let lock_ms = self.lock_ms().min(LOCK_MS);
            let call = "job_enqueue_batch($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)";
            let sql = self.sql(&within(lock_ms, call));
            let made = self
                .send(async |client| {
                    match query(client, &sql, &batch.parameters(&self.namespace())).await {
                        // Another session enqueues one of them at this very moment: the rules say whether it is the same.
                        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(Vec::new()),
                        made => made,
                    }
                })
                .await;
            match made {
                Ok(made) => return Ok(made),
                Err(StatementError::Locked(_)) => {
                    let why = self.held_up(batch).await?;
                    self.budget.retry_or_fail(StatementError::Locked(why)).await?;
                }
                Err(fault) => self.budget.retry_or_fail(fault).await?,
            }
        }
    }

    /// What open transaction is in the way of these jobs, in words.
    async fn held_up(&mut self, batch: &JobColumns<'_>) -> Result<String, StoreError> {
        let sql = "SELECT fencehold.job_held_up($1, $2, $3, $4)";
        let asked: [&dyn Parameter; 4] = [&self.namespace(), &batch.queues, &batch.priorities, &batch.unique];
        self.value(sql, &asked).await
    }

    async fn enqueue_by_the_rules(&mut self, jobs: Vec<NewJob>) -> Result<EnqueueResults, StoreError> {
        let keys = jobs.iter().filter_map(|job| job.unique.as_ref());
        let mut about = DecisionScope {
            keys: keys.map(|unique| unique_digest("job", &unique.key)).collect(),
            queues: jobs.iter().map(|job| job.queue.clone()).collect(),
            ..self.scope(jobs.iter().map(|job| job.id))
        };
        about.queues.sort();
        about.queues.dedup();
        let ask = JobRequest::Enqueue(jobs);
        let answer = self
            .decide(ResendPolicy::Safe, &about, |replay| replay.ask(&self.about.namespace, ask.clone()))
            .await??;
        match answer {
            JobResponse::Enqueued(answers) => Ok(answers),
            _ => Err(unexpected_response()),
        }
    }
}

/// The database keeps no character of code zero in texts.
fn without_nul(job: NewJob) -> NewJob {
    let trace = job.traceparent.map(|trace| trace.replace('\0', "\u{fffd}").into());
    NewJob { traceparent: trace, ..job }
}

/// The columns of many new jobs.
#[derive(Default)]
struct JobColumns<'a> {
    ids: Vec<Uuid128>,
    queues: Vec<&'a str>,
    priorities: Vec<i16>,
    kinds: Vec<&'a str>,
    payloads: Vec<&'a str>,
    terms: Vec<Option<Json>>,
    extras: Vec<Option<Json>>,
    at_ms: Vec<Option<i64>>,
    after_ms: Vec<Option<i64>>,
    urgent: Vec<bool>,
    /// The unique keys as they were given.
    unique: Vec<&'a str>,
    /// `None`: no job has a unique key.
    keys: Option<Vec<Option<Uuid128>>>,
    digests: Vec<Option<Uuid128>>,
    windows: Vec<Option<i64>>,
}

impl<'a> JobColumns<'a> {
    fn of(jobs: impl Iterator<Item = &'a NewJob> + Clone) -> Self {
        let any_unique = jobs.clone().any(|job| job.unique.is_some());
        let mut batch = JobColumns { keys: any_unique.then(Vec::new), ..JobColumns::default() };
        for job in jobs {
            batch.push(job);
        }
        batch
    }

    fn push(&mut self, job: &'a NewJob) {
        let unique = job.unique.as_ref();
        let extra = JobExtra {
            labels: job.labels.clone(),
            trace: job.traceparent.clone(),
            unique: unique.map(|unique| unique.key.clone()),
            yield_within_ms: job.preempt_within_ms,
            undo_of: None,
        };
        self.unique.extend(unique.map(|unique| unique.key.as_str()));
        self.ids.push(job.id.into());
        self.queues.push(job.queue.as_str());
        self.priorities.push(job.options.priority);
        self.kinds.push(job.kind.as_str());
        self.payloads.push(&job.payload);
        self.terms.push(kept_terms(&job.options).as_ref().map(json));
        self.extras.push(extra.kept().as_ref().map(json));
        self.at_ms.push(match job.when {
            When::At { wall_ms } => Some(to_sql(wall_ms)),
            _ => None,
        });
        self.after_ms.push(match job.when {
            When::After { delay_ms } => Some(to_sql(delay_ms)),
            _ => None,
        });
        self.urgent.push(job.preempt_within_ms.is_some());
        if let Some(keys) = &mut self.keys {
            keys.push(unique.map(|unique| Uuid128(unique_digest("job", &unique.key))));
            self.digests.push(unique.map(|_| Uuid128(digest(&job.payload))));
            self.windows.push(unique.map(|unique| to_sql(unique.window_ms)));
        }
    }

    fn parameters<'b>(&'b self, namespace: &'b &'b str) -> [&'b dyn Parameter; 14] {
        [
            namespace,
            &self.ids,
            &self.queues,
            &self.priorities,
            &self.kinds,
            &self.payloads,
            &self.terms,
            &self.extras,
            &self.at_ms,
            &self.after_ms,
            &self.urgent,
            &self.keys,
            &self.digests,
            &self.windows,
        ]
    }
}

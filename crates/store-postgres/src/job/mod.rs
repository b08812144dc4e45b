//! Jobs and their ledger in PostgreSQL.
//!
//! What happens to every job (enqueue, claim, renew, complete) is one statement each. Whatever such a statement does not
//! take, it leaves untouched; then one transaction locks the jobs it is about, the rules of `fencehold-core` decide, and
//! what they decided is kept (`decide`). The state of a job is the table that has its row; `schema/job_tables.sql`
//! says which, and in which order rows are locked.
//!
//! Deliberately absent: rules. They are the core's, or stand in the statements and are held against the core by tests.

mod admin;
mod attempt;
mod claim;
mod claim_cache;
mod claim_statement;
mod columns;
mod decide;
mod enqueue;
mod load;
mod notify;
mod read;
mod save;
mod sweep;
mod undelivered;
mod wait_queue;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fencehold_contract::job::{ClaimJobsRequest, ClaimedJobs};
use fencehold_contract::operation::{JobRequest, JobResponse, unexpected_response};
use fencehold_contract::{CallContext, CompletedJobs, KeepFinished, PostgresUrl, StoreError};
use fencehold_net::PendingCall;

use super::value::Uuid128;
use super::{Call, PostgresInner, PostgresStore};

/// What a handle has of its own about jobs. Everything else is in the database.
#[derive(Debug, Default)]
pub(super) struct PostgresJobs {
    completed: CompletedJobs,
    keep_finished: KeepFinished,
    /// When namespaces with many queues were last looked through, by this machine's clock.
    queues_looked_at_ms: Cell<u64>,
    memory: RefCell<claim_cache::ClaimCache>,
    line: wait_queue::WaitQueue,
    notification: notify::Notification,
    used: Cell<bool>,
}

impl PostgresJobs {
    pub(super) fn new(url: &PostgresUrl) -> Self {
        PostgresJobs { completed: url.completed, keep_finished: url.keep_finished, ..PostgresJobs::default() }
    }

    /// Whether this handle uses jobs: then it takes its turns in their background work.
    pub(super) fn are_used(&self) -> bool {
        self.used.get()
    }

    /// The places in line that this handle keeps up.
    pub(super) fn sendings(&self) -> Vec<Uuid128> {
        self.line.sendings()
    }

    /// These should look for jobs.
    pub(super) fn wake(&self, sendings: &[Uuid128]) {
        for sending in sendings {
            self.line.wake(*sending);
        }
    }
}

impl PostgresInner {
    /// From the first question about jobs on, this handle takes its part in sweeping.
    fn start_jobs(self: &Rc<Self>) {
        if !self.jobs.used.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).sweep_jobs());
            tokio::task::spawn_local(Rc::clone(self).recount_jobs());
            self.upkeep.ask();
        }
    }
}

impl PostgresStore {
    /// Has the thread carry out a call about jobs.
    pub(super) async fn route_job(
        &self,
        call: &CallContext,
        ask: JobRequest,
    ) -> Result<JobResponse, StoreError> {
        if let JobRequest::Claim(request) = ask {
            return self.claim_jobs(call, request).await.map(JobResponse::Claimed);
        }
        self.ask(call, async move |core, call| {
            core.start_jobs();
            call.carry_out(ask).await
        })
        .await
    }

    async fn claim_jobs(
        &self,
        call: &CallContext,
        request: ClaimJobsRequest,
    ) -> Result<ClaimedJobs, StoreError> {
        let (hash, asked, undone) = (request.hold_id.hash(), call.clone(), call.clone());
        let claim = async move |core: &Rc<PostgresInner>, caller: &PendingCall| {
            core.start_upkeep();
            core.start_jobs();
            core.hear_of_holds();
            core.serve_claim(&asked, &request, caller).await
        };
        let undo = async move |core: &Rc<PostgresInner>, answer: Result<ClaimedJobs, StoreError>| match answer
        {
            Ok(claimed) => core.undo_claim(&undone, hash, Some(claimed)).await,
            Err(StoreError::OutcomeUnknown { .. }) => core.undo_claim(&undone, hash, None).await,
            Err(_) => {}
        };
        self.actor.call_or_undo(claim, undo).await?
    }
}

impl Call<'_> {
    async fn carry_out(&mut self, ask: JobRequest) -> Result<JobResponse, StoreError> {
        Ok(match ask {
            JobRequest::Enqueue(jobs) => JobResponse::Enqueued(self.enqueue(jobs).await?),
            JobRequest::Renew(attempts) => JobResponse::Renewed(self.renew_claims(attempts).await?),
            JobRequest::Report(reports) => JobResponse::Reported(self.report(reports).await?),
            JobRequest::WriteEffects(entries) => self.ledger(entries).await?,
            JobRequest::Get(id) => JobResponse::Job(self.job_and_moment(id).await?.0),
            JobRequest::WaitFor(request) => JobResponse::Job(self.wait_for(request).await?),
            JobRequest::List(request) => JobResponse::Jobs(self.list_jobs(&request).await?),
            JobRequest::Change(request) => JobResponse::Changed(self.act(request).await?),
            JobRequest::Queues => JobResponse::Queues(self.list_queues().await?),
            JobRequest::SetQueueMode(order) => JobResponse::Queue(self.set_queue(order).await?),
            JobRequest::DeleteQueue { queue, by } => {
                JobResponse::Deleted(self.remove_queue(&queue, &by).await?)
            }
            JobRequest::Schedules => JobResponse::Schedules(self.schedules().await?),
            JobRequest::SetSchedule(spec) => self.set_schedule(*spec).await?,
            JobRequest::DeleteSchedule { name, .. } => {
                JobResponse::Deleted(self.remove_schedule(&name).await?)
            }
            JobRequest::BeginOperation(request) => {
                self.hear_of_holds();
                self.begin(request).await?
            }
            JobRequest::Effects(request) => JobResponse::Effects(self.findings(request).await?),
            JobRequest::ResolveEffect(request) => self.resolve(request).await?,
            JobRequest::Claim(_) => return Err(unexpected_response()),
        })
    }
}

//! Jobs and their ledger in PostgreSQL.
//!
//! What happens to every job (enqueue, claim, renew, complete) is one statement each. Whatever such a statement does not
//! take, it leaves untouched; then one transaction locks the jobs it is about, the rules of `fencehold-core` decide, and
//! what they decided is kept (`decide`). How a job stands is told by the table that has its row; `migrations/*job*.sql`
//! says which, and in which order rows are locked.
//!
//! Deliberately absent: rules. They are the core's, or stand in the statements and are held against the core by tests.

mod attempt;
mod claim;
mod decide;
mod desk;
mod enqueue;
mod form;
mod keep;
mod line;
mod loaded;
mod look;
mod remembered;
mod sweep;
mod take;
mod tell;
mod undelivered;
mod value;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use async_trait::async_trait;
use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation,
    ChangeJobBatchResponse, ChangeJobsRequest, ClaimJobsRequest, ClaimedJobs, EffectPage, EnqueuedJob,
    JobDetail, JobPage, JobStore, LedgerResponse, ListEffectsRequest, ListJobsRequest, NewJob, QueueView,
    RenewAttemptBatchResponse, ResolveEffectRequest, ScheduleSpec, ScheduleView, SetQueueModeRequest,
    WaitRequest,
};
use fencehold_contract::operation::{JobAsk, misfit};
use fencehold_contract::{CallContext, CompletedJobs, KeepFinished, PostgresUrl, StoreError};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, QueueName, Refusal, ReportedAttempt, ScheduleName};
use fencehold_net::Caller;

use super::{Core, PostgresStore, StatementBudget};

/// What a handle has of its own about jobs. Everything else is in the database.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    completed: CompletedJobs,
    keep_finished: KeepFinished,
    /// When namespaces with many queues were last looked through, by this machine's clock.
    queues_looked_at_ms: Cell<u64>,
    memory: RefCell<remembered::Memory>,
    line: line::Line,
    telling: tell::Telling,
    started: Cell<bool>,
}

impl Jobs {
    pub(super) fn new(url: &PostgresUrl) -> Self {
        Jobs { completed: url.completed, keep_finished: url.keep_finished, ..Jobs::default() }
    }
}

impl Core {
    /// From the first question about jobs on, this handle takes its part in sweeping.
    fn start_jobs(self: &Rc<Self>) {
        if !self.jobs.started.replace(true) {
            tokio::task::spawn_local(line::keep_up(Rc::downgrade(self)));
            tokio::task::spawn_local(sweep::sweep(Rc::downgrade(self)));
        }
    }
}

impl PostgresStore {
    /// Has the thread do something about jobs.
    async fn ask_jobs<T: Send + 'static>(
        &self,
        call: &CallContext,
        work: impl AsyncFnOnce(&Rc<Core>, &mut StatementBudget, &CallContext) -> Result<T, StoreError>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let about = call.clone();
        self.ask(call, async move |core, budget| {
            core.start_jobs();
            work(core, budget, &about).await
        })
        .await
    }
}

#[async_trait]
impl JobStore for PostgresStore {
    async fn enqueue(
        &self,
        call: &CallContext,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<EnqueuedJob, Refusal>>, StoreError> {
        let JobAsk::Enqueue(jobs) = checked(JobAsk::Enqueue(jobs))? else { return Err(misfit()) };
        self.ask_jobs(call, async move |core, budget, call| core.enqueue(budget, call, jobs).await)
            .await
    }

    async fn claim(&self, call: &CallContext, request: ClaimJobsRequest) -> Result<ClaimedJobs, StoreError> {
        JobAsk::Claim(request.clone()).check()?;
        let (hash, asked, undone) = (request.hold_id.hash(), call.clone(), call.clone());
        let claim = async move |core: &Rc<Core>, caller: &Caller| {
            core.start_upkeep();
            core.start_jobs();
            core.hear_of_holds();
            core.serve_claim(&asked, &request, caller).await
        };
        let undo = async move |core: &Rc<Core>, answer: Result<ClaimedJobs, StoreError>| match answer {
            Ok(claimed) => core.undo_claim(&undone, hash, claimed).await,
            Err(StoreError::OutcomeUnknown { .. }) => core.undo_unknown_claim(&undone, hash).await,
            Err(_) => {}
        };
        self.actor.call_or_undo(claim, undo).await?
    }

    async fn renew_attempts(
        &self,
        call: &CallContext,
        attempts: Vec<AttemptRef>,
    ) -> Result<RenewAttemptBatchResponse, StoreError> {
        let JobAsk::Renew(attempts) = checked(JobAsk::Renew(attempts))? else { return Err(misfit()) };
        self.ask_jobs(call, async move |core, budget, call| core.renew_claims(budget, call, attempts).await)
            .await
    }

    async fn report(
        &self,
        call: &CallContext,
        reports: Vec<AttemptReport>,
    ) -> Result<Vec<Result<ReportedAttempt, Refusal>>, StoreError> {
        let JobAsk::Report(reports) = checked(JobAsk::Report(reports))? else { return Err(misfit()) };
        self.ask_jobs(call, async move |core, budget, call| core.report(budget, call, reports).await)
            .await
    }

    async fn write_effects(
        &self,
        call: &CallContext,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<Vec<Result<LedgerResponse, Refusal>>, StoreError> {
        let JobAsk::WriteEffects(entries) = checked(JobAsk::WriteEffects(entries))? else {
            return Err(misfit());
        };
        self.ask_jobs(call, async move |core, budget, call| core.ledger(budget, call, entries).await)
            .await
    }

    async fn get_job(&self, call: &CallContext, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        self.ask_jobs(call, async move |core, budget, call| core.job(budget, call, id).await)
            .await
    }

    async fn wait_for_job(
        &self,
        call: &CallContext,
        request: WaitRequest,
    ) -> Result<Option<JobDetail>, StoreError> {
        JobAsk::WaitFor(request).check()?;
        self.ask_jobs(call, async move |core, _, call| core.wait_for(call, request).await)
            .await
    }

    async fn list_jobs(&self, call: &CallContext, request: ListJobsRequest) -> Result<JobPage, StoreError> {
        JobAsk::List(request.clone()).check()?;
        self.ask_jobs(call, async move |core, budget, call| core.list_jobs(budget, call, &request).await)
            .await
    }

    async fn change_jobs(
        &self,
        call: &CallContext,
        request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError> {
        JobAsk::Change(request.clone()).check()?;
        self.ask_jobs(call, async move |core, budget, call| core.act(budget, call, request).await)
            .await
    }

    async fn list_queues(&self, call: &CallContext) -> Result<Vec<QueueView>, StoreError> {
        self.ask_jobs(call, async move |core, budget, call| core.queue_views(budget, call, None).await)
            .await
    }

    async fn set_queue_mode(
        &self,
        call: &CallContext,
        order: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError> {
        JobAsk::SetQueueMode(order.clone()).check()?;
        self.ask_jobs(call, async move |core, budget, call| core.set_queue(budget, call, order).await)
            .await
    }

    async fn list_schedules(&self, call: &CallContext) -> Result<Vec<ScheduleView>, StoreError> {
        self.ask_jobs(call, async move |core, budget, call| core.schedules(budget, call).await)
            .await
    }

    async fn set_schedule(&self, call: &CallContext, spec: ScheduleSpec) -> Result<ScheduleView, StoreError> {
        JobAsk::SetSchedule(Box::new(spec.clone())).check()?;
        self.ask_jobs(call, async move |core, budget, call| core.set_schedule(budget, call, spec).await)
            .await
    }

    async fn delete_queue(
        &self,
        call: &CallContext,
        queue: QueueName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        JobAsk::DeleteQueue { queue: queue.clone(), by: by.clone() }.check()?;
        self.ask_jobs(call, async move |core, budget, call| {
            core.remove_queue(budget, call, &queue, &by).await
        })
        .await
    }

    async fn delete_schedule(
        &self,
        call: &CallContext,
        name: ScheduleName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        self.ask_jobs(call, async move |core, budget, call| {
            core.remove_schedule(budget, call, &name, &by).await
        })
        .await
    }

    async fn begin_operation(
        &self,
        call: &CallContext,
        request: BeginOperationRequest,
    ) -> Result<Result<BegunOperation, Refusal>, StoreError> {
        JobAsk::BeginOperation(request.clone()).check()?;
        self.ask_jobs(call, async move |core, budget, call| {
            core.hear_of_holds();
            core.begin(budget, call, request).await
        })
        .await
    }

    async fn list_effects(
        &self,
        call: &CallContext,
        request: ListEffectsRequest,
    ) -> Result<EffectPage, StoreError> {
        JobAsk::Effects(request.clone()).check()?;
        self.ask_jobs(call, async move |core, budget, call| core.findings(budget, call, request).await)
            .await
    }

    async fn resolve_effect(
        &self,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<Result<(), Refusal>, StoreError> {
        JobAsk::ResolveEffect(request.clone()).check()?;
        self.ask_jobs(call, async move |core, budget, call| core.resolve(budget, call, request).await)
            .await
    }
}

/// A question that can be asked at all. Batches are checked without being copied.
fn checked(ask: JobAsk) -> Result<JobAsk, StoreError> {
    ask.check()?;
    Ok(ask)
}

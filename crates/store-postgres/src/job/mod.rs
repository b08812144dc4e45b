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
mod handed;
mod keep;
mod line;
mod loaded;
mod look;
mod remembered;
mod sweep;
mod take;
mod tell;
mod value;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use async_trait::async_trait;
use fencehold_contract::job::{
    ActRequest, Acted, AttemptRef, Began, BeginRequest, ClaimRequest, Claimed, Enqueued, FindingPage,
    FindingsRequest, JobDetail, JobPage, JobStore, JobsRequest, LedgerAnswer, LedgerEntry, NewJob,
    QueueOrder, QueueView, RenewedJobs, Report, ResolveRequest, ScheduleSpec, ScheduleView, WaitRequest,
};
use fencehold_contract::operation::{JobAsk, misfit};
use fencehold_contract::{Call, CompletedJobs, KeepFinished, PostgresUrl, StoreError};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, Queue, Refusal, Reported, ScheduleName};
use tokio::sync::oneshot;

use super::{Core, Errand, PostgresStore, closed};

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
        call: &Call,
        work: impl AsyncFnOnce(&Rc<Core>, &mut Errand, &Call) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let about = call.clone();
        self.ask(call, async move |core, errand| {
            core.start_jobs();
            work(core, errand, &about).await
        })
        .await
    }
}

#[async_trait]
impl JobStore for PostgresStore {
    async fn enqueue(
        &self,
        call: &Call,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<Enqueued, Refusal>>, StoreError> {
        let JobAsk::Enqueue(jobs) = checked(JobAsk::Enqueue(jobs))? else { return Err(misfit()) };
        self.ask_jobs(call, async move |core, errand, call| core.enqueue(errand, call, jobs).await)
            .await
    }

    async fn claim(&self, call: &Call, request: ClaimRequest) -> Result<Claimed, StoreError> {
        JobAsk::Claim(request.clone()).check()?;
        let (reply, told) = oneshot::channel();
        let (call, orders) = (call.clone(), self.orders.clone());
        let _ = self.orders.send(Box::new(move |core| {
            Box::pin(async move {
                core.start_jobs();
                core.hear_of_holds();
                core.serve_claim(&call, &request, &orders, reply).await;
            })
        }));
        told.await.unwrap_or_else(|_| Err(closed())).map(handed::Handed::take)
    }

    async fn renew_claims(&self, call: &Call, attempts: Vec<AttemptRef>) -> Result<RenewedJobs, StoreError> {
        let JobAsk::Renew(attempts) = checked(JobAsk::Renew(attempts))? else { return Err(misfit()) };
        self.ask_jobs(call, async move |core, errand, call| core.renew_claims(errand, call, attempts).await)
            .await
    }

    async fn report(
        &self,
        call: &Call,
        reports: Vec<Report>,
    ) -> Result<Vec<Result<Reported, Refusal>>, StoreError> {
        let JobAsk::Report(reports) = checked(JobAsk::Report(reports))? else { return Err(misfit()) };
        self.ask_jobs(call, async move |core, errand, call| core.report(errand, call, reports).await)
            .await
    }

    async fn ledger(
        &self,
        call: &Call,
        entries: Vec<LedgerEntry>,
    ) -> Result<Vec<Result<LedgerAnswer, Refusal>>, StoreError> {
        let JobAsk::Ledger(entries) = checked(JobAsk::Ledger(entries))? else { return Err(misfit()) };
        self.ask_jobs(call, async move |core, errand, call| core.ledger(errand, call, entries).await)
            .await
    }

    async fn job(&self, call: &Call, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        self.ask_jobs(call, async move |core, errand, call| core.job(errand, call, id).await)
            .await
    }

    async fn wait_for(&self, call: &Call, request: WaitRequest) -> Result<Option<JobDetail>, StoreError> {
        JobAsk::WaitFor(request).check()?;
        self.ask_jobs(call, async move |core, _, call| core.wait_for(call, request).await)
            .await
    }

    async fn jobs(&self, call: &Call, request: JobsRequest) -> Result<JobPage, StoreError> {
        JobAsk::List(request.clone()).check()?;
        self.ask_jobs(call, async move |core, errand, call| core.list_jobs(errand, call, &request).await)
            .await
    }

    async fn act(&self, call: &Call, request: ActRequest) -> Result<Acted, StoreError> {
        JobAsk::Act(request.clone()).check()?;
        self.ask_jobs(call, async move |core, errand, call| core.act(errand, call, request).await)
            .await
    }

    async fn queues(&self, call: &Call) -> Result<Vec<QueueView>, StoreError> {
        self.ask_jobs(call, async move |core, errand, call| core.queue_views(errand, call, None).await)
            .await
    }

    async fn set_queue(&self, call: &Call, order: QueueOrder) -> Result<QueueView, StoreError> {
        JobAsk::SetQueue(order.clone()).check()?;
        self.ask_jobs(call, async move |core, errand, call| core.set_queue(errand, call, order).await)
            .await
    }

    async fn schedules(&self, call: &Call) -> Result<Vec<ScheduleView>, StoreError> {
        self.ask_jobs(call, async move |core, errand, call| core.schedules(errand, call).await)
            .await
    }

    async fn set_schedule(&self, call: &Call, spec: ScheduleSpec) -> Result<ScheduleView, StoreError> {
        JobAsk::SetSchedule(Box::new(spec.clone())).check()?;
        self.ask_jobs(call, async move |core, errand, call| core.set_schedule(errand, call, spec).await)
            .await
    }

    async fn remove_queue(&self, call: &Call, queue: Queue, by: Owner) -> Result<bool, StoreError> {
        JobAsk::RemoveQueue { queue: queue.clone(), by: by.clone() }.check()?;
        self.ask_jobs(call, async move |core, errand, call| {
            core.remove_queue(errand, call, &queue, &by).await
        })
        .await
    }

    async fn remove_schedule(&self, call: &Call, name: ScheduleName, by: Owner) -> Result<bool, StoreError> {
        self.ask_jobs(call, async move |core, errand, call| {
            core.remove_schedule(errand, call, &name, &by).await
        })
        .await
    }

    async fn begin(&self, call: &Call, request: BeginRequest) -> Result<Began, StoreError> {
        JobAsk::Begin(request.clone()).check()?;
        self.ask_jobs(call, async move |core, errand, call| {
            core.hear_of_holds();
            core.begin(errand, call, request).await
        })
        .await
    }

    async fn findings(&self, call: &Call, request: FindingsRequest) -> Result<FindingPage, StoreError> {
        JobAsk::Findings(request.clone()).check()?;
        self.ask_jobs(call, async move |core, errand, call| core.findings(errand, call, request).await)
            .await
    }

    async fn resolve(&self, call: &Call, request: ResolveRequest) -> Result<Result<(), Refusal>, StoreError> {
        JobAsk::Resolve(request.clone()).check()?;
        self.ask_jobs(call, async move |core, errand, call| core.resolve(errand, call, request).await)
            .await
    }
}

/// A question that can be asked at all. Batches are checked without being copied.
fn checked(ask: JobAsk) -> Result<JobAsk, StoreError> {
    ask.check()?;
    Ok(ask)
}

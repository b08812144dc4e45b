//! Jobs and their ledger in PostgreSQL.
//!
//! What happens to every job (enqueue, claim, renew, complete) is one statement each. Whatever such a statement does not
//! take, it leaves untouched; then one transaction locks the jobs it is about, the rules of `fencehold-core` decide, and
//! what they decided is kept (`decide`). The state of a job is the table that has its row; `schema/job_tables.sql`
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

use fencehold_contract::job::{ClaimJobsRequest, ClaimedJobs};
use fencehold_contract::operation::{JobAnswer, JobAsk, misfit};
use fencehold_contract::{CallContext, CompletedJobs, KeepFinished, PostgresUrl, StoreError};
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
    /// Has the thread carry out a call about jobs.
    pub(super) async fn route_job(&self, call: &CallContext, ask: JobAsk) -> Result<JobAnswer, StoreError> {
        if let JobAsk::Claim(request) = ask {
            return self.claim_jobs(call, request).await.map(JobAnswer::Claimed);
        }
        let about = call.clone();
        self.ask(call, async move |core, budget| {
            core.start_jobs();
            core.carry_out(budget, &about, ask).await
        })
        .await
    }

    async fn claim_jobs(
        &self,
        call: &CallContext,
        request: ClaimJobsRequest,
    ) -> Result<ClaimedJobs, StoreError> {
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
}

impl Core {
    async fn carry_out(
        self: &Rc<Self>,
        budget: &mut StatementBudget,
        call: &CallContext,
        ask: JobAsk,
    ) -> Result<JobAnswer, StoreError> {
        Ok(match ask {
            JobAsk::Enqueue(jobs) => JobAnswer::Enqueued(self.enqueue(budget, call, jobs).await?),
            JobAsk::Renew(attempts) => JobAnswer::Renewed(self.renew_claims(budget, call, attempts).await?),
            JobAsk::Report(reports) => JobAnswer::Reported(self.report(budget, call, reports).await?),
            JobAsk::WriteEffects(entries) => {
                JobAnswer::WrittenEffects(self.ledger(budget, call, entries).await?)
            }
            JobAsk::Get(id) => JobAnswer::Job(self.job(budget, call, id).await?.map(Box::new)),
            JobAsk::WaitFor(request) => JobAnswer::Job(self.wait_for(call, request).await?.map(Box::new)),
            JobAsk::List(request) => JobAnswer::Jobs(self.list_jobs(budget, call, &request).await?),
            JobAsk::Change(request) => JobAnswer::Changed(self.act(budget, call, request).await?),
            JobAsk::Queues => JobAnswer::Queues(self.queue_views(budget, call, None).await?),
            JobAsk::SetQueueMode(order) => JobAnswer::Queue(self.set_queue(budget, call, order).await?),
            JobAsk::DeleteQueue { queue, by } => {
                JobAnswer::Deleted(self.remove_queue(budget, call, &queue, &by).await?)
            }
            JobAsk::Schedules => JobAnswer::Schedules(self.schedules(budget, call).await?),
            JobAsk::SetSchedule(spec) => {
                JobAnswer::Schedule(Box::new(self.set_schedule(budget, call, *spec).await?))
            }
            JobAsk::DeleteSchedule { name, by } => {
                JobAnswer::Deleted(self.remove_schedule(budget, call, &name, &by).await?)
            }
            JobAsk::BeginOperation(request) => {
                self.hear_of_holds();
                JobAnswer::BegunOperation(self.begin(budget, call, request).await?)
            }
            JobAsk::Effects(request) => JobAnswer::Effects(self.findings(budget, call, request).await?),
            JobAsk::ResolveEffect(request) => {
                JobAnswer::ResolvedEffect(self.resolve(budget, call, request).await?)
            }
            JobAsk::Claim(_) => return Err(misfit()),
        })
    }
}

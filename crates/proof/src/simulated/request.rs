//! What can be asked of a machine, and what it answers.

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ChangeJobBatchResponse, ChangeJobsRequest,
    ClaimJobsRequest, ClaimedJobs, EnqueuedJob, JobDetail, LedgerResponse, NewJob, QueueView,
    RenewAttemptBatchResponse, ScheduleSpec, ScheduleView, SetQueueModeRequest,
};
use fencehold_contract::operation::{CallHold, JobRequest, JobResponse, StoreRequest, StoreResponse};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseView, ReleasedLease,
    RenewLeaseBatchResponse, RevokeLeasesRequest, RevokedLease,
};
use fencehold_core::job::{JobId, JobRefusal, QueueName, ReportedAttempt, ScheduleName};
use fencehold_core::{Key, Owner, Refusal, Token};

/// What can be asked of a machine.
#[derive(Clone, Debug)]
pub(crate) enum MachineRequest {
    /// See [`LeaseStore::acquire`](fencehold_contract::LeaseStore::acquire).
    Acquire(AcquireLeaseRequest),
    /// See [`LeaseStore::renew`](fencehold_contract::LeaseStore::renew).
    Renew(Vec<HoldRef>),
    /// See [`LeaseStore::release`](fencehold_contract::LeaseStore::release).
    Release(Vec<HoldRef>),
    /// See [`LeaseStore::revoke`](fencehold_contract::LeaseStore::revoke).
    Revoke(RevokeLeasesRequest),
    /// See [`LeaseStore::get`](fencehold_contract::LeaseStore::get).
    Get(Key),
    /// See [`JobStore::enqueue`](fencehold_contract::JobStore::enqueue).
    Enqueue(Vec<NewJob>),
    /// See [`JobStore::claim`](fencehold_contract::JobStore::claim).
    Claim(ClaimJobsRequest),
    /// See [`JobStore::renew_attempts`](fencehold_contract::JobStore::renew_attempts).
    RenewClaims(Vec<AttemptRef>),
    /// See [`JobStore::report`](fencehold_contract::JobStore::report).
    Report(Vec<AttemptReport>),
    /// See [`JobStore::write_effects`](fencehold_contract::JobStore::write_effects).
    Ledger(Vec<AttemptLedgerEntry>),
    /// See [`JobStore::get_job`](fencehold_contract::JobStore::get_job).
    Job(JobId),
    /// See [`JobStore::change_jobs`](fencehold_contract::JobStore::change_jobs).
    Act(ChangeJobsRequest),
    /// See [`JobStore::set_queue_mode`](fencehold_contract::JobStore::set_queue_mode).
    SetQueue(SetQueueModeRequest),
    /// See [`JobStore::delete_queue`](fencehold_contract::JobStore::delete_queue).
    RemoveQueue(QueueName, Owner),
    /// See [`JobStore::set_schedule`](fencehold_contract::JobStore::set_schedule).
    SetSchedule(Box<ScheduleSpec>),
    /// See [`JobStore::delete_schedule`](fencehold_contract::JobStore::delete_schedule).
    RemoveSchedule(ScheduleName, Owner),
    /// See [`JobStore::list_schedules`](fencehold_contract::JobStore::list_schedules).
    Schedules,
}

impl MachineRequest {
    pub(super) fn ask(self) -> StoreRequest {
        match self {
            MachineRequest::Acquire(request) => StoreRequest::Acquire(request),
            MachineRequest::Renew(holds) => StoreRequest::Renew(holds),
            MachineRequest::Release(holds) => StoreRequest::Release(holds),
            MachineRequest::Revoke(request) => StoreRequest::Revoke { request, from: 0 },
            MachineRequest::Get(key) => StoreRequest::Get(key),
            MachineRequest::Enqueue(jobs) => StoreRequest::Job(JobRequest::Enqueue(jobs)),
            MachineRequest::Claim(request) => StoreRequest::Job(JobRequest::Claim(request)),
            MachineRequest::RenewClaims(attempts) => StoreRequest::Job(JobRequest::Renew(attempts)),
            MachineRequest::Report(reports) => StoreRequest::Job(JobRequest::Report(reports)),
            MachineRequest::Ledger(entries) => StoreRequest::Job(JobRequest::WriteEffects(entries)),
            MachineRequest::Job(id) => StoreRequest::Job(JobRequest::Get(id)),
            MachineRequest::Act(request) => StoreRequest::Job(JobRequest::Change(request)),
            MachineRequest::SetQueue(order) => StoreRequest::Job(JobRequest::SetQueueMode(order)),
            MachineRequest::RemoveQueue(queue, by) => {
                StoreRequest::Job(JobRequest::DeleteQueue { queue, by })
            }
            MachineRequest::SetSchedule(spec) => StoreRequest::Job(JobRequest::SetSchedule(spec)),
            MachineRequest::RemoveSchedule(name, by) => {
                StoreRequest::Job(JobRequest::DeleteSchedule { name, by })
            }
            MachineRequest::Schedules => StoreRequest::Job(JobRequest::Schedules),
        }
    }
}

impl MachineRequest {
    /// What a store asks of its engine when the caller went before it read this answer.
    pub(crate) fn after_unread(&self, reply: &MachineResponse) -> Option<MachineRequest> {
        let answer = match reply.clone() {
            MachineResponse::Acquired(acquired) => StoreResponse::Acquired(acquired),
            MachineResponse::Claimed(claimed) => StoreResponse::Job(JobResponse::Claimed(claimed)),
            _ => return None,
        };
        let call = CallContext::new(fencehold_core::Namespace::default());
        let claim = CallHold::of(&call, &self.clone().ask())?.after_sending(false);
        match claim.unclaimed(Ok(answer))?.ask {
            StoreRequest::Release(holds) => Some(MachineRequest::Release(holds)),
            StoreRequest::Job(JobRequest::Report(reports)) => Some(MachineRequest::Report(reports)),
            _ => None,
        }
    }
}

/// What it answers.
#[derive(Clone, Debug)]
pub(crate) enum MachineResponse {
    /// To an acquire.
    Acquired(AcquiredLease),
    /// To renewals.
    Renewed(RenewLeaseBatchResponse),
    /// To releases.
    Released(Vec<Result<Token, Refusal>>),
    /// To a revocation.
    Revoked(Vec<RevokedLease>),
    /// To a look.
    Lease(Option<LeaseView>),
    /// To jobs that are to be.
    Enqueued(Vec<Result<EnqueuedJob, JobRefusal>>),
    /// To a claim.
    Claimed(ClaimedJobs),
    /// To a claim whose jobs could not be read: their ids and tokens, and how long each lasts.
    ClaimedUnread(Vec<(JobId, Token, u64)>),
    /// To renewals of claims.
    RenewedClaims(RenewAttemptBatchResponse),
    /// To what attempts say.
    Reported(Vec<Result<ReportedAttempt, JobRefusal>>),
    /// To entries in ledgers.
    Ledger(Vec<Result<LedgerResponse, JobRefusal>>),
    /// To a look at a job.
    Job(Option<Box<JobDetail>>),
    /// To an act.
    Acted(ChangeJobBatchResponse),
    /// To an order for a queue.
    Queue(QueueView),
    /// To the removal of a queue: whether there was one.
    Removed(bool),
    /// To a look at the schedules.
    Schedules(Vec<ScheduleView>),
    /// To anything else.
    Other,
}

impl From<StoreResponse> for MachineResponse {
    fn from(answer: StoreResponse) -> MachineResponse {
        match answer {
            StoreResponse::Acquired(acquired) => MachineResponse::Acquired(acquired),
            StoreResponse::Renewed(renewed) => MachineResponse::Renewed(renewed),
            StoreResponse::Released(released) => {
                let token =
                    |released: Result<ReleasedLease, Refusal>| released.map(|released| released.token);
                MachineResponse::Released(released.into_iter().map(token).collect())
            }
            StoreResponse::Revoked { ended, .. } => MachineResponse::Revoked(ended),
            StoreResponse::Lease(lease) => MachineResponse::Lease(lease),
            StoreResponse::Job(answer) => answer.into(),
            _ => MachineResponse::Other,
        }
    }
}

impl From<JobResponse> for MachineResponse {
    fn from(answer: JobResponse) -> MachineResponse {
        match answer {
            JobResponse::Enqueued(answers) => MachineResponse::Enqueued(answers),
            JobResponse::Claimed(claimed) => MachineResponse::Claimed(claimed),
            JobResponse::Renewed(renewed) => MachineResponse::RenewedClaims(renewed),
            JobResponse::Reported(answers) => MachineResponse::Reported(answers),
            JobResponse::WrittenEffects(answers) => MachineResponse::Ledger(answers),
            JobResponse::Job(detail) => MachineResponse::Job(detail),
            JobResponse::Changed(acted) => MachineResponse::Acted(acted),
            JobResponse::Queue(view) => MachineResponse::Queue(view),
            JobResponse::Deleted(removed) => MachineResponse::Removed(removed),
            JobResponse::Schedules(views) => MachineResponse::Schedules(views),
            _ => MachineResponse::Other,
        }
    }
}

//! What can be asked of a machine, and what it answers.

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ChangeJobBatchResponse, ChangeJobsRequest,
    ClaimJobsRequest, ClaimedJobs, EnqueuedJob, JobDetail, LedgerResponse, NewJob, QueueView,
    RenewAttemptBatchResponse, ScheduleSpec, ScheduleView, SetQueueModeRequest,
};
use fencehold_contract::operation::{Answer, Ask, Claim, JobAnswer, JobAsk};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseView, ReleasedLease,
    RenewLeaseBatchResponse, RevokeLeasesRequest, RevokedLease,
};
use fencehold_core::job::{JobId, QueueName, Refusal as JobRefusal, ReportedAttempt, ScheduleName};
use fencehold_core::{Key, Owner, Refusal, Token};

/// What can be asked of a machine.
#[derive(Clone, Debug)]
pub(crate) enum Question {
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

impl Question {
    pub(super) fn ask(self) -> Ask {
        match self {
            Question::Acquire(request) => Ask::Acquire(request),
            Question::Renew(holds) => Ask::Renew(holds),
            Question::Release(holds) => Ask::Release(holds),
            Question::Revoke(request) => Ask::Revoke { request, from: 0 },
            Question::Get(key) => Ask::Get(key),
            Question::Enqueue(jobs) => Ask::Job(JobAsk::Enqueue(jobs)),
            Question::Claim(request) => Ask::Job(JobAsk::Claim(request)),
            Question::RenewClaims(attempts) => Ask::Job(JobAsk::Renew(attempts)),
            Question::Report(reports) => Ask::Job(JobAsk::Report(reports)),
            Question::Ledger(entries) => Ask::Job(JobAsk::WriteEffects(entries)),
            Question::Job(id) => Ask::Job(JobAsk::Get(id)),
            Question::Act(request) => Ask::Job(JobAsk::Change(request)),
            Question::SetQueue(order) => Ask::Job(JobAsk::SetQueueMode(order)),
            Question::RemoveQueue(queue, by) => Ask::Job(JobAsk::DeleteQueue { queue, by }),
            Question::SetSchedule(spec) => Ask::Job(JobAsk::SetSchedule(spec)),
            Question::RemoveSchedule(name, by) => Ask::Job(JobAsk::DeleteSchedule { name, by }),
            Question::Schedules => Ask::Job(JobAsk::Schedules),
        }
    }
}

impl Question {
    /// What a store asks of its engine when the caller went before it read this answer.
    pub(crate) fn after_unread(&self, reply: &Reply) -> Option<Question> {
        let answer = match reply.clone() {
            Reply::Acquired(acquired) => Answer::Acquired(acquired),
            Reply::Claimed(claimed) => Answer::Job(JobAnswer::Claimed(claimed)),
            _ => return None,
        };
        let call = CallContext::new(fencehold_core::Namespace::default());
        let claim = Claim::of(&call, &self.clone().ask())?.after_sending(false);
        match claim.unclaimed(Ok(answer))?.ask {
            Ask::Release(holds) => Some(Question::Release(holds)),
            Ask::Job(JobAsk::Report(reports)) => Some(Question::Report(reports)),
            _ => None,
        }
    }
}

/// What it answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
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

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        match answer {
            Answer::Acquired(acquired) => Reply::Acquired(acquired),
            Answer::Renewed(renewed) => Reply::Renewed(renewed),
            Answer::Released(released) => {
                let token =
                    |released: Result<ReleasedLease, Refusal>| released.map(|released| released.token);
                Reply::Released(released.into_iter().map(token).collect())
            }
            Answer::Revoked { ended, .. } => Reply::Revoked(ended),
            Answer::Lease(lease) => Reply::Lease(lease),
            Answer::Job(answer) => answer.into(),
            _ => Reply::Other,
        }
    }
}

impl From<JobAnswer> for Reply {
    fn from(answer: JobAnswer) -> Reply {
        match answer {
            JobAnswer::Enqueued(answers) => Reply::Enqueued(answers),
            JobAnswer::Claimed(claimed) => Reply::Claimed(claimed),
            JobAnswer::Renewed(renewed) => Reply::RenewedClaims(renewed),
            JobAnswer::Reported(answers) => Reply::Reported(answers),
            JobAnswer::WrittenEffects(answers) => Reply::Ledger(answers),
            JobAnswer::Job(detail) => Reply::Job(detail),
            JobAnswer::Changed(acted) => Reply::Acted(acted),
            JobAnswer::Queue(view) => Reply::Queue(view),
            JobAnswer::Deleted(removed) => Reply::Removed(removed),
            JobAnswer::Schedules(views) => Reply::Schedules(views),
            _ => Reply::Other,
        }
    }
}

//! Jobs as workers and those who give them work see them: enqueuing, claiming, reporting, looking.

mod attempt;
mod enqueue;
mod view;

pub use attempt::{
    AttemptRef, Attempts, ClaimRequest, Claimed, ClaimedJob, Effect, JobRenewal, LedgerAct, LedgerAnswer,
    LedgerAnswers, LedgerEntry, LedgerRequest, RenewedJobs, Report, ReportAnswer, ReportRequest, Reported,
    UndoOf, UndoWith, Weighted, Word,
};
pub use enqueue::{EnqueueAnswer, EnqueueRequest, Enqueued, NewJob, Terms, Unique, When};
pub use view::{AttemptView, JobDetail, JobPage, JobRequest, JobView, JobsRequest, RunnerView};

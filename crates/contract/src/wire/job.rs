//! Jobs, across the wire.

use fencehold_api as wire;
use fencehold_core::job::{JobRenewal, Reported, Terms};
use fencehold_core::ledger::{Effect, UndoWith};

use super::{Across, mirror, mirror_names};
use crate::job::{
    ActOn, ActRequest, Acted, ActedItem, Action, AttemptRef, AttemptView, Began, Begun, ClaimRequest,
    Claimed, ClaimedJob, Counts, Enqueued, Finding, FindingKind, FindingPage, FindingsRequest, JobDetail,
    JobFilter, JobPage, JobView, LedgerAct, LedgerAnswer, LedgerEntry, QueueMode, QueueOrder, QueueView,
    RenewedJobs, Report, ResolveRequest, RunnerView, ScheduleSpec, ScheduleView, UndoOf, Unique, Weighted,
    When, Word,
};

mirror! {
    wire::job::Terms = Terms { priority max_attempts max_crashes attempt_ms retry }
    wire::job::Unique = Unique { key window_ms }
    wire::job::Enqueued = Enqueued { id existed }
    wire::job::ClaimRequest = ClaimRequest { queues limit hold owner ttl_ms wait_ms waited_before_ms }
    wire::job::Claimed = Claimed { jobs waited_ms resumed }
    wire::job::ClaimedJob = ClaimedJob {
        id queue kind payload token attempt remaining_ms terms failures crashes labels trace checkpoint effects undo_of
    }
    wire::job::UndoOf = UndoOf { job effect }
    wire::job::Effect = Effect { name nth token state value undo undo_job; at = at_wall_ms }
    wire::job::UndoWith = UndoWith { kind queue payload }
    wire::job::AttemptRef = AttemptRef { job hold token }
    wire::job::RenewedJobs = RenewedJobs { answers waited_ms }
    wire::job::JobRenewal = JobRenewal { token remaining_ms cancel_requested notice yield_in_ms }
    wire::job::Reported = Reported { state again_in_ms late }
    wire::job::Report = Report { attempt word }
    wire::job::LedgerEntry = LedgerEntry { attempt act }
    wire::job::JobDetail = JobDetail { job payload result progress checkpoint trace attempts effects }
    wire::job::JobView = JobView {
        id queue kind state token terms attempts failures crashes due_in_ms runner labels unique undo undo_of;
        enqueued = enqueued_wall_ms since = since_wall_ms
    }
    wire::job::RunnerView = RunnerView { owner ttl_ms remaining_ms age_ms cancel_by notice; since = since_wall_ms }
    wire::job::AttemptView = AttemptView { token owner how error; since = since_wall_ms ended = ended_wall_ms }
    wire::job::JobPage = JobPage { jobs next }
    wire::desk::ActRequest = ActRequest { on action by dry_run }
    wire::desk::JobFilter = JobFilter { queue kind states labels owner payload_contains }
    wire::desk::Acted = Acted { items next }
    wire::desk::ActedItem = ActedItem { id outcome }
    wire::desk::QueueOrder = QueueOrder { queue mode by }
    wire::desk::QueueView = QueueView { queue mode counts claimers }
    wire::desk::Counts = Counts {
        queued scheduled running completed failed cancelled quarantined indeterminate
    }
    wire::desk::ScheduleSpec = ScheduleSpec { name cron zone queue kind payload terms labels by }
    wire::desk::ScheduleView = ScheduleView { spec; next = next_wall_ms last = last_wall_ms }
    wire::desk::Began = Began { what waited_ms resumed }
    wire::desk::FindingsRequest = FindingsRequest { cursor limit }
    wire::desk::FindingPage = FindingPage { findings next }
    wire::desk::Finding = Finding {
        what job queue kind state effect effect_state token undo_job; at = at_wall_ms
    }
    wire::desk::ResolveRequest = ResolveRequest { job effect happened by }
}

mirror_names! {
    wire::desk::QueueMode = QueueMode { Open Paused Draining }
    wire::desk::FindingKind = FindingKind { OpenIntent NotYetUndone UndoFailed Undone Superseded }
}

impl Across<wire::job::Weighted> for Weighted {
    fn across(self) -> wire::job::Weighted {
        let (queue, weight) = self;
        wire::job::Weighted { queue, weight }
    }
}

impl Across<Weighted> for wire::job::Weighted {
    fn across(self) -> Weighted {
        (self.queue, self.weight)
    }
}

/// Enums whose variants have the same names and fields on both sides.
macro_rules! mirror_enums {
    ($($wire:ident::$kind:ident {
        $($name:ident $({ $($field:ident)* })? $(($inner:ident))?,)*
    })*) => {
        $(impl Across<$kind> for wire::$wire::$kind {
            fn across(self) -> $kind {
                match self {
                    $(Self::$name $({ $($field),* })? $(($inner))? =>
                        $kind::$name $({ $($field: $field.across()),* })? $(($inner.across()))?,)*
                }
            }
        }

        impl Across<wire::$wire::$kind> for $kind {
            fn across(self) -> wire::$wire::$kind {
                match self {
                    $(Self::$name $({ $($field),* })? $(($inner))? =>
                        wire::$wire::$kind::$name $({ $($field: $field.across()),* })? $(($inner.across()))?,)*
                }
            }
        })*
    };
}

mirror_enums! {
    job::Word {
        Complete { result },
        Fail { error retry_in_ms for_good },
        Snooze { for_ms },
        HandBack,
        Checkpoint { bytes },
        Progress { note },
    }
    job::LedgerAct {
        Begin { effect policy },
        Record { effect value undo },
        Withdraw { effect },
    }
    desk::ActOn {
        Jobs(jobs),
        Matching { filter cursor limit },
    }
    desk::Action {
        Cancel { reason now },
        Retry,
        Delete { force },
    }
    desk::Begun {
        New(job),
        InProgress { job owner token expires_in_ms },
        Done { job result },
        Failed { job state error },
        Conflict { job },
        Indeterminate { job },
    }
}

impl Across<wire::job::LedgerAnswer> for LedgerAnswer {
    fn across(self) -> wire::job::LedgerAnswer {
        match self {
            LedgerAnswer::Go => wire::job::LedgerAnswer::Go,
            LedgerAnswer::Recorded(effect) => wire::job::LedgerAnswer::Recorded(Box::new(effect.across())),
            LedgerAnswer::InDoubt => wire::job::LedgerAnswer::InDoubt,
            LedgerAnswer::Withdrawn => wire::job::LedgerAnswer::Withdrawn,
        }
    }
}

impl Across<LedgerAnswer> for wire::job::LedgerAnswer {
    fn across(self) -> LedgerAnswer {
        match self {
            wire::job::LedgerAnswer::Go => LedgerAnswer::Go,
            wire::job::LedgerAnswer::Recorded(effect) => LedgerAnswer::Recorded((*effect).across()),
            wire::job::LedgerAnswer::InDoubt => LedgerAnswer::InDoubt,
            wire::job::LedgerAnswer::Withdrawn => LedgerAnswer::Withdrawn,
        }
    }
}

impl Across<wire::job::When> for When {
    fn across(self) -> wire::job::When {
        match self {
            When::Now => wire::job::When::Now,
            When::At { wall_ms } => wire::job::When::At(wall_ms.across()),
            When::After { delay_ms } => wire::job::When::AfterMs(delay_ms),
        }
    }
}

impl Across<When> for wire::job::When {
    fn across(self) -> When {
        match self {
            wire::job::When::Now => When::Now,
            wire::job::When::At(moment) => When::At { wall_ms: moment.across() },
            wire::job::When::AfterMs(delay_ms) => When::After { delay_ms },
        }
    }
}

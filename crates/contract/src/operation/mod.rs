//! Every call of the contract, and its answer, as plain data. The same types cross the socket
//! between processes.
//!
//! A call is one row of [`calls!`]: from it follow the variant that asks, the variant that answers, the method of the trait that
//! callers use, and the match that has a store carry it out.

mod calls;
mod check;
mod check_job;
mod claim;
mod job;
mod route;

pub(crate) use calls::{Packed, calls, plain};
pub use check_job::{check_job, check_json, check_word, is_too_deep, unfit};
pub use claim::{Claim, Unclaimed};
pub use route::{Route, jobs_of, keeps_finished_elsewhere, misfit, perform, unsupported};
pub(crate) use route::{checked, revoke_all};

pub use crate::job::{JobAnswer, JobAsk};
pub use crate::lease::{Answer, Ask};

impl Ask {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    pub fn only_reads(&self) -> bool {
        match self {
            Ask::Get(_) | Ask::List(_) | Ask::Events(_) | Ask::Status => true,
            Ask::Job(ask) => ask.only_reads(),
            _ => false,
        }
    }

    /// Whether it needs the jobs, or counts them, or tells what becomes of them. The others are about leases alone.
    pub fn needs_jobs(&self) -> bool {
        match self {
            Ask::Acquire(_)
            | Ask::Renew(_)
            | Ask::Release(_)
            | Ask::Revoke { .. }
            | Ask::Get(_)
            | Ask::List(_)
            | Ask::Reopen { .. } => false,
            Ask::Job(_)
            | Ask::Events(_)
            | Ask::Advance { .. }
            | Ask::Status
            | Ask::Quota(_)
            | Ask::KeepFinished { .. } => true,
        }
    }

    /// Whether its answer may have to wait for the disk. A renewal's does not: a killed process
    /// loses none, and after a power cut every hold has a full ttl anyway.
    pub fn may_sync(&self) -> bool {
        let looks = matches!(self, Ask::Get(_) | Ask::List(_) | Ask::Events(_) | Ask::Status);
        !looks && !matches!(self, Ask::Renew(_) | Ask::Job(JobAsk::Renew(_)))
    }

    /// Whether it may be sent again although it may have been carried out: it names what it means by hold id and token.
    /// Force does not: it could strike a holder that came since.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            Ask::Revoke { .. } | Ask::Advance { .. } => false,
            Ask::Job(ask) => ask.may_be_repeated(),
            _ => true,
        }
    }

    /// How long it may stand in line.
    pub fn wait_ms(&self) -> u64 {
        match self {
            Ask::Acquire(request) => request.wait_ms,
            Ask::Events(request) => request.wait_ms,
            Ask::Job(ask) => ask.wait_ms(),
            _ => 0,
        }
    }

    /// The same question, for an answer at once.
    pub fn wait_no_more(&mut self) {
        match self {
            Ask::Acquire(request) => request.wait_ms = 0,
            Ask::Events(request) => request.wait_ms = 0,
            Ask::Job(JobAsk::Claim(request)) => request.wait_ms = 0,
            Ask::Job(JobAsk::WaitFor(request)) => request.wait_ms = 0,
            _ => {}
        }
    }

    /// The same question, some time later: what it says about time has moved on. A hold id that was never sent stays
    /// new, and one that may have been received before is never called new.
    pub fn aged(&self, by_ms: u64, again: bool) -> Ask {
        let mut ask = self.clone();
        match &mut ask {
            Ask::Acquire(request) => {
                if again || request.hold_id_age_ms > 0 {
                    request.hold_id_age_ms = request.hold_id_age_ms.saturating_add(by_ms).max(1);
                }
                if again {
                    // It stood in line elsewhere; the way to its first place in line does not count.
                    request.waited_before_ms = request.waited_before_ms.saturating_add(by_ms);
                }
                if again || by_ms > ON_THE_WAY_MS {
                    request.wait_ms = request.wait_ms.saturating_sub(by_ms);
                }
            }
            Ask::Events(request) => request.wait_ms = request.wait_ms.saturating_sub(by_ms),
            Ask::Job(ask) => ask.age(by_ms, again, ON_THE_WAY_MS),
            _ => {}
        }
        ask
    }
}

/// How long a question may be on its way before that is taken off the time it has for standing in line.
const ON_THE_WAY_MS: u64 = 100;

impl Answer {
    /// Whether its asker may hold something from now on.
    pub fn grants(&self) -> bool {
        match self {
            Answer::Acquired(_) | Answer::Job(JobAnswer::BegunOperation(_)) => true,
            Answer::Job(JobAnswer::Claimed(claimed)) => !claimed.jobs.is_empty(),
            _ => false,
        }
    }

    /// The time on the way to the sending that was answered counts as time in line: the asker counts from its call.
    pub fn waited_longer(mut self, by_ms: u64) -> Answer {
        match &mut self {
            Answer::Acquired(acquired) => acquired.waited_ms = acquired.waited_ms.saturating_add(by_ms),
            Answer::Renewed(renewed) => renewed.waited_ms = renewed.waited_ms.saturating_add(by_ms),
            Answer::Job(answer) => answer.waited_longer(by_ms),
            _ => {}
        }
        self
    }
}

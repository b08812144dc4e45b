//! What is known of each call about jobs, and of its answer.

use super::{Answer, Ask};
use crate::job::{JobAnswer, JobAsk};

impl From<JobAsk> for Ask {
    fn from(ask: JobAsk) -> Self {
        Ask::Job(ask)
    }
}

impl TryFrom<Answer> for JobAnswer {
    type Error = Answer;

    fn try_from(answer: Answer) -> Result<Self, Answer> {
        match answer {
            Answer::Job(answer) => Ok(answer),
            other => Err(other),
        }
    }
}

impl JobAsk {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            JobAsk::Get(_)
                | JobAsk::WaitFor(_)
                | JobAsk::List(_)
                | JobAsk::Queues
                | JobAsk::Schedules
                | JobAsk::Effects(_)
        )
    }

    /// Whether it may leave something behind in its namespace, for which that must exist. The others speak of what is
    /// there already, and where nothing is they learn so.
    pub fn may_leave_something(&self) -> bool {
        matches!(
            self,
            JobAsk::Enqueue(_)
                | JobAsk::Claim(_)
                | JobAsk::BeginOperation(_)
                | JobAsk::SetQueueMode(_)
                | JobAsk::SetSchedule(_)
        )
    }

    /// Whether it may be sent again although it may have been carried out. A person's act may not: the job could have
    /// gone on since.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            JobAsk::Change(request) => request.dry_run,
            JobAsk::ResolveEffect(_) => false,
            _ => true,
        }
    }

    /// How long it may stand in line.
    pub fn wait_ms(&self) -> u64 {
        match self {
            JobAsk::Claim(request) => request.wait_ms,
            JobAsk::WaitFor(request) => request.wait_ms,
            _ => 0,
        }
    }

    /// The same question, some time later.
    pub fn age(&mut self, by_ms: u64, again: bool, on_the_way_ms: u64) {
        match self {
            JobAsk::Claim(request) => {
                if again {
                    request.waited_before_ms = request.waited_before_ms.saturating_add(by_ms);
                }
                if again || by_ms > on_the_way_ms {
                    request.wait_ms = request.wait_ms.saturating_sub(by_ms);
                }
            }
            JobAsk::WaitFor(request) => request.wait_ms = request.wait_ms.saturating_sub(by_ms),
            _ => {}
        }
    }
}

impl JobAnswer {
    /// The time on the way counts as time in line.
    pub fn waited_longer(&mut self, by_ms: u64) {
        match self {
            JobAnswer::Claimed(claimed) => claimed.waited_ms = claimed.waited_ms.saturating_add(by_ms),
            JobAnswer::Renewed(renewed) => renewed.waited_ms = renewed.waited_ms.saturating_add(by_ms),
            JobAnswer::BegunOperation(Ok(began)) => began.waited_ms = began.waited_ms.saturating_add(by_ms),
            _ => {}
        }
    }
}

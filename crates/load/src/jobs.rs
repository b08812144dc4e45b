//! The load of jobs.

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, NewJob, Report};
use fencehold_core::Owner;
use fencehold_core::job::{JobKind, JobRefusal, QueueName};

use crate::{Failed, LoadClient, Target, Timer};

const TTL_MS: u64 = 60_000;
const PAYLOAD_BYTES: usize = 300;

/// Enqueues a batch of jobs, claims as many (the oldest there are) and completes them. Counts jobs; the calls are enqueue,
/// claim and complete.
#[derive(Debug)]
pub struct JobLives {
    target: Target,
    queue: QueueName,
    batch: usize,
}

impl JobLives {
    /// So many clients on one queue.
    pub fn clients(target: &Target, clients: usize, queue: &str, batch: usize) -> Result<Vec<Self>, Failed> {
        let queue = QueueName::new(queue)?;
        let client = |_| JobLives { target: target.clone(), queue: queue.clone(), batch };
        Ok((0..clients).map(client).collect())
    }
}

impl LoadClient for JobLives {
    /// A life that is not measured: connections are opened, and a database plans what it is asked for the first time.
    async fn begin(&mut self) -> Result<(), Failed> {
        self.round(&Timer::default()).await.map(drop)
    }

    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        let JobLives { target, queue, batch } = self;
        let (jobs, call) = (target.jobs()?, &target.call);
        timer.time(0, enqueue(target, queue, *batch, PAYLOAD_BYTES)).await?;
        let hold = target.hold_id();
        let request = ClaimJobsRequest {
            queues: vec![(queue.clone(), 1)],
            limit: *batch,
            hold_id: hold,
            owner: Owner::new("bench-owner-of-20-by")?,
            ttl_ms: TTL_MS,
            wait_ms: TTL_MS,
            waited_before_ms: 0,
        };
        let claimed = timer.time(1, jobs.claim(call, request)).await?;
        let complete = |job: fencehold_contract::job::ClaimedJob| AttemptReport {
            attempt: AttemptRef { job_id: job.id, hold_id: hold, token: job.token },
            report: Report::Complete { result: None },
        };
        let reports: Vec<AttemptReport> = claimed.jobs.into_iter().map(complete).collect();
        let done = reports.len() as u64;
        for answer in timer.time(2, jobs.report(call, reports)).await? {
            answer.map_err(refused)?;
        }
        Ok(done)
    }
}

/// Enqueues so many jobs in one call, each with a payload of so many bytes.
pub async fn enqueue(
    target: &Target,
    queue: &QueueName,
    many: usize,
    payload_bytes: usize,
) -> Result<(), Failed> {
    let kind = JobKind::new("bench")?;
    let zeros = "0".repeat(payload_bytes);
    let job = |_| {
        let (id, nth) = target.job_id();
        let payload = payload(nth, &zeros);
        NewJob::new(id, queue.clone(), kind.clone(), payload)
    };
    for answer in target.jobs()?.enqueue(&target.call, (0..many).map(job).collect()).await? {
        answer.map_err(refused)?;
    }
    Ok(())
}

/// A payload with a number in it, as long as these zeros. It is not padded digit by digit: that would take longer than everything else that
/// a client does here.
fn payload(nth: u64, zeros: &str) -> String {
    let number = nth.to_string();
    let mut payload = String::with_capacity(zeros.len().max(number.len() + 10));
    payload.push_str("{\"nth\":\"");
    payload.push_str(&zeros[..zeros.len().saturating_sub(10 + number.len())]);
    payload.push_str(&number);
    payload.push_str("\"}");
    payload
}

fn refused(refusal: JobRefusal) -> Failed {
    format!("refused: {refusal}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_as_long_as_was_asked_and_has_its_number() {
        let payload = payload(42, &"0".repeat(300));
        assert_eq!(payload.len(), 300);
        let number = payload.strip_prefix("{\"nth\":\"").and_then(|rest| rest.strip_suffix("\"}"));
        assert_eq!(number.map(str::parse), Some(Ok(42)));
    }
}

//! The naive queue: a row with a state and the name of a worker. It reads, thinks, and then writes back what it read; it
//! knows workers by their names, counts no crashes, and undoes things as soon as it is asked to.
//!
//! It is wrong on purpose, in the well-known ways, and only a race uses it.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_core::job::{JobOptions, JobState};
use fencehold_core::ttl;
use futures_channel::oneshot;

use super::{ClaimTerms, GrantedClaim, JobCall, JobProtocol, JobReply, SeenJob};
use crate::gate::MessageGate;
use crate::protocol::RaceCall as _;

#[derive(Clone, Default)]
struct NaiveJobRow {
    /// `None`: it is not there yet.
    state: Option<JobState>,
    worker: Option<String>,
    deadline_ms: u64,
    ttl_ms: u64,
    /// How many claims there were. Shown as tokens, and never checked.
    claims: u64,
    result: Option<String>,
    completions: usize,
    effects: Vec<String>,
    undone: Vec<String>,
}

/// Workers that use the naive queue.
pub(crate) struct NaiveJobs {
    clock: ManualClock,
    gate: Arc<MessageGate>,
    row: Mutex<NaiveJobRow>,
    /// Those who stand in line until there is a job.
    line: Mutex<Vec<oneshot::Sender<()>>>,
}

impl NaiveJobs {
    pub(crate) fn new(clock: ManualClock, gate: Arc<MessageGate>) -> Self {
        NaiveJobs { clock, gate, row: Mutex::default(), line: Mutex::default() }
    }

    fn row(&self) -> MutexGuard<'_, NaiveJobRow> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self) -> MutexGuard<'_, Vec<oneshot::Sender<()>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands in line until there is a job, and gives for how long.
    async fn wait(&self) -> u64 {
        let since_ms = self.now_ms();
        let (sender, receiver) = oneshot::channel();
        self.line().push(sender);
        let _ = receiver.await;
        self.now_ms() - since_ms
    }

    fn claimed(wish: &ClaimTerms, row: &NaiveJobRow) -> JobReply {
        JobReply::Claimed(GrantedClaim {
            hold: wish.hold,
            owner: wish.owner.clone(),
            token: row.claims,
            waited_ms: 0,
            remaining_ms: row.ttl_ms,
        })
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    /// What the caller makes of the row that it read. `Err`: it needs no message to know the answer.
    fn decide(&self, act: &JobCall, read: &NaiveJobRow) -> Result<(), JobReply> {
        let mine = |owner: &str| read.worker.as_deref() == Some(owner);
        let running = read.state == Some(JobState::Running);
        match act {
            JobCall::Claim(wish) if running && mine(wish.owner.as_str()) => Err(Self::claimed(wish, read)),
            JobCall::Claim(_) => {
                let dead = running && read.deadline_ms <= self.now_ms();
                if dead || read.state == Some(JobState::Queued) { Ok(()) } else { Err(JobReply::Nothing) }
            }
            _ if act.claim().is_some_and(|claim| !mine(claim.owner.as_str())) => {
                Err(JobReply::Stale { current: read.claims })
            }
            _ => Ok(()),
        }
    }

    /// Writes, whatever stands there by now.
    fn write(&self, act: &JobCall, read: &NaiveJobRow) -> JobReply {
        let now_ms = self.now_ms();
        let mut row = self.row();
        let stands = |state| JobReply::Stands { state, late: false };
        match act {
            JobCall::Claim(wish) => {
                row.claims += 1;
                row.state = Some(JobState::Running);
                row.worker = Some(wish.owner.to_string());
                (row.deadline_ms, row.ttl_ms) = (now_ms + wish.ttl_ms, wish.ttl_ms);
                Self::claimed(wish, &row)
            }
            JobCall::Renew(_) => {
                *row = NaiveJobRow { deadline_ms: now_ms + read.ttl_ms, ..read.clone() };
                JobReply::Renewed { cancel_requested: read.state == Some(JobState::Cancelled) }
            }
            JobCall::Complete(_, result) => {
                (row.state, row.result) = (Some(JobState::Completed), Some((*result).to_owned()));
                row.completions += 1;
                stands(JobState::Completed)
            }
            JobCall::Fail(_) | JobCall::HandBack(_) => {
                (row.state, row.worker) = (Some(JobState::Queued), None);
                stands(JobState::Queued)
            }
            JobCall::Announce(..) => JobReply::Go,
            JobCall::Record(_, effect) => {
                row.effects.push((*effect).to_owned());
                JobReply::Recorded
            }
            JobCall::Cancel { .. } => {
                row.state = Some(JobState::Cancelled);
                row.undone = row.effects.iter().rev().cloned().collect();
                stands(JobState::Cancelled)
            }
            JobCall::Sweep => {
                if read.state == Some(JobState::Running) && read.deadline_ms <= now_ms {
                    (row.state, row.worker) = (Some(JobState::Queued), None);
                }
                JobReply::Swept
            }
        }
    }
}

#[async_trait]
impl JobProtocol for NaiveJobs {
    async fn put(&self, _: JobOptions) -> Result<(), String> {
        self.row().state = Some(JobState::Queued);
        for waiting in self.line().drain(..) {
            let _ = waiting.send(());
        }
        Ok(())
    }

    async fn in_line(&self) -> usize {
        self.line().len()
    }

    /// From the moment of asking, plus whatever time the store says that it stood in line.
    fn relies_for_ms(&self, claim: &GrantedClaim) -> u64 {
        claim.waited_ms + ttl::lost_after_ms(claim.remaining_ms)
    }

    async fn perform(&self, who: &str, act: &JobCall) -> JobReply {
        let waits = matches!(act, JobCall::Claim(wish) if wish.wait_ms > 0);
        let stood_ms = if waits { self.wait().await } else { 0 };
        let read = self.row().clone();
        if let Err(told) = self.decide(act, &read) {
            return told;
        }
        let write = || ready(self.write(act, &read));
        match self.gate.carry(who, act.message(), act.message(), write).await {
            Some(JobReply::Claimed(claim)) => {
                JobReply::Claimed(GrantedClaim { waited_ms: stood_ms, ..claim })
            }
            told => told.unwrap_or(JobReply::Unheard),
        }
    }

    fn idempotency_key(&self, _: &str) -> Option<String> {
        None
    }

    async fn undo_next(&self, _: &str) -> Option<String> {
        None
    }

    async fn look(&self) -> Result<SeenJob, String> {
        let row = self.row().clone();
        let running = row.state == Some(JobState::Running);
        let live = running && self.now_ms() < row.deadline_ms;
        Ok(SeenJob {
            // A row whose time is up is there for the taking.
            state: row.state.filter(|_| live || !running).unwrap_or(JobState::Queued),
            worker: row.worker.filter(|_| live),
            remaining_ms: row.deadline_ms.saturating_sub(self.now_ms()),
            result: row.result,
            completions: row.completions,
            undone: row.undone,
        })
    }
}

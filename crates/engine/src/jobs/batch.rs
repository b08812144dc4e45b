//! What a batch changes about jobs: collected while it is decided, handed over to be kept, let go of once it has been.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencehold_core::job::{JobId, JobState};

use super::archive::{JobBody, JobChange};
use crate::state::Engine;

/// What the steps since the last batch have changed about jobs.
#[derive(Debug, Default)]
pub(super) struct JobBatch {
    /// Jobs that changed, in the order of their arrival, so that what is near on disk is written together.
    pub(super) touched: BTreeMap<u64, JobSlotChange>,
    pub(super) bodies: BTreeMap<u64, (JobId, Arc<JobBody>)>,
    pub(super) others: Vec<JobChange>,
    pub(super) queues: BTreeSet<u32>,
    /// Finished ones, to be let go of once they have been kept.
    pub(super) leaving: Vec<u32>,
}

/// How a job changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobSlotChange {
    Term(u32),
    Put(u32),
    Drop,
}

impl Engine {
    /// Hands over what the steps since the last call changed about jobs.
    pub(crate) fn take_job_changes(&mut self, into: &mut Vec<JobChange>) {
        let batch = std::mem::take(&mut self.jobs.batch);
        for (arrival, (id, body)) in batch.bodies {
            into.push(JobChange::Body { arrival, id, body });
        }
        for (arrival, touch) in batch.touched {
            into.push(match touch {
                JobSlotChange::Drop => JobChange::Drop { arrival },
                JobSlotChange::Term(at) => {
                    self.jobs.table.at_mut(at).map_or(JobChange::Drop { arrival }, |slot| {
                        slot.renewed = true;
                        JobChange::Term { arrival, token: slot.record.token, deadline_ms: slot.deadline_ms }
                    })
                }
                JobSlotChange::Put(at) => match self.jobs.table.at(at) {
                    None => JobChange::Drop { arrival },
                    Some(slot) if slot.record.state.is_final() => JobChange::Finished(slot.kept()),
                    Some(slot) => JobChange::Live(slot.kept()),
                },
            });
        }
        into.extend(batch.others);
        for number in batch.queues {
            let namespace = self.namespace(self.jobs.queues.at(number).space);
            into.push(JobChange::Queue(self.jobs.queues.kept(number, namespace)));
        }
        self.jobs.batch.leaving = batch.leaving;
    }

    /// The batch that was handed over has been kept: what is in the archive now need not be in memory.
    pub fn kept(&mut self) {
        for at in std::mem::take(&mut self.jobs.batch.leaving) {
            match self.jobs.table.at_mut(at) {
                Some(slot) if slot.record.state.is_final() => drop(self.jobs.table.remove(at)),
                Some(slot) => slot.was_finished = false,
                None => {}
            }
        }
        let table = &self.jobs.table;
        self.jobs
            .ledgers
            .retain(|at, _| table.at(*at).is_some_and(|slot| slot.record.state == JobState::Running));
    }
}

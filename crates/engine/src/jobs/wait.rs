//! Those who wait for a job to come to its end, or to where only a person can help.

use fencehold_contract::job::WaitRequest;
use fencehold_contract::operation::JobResponse;
use fencehold_core::job::JobId;
use fencehold_core::limits::WAIT_MS_MAX;
use hashbrown::HashMap;

use super::ArchiveRead;
use crate::state::Engine;
use crate::step::Step;
use crate::waiters::{Ticket, Waiting};

#[derive(Debug, Default)]
pub(super) struct JobWaiters {
    by_job: HashMap<JobId, Vec<Ticket>>,
    pub(super) waiting: Waiting<(u32, JobId)>,
}

impl JobWaiters {
    fn add(&mut self, ticket: Ticket, space: u32, id: JobId, until_ms: u64) {
        self.by_job.entry(id).or_default().push(ticket);
        self.waiting.add(ticket, until_ms, (space, id));
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<(u32, JobId)> {
        let (space, id) = self.waiting.remove(ticket)?;
        if let Some(tickets) = self.by_job.get_mut(&id) {
            tickets.retain(|other| *other != ticket);
            if tickets.is_empty() {
                self.by_job.remove(&id);
            }
        }
        Some((space, id))
    }
}

impl Step<'_> {
    /// How a job stands, once that is worth telling. `None`: the request waits, or the job is still to be read.
    pub(super) fn wait_for(
        &mut self,
        ticket: Ticket,
        space: u32,
        request: WaitRequest,
    ) -> Option<JobResponse> {
        let WaitRequest { id, wait_ms } = request;
        let Some(slot) = self.find_slot(space, id) else { return Some(JobResponse::Job(None)) };
        if slot.record.state.is_settled() || wait_ms == 0 {
            return self.read_later(ticket, ArchiveRead::Job { space, id });
        }
        let until_ms = self.now.store_ms.saturating_add(wait_ms.min(WAIT_MS_MAX));
        self.jobs.waits.add(ticket, space, id, until_ms);
        None
    }
}

impl Engine {
    /// A job has come to its end, waits for a person, or is gone.
    pub(super) fn answer_waits(&mut self, at: u32) {
        let Some(id) = self.job(at).map(|slot| slot.id) else { return };
        for ticket in self.jobs.waits.by_job.get(&id).cloned().unwrap_or_default() {
            self.answer_wait(ticket);
        }
    }

    fn answer_wait(&mut self, ticket: Ticket) {
        if let Some((space, id)) = self.jobs.waits.remove(ticket) {
            self.read_later(ticket, ArchiveRead::Job { space, id });
        }
    }

    /// Tells those who have waited for long enough how the job stands.
    pub(super) fn dismiss_waits(&mut self) {
        while let Some(ticket) = self.jobs.waits.waiting.first_overdue(self.now.store_ms) {
            self.answer_wait(ticket);
        }
    }
}

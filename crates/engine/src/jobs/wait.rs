//! Those who wait for a job to come to its end, or to where only a person can help.

use std::collections::BTreeSet;

use fencehold_contract::job::WaitRequest;
use fencehold_contract::operation::{JobResponse, StoreResponse};
use fencehold_core::Timestamp;
use fencehold_core::job::{JobId, JobRefusal};
use fencehold_core::limits::WAIT_MS_MAX;
use hashbrown::HashMap;

use super::ArchiveRead;
use super::archive::Archive;
use crate::state::Engine;
use crate::waiters::Ticket;

#[derive(Debug, Default)]
pub(super) struct JobWaiters {
    by_job: HashMap<JobId, Vec<Ticket>>,
    by_until: BTreeSet<(u64, Ticket)>,
    waiting: HashMap<Ticket, (u32, JobId, u64)>,
}

impl JobWaiters {
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.by_until.first().map(|(until_ms, _)| *until_ms)
    }

    fn add(&mut self, ticket: Ticket, space: u32, id: JobId, until_ms: u64) {
        self.by_job.entry(id).or_default().push(ticket);
        self.by_until.insert((until_ms, ticket));
        self.waiting.insert(ticket, (space, id, until_ms));
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<(u32, JobId)> {
        let (space, id, until_ms) = self.waiting.remove(&ticket)?;
        self.by_until.remove(&(until_ms, ticket));
        if let Some(tickets) = self.by_job.get_mut(&id) {
            tickets.retain(|other| *other != ticket);
            if tickets.is_empty() {
                self.by_job.remove(&id);
            }
        }
        Some((space, id))
    }
}

impl Engine {
    pub(super) fn wait_for(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        space: u32,
        request: &WaitRequest,
        archive: &mut dyn Archive,
    ) {
        let WaitRequest { id, wait_ms } = *request;
        match self.find_job(space, id, archive) {
            Err(JobRefusal::JobNotFound) => {
                self.answer(ticket, Ok(StoreResponse::Job(JobResponse::Job(None))));
            }
            Ok(at) => {
                let settled = self.jobs.table.at(at).is_some_and(|slot| slot.record.state.is_settled());
                if settled || wait_ms == 0 {
                    return self.look(ticket, ArchiveRead::Job { space, id });
                }
                let until_ms = now.store_ms.saturating_add(wait_ms.min(WAIT_MS_MAX));
                self.jobs.waits.add(ticket, space, id, until_ms);
            }
            Err(_) => self.answer(ticket, Ok(StoreResponse::Job(JobResponse::Job(None)))),
        }
    }

    /// A job has come to its end, waits for a person, or is gone.
    pub(super) fn answer_waits(&mut self, at: u32) {
        let Some(id) = self.jobs.table.at(at).map(|slot| slot.id) else { return };
        for ticket in self.jobs.waits.by_job.get(&id).cloned().unwrap_or_default() {
            self.jobs.waits.remove(ticket).into_iter().for_each(|(space, id)| {
                self.look(ticket, ArchiveRead::Job { space, id });
            });
        }
    }

    /// Tells those who have waited for long enough how the job stands.
    pub(super) fn dismiss_waits(&mut self, now: Timestamp) {
        while let Some((until_ms, ticket)) = self.jobs.waits.by_until.first().copied() {
            if until_ms > now.store_ms {
                return;
            }
            if let Some((space, id)) = self.jobs.waits.remove(ticket) {
                self.look(ticket, ArchiveRead::Job { space, id });
            }
        }
    }
}

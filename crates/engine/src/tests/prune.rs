//! Finished jobs are forgotten after their time: only those are looked at that may be due, and no caller waits for it.

use std::sync::Arc;

use fencehold_contract::KeepFinished;
use fencehold_contract::job::{ChangeJobsRequest, ClaimJobsRequest, JobAction, JobSelector, NewJob};
use fencehold_contract::operation::{JobRequest, StoreRequest};
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_core::ledger::Effect;
use fencehold_core::{Namespace, Owner};

use super::{TestEngine, claim};
use crate::jobs::{
    Archive, ArchiveRange, ArchiveResult, ArchiveRow, JobBody, JobChange, JobNote, MemoryArchive, StoredJob,
};
use crate::state::Granted;

const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;
/// What one step may look at and forget.
const STEP: usize = 256;

/// An archive that counts how many finished jobs were read page by page.
#[derive(Default)]
struct Counting {
    inner: MemoryArchive,
    rows: usize,
}

impl Archive for Counting {
    fn finished(&mut self, id: JobId) -> ArchiveResult<Option<StoredJob>> {
        self.inner.finished(id)
    }

    fn body(&mut self, arrival: u64) -> ArchiveResult<Option<Arc<JobBody>>> {
        self.inner.body(arrival)
    }

    fn note(&mut self, arrival: u64, what: JobNote) -> ArchiveResult<Option<Arc<[u8]>>> {
        self.inner.note(arrival, what)
    }

    fn effects(&mut self, arrival: u64) -> ArchiveResult<Vec<Effect>> {
        self.inner.effects(arrival)
    }

    fn page(&mut self, rows: ArchiveRange, from: u64, rows_max: usize) -> ArchiveResult<Vec<ArchiveRow>> {
        let page = self.inner.page(rows, from, rows_max)?;
        self.rows += page.len();
        Ok(page)
    }

    fn with_effects(&mut self, from: u64, rows_max: usize) -> ArchiveResult<Vec<(u64, JobId)>> {
        self.inner.with_effects(from, rows_max)
    }
}

/// A rig whose changes are kept in an archive that counts.
struct PruneFixture {
    rig: TestEngine,
    archive: Counting,
    jobs: u64,
}

impl PruneFixture {
    /// Finished jobs are kept for an hour.
    fn new() -> Self {
        let mut rig = TestEngine::new();
        rig.engine.keep_finished(KeepFinished::for_ms(HOUR_MS).unwrap());
        PruneFixture { rig, archive: Counting::default(), jobs: 0 }
    }

    fn ask(&mut self, ask: JobRequest) {
        let (now, ticket) = (self.rig.now, self.rig.next_ticket);
        self.rig.next_ticket += 1;
        let ask = StoreRequest::Job(ask);
        self.rig.engine.ask(now, ticket, &Namespace::default(), ask, &mut self.archive);
    }

    /// One batch, as the writer makes it: sweep, serve, keep. Gives how many jobs were forgotten, how many were claimed, and
    /// whether there is more to sweep.
    fn settle(&mut self) -> (usize, usize, bool) {
        let more = self.rig.engine.sweep(self.rig.now, 100, &mut self.archive);
        self.rig.engine.serve_claims(self.rig.now, &mut self.archive);
        let (changes, answers) = self.rig.engine.take_batch(true);
        let is_drop = |change: &&JobChange| matches!(change, JobChange::Drop { .. });
        let dropped = changes.jobs.iter().filter(is_drop).count();
        changes.jobs.into_iter().for_each(|change| self.archive.inner.take(change));
        self.rig.engine.kept();
        let claimed = |granted: &Granted| if let Granted::Jobs(jobs) = granted { jobs.len() } else { 0 };
        let granted = answers.iter().filter_map(|answered| answered.granted.as_ref());
        let claimed = granted.map(claimed).sum();
        (dropped, claimed, more)
    }

    fn put(&mut self, queue: &str, many: u64) -> Vec<JobId> {
        let ids: Vec<JobId> = (self.jobs..self.jobs + many)
            .map(|nth| {
                let mut bits = [0; 10];
                bits[2..].copy_from_slice(&nth.to_be_bytes());
                JobId::from_random(1_800_000_000_000, bits)
            })
            .collect();
        self.jobs += many;
        let (queue, kind) = (QueueName::new(queue).unwrap(), JobKind::new("k").unwrap());
        let new = |id: &JobId| NewJob::new(*id, queue.clone(), kind.clone(), "{}");
        self.ask(JobRequest::Enqueue(ids.iter().map(new).collect()));
        ids
    }

    fn cancel(&mut self, ids: &[JobId]) {
        self.change(ids, JobAction::Cancel { reason: None, force: false });
    }

    fn change(&mut self, ids: &[JobId], action: JobAction) {
        let selector = JobSelector::Ids { job_ids: ids.to_vec() };
        self.ask(JobRequest::Change(ChangeJobsRequest::new(selector, action, Owner::new("P").unwrap())));
    }

    /// Jobs that have come to their end.
    fn finish(&mut self, many: u64) -> Vec<JobId> {
        let ids = self.put("q", many);
        self.settle();
        self.cancel(&ids);
        self.settle();
        ids
    }

    fn claim(&mut self, nth: u64) {
        self.ask(JobRequest::Claim(ClaimJobsRequest { ttl_ms: HOUR_MS, ..claim("ready", nth) }));
    }

    /// Goes on until there is nothing more to do at this moment. Gives how many jobs were forgotten.
    fn rest(&mut self) -> usize {
        let mut forgotten = 0;
        loop {
            let (dropped, _, more) = self.settle();
            forgotten += dropped;
            if !more {
                return forgotten;
            }
        }
    }

    fn is_kept(&mut self, id: JobId) -> bool {
        self.archive.finished(id).unwrap().is_some()
    }
}

#[test]
fn what_is_not_due_is_not_read_and_what_is_due_is_read_once() {
    let mut yard = PruneFixture::new();
    let early = yard.finish(3_000);
    yard.rig.pass(HOUR_MS / 2);
    let late = yard.finish(3_000);
    for _ in 0..29 {
        yard.rig.pass(MINUTE_MS);
        assert_eq!(yard.rest(), 0);
    }
    assert_eq!(yard.archive.rows, 0, "nothing was due");
    yard.rig.pass(MINUTE_MS + 1);
    assert_eq!(yard.rest(), 3_000);
    assert!(!early.iter().any(|id| yard.is_kept(*id)) && late.iter().all(|id| yard.is_kept(*id)));
    assert!(yard.archive.rows <= 3_000 + 2 * STEP, "{} rows were read for 3000 jobs", yard.archive.rows);
    yard.rig.pass(HOUR_MS / 2 + MINUTE_MS);
    assert_eq!(yard.rest(), 3_000);
    assert!(yard.archive.rows <= 6_000 + 4 * STEP, "{} rows were read for 6000 jobs", yard.archive.rows);
}

#[test]
fn a_large_backlog_is_forgotten_in_small_steps_between_which_claims_are_served() {
    const MANY: usize = 5_000;
    let mut yard = PruneFixture::new();
    yard.finish(MANY as u64);
    yard.put("ready", 100);
    yard.settle();
    yard.rig.pass(HOUR_MS + MINUTE_MS);
    let (mut forgotten, mut steps) = (0, 0);
    while forgotten < MANY {
        yard.claim(steps);
        let (dropped, claimed, _) = yard.settle();
        assert!(dropped <= STEP, "one step forgot {dropped} jobs");
        assert_eq!(claimed, 1, "a call that comes meanwhile is served in the same batch");
        forgotten += dropped;
        steps += 1;
        assert!(steps < 100, "{forgotten} of {MANY} after {steps} steps");
    }
}

/// The archive does not know it yet when its neighbours are looked at.
#[test]
fn what_ends_in_the_batch_that_looks_at_its_neighbours_is_forgotten_in_its_turn() {
    let mut yard = PruneFixture::new();
    let ids = yard.put("q", 2);
    yard.settle();
    yard.cancel(&ids[..1]);
    yard.settle();
    yard.rig.pass(HOUR_MS + MINUTE_MS);
    yard.cancel(&ids[1..]);
    assert_eq!(yard.rest(), 1);
    assert!(yard.is_kept(ids[1]));
    yard.rig.pass(HOUR_MS + MINUTE_MS);
    assert_eq!(yard.rest(), 1);
    assert!(!yard.is_kept(ids[1]));
}

/// One that was started over and has ended again is kept for its time from then on.
#[test]
fn what_was_started_over_is_kept_from_its_last_end() {
    let mut yard = PruneFixture::new();
    let ids = yard.finish(1);
    yard.rig.pass(HOUR_MS / 2);
    yard.change(&ids, JobAction::Retry);
    yard.settle();
    yard.cancel(&ids);
    yard.settle();
    yard.rig.pass(HOUR_MS / 2 + MINUTE_MS);
    assert_eq!(yard.rest(), 0);
    yard.rig.pass(HOUR_MS / 2);
    assert_eq!(yard.rest(), 1);
}

/// The shorter time counts for what has ended already, too.
#[test]
fn another_time_counts_from_the_next_look_on() {
    let mut yard = PruneFixture::new();
    yard.rig.engine.keep_finished(KeepFinished::for_ms(24 * HOUR_MS).unwrap());
    yard.finish(10);
    yard.rig.pass(2 * HOUR_MS);
    assert_eq!(yard.rest(), 0);
    yard.rig.engine.keep_finished(KeepFinished::for_ms(HOUR_MS).unwrap());
    yard.rig.pass(MINUTE_MS);
    assert_eq!(yard.rest(), 10);
}

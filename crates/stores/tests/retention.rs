//! For how long finished jobs are kept is said in the URL of the store; a directory remembers what was said last.

use std::path::Path;
use std::sync::Arc;

use fencehold_contract::clock::{Clock as _, ManualClock};
use fencehold_contract::job::{
    AttemptRef, AttemptReport, ChangeJobsRequest, ClaimJobsRequest, JobAction, JobSelector, NewJob, Report,
    Unique,
};
use fencehold_contract::{CallContext, JobStore, LeaseStore};
use fencehold_core::job::{JobId, JobKind, QueueName, UniqueKey};
use fencehold_core::limits::FINISHED_KEPT_MS;
use fencehold_core::{HoldId, Namespace, Owner};
use fencehold_stores::open;
use fencehold_test_store::block_on;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const MINUTE_MS: u64 = 60_000;

/// A store, its clock, and the jobs that were made.
struct Fixture {
    clock: ManualClock,
    made: std::cell::Cell<u64>,
}

impl Fixture {
    fn new() -> Self {
        Fixture { clock: ManualClock::new(), made: std::cell::Cell::new(0) }
    }

    fn open(&self, url: &str) -> Arc<dyn LeaseStore> {
        let store = open(&url.parse().unwrap(), Arc::new(self.clock.clone())).unwrap();
        // So that it is known who serves, and that it got what the URL says.
        block_on(store.status(&call())).unwrap();
        store
    }

    fn job(&self, queue: &str, nth: u64) -> NewJob {
        let mut bits = [0; 10];
        bits[2..].copy_from_slice(&nth.to_be_bytes());
        let id = JobId::from_random(self.clock.now().wall_ms, bits);
        NewJob::new(id, QueueName::new(queue).unwrap(), JobKind::new("k").unwrap(), "{}")
    }

    /// A job that has come to its end.
    fn finish(&self, store: &Arc<dyn LeaseStore>) -> JobId {
        let new = self.job("q", self.made.replace(self.made.get() + 1));
        let id = new.id;
        block_on(jobs(store).enqueue(&call(), vec![new])).unwrap()[0].as_ref().unwrap();
        let cancel = ChangeJobsRequest::new(
            JobSelector::Ids { job_ids: vec![id] },
            JobAction::Cancel { reason: None, force: false },
            Owner::new("P").unwrap(),
        );
        block_on(jobs(store).change_jobs(&call(), cancel)).unwrap().results[0]
            .result
            .as_ref()
            .unwrap();
        id
    }

    /// So many completed jobs, each under a unique key of its own with the shortest window.
    fn complete_uniques(&self, store: &Arc<dyn LeaseStore>, count: u64) {
        let first = self.made.replace(self.made.get() + count);
        let new = (first..first + count).map(|nth| {
            let key = UniqueKey::new(format!("{nth}")).unwrap();
            NewJob { unique: Some(Unique { key, window_ms: MINUTE_MS }), ..self.job("u", nth) }
        });
        block_on(jobs(store).enqueue(&call(), new.collect())).unwrap();
        let hold = HoldId::from_random(u128::from(first + 1).to_be_bytes());
        let claim = ClaimJobsRequest {
            queues: vec![(QueueName::new("u").unwrap(), 1)],
            limit: usize::try_from(count).unwrap(),
            hold_id: hold,
            owner: Owner::new("W").unwrap(),
            ttl_ms: MINUTE_MS,
            wait_ms: 0,
            waited_before_ms: 0,
        };
        let claimed = block_on(jobs(store).claim(&call(), claim)).unwrap().jobs;
        let done = claimed.iter().map(|job| AttemptReport {
            attempt: AttemptRef { job_id: job.id, hold_id: hold, token: job.token },
            report: Report::Complete { result: None },
        });
        let answers = block_on(jobs(store).report(&call(), done.collect())).unwrap();
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count() as u64, count);
    }

    /// Lets the store look for what is to be forgotten: more often than it must, since each look goes a step.
    fn rest(&self, store: &Arc<dyn LeaseStore>) {
        for _ in 0..8 {
            self.clock.advance_ms(MINUTE_MS);
            block_on(store.status(&call())).unwrap();
        }
    }
}

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fn jobs(store: &Arc<dyn LeaseStore>) -> &dyn JobStore {
    store.jobs().unwrap()
}

fn is_kept(store: &Arc<dyn LeaseStore>, id: JobId) -> bool {
    block_on(jobs(store).get_job(&call(), id)).unwrap().is_some()
}

fn url(directory: &Path, option: &str) -> String {
    let option = if option.is_empty() { "?create=true".to_owned() } else { format!("{option}&create=true") };
    format!("file:{}{option}", directory.display())
}

/// In memory and in a directory, a finished job is kept for that time, and no longer.
fn are_kept_for(option: &str, time_ms: u64) {
    let directory = tempfile::tempdir().unwrap();
    for url in [format!("memory:{option}"), url(directory.path(), option)] {
        let fixture = Fixture::new();
        let store = fixture.open(&url);
        let id = fixture.finish(&store);
        fixture.clock.advance_ms(time_ms - 10 * MINUTE_MS);
        fixture.rest(&store);
        assert!(is_kept(&store, id), "{url}");
        fixture.rest(&store);
        assert!(!is_kept(&store, id), "{url}");
    }
}

#[test]
fn finished_jobs_are_kept_for_the_time_that_the_url_names() {
    are_kept_for("?keep_finished=30d", 30 * DAY_MS);
}

#[test]
fn unless_a_time_is_named_it_is_seven_days() {
    are_kept_for("", FINISHED_KEPT_MS);
}

/// Which process happens to own the directory has no say in what is forgotten.
#[test]
fn whoever_names_no_time_leaves_it_at_what_was_named() {
    let fixture = Fixture::new();
    let directory = tempfile::tempdir().unwrap();
    let named = fixture.open(&url(directory.path(), "?keep_finished=30d"));
    let id = fixture.finish(&named);
    let silent = fixture.open(&url(directory.path(), ""));
    drop(named);
    fixture.clock.advance_ms(FINISHED_KEPT_MS + HOUR_MS);
    fixture.rest(&silent);
    assert!(is_kept(&silent, id), "the other owns the directory now, and keeps to what it was given");
    drop(silent);
    let again = fixture.open(&url(directory.path(), ""));
    fixture.rest(&again);
    assert!(is_kept(&again, id), "it is kept with the rest");
    fixture.clock.advance_ms(23 * DAY_MS);
    fixture.rest(&again);
    assert!(!is_kept(&again, id));
}

#[test]
fn the_last_to_open_the_directory_and_name_a_time_has_the_word() {
    let fixture = Fixture::new();
    let directory = tempfile::tempdir().unwrap();
    let owner = fixture.open(&url(directory.path(), "?keep_finished=30d"));
    let early = fixture.finish(&owner);
    fixture.clock.advance_ms(2 * HOUR_MS);
    fixture.rest(&owner);
    assert!(is_kept(&owner, early));
    let other = fixture.open(&url(directory.path(), "?keep_finished=1h"));
    fixture.rest(&other);
    assert!(!is_kept(&owner, early), "the owner got it through its socket");
    // And it is not told again by one that named another time before.
    let late = fixture.finish(&owner);
    drop(other);
    drop(owner);
    let after = fixture.open(&url(directory.path(), ""));
    fixture.clock.advance_ms(HOUR_MS);
    fixture.rest(&after);
    assert!(!is_kept(&after, late));
}

/// A handle that has said its time keeps quiet when it takes over later: others may have said another since.
#[test]
fn a_time_is_said_once() {
    let fixture = Fixture::new();
    let directory = tempfile::tempdir().unwrap();
    let owner = fixture.open(&url(directory.path(), ""));
    let thirty = fixture.open(&url(directory.path(), "?keep_finished=30d"));
    let hour = fixture.open(&url(directory.path(), "?keep_finished=1h"));
    let id = fixture.finish(&hour);
    drop(hour);
    drop(owner);
    // It owns the directory now, or asks again until it does.
    fixture.clock.advance_ms(HOUR_MS);
    fixture.rest(&thirty);
    assert!(!is_kept(&thirty, id));
}

/// R47: no process owns the directory for longer than one command, as under cron.
#[test]
fn owners_that_live_for_a_moment_forget_finished_jobs_and_free_unique_keys() {
    const JOBS: usize = 300;
    let fixture = Fixture::new();
    let directory = tempfile::tempdir().unwrap();
    let url = url(directory.path(), "");
    let store = fixture.open(&url);
    let ids: Vec<JobId> = (0..JOBS).map(|_| fixture.finish(&store)).collect();
    drop(store);
    fixture.clock.advance_ms(FINISHED_KEPT_MS + 1);
    for _ in 0..JOBS / 100 {
        let store = fixture.open(&url);
        // Asked once more, so that what the first question brought with it is done.
        block_on(store.status(&call())).unwrap();
        drop(store);
    }
    let store = fixture.open(&url);
    let left = ids.iter().filter(|id| is_kept(&store, **id)).count();
    assert_eq!(left, 0, "of {JOBS} finished jobs are kept although their time is over");
}

/// However many unique jobs are made, their keys are freed as fast: what is left over is bounded by the window, not by how long
/// the store has been in use.
#[test]
fn unique_keys_are_freed_as_fast_as_they_are_taken() {
    const A_MINUTE: u32 = 600;
    let fixture = Fixture::new();
    let directory = tempfile::tempdir().unwrap();
    let store = fixture.open(&url(directory.path(), ""));
    let database = rusqlite::Connection::open(directory.path().join("fencehold.db")).unwrap();
    let taken = || -> u32 {
        database
            .query_row("SELECT count(*) FROM uniques", [], |row| row.get(0))
            .unwrap()
    };
    for minute in 0..10 {
        fixture.complete_uniques(&store, A_MINUTE.into());
        assert!(taken() >= A_MINUTE, "minute {minute}: they are taken for their window");
        fixture.clock.advance_ms(MINUTE_MS);
        // No time passes between these: what a look left over is looked at next.
        for _ in 0..8 {
            block_on(store.status(&call())).unwrap();
        }
        let left = taken();
        assert!(
            left <= 3 * A_MINUTE,
            "minute {minute}: {left} unique keys are taken, and {A_MINUTE} are made a minute"
        );
    }
}

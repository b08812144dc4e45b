//! Very many jobs that are scheduled for the same second: all become ready, in their order, and hold up no request meanwhile.
#![allow(clippy::print_stderr, reason = "how long it took is for the person who runs it at length")]
#![allow(
    clippy::disallowed_methods,
    reason = "how long a caller waits while others become ready is real time"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencehold_contract::clock::{Clock as _, ManualClock};
use fencehold_contract::job::{AttemptRef, ClaimJobsRequest, ClaimedJobs, NewJob, When};
use fencehold_contract::{CallContext, JobStore};
use fencehold_core::job::JobId;
use fencehold_core::limits::JOBS_PER_CALL_MAX;
use fencehold_core::{HoldId, Namespace};
use fencehold_store_file::FileStore;
use fencehold_test_servers::calls::{claim_request, new_job};
use fencehold_test_store::block_on;

/// How many. `cargo xtask long` has a million.
fn many() -> u64 {
    std::env::var("FENCEHOLD_SAME_SECOND_JOBS").map_or(20_000, |text| text.parse().unwrap())
}

/// The longest that a renewal may take while they become ready: more than a sweep, far less than all of them.
const RENEWAL_MAX: Duration = Duration::from_secs(1);

struct SameSecondFixture {
    store: FileStore,
    call: CallContext,
}

impl SameSecondFixture {
    fn jobs(&self) -> &dyn JobStore {
        &self.store
    }

    fn enqueue(&self, jobs: Vec<NewJob>) {
        for answer in block_on(self.jobs().enqueue(&self.call, jobs)).unwrap() {
            answer.unwrap();
        }
    }

    fn claim(&self, queue: &str, nth: u64, limit: usize) -> (HoldId, ClaimedJobs) {
        let mut bits = [7; 16];
        bits[..8].copy_from_slice(&nth.to_be_bytes());
        let hold = HoldId::from_random(bits);
        let request =
            ClaimJobsRequest { limit, hold_id: hold, ttl_ms: 3_600_000, ..claim_request(queue, 0, "w") };
        (hold, block_on(self.jobs().claim(&self.call, request)).unwrap())
    }

    fn ready(&self, queue: &str) -> u64 {
        let queues = block_on(self.jobs().list_queues(&self.call)).unwrap();
        let found = queues.queues.iter().find(|view| view.name.as_str() == queue);
        found.map_or(0, |view| view.job_counts.queued)
    }
}

fn job(queue: &str, nth: u64, when: When) -> NewJob {
    let mut bits = [0; 10];
    bits[2..].copy_from_slice(&nth.to_be_bytes());
    let id = JobId::from_random(1_800_000_000_000, bits);
    let payload = format!("{{\"nth\":{nth}}}");
    NewJob { when, ..new_job(id, queue, payload) }
}

#[test]
fn jobs_of_one_second_all_become_ready_in_their_order_and_hold_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let store = FileStore::open_or_create(directory.path(), Arc::new(clock.clone())).unwrap();
    let fixture =
        SameSecondFixture { store, call: CallContext::new(Namespace::default()).with_timeout_ms(600_000) };
    let many = many();
    fixture.enqueue(vec![job("work", 0, When::Now)]);
    let (hold, claimed) = fixture.claim("work", 0, 1);
    let at_work = AttemptRef { job_id: claimed.jobs[0].id, hold_id: hold, token: claimed.jobs[0].token };

    let began = Instant::now();
    let wall_ms = clock.now().wall_ms + 60_000;
    let numbers: Vec<u64> = (1..=many).collect();
    for part in numbers.chunks(JOBS_PER_CALL_MAX) {
        fixture.enqueue(part.iter().map(|nth| job("q", *nth, When::At { wall_ms })).collect());
    }
    let enqueued = began.elapsed();
    assert_eq!(fixture.ready("q"), 0);

    let began = Instant::now();
    clock.advance_ms(60_000);
    let mut slowest = Duration::ZERO;
    let mut renewals = 0;
    while fixture.ready("q") < many {
        let before = Instant::now();
        let renewed = block_on(fixture.jobs().renew_attempts(&fixture.call, vec![at_work.clone()])).unwrap();
        renewed.results[0].as_ref().unwrap();
        slowest = slowest.max(before.elapsed());
        renewals += 1;
    }
    let woken = began.elapsed();
    eprintln!(
        "{many} jobs of one second: enqueued in {enqueued:.2?}, ready in {woken:.2?}; {renewals} renewals meanwhile, the \
         slowest in {slowest:.2?}"
    );
    assert!(slowest < RENEWAL_MAX, "a renewal took {slowest:?}");

    let mut next = 1;
    while next <= many {
        let (_, claimed) = fixture.claim("q", next, JOBS_PER_CALL_MAX);
        assert!(!claimed.jobs.is_empty(), "{} are missing", many + 1 - next);
        for claimed in claimed.jobs {
            assert_eq!(*claimed.payload, format!("{{\"nth\":{next}}}"));
            next += 1;
        }
    }
    assert!(fixture.claim("q", next, 1).1.jobs.is_empty());
}

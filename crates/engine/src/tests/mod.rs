//! The engine without its thread: moments and requests go in, answers and changes come out. And the thread around it.

mod before_the_sweep;
mod events;
mod last_renewal;
mod late_grant;
mod namespaces;
mod persistence;
mod prune;
mod sweep;
mod watchers;
mod writer;

use fencehold_conformance::assert_matches;
use fencehold_contract::job::ClaimJobsRequest;
use fencehold_contract::operation::{StoreRequest, StoreResponse};
use fencehold_contract::{AcquireLeaseRequest, HoldRef, LeaseView, StoreError};
use fencehold_core::job::QueueName;
use fencehold_core::{HoldId, Key, Namespace, Owner, Refusal, Timestamp, Token};

use super::jobs::MemoryArchive;
use super::persistence::Changes;
use super::state::{Engine, OutgoingResponse, ResponseBody};
use super::waiters::Ticket;

impl ResponseBody {
    /// What it says, where nothing is to be read.
    fn said(self) -> Result<StoreResponse, StoreError> {
        match self {
            ResponseBody::Said(result) => result,
            ResponseBody::ToRead(read) => panic!("still to be read: {read:?}"),
        }
    }
}

/// An engine and the hands of a clock.
struct TestEngine {
    engine: Engine,
    now: Timestamp,
    next_ticket: Ticket,
    archive: MemoryArchive,
}

impl TestEngine {
    fn new() -> Self {
        let now = Timestamp { store_ms: 1_000_000, wall_ms: 1_800_000_000_000 };
        TestEngine { engine: Engine::new(), now, next_ticket: 1, archive: MemoryArchive::default() }
    }

    fn pass(&mut self, ms: u64) {
        self.now = Timestamp { store_ms: self.now.store_ms + ms, wall_ms: self.now.wall_ms + ms };
    }

    fn sweep(&mut self, budget: usize) -> bool {
        self.engine.sweep(self.now, budget, &mut self.archive)
    }

    /// Sends a request and leaves what comes of it in the engine.
    fn send(&mut self, ask: StoreRequest) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.send_in(&Namespace::default(), ticket, ask);
        ticket
    }

    fn send_in(&mut self, namespace: &Namespace, ticket: Ticket, ask: StoreRequest) {
        self.engine.ask(self.now, ticket, namespace, ask, &mut self.archive);
    }

    /// Stands in line for the key `k`.
    fn in_line(&mut self, nth: u64, wait_ms: u64) -> Ticket {
        let ticket = self.send(StoreRequest::Acquire(AcquireLeaseRequest { wait_ms, ..request("k", nth) }));
        assert!(self.engine.take_batch(true).1.is_empty());
        ticket
    }

    /// Sends a request and takes all that came of it.
    fn ask(&mut self, ask: StoreRequest) -> (Changes, Vec<OutgoingResponse>) {
        self.send(ask);
        self.engine.take_batch(true)
    }

    /// Sends a request that is answered at once.
    fn answer(&mut self, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let ticket = self.send(ask);
        let (_, mut answers) = self.engine.take_batch(true);
        let to_this = |answered: &OutgoingResponse| answered.ticket == ticket;
        let at = answers.iter().position(to_this).expect("an answer at once");
        answers.swap_remove(at).result.said()
    }

    fn take(&mut self, request: AcquireLeaseRequest) -> HoldRef {
        let hold_id = request.hold_id;
        acquired(hold_id, self.answer(StoreRequest::Acquire(request)))
    }

    fn renew(&mut self, hold: &HoldRef) -> Result<Token, Refusal> {
        let answer = self.answer(StoreRequest::Renew(vec![hold.clone()]));
        let mut results = assert_matches!(answer, Ok(StoreResponse::Renewed(renewed)) => renewed.results);
        results.remove(0).map(|renewal| renewal.token)
    }

    fn view(&mut self, name: &str) -> Option<LeaseView> {
        assert_matches!(self.answer(StoreRequest::Get(key(name))), Ok(StoreResponse::Lease(view)) => view)
    }

    fn held(&mut self) -> u64 {
        assert_matches!(self.answer(StoreRequest::Status), Ok(StoreResponse::Status(status)) => status.held_count)
    }
}

/// The hold of a lease that must have been granted.
fn acquired(hold_id: HoldId, answer: Result<StoreResponse, StoreError>) -> HoldRef {
    let lease = assert_matches!(answer, Ok(StoreResponse::Acquired(lease)) => lease);
    HoldRef { key: lease.key, hold_id, token: lease.grant.token }
}

const TTL_MS: u64 = 10_000;

fn request(name: &str, nth: u64) -> AcquireLeaseRequest {
    let mut bits = [9; 16];
    bits[..8].copy_from_slice(&nth.to_be_bytes());
    let owner = Owner::new(format!("owner-{nth}")).unwrap();
    AcquireLeaseRequest::new(key(name), HoldId::from_random(bits), owner, TTL_MS)
}

/// A claim of one job of this queue, which does not wait.
fn claim(queue: &str, nth: u64) -> ClaimJobsRequest {
    let AcquireLeaseRequest { hold_id, owner, ttl_ms, .. } = request("k", nth);
    let queues = vec![(QueueName::new(queue).unwrap(), 1)];
    ClaimJobsRequest { queues, limit: 1, hold_id, owner, ttl_ms, wait_ms: 0, waited_before_ms: 0 }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

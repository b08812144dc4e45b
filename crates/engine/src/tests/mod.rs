//! The engine without its thread: moments and requests go in, answers and changes come out. And the thread around it.

mod before_the_sweep;
mod last_renewal;
mod late_grant;
mod namespaces;
mod persistence;
mod prune;
mod sweep;
mod watchers;
mod writer;

use fencehold_contract::operation::{StoreRequest, StoreResponse};
use fencehold_contract::{AcquireLeaseRequest, HoldRef, LeaseView, StoreError};
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
        self.engine.ask(self.now, ticket, &Namespace::default(), ask, &mut self.archive);
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
        let at = answers
            .iter()
            .position(|answered| answered.ticket == ticket)
            .expect("an answer at once");
        answers.swap_remove(at).result.said()
    }

    fn take(&mut self, request: AcquireLeaseRequest) -> HoldRef {
        let hold = request.hold_id;
        match self.answer(StoreRequest::Acquire(request)) {
            Ok(StoreResponse::Acquired(acquired)) => {
                HoldRef { key: acquired.key, hold_id: hold, token: acquired.grant.token }
            }
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, hold: &HoldRef) -> Result<Token, Refusal> {
        match self.answer(StoreRequest::Renew(vec![hold.clone()])) {
            Ok(StoreResponse::Renewed(mut renewed)) => renewed.results.remove(0).map(|renewal| renewal.token),
            other => panic!("{other:?}"),
        }
    }

    fn view(&mut self, name: &str) -> Option<LeaseView> {
        match self.answer(StoreRequest::Get(key(name))) {
            Ok(StoreResponse::Lease(view)) => view,
            other => panic!("{other:?}"),
        }
    }

    fn held(&mut self) -> u64 {
        match self.answer(StoreRequest::Status) {
            Ok(StoreResponse::Status(status)) => status.held_count,
            other => panic!("{other:?}"),
        }
    }
}

const TTL_MS: u64 = 10_000;

fn request(name: &str, nth: u64) -> AcquireLeaseRequest {
    let mut bits = [9; 16];
    bits[..8].copy_from_slice(&nth.to_be_bytes());
    let owner = Owner::new(format!("owner-{nth}")).unwrap();
    AcquireLeaseRequest::new(key(name), HoldId::from_random(bits), owner, TTL_MS)
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

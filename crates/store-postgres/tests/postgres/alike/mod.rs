//! Random commands by several owners, on `memory:` and on PostgreSQL at the same controlled time: the same answers, the same
//! state after every command, and the same story of every key.
//!
//! A sequence is made from its number alone, so that one that fails can be run again: `FENCEHOLD_ALIKE=17` runs the
//! seventeenth only, `FENCEHOLD_ALIKE_SEQUENCES=20000` more of them, `FENCEHOLD_ALIKE_FROM=8000` only those from there on.

mod command;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, LeaseStore, LeaseView, ListEventsRequest,
    ListLeasesRequest, StoreError,
};
use fencehold_core::limits::EVENTS_KEPT;
use fencehold_core::{EventData, Key, Namespace, Task, Token};
use fencehold_engine::MemoryStore;
use fencehold_test_servers::calls::waker;
use fencehold_test_store::{TestStore as _, block_on, pause};

use crate::session::until;
use crate::template::START_MS;
use crate::test_store::PostgresTestStore;

const SEQUENCES: u64 = 500;
const COMMANDS: u64 = 40;
const THREADS: usize = 3;
/// How often a state that must come is looked for.
const LOOKS_MAX: usize = 2_000;
/// How long an answer that must come may take. Only a broken store ever waits this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn postgres_answers_as_memory_does() {
    play_sequences(|numbers| {
        let mut pair = StorePair::new();
        for number in numbers {
            pair.reset();
            pair.play(*number);
        }
    });
}

/// Plays the sequences that the environment names, on several threads: each plays those that it is given.
pub(crate) fn play_sequences(play: impl Fn(&[u64]) + Sync) {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(only) = read("FENCEHOLD_ALIKE") {
        return play(&[only]);
    }
    let first = read("FENCEHOLD_ALIKE_FROM").unwrap_or(0);
    let sequences = read("FENCEHOLD_ALIKE_SEQUENCES").unwrap_or(SEQUENCES);
    let numbers = |nth: u64| (first + nth..sequences).step_by(THREADS).collect::<Vec<_>>();
    thread::scope(|scope| {
        for nth in 0..THREADS as u64 {
            let play = &play;
            scope.spawn(move || play(&numbers(nth)));
        }
    });
}

type WaitingAcquire = Pin<Box<dyn Future<Output = Result<AcquiredLease, StoreError>> + Send>>;

/// One that stands in line at both stores.
struct PendingPair {
    memory: WaitingAcquire,
    postgres: WaitingAcquire,
    space: usize,
    request: AcquireLeaseRequest,
}

/// A hold id that was used, and what came of it.
#[derive(Clone)]
struct UsedHoldId {
    space: usize,
    request: AcquireLeaseRequest,
    made_at_ms: u64,
    granted: Option<(Key, Token)>,
}

/// Two stores that should not differ.
struct StorePair {
    clock: ManualClock,
    memory: Arc<MemoryStore>,
    test_store: PostgresTestStore,
    postgres: Arc<dyn LeaseStore>,
    pending: Vec<PendingPair>,
    used: Vec<UsedHoldId>,
    choices: u64,
    serial: u64,
    story: Vec<String>,
}

impl StorePair {
    fn new() -> Self {
        let clock = ManualClock::new();
        let memory = Arc::new(MemoryStore::open(Arc::new(clock.clone())).unwrap());
        let test_store = PostgresTestStore::standing_still();
        let postgres = test_store.store();
        StorePair {
            clock,
            memory,
            test_store,
            postgres,
            pending: Vec::new(),
            used: Vec::new(),
            choices: 0,
            serial: 0,
            story: Vec::new(),
        }
    }

    fn reset(&mut self) {
        self.pending.clear();
        self.used.clear();
        self.story.clear();
        self.clock = ManualClock::new();
        self.memory = Arc::new(MemoryStore::open(Arc::new(self.clock.clone())).unwrap());
        let schema = self.test_store.schema;
        // Those who have just left the line are out of it before it is cleared away under them.
        let waiters = format!("SELECT count(*) FROM {schema}.lease_waiter");
        until("no one stands in line", || self.test_store.admin(&waiters)[0][0].as_deref() == Some("0"));
        self.test_store.admin(&format!(
            "DELETE FROM {schema}.lease_key; DELETE FROM {schema}.lease_hold; DELETE FROM {schema}.lease_ending;
             DELETE FROM {schema}.event; DELETE FROM {schema}.namespace; DELETE FROM {schema}.namespace_ttl;
             DELETE FROM {schema}.namespace_closed;
             UPDATE {schema}.store_state SET closed_until_ms = 0, suspended_from_ms = 0, floor = 0,
                 events_lost = (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.event_seq);
             UPDATE {schema}.test_clock SET at_ms = {START_MS};"
        ));
    }

    /// On `memory:` an advance lifts every namespace that was ever named; PostgreSQL lifts the others, too.
    fn mention(&self) {
        for space in 0..2 {
            block_on(self.memory.renew(&call(space), Vec::new())).unwrap();
        }
    }

    fn play(&mut self, number: u64) {
        self.choices = number.wrapping_mul(0x1_0001);
        self.mention();
        for _ in 0..COMMANDS {
            match self.below(20) {
                0..=4 => self.acquire(false),
                5..=7 => self.acquire(true),
                8 => self.repeat(),
                9..=10 => self.renew(),
                11..=13 => self.release(),
                14 => self.revoke(),
                15 => self.leave(),
                16 if self.one_in(6) => self.advance(),
                17 if self.one_in(6) => self.churn(),
                _ => self.pass(),
            }
            self.compare(number);
        }
        self.compare_events(number);
    }

    fn say(&mut self, what: String) {
        self.story.push(what);
    }

    fn send(&mut self, space: usize, request: AcquireLeaseRequest) {
        self.say(format!("acquire in {space} {request:?}"));
        let call = call(space);
        let waiting = |store: Arc<dyn LeaseStore>| {
            let (call, request) = (call.clone(), request.clone());
            Box::pin(async move { store.acquire(&call, request).await }) as WaitingAcquire
        };
        let pending = PendingPair {
            memory: waiting(self.memory.clone()),
            postgres: waiting(self.postgres.clone()),
            space,
            request,
        };
        self.pending.push(pending);
        self.collect();
        // Once more: what is sent again answers its earlier sending, and only then is it known to have arrived.
        self.collect();
    }

    /// Takes the answers of all that have been answered, at both stores.
    fn collect(&mut self) {
        let mut at = 0;
        while at < self.pending.len() {
            // Sent with the first poll; the status comes after whatever that led to.
            let first = poll(&mut self.pending[at].memory);
            block_on(self.memory.status(&call(0))).unwrap();
            let memory = first.or_else(|| poll(&mut self.pending[at].memory));
            let postgres = poll(&mut self.pending[at].postgres);
            let Some(memory) = memory else {
                if let Some(postgres) = postgres {
                    panic!("answered only by postgres: {postgres:?}\n{}", self.story.join("\n"));
                }
                at += 1;
                continue;
            };
            let mut pending = self.pending.remove(at);
            let Some(postgres) = postgres.or_else(|| answer(&mut pending.postgres)) else {
                panic!("answered only by memory: {memory:?}\n{}", self.story.join("\n"));
            };
            assert_eq!(postgres, memory, "{:?}\n{}", pending.request, self.story.join("\n"));
            if let Ok(acquired) = memory
                && let Some(used) = self.used.iter_mut().find(|used| {
                    used.request.hold_id == pending.request.hold_id && used.space == pending.space
                })
            {
                used.granted = Some((acquired.key, acquired.grant.token));
            }
            // One answer may have led to another.
            at = 0;
        }
    }

    /// Every key as both stores show it. What a caller that left leads to may take a moment.
    fn compare(&mut self, number: u64) {
        let spaces = if self.used.iter().any(|used| used.space == 1) { 2 } else { 1 };
        for space in 0..spaces {
            let memory = views(&*self.memory, space);
            let same = (0..LOOKS_MAX).any(|_| {
                views(&*self.postgres, space) == memory || {
                    pause();
                    false
                }
            });
            if !same {
                let postgres = views(&*self.postgres, space);
                let story = self.story.join("\n");
                panic!("sequence {number}\n{story}\npostgres: {postgres:#?}\nmemory: {memory:#?}");
            }
        }
        let counts = |store: &dyn LeaseStore| {
            let status = block_on(store.status(&call(0))).unwrap();
            (status.key_count, status.held_count, status.waiter_count)
        };
        assert_eq!(counts(&*self.postgres), counts(&*self.memory), "{}", self.story.join("\n"));
    }

    fn compare_events(&mut self, number: u64) {
        let told = |store: &dyn LeaseStore, space: usize, task_prefix: Option<Task>| {
            let mut story: BTreeMap<Key, Vec<EventData>> = BTreeMap::new();
            let mut request = ListEventsRequest { limit: 1_000, task_prefix, ..ListEventsRequest::default() };
            for _ in 0..EVENTS_KEPT {
                let page = block_on(store.list_events(&call(space), request.clone())).unwrap();
                if page.events.is_empty() {
                    break;
                }
                request.cursor = Some(page.next_cursor);
                for event in page.events {
                    story.entry(event.key).or_default().push(event.data);
                }
            }
            story
        };
        for space in 0..2 {
            for above in [None, Task::new("run-1").ok()] {
                let memory = told(&*self.memory, space, above.clone());
                let postgres = told(&*self.postgres, space, above);
                assert_eq!(postgres, memory, "sequence {number}\n{}", self.story.join("\n"));
            }
        }
    }
}

/// Every key of a namespace.
fn views(store: &dyn LeaseStore, space: usize) -> BTreeMap<Key, LeaseView> {
    let request = ListLeasesRequest { include_free: true, limit: 100, ..ListLeasesRequest::default() };
    let page = block_on(store.list(&call(space), request)).unwrap();
    page.leases.into_iter().map(|view| (view.key.clone(), view)).collect()
}

/// The answer of one that has been asked for already; `None`: it does not come.
fn answer(waiting: &mut WaitingAcquire) -> Option<Result<AcquiredLease, StoreError>> {
    let (waker, heard) = waker();
    loop {
        if let Poll::Ready(answer) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(answer);
        }
        heard.recv_timeout(ANSWER_WITHIN).ok()?;
    }
}

fn poll(waiting: &mut WaitingAcquire) -> Option<Result<AcquiredLease, StoreError>> {
    match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn call(space: usize) -> CallContext {
    CallContext::new(Namespace::new(["default", "other"][space]).unwrap())
}

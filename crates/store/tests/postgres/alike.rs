//! Random commands by several owners, on `memory:` and on PostgreSQL at the same controlled time: the same answers, the same
//! state after every command, and the same story of every key.
//!
//! A sequence is made from its number alone, so that one that fails can be run again: `FENCEHOLD_ALIKE=17` runs the
//! seventeenth only, `FENCEHOLD_ALIKE_SEQUENCES=20000` more of them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use fencehold_core::limits::EVENTS_KEPT;
use fencehold_core::{Fact, HoldId, Key, Namespace, Owner, Reason, Task, Token};
use fencehold_store::clock::{Clock as _, ManualClock};
use fencehold_store::conformance::{Arena as _, block_on};
use fencehold_store::{
    AcquireRequest, Acquired, Call, EventsRequest, HoldRef, LeaseStore, LeaseView, ListRequest, MemoryStore,
    RevokeRequest, StoreError, Which,
};

use crate::arena::{PostgresArena, START_MS};

const SEQUENCES: u64 = 500;
const COMMANDS: u64 = 40;
const THREADS: u64 = 3;
/// How often a state that must come is looked for.
const LOOKS_MAX: usize = 2_000;

#[test]
fn postgres_answers_as_memory_does() {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(only) = read("FENCEHOLD_ALIKE") {
        return Pair::new().play(only);
    }
    let sequences = read("FENCEHOLD_ALIKE_SEQUENCES").unwrap_or(SEQUENCES);
    thread::scope(|scope| {
        for nth in 0..THREADS {
            scope.spawn(move || {
                let mut pair = Pair::new();
                for number in (nth..sequences).step_by(usize::try_from(THREADS).unwrap()) {
                    pair.reset();
                    pair.play(number);
                }
            });
        }
    });
}

type Waiting = Pin<Box<dyn Future<Output = Result<Acquired, StoreError>> + Send>>;

/// One that stands in line at both stores.
struct Pending {
    memory: Waiting,
    postgres: Waiting,
    space: usize,
    request: AcquireRequest,
}

/// A hold id that was used, and what came of it.
#[derive(Clone)]
struct Used {
    space: usize,
    request: AcquireRequest,
    made_at_ms: u64,
    granted: Option<(Key, Token)>,
}

/// Two stores that should not differ.
struct Pair {
    clock: ManualClock,
    memory: Arc<MemoryStore>,
    arena: PostgresArena,
    postgres: Arc<dyn LeaseStore>,
    pending: Vec<Pending>,
    used: Vec<Used>,
    chance: u64,
    serial: u64,
    story: Vec<String>,
}

impl Pair {
    fn new() -> Self {
        let clock = ManualClock::new();
        let memory = Arc::new(MemoryStore::open(Arc::new(clock.clone())).unwrap());
        let arena = PostgresArena::new();
        let postgres = arena.store();
        Pair {
            clock,
            memory,
            arena,
            postgres,
            pending: Vec::new(),
            used: Vec::new(),
            chance: 0,
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
        let schema = &self.arena.schema;
        // Those who have just left the line are out of it before it is cleared away under them.
        let waiters = format!("SELECT count(*) FROM {schema}.lease_waiter");
        assert!((0..LOOKS_MAX).any(|_| self.arena.admin(&waiters)[0][0].as_deref() == Some("0")));
        self.arena.admin(&format!(
            "DELETE FROM {schema}.lease_key; DELETE FROM {schema}.lease_hold; DELETE FROM {schema}.lease_ending;
             DELETE FROM {schema}.event; DELETE FROM {schema}.namespace;
             UPDATE {schema}.store_state SET closed_until_ms = 0, longest_ttl_ms = 0, suspended_from_ms = 0, floor = 0,
                 events_removed_to = (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.event_seq);
             UPDATE {schema}.test_clock SET at_ms = {START_MS};"
        ));
    }

    /// Whoever was ever mentioned is lifted by an advance, at `memory:`; PostgreSQL lifts those that are not, too.
    fn mention(&self) {
        for space in 0..2 {
            block_on(self.memory.renew(&call(space), Vec::new())).unwrap();
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn play(&mut self, number: u64) {
        self.chance = number.wrapping_mul(0x1_0001);
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
                _ => self.pass(),
            }
            self.compare(number);
        }
        self.compare_events(number);
    }

    fn say(&mut self, what: String) {
        self.story.push(what);
    }

    fn fresh(&mut self, waits: bool) -> AcquireRequest {
        self.serial += 1;
        let mut bits = [0x11; 16];
        bits[..8].copy_from_slice(&self.serial.to_be_bytes());
        let owner = ["A", "B", "C"][usize::try_from(self.below(3)).unwrap()];
        let first = self.below(3);
        let mut request = AcquireRequest::new(
            key(first),
            HoldId::from_random(bits),
            Owner::new(owner).unwrap(),
            // No two alike, so that no two deadlines are.
            1_000 + self.below(20) * 1_000 + self.serial % 997,
        );
        if self.one_in(3) {
            request.keys.push(key((first + 1 + self.below(2)) % 3));
        }
        request.task = self.one_in(2).then(|| Task::new("run-1").unwrap());
        request.max_age_ms = self.one_in(5).then(|| 3_000 + self.serial % 991);
        request.priority = i16::try_from(self.below(4)).unwrap() - 1;
        if waits {
            request.wait_ms = 2_000 + self.below(30) * 1_000 + self.serial % 983;
            request.yield_within_ms = self.one_in(2).then_some(1_000 + self.serial % 4_001);
            request.waited_before_ms = if self.one_in(5) { 500 } else { 0 };
        }
        request
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    fn acquire(&mut self, waits: bool) {
        let mut request = self.fresh(waits);
        if self.one_in(6) {
            request.seen_token = Some(Token::new(1 + self.below(12)));
        }
        let space = usize::from(self.one_in(6));
        self.used
            .push(Used { space, request: request.clone(), made_at_ms: self.now_ms(), granted: None });
        self.send(space, request);
    }

    /// The same hold id again.
    fn repeat(&mut self) {
        let Some(used) = self.any_used(|_| true) else { return };
        let age_ms = (self.now_ms() - used.made_at_ms).max(1);
        let wait_ms = if self.one_in(2) { 0 } else { used.request.wait_ms };
        self.send(used.space, AcquireRequest { hold_age_ms: age_ms, wait_ms, ..used.request });
    }

    fn any_used(&mut self, fits: impl Fn(&Used) -> bool) -> Option<Used> {
        let fitting: Vec<Used> = self.used.iter().filter(|used| fits(used)).cloned().collect();
        if fitting.is_empty() {
            return None;
        }
        // The latest most of all.
        let back = self.below(fitting.len() as u64).min(self.below(fitting.len() as u64));
        fitting.get(fitting.len() - 1 - usize::try_from(back).unwrap()).cloned()
    }

    fn send(&mut self, space: usize, request: AcquireRequest) {
        self.say(format!("acquire in {space} {request:?}"));
        let call = call(space);
        let waiting = |store: Arc<dyn LeaseStore>| {
            let (call, request) = (call.clone(), request.clone());
            Box::pin(async move { store.acquire(&call, request).await }) as Waiting
        };
        let pending = Pending {
            memory: waiting(self.memory.clone()),
            postgres: waiting(self.postgres.clone()),
            space,
            request,
        };
        self.pending.push(pending);
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
            let postgres = postgres.or_else(|| {
                (0..LOOKS_MAX).find_map(|_| {
                    block_on(self.postgres.status(&call(0))).unwrap();
                    poll(&mut pending.postgres)
                })
            });
            let Some(postgres) = postgres else {
                panic!("answered only by memory: {memory:?}\n{}", self.story.join("\n"));
            };
            assert_eq!(postgres, memory, "{:?}\n{}", pending.request, self.story.join("\n"));
            if let Ok(acquired) = memory
                && let Some(used) = self
                    .used
                    .iter_mut()
                    .find(|used| used.request.hold == pending.request.hold && used.space == pending.space)
            {
                used.granted = Some((acquired.key, acquired.grant.token));
            }
            // One answer may have led to another.
            at = 0;
        }
    }

    fn refs(&mut self) -> Option<(usize, Vec<HoldRef>)> {
        let first = self.any_used(|used| used.granted.is_some())?;
        let mut refs = vec![as_ref(&first)];
        for _ in 0..self.below(3) {
            refs.extend(
                self.any_used(|used| used.granted.is_some() && used.space == first.space)
                    .map(|u| as_ref(&u)),
            );
        }
        if self.one_in(8) {
            refs[0].token = Token::new(refs[0].token.get() + 1);
        }
        Some((first.space, refs))
    }

    fn renew(&mut self) {
        let Some((space, refs)) = self.refs() else { return };
        self.say(format!("renew in {space} {refs:?}"));
        let mut memory = block_on(self.memory.renew(&call(space), refs.clone())).unwrap();
        for answer in memory.answers.iter_mut().flatten() {
            if let Some(notice) = &mut answer.notice {
                notice.yield_at_ms += ahead_ms();
            }
        }
        let postgres = block_on(self.postgres.renew(&call(space), refs)).unwrap();
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
    }

    fn release(&mut self) {
        let Some((space, refs)) = self.refs() else { return };
        self.say(format!("release in {space} {refs:?}"));
        let memory = block_on(self.memory.release(&call(space), refs.clone()));
        let postgres = block_on(self.postgres.release(&call(space), refs));
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
    }

    fn revoke(&mut self) {
        let which = match self.below(6) {
            0 => Which::Task(Task::new("run-1").unwrap()),
            1 => Which::Owner(Owner::new("A").unwrap()),
            2 => Which::Prefix("key/".to_owned()),
            3 => Which::Key { key: key(self.below(3)), only_token: Some(Token::new(1 + self.below(9))) },
            _ => Which::Key { key: key(self.below(3)), only_token: None },
        };
        let reason = Reason::new("it was stuck").unwrap();
        let request = RevokeRequest { which, by: Owner::new("P").unwrap(), reason };
        self.say(format!("revoke {request:?}"));
        let mut memory = block_on(self.memory.revoke(&call(0), request.clone()));
        let mut postgres = block_on(self.postgres.revoke(&call(0), request));
        // In the order of their slots, which are not the same.
        for ended in [&mut memory, &mut postgres].into_iter().flatten() {
            ended.sort_by(|one, other| one.key.cmp(&other.key));
        }
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
    }

    /// One of those in line gives up.
    fn leave(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let at = usize::try_from(self.below(self.pending.len() as u64)).unwrap();
        let gone = self.pending.remove(at);
        self.say(format!("leave {:?}", gone.request));
        drop(gone);
    }

    fn advance(&mut self) {
        self.say("advance".to_owned());
        let by = || Owner::new("P").unwrap();
        let memory = block_on(self.memory.advance(&call(0), by(), 100)).unwrap();
        let postgres = block_on(self.postgres.advance(&call(0), by(), 100)).unwrap();
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
    }

    /// Lets time pass, and stops wherever something is due: two things that are due at once may come in any order.
    fn pass(&mut self) {
        let mut left_ms = match self.below(4) {
            0 => 1,
            1 => self.below(1_000),
            2 => self.below(8_000),
            _ => self.below(30_000),
        };
        self.say(format!("pass {left_ms}"));
        let schema = self.arena.schema.clone();
        while left_ms > 0 {
            let due = self.arena.admin(&format!(
                "SELECT coalesce(min(due), {left_ms}) FROM (
                     SELECT deadline_ms - at_ms AS due FROM {schema}.lease_hold, {schema}.test_clock
                     UNION ALL SELECT until_ms - at_ms FROM {schema}.lease_line, {schema}.test_clock
                 ) AS all_due WHERE due > 0"
            ));
            let step_ms = due[0][0].as_ref().unwrap().parse::<u64>().unwrap().min(left_ms);
            left_ms -= step_ms;
            self.clock.pass(step_ms);
            self.arena.pass(step_ms);
            block_on(self.memory.status(&call(0))).unwrap();
            let over = format!(
                "SELECT {schema}.lease_sweep(1000);
                 SELECT count(*) FROM {schema}.lease_hold, {schema}.test_clock WHERE deadline_ms <= at_ms"
            );
            let swept = (0..LOOKS_MAX).any(|_| self.arena.admin(&over)[1][0].as_deref() == Some("0"));
            assert!(swept, "what has run out is swept");
            self.collect();
        }
    }

    /// Every key as both stores show it. What a caller that left leads to may take a moment.
    fn compare(&mut self, number: u64) {
        let spaces = if self.used.iter().any(|used| used.space == 1) { 2 } else { 1 };
        for space in 0..spaces {
            let memory = views(&*self.memory, space, ahead_ms());
            let same = (0..LOOKS_MAX).any(|_| views(&*self.postgres, space, 0) == memory);
            if !same {
                let postgres = views(&*self.postgres, space, 0);
                let story = self.story.join("\n");
                panic!("sequence {number}\n{story}\npostgres: {postgres:#?}\nmemory: {memory:#?}");
            }
        }
        let counts = |store: &dyn LeaseStore| {
            let status = block_on(store.status(&call(0))).unwrap();
            (status.keys, status.held, status.waiters)
        };
        assert_eq!(counts(&*self.postgres), counts(&*self.memory), "{}", self.story.join("\n"));
    }

    fn compare_events(&mut self, number: u64) {
        let told = |store: &dyn LeaseStore, space: usize| {
            let mut story: BTreeMap<Key, Vec<Fact>> = BTreeMap::new();
            let mut request = EventsRequest { limit: 1_000, ..EventsRequest::default() };
            for _ in 0..EVENTS_KEPT {
                let page = block_on(store.events(&call(space), request.clone())).unwrap();
                if page.events.is_empty() {
                    break;
                }
                request.after = Some(page.next);
                for event in page.events {
                    story.entry(event.key).or_default().push(event.fact);
                }
            }
            story
        };
        for space in 0..2 {
            let (memory, postgres) = (told(&*self.memory, space), told(&*self.postgres, space));
            assert_eq!(postgres, memory, "sequence {number}\n{}", self.story.join("\n"));
        }
    }
}

/// Every key of a namespace, with moments as PostgreSQL tells them.
fn views(store: &dyn LeaseStore, space: usize, ahead_ms: u64) -> BTreeMap<Key, LeaseView> {
    let request = ListRequest { include_free: true, limit: 100, ..ListRequest::default() };
    let page = block_on(store.list(&call(space), request)).unwrap();
    let view = |mut view: LeaseView| {
        if let Some(notice) = view.holder.as_mut().and_then(|holder| holder.notice.as_mut()) {
            notice.yield_at_ms += ahead_ms;
        }
        (view.key.clone(), view)
    };
    page.leases.into_iter().map(view).collect()
}

/// How far PostgreSQL's store time is ahead of memory's: one is wall time, the other is not.
fn ahead_ms() -> u64 {
    START_MS - ManualClock::new().now().store_ms
}

fn poll(waiting: &mut Waiting) -> Option<Result<Acquired, StoreError>> {
    match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn as_ref(used: &Used) -> HoldRef {
    let (key, token) = used.granted.clone().unwrap();
    HoldRef { key, hold: used.request.hold, token }
}

fn key(nth: u64) -> Key {
    Key::new(format!("key/{nth}")).unwrap()
}

fn call(space: usize) -> Call {
    Call::new(Namespace::new(["default", "other"][space]).unwrap())
}

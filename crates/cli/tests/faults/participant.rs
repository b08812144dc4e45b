//! A process that uses a store at random, and writes down what it asked and what it was told.
//!
//! It is the test binary itself, started with a part to play. What it writes, it writes before the request leaves and as
//! soon as the answer is there, so that a kill at any moment leaves nothing out but an answer.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fencehold_core::job::{EffectName, JobId, Kind, Queue, State, Terms};
use fencehold_core::ledger::EffectState;
use fencehold_core::{HoldId, Key, Namespace, Owner, Refusal, Token};
use fencehold_race::history::{Ask, End, Line, Tell, What};
use fencehold_store::clock::{Clock as _, SystemClock};
use fencehold_store::conformance::block_on;
use fencehold_store::job::{
    AttemptRef, ClaimRequest, LedgerAct, LedgerAnswer, LedgerEntry, NewJob, Report, Word,
};
use fencehold_store::{AcquireRequest, Call, HoldRef, LeaseStore, StoreError, StoreUrl, open};
use serde::{Deserialize, Serialize};

const PART: &str = "FENCEHOLD_TEST_PART";
/// The test that plays a part where one is given.
const ROLE: &str = "a_participant";

/// How long a lease or a claim of a participant lasts.
pub const TTL_MS: u64 = 1_000;
/// How many keys they fight for.
const KEYS: u64 = 3;
/// How often a request is sent again whose outcome is not known.
const RESENDS: usize = 8;

/// What a participant is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub who: String,
    pub url: String,
    pub seed: u64,
    /// Where its history goes, and where a file `stop` says that it is over.
    pub room: PathBuf,
    /// At most so many calls.
    pub calls: u64,
    pub jobs: bool,
    /// How long one call may take to reach the store.
    pub patience_ms: u64,
}

impl Part {
    /// The process that plays it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", ROLE, "--nocapture", "--test-threads=1"])
            .env(PART, serde_json::to_string(self).unwrap());
        command
    }

    pub fn history(&self) -> PathBuf {
        self.room.join(format!("{}.jsonl", self.who))
    }
}

/// The process's part: plays it if it was given one, and never comes back then.
pub fn take_part_if_asked() {
    let Ok(part) = std::env::var(PART) else { return };
    let part: Part = serde_json::from_str(&part).unwrap();
    let stop = part.room.join("stop");
    let mut participant = Participant::new(part);
    while !participant.is_through() && !stop.exists() {
        participant.takes_a_turn();
    }
    participant.closes();
    std::process::exit(0);
}

/// Splitmix64: the same seed, the same choices.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn bits<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| u8::try_from(self.below(256)).unwrap())
    }
}

pub struct Participant {
    part: Part,
    random: Random,
    history: File,
    nth: u64,
    store: Option<Arc<dyn LeaseStore>>,
    call: Call,
}

impl Participant {
    pub fn new(part: Part) -> Self {
        let history = OpenOptions::new().create(true).append(true).open(part.history()).unwrap();
        let call = Call::new(Namespace::default()).with_patience_ms(part.patience_ms);
        // Names are part of the seed: no two processes draw the same hold ids.
        let seed = part
            .who
            .bytes()
            .fold(part.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        Participant { random: Random(seed), history, nth: 0, store: None, call, part }
    }

    fn is_through(&self) -> bool {
        self.nth >= self.part.calls
    }

    fn closes(self) {
        if let Some(store) = self.store {
            block_on(store.close());
        }
    }

    /// The store; opened again until it can be.
    fn store(&mut self) -> Result<Arc<dyn LeaseStore>, StoreError> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let url: StoreUrl = self.part.url.parse().unwrap();
        let store = open(&url, Arc::new(SystemClock))?;
        Ok(Arc::clone(self.store.insert(store)))
    }

    fn write(&mut self, at_ms: u64, what: What) {
        let line = Line::new(self.part.who.clone(), self.nth, at_ms, what);
        let text = serde_json::to_string(&line).unwrap() + "\n";
        // In one piece, so that a kill tears at most the last line.
        self.history.write_all(text.as_bytes()).unwrap();
    }

    /// One call, with what was asked and what was told on record.
    fn asks(
        &mut self,
        ask: Ask,
        call: impl FnOnce(&dyn LeaseStore, &Call) -> Result<Tell, StoreError>,
    ) -> Tell {
        self.nth += 1;
        let sent_ms = SystemClock.now().store_ms;
        self.write(sent_ms, What::Asked(ask));
        let told = self.store().and_then(|store| call(&*store, &self.call)).unwrap_or_else(told_of);
        // Rounded up: it was told no later than this.
        let answered_ms = SystemClock.now().store_ms + 1;
        self.write(answered_ms, What::Told(told.clone()));
        told
    }

    fn takes_a_turn(&mut self) {
        if self.part.jobs && self.random.below(3) == 0 {
            self.turns_to_a_job();
        } else {
            let nth = self.random.below(KEYS);
            self.turns_to_a_key(nth);
        }
    }

    /// Takes a key, holds it for a while, and usually gives it back.
    fn turns_to_a_key(&mut self, nth: u64) {
        let Some((hold, token)) = self.acquires(&key(nth)) else { return };
        for _ in 0..self.random.below(5) {
            self.looks(&key(nth));
            self.renews(&key(nth), hold, token);
        }
        // Now and then it is forgotten, as by one who was killed.
        if self.random.below(12) > 0 {
            self.releases(&key(nth), hold, token);
        }
    }

    pub fn acquires(&mut self, key: &str) -> Option<(HoldId, u64)> {
        let hold = HoldId::from_random(self.random.bits());
        let owner = Owner::new(self.part.who.as_str()).unwrap();
        let mut request = AcquireRequest::new(Key::new(key).unwrap(), hold, owner, TTL_MS);
        for _ in 0..RESENDS {
            let (asked, ask) = (request.clone(), Ask::Acquire { key: key.to_owned() });
            let told = self.asks(ask, |store, call| {
                block_on(store.acquire(call, asked)).map(|acquired| Tell::Granted {
                    token: acquired.grant.token.get(),
                    remaining_ms: acquired.grant.remaining_ms,
                })
            });
            match told {
                Tell::Granted { token, .. } => return Some((hold, token)),
                Tell::Unclear { .. } => request.hold_age_ms = request.hold_age_ms.max(1),
                _ => return None,
            }
        }
        None
    }

    fn renews(&mut self, key: &str, hold: HoldId, token: u64) {
        let proof = hold_ref(key, hold, token);
        self.asks(Ask::Renew { key: key.to_owned(), token }, |store, call| {
            let answers = block_on(store.renew(call, vec![proof]))?.answers;
            Ok(only(answers, |renewal| Tell::Renewed { remaining_ms: renewal.remaining_ms }))
        });
    }

    pub fn releases(&mut self, key: &str, hold: HoldId, token: u64) {
        for _ in 0..RESENDS {
            let proof = hold_ref(key, hold, token);
            let told = self.asks(Ask::Release { key: key.to_owned(), token }, |store, call| {
                Ok(only(block_on(store.release(call, vec![proof]))?, |_| Tell::Released))
            });
            if !matches!(told, Tell::Unclear { .. }) {
                return;
            }
        }
    }

    fn looks(&mut self, key: &str) {
        let name = Key::new(key).unwrap();
        self.asks(Ask::Get { key: key.to_owned() }, |store, call| {
            let view = block_on(store.get(call, name))?;
            let held = view.filter(|view| view.holder.is_some());
            Ok(held.map_or(Tell::Free, |view| Tell::Held { token: view.token.get() }))
        });
    }

    fn turns_to_a_job(&mut self) {
        if self.random.below(3) == 0 {
            self.enqueues();
        }
        // Now and then it is forgotten, as by one who was killed.
        let forgets = self.random.below(20) == 0;
        self.works(forgets);
    }

    pub fn enqueues(&mut self) {
        let id = JobId::from_random(1_763_000_000_000, self.random.bits());
        let job = NewJob {
            // A job that is dropped by many is no poison here: its holders were killed.
            terms: Terms { max_crashes: 10_000, max_attempts: 10_000, ..Terms::default() },
            ..NewJob::new(id, queue(), Kind::new("work").unwrap(), "{}")
        };
        for _ in 0..RESENDS {
            let job = job.clone();
            let told = self.asks(Ask::Enqueue { job: id.to_string() }, |store, call| {
                let answers = block_on(store.jobs().unwrap().enqueue(call, vec![job]))?;
                Ok(only(answers, |_| Tell::Enqueued))
            });
            if !matches!(told, Tell::Unclear { .. }) {
                return;
            }
        }
    }

    /// Claims a job, has its effect and completes it. False: there was none.
    pub fn works(&mut self, forgets: bool) -> bool {
        let hold = HoldId::from_random(self.random.bits());
        let owner = Owner::new(self.part.who.as_str()).unwrap();
        let queues = vec![(queue(), 1)];
        let request =
            ClaimRequest { queues, limit: 1, hold, owner, ttl_ms: TTL_MS, wait_ms: 0, waited_before_ms: 0 };
        let mut claimed = None;
        let slot = &mut claimed;
        self.asks(Ask::Claim, |store, call| {
            let jobs = block_on(store.jobs().unwrap().claim(call, request))?.jobs;
            Ok(jobs.first().map_or(Tell::Nothing, |job| {
                let (token, remaining_ms) = (job.token.get(), job.remaining_ms);
                *slot = Some((job.id, token));
                Tell::Claimed { job: job.id.to_string(), token, remaining_ms }
            }))
        });
        let Some((id, token)) = claimed else { return false };
        let attempt = AttemptRef { job: id, hold, token: Token::new(token) };
        if forgets {
            return true;
        }
        self.records(&attempt);
        self.completes(&attempt);
        true
    }

    fn records(&mut self, attempt: &AttemptRef) {
        let value = attempt.token.get().to_string();
        let act = LedgerAct::Record { effect: effect(), value: value.into(), undo: None };
        let entry = LedgerEntry { attempt: attempt.clone(), act };
        let ask = Ask::Record { job: attempt.job.to_string(), token: attempt.token.get() };
        self.asks(ask, |store, call| {
            let answers = block_on(store.jobs().unwrap().ledger(call, vec![entry]))?;
            Ok(only(answers, |answer| match answer {
                LedgerAnswer::Recorded(effect) => {
                    Tell::Recorded { value: effect.value.as_deref().unwrap_or_default().to_owned() }
                }
                other => Tell::Refused { why: format!("{other:?}") },
            }))
        });
    }

    fn completes(&mut self, attempt: &AttemptRef) {
        for _ in 0..RESENDS {
            let report = Report { attempt: attempt.clone(), word: Word::Complete { result: None } };
            let ask = Ask::Complete { job: attempt.job.to_string(), token: attempt.token.get() };
            let told = self.asks(ask, |store, call| {
                let answers = block_on(store.jobs().unwrap().report(call, vec![report]))?;
                Ok(only(answers, |_| Tell::Completed))
            });
            if !matches!(told, Tell::Unclear { .. }) {
                return;
            }
        }
    }

    /// Comes to every key and every job in turn until each was had: nobody is stuck. Then says how all stands.
    pub fn finishes(mut self) -> End {
        let mut end = End::default();
        for nth in 0..KEYS {
            let (hold, token) = until("a key that can be had again", || self.acquires(&key(nth)));
            self.releases(&key(nth), hold, token);
            end.keys.insert(key(nth), token);
        }
        if self.part.jobs {
            until("queues that are empty", || {
                while self.works(false) {}
                self.is_all_done().then_some(())
            });
            end.jobs = until("jobs that can be read", || self.jobs());
        }
        self.closes();
        end
    }

    fn is_all_done(&mut self) -> bool {
        let Ok(store) = self.store() else { return false };
        let Ok(queues) = block_on(store.jobs().unwrap().queues(&self.call)) else { return false };
        let open = |state| queues.iter().map(|view| *view.counts.clone().of(state)).sum::<u64>();
        [State::Queued, State::Scheduled, State::Running]
            .into_iter()
            .all(|state| open(state) == 0)
    }

    fn jobs(&mut self) -> Option<std::collections::BTreeMap<String, (bool, Option<String>)>> {
        use fencehold_store::job::JobsRequest;
        let store = self.store().ok()?;
        let jobs = store.jobs()?;
        let mut standing = std::collections::BTreeMap::new();
        let mut request = JobsRequest { limit: 100, ..JobsRequest::default() };
        loop {
            let page = block_on(jobs.jobs(&self.call, request.clone())).ok()?;
            for view in page.jobs {
                let detail = block_on(jobs.job(&self.call, view.id)).ok()??;
                let done = detail.effects.into_iter().find(|effect| effect.state == EffectState::Done);
                let value = done.and_then(|effect| effect.value).map(String::from);
                standing.insert(view.id.to_string(), (view.state == State::Completed, value));
            }
            request.cursor = page.next;
            if request.cursor.is_none() {
                return Some(standing);
            }
        }
    }
}

/// Tries until it comes, for a minute at most.
fn until<T>(what: &str, mut come: impl FnMut() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(it) = come() {
            return it;
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "never came: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn key(nth: u64) -> String {
    format!("key/{nth}")
}

fn queue() -> Queue {
    Queue::new("faults").unwrap()
}

fn effect() -> EffectName {
    EffectName::new("charge").unwrap()
}

fn hold_ref(key: &str, hold: HoldId, token: u64) -> HoldRef {
    HoldRef { key: Key::new(key).unwrap(), hold, token: Token::new(token) }
}

/// The answer to a call of one item. A refusal is an answer, too.
fn only<T, R: std::fmt::Display>(answers: Vec<Result<T, R>>, told: impl FnOnce(T) -> Tell) -> Tell {
    match answers.into_iter().next() {
        Some(Ok(answer)) => told(answer),
        Some(Err(refusal)) => Tell::Refused { why: refusal.to_string() },
        None => Tell::Refused { why: "no answer for one item".to_owned() },
    }
}

fn told_of(error: StoreError) -> Tell {
    match error {
        StoreError::Refused { refusal: Refusal::Held { token, .. }, .. } => Tell::Held { token: token.get() },
        error @ (StoreError::Unknown { .. } | StoreError::Unavailable { .. }) => {
            Tell::Unclear { why: error.to_string() }
        }
        error => Tell::Refused { why: error.to_string() },
    }
}

/// The histories that were written in a room.
pub fn histories(room: &Path) -> Vec<String> {
    let files = std::fs::read_dir(room).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

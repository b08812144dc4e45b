//! A process that uses a store at random, and writes down its requests and responses.
//!
//! It is the test binary itself, started with a part to play. What it writes, it writes before the request leaves and as
//! soon as the answer is there, so that a kill at any moment leaves nothing out but an answer.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{CallContext, LeaseStore, StoreError, StoreUrl};
use fencehold_core::job::JobState;
use fencehold_core::ledger::EffectState;
use fencehold_core::{Namespace, Timestamp};
use fencehold_proof::history::{CallHalf, FinalState, HistoryLine};
use fencehold_stores::open;
use fencehold_test_store::block_on;
use serde::{Deserialize, Serialize};

use crate::support::until;

const PART: &str = "FENCEHOLD_TEST_PART";
/// The test that plays a part where one is given.
const ROLE: &str = "faults::a_participant";

/// How many keys they fight for.
const KEYS: u64 = 3;
/// One hold in so many is ended by force.
const REVOKED_ONE_IN: u64 = 20;

/// What a participant is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ParticipantPlan {
    pub who: String,
    pub url: String,
    pub seed: u64,
    /// Where its history goes, and where a file `stop` says that it is over.
    pub dir: PathBuf,
    /// At most so many calls.
    pub calls: u64,
    pub jobs: bool,
    /// How long its leases and claims last.
    pub ttl_ms: u64,
    /// How long one call may take to reach the store.
    pub timeout_ms: u64,
    /// Whether it writes down at every call what its wall clock says.
    pub tells_the_time: bool,
    pub role: Role,
}

/// What it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Works,
    /// It is the last, and brings everything to its end.
    Ends,
    /// The same; a store that cannot be used is an end, too.
    EndsOrGivesUp,
}

/// How it all ended, as the last participant says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RunEnd {
    End(FinalState),
    /// The store cannot be used, and says why.
    Unusable(String),
}

impl ParticipantPlan {
    /// The process that plays it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", ROLE, "--nocapture", "--test-threads=1"])
            .env(PART, serde_json::to_string(self).unwrap());
        command
    }

    pub fn history(&self) -> PathBuf {
        self.dir.join(format!("{}.jsonl", self.who))
    }

    /// Where the last one says how it ended.
    pub fn final_state(&self) -> PathBuf {
        self.dir.join("finale.json")
    }
}

/// The process's part: plays it if it was given one, and never comes back then.
pub fn take_part_if_asked() {
    let Ok(plan) = std::env::var(PART) else { return };
    let plan: ParticipantPlan = serde_json::from_str(&plan).unwrap();
    let (stop, final_state, role) = (plan.dir.join("stop"), plan.final_state(), plan.role);
    let mut participant = Participant::new(plan);
    if role != Role::Works {
        let how = serde_json::to_string(&participant.finishes()).unwrap();
        std::fs::write(final_state, how).unwrap();
        std::process::exit(0);
    }
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

    pub fn bits<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| u8::try_from(self.below(256)).unwrap())
    }
}

pub struct Participant {
    pub plan: ParticipantPlan,
    pub random: Random,
    history: File,
    /// Where it writes down what its wall clock says, if it does.
    times: Option<File>,
    /// Why the store cannot be used, once it has said so.
    unusable: Option<String>,
    /// How many calls it has made.
    pub nth: u64,
    store: Option<Arc<dyn LeaseStore>>,
    pub call: CallContext,
}

impl Participant {
    pub fn new(plan: ParticipantPlan) -> Self {
        let opened = |path: PathBuf| OpenOptions::new().create(true).append(true).open(path).unwrap();
        let history = opened(plan.history());
        let times = plan.tells_the_time.then(|| opened(plan.history().with_extension("times")));
        let call = CallContext::new(Namespace::default()).with_timeout_ms(plan.timeout_ms);
        // Names are part of the seed: no two processes draw the same hold ids.
        let seed = plan
            .who
            .bytes()
            .fold(plan.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        Participant { random: Random(seed), history, times, unusable: None, nth: 0, store: None, call, plan }
    }

    fn is_through(&self) -> bool {
        self.nth >= self.plan.calls
    }

    /// Whether the store has said that it cannot be used, where that is an end.
    fn gives_up(&self) -> bool {
        self.plan.role == Role::EndsOrGivesUp && self.unusable.is_some()
    }

    /// Remembers why a store cannot be used.
    pub fn notes<T>(&mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ StoreError::Unusable { .. }) = &answer {
            self.unusable = Some(error.to_string());
        }
        answer
    }

    pub fn closes(self) {
        if let Some(store) = self.store {
            block_on(store.close());
        }
    }

    /// The store; opened again until it can be.
    pub fn store(&mut self) -> Result<Arc<dyn LeaseStore>, StoreError> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let url: StoreUrl = self.plan.url.parse().unwrap();
        let store = open(&url, Arc::new(SystemClock))?;
        Ok(Arc::clone(self.store.insert(store)))
    }

    pub fn write(&mut self, at_ms: u64, what: CallHalf) {
        let line = HistoryLine::new(self.plan.who.clone(), self.nth, at_ms, what);
        let text = serde_json::to_string(&line).unwrap() + "\n";
        // In one piece, so that a kill tears at most the last line.
        self.history.write_all(text.as_bytes()).unwrap();
    }

    /// Writes down how far the wall clock is ahead of the boot clock, which is never set.
    pub fn tells(&mut self, now: Timestamp) {
        if let Some(times) = &mut self.times {
            let line = format!("{}\n", now.wall_ms - now.store_ms);
            times.write_all(line.as_bytes()).unwrap();
        }
    }

    pub fn takes_a_turn(&mut self) {
        if self.plan.jobs && self.random.below(3) == 0 {
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
        // Now and then it is forgotten, as by one who was killed, or ended by force.
        if self.random.below(12) > 0 {
            if token.is_multiple_of(REVOKED_ONE_IN) {
                self.revokes(&key(nth));
            } else {
                self.releases(&key(nth), hold, token);
            }
        }
    }

    fn turns_to_a_job(&mut self) {
        if self.random.below(3) == 0 {
            self.enqueues();
        }
        // Now and then it is forgotten, as by one who was killed.
        let forgets = self.random.below(20) == 0;
        self.works(forgets);
    }

    /// Comes to every key and every job in turn until each was had: no one is stuck. Then says how all stands.
    fn finishes(mut self) -> RunEnd {
        let mut end = FinalState::default();
        for nth in 0..KEYS {
            let had = until("a key that can be had again", || {
                let had = self.acquires(&key(nth));
                (had.is_some() || self.gives_up()).then_some(had)
            });
            let Some((hold, token)) = had else { break };
            self.releases(&key(nth), hold, token);
            end.keys.insert(key(nth), token);
        }
        if self.plan.jobs && !self.gives_up() {
            until("queues that are empty", || {
                while self.works(false) {}
                (self.is_all_done() || self.gives_up()).then_some(())
            });
            let jobs = until("jobs that can be read", || {
                let jobs = self.jobs();
                (jobs.is_some() || self.gives_up()).then_some(jobs)
            });
            end.jobs = jobs.unwrap_or_default();
        }
        let final_state = match self.unusable.clone() {
            Some(why) if self.gives_up() => RunEnd::Unusable(why),
            _ => RunEnd::End(end),
        };
        self.closes();
        final_state
    }

    fn is_all_done(&mut self) -> bool {
        let Ok(store) = self.store() else { return false };
        let queues = block_on(store.jobs().unwrap().list_queues(&self.call));
        let Ok(queues) = self.notes(queues) else { return false };
        let open = |state| queues.queues.iter().map(|view| view.job_counts.get(state)).sum::<u64>();
        [JobState::Queued, JobState::Scheduled, JobState::Running]
            .into_iter()
            .all(|state| open(state) == 0)
    }

    fn jobs(&mut self) -> Option<BTreeMap<String, (bool, Option<String>)>> {
        use fencehold_contract::job::ListJobsRequest;
        let store = self.store().ok()?;
        let jobs = store.jobs()?;
        let mut standing = BTreeMap::new();
        let mut request = ListJobsRequest { limit: 100, ..ListJobsRequest::default() };
        loop {
            let page = block_on(jobs.list_jobs(&self.call, request.clone()));
            let page = self.notes(page).ok()?;
            for view in page.jobs {
                let detail = block_on(jobs.get_job(&self.call, view.id));
                let detail = self.notes(detail).ok()??;
                let done = detail.effects.into_iter().find(|effect| effect.state == EffectState::Done);
                let value = done.and_then(|effect| effect.value).map(String::from);
                standing.insert(view.id.to_string(), (view.state == JobState::Completed, value));
            }
            request.cursor = page.next_cursor;
            if request.cursor.is_none() {
                return Some(standing);
            }
        }
    }
}

/// The key of this number.
pub fn key(nth: u64) -> String {
    format!("key/{nth}")
}

/// The histories that were written in a room.
pub fn histories(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

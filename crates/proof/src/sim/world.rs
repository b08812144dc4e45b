//! The world of one seed: owners, a network, a store, and trouble; one event after the other, in virtual time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fencehold_contract::StoreError;
use fencehold_core::job::{JobId, QueueName};
use fencehold_core::{HoldId, Key, Timestamp};

use super::audit::Outage;
use super::counters::{CLOCK_OFF, Counters, says};
use super::disk::DiskEvent;
use super::history::SimHistory;
use super::owner::SimOwner;
use super::plan::{SimFault, SimPlan, StorageKind};
use super::random::SimRandom;
use super::store::{SimCaller, SimStore, StepResult};
use crate::simulated::{ImageState, MachineRequest, MachineResponse};

/// How long a sender waits before it sends again.
pub(super) const TIMEOUT_MS: u64 = 800;
/// How long the world goes on after the trouble has stopped, so that everything can come to its end.
pub(super) const AFTERMATH_MS: u64 = 60_000;
/// How many answers to repetitions, in a thousand, find a closed connection.
const UNREAD: u64 = 200;
/// So many things go wrong before the trouble may stop.
const FAULTS_MIN: u64 = 3;
/// When the clocks of the machine start.
const BOOT_MS: u64 = 1_000;
const WALL_MS: u64 = 1_800_000_000_000;
/// The rate of the store's clock.
const TRUE_RATE: u64 = 1_000;
const HOUR_MS: u64 = 60 * 60 * 1_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const QUIET_MS: u64 = 3 * HOUR_MS;

pub(super) type SimResponse = Result<MachineResponse, StoreError>;

pub(super) enum SimEvent {
    Arrives(SimCaller, MachineRequest),
    Told(SimCaller, MachineRequest, Box<SimResponse>),
    Wakes(usize, u64),
    Serves,
    Fault,
    StoreStarts(ImageState),
    /// The wall clock is corrected.
    WallReturns(i64),
}

/// One seed, as it goes.
pub(super) struct Simulation {
    pub(super) random: SimRandom,
    pub(super) plan: SimPlan,
    pub(super) now_ms: u64,
    pub(super) events: BTreeMap<(u64, u64), SimEvent>,
    pub(super) next_event: u64,
    pub(super) owners: Vec<SimOwner>,
    pub(super) keys: Vec<Key>,
    pub(super) queues: Vec<QueueName>,
    /// Every job that anybody tried to enqueue.
    pub(super) job_ids: Vec<JobId>,
    pub(super) store: SimStore,
    pub(super) inbox: Vec<(SimCaller, MachineRequest)>,
    pub(super) store_paused_until_ms: u64,
    /// When the store wakes next.
    pub(super) serves_at_ms: Option<u64>,
    /// When the machine's clock read `BOOT_MS`.
    pub(super) booted_ms: u64,
    pub(super) stopped_ms: u64,
    /// The same in true time.
    pub(super) stopped_at_ms: u64,
    pub(super) wall_shift_ms: i64,
    /// The least of it so far.
    pub(super) wall_shift_ms_least: i64,
    /// By how much it was set forward, in all.
    pub(super) wall_forward_ms: u64,
    /// The latest moment that the wall clock has shown before it was set back.
    pub(super) wall_ms_latest: u64,
    pub(super) next_hold: u64,
    pub(super) faults: u64,
    /// No more trouble, and no owner begins anything.
    pub(super) calm: bool,
    pub(super) ends_at_ms: Option<u64>,
    pub(super) tally: Counters,
    /// What the owners saw.
    pub(super) history: SimHistory,
    /// What happened, if anybody wants to read it.
    pub(super) story: Option<String>,
}

impl Simulation {
    pub(super) fn new(seed: u64, storage: Option<StorageKind>, tells: bool) -> Self {
        let mut random = SimRandom::new(seed);
        let mut plan = SimPlan::draw(&mut random);
        plan.storage = storage.unwrap_or(plan.storage);
        let mut owner = |nth| {
            let rate = TRUE_RATE - plan.skew + random.between(0, 2 * plan.skew);
            SimOwner::new(nth, rate)
        };
        let owners = (0..plan.owners).map(&mut owner).collect();
        let key = |nth: usize| Key::new(format!("key/{nth}")).expect("a short name");
        let keys = (0..plan.keys).map(key).collect();
        let queue = |nth: usize| QueueName::new(format!("queue {nth}")).expect("a short name");
        let queues = (0..plan.queues).map(queue).collect();
        let mut world = Simulation {
            random,
            now_ms: 0,
            events: BTreeMap::new(),
            next_event: 0,
            owners,
            keys,
            queues,
            job_ids: Vec::new(),
            store: SimStore::new(plan.storage),
            inbox: Vec::new(),
            store_paused_until_ms: 0,
            serves_at_ms: None,
            booted_ms: 0,
            stopped_ms: 0,
            stopped_at_ms: 0,
            wall_shift_ms: 0,
            wall_shift_ms_least: 0,
            wall_forward_ms: 0,
            wall_ms_latest: 0,
            next_hold: seed << 20,
            faults: 0,
            calm: false,
            ends_at_ms: None,
            tally: Counters::default(),
            history: SimHistory::default(),
            story: tells.then(String::new),
            plan,
        };
        let plan = format!("{:?}", world.plan);
        world.tell(|| plan);
        world.tally.history(world.plan.storage);
        for _ in world.owners.iter().filter(|owner| owner.rate != TRUE_RATE) {
            world.tally.count(CLOCK_OFF);
        }
        world.at(0, SimEvent::StoreStarts(ImageState::SameBoot));
        for owner in 0..world.owners.len() {
            let after_ms = world.random.between(0, 200);
            world.wakes_in(owner, after_ms);
        }
        let after_ms = world.random.between(1, world.plan.fault_every_ms);
        world.at(after_ms, SimEvent::Fault);
        world
    }

    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let (seconds, ms) = (self.now_ms / 1_000, self.now_ms % 1_000);
            let _ = writeln!(story, "{seconds:>6}.{ms:03}  {}", line());
        }
    }

    pub(super) fn at(&mut self, after_ms: u64, event: SimEvent) {
        self.next_event += 1;
        self.events.insert((self.now_ms + after_ms, self.next_event), event);
    }

    /// Wakes the store then, unless it is woken earlier.
    pub(super) fn serves_in(&mut self, after_ms: u64) {
        let at_ms = self.now_ms + after_ms;
        if self.serves_at_ms.is_none_or(|planned_ms| at_ms < planned_ms) {
            self.serves_at_ms = Some(at_ms);
            self.at(after_ms, SimEvent::Serves);
        }
    }

    pub(super) fn stamp(&self) -> Timestamp {
        let wall_ms = (WALL_MS + self.now_ms).saturating_add_signed(self.wall_shift_ms);
        Timestamp { store_ms: BOOT_MS + self.now_ms - self.booted_ms, wall_ms }
    }

    /// Runs to the end. An error says which promise was broken.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while let Some(((at_ms, _), event)) = self.events.pop_first() {
            if self.ends_at_ms.is_some_and(|ends_at_ms| at_ms > ends_at_ms) {
                break;
            }
            self.now_ms = at_ms;
            match event {
                SimEvent::Arrives(caller, question) => {
                    if self.store.serves() {
                        self.inbox.push((caller, question));
                        let after_ms = self.random.between(0, 2);
                        self.serves_in(after_ms);
                    }
                }
                SimEvent::Serves if self.serves_at_ms == Some(at_ms) => {
                    self.serves_at_ms = None;
                    self.serve()?;
                }
                // The store was woken earlier.
                SimEvent::Serves => {}
                SimEvent::Told(caller, question, answer) => self.told(caller, question, *answer)?,
                SimEvent::Wakes(owner, alarm) => self.wakes(owner, alarm),
                SimEvent::Fault => self.fault(),
                SimEvent::StoreStarts(found) => self.store_starts(found)?,
                SimEvent::WallReturns(by_ms) => self.wall_is_set(by_ms),
            }
            self.count_what_was_met();
            if !self.calm && self.store.decided >= self.plan.operations && self.faults >= FAULTS_MIN {
                self.calms_down();
            }
        }
        self.finale()
    }

    pub(super) fn calms_down(&mut self) {
        self.calm = true;
        // What sleeps wakes up first.
        let awake_ms = self.owners.iter().map(|owner| owner.paused_until_ms).max().unwrap_or(0);
        self.ends_at_ms = Some(awake_ms.max(self.now_ms) + AFTERMATH_MS);
        self.tell(|| "the trouble stops; everything must come to its end".to_owned());
        self.store.storage.meets(DiskEvent::Nothing, &mut self.random);
    }

    /// Puts a message on the network, which may lose, double or delay it.
    pub(super) fn send(&mut self, owner: usize, question: MachineRequest) {
        let caller = SimCaller { owner, life: self.owners[owner].life, sent_ms: self.now_ms };
        self.carry(|| SimEvent::Arrives(caller, question.clone()));
    }

    pub(super) fn carry(&mut self, event: impl Fn() -> SimEvent) {
        if !self.calm && self.random.per_mille(self.plan.lost) {
            self.tally.count("message lost");
            self.tell(|| "  … the message is lost".to_owned());
            return;
        }
        let copies = if !self.calm && self.random.per_mille(self.plan.doubled) { 2 } else { 1 };
        if copies == 2 {
            self.tally.count("message doubled");
        }
        for _ in 0..copies {
            let late = !self.calm && self.random.per_mille(100);
            let after_ms =
                if late { self.random.between(0, self.plan.delay_ms_max) } else { self.random.between(0, 2) };
            if after_ms > 2 {
                self.tally.count("message late");
            }
            self.at(after_ms, event());
        }
    }

    pub(super) fn serve(&mut self) -> Result<(), String> {
        if !self.store.serves() {
            self.inbox.clear();
            return Ok(());
        }
        if self.now_ms < self.store_paused_until_ms {
            let after_ms = self.store_paused_until_ms - self.now_ms;
            self.serves_in(after_ms);
            return Ok(());
        }
        let (now, arrived) = (self.stamp(), std::mem::take(&mut self.inbox));
        let lives: Vec<u32> = self.owners.iter().map(|owner| owner.life).collect();
        let is_there = |caller: &SimCaller| lives[caller.owner] == caller.life;
        match self.store.step(now, arrived, &mut self.random, is_there)? {
            StepResult::Kept(told) => {
                for (caller, question, answer) in told {
                    self.tally.answer(&question, &answer);
                    let name = &self.owners[caller.owner].name.clone();
                    self.tell(|| format!("the store answers {name}: {}", says(&answer)));
                    if self.is_unread(caller, &question, &answer)? {
                        continue;
                    }
                    self.carry(|| SimEvent::Told(caller, question.clone(), Box::new(answer.clone())));
                }
            }
            StepResult::Stopped => {
                if self.store.storage.power_is_gone() {
                    self.power_goes();
                } else {
                    self.tell(|| "the disk fails; the store says nothing and stops".to_owned());
                    self.store_stops(ImageState::SameBoot);
                }
            }
        }
        if let Some(due_ms) = self.store.next_due_ms() {
            let after_ms = due_ms.saturating_sub(now.store_ms).max(1);
            self.serves_in(after_ms);
        }
        Ok(())
    }

    /// A request was sent twice, and the second answer finds its connection closed. What an earlier sending was given stays
    /// with its holder. A first grant that is not read is not played here: whether it goes back is decided in the step that
    /// carries that out, since another sending may be answered meanwhile.
    fn is_unread(
        &mut self,
        caller: SimCaller,
        question: &MachineRequest,
        answer: &SimResponse,
    ) -> Result<bool, String> {
        let resumed = match answer {
            Ok(MachineResponse::Acquired(acquired)) => acquired.grant.resumed,
            Ok(MachineResponse::Claimed(claimed)) => claimed.resumed,
            _ => false,
        };
        if self.calm || !resumed || !self.random.per_mille(UNREAD) {
            return Ok(false);
        }
        self.tally.count("answer not read");
        self.tell(|| "  … the connection closes before the answer is read".to_owned());
        let gives_back = answer.as_ref().ok().and_then(|reply| question.after_unread(reply));
        let Some(gives_back) = gives_back else { return Ok(true) };
        if self.owners[caller.owner].works_under(&gives_back) {
            let name = &self.owners[caller.owner].name;
            return Err(format!(
                "P7: {name} was answered and works; the same request, sent again and not read, gives its work back"
            ));
        }
        self.send(caller.owner, gives_back);
        Ok(true)
    }

    pub(super) fn store_stops(&mut self, found: ImageState) {
        if self.store.serves() {
            self.stopped_ms = self.stamp().store_ms;
            self.stopped_at_ms = self.now_ms;
        }
        self.store.stops();
        self.store_paused_until_ms = 0;
        self.inbox.clear();
        self.serves_at_ms = None;
        let after_ms = self.random.between(1, 2_000);
        self.at(after_ms, SimEvent::StoreStarts(found));
    }

    fn power_goes(&mut self) {
        self.store_stops(ImageState::NewBoot);
        // The machine's clock starts anew.
        self.booted_ms = self.now_ms;
        let lost = self.store.storage.power_cut(&mut self.random);
        self.tell(|| format!("the power goes; {lost}"));
    }

    pub(super) fn store_starts(&mut self, found: ImageState) -> Result<(), String> {
        if self.store.serves() {
            return Ok(());
        }
        let now = self.stamp();
        let gap = Outage {
            stopped_ms: self.stopped_ms,
            now_ms: now.store_ms,
            wall_ms: now.wall_ms,
            down_ms: self.now_ms - self.stopped_at_ms,
            wall_is_sound: self.wall_shift_ms <= self.wall_shift_ms_least,
            wall_forward_ms: self.wall_forward_ms,
            found,
        };
        match self.store.starts(now, gap)? {
            Some(found) => {
                self.tell(|| format!("the store starts ({found:?})"));
                self.serves_in(1);
            }
            // The power went again while it started.
            None if self.store.storage.power_is_gone() => {
                self.tally.count("start failed");
                self.power_goes();
            }
            None => {
                self.tally.count("start failed");
                self.tell(|| "the disk does not let the store start".to_owned());
                let after_ms = self.random.between(1, 500);
                self.at(after_ms, SimEvent::StoreStarts(found));
            }
        }
        Ok(())
    }

    pub(super) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let mut fault = self.random.one_of(&self.plan.faults.clone());
        if fault.leaves_doubt() && self.store.accounts.are_many() {
            fault = SimFault::StoreKill;
        }
        // No fault comes in the quiet, or it would never end.
        let quiet_ms = if fault == SimFault::LongQuiet { QUIET_MS + TIMEOUT_MS } else { 0 };
        let after_ms = quiet_ms + self.random.between(1, self.plan.fault_every_ms * 2);
        self.at(after_ms, SimEvent::Fault);
        self.faults += 1;
        self.tell(|| format!("FAULT: {}", fault.name()));
        // Who is down cannot be struck, and what lies in wait on the disk strikes when it is met, if it ever is.
        let strikes = match fault {
            SimFault::StoreKill | SimFault::StorePause | SimFault::PowerCut | SimFault::UnsyncedLost => {
                self.store.serves()
            }
            fault => !fault.leaves_doubt(),
        };
        if strikes {
            self.tally.count(fault.name());
        }
        match fault {
            SimFault::OwnerCrash => {
                let at = self.some_owner();
                self.owners[at].crash();
                let after_ms = self.random.between(1, 500);
                self.wakes_in(at, after_ms);
            }
            SimFault::OwnerPause => {
                let (at, for_ms) = (self.some_owner(), self.random.between(100, 8_000));
                self.owners[at].paused_until_ms = self.now_ms + for_ms;
            }
            SimFault::StoreKill if self.store.serves() => self.store_stops(ImageState::SameBoot),
            SimFault::StorePause if self.store.serves() => {
                let for_ms = self.random.between(100, 6_000);
                // A pause within a pause does not end the first.
                self.store_paused_until_ms = self.store_paused_until_ms.max(self.now_ms + for_ms);
                let awake_ms = self.stamp().store_ms + self.store_paused_until_ms - self.now_ms;
                self.store.accounts.awake_since(awake_ms);
            }
            SimFault::PowerCut if self.store.serves() => self.power_goes(),
            SimFault::UnsyncedLost if self.store.serves() => {
                self.store_stops(ImageState::SameBoot);
                let lost = self.store.storage.loses_unsynced(&mut self.random);
                self.tell(|| format!("the file system goes down and comes back; {lost}"));
            }
            SimFault::PowerCutInWrite => self.store.storage.meets(DiskEvent::PowerGoes, &mut self.random),
            SimFault::SyncFails => self.store.storage.meets(DiskEvent::SyncFails, &mut self.random),
            SimFault::WriteFails => self.store.storage.meets(DiskEvent::WriteFails, &mut self.random),
            SimFault::DiskFull => self.store.storage.meets(DiskEvent::Full, &mut self.random),
            SimFault::WallClockJump => self.wall_clock_jumps(),
            SimFault::LongQuiet => {
                for owner in &mut self.owners {
                    owner.paused_until_ms = self.now_ms + QUIET_MS;
                }
            }
            SimFault::StoreKill | SimFault::StorePause | SimFault::PowerCut | SimFault::UnsyncedLost => {}
        }
    }

    /// The wall clock is set, by an hour or by a day at most either way; every other time it is corrected soon.
    fn wall_clock_jumps(&mut self) {
        let most_ms = self.random.one_of(&[HOUR_MS, DAY_MS]);
        let shift_ms = self.random.between(0, 2 * most_ms).cast_signed() - most_ms.cast_signed();
        let by_ms = shift_ms - self.wall_shift_ms;
        self.wall_is_set(by_ms);
        if self.random.per_mille(500) {
            let after_ms = self.random.between(1, 5_000);
            self.at(after_ms, SimEvent::WallReturns(-by_ms));
        }
    }

    fn wall_is_set(&mut self, by_ms: i64) {
        self.wall_ms_latest = self.wall_ms_latest.max(self.stamp().wall_ms);
        self.wall_shift_ms += by_ms;
        self.wall_forward_ms += by_ms.max(0).cast_unsigned();
        self.wall_shift_ms_least = self.wall_shift_ms_least.min(self.wall_shift_ms);
        self.tell(|| format!("the wall clock is set by {} s", by_ms / 1_000));
        // The store looks at the clock once a second, while anything is due.
        let after_ms = self.random.between(1, 1_000);
        self.serves_in(after_ms);
    }

    /// A fault of the disk counts when it strikes.
    fn count_what_was_met(&mut self) {
        for fault in self.store.storage.met().into_iter().filter_map(DiskEvent::fault) {
            self.tally.count(fault.name());
        }
    }

    pub(super) fn some_owner(&mut self) -> usize {
        usize::try_from(self.random.draw() % self.owners.len() as u64).unwrap_or(0)
    }

    pub(super) fn fresh_hold(&mut self) -> HoldId {
        self.next_hold += 1;
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.next_hold.to_le_bytes());
        HoldId::from_random(bits)
    }
}

//! The world of one seed: owners, a network, a store, and trouble; one event after the other, in virtual time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fencehold_core::{HoldId, Key, Stamp};
use fencehold_store::StoreError;
use fencehold_store::sim::{Found, Question, Reply};

use super::chance::Chance;
use super::disk::Meets;
use super::history::History;
use super::mix::{Fault, Mix};
use super::owner::{Owner, request};
use super::store::{Caller, Stepped, Store};
use super::tally::{Tally, says};

/// How long a sender waits before it sends again.
pub(super) const PATIENCE_MS: u64 = 800;
/// How long the world goes on after the trouble has stopped, so that everything can come to its end.
const AFTERMATH_MS: u64 = 60_000;
/// When the clocks of the machine start.
const BOOT_MS: u64 = 1_000;
const WALL_MS: u64 = 1_800_000_000_000;
const QUIET_MS: u64 = 3 * 60 * 60 * 1_000;

pub(super) type Answer = Result<Reply, StoreError>;

pub(super) enum Event {
    Arrives(Caller, Question),
    Told(Caller, Question, Box<Answer>),
    Wakes(usize, u64),
    Serves,
    Fault,
    StoreStarts(Found),
}

/// One seed, as it goes.
pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) mix: Mix,
    pub(super) now_ms: u64,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    pub(super) next_event: u64,
    pub(super) owners: Vec<Owner>,
    pub(super) keys: Vec<Key>,
    pub(super) store: Store,
    pub(super) inbox: Vec<(Caller, Question)>,
    pub(super) store_paused_until_ms: u64,
    /// When the store wakes next.
    pub(super) serves_at_ms: Option<u64>,
    /// When the machine's clock read `BOOT_MS`.
    pub(super) booted_ms: u64,
    pub(super) stopped_ms: u64,
    pub(super) wall_shift_ms: i64,
    pub(super) next_hold: u64,
    /// No more trouble, and nobody begins anything.
    pub(super) calm: bool,
    pub(super) ends_at_ms: Option<u64>,
    pub(super) tally: Tally,
    /// What the owners saw.
    pub(super) history: History,
    /// What happened, if anybody wants to read it.
    pub(super) story: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64, tells: bool) -> Self {
        let mut chance = Chance::new(seed);
        let mix = Mix::draw(&mut chance);
        let mut owner = |nth| {
            let rate = 1_000 - mix.skew + chance.between(0, 2 * mix.skew);
            Owner::new(nth, rate)
        };
        let owners = (0..mix.owners).map(&mut owner).collect();
        let key = |nth: usize| Key::new(format!("key/{nth}")).expect("a short name");
        let keys = (0..mix.keys).map(key).collect();
        let mut world = World {
            chance,
            now_ms: 0,
            events: BTreeMap::new(),
            next_event: 0,
            owners,
            keys,
            store: Store::new(),
            inbox: Vec::new(),
            store_paused_until_ms: 0,
            serves_at_ms: None,
            booted_ms: 0,
            stopped_ms: 0,
            wall_shift_ms: 0,
            next_hold: seed << 20,
            calm: false,
            ends_at_ms: None,
            tally: Tally::default(),
            history: History::default(),
            story: tells.then(String::new),
            mix,
        };
        let mix = format!("{:?}", world.mix);
        world.tell(|| mix);
        for owner in 0..world.owners.len() {
            let after_ms = world.chance.between(0, 200);
            world.wakes_in(owner, after_ms);
        }
        let after_ms = world.chance.between(1, world.mix.fault_every_ms);
        world.at(after_ms, Event::Fault);
        world
    }

    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let (seconds, ms) = (self.now_ms / 1_000, self.now_ms % 1_000);
            let _ = writeln!(story, "{seconds:>6}.{ms:03}  {}", line());
        }
    }

    pub(super) fn at(&mut self, after_ms: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now_ms + after_ms, self.next_event), event);
    }

    /// Wakes the store then, unless it is woken earlier.
    pub(super) fn serves_in(&mut self, after_ms: u64) {
        let at_ms = self.now_ms + after_ms;
        if self.serves_at_ms.is_none_or(|planned_ms| at_ms < planned_ms) {
            self.serves_at_ms = Some(at_ms);
            self.at(after_ms, Event::Serves);
        }
    }

    pub(super) fn stamp(&self) -> Stamp {
        let wall_ms = (WALL_MS + self.now_ms).saturating_add_signed(self.wall_shift_ms);
        Stamp { store_ms: BOOT_MS + self.now_ms - self.booted_ms, wall_ms }
    }

    /// Runs to the end. An error says which promise was broken.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while let Some(((at_ms, _), event)) = self.events.pop_first() {
            if self.ends_at_ms.is_some_and(|ends_at_ms| at_ms > ends_at_ms) {
                break;
            }
            self.now_ms = at_ms;
            match event {
                Event::Arrives(caller, question) => {
                    if self.store.serves() {
                        self.inbox.push((caller, question));
                        let after_ms = self.chance.between(0, 2);
                        self.serves_in(after_ms);
                    }
                }
                Event::Serves if self.serves_at_ms == Some(at_ms) => {
                    self.serves_at_ms = None;
                    self.serve()?;
                }
                // The store was woken earlier.
                Event::Serves => {}
                Event::Told(caller, question, answer) => self.told(caller, question, *answer)?,
                Event::Wakes(owner, alarm) => self.wakes(owner, alarm),
                Event::Fault => self.fault(),
                Event::StoreStarts(found) => self.store_starts(found),
            }
            if !self.calm && self.store.decided >= self.mix.operations {
                self.calms_down();
            }
        }
        self.finale()
    }

    pub(super) fn calms_down(&mut self) {
        self.calm = true;
        // Whoever sleeps for hours wakes up first.
        self.ends_at_ms = Some(self.now_ms + QUIET_MS + AFTERMATH_MS);
        self.tell(|| "the trouble stops; everything must come to its end".to_owned());
        self.store.disk.next = Meets::Nothing;
    }

    /// Puts a message on the network, which may lose, double or delay it.
    pub(super) fn send(&mut self, owner: usize, question: Question) {
        let caller = Caller { owner, life: self.owners[owner].life, sent_ms: self.now_ms };
        self.carry(|| Event::Arrives(caller, question.clone()));
    }

    pub(super) fn carry(&mut self, event: impl Fn() -> Event) {
        if !self.calm && self.chance.per_mille(self.mix.lost) {
            self.tally.count("message lost");
            self.tell(|| "  … the message is lost".to_owned());
            return;
        }
        let copies = if !self.calm && self.chance.per_mille(self.mix.doubled) { 2 } else { 1 };
        if copies == 2 {
            self.tally.count("message doubled");
        }
        for _ in 0..copies {
            let late = !self.calm && self.chance.per_mille(100);
            let after_ms =
                if late { self.chance.between(0, self.mix.delay_ms_max) } else { self.chance.between(0, 2) };
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
        let is_there = |caller: &Caller| lives[caller.owner] == caller.life;
        match self.store.step(now, arrived, &mut self.chance, is_there)? {
            Stepped::Kept(told) => {
                for (caller, question, answer) in told {
                    self.tally.answer(&question, &answer);
                    let name = &self.owners[caller.owner].name.clone();
                    self.tell(|| format!("the store answers {name}: {}", says(&answer)));
                    self.carry(|| Event::Told(caller, question.clone(), Box::new(answer.clone())));
                }
            }
            Stepped::Stopped => {
                self.tell(|| "the disk fails; the store says nothing and stops".to_owned());
                self.store_stops(Found::FailedDisk);
            }
        }
        if let Some(due_ms) = self.store.next_due_ms() {
            let after_ms = due_ms.saturating_sub(now.store_ms).max(1);
            self.serves_in(after_ms);
        }
        Ok(())
    }

    pub(super) fn store_stops(&mut self, found: Found) {
        self.store.stops();
        self.inbox.clear();
        self.serves_at_ms = None;
        self.stopped_ms = self.stamp().store_ms;
        let after_ms = self.chance.between(1, 2_000);
        self.at(after_ms, Event::StoreStarts(found));
    }

    pub(super) fn store_starts(&mut self, found: Found) {
        if self.store.serves() {
            return;
        }
        let marked = std::mem::take(&mut self.store.disk.marked);
        let found = match found {
            Found::NewBoot => {
                self.booted_ms = self.now_ms;
                Found::NewBoot
            }
            _ if marked => Found::FailedDisk,
            found => found,
        };
        let now = self.stamp();
        self.store.starts(self.stopped_ms, now, found);
        self.tell(|| format!("the store starts again ({found:?})"));
        self.serves_in(1);
    }

    pub(super) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let fault = self.chance.one_of(&self.mix.faults.clone());
        // Nobody is disturbed in the quiet, or it would never end.
        let quiet_ms = if fault == Fault::LongQuiet { QUIET_MS + PATIENCE_MS } else { 0 };
        let after_ms = quiet_ms + self.chance.between(1, self.mix.fault_every_ms * 2);
        self.at(after_ms, Event::Fault);
        self.tally.count(fault.name());
        self.tell(|| format!("FAULT: {}", fault.name()));
        match fault {
            Fault::OwnerCrash => {
                let at = self.some_owner();
                self.owners[at].crash();
                let after_ms = self.chance.between(1, 500);
                self.wakes_in(at, after_ms);
            }
            Fault::OwnerPause => {
                let (at, for_ms) = (self.some_owner(), self.chance.between(100, 8_000));
                self.owners[at].paused_until_ms = self.now_ms + for_ms;
            }
            Fault::StoreKill if self.store.serves() => self.store_stops(Found::SameBoot),
            Fault::StorePause => {
                let for_ms = self.chance.between(100, 6_000);
                self.store_paused_until_ms = self.now_ms + for_ms;
                self.store.auditor.awake_since_ms = self.stamp().store_ms + for_ms;
            }
            Fault::PowerCut if self.store.serves() => {
                self.store_stops(Found::NewBoot);
                let lost = self.store.disk.power_cut(&mut self.chance);
                self.tell(|| format!("{lost} batches that were not synced are lost"));
            }
            Fault::SyncFails => self.store.disk.next = Meets::SyncFails,
            Fault::DiskFull => self.store.disk.next = Meets::Full,
            Fault::WallClockJump => {
                let by_ms = self.chance.between(0, 7_200_000).cast_signed() - 3_600_000;
                self.wall_shift_ms += by_ms;
            }
            Fault::LongQuiet => {
                for owner in &mut self.owners {
                    owner.paused_until_ms = self.now_ms + QUIET_MS;
                }
            }
            Fault::StoreKill | Fault::PowerCut => {}
        }
    }

    pub(super) fn some_owner(&mut self) -> usize {
        usize::try_from(self.chance.draw() % self.owners.len() as u64).unwrap_or(0)
    }

    pub(super) fn fresh_hold(&mut self) -> HoldId {
        self.next_hold += 1;
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.next_hold.to_le_bytes());
        HoldId::from_random(bits)
    }

    /// Whatever died, stalled or was lost: in the end every key can be had.
    pub(super) fn finale(&mut self) -> Result<(), String> {
        self.now_ms += AFTERMATH_MS;
        if !self.store.serves() {
            self.store_starts(Found::SameBoot);
        }
        self.store_paused_until_ms = 0;
        for at in 0..self.keys.len() {
            let hold = self.fresh_hold();
            let caller = Caller { owner: 0, life: self.owners[0].life, sent_ms: self.now_ms };
            let ask = Question::Acquire(request(vec![self.keys[at].clone()], hold, "the last", 1_000, 0));
            let now = self.stamp();
            let stepped = self.store.step(now, vec![(caller, ask)], &mut self.chance, |_| true)?;
            let granted = match &stepped {
                Stepped::Kept(told) => {
                    told.iter().any(|(_, _, answer)| matches!(answer, Ok(Reply::Acquired(_))))
                }
                Stepped::Stopped => false,
            };
            if !granted {
                return Err(format!("P10: {} cannot be had after everything has ended", self.keys[at]));
            }
        }
        self.tally.operations += self.store.decided;
        self.history.is_linearizable()
    }
}

//! Participants of one store, what is done to them, and how it ends.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencehold_proof::history::{Judgement, check};
use rustix::process::Signal;

use super::participant::{ParticipantPlan, Random, Role, RunEnd, histories};
use crate::support::RunningProcess;

/// How much trouble there is to be.
#[derive(Clone, Copy)]
pub struct FaultRates {
    pub participants: usize,
    pub kills: usize,
    /// Stops for longer than a ttl, and than an owner may be silent.
    pub stops: usize,
    /// At least so many calls in all.
    pub calls: usize,
}

/// How long a lease or a claim of a participant lasts, where a store takes so little.
const TTL_MS: u64 = 1_000;
/// How long one who is stopped stays so: longer than a ttl and than the silence after which an owner is replaced.
const STOPPED_FOR: Duration = Duration::from_millis(2_600);
/// How long a participant lives before something may happen to it.
const PACE_MS: u64 = 120;
/// For how long trouble may go on until there were calls enough.
const LIMIT: Duration = Duration::from_secs(500);

/// Lets a fault, or the peace between two, last. Nothing is ordered by it: whatever the participants do meanwhile may come
/// in any order, and what they saw is judged by its own times.
pub fn lasts(time: Duration) {
    std::thread::sleep(time);
}

/// The participants of one store.
pub struct Participants<'a> {
    url: String,
    dir: &'a Path,
    jobs: bool,
    ttl_ms: u64,
    tells_the_time: bool,
    random: Random,
    started: AtomicU64,
    /// What every participant's process is started with.
    prepare: fn(&mut Command),
}

impl<'a> Participants<'a> {
    pub fn new(url: &str, dir: &'a Path) -> Self {
        let seed = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
        Participants {
            url: url.to_owned(),
            dir,
            jobs: true,
            ttl_ms: TTL_MS,
            tells_the_time: false,
            random: Random(seed),
            started: AtomicU64::new(0),
            prepare: |_| {},
        }
    }

    /// On a store that keeps leases alone.
    pub fn without_jobs(self) -> Self {
        Participants { jobs: false, ..self }
    }

    /// With leases that last for so long.
    pub fn with_ttl_ms(self, ttl_ms: u64) -> Self {
        Participants { ttl_ms, ..self }
    }

    /// Each writes down what its wall clock says.
    pub fn that_tells_the_time(self) -> Self {
        Participants { tells_the_time: true, ..self }
    }

    pub fn prepared(self, prepare: fn(&mut Command)) -> Self {
        Participants { prepare, ..self }
    }

    pub fn plan(&mut self) -> ParticipantPlan {
        let nth = self.started.fetch_add(1, Ordering::Relaxed);
        let seed = self.random.below(u64::MAX);
        self.part_of(&format!("p{nth}"), seed)
    }

    fn part_of(&self, who: &str, seed: u64) -> ParticipantPlan {
        ParticipantPlan {
            who: who.to_owned(),
            url: self.url.clone(),
            seed,
            dir: self.dir.to_owned(),
            calls: u64::MAX,
            jobs: self.jobs,
            ttl_ms: self.ttl_ms,
            timeout_ms: 10_000,
            tells_the_time: self.tells_the_time,
            role: Role::Works,
        }
    }

    pub fn start(&mut self) -> RunningProcess {
        let plan = self.plan();
        self.play(&plan)
    }

    /// The process that plays a part.
    pub fn play(&self, plan: &ParticipantPlan) -> RunningProcess {
        let mut command = plan.command();
        (self.prepare)(&mut command);
        RunningProcess::adopt(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Has participants work while some are killed and some are stopped. `meanwhile` is called before each of these.
    pub fn suffers(&mut self, dose: FaultRates, mut meanwhile: impl FnMut(usize)) {
        let began = Instant::now();
        let mut running: Vec<RunningProcess> = (0..dose.participants).map(|_| self.start()).collect();
        let mut stopped: Vec<(RunningProcess, Instant)> = Vec::new();
        let (mut kills, mut stops) = (0, 0);
        while kills < dose.kills || stops < dose.stops || self.calls() < dose.calls {
            assert!(began.elapsed() < LIMIT, "too few calls: {}", self.calls());
            lasts(Duration::from_millis(PACE_MS / 2 + self.random.below(PACE_MS)));
            while let Some(at) = stopped.iter().position(|(_, since)| since.elapsed() >= STOPPED_FOR) {
                let (wakes, _) = stopped.swap_remove(at);
                wakes.send(Signal::CONT);
                running.push(wakes);
            }
            meanwhile(kills + stops);
            let at = usize::try_from(self.random.below(running.len() as u64)).unwrap();
            if stops < dose.stops && stopped.len() < dose.participants / 2 && self.random.below(3) == 0 {
                let sleeper = running.swap_remove(at);
                sleeper.send(Signal::STOP);
                stopped.push((sleeper, Instant::now()));
                stops += 1;
            } else if kills < dose.kills {
                // `RunningProcess` kills with -9 when it goes.
                drop(running.swap_remove(at));
                kills += 1;
                running.push(self.start());
            }
            if running.is_empty() {
                running.push(self.start());
            }
        }
        for (wakes, _) in stopped {
            wakes.send(Signal::CONT);
            running.push(wakes);
        }
        std::fs::write(self.dir.join("stop"), "").unwrap();
        for mut one in running {
            let ended = one.child.wait().unwrap();
            assert!(ended.success(), "a participant ended badly: {ended}");
        }
    }

    /// How many calls there were so far: each has written two lines, but for those that a kill cut short.
    pub fn calls(&self) -> usize {
        histories(self.dir).iter().map(|history| history.lines().count() / 2).sum()
    }

    /// The trouble is over: everything comes to its end, and what was seen is checked.
    pub fn ends(self) -> Judgement {
        match self.final_state(Role::Ends) {
            RunEnd::End(end) => self.judges(Some(&end)),
            RunEnd::Unusable(why) => panic!("the store cannot be used any more: {why}"),
        }
    }

    /// The same where a store that says that it cannot be used is right, too; and why it cannot.
    pub fn ends_or_is_unusable(self) -> Result<Judgement, String> {
        match self.final_state(Role::EndsOrGivesUp) {
            RunEnd::End(end) => Ok(self.judges(Some(&end))),
            RunEnd::Unusable(why) => {
                self.judges(None);
                Err(why)
            }
        }
    }

    /// What the last participant says: a process like the others, in the same surroundings.
    fn final_state(&self, role: Role) -> RunEnd {
        // No two processes draw the same hold ids: those of the others were drawn from their own names.
        let plan = ParticipantPlan { role, ..self.part_of("last", self.random.0) };
        let ended = self.play(&plan).child.wait().unwrap();
        let said = || std::fs::read_to_string(plan.history()).unwrap_or_default();
        let last = |said: String| said.lines().last().unwrap_or_default().to_owned();
        assert!(ended.success(), "the last participant ended badly: {ended}: {}", last(said()));
        serde_json::from_str(&std::fs::read_to_string(plan.final_state()).unwrap()).unwrap()
    }

    pub fn judges(&self, end: Option<&fencehold_proof::history::FinalState>) -> Judgement {
        let histories = histories(self.dir);
        let judgement = check(histories.iter().map(String::as_str), end);
        if !judgement.problems.is_empty() {
            let kept = std::env::temp_dir().join(format!("fencehold-faults-{}", std::process::id()));
            let _ = std::fs::create_dir_all(&kept);
            for (nth, history) in histories.iter().enumerate() {
                let _ = std::fs::write(kept.join(format!("{nth}.jsonl")), history);
            }
            panic!("{judgement}\nthe histories are in {}", kept.display());
        }
        judgement
    }
}

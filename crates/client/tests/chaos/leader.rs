//! The leader: starts the workers, hears what they say, and does to them what is drawn.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fencehold::job::AttemptOutcome;
use fencehold::{BlockedAction, Event, EventData, JobId};

use super::environment::{Environment, FaultedServer, ServerFault};
use super::{LeaderEvent, Random};
use crate::worker_processes::{
    AttemptEvent, AttemptKey, ProcessEvent, TIMEOUT, TTL, WorkDirectory, WorkerProcess,
};

const WORKERS: usize = 8;
/// How many attempts are kept where they hold still, so that there is always one to hit.
const HELD: usize = 10;
/// At most how many are stopped at a time: one must be there to take over.
const STOPPED_MAX: usize = 3;
/// After this a stopped process goes on, even if no other worker has taken its job: it may block all others.
const STOP_MAX: Duration = Duration::from_secs(9);

/// What is done to a worker, or to the process that serves all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    Stop,
    KillOwner,
    StopOwner,
    /// Some of the connections to it are ended.
    CutOff,
}

impl Fault {
    fn is_to_owner(self) -> bool {
        matches!(self, Fault::KillOwner | Fault::StopOwner | Fault::CutOff)
    }

    fn is_stop(self) -> bool {
        matches!(self, Fault::Stop | Fault::StopOwner)
    }
}

/// What the test must have done to running jobs, to be worth anything.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FaultCounts {
    pub(crate) kills: usize,
    pub(crate) stops: usize,
    pub(crate) stale_writes: usize,
    /// Of those who served all of them.
    pub(crate) owner_deaths: usize,
    pub(crate) cut_off: usize,
}

impl FaultCounts {
    /// For a minute; shorter runs owe a third. The ground says what is owed of its own.
    pub(crate) fn owed(span: Duration, environment: &dyn Environment) -> Self {
        let share = |whole: usize| if span >= Duration::from_secs(60) { whole } else { whole.div_ceil(3) };
        let FaultedServer { deaths, cut_off } = environment.owed(&share);
        FaultCounts {
            kills: share(30),
            stops: share(10),
            stale_writes: share(10),
            owner_deaths: deaths,
            cut_off,
        }
    }

    pub(crate) fn covers(&self, owed: &FaultCounts) -> bool {
        self.kills >= owed.kills
            && self.stops >= owed.stops
            && self.stale_writes >= owed.stale_writes
            && self.owner_deaths >= owed.owner_deaths
            && self.cut_off >= owed.cut_off
    }
}

struct ChaosWorker {
    number: usize,
    process: WorkerProcess,
    stopped: Option<StoppedWorker>,
}

struct StoppedWorker {
    since: Instant,
    fault: Fault,
    /// What it was about when it was stopped.
    running: Vec<AttemptKey>,
    /// Those of which one must have another holder before it goes on.
    awaited: Vec<AttemptKey>,
}

/// Leads the workers, and does to them what is drawn.
pub(crate) struct ChaosLeader {
    work_dir: WorkDirectory,
    random: Random,
    news: mpsc::Sender<LeaderEvent>,
    workers: Vec<ChaosWorker>,
    pub(crate) environment: Box<dyn Environment>,
    started: usize,
    owner_pid: Option<u32>,
    /// What is to be done to the next worker that holds still.
    due: Option<Fault>,
    running: HashMap<AttemptKey, usize>,
    /// Those that hold still, longest first, with their workers.
    held: VecDeque<(usize, AttemptKey)>,
    held_max: usize,
    /// The newest attempt at each job that has raised the fence.
    newest: HashMap<String, u64>,
    crashed: HashSet<AttemptKey>,
    stale: HashSet<AttemptKey>,
    done: Vec<(Fault, Vec<AttemptKey>)>,
}

impl ChaosLeader {
    pub(crate) fn new(
        work_dir: WorkDirectory,
        seed: u64,
        news: mpsc::Sender<LeaderEvent>,
        environment: Box<dyn Environment>,
    ) -> Self {
        let mut leader = ChaosLeader {
            work_dir,
            random: Random(seed),
            news,
            workers: Vec::new(),
            environment,
            started: 0,
            owner_pid: None,
            due: None,
            running: HashMap::new(),
            held: VecDeque::new(),
            held_max: HELD,
            newest: HashMap::new(),
            crashed: HashSet::new(),
            stale: HashSet::new(),
            done: Vec::new(),
        };
        for _ in 0..WORKERS {
            let worker = leader.start();
            leader.workers.push(worker);
        }
        leader
    }

    fn start(&mut self) -> ChaosWorker {
        self.started += 1;
        let (number, news) = (self.started, self.news.clone());
        let told = move |said| drop(news.send(LeaderEvent::Said(number, said)));
        let name = format!("worker-{number}");
        let process = WorkerProcess::start("chaos::worker::the_worker", &name, &self.work_dir, told);
        ChaosWorker { number, process, stopped: None }
    }

    fn hear(&mut self, news: LeaderEvent) {
        match news {
            LeaderEvent::Said(number, ProcessEvent { what, attempt }) => {
                self.hear_worker(number, what, attempt);
            }
            LeaderEvent::Owner(pid) => {
                self.owner_pid = pid;
                // Owners come and go: what is meant for one comes to it at once.
                if let Some(fault) = self.due
                    && fault.is_to_owner()
                    && self.befall(fault)
                {
                    self.due = None;
                }
            }
            LeaderEvent::Happened(Event { key, data: fact, .. }) => match fact {
                EventData::JobAttemptEnded { token, outcome: AttemptOutcome::Crashed, .. } => {
                    self.crashed.insert((key.to_string(), token.get()));
                }
                // A renewal writes nothing that anybody would miss.
                EventData::StaleWriteBlocked { action: BlockedAction::Renew, .. } => {}
                EventData::StaleWriteBlocked { token: stale_token, .. } => {
                    self.stale.insert((key.to_string(), stale_token.get()));
                }
                _ => {}
            },
            LeaderEvent::Done(_) => unreachable!("it comes only when there is no more trouble"),
        }
    }

    fn hear_worker(&mut self, number: usize, what: AttemptEvent, attempt: AttemptKey) {
        match what {
            AttemptEvent::Refused => {
                self.stale.insert(attempt);
            }
            AttemptEvent::Ended => {
                self.running.remove(&attempt);
            }
            AttemptEvent::Begun => {
                let newest = self.newest.entry(attempt.0.clone()).or_default();
                *newest = attempt.1.max(*newest);
                if self.place(number).is_some() {
                    self.running.insert(attempt, number);
                }
            }
            AttemptEvent::Holds => {
                let Some(at) = self.place(number) else { return };
                match self.due {
                    Some(fault) if self.fits(at, fault) => {
                        self.due = None;
                        self.carry_out(fault, at, Some(&attempt));
                    }
                    _ => {}
                }
                self.held.push_back((number, attempt));
                self.let_go();
            }
        }
    }

    /// Has those go on who have held still for longest. One who is stopped hears it when it wakes.
    fn let_go(&mut self) {
        while self.held.len() > self.held_max
            && let Some((number, attempt)) = self.held.pop_front()
        {
            if let Some(at) = self.place(number) {
                self.workers[at].process.let_go(&attempt);
            }
        }
    }

    /// Where this worker stands, unless it is dead.
    fn place(&self, number: usize) -> Option<usize> {
        self.workers.iter().position(|worker| worker.number == number)
    }

    fn attempts_of(&self, number: usize) -> Vec<AttemptKey> {
        let of_worker = self.running.iter().filter(|(_, by)| **by == number);
        of_worker.map(|(attempt, _)| attempt.clone()).collect()
    }

    fn fits(&self, at: usize, fault: Fault) -> bool {
        let worker = &self.workers[at];
        let stopped = self.workers.iter().filter(|worker| worker.stopped.is_some()).count();
        let is_owner = self.owner_pid == Some(worker.process.pid());
        worker.stopped.is_none()
            && self.running.values().any(|number| *number == worker.number)
            && is_owner == fault.is_to_owner()
            && (!fault.is_stop() || stopped < STOPPED_MAX)
    }

    /// Draws the next trouble: for any process, or for the next that holds still. If none does in time, it comes to any; trouble
    /// that fits none waits for one that it fits, and keeps nothing else waiting.
    fn trouble(&mut self) {
        if let Some(overdue) = self.due.take()
            && !self.befall(overdue)
        {
            self.due = Some(overdue);
        }
        let drawn = self.random.one_of(self.environment.deeds());
        if self.due.is_none() && self.random.below(2) == 0 {
            self.due = Some(drawn);
        } else {
            self.befall(drawn);
        }
    }

    /// Does it to anybody whom it fits. False: there is none.
    fn befall(&mut self, fault: Fault) -> bool {
        if fault.is_to_owner() {
            match self.environment.strike(fault, !self.running.is_empty(), &mut self.random) {
                ServerFault::Done => return true,
                ServerFault::NotNow => return false,
                ServerFault::AtAWorker => {}
            }
        }
        let fitting: Vec<usize> = (0..self.workers.len()).filter(|at| self.fits(*at, fault)).collect();
        if fitting.is_empty() {
            return false;
        }
        let at = self.random.one_of(&fitting);
        self.carry_out(fault, at, None);
        true
    }

    fn carry_out(&mut self, fault: Fault, at: usize, holds: Option<&AttemptKey>) {
        let running = self.attempts_of(self.workers[at].number);
        if fault.is_stop() {
            self.workers[at].process.stop();
            let awaited = holds.map_or_else(|| running.clone(), |attempt| vec![attempt.clone()]);
            self.workers[at].stopped = Some(StoppedWorker { since: Instant::now(), fault, running, awaited });
        } else {
            self.workers[at].process.kill();
            let victim = self.workers[at].number;
            self.running.retain(|_, number| *number != victim);
            self.held.retain(|(number, _)| *number != victim);
            self.workers[at] = self.start();
            self.done.push((fault, running));
        }
    }

    /// Has those go on whose jobs others have begun, so that they meet them.
    fn wake(&mut self, everybody: bool) {
        self.environment.wake(everybody);
        for worker in &mut self.workers {
            let Some(stopped) = &worker.stopped else { continue };
            let slept = stopped.since.elapsed();
            let superseded =
                |(key, token): &AttemptKey| self.newest.get(key).is_some_and(|newest| newest > token);
            let met = slept > TTL && stopped.awaited.iter().any(superseded);
            if everybody || met || slept > STOP_MAX {
                worker.process.resume();
                if slept > TTL {
                    self.done.push((stopped.fault, stopped.running.clone()));
                }
                worker.stopped = None;
            }
        }
    }

    fn look_after(&mut self) {
        for worker in &mut self.workers {
            let ended = if worker.stopped.is_none() { worker.process.ended() } else { None };
            assert!(ended.is_none(), "{} ended by itself: {ended:?}", worker.process.name);
        }
    }

    /// Counts what hit a running job: one of its attempts is on record as crashed.
    pub(crate) fn counts(&self) -> FaultCounts {
        let hits = |deeds: &[Fault]| {
            let hit = |(fault, running): &&(Fault, Vec<AttemptKey>)| {
                deeds.contains(fault) && running.iter().any(|attempt| self.crashed.contains(attempt))
            };
            self.done.iter().filter(hit).count()
        };
        let FaultedServer { deaths, cut_off } = self.environment.struck();
        FaultCounts {
            kills: hits(&[Fault::Kill]),
            stops: hits(&[Fault::Stop, Fault::StopOwner]),
            stale_writes: self.stale.len(),
            owner_deaths: hits(&[Fault::KillOwner]) + deaths,
            cut_off,
        }
    }

    /// Trouble for as long as it takes: on a slow machine longer than it should.
    pub(crate) fn lead(&mut self, inbox: &mpsc::Receiver<LeaderEvent>, span: Duration) {
        let (begun, owed) = (Instant::now(), FaultCounts::owed(span, &*self.environment));
        let mut next = begun;
        while begun.elapsed() < span || (!self.counts().covers(&owed) && begun.elapsed() < 4 * span) {
            if let Ok(news) = inbox.recv_timeout(Duration::from_millis(20)) {
                self.hear(news);
            }
            self.wake(false);
            if Instant::now() >= next {
                self.look_after();
                self.trouble();
                next = Instant::now() + Duration::from_millis(100 + self.random.below(400));
            }
        }
    }

    /// No more trouble: what is stopped goes on, and all jobs come to their end.
    pub(crate) fn settle(&mut self, inbox: &mpsc::Receiver<LeaderEvent>) -> Vec<JobId> {
        self.due = None;
        self.held_max = 0;
        self.let_go();
        self.wake(true);
        let since = Instant::now();
        loop {
            match inbox.recv_timeout(Duration::from_secs(1)) {
                Ok(LeaderEvent::Done(fed)) => return fed,
                Ok(news) => self.hear(news),
                Err(_) => self.look_after(),
            }
            let running = &self.running;
            assert!(since.elapsed() < TIMEOUT, "jobs do not come to their end; these run still: {running:?}");
        }
    }

    /// Has the workers end in good order: none is left running.
    pub(crate) fn finish(self) -> Box<dyn Environment> {
        for worker in self.workers {
            worker.process.finish();
        }
        self.environment
    }
}

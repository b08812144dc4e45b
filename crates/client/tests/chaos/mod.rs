//! Eight workers on one directory, killed and stopped while they work, the owner of the directory among them (P2, P5, P6,
//! P8, P10): in the end every job is done, and every effect and every line is there once.
//!
//! The same through a server that is killed and stopped as they are; and on PostgreSQL, whose connections are ended and which
//! is restarted without having written anything.
//!
//! With `FENCEHOLD_CHAOS_CLOCKS` the wall clocks of all workers, and so of the owner of the directory, are set all the while, by
//! up to a day either way; and jobs wait for a delay or for a moment of the wall clock.
//!
//! All the while, the counts of the store are held against a replay of its events (`replay`).
//!
//! What is done to whom is drawn from a seed, which is printed; when processes run is the machine's affair. Half of the
//! trouble comes at any moment, half at a moment that a job holds still for it.
#![allow(clippy::disallowed_methods, reason = "trouble has its pace in real time; nothing is ordered by it")]
#![allow(clippy::print_stdout, reason = "what was done, and from which seed, is printed")]

mod environment;
mod leader;
#[cfg(feature = "postgres")]
mod postgres;
mod producer;
mod replay;
#[cfg(feature = "remote")]
mod server;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use environment::{Directory, Environment};
use fencehold::job::{EffectState, JobCounts, JobState};
use fencehold::{Event, JobId};
use leader::{ChaosLeader, FaultCounts};
use producer::Producer;

use crate::worker_processes::{ProcessEvent, WorkDirectory};

pub(crate) const QUEUE: &str = "chaos";

/// What the leader hears.
pub(crate) enum LeaderEvent {
    /// From the worker of this number.
    Said(usize, ProcessEvent),
    Happened(Event),
    Owner(Option<u32>),
    /// All of these jobs were fed, and all have come to their end.
    Done(Vec<JobId>),
}

/// Splitmix64: the same seed, the same choices.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let length = u64::try_from(all.len()).unwrap();
        all[usize::try_from(self.below(length)).unwrap()]
    }
}
fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    number_in("FENCEHOLD_CHAOS_SEED").unwrap_or_else(|| u64::from(now.subsec_nanos()))
}

/// One at a time: each has the machine to itself.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn whatever_dies_or_stalls_every_job_is_done_and_every_effect_and_line_is_there_once() {
    chaos(|_| Box::new(Directory)).await;
}

#[cfg(feature = "remote")]
#[tokio::test]
async fn through_a_server_that_dies_and_stalls_too_every_job_is_done_and_every_effect_and_line_is_there_once()
{
    chaos(|work_dir| Box::new(environment::ServedDirectory::new(work_dir, server::start(work_dir)))).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn on_postgres_that_cuts_off_and_restarts_every_job_is_done_and_every_effect_and_line_is_there_once() {
    chaos(|work_dir| Box::new(postgres::Postgres::start(work_dir))).await;
}

async fn chaos(environment: impl FnOnce(&WorkDirectory) -> Box<dyn Environment> + Send + 'static) {
    let _alone = ALONE.lock().await;
    let (seed, span) = (seed(), Duration::from_secs(number_in("FENCEHOLD_CHAOS_SECONDS").unwrap_or(20)));
    println!("chaos: seed {seed}, {} s", span.as_secs());
    let directory = tempfile::tempdir().unwrap();
    let work_dir = WorkDirectory::new(directory.path());
    let steps_clocks = number_in("FENCEHOLD_CHAOS_CLOCKS").is_some();
    if steps_clocks {
        work_dir.set_clocks(0);
    }
    let (news, inbox) = mpsc::channel();
    let calm = Arc::new(AtomicBool::new(false));
    let (of_leader, of_desk) = (work_dir.clone(), news.clone());
    // The leader waits for processes: in no one's way.
    let leader = tokio::task::spawn_blocking(move || {
        ChaosLeader::new(of_leader.clone(), seed, news, environment(&of_leader))
    });
    let mut leader = leader.await.unwrap();
    let mut producer = Producer::open(work_dir.clone(), Random(!seed), of_desk).await;
    producer.has_them_wait = steps_clocks;
    let clocks = steps_clocks.then(|| {
        let (work_dir, calm) = (work_dir.clone(), Arc::clone(&calm));
        std::thread::spawn(move || step_clocks(&work_dir, seed, &calm))
    });
    let producer = tokio::spawn(producer.run(Arc::clone(&calm)));

    let led = tokio::task::spawn_blocking(move || {
        leader.lead(&inbox, span);
        calm.store(true, Ordering::SeqCst);
        let fed = leader.settle(&inbox);
        (leader, fed)
    });
    let (leader, fed) = led.await.unwrap();
    let compared = producer.await.unwrap();
    if let Some(steps) = clocks.map(|clocks| clocks.join().unwrap()) {
        println!("chaos: the wall clocks were set {steps} times");
        assert!(steps > 0);
    }
    let (counts, owed) = (leader.counts(), FaultCounts::owed(span, &*leader.environment));
    let (of_ground, jobs) = (work_dir.clone(), fed.len());
    let checked = tokio::task::spawn_blocking(move || {
        let mut environment = leader.finish();
        environment.check(&of_ground, jobs);
        environment
    });
    let environment = checked.await.unwrap();
    let lines = audit(&work_dir, &fed).await;
    tokio::task::spawn_blocking(move || drop(environment)).await.unwrap();
    let FaultCounts { kills, stops, stale_writes, owner_deaths, cut_off } = counts;
    println!(
        "chaos: seed {seed}: {kills} kills and {stops} stops longer than the ttl hit running jobs; the process that served them died \
         {owner_deaths} times, and {cut_off} connections were ended; {stale_writes} stale writes blocked; {} jobs completed, \
         {lines} lines, each once; counts of leases, jobs and metrics were those of a replay {compared:?} times",
        fed.len()
    );
    assert!(counts.covers(&owed), "too little happened: {counts:?}, and it owes {owed:?}");
}

/// Sets the wall clocks, every time somewhere else, until it is calm. Then they are right.
fn step_clocks(work_dir: &WorkDirectory, seed: u64, calm: &AtomicBool) -> u64 {
    const DAY_S: u64 = 86_400;
    let mut random = Random(seed.rotate_left(32));
    let mut steps = 0;
    while !calm.load(Ordering::SeqCst) {
        let most_s = random.one_of(&[10, 3_600, DAY_S]);
        let by_s = i64::try_from(random.below(2 * most_s + 1)).unwrap() - i64::try_from(most_s).unwrap();
        work_dir.set_clocks(by_s);
        steps += 1;
        std::thread::sleep(Duration::from_millis(200 + random.below(1_800)));
    }
    work_dir.set_clocks(0);
    steps
}

/// The books: every job completed, each effect and each line once.
async fn audit(work_dir: &WorkDirectory, fed: &[JobId]) -> usize {
    let fh = work_dir.connect("auditor").await;
    let counts = fh.jobs().counts().await.unwrap();
    let mut all_completed = JobCounts::default();
    *all_completed.get_mut(JobState::Completed) = u64::try_from(fed.len()).unwrap();
    assert_eq!(counts, all_completed);
    for (number, id) in fed.iter().enumerate() {
        let detail = fh.jobs().get(*id).await.unwrap();
        let [effect] = &detail.effects[..] else { panic!("job {number}: {:?}", detail.effects) };
        assert!(matches!(effect.state, EffectState::Done), "job {number}: {effect:?}");
        let value = Some(number.to_string());
        assert_eq!(effect.value.as_deref(), value.as_deref(), "job {number}");
        assert_eq!(detail.result.as_deref(), value.as_deref(), "job {number}");
    }
    fh.close().await;
    let mut numbers: Vec<usize> = Vec::new();
    for line in work_dir.lines() {
        numbers.push(line.split(' ').next().unwrap().parse().unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..fed.len()).collect::<Vec<_>>(), "each line once");
    numbers.len()
}

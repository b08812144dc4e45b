//! Eight workers on one directory, killed and stopped while they work, whoever owns the directory among them (P2, P5, P6,
//! P8, P10): in the end every job is done, and every effect and every line is there once.
//!
//! The same through a server that is killed and stopped as they are.
//!
//! What is done to whom is drawn from a seed, which is printed; when processes run is the machine's affair. Half of the
//! trouble comes at any moment, half at a moment that a job holds still for it.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]
#![allow(clippy::disallowed_methods, reason = "trouble has its pace in real time; nothing is ordered by it")]
#![allow(clippy::print_stdout, reason = "what was done, and from which seed, is told")]
#[path = "../crew/mod.rs"]
mod crew;
mod desk;
mod leader;
#[cfg(feature = "remote")]
mod server;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use crew::{Process, Room, Said};
use desk::Desk;
use fencehold::job::{Counts, EffectState, JobState};
use fencehold::store::file;
use fencehold::{Event, JobId};
use leader::{Leader, Tally};

pub(crate) const QUEUE: &str = "chaos";

/// What the leader hears.
pub(crate) enum News {
    /// From the worker of this number.
    Said(usize, Said),
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
    chaos(|_| None).await;
}

#[cfg(feature = "remote")]
#[tokio::test]
async fn through_a_server_that_dies_and_stalls_too_every_job_is_done_and_every_effect_and_line_is_there_once()
{
    chaos(|room| Some(server::start(room))).await;
}

async fn chaos(server: impl FnOnce(&Room) -> Option<Process>) {
    let _alone = ALONE.lock().await;
    let (seed, span) = (seed(), Duration::from_secs(number_in("FENCEHOLD_CHAOS_SECONDS").unwrap_or(20)));
    println!("chaos: seed {seed}, {} s", span.as_secs());
    let directory = tempfile::tempdir().unwrap();
    let room = Room::new(directory.path());
    let (news, inbox) = mpsc::channel();
    let calm = Arc::new(AtomicBool::new(false));
    let mut leader = Leader::new(room.clone(), seed, news.clone(), server(&room));
    let desk = Desk::open(room.clone(), Random(!seed), news).await;
    let desk = tokio::spawn(desk.run(Arc::clone(&calm)));

    let (leader, fed) = tokio::task::spawn_blocking(move || {
        leader.lead(&inbox, span);
        calm.store(true, Ordering::SeqCst);
        let fed = leader.settle(&inbox);
        (leader, fed)
    })
    .await
    .unwrap();
    desk.await.unwrap();
    let (tally, owed) = (leader.tally(), Tally::owed(span));
    leader.finish();
    let lines = audit(&room, &fed).await;
    let Tally { kills, stops, owner_deaths, stale_writes } = tally;
    println!(
        "chaos: seed {seed}: {kills} kills, {stops} stops longer than the ttl and {owner_deaths} deaths of the owner hit \
         running jobs; {stale_writes} stale writes blocked; {} jobs completed, {lines} lines, each once",
        fed.len()
    );
    assert!(tally.covers(&owed), "too little happened: {tally:?}, and it owes {owed:?}");
}
/// The books: every job completed, each effect and each line once, and nothing wrong with what is kept.
async fn audit(room: &Room, fed: &[JobId]) -> usize {
    let report = file::check(&room.store()).unwrap();
    assert!(report.problems.is_empty() && report.set_aside == 0 && report.jobs == 0, "{report:?}");
    let _ = std::fs::remove_file(room.address());
    let fh = room.connect("auditor").await;
    let counts = fh.jobs().counts().await.unwrap();
    let mut all_completed = Counts::default();
    *all_completed.of(JobState::Completed) = u64::try_from(fed.len()).unwrap();
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
    for line in room.lines() {
        numbers.push(line.split(' ').next().unwrap().parse().unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..fed.len()).collect::<Vec<_>>(), "each line once");
    numbers.len()
}

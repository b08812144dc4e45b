//! Files that are torn, as after a power cut: SQLite's log ends anywhere behind the last batch that was acknowledged, and
//! garbage follows; or the database itself is cut short.
//!
//! Processes work on a directory and are killed. One more works on, alone, and when it has just asked for a key and has no
//! response, the power goes: what lies on the disk then is copied, and torn. On every copy the last participant must
//! bring everything to its end, and all histories are checked, as if that copy were all that is left.

use std::path::{Path, PathBuf};

use fencehold_proof::history::Judgement;

use super::crew::Participants;
use super::is_long;
use super::participant::{Participant, ParticipantPlan, Random, key};
use crate::support::{TestDirectory, eventually, until};

/// How many calls there are before the power goes: by one that ends in good order, by those that are killed, by the last.
const CALLS: [usize; 3] = [40, 60, 12];
/// How many copies are tried at once: they mostly wait for what was left behind to run out.
const AT_ONCE: usize = 6;
const PAGE: usize = 4_096;
/// What stands before every page in the log.
const FRAME_HEADER: usize = 24;

/// What lies on the disk when the power goes.
struct DiskImage {
    database: Vec<u8>,
    log: Vec<u8>,
    /// How much of the log was there when the last answer was given.
    acknowledged: usize,
    histories: tempfile::TempDir,
}

fn files(dir: &TestDirectory) -> [PathBuf; 2] {
    ["fencehold.db", "fencehold.db-wal"].map(|name| dir.path("leases").join(name))
}

fn the_power_goes() -> DiskImage {
    let (dir, histories) = (TestDirectory::new(), tempfile::tempdir().unwrap());
    let mut participants = Participants::new(&dir.store(), histories.path());
    let plan = ParticipantPlan { calls: CALLS[0] as u64, ..participants.plan() };
    assert!(participants.play(&plan).child.wait().unwrap().success());
    let running = [participants.start(), participants.start()];
    eventually("calls of those that are killed", || participants.calls() >= CALLS[0] + CALLS[1]);
    // They are killed with -9 when they go.
    drop(running);

    let mut alone = Participant::new(participants.plan());
    while alone.nth < CALLS[2] as u64 {
        alone.takes_a_turn();
    }
    let has = |alone: &mut Participant, nth| until("a key that can be had", || alone.acquires(&key(nth)));
    let (hold, token) = has(&mut alone, 1);
    alone.releases(&key(1), hold, token);
    // The last response: a store that loses it gives the same token once more.
    has(&mut alone, 0);
    let [database, log] = files(&dir);
    let before = std::fs::read(&log).unwrap();
    alone.asks_and_is_not_told(&key(1));
    let (database, log) = (std::fs::read(database).unwrap(), std::fs::read(log).unwrap());
    // What was not told is at the end of the log.
    assert!(log.starts_with(&before) && log.len() > before.len());
    assert!(database.len() >= 8 * PAGE, "the database itself has something to lose: {}", database.len());
    alone.closes();
    DiskImage { database, log, acknowledged: before.len(), histories }
}

impl DiskImage {
    /// Copies it with these files instead, and lets everything come to its end there.
    fn ends_with(&self, database: &[u8], log: &[u8]) -> Result<Judgement, String> {
        let (dir, histories) = (TestDirectory::new(), tempfile::tempdir().unwrap());
        let [to_database, to_log] = files(&dir);
        std::fs::create_dir(dir.path("leases")).unwrap();
        std::fs::write(to_database, database).unwrap();
        std::fs::write(to_log, log).unwrap();
        copy(self.histories.path(), histories.path());
        Participants::new(&dir.store(), histories.path()).ends_or_is_unusable()
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Does something for each, some at a time.
fn for_each<T: Sync, R: Send>(all: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let some = |chunk: &[T]| {
        std::thread::scope(|scope| {
            let runs: Vec<_> = chunk.iter().map(|one| scope.spawn(|| act(one))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<R>>()
        })
    };
    all.chunks(AT_ONCE).flat_map(some).collect()
}

/// What may lie behind the point at which writing ended.
#[derive(Clone, Copy, Debug)]
enum TornTail {
    Nothing,
    /// What the disk had there before.
    Noise,
    /// Part of a frame of this very log, from an earlier place.
    OldFrame,
    Zeros,
}

impl TornTail {
    fn bytes(self, log: &[u8]) -> Vec<u8> {
        match self {
            TornTail::Nothing => Vec::new(),
            TornTail::Noise => Random(3).bits::<{ 2 * PAGE }>().to_vec(),
            // Behind the header of the log, which has 32 bytes.
            TornTail::OldFrame => log[32..32 + FRAME_HEADER + PAGE].to_vec(),
            TornTail::Zeros => vec![0; 3 * PAGE],
        }
    }
}

#[test]
fn a_log_that_is_torn_behind_what_was_acknowledged_loses_nothing() {
    let left = the_power_goes();
    let (from, to) = (left.acknowledged, left.log.len());
    let cuts: Vec<usize> = if is_long() {
        (from..to).step_by(PAGE / 8).chain([to - 1, to]).collect()
    } else {
        vec![from, from + FRAME_HEADER / 2, usize::midpoint(from, to), to - 1]
    };
    let every = [TornTail::Nothing, TornTail::Noise, TornTail::OldFrame, TornTail::Zeros];
    let some = |nth: usize| if is_long() { every.to_vec() } else { vec![every[nth % every.len()]] };
    let torn: Vec<(usize, TornTail)> = cuts
        .iter()
        .enumerate()
        .flat_map(|(nth, cut)| some(nth).into_iter().map(|behind| (*cut, behind)))
        .collect();
    let judged = for_each(&torn, |(cut, behind)| {
        let log = [&left.log[..*cut], &behind.bytes(&left.log)].concat();
        let ended = left.ends_with(&left.database, &log);
        ended.unwrap_or_else(|why| panic!("cut at {cut} of {to}, {behind:?} behind it: unusable: {why}"))
    });
    println!("faults: torn logs: {} copies, of the last: {}", judged.len(), judged.last().unwrap());
}

#[test]
fn a_database_that_is_cut_short_loses_nothing_or_says_that_it_cannot_be_used() {
    let left = the_power_goes();
    let whole = left.database.len();
    let cuts: Vec<usize> = if is_long() {
        (0..whole).step_by(PAGE / 2).chain([1, 99, whole - 1]).collect()
    } else {
        vec![0, 99, PAGE + 100, whole / 2, whole - PAGE, whole - 1]
    };
    let ended = for_each(&cuts, |cut| left.ends_with(&left.database[..*cut], &left.log));
    let unusable: Vec<&String> = ended.iter().filter_map(|ended| ended.as_ref().err()).collect();
    println!("faults: databases cut short: {}, of which unusable: {}", ended.len(), unusable.len());
    assert!(!unusable.is_empty(), "nothing was lost by any cut");
    let whole = left.ends_with(&left.database, &left.log);
    assert!(whole.is_ok(), "{whole:?}");
}

//! What one seed is made of. Every seed draws its own mix, so that some runs have one kind of trouble only and others
//! have all of it at once.

use super::random::SimRandom;

/// The bounds and the troubles of one run.
#[derive(Clone, Debug)]
pub(super) struct SimPlan {
    pub(super) owners: usize,
    pub(super) keys: usize,
    pub(super) queues: usize,
    /// How much of what owners begin is about jobs, in a thousand.
    pub(super) jobs: u64,
    /// What the store keeps its batches in.
    pub(super) storage: StorageKind,
    pub(super) ttls_ms: Vec<u64>,
    /// How many decisions there are before the troubles stop.
    pub(super) operations: u64,
    /// Messages, in a thousand.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) delay_ms_max: u64,
    /// One of the faults happens about this often.
    pub(super) fault_every_ms: u64,
    pub(super) faults: Vec<SimFault>,
    /// How far a client's clock may run fast or slow, in a thousand.
    pub(super) skew: u64,
}

/// What the store keeps its batches in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageKind {
    /// A log with checksums, as a simulated disk gives it.
    Log,
    /// SQLite itself, on a simulated disk.
    Sqlite,
}

/// One seed in so many has SQLite itself under it: it costs much more than the others.
const SQLITE_ONE_IN: u64 = 64;
/// Every seed has at least so many kinds of trouble.
const FAULTS_MIN: usize = 3;

/// What can go wrong, apart from messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimFault {
    OwnerCrash,
    OwnerPause,
    StoreKill,
    StorePause,
    PowerCut,
    PowerCutInWrite,
    UnsyncedLost,
    SyncFails,
    WriteFails,
    DiskFull,
    WallClockJump,
    LongQuiet,
}

impl SimFault {
    pub(super) const ALL: [SimFault; 12] = [
        SimFault::OwnerCrash,
        SimFault::OwnerPause,
        SimFault::StoreKill,
        SimFault::StorePause,
        SimFault::PowerCut,
        SimFault::PowerCutInWrite,
        SimFault::UnsyncedLost,
        SimFault::SyncFails,
        SimFault::WriteFails,
        SimFault::DiskFull,
        SimFault::WallClockJump,
        SimFault::LongQuiet,
    ];

    /// Whether it may leave open if a batch was kept.
    pub(super) fn leaves_doubt(self) -> bool {
        matches!(
            self,
            SimFault::PowerCutInWrite | SimFault::SyncFails | SimFault::WriteFails | SimFault::DiskFull
        )
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            SimFault::OwnerCrash => "owner crash",
            SimFault::OwnerPause => "owner pause",
            SimFault::StoreKill => "store killed",
            SimFault::StorePause => "store paused",
            SimFault::PowerCut => "power cut",
            SimFault::PowerCutInWrite => "power cut in the middle of a write",
            SimFault::UnsyncedLost => "unsynced writes lost without a reboot",
            SimFault::SyncFails => "sync fails",
            SimFault::WriteFails => "write fails",
            SimFault::DiskFull => "disk full",
            SimFault::WallClockJump => "wall clock jump",
            SimFault::LongQuiet => "three quiet hours",
        }
    }
}

impl SimPlan {
    pub(super) fn draw(random: &mut SimRandom) -> SimPlan {
        // Hours take long to tell: few seeds have them.
        let often = |fault: &SimFault| if *fault == SimFault::LongQuiet { 150 } else { 550 };
        let mut faults: Vec<SimFault> = SimFault::ALL
            .into_iter()
            .filter(|fault| random.per_mille(often(fault)))
            .collect();
        while faults.len() < FAULTS_MIN {
            let fault = random.one_of(&SimFault::ALL);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        let troubled =
            |random: &mut SimRandom, high| if random.per_mille(600) { random.between(1, high) } else { 0 };
        SimPlan {
            owners: usize::try_from(random.between(4, 7)).unwrap_or(4),
            keys: usize::try_from(random.between(3, 5)).unwrap_or(3),
            queues: usize::try_from(random.between(1, 3)).unwrap_or(1),
            jobs: random.one_of(&[0, 300, 600, 900]),
            storage: if random.between(1, SQLITE_ONE_IN) == 1 {
                StorageKind::Sqlite
            } else {
                StorageKind::Log
            },
            ttls_ms: (0..3).map(|_| random.one_of(&[500, 1_000, 2_000, 5_000, 10_000])).collect(),
            operations: 220,
            lost: troubled(random, 120),
            doubled: troubled(random, 120),
            delay_ms_max: random.one_of(&[2, 20, 300, 1_500]),
            fault_every_ms: random.one_of(&[1_000, 4_000, 15_000]),
            faults,
            skew: random.one_of(&[0, 5, 10]),
        }
    }
}

//! What one seed is made of. Every seed draws its own mix, so that some runs have one kind of trouble only and others
//! have all of it at once.

use super::chance::Chance;

/// The bounds and the troubles of one run.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    pub(super) owners: usize,
    pub(super) keys: usize,
    pub(super) queues: usize,
    /// How much of what owners begin is about jobs, in a thousand.
    pub(super) jobs: u64,
    /// What the store keeps its batches in.
    pub(super) ground: Ground,
    pub(super) ttls_ms: Vec<u64>,
    /// How many decisions there are before the troubles stop.
    pub(super) operations: u64,
    /// Messages, in a thousand.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) delay_ms_max: u64,
    /// One of the faults happens about this often.
    pub(super) fault_every_ms: u64,
    pub(super) faults: Vec<Fault>,
    /// How far a client's clock may run fast or slow, in a thousand.
    pub(super) skew: u64,
}

/// What the store keeps its batches in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
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
pub(super) enum Fault {
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

impl Fault {
    pub(super) const ALL: [Fault; 12] = [
        Fault::OwnerCrash,
        Fault::OwnerPause,
        Fault::StoreKill,
        Fault::StorePause,
        Fault::PowerCut,
        Fault::PowerCutInWrite,
        Fault::UnsyncedLost,
        Fault::SyncFails,
        Fault::WriteFails,
        Fault::DiskFull,
        Fault::WallClockJump,
        Fault::LongQuiet,
    ];

    /// Whether it may leave open if a batch was kept.
    pub(super) fn leaves_doubt(self) -> bool {
        matches!(self, Fault::PowerCutInWrite | Fault::SyncFails | Fault::WriteFails | Fault::DiskFull)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::OwnerCrash => "owner crash",
            Fault::OwnerPause => "owner pause",
            Fault::StoreKill => "store killed",
            Fault::StorePause => "store paused",
            Fault::PowerCut => "power cut",
            Fault::PowerCutInWrite => "power cut in the middle of a write",
            Fault::UnsyncedLost => "unsynced writes lost without a reboot",
            Fault::SyncFails => "sync fails",
            Fault::WriteFails => "write fails",
            Fault::DiskFull => "disk full",
            Fault::WallClockJump => "wall clock jump",
            Fault::LongQuiet => "three quiet hours",
        }
    }
}

impl Mix {
    pub(super) fn draw(chance: &mut Chance) -> Mix {
        // Hours take long to tell: few seeds have them.
        let often = |fault: &Fault| if *fault == Fault::LongQuiet { 150 } else { 550 };
        let mut faults: Vec<Fault> =
            Fault::ALL.into_iter().filter(|fault| chance.per_mille(often(fault))).collect();
        while faults.len() < FAULTS_MIN {
            let fault = chance.one_of(&Fault::ALL);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        let troubled =
            |chance: &mut Chance, high| if chance.per_mille(600) { chance.between(1, high) } else { 0 };
        Mix {
            owners: usize::try_from(chance.between(4, 7)).unwrap_or(4),
            keys: usize::try_from(chance.between(3, 5)).unwrap_or(3),
            queues: usize::try_from(chance.between(1, 3)).unwrap_or(1),
            jobs: chance.one_of(&[0, 300, 600, 900]),
            ground: if chance.between(1, SQLITE_ONE_IN) == 1 { Ground::Sqlite } else { Ground::Log },
            ttls_ms: (0..3).map(|_| chance.one_of(&[500, 1_000, 2_000, 5_000, 10_000])).collect(),
            operations: 220,
            lost: troubled(chance, 120),
            doubled: troubled(chance, 120),
            delay_ms_max: chance.one_of(&[2, 20, 300, 1_500]),
            fault_every_ms: chance.one_of(&[1_000, 4_000, 15_000]),
            faults,
            skew: chance.one_of(&[0, 5, 10]),
        }
    }
}

//! What one seed is made of. Every seed draws its own mix, so that some runs have one kind of trouble only and others
//! have all of it at once.

use super::chance::Chance;

/// The bounds and the troubles of one run.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    pub(super) owners: usize,
    pub(super) keys: usize,
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

/// What can go wrong, apart from messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    OwnerCrash,
    OwnerPause,
    StoreKill,
    StorePause,
    PowerCut,
    SyncFails,
    DiskFull,
    WallClockJump,
    LongQuiet,
}

impl Fault {
    pub(super) const ALL: [Fault; 9] = [
        Fault::OwnerCrash,
        Fault::OwnerPause,
        Fault::StoreKill,
        Fault::StorePause,
        Fault::PowerCut,
        Fault::SyncFails,
        Fault::DiskFull,
        Fault::WallClockJump,
        Fault::LongQuiet,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::OwnerCrash => "owner crash",
            Fault::OwnerPause => "owner pause",
            Fault::StoreKill => "store killed",
            Fault::StorePause => "store paused",
            Fault::PowerCut => "power cut",
            Fault::SyncFails => "sync fails",
            Fault::DiskFull => "disk full",
            Fault::WallClockJump => "wall clock jump",
            Fault::LongQuiet => "three quiet hours",
        }
    }
}

impl Mix {
    pub(super) fn draw(chance: &mut Chance) -> Mix {
        let mut faults: Vec<Fault> = Fault::ALL.into_iter().filter(|_| chance.per_mille(550)).collect();
        if faults.is_empty() {
            faults.push(chance.one_of(&Fault::ALL));
        }
        let troubled =
            |chance: &mut Chance, high| if chance.per_mille(600) { chance.between(1, high) } else { 0 };
        Mix {
            owners: usize::try_from(chance.between(4, 7)).unwrap_or(4),
            keys: usize::try_from(chance.between(3, 5)).unwrap_or(3),
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

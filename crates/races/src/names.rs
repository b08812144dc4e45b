//! What a race calls the things that it makes. In a store that is in use, nothing of theirs has such a name.

use fencehold_core::Key;
use fencehold_core::job::{JobId, QueueName};

use crate::environment::Environment;

/// When the jobs of races were made, by their ids: an ordinary moment.
pub(crate) const JOB_ID_MS: u64 = 1_763_000_000_000;

pub(crate) struct RaceNames {
    pub(crate) key: Key,
    pub(crate) job: JobId,
    pub(crate) queue: QueueName,
    pub(crate) undo_queue: QueueName,
}

impl RaceNames {
    pub(crate) fn of(environment: &Environment, seed: [u8; 8]) -> RaceNames {
        let prefix = if environment.shared {
            format!("race-{:016x}-", u64::from_be_bytes(seed))
        } else {
            String::new()
        };
        let mut bits = [0; 10];
        bits[..8].copy_from_slice(&seed);
        let plain = "a short text without control characters";
        RaceNames {
            key: Key::new(format!("{prefix}job/7")).expect(plain),
            job: JobId::from_random(JOB_ID_MS, bits),
            queue: QueueName::new(format!("{prefix}work")).expect(plain),
            undo_queue: QueueName::new(format!("{prefix}undo")).expect(plain),
        }
    }
}

//! Where a race is run: a fresh store with power over its time, or the naive lock.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use fencehold_contract::{StoreError, StoreUrl};
use fencehold_core::Key;
use fencehold_core::job::{JobId, QueueName};
use fencehold_engine::MemoryStore;
use fencehold_test_store::{ClockedTestStore, TestStore};
use thiserror::Error;

use crate::live_store::LiveTestStore;

/// Whose algorithm runs under the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Fencehold's.
    Ours,
    /// The well-known wrong one.
    Naive,
}

/// Ends races before their time. They remove what they have made, and their verdicts mean nothing.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<(Mutex<bool>, Condvar)>);

impl Interrupt {
    /// Interrupts every race that knows of this.
    pub fn set(&self) {
        let (set, changed) = &*self.0;
        *set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether races are to end.
    pub fn is_set(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for so long, or until races are to end: true then.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        let (set, changed) = &*self.0;
        let set = set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(set, at_most, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A fresh store, and power over its time.
pub struct Environment {
    pub(crate) test_store: Arc<dyn TestStore>,
    /// Whether the store is in use: its time passes by itself, and what a race makes there has names of its own and is removed.
    pub(crate) live: bool,
    pub(crate) interrupt: Interrupt,
    /// What this store lies in; gone with it, and so after it.
    #[cfg(feature = "file")]
    _room: Option<tempfile::TempDir>,
}

/// Why there is no world.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Races cannot be arranged there.
    #[error("{0}")]
    NoRaces(String),
}

impl Environment {
    /// A fresh world in the store that a URL names. What is kept there already is not touched: on `file:DIR` it is a
    /// directory of its own inside DIR, removed afterwards; elsewhere it is a key and a job whose names nothing else has.
    ///
    /// The time of `memory:` and `file:` is moved by hand. Elsewhere it passes by itself: what runs out is waited for.
    pub fn open(url: &StoreUrl) -> Result<Environment, EnvironmentError> {
        Environment::open_until(url, &Interrupt::default())
    }

    /// The same for races that can be interrupted.
    pub fn open_until(url: &StoreUrl, interrupt: &Interrupt) -> Result<Environment, EnvironmentError> {
        let environment = match url {
            StoreUrl::Memory(_) => {
                Environment::in_test_store(Arc::new(ClockedTestStore::new(MemoryStore::open)))
            }
            #[cfg(feature = "file")]
            StoreUrl::File(url) => Environment::in_directory(&url.directory)?,
            #[cfg(not(feature = "file"))]
            StoreUrl::File(..) => {
                return Err(EnvironmentError::NoRaces("this build lacks the feature `file`".to_owned()));
            }
            other => {
                let test_store = Arc::new(LiveTestStore::open(other, interrupt.clone())?);
                Environment { live: true, ..Environment::in_test_store(test_store) }
            }
        };
        Ok(Environment { interrupt: interrupt.clone(), ..environment })
    }

    /// Whether many races can be played in it, also at once: each has names of its own there.
    pub fn has_room_for_many(&self) -> bool {
        self.live
    }

    /// A world in an arena: a fresh store, and power over its time.
    pub fn in_test_store(test_store: Arc<dyn TestStore>) -> Environment {
        Environment {
            test_store,
            live: false,
            interrupt: Interrupt::default(),
            #[cfg(feature = "file")]
            _room: None,
        }
    }

    #[cfg(feature = "file")]
    fn in_directory(directory: &std::path::Path) -> Result<Environment, EnvironmentError> {
        use fencehold_contract::clock::ManualClock;
        use fencehold_store_file::FileStore;

        let room = std::fs::create_dir_all(directory)
            .and_then(|()| tempfile::Builder::new().prefix("race-").tempdir_in(directory))
            .map_err(|error| StoreError::Unusable {
                store: directory.display().to_string(),
                message: format!("no directory can be made in it: {error}"),
            })?;
        // What cannot be opened is found here, where it can still be reported.
        drop(FileStore::open_or_create(room.path(), Arc::new(ManualClock::new()))?);
        let (place, beside) = (room.path().to_owned(), room.path().to_owned());
        let test_store = ClockedTestStore::new(move |clock| FileStore::open_or_create(&place, clock))
            .and_other(move |clock| FileStore::open_or_create(&beside, clock))
            .that_restarts();
        Ok(Environment { _room: Some(room), ..Environment::in_test_store(Arc::new(test_store)) })
    }
}

/// When the jobs of races were made, by their ids: an ordinary moment.
pub(crate) const JOB_ID_MS: u64 = 1_763_000_000_000;

/// What a race calls the things that it makes. In a store that is in use, nothing else has such a name.
pub(crate) struct RaceNames {
    pub(crate) key: Key,
    pub(crate) job: JobId,
    pub(crate) queue: QueueName,
    pub(crate) undo_queue: QueueName,
}

impl RaceNames {
    pub(crate) fn of(environment: &Environment, seed: [u8; 8]) -> RaceNames {
        let prefix =
            if environment.live { format!("race-{:016x}-", u64::from_be_bytes(seed)) } else { String::new() };
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

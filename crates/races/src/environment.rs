//! Where a race is run: a fresh store with power over its time, or the naive lock.

use std::fmt;
use std::sync::Arc;

use fencehold_contract::{StoreError, StoreUrl};
use fencehold_core::BadInput;
use fencehold_engine::MemoryStore;
use fencehold_test_store::{ClockedTestStore, TestStore};

use crate::live_store::LiveTestStore;

/// Whose algorithm runs under the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Fencehold's.
    Ours,
    /// The well-known wrong one.
    Naive,
}

/// A fresh store, and power over its time.
pub struct Environment {
    pub(crate) test_store: Arc<dyn TestStore>,
    /// Whether its time passes by itself and cannot be moved.
    pub(crate) real_time: bool,
    /// Whether others use the store: what a race makes there has names of its own, and is removed.
    pub(crate) shared: bool,
    /// What this store lies in; gone with it, and so after it.
    #[cfg(feature = "file")]
    _room: Option<tempfile::TempDir>,
}

/// Why there is no world.
#[derive(Debug)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// The URL is not one.
    BadInput(BadInput),
    /// The store cannot be opened.
    Store(StoreError),
    /// Races cannot be arranged there.
    NoRaces(String),
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnvironmentError::BadInput(bad) => bad.fmt(f),
            EnvironmentError::Store(error) => error.fmt(f),
            EnvironmentError::NoRaces(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for EnvironmentError {}

impl From<StoreError> for EnvironmentError {
    fn from(error: StoreError) -> Self {
        EnvironmentError::Store(error)
    }
}

impl Environment {
    /// A fresh world in the store that a URL names. What is kept there already is not touched: on `file:DIR` it is a
    /// directory of its own inside DIR, removed afterwards; elsewhere it is a key and a job whose names nothing else has.
    ///
    /// The time of `memory:` and `file:` is moved by hand. Elsewhere it passes by itself: what runs out is waited for.
    pub fn open(url: &StoreUrl) -> Result<Environment, EnvironmentError> {
        match url {
            StoreUrl::Memory(_) => {
                Ok(Environment::in_test_store(Arc::new(ClockedTestStore::new(MemoryStore::open))))
            }
            #[cfg(feature = "file")]
            StoreUrl::File(url) => Environment::in_directory(&url.directory),
            #[cfg(not(feature = "file"))]
            StoreUrl::File(..) => {
                Err(EnvironmentError::NoRaces("this build lacks the feature `file`".to_owned()))
            }
            other => {
                let test_store = Arc::new(LiveTestStore::open(other)?);
                Ok(Environment { real_time: true, shared: true, ..Environment::in_test_store(test_store) })
            }
        }
    }

    /// Whether many races can be played in it, also at once: each has names of its own there.
    pub fn has_room_for_many(&self) -> bool {
        self.shared
    }

    /// A world in an arena: a fresh store, and power over its time.
    pub fn in_test_store(test_store: Arc<dyn TestStore>) -> Environment {
        Environment {
            test_store,
            real_time: false,
            shared: false,
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

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

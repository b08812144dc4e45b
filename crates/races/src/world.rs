//! Where a race is run: a fresh store with power over its time, or the naive lock.

use std::fmt;
use std::sync::Arc;

use fencehold_contract::{StoreError, StoreUrl};
use fencehold_core::BadInput;
use fencehold_engine::MemoryStore;
use fencehold_test_store::{Arena, ClockArena};

use crate::real::RealArena;

/// Whose algorithm runs under the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Fencehold's.
    Ours,
    /// The well-known wrong one.
    Naive,
}

/// A fresh store, and power over its time.
pub struct World {
    pub(crate) arena: Arc<dyn Arena>,
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
pub enum WorldError {
    /// The URL is not one.
    BadInput(BadInput),
    /// The store cannot be opened.
    Store(StoreError),
    /// Races cannot be arranged there.
    NoRaces(String),
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorldError::BadInput(bad) => bad.fmt(f),
            WorldError::Store(error) => error.fmt(f),
            WorldError::NoRaces(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for WorldError {}

impl From<StoreError> for WorldError {
    fn from(error: StoreError) -> Self {
        WorldError::Store(error)
    }
}

impl World {
    /// A fresh world in the store that a URL names. What is kept there already is not touched: on `file:DIR` it is a
    /// directory of its own inside DIR, removed afterwards; elsewhere it is a key and a job whose names nothing else has.
    ///
    /// The time of `memory:` and `file:` is moved by hand. Elsewhere it passes by itself: what runs out is waited for.
    pub fn open(url: &StoreUrl) -> Result<World, WorldError> {
        match url {
            StoreUrl::Memory(_) => Ok(World::in_arena(Arc::new(ClockArena::new(MemoryStore::open)))),
            #[cfg(feature = "file")]
            StoreUrl::File(url) => World::in_directory(&url.directory),
            #[cfg(not(feature = "file"))]
            StoreUrl::File(..) => Err(WorldError::NoRaces("this build lacks the feature `file`".to_owned())),
            other => {
                let arena = Arc::new(RealArena::open(other)?);
                Ok(World { real_time: true, shared: true, ..World::in_arena(arena) })
            }
        }
    }

    /// Whether many races can be played in it, also at once: each has names of its own there.
    pub fn has_room_for_many(&self) -> bool {
        self.shared
    }

    /// A world in an arena: a fresh store, and power over its time.
    pub fn in_arena(arena: Arc<dyn Arena>) -> World {
        World {
            arena,
            real_time: false,
            shared: false,
            #[cfg(feature = "file")]
            _room: None,
        }
    }

    #[cfg(feature = "file")]
    fn in_directory(directory: &std::path::Path) -> Result<World, WorldError> {
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
        let arena = ClockArena::new(move |clock| FileStore::open_or_create(&place, clock))
            .and_other(move |clock| FileStore::open_or_create(&beside, clock))
            .that_restarts();
        Ok(World { _room: Some(room), ..World::in_arena(Arc::new(arena)) })
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

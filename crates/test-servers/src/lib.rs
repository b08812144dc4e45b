//! Private servers for tests: each is started by the first test that needs it, on free loopback ports, and is gone with the
//! test process. Beside them, what else the tests of several crates share.
//!
//! Deliberately absent: stores. A store's own tests open it on these servers, so that a change of one store rebuilds the
//! tests of no other.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may stop at anything")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time to start")]

pub mod calls;
pub mod chromium;
pub mod etcd;
mod exclusive;
mod mutated_input;
pub mod object;
pub mod postgres;
pub mod security_page;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use exclusive::is_alone;
pub use mutated_input::{Edit, edited};

/// A certificate or a key of an authority for tests. They last for a hundred years.
pub fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tls").join(name)
}

/// A program that `cargo xtask servers` has put into the target folder.
pub fn installed(program: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut paths = test.ancestors().map(|folder| folder.join("servers").join(program));
    let found = paths.find(|path| path.exists());
    found.unwrap_or_else(|| panic!("servers/{program} is not there: `cargo xtask servers` installs it"))
}

/// Looks until something is there, for half a minute.
fn until<T>(mut there: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(30) {
        let found = there();
        if found.is_some() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// A folder for the data of a server, in memory if nothing must be durable and there is such a place.
///
/// A server that all tests of a process share is never dropped, so its folder stays behind; the next process removes the
/// folders of processes that are gone.
fn scratch(name: &str, durable: bool) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let in_memory = !durable && memory.is_dir();
    let place = if in_memory { memory.to_owned() } else { std::env::temp_dir() };
    for entry in std::fs::read_dir(&place).unwrap().flatten() {
        let file = entry.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(name));
        let pid = rest.and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let prefix = format!("{name}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(place).unwrap()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Points at which a test can hold this process or make its disk fail, by files in the folder `gates` of the store's
//! directory. Not part of a shipped build.

use std::path::Path;
#[cfg(feature = "gates")]
use std::path::PathBuf;

use super::directory::StoreDirectory;

/// Waits while `NAME.closed` is there, after writing `NAME.reached`; then writes `NAME.passed`.
pub(super) fn pass(place: &StoreDirectory, name: &str) {
    pass_in(place.path(), name);
}

/// The same in a directory that is not opened yet.
#[cfg(feature = "gates")]
#[expect(clippy::disallowed_methods, reason = "a held process has nothing to do but to look again")]
pub(super) fn pass_in(place: &Path, name: &str) {
    let closed = file(place, name, "closed");
    if closed.exists() {
        let _ = std::fs::write(file(place, name, "reached"), std::process::id().to_string());
        while closed.exists() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ = std::fs::write(file(place, name, "passed"), "");
    }
}

/// Whether the disk is to fail here: while `NAME.fails` is there.
#[cfg(feature = "gates")]
pub(super) fn fail(place: &StoreDirectory, name: &str) -> rusqlite::Result<()> {
    if file(place.path(), name, "fails").exists() {
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        return Err(rusqlite::Error::SqliteFailure(error, Some("the test says so".to_owned())));
    }
    Ok(())
}

#[cfg(feature = "gates")]
fn file(place: &Path, name: &str, ending: &str) -> PathBuf {
    place.join("gates").join(format!("{name}.{ending}"))
}

#[cfg(not(feature = "gates"))]
pub(super) fn pass_in(_: &Path, _: &str) {}

#[cfg(not(feature = "gates"))]
#[expect(clippy::unnecessary_wraps, reason = "a shipped build has no gates")]
pub(super) fn fail(_: &StoreDirectory, _: &str) -> rusqlite::Result<()> {
    Ok(())
}

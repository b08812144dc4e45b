//! What is kept in a directory is for its user alone, whatever the umask is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fencehold_store_file::backup;
use fencehold_test_servers::is_alone;
use rustix::fs::Mode;

use crate::support::{Fixture, take};

/// The database and what SQLite has beside it.
fn files(fixture: &Fixture) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|beside| fixture.path().join(format!("fencehold.db{beside}")))
}

fn modes(fixture: &Fixture) -> [u32; 3] {
    files(fixture).map(|path| mode(&path))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_database_and_its_log_are_for_their_user_alone() {
    // The umask is the process's.
    if !is_alone("file_modes::the_database_and_its_log_are_for_their_user_alone") {
        return;
    }
    for umask in [0o000, 0o022, 0o077] {
        rustix::process::umask(Mode::from_bits_truncate(umask));
        let fixture = Fixture::new();
        fs::set_permissions(fixture.path(), Permissions::from_mode(0o755)).unwrap();
        let store = fixture.open();
        take(&store, "k", 1);
        assert_eq!(modes(&fixture), [0o600; 3], "made under the umask {umask:03o}");
        assert_eq!(
            mode(&fixture.path().join("owner-1.sock")),
            0o600,
            "the socket, under the umask {umask:03o}"
        );
        let copy = fixture.path().join("copy.db");
        backup(fixture.path(), &copy).unwrap();
        assert_eq!(mode(&copy), 0o600, "a backup");

        // As an earlier version has left them.
        drop(store);
        for path in files(&fixture).into_iter().filter(|path| path.exists()) {
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        let store = fixture.open();
        take(&store, "other", 1);
        assert_eq!(modes(&fixture), [0o600; 3], "found as 644");
    }
}

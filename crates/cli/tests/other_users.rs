//! What another user of the machine can put in the way (R48): a directory, a link in it, a socket.
#![cfg(feature = "file")]
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use support::Room;

/// Somebody made the directory first, and a link in it where the store would write.
#[test]
fn a_directory_that_others_may_write_is_refused_and_no_link_in_it_is_followed() {
    let room = Room::new();
    let (directory, precious) = (room.path("leases"), room.path("precious"));
    fs::write(&precious, "important").unwrap();
    let refused = |what: &str| {
        let said = room.fencehold(&["run", "--key", "k", "--", "true"]);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "important", "{what}");
        assert_eq!(said.code, 74, "{what}: {said:?}");
        said.err
    };
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    for nth in 1..4 {
        symlink(&precious, directory.join(format!("owner-{nth}.lock"))).unwrap();
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refused("others may write there").contains("chmod go-w"));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&directory, Some(65_534), Some(65_534)).unwrap();
        assert!(refused("another user's").contains("it belongs to user 65534"));
        chown(&directory, Some(0), Some(0)).unwrap();
    }
    let said = room.fencehold(&["run", "--key", "k", "--", "true"]);
    assert_ne!(said.code, 0, "a link is not followed: {said:?}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "important");
}

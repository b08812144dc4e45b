//! What another user of the machine can put in the way (R48): a directory, a link in it, a socket.
#![cfg(feature = "file")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use crate::support::TestDirectory;

/// A group of this process shares the directory; what others of the group may is in `file_neighbours` of the store.
#[test]
fn a_directory_is_shared_with_a_group_and_the_doctor_says_what_is_unsafe() {
    let dir = TestDirectory::new();
    let directory = dir.path("shared");
    let group = rustix::process::getegid().as_raw();
    let url = format!("file:{}?group={group}", directory.display());
    let fencehold = |url: &str, words: &str| dir.fencehold(&format!("--store {url} {words}"));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    // It is created on request only.
    let said = fencehold(&url, "run --key k -- true").ended(74);
    said.says(&[&format!("{url}' store create")]);
    fencehold(&url, "store create").ended(0);
    assert_eq!((mode(&directory), mode(&directory.join("fencehold.db"))), (0o2770, 0o660));
    assert_eq!(fencehold(&url, "run --key k -- true").code, 0);
    fencehold(&url, "doctor")
        .ended(0)
        .prints(&[&format!("shared with group {group}")]);

    // A backup of it becomes a shared store again.
    let (copy, again) = (dir.path("copy"), dir.path("again"));
    let copy = copy.to_str().unwrap();
    fencehold(&url, &format!("store backup {copy}")).ended(0);
    let restored = format!("file:{}?group={group}", again.display());
    fencehold(&restored, &format!("store restore {copy} --by alice")).ended(0);
    assert_eq!((mode(&again), mode(&again.join("fencehold.db"))), (0o2770, 0o660));
    assert_eq!(fencehold(&restored, "store check").code, 0);

    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2777)).unwrap();
    let private = format!("file:{}", directory.display());
    for (url, advice) in [(&url, "chmod 2770"), (&private, "?group=")] {
        let said = fencehold(url, "doctor").prints(&["it is not safe to use", advice]);
        assert_ne!(said.code, 0, "{said:?}");
        fencehold(url, "run --key k -- true").ended(74).says(&[advice]);
    }
}

/// Another user made the directory first, and a link in it where the store would write.
#[test]
fn a_directory_that_others_may_write_is_refused_and_no_link_in_it_is_followed() {
    let dir = TestDirectory::new();
    let (directory, precious) = (dir.path("leases"), dir.path("precious"));
    fs::write(&precious, "important").unwrap();
    let refused = |what: &str| {
        let said = dir.fencehold("run --key k -- true");
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
    let said = dir.fencehold("run --key k -- true");
    assert_ne!(said.code, 0, "a link is not followed: {said:?}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "important");
}

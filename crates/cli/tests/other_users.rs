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
    let fencehold = |url: &str, words: &[&str]| {
        let words: Vec<&str> = ["--store", url].iter().chain(words).copied().collect();
        dir.fencehold(&words)
    };
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let said = fencehold(&url, &["run", "--key", "k", "--", "true"]);
    assert_eq!(said.code, 74, "it is created on request only: {said:?}");
    assert!(said.err.contains(&format!("{url}' store create")), "{said:?}");
    let said = fencehold(&url, &["store", "create"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!((mode(&directory), mode(&directory.join("fencehold.db"))), (0o2770, 0o660));
    assert_eq!(fencehold(&url, &["run", "--key", "k", "--", "true"]).code, 0);
    let said = fencehold(&url, &["doctor"]);
    assert!(said.code == 0 && said.out.contains(&format!("shared with group {group}")), "{said:?}");

    // A backup of it becomes a shared store again.
    let (copy, again) = (dir.path("copy"), dir.path("again"));
    let copy = copy.to_str().unwrap();
    assert_eq!(fencehold(&url, &["store", "backup", copy]).code, 0);
    let restored = format!("file:{}?group={group}", again.display());
    let said = fencehold(&restored, &["store", "restore", copy, "--by", "alice"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!((mode(&again), mode(&again.join("fencehold.db"))), (0o2770, 0o660));
    assert_eq!(fencehold(&restored, &["store", "check"]).code, 0);

    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2777)).unwrap();
    let private = format!("file:{}", directory.display());
    for (url, advice) in [(&url, "chmod 2770"), (&private, "?group=")] {
        let said = fencehold(url, &["doctor"]);
        assert!(said.code != 0 && said.out.contains("it is not safe to use"), "{url}: {said:?}");
        assert!(said.out.contains(advice), "{url}: {said:?}");
        let said = fencehold(url, &["run", "--key", "k", "--", "true"]);
        assert!(said.code == 74 && said.err.contains(advice), "{url}: {said:?}");
    }
}

/// Another user made the directory first, and a link in it where the store would write.
#[test]
fn a_directory_that_others_may_write_is_refused_and_no_link_in_it_is_followed() {
    let dir = TestDirectory::new();
    let (directory, precious) = (dir.path("leases"), dir.path("precious"));
    fs::write(&precious, "important").unwrap();
    let refused = |what: &str| {
        let said = dir.fencehold(&["run", "--key", "k", "--", "true"]);
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
    let said = dir.fencehold(&["run", "--key", "k", "--", "true"]);
    assert_ne!(said.code, 0, "a link is not followed: {said:?}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "important");
}

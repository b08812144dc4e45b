//! Whom a directory must be safe from: every other user but root. Whoever can write to it, or can put another in its
//! place, decides what this process reads and writes there.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

/// What others may write to, for their group and for all.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// In such a directory only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// Why another user could take part in what happens in this directory. `None`: nobody but root can.
pub(super) fn what_is_unsafe(path: &Path) -> Option<String> {
    what_is_unsafe_for(geteuid().as_raw(), path)
}

fn what_is_unsafe_for(user: u32, path: &Path) -> Option<String> {
    let found = fs::symlink_metadata(path).ok()?;
    if found.uid() != user && found.uid() != 0 {
        return Some(format!(
            "it belongs to user {}, and this process runs as user {user}: use it as that user, or name a directory of your own",
            found.uid()
        ));
    }
    if others_write(&found) {
        return Some(format!(
            "its mode is {:04o}, so that other users may write there: chmod go-w {}",
            found.mode() & 0o7777,
            path.display()
        ));
    }
    path.ancestors().skip(1).find_map(|above| {
        let found = fs::symlink_metadata(above).ok()?;
        let theirs = found.uid() != user && found.uid() != 0 && !is_outside(found.uid());
        let open = others_write(&found) && found.mode() & STICKY == 0;
        (theirs || open).then(|| {
            format!(
                "{} above it belongs to user {} and has mode {:04o}, so that another user can put another directory in its place",
                above.display(),
                found.uid(),
                found.mode() & 0o7777
            )
        })
    })
}

/// In a user namespace, what belongs to users outside of it (root, mostly) is shown as this one's.
fn is_outside(user: u32) -> bool {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
    let all_are_here = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    !all_are_here && number("/proc/sys/kernel/overflowuid") == Some(user)
}

/// A group of the same number is the user's own, as most systems make it for each user.
fn others_write(found: &fs::Metadata) -> bool {
    found.mode() & ALL_WRITE != 0 || (found.mode() & GROUP_WRITES != 0 && found.gid() != found.uid())
}

/// Whether a process of this user may speak with this one: the same user, or root, which may do everything anyway.
pub(super) fn is_trusted(user: u32) -> bool {
    user == geteuid().as_raw() || user == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_or_replace_is_unsafe() {
        let room = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(room.path()).unwrap().join("above/store");
        fs::create_dir_all(&path).unwrap();
        let above = path.parent().unwrap();
        for mode in [0o700, 0o755, 0o2750] {
            set_mode(&path, mode);
            assert_eq!(what_is_unsafe(&path), None, "{mode:o}");
        }
        for mode in [0o777, 0o1777, 0o722] {
            set_mode(&path, mode);
            assert!(what_is_unsafe(&path).is_some_and(|why| why.contains("chmod go-w")), "{mode:o}");
        }
        set_mode(&path, 0o700);
        set_mode(above, 0o777);
        assert!(what_is_unsafe(&path).is_some_and(|why| why.contains("in its place")));
        set_mode(above, 0o1777);
        assert_eq!(what_is_unsafe(&path), None, "as /tmp is");
        set_mode(above, 0o700);
        let another = geteuid().as_raw() + 1;
        let theirs = what_is_unsafe_for(another, &path);
        assert_eq!(theirs.is_some(), !geteuid().is_root(), "{theirs:?}");
    }
}

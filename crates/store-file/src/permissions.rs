//! Whom a directory must be safe from: every other user but root, and but the members of the group that shares it. Anyone who can
//! write to it, or can put another in its place, decides what this process reads and writes there.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{getegid, geteuid, getgroups};
use tokio::net::UnixStream;

use super::peer_groups;

/// What others may write to, for their group and for all.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// In such a directory only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;
/// The mode of a directory that a group shares: what is made in it belongs to the group, and no other user can look into it.
pub(super) const SHARED_DIRECTORY: u32 = 0o2770;

const GROUPS: &str = "/etc/group";

/// A group whose members trust each other with a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedGroup {
    name: String,
    pub(super) id: u32,
}

impl SharedGroup {
    /// The group of this name or number. This process must be in it, or be root's.
    pub(super) fn find(name: &str) -> Result<SharedGroup, String> {
        let groups = fs::read(GROUPS).unwrap_or_default();
        let groups = String::from_utf8_lossy(&groups);
        let named = each_group(&groups).find(|(known, _)| *known == name).map(|(_, id)| id);
        let id = named.or_else(|| name.parse().ok()).ok_or_else(|| {
            format!("{GROUPS} has no group {name}: name one that it has, or the number of another (getent group {name})")
        })?;
        let user = geteuid();
        let groups = getgroups().unwrap_or_default();
        let is_member = getegid().as_raw() == id || groups.iter().any(|group| group.as_raw() == id);
        if !user.is_root() && !is_member {
            return Err(format!(
                "it is to be shared with group {name}, and this process of user {} is not in that: usermod -aG {name} USER, and log in anew",
                user.as_raw()
            ));
        }
        Ok(SharedGroup { name: name.to_owned(), id })
    }
}

impl fmt::Display for SharedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn each_group(groups: &str) -> impl Iterator<Item = (&str, u32)> {
    groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

/// What to call a group: its name, where that is known.
fn name_of(id: u32) -> String {
    let groups = fs::read(GROUPS).unwrap_or_default();
    let groups = String::from_utf8_lossy(&groups);
    let known = each_group(&groups).find(|(_, known)| *known == id);
    known.map_or_else(|| id.to_string(), |(name, _)| name.to_owned())
}

/// Why others than those who are meant could take part in what happens in this directory. `None`: only root can.
pub(super) fn what_is_unsafe(path: &Path, group: Option<&SharedGroup>) -> Option<String> {
    what_is_unsafe_for(geteuid().as_raw(), path, group)
}

fn what_is_unsafe_for(user: u32, path: &Path, group: Option<&SharedGroup>) -> Option<String> {
    let directory = fs::symlink_metadata(path).ok()?;
    let why = match group {
        None => why_not_private(user, path, &directory),
        Some(group) => why_not_shared(user, path, &directory, group),
    };
    why.or_else(|| {
        path.ancestors()
            .skip(1)
            .find_map(|above| why_replaceable(user, above, &directory, group))
    })
}

fn why_not_private(user: u32, path: &Path, found: &fs::Metadata) -> Option<String> {
    let mode = found.mode() & 0o7777;
    let shared = format!("or, to share it with a group, name that (?group={})", name_of(found.gid()));
    if found.uid() != user && found.uid() != 0 {
        return Some(format!(
            "it belongs to user {}, and this process runs as user {user}: use it as that user, name a directory of your own, {shared}",
            found.uid()
        ));
    }
    others_write(found, None).then(|| {
        let path = path.display();
        format!("its mode is {mode:04o}, so that other users may write there: chmod go-w {path}, {shared}")
    })
}

fn why_not_shared(user: u32, path: &Path, found: &fs::Metadata, group: &SharedGroup) -> Option<String> {
    let mode = found.mode() & 0o7777;
    if found.gid() != group.id || mode != SHARED_DIRECTORY {
        return Some(format!(
            "it belongs to group {} and has mode {mode:04o}, and ?group={group} means a directory of that group with mode \
             {SHARED_DIRECTORY:o}: chgrp {group} {path} && chmod {SHARED_DIRECTORY:o} {path}",
            name_of(found.gid()),
            path = path.display(),
        ));
    }
    // Only root and its members can give a directory to a group; but what is made in a directory of the group can be given to it by
    // a process that makes it.
    let above = fs::symlink_metadata(path.parent()?).ok()?;
    let anybody_made_it = above.mode() & ALL_WRITE != 0 && above.gid() == group.id;
    let known = found.uid() == user || found.uid() == 0;
    (anybody_made_it && !known).then(|| {
        format!(
            "it belongs to user {}, who need not be in group {group}, as every user may make directories beside it",
            found.uid()
        )
    })
}

/// Why another directory could be put in its place by those who may write to one above it.
fn why_replaceable(
    user: u32,
    above: &Path,
    directory: &fs::Metadata,
    group: Option<&SharedGroup>,
) -> Option<String> {
    let found = fs::symlink_metadata(above).ok()?;
    // A member is trusted with what is in a directory of the group, so also with the directory.
    let known = [user, 0].contains(&found.uid()) || (group.is_some() && found.uid() == directory.uid());
    let theirs = !known && !is_outside(found.uid());
    let open = others_write(&found, group) && found.mode() & STICKY == 0;
    (theirs || open).then(|| {
        format!(
            "{} above it belongs to user {} and has mode {:04o}, so that another user can put another directory in its place",
            above.display(),
            found.uid(),
            found.mode() & 0o7777
        )
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
fn others_write(found: &fs::Metadata, group: Option<&SharedGroup>) -> bool {
    let trusted = found.gid() == found.uid() || group.is_some_and(|group| group.id == found.gid());
    found.mode() & ALL_WRITE != 0 || (found.mode() & GROUP_WRITES != 0 && !trusted)
}

/// The user of the process at the other end of a socket, if it may not speak with this one. The same user may, a member of the group
/// that shares the directory, and root, which may do everything anyway.
pub(super) fn distrusted(peer: &UnixStream, group: Option<&SharedGroup>) -> io::Result<Option<u32>> {
    let known = peer.peer_cred()?;
    let is_member = |group: &SharedGroup| {
        let others = || peer_groups::groups_of(peer).unwrap_or_default();
        known.gid() == group.id || others().contains(&group.id)
    };
    let trusted = is_trusted(known.uid()) || group.is_some_and(is_member);
    Ok((!trusted).then_some(known.uid()))
}

fn is_trusted(user: u32) -> bool {
    user == geteuid().as_raw() || user == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::process::Gid;

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
        let private = |path: &Path| what_is_unsafe(path, None);
        for mode in [0o700, 0o755, 0o2750] {
            set_mode(&path, mode);
            assert_eq!(private(&path), None, "{mode:o}");
        }
        for mode in [0o777, 0o1777, 0o722] {
            set_mode(&path, mode);
            let why = private(&path).unwrap_or_default();
            assert!(why.contains("chmod go-w") && why.contains("?group="), "{mode:o}: {why}");
        }
        set_mode(&path, 0o700);
        set_mode(above, 0o777);
        assert!(private(&path).is_some_and(|why| why.contains("in its place")));
        set_mode(above, 0o1777);
        assert_eq!(private(&path), None, "as /tmp is");
        set_mode(above, 0o700);
        let another = geteuid().as_raw() + 1;
        let theirs = what_is_unsafe_for(another, &path, None);
        assert_eq!(theirs.is_some(), !geteuid().is_root(), "{theirs:?}");
    }

    #[test]
    fn a_shared_directory_is_its_groups_and_closed_to_others() {
        let room = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(room.path()).unwrap().join("store");
        fs::create_dir(&path).unwrap();
        let ours = getegid().as_raw();
        let group = |id: u32| SharedGroup { name: format!("group-{id}"), id };
        set_mode(&path, 0o2770);
        assert_eq!(what_is_unsafe(&path, Some(&group(ours))), None);
        let why = what_is_unsafe(&path, Some(&group(ours + 1))).unwrap_or_default();
        assert!(why.contains("chmod 2770"), "another group's: {why}");
        for mode in [0o700, 0o770, 0o2775, 0o2750, 0o3770] {
            set_mode(&path, mode);
            let why = what_is_unsafe(&path, Some(&group(ours))).unwrap_or_default();
            assert!(
                why.contains(&format!("chgrp group-{ours} ")) && why.contains("chmod 2770 "),
                "{mode:o}: {why}"
            );
        }
        // Where everybody may make a directory of the group, its owner may be anybody.
        set_mode(&path, 0o2770);
        set_mode(room.path(), 0o3777);
        let owner = geteuid().as_raw();
        if owner != 0 {
            let why = what_is_unsafe_for(owner + 1, &path, Some(&group(ours))).unwrap_or_default();
            assert!(why.contains("need not be in group"), "{why}");
        }
        assert_eq!(what_is_unsafe_for(owner, &path, Some(&group(ours))), None, "one's own");
    }

    #[test]
    fn a_group_is_found_by_its_name_or_its_number() {
        let ours = getegid().as_raw();
        assert_eq!(SharedGroup::find(&ours.to_string()).unwrap().id, ours);
        assert!(SharedGroup::find("no such group").unwrap_err().contains("has no group"));
        let file = "root:x:0:\nbroken\nusers:x:100:alice,bob\n";
        assert_eq!(each_group(file).collect::<Vec<_>>(), [("root", 0), ("users", 100)]);
    }

    #[tokio::test]
    async fn only_this_user_root_and_members_are_trusted() {
        let user = geteuid().as_raw();
        assert!(is_trusted(user) && is_trusted(0));
        assert!(!is_trusted(user + 1) && !is_trusted(65_534));
        let (one, _other) = UnixStream::pair().unwrap();
        let mut expected: Vec<u32> = getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
        let mut seen = peer_groups::groups_of(&one).unwrap();
        expected.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, expected);
        assert_eq!(distrusted(&one, None).unwrap(), None);
    }
}

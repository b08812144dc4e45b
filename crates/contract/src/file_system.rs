//! Whether a path is on a disk of this machine. Locks and the order of writes are only kept there.

use std::io;
use std::path::Path;

const NETWORK_FILE_SYSTEMS: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786f_4256, "a VirtualBox shared folder"),
    (0x6573_5546, "FUSE"),
];

/// The name of the network file system that a path is on, or `None` if it is local.
pub fn network_file_system(path: &Path) -> io::Result<Option<&'static str>> {
    let system = rustix::fs::statfs(path)?;
    // The field's type differs between machines; the magic numbers all fit into 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "magic numbers have 32 bits")]
    Ok(named(system.f_type as u32))
}

/// The name of the file system in memory that a path is on: a reboot takes everything on it. `None`: it is on a disk, or cannot be
/// asked.
pub fn memory_file_system(path: &Path) -> Option<&'static str> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "magic numbers have 32 bits")]
    match rustix::fs::statfs(path).ok()?.f_type as u32 {
        0x0102_1994 => Some("tmpfs"),
        0x8584_58f6 => Some("ramfs"),
        _ => None,
    }
}

fn named(magic: u32) -> Option<&'static str> {
    let known = NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == magic);
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_of_the_kernel_itself_is_local() {
        assert_eq!(network_file_system(Path::new("/proc")).unwrap(), None);
        assert!(network_file_system(Path::new("/proc/no-such-file")).is_err());
    }

    /// The numbers are those of `statfs(2)`, where they have names.
    #[test]
    fn what_other_machines_can_write_to_is_told_from_disks() {
        let network = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400, 0x0bd0_0bd0, 0x6573_5546];
        let names = ["NFS", "CIFS", "SMB2", "9P", "Ceph", "Lustre", "FUSE"];
        assert_eq!(network.map(named), names.map(Some));
        let (ext4, xfs, btrfs, tmpfs, overlay, zfs) =
            (0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1);
        assert_eq!([ext4, xfs, btrfs, tmpfs, overlay, zfs].map(named), [None; 6]);
    }
}

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
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x6573_5546, "FUSE"),
];

/// The name of the network file system that a path is on, or `None` if it is local.
pub fn network_file_system(path: &Path) -> io::Result<Option<&'static str>> {
    let system = rustix::fs::statfs(path)?;
    // The field's type differs between machines; the magic numbers all fit into 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "magic numbers have 32 bits")]
    let magic = system.f_type as u32;
    let known = NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == magic);
    Ok(known.map(|(_, name)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_of_the_kernel_itself_is_local() {
        assert_eq!(network_file_system(Path::new("/proc")).unwrap(), None);
        assert!(network_file_system(Path::new("/proc/no-such-file")).is_err());
    }
}

//! The groups of the process at the other end of a socket, as they were when it connected or began to listen. `/proc` would
//! say what they are now, of whatever has its number by now.
#![expect(unsafe_code, reason = "no library that is used here offers SO_PEERGROUPS")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Enough for most; the system says how many there are where it is not.
const GROUPS: usize = 64;

/// Its supplementary groups. Its own is not among them.
pub(super) fn groups_of(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    let each = size_of::<libc::gid_t>();
    let mut groups: Vec<libc::gid_t> = vec![0; GROUPS];
    loop {
        let mut bytes = libc::socklen_t::try_from(groups.len() * each).map_err(io::Error::other)?;
        // SAFETY: the buffer has as many bytes as it is said to have, and lives as long as the call.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let found = bytes as usize / each;
        if done == 0 {
            groups.truncate(found);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || found <= groups.len() {
            return Err(error);
        }
        groups.resize(found, 0);
    }
}

//! Descriptors that this process was started with. The only unsafe code of the command line.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The first descriptor that is not stdin, stdout or stderr.
const FIRST: RawFd = 3;

/// Takes over one descriptor that was handed to this process under a number.
///
/// To be called at the very start of a process, once a number: later, the number could belong to something else.
#[expect(
    unsafe_code,
    reason = "a number that came with the process can become an owned descriptor in no other way"
)]
pub(super) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // Also refuses a number that is not open.
    if number < FIRST || fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_err() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such descriptor was handed over"));
    }
    // SAFETY: the descriptor is open, as was just seen, and nothing in this process owns it: both callers are the start
    // of `main`, where one thread runs and nothing but the three standard streams belongs to the runtime.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes everything that was inherited beyond the three standard streams.
pub(super) fn close_all() -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    // The listing's own descriptor is closed by now, so `adopt` refuses it, as it does the standard streams.
    for number in numbers {
        drop(adopt(number));
    }
    Ok(())
}

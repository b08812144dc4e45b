//! Telling systemd how things stand: one datagram to the socket that it names.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};

const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemdState {
    /// The server answers.
    Ready,
    /// It was asked to stop, and finishes what is under way.
    Stopping,
}

/// Tells systemd, if it has started us and wants to know.
pub fn tell(state: SystemdState, what: &str) {
    let word = match state {
        SystemdState::Ready => "READY=1",
        SystemdState::Stopping => "STOPPING=1",
    };
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE).filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(socket.as_bytes(), &format!("{word}\nSTATUS={what}\n")) {
        tracing::warn!(%error, "systemd could not be notified: {what}");
    }
}

fn send(socket: &[u8], text: &str) -> io::Result<()> {
    // A name that begins with @ is not in the file system.
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsString::from_vec(socket.to_vec()))?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_as_one_datagram() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1\nSTATUS=listening\n").unwrap();
        let mut buffer = [0; 100];
        let length = systemd.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\nSTATUS=listening\n");
        assert!(send(b"/nowhere/at/all", "x").is_err());
    }
}

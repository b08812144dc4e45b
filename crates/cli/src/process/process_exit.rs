//! Hearing that a process has ended.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// When to look whether a process has ended.
pub(super) enum ProcessExit {
    /// A descriptor of the process, which no other process concerns.
    Of(AsyncFd<OwnedFd>),
    /// Any child has ended: kernels before 5.2.
    OfAny(SignalStream),
}

impl ProcessExit {
    /// It may have ended before this listens: look once, then.
    #[allow(
        deprecated,
        reason = "its successor is unsafe; an `OwnedFd` is one descriptor for as long as it lives"
    )]
    pub(super) fn of(process: Option<OwnedFd>) -> io::Result<Self> {
        Ok(match process {
            Some(process) => ProcessExit::Of(AsyncFd::with_interest(process, Interest::READABLE)?),
            None => ProcessExit::OfAny(signal(SignalKind::child())?),
        })
    }

    /// Waits until there is something to see. Can be dropped and called again.
    pub(super) async fn changed(&mut self) {
        match self {
            // It stays readable, but is not waited for any more once the end was seen.
            ProcessExit::Of(process) => {
                if let Ok(mut ready) = process.readable().await {
                    ready.clear_ready();
                }
            }
            ProcessExit::OfAny(children) => drop(children.recv().await),
        }
    }
}

//! The signals that `run` passes on to its command.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What people, supervisors and terminals send to a command, and mean for it.
const PASSED_ON: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// The signals that have arrived, in order.
#[derive(Debug)]
pub(crate) struct Signals {
    arrived: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// Listens from now on. A signal that this process ignores from its start (by `nohup`, or as a background job) it goes on
    /// ignoring, and so does the command, which inherits that.
    pub(crate) fn listen() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let (sender, arrived) = mpsc::unbounded_channel();
        for passed_on in PASSED_ON {
            if ignored & bit(passed_on) != 0 {
                continue;
            }
            let mut stream = signal(SignalKind::from_raw(passed_on.as_raw()))?;
            let sender = sender.clone();
            tokio::spawn(
                async move { while stream.recv().await.is_some() && sender.send(passed_on).is_ok() {} },
            );
        }
        Ok(Signals { arrived })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.arrived.recv().await {
            Some(signal) => signal,
            // All were ignored from the start.
            None => std::future::pending().await,
        }
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The mask of ignored signals in `/proc/self/status`.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\tff\n";
        assert_ne!(ignored(status) & bit(Signal::HUP), 0);
        assert_eq!(ignored(status) & bit(Signal::INT), 0);
        assert_eq!(ignored("no such line"), 0);
    }
}

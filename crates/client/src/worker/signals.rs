//! The signals that tell a worker to stop.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::board::Board;
use crate::connect::no_thread;
use crate::error::Error;

/// SIGTERM and SIGINT, while this lives. Afterwards they do by default what they always do.
///
/// What this process was told to ignore, by `nohup` or as a background job, it goes on ignoring.
pub(super) struct Signals {
    arrived: Arc<Board<u64>>,
    seen: u64,
    /// Whether the signals do what they do by default.
    by_default: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Error> {
        let no_signals = |error: std::io::Error| Error::Unavailable {
            why: format!("signals cannot be listened for: {error}"),
        };
        let (mut reader, writer) = UnixStream::pair().map_err(no_signals)?;
        let mut signals = Signals {
            arrived: Arc::default(),
            seen: 0,
            by_default: Arc::new(AtomicBool::new(false)),
            registered: Vec::new(),
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for signal in [SIGTERM, SIGINT].into_iter().filter(|signal| !is_ignored(&status, *signal)) {
            let writer = writer.try_clone().map_err(no_signals)?;
            let heard = signal_hook::low_level::pipe::register(signal, writer).map_err(no_signals)?;
            signals.registered.push(heard);
            let by_default = Arc::clone(&signals.by_default);
            // Stays when this is gone, and then gives the signal back its meaning.
            signal_hook::flag::register_conditional_default(signal, by_default).map_err(no_signals)?;
        }
        drop(writer);
        let arrived = Arc::clone(&signals.arrived);
        let listen = move || {
            let mut byte = [0];
            while reader.read_exact(&mut byte).is_ok() {
                arrived.update(|count| {
                    *count += 1;
                    Some(())
                });
            }
        };
        std::thread::Builder::new()
            .name("fencehold-signals".to_owned())
            .spawn(listen)
            .map_err(|error| no_thread(&error))?;
        Ok(signals)
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        let seen = self.seen;
        self.seen = self.arrived.when(move |count, _| (*count > seen).then_some(*count)).await;
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.by_default.store(true, Ordering::SeqCst);
        for heard in self.registered.drain(..) {
            // The last writer goes with it, and so the thread ends.
            signal_hook::low_level::unregister(heard);
        }
    }
}

/// Whether a process with this `/proc/self/status` ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000002\nSigCgt:\tff\n";
        assert!(is_ignored(status, SIGINT));
        assert!(!is_ignored(status, SIGTERM));
        assert!(!is_ignored("no such line", SIGINT));
    }
}

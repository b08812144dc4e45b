//! The signals that tell a worker to stop.
//!
//! Signals are the process's, workers come and go. While any of them listens, SIGTERM and SIGINT tell all that do;
//! when the last one is gone, they end the process as they always did.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::low_level::{pipe, unregister};

use crate::bell::lock;
use crate::board::Board;
use crate::error::Error;

/// Who listens in this process.
static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners { count: 0, by_default: None });

struct Listeners {
    count: usize,
    /// Whether the signals do what they do by default. Made once: what is registered for a process stays.
    by_default: Option<Arc<AtomicBool>>,
}

/// SIGTERM and SIGINT, while this lives.
///
/// What this process was told to ignore, by `nohup` or as a background job, it goes on ignoring.
pub(super) struct Signals {
    arrived: Arc<Board<u64>>,
    seen: u64,
    heard: Vec<SigId>,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Error> {
        Signals::try_listen()
            .map_err(|error| Error::Unavailable { why: format!("signals cannot be listened for: {error}") })
    }

    fn try_listen() -> io::Result<Self> {
        let (mut reader, writer) = UnixStream::pair()?;
        let arrived = Arc::<Board<u64>>::default();
        let telling = Arc::clone(&arrived);
        let listen = move || {
            let mut byte = [0];
            while reader.read_exact(&mut byte).is_ok() {
                telling.update(|count| {
                    *count += 1;
                    Some(())
                });
            }
        };
        std::thread::Builder::new().name("fencehold-signals".to_owned()).spawn(listen)?;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut listeners = lock(&LISTENERS);
        let heeded = || [SIGTERM, SIGINT].into_iter().filter(|signal| !is_ignored(&status, *signal));
        if listeners.by_default.is_none() {
            let by_default = Arc::new(AtomicBool::new(false));
            for signal in heeded() {
                register_conditional_default(signal, Arc::clone(&by_default))?;
            }
            listeners.by_default = Some(by_default);
        }
        listeners.count += 1;
        listeners.tell();
        // From here on its drop takes back what was done.
        let mut signals = Signals { arrived, seen: 0, heard: Vec::new() };
        drop(listeners);
        for signal in heeded() {
            signals.heard.push(pipe::register(signal, writer.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        let seen = self.seen;
        self.seen = self.arrived.when(move |count, _| (*count > seen).then_some(*count)).await;
    }
}

impl Listeners {
    fn tell(&self) {
        if let Some(by_default) = &self.by_default {
            by_default.store(self.count == 0, Ordering::SeqCst);
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut listeners = lock(&LISTENERS);
        listeners.count -= 1;
        listeners.tell();
        for heard in self.heard.drain(..) {
            // The last writer goes with it, and so the thread that reads ends.
            unregister(heard);
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

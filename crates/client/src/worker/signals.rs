//! The signals that tell a worker to stop.
//!
//! Signals are the process's, workers come and go. While any of them listens, SIGTERM and SIGINT tell all that do;
//! when the last one is gone, they do what they did before: end the process, or call the application's own handler.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use libc::{SIGINT, SIGTERM, c_int, c_void, siginfo_t};

use crate::wake::{WatchValue, lock};

type Arrived = WatchValue<u64>;

/// Who listens in this process.
static LISTENERS: Mutex<Vec<Weak<Arrived>>> = Mutex::new(Vec::new());
/// How many do, for the handler, which may not lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where the handler writes; -1: nowhere yet.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// What was there before our handler, for each of the signals.
static BEFORE: [AtomicPtr<libc::sigaction>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

const SIGNALS: [c_int; 2] = [SIGTERM, SIGINT];

/// SIGTERM and SIGINT, while this lives. A handler that the application had before is called too, and is what it was when
/// the last of these is gone.
///
/// What this process was set to ignore, by `nohup` or as a background job, it goes on ignoring.
pub(super) struct StopSignals {
    arrived: Arc<Arrived>,
    seen: u64,
}

impl StopSignals {
    /// Listens from now on.
    pub(super) fn listen() -> io::Result<Self> {
        let mut listeners = lock(&LISTENERS);
        if PIPE.load(Ordering::SeqCst) < 0 {
            start_reader()?;
        }
        listeners.retain(|listener| listener.strong_count() > 0);
        if COUNT.load(Ordering::SeqCst) == 0 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
                if !is_ignored(&status, signal) {
                    install(signal, before)?;
                }
            }
        }
        COUNT.fetch_add(1, Ordering::SeqCst);
        let arrived = Arc::<Arrived>::default();
        listeners.push(Arc::downgrade(&arrived));
        Ok(StopSignals { arrived, seen: 0 })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        let seen = self.seen;
        self.seen = self.arrived.when(move |count, _| (*count > seen).then_some(*count)).await;
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        let _listeners = lock(&LISTENERS);
        if COUNT.fetch_sub(1, Ordering::SeqCst) == 1 {
            for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
                restore(signal, before);
            }
        }
    }
}

/// Starts the one thread that tells listeners. It and its pipe stay: a handler may write at any moment.
fn start_reader() -> io::Result<()> {
    let (mut reader, writer) = UnixStream::pair()?;
    writer.set_nonblocking(true)?;
    let listen = move || {
        let mut byte = [0];
        while reader.read_exact(&mut byte).is_ok() {
            let listeners: Vec<_> = lock(&LISTENERS).iter().filter_map(Weak::upgrade).collect();
            for listener in listeners {
                listener.change(|count| *count += 1);
            }
        }
    };
    std::thread::Builder::new().name("fencehold-signals".to_owned()).spawn(listen)?;
    PIPE.store(writer.as_raw_fd(), Ordering::SeqCst);
    std::mem::forget(writer);
    Ok(())
}

fn ours() -> libc::sighandler_t {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = handle;
    handler as libc::sighandler_t
}

/// Puts our handler in front of what is there.
#[expect(unsafe_code, reason = "what a signal did before can be had, and had back, in no other way")]
fn install(signal: c_int, before: &AtomicPtr<libc::sigaction>) -> io::Result<()> {
    if !before.load(Ordering::SeqCst).is_null() {
        // Another handler was put in front of ours and calls it: to stand in front of that one too would be a circle.
        return Ok(());
    }
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both structures are whole; `handle` does only what a signal handler may. `before` is there before the handler
    // can be called, and is never freed, for it may be read at any moment.
    unsafe {
        if libc::sigaction(signal, ptr::null(), found.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        before.store(Box::into_raw(Box::new(found.assume_init())), Ordering::SeqCst);
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = ours();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(signal, &raw const action, ptr::null_mut()) != 0 {
            before.store(ptr::null_mut(), Ordering::SeqCst);
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Puts back what was there before, unless another handler was put in front of ours since.
#[expect(unsafe_code, reason = "what a signal did before can be had, and had back, in no other way")]
fn restore(signal: c_int, before: &AtomicPtr<libc::sigaction>) {
    let found = before.load(Ordering::SeqCst);
    if found.is_null() {
        return;
    }
    let mut current = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `found` was made by `install` and is never freed.
    unsafe {
        if libc::sigaction(signal, ptr::null(), current.as_mut_ptr()) == 0
            && current.assume_init().sa_sigaction == ours()
            && libc::sigaction(signal, found, ptr::null_mut()) == 0
        {
            before.store(ptr::null_mut(), Ordering::SeqCst);
        }
    }
}

/// Only what a signal handler may do: a byte is written, and the handler before this one is called.
#[expect(unsafe_code, reason = "a signal handler speaks to the kernel, and to the handler before it")]
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let nth = usize::from(signal != SIGTERM);
    // SAFETY: `write`, `__errno_location` and reading atomics may be done here. The handler that was installed before has
    // the form that its flags say.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        if COUNT.load(Ordering::SeqCst) > 0 {
            let _ = libc::write(PIPE.load(Ordering::SeqCst), [0_u8].as_ptr().cast(), 1);
        }
        *errno = kept;
        let before = BEFORE[nth].load(Ordering::SeqCst);
        if before.is_null() {
            return;
        }
        let (action, flags) = ((*before).sa_sigaction, (*before).sa_flags);
        if action == libc::SIG_DFL || action == libc::SIG_IGN {
            return;
        }
        if flags & libc::SA_SIGINFO != 0 {
            let call: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(action);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(c_int) = std::mem::transmute(action);
            call(signal);
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

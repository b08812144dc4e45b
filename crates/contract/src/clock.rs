//! Time, as an argument.
//!
//! Everything below the library takes its time from a [`Clock`], so that tests order events by moving it and a
//! simulation can run years in seconds.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencehold_core::Timestamp;

/// Where time comes from.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The moment it is.
    fn now(&self) -> Timestamp;

    /// How long a thread may wait, in real time, before store time reaches `until_ms`. `None`: until it is
    /// nudged, because this clock moves only by hand.
    fn real_time_until(&self, until_ms: u64) -> Option<Duration>;

    /// Registers what to call whenever the clock is moved by hand.
    fn on_move(&self, nudge: Box<dyn Fn() + Send + Sync>);

    /// Which boot it counts from; `None`: the machine's own.
    fn boot(&self) -> Option<String> {
        None
    }
}

/// The machine's own clocks: the boot-time clock decides, the wall clock is for people.
///
/// The boot-time clock counts suspended time too, and no adjustment of the wall clock touches it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp { store_ms: boot_ms(), wall_ms: wall_ms() }
    }

    fn real_time_until(&self, until_ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(until_ms.saturating_sub(self.now().store_ms)))
    }

    fn on_move(&self, _: Box<dyn Fn() + Send + Sync>) {}
}

#[expect(clippy::disallowed_methods, reason = "this is the one place where time comes from")]
fn boot_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // It is after its epoch on every Linux.
    let ms = i128::from(time.tv_sec) * 1000 + i128::from(time.tv_nsec) / 1_000_000;
    u64::try_from(ms - i128::from(namespace_ahead_ms().unwrap_or(0))).unwrap_or(0)
}

/// How far the boot-time clock of this process's time namespace is ahead of the machine's own. Taken off, so that all
/// namespaces of a machine tell the same store time. `None`: it cannot be found out.
pub fn namespace_ahead_ms() -> Option<i64> {
    static AHEAD_MS: std::sync::OnceLock<Option<i64>> = std::sync::OnceLock::new();
    *AHEAD_MS.get_or_init(|| {
        let of = |what: &str| std::fs::read_link(format!("/proc/self/ns/{what}")).ok();
        let Some(own) = of("time") else {
            // A kernel without time namespaces.
            return Some(0);
        };
        if own.to_str() == Some(FIRST_NAMESPACE) {
            return Some(0);
        }
        // The offsets that can be read are those of children: only where they share the namespace are they its own.
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").ok()?;
        (of("time_for_children")? == own).then(|| boot_offset_ms(&offsets)).flatten()
    })
}

/// The name of the time namespace that a machine boots with.
pub const FIRST_NAMESPACE: &str = "time:[4026531834]";

/// The line of the boot-time clock: its name or number, seconds, nanoseconds.
fn boot_offset_ms(offsets: &str) -> Option<i64> {
    let mut fields = offsets
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut fields| matches!(fields.next(), Some("boottime" | "7")).then_some(fields))?;
    let (seconds, nanos): (i64, i64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)
}

/// Another clock, so many milliseconds ahead in store time.
#[derive(Clone, Debug)]
pub struct ClockAhead {
    /// The clock that this one is ahead of.
    pub clock: Arc<dyn Clock>,
    /// By how much it is ahead.
    pub ahead_ms: u64,
}

impl Clock for ClockAhead {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp { store_ms: now.store_ms.saturating_add(self.ahead_ms), ..now }
    }

    fn real_time_until(&self, until_ms: u64) -> Option<Duration> {
        self.clock.real_time_until(until_ms.saturating_sub(self.ahead_ms))
    }

    fn on_move(&self, nudge: Box<dyn Fn() + Send + Sync>) {
        self.clock.on_move(nudge);
    }

    fn boot(&self) -> Option<String> {
        self.clock.boot()
    }
}

/// Through libc, where a test can set it for one process alone. A wall clock set before 1970 reads as 0 and decides nothing.
#[expect(clippy::disallowed_methods, reason = "this is the one place where time comes from")]
fn wall_ms() -> u64 {
    let since_1970 = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// A clock that a test moves by hand.
#[derive(Clone, Default)]
pub struct ManualClock(Arc<ManualTimes>);

#[derive(Default)]
struct ManualTimes {
    store_ms: AtomicU64,
    wall_ms: AtomicU64,
    nudges: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    /// A clock that stands at an ordinary moment.
    pub fn new() -> Self {
        let clock = ManualClock::default();
        clock.0.store_ms.store(1_000_000, Ordering::SeqCst);
        clock.0.wall_ms.store(1_800_000_000_000, Ordering::SeqCst);
        clock
    }

    /// Advances both clocks by this time.
    pub fn advance_ms(&self, ms: u64) {
        self.0.store_ms.fetch_add(ms, Ordering::SeqCst);
        self.0.wall_ms.fetch_add(ms, Ordering::SeqCst);
        for nudge in self.0.nudges.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            nudge();
        }
    }

    /// Sets the wall clock and leaves store time alone, as an operator or a time server does.
    pub fn set_wall(&self, wall_ms: u64) {
        self.0.wall_ms.store(wall_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp {
            store_ms: self.0.store_ms.load(Ordering::SeqCst),
            wall_ms: self.0.wall_ms.load(Ordering::SeqCst),
        }
    }

    fn real_time_until(&self, _: u64) -> Option<Duration> {
        None
    }

    fn on_move(&self, nudge: Box<dyn Fn() + Send + Sync>) {
        self.0.nudges.lock().unwrap_or_else(PoisonError::into_inner).push(nudge);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read_as_the_kernel_writes_it() {
        let written = "monotonic           0         0\nboottime       100000 500000000\n";
        assert_eq!(boot_offset_ms(written), Some(100_000_500));
        assert_eq!(boot_offset_ms("1 0 0\n7 -3 0\n"), Some(-3_000));
        assert_eq!(boot_offset_ms("monotonic 0 0\n"), None);
        assert_eq!(boot_offset_ms("boottime x 0\n"), None);
    }
}

//! When the circuit breaker opens, and what it says of itself.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// When the circuit breaker opens, and for how long.
///
/// A call is *bad* if it failed ([`Unavailable`](crate::Error::Unavailable), [`OutcomeUnknown`](crate::Error::OutcomeUnknown)) or if
/// its response was slow. A call that may wait in line, such as a blocking acquisition, is never slow.
///
/// ```
/// use std::time::Duration;
///
/// let mut policy = fencehold::CircuitBreakerPolicy::default();
/// policy.failures_in_a_row = 3;
/// policy.slow_after = Some(Duration::from_secs(2));
/// let builder = fencehold::Fencehold::builder().url("memory:").circuit_breaker(policy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CircuitBreakerPolicy {
    /// Opens after this many bad calls with no good one between them. Default 5.
    pub failures_in_a_row: u32,
    /// Opens when this share of the calls of a window was bad. Default 50.
    pub failures_percent: u32,
    /// A window with fewer calls than this says nothing about the share. Default 20.
    pub min_window_calls: u32,
    /// How long a window is. Default 10 s.
    pub window: Duration,
    /// A response that takes this long is slow. `None`: half of the handle's [timeout](crate::FenceholdBuilder::timeout), which
    /// is 5 s by default, and at least 1 s. [`Duration::MAX`]: no response is. Default `None`.
    pub slow_after: Option<Duration>,
    /// How long it stays open the first time before a call may try. Each further opening in a row doubles it. Default 1 s.
    pub open_for: Duration,
    /// It never stays open for longer than this, or than `open_for` if that is longer. Default 10 s.
    pub max_open_for: Duration,
    /// How much of the time open chance may take off, so that many processes do not come back at once. Default 50.
    pub open_jitter_percent: u8,
    /// Once it has been closed for this long, the next opening is a first one again. Default 60 s.
    pub reset_after: Duration,
    /// How many calls may try at once while it is half open. The others are refused, or wait. Default 1.
    pub max_half_open_calls: u32,
}

impl Default for CircuitBreakerPolicy {
    fn default() -> Self {
        CircuitBreakerPolicy {
            failures_in_a_row: 5,
            failures_percent: 50,
            min_window_calls: 20,
            window: Duration::from_secs(10),
            slow_after: None,
            open_for: Duration::from_secs(1),
            max_open_for: Duration::from_secs(10),
            open_jitter_percent: 50,
            reset_after: Duration::from_secs(60),
            max_half_open_calls: 1,
        }
    }
}

/// The state of the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitBreakerState {
    /// Calls go through.
    Closed,
    /// Acquisitions are held back.
    Open,
    /// A few acquisitions at a time may try.
    HalfOpen,
}

impl CircuitBreakerState {
    const ALL: [CircuitBreakerState; 3] =
        [CircuitBreakerState::Closed, CircuitBreakerState::Open, CircuitBreakerState::HalfOpen];

    /// Its name in logs and metrics: `closed`, `open` or `half_open`.
    pub fn name(self) -> &'static str {
        match self {
            CircuitBreakerState::Closed => "closed",
            CircuitBreakerState::Open => "open",
            CircuitBreakerState::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for CircuitBreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The state of the circuit breaker, and what it has counted since the handle was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CircuitBreakerStats {
    /// Its state.
    pub state: CircuitBreakerState,
    /// How long until a call may try, where none may now.
    pub retry_in: Option<Duration>,
    /// How many openings there were in a row, up to the last one.
    pub opened_in_a_row: u32,
    /// How many times it opened.
    pub opened_count: u64,
    /// How many calls it refused.
    pub refused_count: u64,
    /// How many calls it made wait.
    pub delayed_count: u64,
    /// How many calls failed, renewals and releases included.
    pub failed_count: u64,
    /// How many responses were slow, likewise.
    pub slow_count: u64,
}

impl CircuitBreakerStats {
    /// The same as metrics of Prometheus, in its text format: for a process that has a page of them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = fencehold::Fencehold::connect("memory:").await?;
    /// let page = fh.circuit_breaker_stats().to_prometheus();
    /// assert!(page.contains("fencehold_client_circuit_breaker_state{state=\"closed\"} 1\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut page = String::new();
        let name = "fencehold_client_circuit_breaker_state";
        let _ = writeln!(page, "# HELP {name} 1: the circuit breaker is in this state.");
        let _ = writeln!(page, "# TYPE {name} gauge");
        for state in CircuitBreakerState::ALL {
            let _ = writeln!(page, "{name}{{state=\"{state}\"}} {}", u8::from(state == self.state));
        }
        for (name, help, count) in [
            ("circuit_breaker_opened_total", "How many times it opened.", self.opened_count),
            ("circuit_breaker_refused_total", "Calls that it refused.", self.refused_count),
            ("circuit_breaker_delayed_total", "Calls that it made wait.", self.delayed_count),
            ("calls_failed_total", "Calls to the store that failed.", self.failed_count),
            ("calls_slow_total", "Responses of the store that were slow.", self.slow_count),
        ] {
            let _ = writeln!(page, "# HELP fencehold_client_{name} {help}");
            let _ = writeln!(page, "# TYPE fencehold_client_{name} counter");
            let _ = writeln!(page, "fencehold_client_{name} {count}");
        }
        page
    }
}

//! What `run` and its watchdog say to each other: one line a message, so that a trace can be read.

use std::fmt;
use std::str::FromStr;

use crate::process::group::ProcessGroup;

/// When to ask the command to end, and when to end it, in milliseconds of the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    pub(crate) term_at_ms: u64,
    pub(crate) kill_at_ms: u64,
}

impl Deadlines {
    /// The end at `kill_at_ms`, announced a grace before.
    pub(crate) fn ending_at(kill_at_ms: u64, grace_ms: u64) -> Self {
        Deadlines { term_at_ms: kill_at_ms.saturating_sub(grace_ms), kill_at_ms }
    }
}

/// What `run` tells its watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogOrder {
    /// Watch this group.
    Watch {
        group: ProcessGroup,
        /// How long the group gets between the request to end and its end, when `run` is gone.
        grace_ms: u64,
        moments: Deadlines,
    },
    /// The lease goes on until then.
    Until(Deadlines),
    /// The command is gone: there is nothing left to watch.
    Gone,
}

/// What the watchdog tells `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchdogReport {
    /// It stands, in a session of its own.
    Ready,
    /// It watches.
    Watching,
    /// Time was up: it asked the group to end.
    Terminated,
    /// Time was up: it ended the group.
    Killed,
}

/// A line that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownMessage;

impl fmt::Display for WatchdogOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchdogOrder::Watch { group, grace_ms, moments: Deadlines { term_at_ms, kill_at_ms } } => {
                writeln!(f, "watch {} {grace_ms} {term_at_ms} {kill_at_ms}", group.number())
            }
            WatchdogOrder::Until(Deadlines { term_at_ms, kill_at_ms }) => {
                writeln!(f, "until {term_at_ms} {kill_at_ms}")
            }
            WatchdogOrder::Gone => writeln!(f, "gone"),
        }
    }
}

impl FromStr for WatchdogOrder {
    type Err = UnknownMessage;

    fn from_str(line: &str) -> Result<Self, UnknownMessage> {
        let mut words = line.split_ascii_whitespace();
        let order = words.next().ok_or(UnknownMessage)?;
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(UnknownMessage);
        match order {
            "watch" => {
                let group = i32::try_from(number()?)
                    .ok()
                    .and_then(ProcessGroup::from_number)
                    .ok_or(UnknownMessage)?;
                let grace_ms = number()?;
                let moments = Deadlines { term_at_ms: number()?, kill_at_ms: number()? };
                Ok(WatchdogOrder::Watch { group, grace_ms, moments })
            }
            "until" => Ok(WatchdogOrder::Until(Deadlines { term_at_ms: number()?, kill_at_ms: number()? })),
            "gone" => Ok(WatchdogOrder::Gone),
            _ => Err(UnknownMessage),
        }
    }
}

impl WatchdogReport {
    const NAMES: [(WatchdogReport, &str); 4] = [
        (WatchdogReport::Ready, "ready"),
        (WatchdogReport::Watching, "watching"),
        (WatchdogReport::Terminated, "terminated"),
        (WatchdogReport::Killed, "killed"),
    ];
}

impl fmt::Display for WatchdogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = WatchdogReport::NAMES[*self as usize];
        writeln!(f, "{name}")
    }
}

impl FromStr for WatchdogReport {
    type Err = UnknownMessage;

    fn from_str(line: &str) -> Result<Self, UnknownMessage> {
        let named = WatchdogReport::NAMES.into_iter().find(|(_, name)| *name == line.trim_end());
        named.map(|(report, _)| report).ok_or(UnknownMessage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let moments = Deadlines { term_at_ms: 12, kill_at_ms: u64::MAX };
        let group = ProcessGroup::from_number(4242).unwrap();
        for order in [
            WatchdogOrder::Watch { group, grace_ms: 7, moments },
            WatchdogOrder::Until(moments),
            WatchdogOrder::Gone,
        ] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for report in [
            WatchdogReport::Ready,
            WatchdogReport::Watching,
            WatchdogReport::Terminated,
            WatchdogReport::Killed,
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
    }

    #[test]
    fn nonsense_is_not_obeyed() {
        for line in ["", "watch", "watch 1 2 3 4", "watch -7 1 2 3", "until 5", "until five 6", "kill 1"] {
            assert_eq!(line.parse::<WatchdogOrder>(), Err(UnknownMessage), "{line}");
        }
    }
}

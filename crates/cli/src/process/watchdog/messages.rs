//! What `run` or `work` and its watchdog say to each other: one line a message, so that a trace can be read.

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

/// Which command: the number of its order. The number of a group is used again once the group is gone, and says less.
pub(super) type CommandId = u64;

/// What `run` and `work` order of their watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogOrder {
    /// Watch this group.
    Watch { command: CommandId, terms: WatchTerms, group: ProcessGroup },
    /// The lease goes on until then.
    Until(CommandId, Deadlines),
    /// The command is gone: there is nothing left of it to watch.
    Gone(CommandId),
}

/// How to watch a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchTerms {
    /// How long its group gets between the request to end and its end, when `run` is gone.
    pub(super) grace_ms: u64,
    pub(super) moments: Deadlines,
}

impl WatchTerms {
    /// The order to watch a command, but for the number of its group: the process that leads it is to write that.
    pub(super) fn order(&self, command: CommandId) -> String {
        let WatchTerms { grace_ms, moments: Deadlines { term_at_ms, kill_at_ms } } = self;
        format!("watch {command} {grace_ms} {term_at_ms} {kill_at_ms} ")
    }
}

/// What the watchdog reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogReport {
    /// It is there, in a session of its own.
    Ready,
    /// Time was up: it asked the group to end.
    Terminated(CommandId),
    /// Time was up: it ended the group.
    Killed(CommandId),
}

/// A line that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownMessage;

impl fmt::Display for WatchdogOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchdogOrder::Watch { command, terms, group } => {
                writeln!(f, "{}{}", terms.order(*command), group.number())
            }
            WatchdogOrder::Until(command, Deadlines { term_at_ms, kill_at_ms }) => {
                writeln!(f, "until {command} {term_at_ms} {kill_at_ms}")
            }
            WatchdogOrder::Gone(command) => writeln!(f, "gone {command}"),
        }
    }
}

impl FromStr for WatchdogOrder {
    type Err = UnknownMessage;

    fn from_str(line: &str) -> Result<Self, UnknownMessage> {
        let mut words = line.split_ascii_whitespace();
        let order = words.next().ok_or(UnknownMessage)?;
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(UnknownMessage);
        let command = number()?;
        match order {
            "watch" => {
                let grace_ms = number()?;
                let moments = Deadlines { term_at_ms: number()?, kill_at_ms: number()? };
                let group = i32::try_from(number()?)
                    .ok()
                    .and_then(ProcessGroup::from_number)
                    .ok_or(UnknownMessage)?;
                Ok(WatchdogOrder::Watch { command, terms: WatchTerms { grace_ms, moments }, group })
            }
            "until" => {
                Ok(WatchdogOrder::Until(command, Deadlines { term_at_ms: number()?, kill_at_ms: number()? }))
            }
            "gone" => Ok(WatchdogOrder::Gone(command)),
            _ => Err(UnknownMessage),
        }
    }
}

impl fmt::Display for WatchdogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchdogReport::Ready => writeln!(f, "ready"),
            WatchdogReport::Terminated(command) => writeln!(f, "terminated {command}"),
            WatchdogReport::Killed(command) => writeln!(f, "killed {command}"),
        }
    }
}

impl FromStr for WatchdogReport {
    type Err = UnknownMessage;

    fn from_str(line: &str) -> Result<Self, UnknownMessage> {
        let (report, command) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        match (report, command.parse()) {
            ("ready", _) => Ok(WatchdogReport::Ready),
            ("terminated", Ok(command)) => Ok(WatchdogReport::Terminated(command)),
            ("killed", Ok(command)) => Ok(WatchdogReport::Killed(command)),
            _ => Err(UnknownMessage),
        }
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
            WatchdogOrder::Watch { command: 1, terms: WatchTerms { grace_ms: 7, moments }, group },
            WatchdogOrder::Until(u64::MAX, moments),
            WatchdogOrder::Gone(3),
        ] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for report in [WatchdogReport::Ready, WatchdogReport::Terminated(7), WatchdogReport::Killed(8)] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
    }

    #[test]
    fn nonsense_is_not_obeyed() {
        for line in [
            "",
            "watch",
            "watch 1 2 3 4",
            "watch 1 2 3 4 1",
            "watch 1 2 3 4 -7",
            "until 1 5",
            "until 1 five 6",
            "until 5",
            "gone",
            "kill 1",
        ] {
            assert_eq!(line.parse::<WatchdogOrder>(), Err(UnknownMessage), "{line}");
        }
        for line in ["", "terminated", "killed one", "killed -1", "watching"] {
            assert_eq!(line.parse::<WatchdogReport>(), Err(UnknownMessage), "{line}");
        }
    }
}

//! What `run` and its watchdog say to each other: one line a message, so that a trace can be read.

use std::fmt;
use std::str::FromStr;

use crate::process::group::Group;

/// When to ask the command to end, and when to end it, in milliseconds of the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moments {
    pub(crate) term_at_ms: u64,
    pub(crate) kill_at_ms: u64,
}

impl Moments {
    /// The end at `kill_at_ms`, announced a grace before.
    pub(crate) fn ending_at(kill_at_ms: u64, grace_ms: u64) -> Self {
        Moments { term_at_ms: kill_at_ms.saturating_sub(grace_ms), kill_at_ms }
    }
}

/// What `run` tells its watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Watch this group.
    Watch {
        group: Group,
        /// How long the group gets between the request to end and its end, when `run` is gone.
        grace_ms: u64,
        moments: Moments,
    },
    /// The lease goes on until then.
    Until(Moments),
    /// The command is gone: there is nothing left to watch.
    Gone,
}

/// What the watchdog tells `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
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
pub(crate) struct NotUnderstood;

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Watch { group, grace_ms, moments: Moments { term_at_ms, kill_at_ms } } => {
                writeln!(f, "watch {} {grace_ms} {term_at_ms} {kill_at_ms}", group.number())
            }
            Order::Until(Moments { term_at_ms, kill_at_ms }) => {
                writeln!(f, "until {term_at_ms} {kill_at_ms}")
            }
            Order::Gone => writeln!(f, "gone"),
        }
    }
}

impl FromStr for Order {
    type Err = NotUnderstood;

    fn from_str(line: &str) -> Result<Self, NotUnderstood> {
        let mut words = line.split_ascii_whitespace();
        let order = words.next().ok_or(NotUnderstood)?;
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(NotUnderstood);
        match order {
            "watch" => {
                let group = i32::try_from(number()?)
                    .ok()
                    .and_then(Group::from_number)
                    .ok_or(NotUnderstood)?;
                let grace_ms = number()?;
                let moments = Moments { term_at_ms: number()?, kill_at_ms: number()? };
                Ok(Order::Watch { group, grace_ms, moments })
            }
            "until" => Ok(Order::Until(Moments { term_at_ms: number()?, kill_at_ms: number()? })),
            "gone" => Ok(Order::Gone),
            _ => Err(NotUnderstood),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Report::Ready => "ready\n",
            Report::Watching => "watching\n",
            Report::Terminated => "terminated\n",
            Report::Killed => "killed\n",
        })
    }
}

impl FromStr for Report {
    type Err = NotUnderstood;

    fn from_str(line: &str) -> Result<Self, NotUnderstood> {
        match line.trim_end() {
            "ready" => Ok(Report::Ready),
            "watching" => Ok(Report::Watching),
            "terminated" => Ok(Report::Terminated),
            "killed" => Ok(Report::Killed),
            _ => Err(NotUnderstood),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let moments = Moments { term_at_ms: 12, kill_at_ms: u64::MAX };
        let group = Group::from_number(4242).unwrap();
        for order in [Order::Watch { group, grace_ms: 7, moments }, Order::Until(moments), Order::Gone] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for report in [Report::Ready, Report::Watching, Report::Terminated, Report::Killed] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
    }

    #[test]
    fn nonsense_is_not_obeyed() {
        for line in ["", "watch", "watch 1 2 3 4", "watch -7 1 2 3", "until 5", "until five 6", "kill 1"] {
            assert_eq!(line.parse::<Order>(), Err(NotUnderstood), "{line}");
        }
    }
}

//! Every exit code, in one table: the help, the man pages and the code read the same one.

use std::fmt::Write as _;
use std::process::ExitCode;

use fencehold_contract::problem::ErrorKind;

/// How the command line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExitStatus {
    Failed = 1,
    Usage = 2,
    Unavailable = 69,
    Unusable = 74,
    Held = 75,
    Lost = 76,
    #[cfg_attr(not(feature = "race"), allow(dead_code, reason = "only a race ends like this"))]
    NotApplicable = 77,
    Denied = 78,
    CannotRun = 126,
    NotFound = 127,
}

/// A command that died by signal N ends `run` with 128 plus N, as a shell does it.
pub(crate) fn of_signal(signal: i32) -> u8 {
    128_u8.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// What each code means, for people.
const MEANINGS: [(&str, &str); 12] = [
    ("0", "done"),
    ("1", "failed, or not found"),
    ("2", "bad usage or bad input: fix it before you try again"),
    ("69", "unavailable, or outcome unknown: the same can safely be tried again"),
    ("74", "unusable: the store is foreign, newer, damaged or rewound"),
    ("75", "held by another, no job ready, or not finished yet: wait"),
    ("76", "lost: the lease or the claim has ended: stop the work"),
    ("77", "race run: the race cannot be arranged on this store"),
    ("78", "unauthorized or forbidden: the access token does not allow it"),
    ("126", "run, work: the command cannot be executed"),
    ("127", "run, work: the command was not found"),
    ("other", "run: the command's own exit code; 128 + N after signal N"),
];

impl ExitStatus {
    /// The code that a kind of error has.
    pub(crate) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadInput
            | ErrorKind::BodyTooLarge
            | ErrorKind::Conflict
            | ErrorKind::NotJson
            | ErrorKind::Unsupported
            | ErrorKind::WrongHoldId
            | ErrorKind::WrongJob => ExitStatus::Usage,
            ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::HostNotAllowed => ExitStatus::Denied,
            ErrorKind::Held
            | ErrorKind::JobNotFinished
            | ErrorKind::JobRunning
            | ErrorKind::QueueDraining
            | ErrorKind::QueueNotEmpty
            | ErrorKind::WaitTimedOut => ExitStatus::Held,
            ErrorKind::HoldIdUsed | ErrorKind::Lost => ExitStatus::Lost,
            ErrorKind::MethodNotAllowed
            | ErrorKind::NoStore
            | ErrorKind::PathNotFound
            | ErrorKind::StoreRewound
            | ErrorKind::TokensExhausted
            | ErrorKind::Unusable => ExitStatus::Unusable,
            ErrorKind::LimitReached
            | ErrorKind::OutcomeUnknown
            | ErrorKind::RateLimited
            | ErrorKind::Stopping
            | ErrorKind::Unavailable => ExitStatus::Unavailable,
            _ => ExitStatus::Failed,
        }
    }

    /// The kind of an error of which nothing is known but its code.
    pub(crate) fn kind(self) -> Option<ErrorKind> {
        match self {
            ExitStatus::Usage => Some(ErrorKind::BadInput),
            ExitStatus::Unavailable => Some(ErrorKind::Unavailable),
            ExitStatus::Unusable => Some(ErrorKind::Unusable),
            ExitStatus::Held => Some(ErrorKind::Held),
            ExitStatus::Lost => Some(ErrorKind::Lost),
            ExitStatus::Denied => Some(ErrorKind::Forbidden),
            ExitStatus::Failed | ExitStatus::NotApplicable | ExitStatus::CannotRun | ExitStatus::NotFound => {
                None
            }
        }
    }

    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        ExitCode::from(exit.code())
    }
}

/// The table, as the help shows it.
pub(crate) fn table() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in MEANINGS {
        let _ = writeln!(text, "  {code:<5}  {meaning}");
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_in_the_table() {
        let all = [
            ExitStatus::Failed,
            ExitStatus::Usage,
            ExitStatus::Unavailable,
            ExitStatus::Unusable,
            ExitStatus::Held,
            ExitStatus::Lost,
            ExitStatus::NotApplicable,
            ExitStatus::Denied,
            ExitStatus::CannotRun,
            ExitStatus::NotFound,
        ];
        let listed: Vec<&str> = MEANINGS.iter().map(|(code, _)| *code).collect();
        for exit in all {
            assert!(listed.contains(&exit.code().to_string().as_str()), "{exit:?}");
        }
        assert_eq!(listed.len(), all.len() + 2, "0 and the command's own are no failures of ours");
    }

    #[test]
    fn a_code_stands_for_a_kind_that_has_it() {
        for exit in [
            ExitStatus::Usage,
            ExitStatus::Unavailable,
            ExitStatus::Unusable,
            ExitStatus::Held,
            ExitStatus::Lost,
            ExitStatus::Denied,
        ] {
            assert_eq!(exit.kind().map(ExitStatus::of), Some(exit));
        }
        for (kind, exit) in [
            (ErrorKind::TokensExhausted, ExitStatus::Unusable),
            (ErrorKind::WrongState, ExitStatus::Failed),
            (ErrorKind::JobNotFinished, ExitStatus::Held),
            (ErrorKind::WrongHoldId, ExitStatus::Usage),
        ] {
            assert_eq!(ExitStatus::of(kind), exit, "{kind}");
        }
    }
}

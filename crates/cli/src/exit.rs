//! Every exit code, in one table: the help, the man pages and the code read the same one.

use std::fmt::Write as _;
use std::process::ExitCode;

use fencehold_contract::problem::ErrorKind;

/// How the command line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    Unavailable = 69,
    Unusable = 74,
    Held = 75,
    Lost = 76,
    NotApplicable = 77,
    Denied = 78,
    CannotRun = 126,
    NotFound = 127,
}

/// A command that died by signal N ends `run` with this plus N, as a shell does it.
pub(crate) const SIGNAL_BASE: u8 = 128;

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

impl Exit {
    /// The code that a kind of error has.
    pub(crate) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadInput
            | ErrorKind::BodyTooLarge
            | ErrorKind::Conflict
            | ErrorKind::NotJson
            | ErrorKind::Unsupported
            | ErrorKind::WrongHoldId
            | ErrorKind::WrongJob => Exit::Usage,
            ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::HostNotAllowed => Exit::Denied,
            ErrorKind::Held
            | ErrorKind::JobNotFinished
            | ErrorKind::JobRunning
            | ErrorKind::QueueDraining
            | ErrorKind::QueueNotEmpty
            | ErrorKind::WaitTimedOut => Exit::Held,
            ErrorKind::HoldIdUsed | ErrorKind::Lost => Exit::Lost,
            ErrorKind::MethodNotAllowed
            | ErrorKind::NoStore
            | ErrorKind::PathNotFound
            | ErrorKind::StoreRewound
            | ErrorKind::TokensExhausted
            | ErrorKind::Unusable => Exit::Unusable,
            ErrorKind::LimitReached
            | ErrorKind::OutcomeUnknown
            | ErrorKind::RateLimited
            | ErrorKind::Stopping
            | ErrorKind::Unavailable => Exit::Unavailable,
            _ => Exit::Failed,
        }
    }

    /// The kind of an error of which nothing is known but its code.
    pub(crate) fn kind(self) -> Option<ErrorKind> {
        match self {
            Exit::Usage => Some(ErrorKind::BadInput),
            Exit::Unavailable => Some(ErrorKind::Unavailable),
            Exit::Unusable => Some(ErrorKind::Unusable),
            Exit::Held => Some(ErrorKind::Held),
            Exit::Lost => Some(ErrorKind::Lost),
            Exit::Denied => Some(ErrorKind::Forbidden),
            Exit::Failed | Exit::NotApplicable | Exit::CannotRun | Exit::NotFound => None,
        }
    }

    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
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
            Exit::Failed,
            Exit::Usage,
            Exit::Unavailable,
            Exit::Unusable,
            Exit::Held,
            Exit::Lost,
            Exit::NotApplicable,
            Exit::Denied,
            Exit::CannotRun,
            Exit::NotFound,
        ];
        let listed: Vec<&str> = MEANINGS.iter().map(|(code, _)| *code).collect();
        for exit in all {
            assert!(listed.contains(&exit.code().to_string().as_str()), "{exit:?}");
        }
        assert_eq!(listed.len(), all.len() + 2, "0 and the command's own are no failures of ours");
    }

    #[test]
    fn a_code_stands_for_a_kind_that_has_it() {
        for exit in [Exit::Usage, Exit::Unavailable, Exit::Unusable, Exit::Held, Exit::Lost, Exit::Denied] {
            assert_eq!(exit.kind().map(Exit::of), Some(exit));
        }
        for (kind, exit) in [
            (ErrorKind::TokensExhausted, Exit::Unusable),
            (ErrorKind::WrongState, Exit::Failed),
            (ErrorKind::JobNotFinished, Exit::Held),
            (ErrorKind::WrongHoldId, Exit::Usage),
        ] {
            assert_eq!(Exit::of(kind), exit, "{kind}");
        }
    }
}

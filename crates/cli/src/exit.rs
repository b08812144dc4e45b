//! Every exit code, in one table: the help, the man pages and the code read the same one.

use std::fmt::Write as _;
use std::process::ExitCode;

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
    ("1", "failed for another reason"),
    ("2", "bad usage or bad input: it cannot succeed as it stands"),
    ("69", "the store is unavailable, or the outcome is unknown: the same can safely be tried again"),
    ("74", "the store is unusable: foreign, newer, damaged, rewound, or its certificate is not trusted"),
    ("75", "held by someone else; of jobs: none was ready, or not yet finished"),
    ("76", "lost: the lease or the claim was lost, revoked, ended or superseded"),
    ("77", "race run: the race cannot be arranged on this store, so nothing is known of the promise"),
    ("78", "not allowed: the server wants a token, does not know this one, or it does not allow this"),
    ("126", "run, work: the command cannot be executed"),
    ("127", "run, work: the command was not found"),
    ("other", "run: the command's own exit code; 128 + N if it died by signal N"),
];

impl Exit {
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
}

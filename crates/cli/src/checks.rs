//! Checks and how they came out, for `doctor` and `store probe`.

use serde::Serialize;

use crate::exit_code::ExitStatus;
use crate::show::{Cell, Colour, Table};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckResult {
    Passed,
    Warning,
    Failed,
}

/// One check.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) verdict: CheckResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The exit code, should this be the first that failed.
    #[serde(skip)]
    pub(crate) exit: ExitStatus,
}

impl Check {
    pub(crate) fn new(
        name: &(impl ToString + ?Sized),
        verdict: CheckResult,
        message: Option<String>,
    ) -> Self {
        Check { name: name.to_string(), verdict, message, exit: ExitStatus::Failed }
    }
}

/// Checks for people.
pub(crate) fn table(checks: &[Check]) -> Table {
    Table::of(["CHECK", "VERDICT", "MESSAGE"], checks, |check| {
        let (verdict, colour) = match check.verdict {
            CheckResult::Passed => ("passed", Colour::Good),
            CheckResult::Warning => ("warning", Colour::Warning),
            CheckResult::Failed => ("FAILED", Colour::Bad),
        };
        let message = check.message.as_deref().unwrap_or_default();
        [check.name.as_str().into(), Cell::from(verdict).in_colour(colour), message.into()]
    })
}

//! Checks and how they came out, for `doctor` and `store probe`.

use serde::Serialize;

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
}

/// Checks for people.
pub(crate) fn table<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Table {
    let mut table = Table::new(["CHECK", "VERDICT", "MESSAGE"]);
    for check in checks {
        let (verdict, colour) = match check.verdict {
            CheckResult::Passed => ("passed", Colour::Good),
            CheckResult::Warning => ("warning", Colour::Warning),
            CheckResult::Failed => ("FAILED", Colour::Bad),
        };
        let message = check.message.as_deref().unwrap_or_default();
        table.row([check.name.as_str().into(), Cell::from(verdict).in_colour(colour), message.into()]);
    }
    table
}

//! `fencehold job …`: jobs from scripts, and for operators.

mod attempt;
mod cancel;
mod change;
mod claim;
mod complete;
mod count;
mod enqueue;
mod fail;
mod filter;
mod get;
mod lines;
mod ls;
mod options;
mod release;
mod renew;
mod retry;
mod rm;
mod snooze;
mod wait;

pub(crate) use claim::{Source, parse_source};
pub(crate) use get::attempts;
pub(crate) use options::{JobArgs, Label, Payload, parse_label};

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":7}'
  fencehold job ls --queue emails --state failed
  fencehold job retry --queue emails --state failed --dry-run
";

group! {
    /// Enqueue jobs, work on them from scripts, list and change them
    EXAMPLES:
    Enqueue = enqueue,
    Claim = claim,
    Renew = renew,
    Complete = complete,
    Fail = fail,
    Snooze = snooze,
    Release = release,
    Wait = wait,
    Ls = ls,
    Get = get,
    Count = count,
    Cancel = cancel,
    Retry = retry,
    Rm = rm,
}

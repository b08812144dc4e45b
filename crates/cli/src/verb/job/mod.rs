//! `fencehold job …`: putting jobs into queues, working on them from scripts, looking at them, acting on them.

mod act;
mod attempt;
mod cancel;
mod claim;
mod complete;
mod counts;
mod delete;
mod enqueue;
mod fail;
mod filter;
mod get;
mod hand_back;
mod lines;
mod ls;
mod renew;
mod retry;
mod snooze;
mod terms;
mod wait;

pub(crate) use claim::{Source, parse_source};
pub(crate) use get::{Document, attempts, raw};
pub(crate) use terms::{Label, Payload, TermsArgs, parse_label};

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":\"a@example.org\"}'
  fencehold job ls --queue emails --state failed
  fencehold job retry --queue emails --state failed --dry-run
";

group! {
    /// Enqueue jobs, work on them from scripts, look at them, act on them
    EXAMPLES:
    Enqueue = enqueue,
    Claim = claim,
    Renew = renew,
    Complete = complete,
    Fail = fail,
    Snooze = snooze,
    HandBack = hand_back,
    Wait = wait,
    Ls = ls,
    Get = get,
    JobCounts = counts,
    Cancel = cancel,
    RetryPolicy = retry,
    Delete = delete,
}

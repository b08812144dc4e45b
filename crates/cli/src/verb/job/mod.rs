//! `fencehold job …`: jobs from scripts, and for operators.

mod attempt;
mod change;
mod claim;
mod enqueue;
mod get;
mod lines;
mod ls;
mod options;
mod wait;

pub(crate) use claim::{Source, parse_source};
pub(crate) use enqueue::parse_moment;
pub(crate) use get::attempts;
pub(crate) use options::{JobArgs, Label, Payload, parse_label};

use fencehold_contract::job::{JobAction, Report};

use crate::verb::verbs;

verbs! {
    /// Enqueue jobs, work on them from scripts, list and change them
    #[command(before_help = "\
fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":7}'
fencehold job ls --queue emails --state failed
fencehold job retry --queue emails --state failed --dry-run")]
    Verb:
    Enqueue = enqueue::Args,
    Claim = claim::Args,
    /// Renew the claim on a job for another ttl
    #[command(after_help = attempt::MORE, before_help = "\
# After eval \"$(fencehold job claim --queue emails -o env)\"
fencehold job renew || exit
# Was the job cancelled?
fencehold job renew -o json | jq .cancel_requested")]
    Renew = attempt::AttemptArgs => renew(),
    Checkpoint = attempt::CheckpointArgs,
    Progress = attempt::ProgressArgs,
    Complete = attempt::CompleteArgs,
    Fail = attempt::FailArgs,
    Snooze = attempt::SnoozeArgs,
    /// Give a job back to its queue, at its old place; this counts as nothing
    #[command(after_help = attempt::MORE, before_help = "\
# After eval \"$(fencehold job claim --queue emails -o env)\"
fencehold job release")]
    Release = attempt::AttemptArgs => report(Report::Release {}),
    Wait = wait::Args,
    Ls = ls::Args,
    Get = get::Args,
    Count = ls::CountArgs,
    Cancel = change::CancelArgs,
    /// Start jobs over, also those that failed permanently
    #[command(after_help = change::MORE, before_help = "\
fencehold job retry 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
fencehold job retry --queue emails --state failed --state quarantined")]
    Retry = change::JobSelection => change(JobAction::Retry, "retried"),
    Rm = change::RmArgs,
}

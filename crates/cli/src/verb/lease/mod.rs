//! `fencehold lease …`: leases from scripts, and for operators.

mod acquire;
mod contention;
mod hold;
mod revoke;
mod stats;
mod view;

pub(crate) use contention::sentence as contention_sentence;
pub(crate) use view::{details, history};

use crate::verb::verbs;

verbs! {
    /// Acquire, renew, release, list and revoke leases
    #[command(before_help = "\
fencehold lease ls
fencehold lease get reports/daily
fencehold lease revoke reports/daily --reason 'host is gone'")]
    Verb:
    Acquire = acquire::Args,
    /// Renew a lease for another ttl
    #[command(after_help = hold::RENEW_MORE, before_help = "\
# After eval \"$(fencehold lease acquire reports/daily -o env)\"
fencehold lease renew reports/daily || exit")]
    Renew = hold::HoldArgs => renew(),
    /// Release a lease
    #[command(after_help = hold::RELEASE_MORE, before_help = "\
# After eval \"$(fencehold lease acquire reports/daily -o env)\"
fencehold lease release reports/daily")]
    Release = hold::HoldArgs => release(),
    Ls = view::LsArgs,
    Get = view::GetArgs,
    Stats = stats::Args,
    Watch = view::WatchArgs,
    Revoke = revoke::Args,
}

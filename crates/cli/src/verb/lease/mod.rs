//! `fencehold lease …`: leases from scripts, and for operators.

mod acquire;
mod get;
mod ls;
mod release;
mod renew;
mod revoke;
mod watch;

pub(crate) use get::{details, history};

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold lease ls
  fencehold lease get reports/daily
  fencehold lease revoke reports/daily --reason 'host is gone'
";

group! {
    /// Acquire, renew, release, list and revoke leases
    EXAMPLES:
    Acquire = acquire,
    Renew = renew,
    Release = release,
    Ls = ls,
    Get = get,
    Watch = watch,
    Revoke = revoke,
}

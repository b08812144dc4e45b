//! `fencehold lease …`: leases for scripts, and looking at them.

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
    /// Take, keep, give back, look at and end leases
    EXAMPLES:
    Acquire = acquire,
    Renew = renew,
    Release = release,
    Ls = ls,
    Get = get,
    Watch = watch,
    Revoke = revoke,
}

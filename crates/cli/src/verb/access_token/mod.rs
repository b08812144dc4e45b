//! `fencehold access-token …`: who may use a server.

mod create;
mod ls;
mod revoke;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold access-token create worker-7 --scope job:work
  fencehold access-token ls
  fencehold access-token revoke 4f1d2c3b5a69
";

group! {
    /// Create, list and revoke the access tokens of a server
    EXAMPLES:
    Create = create,
    Ls = ls,
    Revoke = revoke,
}

//! `fencehold token …`: who may use a server. One file a verb; one line each in the registry.

mod create;
mod ls;
mod revoke;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold token create worker-7 --scope job:work
  fencehold token ls
  fencehold token revoke 4f1d2c3b5a69
";

group! {
    /// Make, list and revoke the tokens that a server asks for
    EXAMPLES:
    Create = create,
    Ls = ls,
    Revoke = revoke,
}

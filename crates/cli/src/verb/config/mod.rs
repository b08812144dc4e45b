//! `fencehold config …`: the settings that a server would have. One file a verb; one line each in the registry.

mod check;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold config check
  fencehold config check --config /etc/fencehold/server.toml
";

group! {
    /// Look at a server's settings
    EXAMPLES:
    Check = check,
}

//! `fencehold version`: which program this is.

use serde::Serialize;

use crate::context::Context;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold version
  fencehold version -o json | jq -r .commit
";

/// Print the version and the commit that it was built from
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {}

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    commit: &'static str,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every command is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let version = Version {
            version: env!("CARGO_PKG_VERSION"),
            // A package build sets it; it is not looked for, so that the same source gives the same program.
            commit: option_env!("FENCEHOLD_COMMIT").unwrap_or("unknown"),
        };
        context
            .output
            .one(&version, |_| format!("fencehold {} (commit {})", version.version, version.commit))?;
        Ok(DONE)
    }
}

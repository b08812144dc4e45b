//! `fencehold completions`: what a shell can complete.

use clap_complete::Shell;

use crate::args;
use crate::context::Context;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold completions bash \\
    > ~/.local/share/bash-completion/completions/fencehold
  fencehold completions zsh > ~/.zfunc/_fencehold
  fencehold completions fish > ~/.config/fish/completions/fencehold.fish
";

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    #[expect(clippy::unused_async, reason = "all verbs are alike to the registry")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut args::definition(), "fencehold", &mut script);
        context.output.write(&script)?;
        Ok(DONE)
    }
}

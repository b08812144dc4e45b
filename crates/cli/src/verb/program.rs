//! `fencehold help`, `completions` and `version`: about the program itself.

use clap_complete::Shell;
use serde::Serialize;

use crate::args;
use crate::context::Context;
use crate::failure::Failure;
use crate::verb::VerbResult;

/// Print the help of a command
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold help
fencehold help lease acquire")]
pub(crate) struct HelpArgs {
    /// Which command
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

impl HelpArgs {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, _: &Context) -> VerbResult {
        let mut command = &mut args::definition();
        command.build();
        for name in &self.command {
            let unknown = || {
                Failure::usage(format!("there is no command `{}`", self.command.join(" ")))
                    .with_next("`fencehold help` lists the commands.")
            };
            command = command.find_subcommand_mut(name).ok_or_else(unknown)?;
        }
        // clap knows whether stdout takes colours; and a reader who has gone needs no help.
        let _ = command.print_help();
        Ok(())
    }
}

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold completions bash \\
  > ~/.local/share/bash-completion/completions/fencehold
fencehold completions zsh > ~/.zfunc/_fencehold
fencehold completions fish > ~/.config/fish/completions/fencehold.fish")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut args::definition(), "fencehold", &mut script);
        context.output.write(&script)
    }
}

/// Print the version and the commit that it was built from
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold version
fencehold version -o json | jq -r .commit")]
pub(crate) struct VersionArgs {}

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    commit: &'static str,
}

impl VersionArgs {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let version = Version {
            version: env!("CARGO_PKG_VERSION"),
            // A package build sets it; it is not looked for, so that the same source gives the same program.
            commit: option_env!("FENCEHOLD_COMMIT").unwrap_or("unknown"),
        };
        context
            .output
            .one(&version, |_| format!("fencehold {} (commit {})", version.version, version.commit))
    }
}

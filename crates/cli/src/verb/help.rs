//! `fencehold help`: the same as `--help`.

use crate::args;
use crate::context::Context;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold help
  fencehold help lease acquire
";

/// Print the help of a command
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which command
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every command is called alike")]
    pub(crate) async fn run(self, _: &Context) -> VerbResult {
        let mut command = &mut args::definition();
        command.build();
        for name in &self.command {
            let unknown = || {
                Failure::new(ExitStatus::Usage, format!("there is no command `{}`", self.command.join(" ")))
                    .with_next("`fencehold help` lists the commands.")
            };
            command = command.find_subcommand_mut(name).ok_or_else(unknown)?;
        }
        // clap knows whether stdout takes colours; and a reader who has gone needs no help.
        let _ = command.print_help();
        Ok(DONE)
    }
}

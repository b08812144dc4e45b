//! `fencehold events`: what happened, and what happens.

use crate::context::Context;
use crate::follow::{self, Line};
use crate::output::Format;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold events
  fencehold events -f --prefix reports/
  fencehold events --after 1042 -o jsonl
  fencehold events --prefix job/01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
";

const MORE: &str = "\
A store keeps its last events only. Renewals are not among them: they are many, and say nothing new.";

/// Show what happened to leases and jobs, and follow what happens
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// Only of keys that start with this text; a job's is job/ID
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only what came after this event
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = if self.follow { context.open_to_wait()? } else { context.open_to_look()? };
        let output = context.output;
        store
            .closing(async |store| {
                let prefix = self.prefix.as_deref();
                let (events, next) = follow::past(store, self.after, prefix).await?;
                match (self.follow, output.format) {
                    // In a stream the lines of before look like the lines to come.
                    (true, _) => {
                        events.iter().try_for_each(|event| follow::print(output, event))?;
                        follow::follow(store, output, next, prefix).await
                    }
                    (false, Format::Jsonl) => {
                        events.iter().try_for_each(|event| follow::print(output, event))
                    }
                    (false, _) => {
                        let lines: Vec<Line<'_>> = events.iter().map(Line::from).collect();
                        output.many(&lines, "no events", || follow::table(&events))
                    }
                }
            })
            .await?;
        Ok(DONE)
    }
}

//! `fencehold store advance`: the cure for a store that was rewound.

use fencehold_core::Owner;
use fencehold_core::limits::ADVANCE_BY;

use crate::context::Context;
use crate::duration::show_exact_ms;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  # After a restore from a backup, before anybody goes back to work
  fencehold store advance --by alice --yes
";

const MORE: &str = "\
A store that was restored has forgotten the tokens it gave since the backup, and would give them again. This ends \
every lease of every namespace, lifts every counter above what could have been given, and grants nothing until the \
longest ttl is over.";

/// After a restore: end all leases and lift all tokens
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Who does it
    #[arg(long, value_name = "NAME")]
    by: Owner,
    /// By how much tokens rise
    #[arg(long, value_name = "N", default_value_t = ADVANCE_BY)]
    lift: u64,
    /// Yes, end every lease
    #[arg(long)]
    yes: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let place = context.place()?;
        if !self.yes {
            let what = format!("this would end every lease of every namespace in {}", place.url);
            return Err(Failure::new(Exit::Usage, what).with_next("Say --yes if that is meant."));
        }
        let store = context.open_rewound()?;
        store
            .closing(async |store| {
                let advanced = store.leases.advance(&store.call, self.by, self.lift).await;
                let advanced = advanced.map_err(|error| store.explain(error))?;
                context.output.one(&advanced, |palette| {
                    facts(
                        palette,
                        [
                            ("leases ended", advanced.ended.to_string()),
                            ("keys lifted", advanced.keys.to_string()),
                            ("closed for", show_exact_ms(advanced.closed_for_ms)),
                        ],
                    )
                })
            })
            .await?;
        Ok(DONE)
    }
}

//! `fencehold store advance`: the cure for a store that was rewound.

use fencehold_core::Owner;
use fencehold_core::limits::ADVANCE_BY;

use crate::context::Context;
use crate::duration::show_exact_ms;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::VerbResult;

/// After a restore: end all leases and raise all tokens
#[derive(Debug, clap::Args)]
#[command(before_help = "\
# After a restore from a backup, before work goes on
fencehold store advance --by alice --yes
# The same, when all old holders are known to be gone
fencehold store advance --by alice --yes --reopen")]
#[command(after_help = "\
A restored store has forgotten the tokens that it granted since the backup, and would grant them again. This ends \
every lease of every namespace, raises every counter above what could have been granted, and grants nothing in a \
namespace until the longest ttl that was ever granted in it has passed: by then its old holders have stopped.

With --reopen nothing stays closed, also not by an earlier advance. An old holder may then work until its ttl has \
passed, while another is granted the same key: only what checks tokens (a fence) keeps the old one out. Stop every \
holder first.")]
pub(crate) struct Args {
    /// Who does it
    #[arg(long, value_name = "NAME")]
    by: Owner,
    /// By how much tokens are raised
    #[arg(long, value_name = "N", default_value_t = ADVANCE_BY)]
    increment: u64,
    /// Open at once, although old holders may still work
    #[arg(long)]
    reopen: bool,
    /// Yes, end every lease
    #[arg(long)]
    yes: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let place = context.place()?;
        if !self.yes {
            let what = format!("this would end every lease of every namespace in {}", place.url);
            return Err(Failure::usage(what).with_next("Say --yes if that is meant."));
        }
        let store = context.open_rewound()?;
        store
            .closing(async |store| {
                let advance = store.leases.advance(&store.call, self.by.clone(), self.increment);
                let mut advanced = store.explained(advance).await?;
                let believed_ms = advanced.closed_for_ms;
                if self.reopen {
                    store.explained(store.leases.reopen(&store.call, self.by)).await?;
                    advanced.closed_for_ms = 0;
                    advanced.namespaces.clear();
                }
                context.output.one(&advanced, |style| {
                    let mut lines = vec![
                        ("leases ended", advanced.ended_count.to_string()),
                        ("keys raised", advanced.key_count.to_string()),
                    ];
                    for closed in &advanced.namespaces {
                        let left = show_exact_ms(closed.closed_for_ms);
                        lines.push(("closed for", format!("{left} in namespace {}", closed.namespace)));
                    }
                    let others = if advanced.namespaces.is_empty() { "" } else { " in any other namespace" };
                    lines.push(("closed for", format!("{}{others}", show_exact_ms(advanced.closed_for_ms))));
                    if self.reopen {
                        let until = show_exact_ms(believed_ms);
                        let told = format!(
                            "an old holder may go on for up to {until} beside a new one; only a fence stops it"
                        );
                        lines.push(("reopened", told));
                    }
                    facts(style, lines)
                })
            })
            .await
    }
}

//! `fencehold lease ls`: who holds what.

use fencehold_contract::{LeasePage, LeaseView, ListLeasesRequest};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Owner, Task};

use crate::context::{Context, OpenStore};
use crate::duration::show_ms;
use crate::output::Format;
use crate::show::{Cell, Colour, Table, or_dash};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold lease ls
  fencehold lease ls --prefix reports/ --include-free
  fencehold lease ls --task run-42 -o jsonl
";

/// List leases: who holds what, for how long
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only keys that start with this text
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only what this owner holds
    #[arg(long)]
    owner: Option<Owner>,
    /// Only what is held for this task
    #[arg(long)]
    task: Option<Task>,
    /// List free keys too, with how their last lease ended
    #[arg(long)]
    include_free: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        store.closing(async |store| self.list(context, store).await).await
    }

    async fn list(self, context: &Context, store: &OpenStore) -> VerbResult {
        let mut request = ListLeasesRequest {
            prefix: self.prefix,
            owner: self.owner,
            task: self.task,
            include_free: self.include_free,
            cursor: None,
            limit: PAGE_MAX,
        };
        let mut leases = Vec::new();
        loop {
            let page = store
                .leases
                .list(&store.call, request.clone())
                .await
                .map_err(|error| store.explain(error))?;
            if context.output.format == Format::Jsonl {
                // As they come: there may be millions.
                page.leases.iter().try_for_each(|lease| context.output.line(lease))?;
            } else {
                leases.extend(page.leases);
            }
            let Some(next) = page.next_cursor else { break };
            request.cursor = Some(next);
        }
        if context.output.format != Format::Jsonl {
            leases.sort_by(|one, other| one.key.cmp(&other.key));
            let page = LeasePage { leases, next_cursor: None };
            context.output.list(&page, &page.leases, "no leases", || table(&page.leases))?;
        }
        Ok(DONE)
    }
}

fn table(leases: &[LeaseView]) -> Table {
    let mut table = Table::new(["KEY", "TOKEN", "OWNER", "TASK", "AGE", "LEFT", "WAITING", "STATE"]);
    for lease in leases {
        let holder = lease.holder.as_ref();
        table.row([
            lease.key.as_str().into(),
            lease.token.into(),
            or_dash(holder.map(|holder| holder.owner.as_str())),
            or_dash(holder.and_then(|holder| holder.task.as_ref())),
            or_dash(holder.map(|holder| show_ms(holder.age_ms))),
            or_dash(holder.map(|holder| show_ms(holder.remaining_ms))),
            lease.waiter_count.into(),
            state(lease),
        ]);
    }
    table
}

fn state(lease: &LeaseView) -> Cell {
    match (&lease.holder, lease.endings.last()) {
        (Some(holder), _) if holder.yield_request.is_some() => {
            Cell::from("asked to yield").in_colour(Colour::Warning)
        }
        (Some(_), _) => Cell::from("held").in_colour(Colour::Good),
        (None, Some(ending)) => Cell::from(format!("free ({})", ending.outcome)).in_colour(Colour::Faint),
        (None, None) => Cell::from("free").in_colour(Colour::Faint),
    }
}

//! `fencehold quota get`: what a namespace may have, and has.

use fencehold_contract::{QuotaRequest, QuotaView};

use crate::context::{Context, OpenStore};
use crate::duration::show_exact_ms;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold quota get
  fencehold --namespace team-a quota get -o json | jq .usage
";

/// Show the quota of a namespace, and how much of it is used
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Show the quota of namespaces that have none of their own
    #[arg(long)]
    all_namespaces: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let request = QuotaRequest { quota: None, all_namespaces: self.all_namespaces, by: None };
        let store = context.open_to_look()?;
        store.closing(async |store| show(context, store, request).await).await?;
        Ok(DONE)
    }
}

/// Sends the request, and prints what is in force then.
pub(super) async fn show(context: &Context, store: &OpenStore, request: QuotaRequest) -> Result<(), Failure> {
    let view = store.leases.quota(&store.call, request).await;
    let view = view.map_err(|error| store.explain(error))?;
    context.output.one(&view, |style| {
        let QuotaView { quota, usage } = view;
        let of = |used: u64, limit: Option<u64>| match limit {
            Some(limit) => format!("{used} of {limit}"),
            None => used.to_string(),
        };
        let max_ttl = quota.max_ttl_ms.map(show_exact_ms).unwrap_or_default();
        facts(
            style,
            [
                ("queues", of(usage.queue_count, quota.max_queues)),
                ("keys", of(usage.key_count, quota.max_keys)),
                ("jobs", of(usage.job_count, quota.max_jobs)),
                ("payload bytes", of(usage.payload_bytes, quota.max_bytes)),
                ("schedules", of(usage.schedule_count, quota.max_schedules)),
                ("max ttl", max_ttl),
            ],
        )
    })
}

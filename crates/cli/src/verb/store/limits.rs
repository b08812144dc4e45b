//! `fencehold store limits`: what a namespace may have, and has.

use fencehold_contract::{Quota, QuotaRequest};
use fencehold_core::Owner;

use crate::context::{Context, Create};
use crate::duration::show_exact_ms;
use crate::identity;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold store limits
  fencehold --namespace team-a store limits --max-keys 1000 --max-ttl 10m
  fencehold store limits --every-namespace --max-ttl 1h
";

const MORE: &str = "\
A namespace's own limits go before those of every namespace, and those before the usual ones. What a namespace has \
already stays when a limit is set below it: only more is refused. Jobs are counted until they are done; undo jobs and jobs \
of schedules are always made. memory: and file: keep to all of these, PostgreSQL within some seconds. etcd and object \
storage have only leases, and keep to --max-keys and --max-ttl.";

/// Show what a namespace may have and has, or set it
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Set them for every namespace that has none of its own
    #[arg(long)]
    every_namespace: bool,
    /// How many queues
    #[arg(long, value_name = "N")]
    max_queues: Option<u64>,
    /// How many lease keys
    #[arg(long, value_name = "N")]
    max_keys: Option<u64>,
    /// How many jobs that are not done
    #[arg(long, value_name = "N")]
    max_jobs: Option<u64>,
    /// How many bytes of payload those jobs have together
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
    /// How many schedules
    #[arg(long, value_name = "N")]
    max_schedules: Option<u64>,
    /// The longest ttl of a lease or a claim
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse_ms)]
    max_ttl: Option<u64>,
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    create: Create,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let limits = Quota {
            max_queues: self.max_queues,
            max_keys: self.max_keys,
            max_jobs: self.max_jobs,
            max_bytes: self.max_bytes,
            max_schedules: self.max_schedules,
            max_ttl_ms: self.max_ttl,
        };
        let set = (limits != Quota::default()).then_some(limits);
        let request = QuotaRequest { quota: set, all_namespaces: self.every_namespace, by };
        let store = if set.is_some() { context.open(self.create)? } else { context.open_to_look()? };
        store
            .closing(async |store| {
                let view = store.leases.quota(&store.call, request).await;
                let view = view.map_err(|error| store.explain(error))?;
                context.output.one(&view, |palette| {
                    let (limits, used) = (view.quota, view.usage);
                    let of = |used: u64, limit: Option<u64>| match limit {
                        Some(limit) => format!("{used} of {limit}"),
                        None => used.to_string(),
                    };
                    let longest = limits.max_ttl_ms.map(show_exact_ms).unwrap_or_default();
                    facts(
                        palette,
                        [
                            ("queues", of(used.queue_count, limits.max_queues)),
                            ("lease keys", of(used.key_count, limits.max_keys)),
                            ("jobs", of(used.job_count, limits.max_jobs)),
                            ("bytes of payload", of(used.payload_bytes, limits.max_bytes)),
                            ("schedules", of(used.schedule_count, limits.max_schedules)),
                            ("longest ttl", longest),
                        ],
                    )
                })
            })
            .await?;
        Ok(DONE)
    }
}

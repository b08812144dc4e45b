//! `fencehold quota set`: how much a namespace may have.

use clap::ArgGroup;
use fencehold_contract::{Quota, QuotaRequest};
use fencehold_core::Owner;

use super::get::show;
use crate::context::{Context, CreateStore};
use crate::identity;
use crate::verb::{DONE, VerbResult};

const USAGE: &str = "\
fencehold quota set [OPTIONS]";

const EXAMPLES: &str = "\
Examples:
  fencehold --namespace team-a quota set --max-keys 1000 --max-ttl 10m
  fencehold quota set --all-namespaces --max-ttl 1h
";

const MORE: &str = "\
A namespace's own quota comes before that of all namespaces, and that before the defaults. What a namespace already has \
stays when its quota is set below it: only more is refused. Jobs count until they are finished; jobs of schedules and \
compensations are never refused. memory: and file: enforce all of it, PostgreSQL within some seconds. etcd and object \
storage have only leases, and enforce --max-keys and --max-ttl.";

/// Set how much a namespace may have
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
#[command(override_usage = USAGE)]
#[command(group = ArgGroup::new("quota").required(true).multiple(true)
    .args(["max_queues", "max_keys", "max_jobs", "max_bytes", "max_schedules", "max_ttl"]))]
pub(crate) struct Args {
    /// Set the quota of namespaces that have none of their own
    #[arg(long)]
    all_namespaces: bool,
    /// Queues
    #[arg(long, value_name = "N")]
    max_queues: Option<u64>,
    /// Lease keys
    #[arg(long, value_name = "N")]
    max_keys: Option<u64>,
    /// Unfinished jobs
    #[arg(long, value_name = "N")]
    max_jobs: Option<u64>,
    /// Bytes of payload of those jobs together
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
    /// Schedules
    #[arg(long, value_name = "N")]
    max_schedules: Option<u64>,
    /// Longest ttl of a lease or a claim
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse_ms)]
    max_ttl: Option<u64>,
    /// Who sets it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    create: CreateStore,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let quota = Quota {
            max_queues: self.max_queues,
            max_keys: self.max_keys,
            max_jobs: self.max_jobs,
            max_bytes: self.max_bytes,
            max_schedules: self.max_schedules,
            max_ttl_ms: self.max_ttl,
        };
        let request = QuotaRequest { quota: Some(quota), all_namespaces: self.all_namespaces, by: Some(by) };
        let store = context.open(self.create)?;
        store.closing(async |store| show(context, store, request).await).await?;
        Ok(DONE)
    }
}

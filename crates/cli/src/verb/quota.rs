//! `fencehold quota …`: what a namespace may have, and has.

use clap::ArgGroup;
use fencehold_contract::{Quota, QuotaRequest, QuotaView};
use fencehold_core::Owner;

use crate::context::{Context, CreateStore, OpenStore};
use crate::duration::{parse_ms, show_exact_ms};
use crate::identity;
use crate::show::facts;
use crate::verb::{VerbResult, verbs};

verbs! {
    /// Show and set how much a namespace may have
    #[command(before_help = "\
fencehold quota get
fencehold --namespace team-a quota set --max-keys 1000 --max-ttl 10m")]
    Verb:
    Get = GetArgs,
    Set = SetArgs,
}

/// Show the quota of a namespace, and how much of it is used
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold quota get
fencehold --namespace team-a quota get -o json | jq .usage")]
pub(crate) struct GetArgs {
    /// Show the quota of namespaces that have none of their own
    #[arg(long)]
    all_namespaces: bool,
}

impl GetArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let request = QuotaRequest { quota: None, all_namespaces: self.all_namespaces, by: None };
        context.look(async |store| show(context, store, request).await).await
    }
}

/// Set how much a namespace may have
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold --namespace team-a quota set --max-keys 1000 --max-ttl 10m
fencehold quota set --all-namespaces --max-ttl 1h")]
#[command(after_help = "\
A namespace's own quota comes before that of all namespaces, and that before the defaults. What a namespace already has \
stays when its quota is set below it: only more is refused. Jobs count until they are finished; jobs of schedules and \
compensations are never refused. memory: and file: enforce all of it, PostgreSQL within some seconds. etcd and object \
storage have only leases, and enforce --max-keys and --max-ttl.")]
#[command(override_usage = "fencehold quota set [OPTIONS]")]
#[command(group = ArgGroup::new("quota").required(true).multiple(true)
    .args(["max_queues", "max_keys", "max_jobs", "max_bytes", "max_schedules", "max_ttl"]))]
pub(crate) struct SetArgs {
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
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    max_ttl: Option<u64>,
    /// Who sets it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    create: CreateStore,
}

impl SetArgs {
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
        store.closing(async |store| show(context, store, request).await).await
    }
}

/// Sends the request, and prints what is in force then.
async fn show(context: &Context, store: &OpenStore, request: QuotaRequest) -> VerbResult {
    let view = store.explained(store.leases.quota(&store.call, request)).await?;
    context.output.one(&view, |style| {
        let QuotaView { quota, usage } = view;
        let of = |used: u64, limit: Option<u64>| match limit {
            Some(limit) => format!("{used} of {limit}"),
            None => used.to_string(),
        };
        let lines = [
            ("queues", of(usage.queue_count, quota.max_queues)),
            ("keys", of(usage.key_count, quota.max_keys)),
            ("jobs", of(usage.job_count, quota.max_jobs)),
            ("payload bytes", of(usage.payload_bytes, quota.max_bytes)),
            ("schedules", of(usage.schedule_count, quota.max_schedules)),
            ("max ttl", quota.max_ttl_ms.map(show_exact_ms).unwrap_or_default()),
        ];
        facts(style, lines)
    })
}

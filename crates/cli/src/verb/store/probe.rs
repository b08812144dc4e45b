//! `fencehold store probe`: does the storage keep its conditions?

use std::process::ExitCode;

#[cfg(feature = "object")]
use fencehold_contract::ObjectUrl;
use fencehold_contract::{StoreError, StoreUrl};
#[cfg(feature = "object")]
use fencehold_store_object::{ProbeVerdict, probe_place};
use serde::Serialize;

use crate::checks::{self, Check, CheckResult};
use crate::context::Context;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::output::complain;
use crate::store_choice::StoreChoice;
use crate::verb::VerbResult;

/// Check that object storage or etcd keeps its conditions, on scratch objects
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold store probe s3://my-bucket/leases
fencehold store probe 's3://leases?endpoint=http://minio:9000' -o json
fencehold store probe etcd://etcd-1,etcd-2,etcd-3")]
pub(crate) struct Args {
    /// The store to probe; otherwise the one that --store names
    #[arg(value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Serialize)]
struct ProbeOutput {
    store: String,
    checks: Vec<Check>,
}

impl Args {
    #[cfg_attr(not(feature = "etcd"), expect(clippy::unused_async, reason = "every verb is called alike"))]
    pub(crate) async fn run(self, context: &Context) -> VerbResult<ExitCode> {
        context.output.refuse_env()?;
        let url = match &self.url {
            Some(url) => StoreChoice::choose(Some(url))?.url,
            None => context.place()?.url,
        };
        let found = match &url {
            #[cfg(feature = "object")]
            StoreUrl::Object(place) => probe_object(place),
            #[cfg(feature = "etcd")]
            StoreUrl::Etcd(cluster) => probe_etcd(context, cluster).await,
            _ => {
                let what = format!("{url} has nothing to probe: that is for s3://, gs://, az:// and etcd://");
                return Err(Failure::usage(what));
            }
        };
        let store = url.to_string();
        let report = ProbeOutput { checks: found.map_err(|error| Failure::of_store(error, &store))?, store };
        context
            .output
            .list(&report, &report.checks, "nothing was checked", checks::table)?;
        if report.checks.iter().all(|check| check.verdict != CheckResult::Failed) {
            return Ok(ExitCode::SUCCESS);
        }
        complain(&format!(
            "{url} does not keep its conditions: two could hold one lease there. Do not use it."
        ));
        Ok(ExitStatus::Unusable.into())
    }
}

#[cfg(feature = "object")]
fn probe_object(place: &ObjectUrl) -> Result<Vec<Check>, StoreError> {
    let report = probe_place(place)?;
    let check = |(check, verdict): (_, ProbeVerdict)| match verdict {
        ProbeVerdict::Failed(message) => Check::new(&check, CheckResult::Failed, Some(message)),
        _ => Check::new(&check, CheckResult::Passed, None),
    };
    Ok(report.checks.into_iter().map(check).collect())
}

#[cfg(feature = "etcd")]
async fn probe_etcd(
    context: &Context,
    cluster: &fencehold_contract::EtcdUrl,
) -> Result<Vec<Check>, StoreError> {
    use fencehold_store_etcd::{EtcdFinding, EtcdStore, EtcdVerdict};
    let clock = std::sync::Arc::new(fencehold_contract::clock::SystemClock);
    let call = context.call_in(fencehold_core::Namespace::default());
    let found = EtcdStore::open(cluster, clock)?.probe(&call).await?;
    let check = |EtcdFinding { check, verdict, .. }: EtcdFinding| match verdict {
        EtcdVerdict::Failed(message) => Check::new(&check, CheckResult::Failed, Some(message)),
        EtcdVerdict::Warned(message) => Check::new(&check, CheckResult::Warning, Some(message)),
        _ => Check::new(&check, CheckResult::Passed, None),
    };
    Ok(found.into_iter().map(check).collect())
}

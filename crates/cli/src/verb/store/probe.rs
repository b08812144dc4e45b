//! `fencehold store probe`: does the storage keep its conditions?

#[cfg(feature = "object")]
use fencehold_contract::ObjectUrl;
use fencehold_contract::StoreUrl;
#[cfg(feature = "object")]
use fencehold_store_object::{Verdict, probe_place};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::note;
use crate::place::Place;
use crate::show::{Cell, Colour, Table};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold store probe s3://my-bucket/leases
  fencehold store probe 's3://leases?endpoint=http://minio:9000' -o json
  fencehold store probe etcd://etcd-1,etcd-2,etcd-3
";

/// Check that object storage or an etcd cluster keeps its conditions, on scratch objects
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store to probe; otherwise the one that --store names
    #[arg(value_name = "URL")]
    url: Option<String>,
}

impl Args {
    #[cfg_attr(not(feature = "etcd"), expect(clippy::unused_async, reason = "every verb is called alike"))]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        context.output.refuse_env()?;
        let url = match &self.url {
            Some(url) => Place::choose(Some(url))?.url,
            None => context.place()?.url,
        };
        let sound = match &url {
            #[cfg(feature = "object")]
            StoreUrl::Object(place) => probe_object(context, &url, place)?,
            #[cfg(feature = "etcd")]
            StoreUrl::Etcd(cluster) => probe_etcd(context, &url, cluster).await?,
            _ => {
                let what = format!("{url} has nothing to probe: that is for s3://, gs://, az:// and etcd://");
                return Err(Failure::new(Exit::Usage, what));
            }
        };
        if sound {
            return Ok(DONE);
        }
        note(&format!("{url} does not keep its conditions: two could hold one lease there. Do not use it."));
        Ok(Exit::Unusable.code())
    }
}

/// False: it does not keep its conditions.
#[cfg(feature = "object")]
fn probe_object(context: &Context, url: &StoreUrl, place: &ObjectUrl) -> Result<bool, Failure> {
    let report = probe_place(place).map_err(|error| Failure::of_store(error, &url.to_string()))?;
    context.output.one(&report, |palette| {
        let mut table = Table::new(["CHECK", "VERDICT"]);
        for (check, verdict) in &report.checks {
            let verdict = match verdict {
                Verdict::Failed(why) => Cell::from(format!("failed: {why}")).in_colour(Colour::Bad),
                _ => Cell::from("passed"),
            };
            table.row([Cell::from(check), verdict]);
        }
        table.render(palette)
    })?;
    Ok(report.failure().is_none())
}

/// False: it does not keep its conditions.
#[cfg(feature = "etcd")]
async fn probe_etcd(
    context: &Context,
    url: &StoreUrl,
    cluster: &fencehold_contract::EtcdUrl,
) -> Result<bool, Failure> {
    use fencehold_store_etcd::{EtcdStore, EtcdVerdict};
    let clock = std::sync::Arc::new(fencehold_contract::clock::SystemClock);
    let call = fencehold_contract::CallContext::new(fencehold_core::Namespace::default());
    let findings = match EtcdStore::open(cluster, clock) {
        Ok(store) => store.probe(&call).await,
        Err(error) => Err(error),
    };
    let findings = findings.map_err(|error| Failure::of_store(error, &url.to_string()))?;
    context.output.many(&findings, "nothing was found", || {
        let mut table = Table::new(["CHECK", "VERDICT"]);
        for finding in &findings {
            let verdict = match &finding.verdict {
                EtcdVerdict::Failed(why) => Cell::from(format!("failed: {why}")).in_colour(Colour::Bad),
                EtcdVerdict::Warned(why) => Cell::from(format!("warning: {why}")).in_colour(Colour::Warning),
                _ => Cell::from("passed"),
            };
            table.row([Cell::from(finding.check.as_str()), verdict]);
        }
        table
    })?;
    Ok(!findings.iter().any(|finding| matches!(finding.verdict, EtcdVerdict::Failed(_))))
}

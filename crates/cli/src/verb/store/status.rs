//! `fencehold store status`: who serves it, and how much there is.

use fencehold_contract::StoreStatus;
use serde::Serialize;

use crate::context::Context;
use crate::duration::show_ms;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::VerbResult;

/// Show who serves the store, and how much is in it
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold store status
fencehold store status -o json | jq .owner_pid")]
pub(crate) struct Args {}

#[derive(Serialize)]
struct StatusOutput {
    #[serde(flatten)]
    status: StoreStatus,
    /// Of a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Schema>,
}

#[derive(Serialize)]
struct Schema {
    name: String,
    version: i32,
    supported_version: i32,
    usable: bool,
}

impl Schema {
    /// As it stands, before it is used.
    #[cfg(feature = "postgres")]
    async fn found(context: &Context) -> Result<Option<Self>, Failure> {
        use std::sync::Arc;

        use fencehold_contract::clock::SystemClock;
        use fencehold_contract::{LeaseStore as _, StoreUrl};
        use fencehold_store_postgres::PostgresStore;

        let place = context.place()?;
        let StoreUrl::Postgres(url) = &place.url else { return Ok(None) };
        let explain = |error| Failure::of_store(error, &place.url.to_string());
        let store = PostgresStore::open(url, Arc::new(SystemClock)).map_err(explain)?;
        let version = store.schema_version(&context.call()).await;
        store.close().await;
        let version = version.map_err(explain)?;
        Ok(Some(Schema {
            name: url.schema.clone(),
            version: version.found,
            supported_version: version.known,
            usable: version.usable,
        }))
    }

    /// Without that store there is no schema.
    #[cfg(not(feature = "postgres"))]
    #[expect(clippy::unused_async, reason = "the same signature as with `postgres`")]
    async fn found(_: &Context) -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    fn line(&self) -> (&'static str, String) {
        let Schema { name, version, supported_version, .. } = self;
        ("schema", format!("{name}, version {version} of {supported_version}"))
    }

    /// All that can be said of one that is not what this program uses.
    fn show(&self, context: &Context) -> VerbResult {
        #[derive(Serialize)]
        struct StatusWithoutJobs<'a> {
            schema: &'a Schema,
        }
        let next = match self.version {
            0 => "not there yet: `store migrate`, or the first use, creates it",
            version if version < self.supported_version => {
                "older than this program: `store migrate` updates it, or the first use with migrate=auto in the URL"
            }
            _ => "newer than this program, which cannot use it: update this one",
        };
        context.output.refuse_env()?;
        let store = context.place()?.url.to_string();
        context.output.one(&StatusWithoutJobs { schema: self }, |style| {
            facts(style, [("store", store), self.line(), ("it is", next.to_owned())])
        })
    }
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let schema = Schema::found(context).await?;
        if let Some(schema) = schema.as_ref().filter(|schema| !schema.usable) {
            // Using it could make it: this only looks.
            return schema.show(context);
        }
        let (name, status) = context
            .look(async |store| {
                Ok((store.name.clone(), store.explained(store.leases.status(&store.call)).await?))
            })
            .await?;
        let shown = StatusOutput { status, schema };
        context.output.one(&shown, |style| {
            let StatusOutput { status, schema } = &shown;
            let mut lines = vec![("store", name)];
            lines.extend(schema.as_ref().map(Schema::line));
            lines.extend(status.owner_pid.map(|pid| ("served by", format!("process {pid}{}", us(pid)))));
            lines.extend(status.epoch.map(|epoch| ("epoch", epoch.to_string())));
            if status.counts_hidden {
                let why = "hidden: they are of all namespaces, and this access token is not";
                lines.push(("counts", why.to_owned()));
            } else {
                lines.push(("keys", status.key_count.to_string()));
                lines.push(("held", status.held_count.to_string()));
                lines.push(("waiting", status.waiter_count.to_string()));
                lines.push(("jobs", status.job_count.to_string()));
            }
            let (closed_ms, unreadable) = (status.closed_for_ms, status.unreadable_row_count);
            lines.extend((closed_ms > 0).then(|| ("closed for", show_ms(closed_ms))));
            lines.push(("newest event", status.newest_event_seq.to_string()));
            lines.extend((unreadable > 0).then(|| ("unreadable rows", unreadable.to_string())));
            lines.extend(status.maintenance_errors.iter().map(|failing| ("maintenance", failing.clone())));
            facts(style, lines)
        })
    }
}

/// The first caller serves: for a moment that may be this very process.
fn us(pid: u32) -> &'static str {
    if pid == std::process::id() { " (this one: no other was there)" } else { "" }
}

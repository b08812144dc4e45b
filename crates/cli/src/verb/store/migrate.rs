//! `fencehold store migrate`: brings the schema of a database up to date.

use std::sync::Arc;

use fencehold_store::clock::SystemClock;
use fencehold_store::postgres::PostgresStore;
use fencehold_store::{Call, LeaseStore as _, StoreUrl};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold --store postgres://owner@db/app store migrate
  fencehold --store postgres://owner@db/app store migrate --dry-run
";

const MORE: &str = "\
Whoever comes first does this by itself, if the user may: this is for those whose programs run as a user that may not make \
tables. Safe to run from many machines at once.";

/// Make the schema in a PostgreSQL database, or bring it up to date
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Only say which version is there
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Report {
    schema: String,
    found: i32,
    known: i32,
    carried_out: Vec<String>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        context.output.refuse_env()?;
        let place = context.place()?;
        let StoreUrl::Postgres(url) = &place.url else {
            let what = format!("{} has no schema to migrate: that is for postgres://", place.url);
            return Err(Failure::new(Exit::Usage, what));
        };
        let name = place.url.to_string();
        let explain = |error| Failure::of_store(error, &name);
        let store = PostgresStore::open(url, Arc::new(SystemClock)).map_err(explain)?;
        let call = Call::new(context.namespace.clone());
        let migrating = async {
            let carried_out = if self.dry_run { Vec::new() } else { store.migrate(&call).await? };
            Ok((carried_out, store.schema_version(&call).await?))
        };
        let migrated = migrating.await;
        store.close().await;
        let (carried_out, version) = migrated.map_err(explain)?;
        let report =
            Report { schema: url.schema.clone(), found: version.found, known: version.known, carried_out };
        context.output.one(&report, |palette| {
            let done = match report.carried_out.as_slice() {
                [] => "nothing".to_owned(),
                done => done.join(", "),
            };
            facts(
                palette,
                [
                    ("schema", report.schema.clone()),
                    ("version", format!("{} of {}", report.found, report.known)),
                    ("carried out", done),
                ],
            )
        })?;
        Ok(DONE)
    }
}

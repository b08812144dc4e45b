//! `fencehold store migrate`: brings the schema of a database up to date.

use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{CallContext, LeaseStore as _, StoreUrl};
use fencehold_store_postgres::PostgresStore;
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
  fencehold --store postgres://owner@db/app store migrate --sql > migrate.sql
";

const MORE: &str = "\
The first use of a database makes the schema, if the user may. A schema that is older than the program is changed by this command alone, \
or by programs with migrate=auto in their URL. It also gives the roles of the schema their rights again. Safe to run from many \
machines at once, and while others use the store.";

/// Make the schema in a PostgreSQL database, or bring it up to date
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Only say which version is there, and what would be carried out
    #[arg(long)]
    dry_run: bool,
    /// Only print the statements that would be carried out, as one script for psql
    #[arg(long, conflicts_with = "dry_run")]
    sql: bool,
}

#[derive(Serialize)]
struct Report {
    schema: String,
    found: i32,
    known: i32,
    carried_out: Vec<String>,
    missing: Vec<String>,
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
        let call = CallContext::new(context.namespace.clone());
        let migrating = async {
            let carried_out =
                if self.dry_run || self.sql { Vec::new() } else { store.migrate(&call).await? };
            let (missing, sql) = store.missing_migrations(&call).await?;
            Ok((carried_out, missing, sql, store.schema_version(&call).await?))
        };
        let migrated = migrating.await;
        store.close().await;
        let (carried_out, missing, sql, version) = migrated.map_err(explain)?;
        if self.sql {
            context.output.text(&sql)?;
            return Ok(DONE);
        }
        let report = Report {
            schema: url.schema.clone(),
            found: version.found,
            known: version.known,
            carried_out,
            missing,
        };
        context.output.one(&report, |palette| {
            let named = |names: &[String]| match names {
                [] => "nothing".to_owned(),
                names => names.join(", "),
            };
            facts(
                palette,
                [
                    ("schema", report.schema.clone()),
                    ("version", format!("{} of {}", report.found, report.known)),
                    ("carried out", named(&report.carried_out)),
                    ("missing", named(&report.missing)),
                ],
            )
        })?;
        Ok(DONE)
    }
}

//! `fencehold store migrate`: brings the schema of a database up to date.

use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{LeaseStore as _, StoreUrl};
use fencehold_store_postgres::PostgresStore;
use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::VerbResult;

/// Create or update the schema in a PostgreSQL database
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold --store postgres://owner@db/app store migrate
fencehold --store postgres://owner@db/app store migrate --dry-run
fencehold --store postgres://owner@db/app store migrate --sql > migrate.sql")]
#[command(after_help = "\
The first use of a database creates the schema, if the user may. An older schema is updated only by this command, or by \
programs with migrate=auto in their URL. It also grants the roles of the schema their rights again. It is safe to run \
from many machines at once, and while others use the store.")]
pub(crate) struct Args {
    /// Only show the version and the pending migrations
    #[arg(long)]
    dry_run: bool,
    /// Only print the pending migrations, as a script for psql
    #[arg(long, conflicts_with = "dry_run")]
    sql: bool,
}

#[derive(Serialize)]
struct MigrateOutput {
    schema: String,
    version: i32,
    supported_version: i32,
    applied: Vec<String>,
    pending: Vec<String>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let place = context.place()?;
        let StoreUrl::Postgres(url) = &place.url else {
            let what = format!("{} has no schema to migrate: that is for postgres://", place.url);
            return Err(Failure::usage(what));
        };
        let name = place.url.to_string();
        let explain = |error| Failure::of_store(error, &name);
        let store = PostgresStore::open(url, Arc::new(SystemClock)).map_err(explain)?;
        let call = context.call();
        let migrating = async {
            let applied = if self.dry_run || self.sql { Vec::new() } else { store.migrate(&call).await? };
            let (pending, sql) = store.missing_migrations(&call).await?;
            Ok((applied, pending, sql, store.schema_version(&call).await?))
        };
        let migrated = migrating.await;
        store.close().await;
        let (applied, pending, sql, version) = migrated.map_err(explain)?;
        if self.sql {
            return context.output.text(&sql);
        }
        let report = MigrateOutput {
            schema: url.schema.clone(),
            version: version.found,
            supported_version: version.known,
            applied,
            pending,
        };
        context.output.one(&report, |style| {
            let named = |names: &[String]| match names {
                [] => "nothing".to_owned(),
                names => names.join(", "),
            };
            let lines = [
                ("schema", report.schema.clone()),
                ("version", format!("{} of {}", report.version, report.supported_version)),
                ("applied", named(&report.applied)),
                ("pending", named(&report.pending)),
            ];
            facts(style, lines)
        })
    }
}

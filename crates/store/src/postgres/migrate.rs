//! The schema: made and brought up to date by whoever comes first, refused where it is newer than this program.
//!
//! Nouns: a *migration* is one SQL file with a number; what was carried out stands in the table `migration`. All that are
//! missing are carried out in one transaction, under an advisory lock, so that fifty processes can start at once.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel};

use super::fault::Fault;

/// Every migration in order. What a release has carried is never changed again: what comes later is a migration of its own.
const MIGRATIONS: &[(i32, &str, &str)] = &[
    (1, "base", include_str!("migrations/0001_base.sql")),
    (2, "events", include_str!("migrations/0002_events.sql")),
    (3, "lease tables", include_str!("migrations/0003_lease_tables.sql")),
    (4, "lease rules", include_str!("migrations/0004_lease_rules.sql")),
    (5, "lease line", include_str!("migrations/0005_lease_line.sql")),
    (6, "lease acquire", include_str!("migrations/0006_lease_acquire.sql")),
    (7, "lease holds", include_str!("migrations/0007_lease_holds.sql")),
    (8, "lease look", include_str!("migrations/0008_lease_look.sql")),
    (9, "lease upkeep", include_str!("migrations/0009_lease_upkeep.sql")),
    (10, "fence", include_str!("migrations/0010_fence.sql")),
    (11, "job tables", include_str!("migrations/0011_job_tables.sql")),
    (12, "job line", include_str!("migrations/0012_job_line.sql")),
    (13, "job enqueue", include_str!("migrations/0013_job_enqueue.sql")),
    (14, "job claim", include_str!("migrations/0014_job_claim.sql")),
    (15, "job attempt", include_str!("migrations/0015_job_attempt.sql")),
    (16, "job load", include_str!("migrations/0016_job_load.sql")),
    (17, "job keep", include_str!("migrations/0017_job_keep.sql")),
    (18, "job upkeep", include_str!("migrations/0018_job_upkeep.sql")),
    (19, "job list", include_str!("migrations/0019_job_list.sql")),
    (20, "job users", include_str!("migrations/0020_job_users.sql")),
    (21, "plans", include_str!("migrations/0021_plans.sql")),
];

/// The newest schema that this program knows.
pub(super) fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

/// Sees to it that the schema is the one that this program knows.
pub(super) async fn ensure(client: &mut Client, schema: &str) -> Result<(), Fault> {
    match version(client, schema).await? {
        found if found == newest() => Ok(()),
        found if found > newest() => Err(Fault::Refused(too_new(schema, found))),
        _ => migrate(client, schema).await.map(drop),
    }
}

/// The version of a schema; 0: it is not there.
pub(super) async fn version(client: &Client, schema: &str) -> Result<i32, Fault> {
    let sql = format!("SELECT coalesce(max(version), 0) FROM {schema}.migration");
    match client.query_typed(&sql, &[]).await {
        Ok(rows) => Ok(rows.first().map_or(0, |row| row.get(0))),
        Err(error)
            if matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME)) =>
        {
            Ok(0)
        }
        Err(error) => Err(Fault::of_connecting(&error)),
    }
}

/// Carries out what is missing. Gives the names of what was.
pub(super) async fn migrate(client: &mut Client, schema: &str) -> Result<Vec<&'static str>, Fault> {
    carry_out(client, schema).await.map_err(|fault| match fault {
        Fault::Refused(why) => Fault::Refused(format!(
            "the schema {schema} could not be brought up to date: {why}; an owner of the database can, by `fencehold store migrate`"
        )),
        fault => fault,
    })
}

async fn carry_out(client: &mut Client, schema: &str) -> Result<Vec<&'static str>, Fault> {
    let fault = |error: tokio_postgres::Error| match error.code() {
        // Not the advice for those who only use the schema.
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Fault::Refused(text_of(&error)),
        _ => Fault::of_connecting(&error),
    };
    // Whoever comes second must see what the first has done, whatever the default of this database.
    let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let transaction = begin.start().await.map_err(fault)?;
    // Held to the end of the transaction: whoever comes second finds the work done.
    let lock = "SELECT pg_advisory_xact_lock(1179142477, hashtext($1))";
    transaction.query_typed(lock, &[(&schema, Type::TEXT)]).await.map_err(fault)?;
    // A statement of its own, and the table itself: what waited for the lock still sees what was there when it began, and
    // what the server remembers of names it looked up is older yet.
    let there = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let rows = transaction.query_typed(there, &[(&schema, Type::TEXT)]).await.map_err(fault)?;
    if rows.is_empty() {
        transaction
            .batch_execute(&format!("CREATE SCHEMA {schema}"))
            .await
            .map_err(fault)?;
    }
    // Functions are made to keep the path that they were made under: see `SET search_path FROM CURRENT` in the files.
    let base = format!(
        "SET LOCAL search_path = {schema}, pg_temp;
         SET LOCAL client_min_messages = warning;
         CREATE TABLE IF NOT EXISTS migration (
             version integer PRIMARY KEY,
             name text NOT NULL,
             carried_out_at timestamptz NOT NULL DEFAULT clock_timestamp()
         );"
    );
    transaction.batch_execute(&base).await.map_err(fault)?;
    let rows = transaction
        .query_typed("SELECT coalesce(max(version), 0) FROM migration", &[])
        .await
        .map_err(fault)?;
    let found: i32 = rows.first().map_or(0, |row| row.get(0));
    if found > newest() {
        return Err(Fault::Refused(too_new(schema, found)));
    }
    let mut done = Vec::new();
    for (version, name, sql) in MIGRATIONS.iter().filter(|(version, ..)| *version > found) {
        transaction.batch_execute(sql).await.map_err(|error| match fault(error) {
            Fault::Refused(why) => Fault::Refused(format!("migration {version} ({name}): {why}")),
            fault => fault,
        })?;
        let note = "INSERT INTO migration (version, name) VALUES ($1, $2)";
        transaction
            .query_typed(note, &[(version, Type::INT4), (name, Type::TEXT)])
            .await
            .map_err(fault)?;
        done.push(*name);
    }
    if !done.is_empty() {
        // What is made is everybody's at first; the files say whose it is.
        let revoke = format!("REVOKE ALL ON ALL ROUTINES IN SCHEMA {schema} FROM PUBLIC");
        transaction.batch_execute(&revoke).await.map_err(fault)?;
    }
    transaction.commit().await.map_err(fault)?;
    Ok(done)
}

fn text_of(error: &tokio_postgres::Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), |said| said.message().to_owned())
}

/// Why a schema cannot be used by this program.
pub(super) fn too_new(schema: &str, found: i32) -> String {
    format!(
        "the schema {schema} has version {found}, and this program knows up to {}: a newer Fencehold uses it; update this one",
        newest()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_from_one_without_a_gap() {
        assert!(MIGRATIONS.iter().map(|(version, ..)| *version).eq(1..=newest()));
    }
}

//! The schema: made on first use, brought up to date when that is asked for, and refused where it does not fit this program.
//!
//! The files of `schema/` are the newest schema: each table, function, view, trigger and grant is written there once, as it is in force. A new
//! schema is made from them. A schema of an earlier version gets what it lacks from *migrations*, one SQL file for each version, which change
//! tables and what is in them; after the last one, the files in [`ROUTINES`] are executed again, so no migration repeats a function.
//! `a_schema_that_was_upgraded_is_the_same_as_a_new_one` compares the two ways.
//!
//! To change a function, edit it where it stands. To change a table, edit it and write a migration. Either way the version grows: add a line
//! to [`MIGRATIONS`], with an empty text if only functions change. A migration says `DROP FUNCTION IF EXISTS` of a function that is gone, or
//! whose arguments or result change, and calls none of our functions: they may be of any earlier version. A program that is named as
//! compatible ([`COMPATIBLE`]) goes on calling what it knows: leave it in the files.
//!
//! The versions that were carried out stand in the table `migration`, with the oldest program that can use the schema since. All that is
//! missing is carried out in one transaction, under an advisory lock, so that fifty processes can start at once.

use std::sync::OnceLock;

use fencehold_contract::url::quoted;
use fencehold_contract::{MigrateSchema, PostgresUrl};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

use super::fault::StatementError;
use super::statement::query_one;
use super::trust;

/// Files with their names, in the order in which they are executed.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("schema/", $name, ".sql")))),*]
    };
}

/// A file, by its name.
type File = (&'static str, &'static str);

/// The functions that tables need. They are executed before anything else.
const CALLED_BY_TABLES: &[File] = files!("called_by_tables");
/// The tables of a new schema.
const TABLES: &[File] = files!("tables" "lease_tables" "job_tables" "tables_since_21");
/// Everything else. They can be executed again: see the module.
const ROUTINES: &[File] = files!(
    "shared" "maintenance" "counts" "events" "namespaces" "lease_rules" "lease_waiting" "lease_acquire" "lease_holds"
    "lease_read" "lease_sweep" "contention" "fences" "job_waiting" "job_enqueue" "job_claim" "job_report" "job_load" "job_counts"
    "job_keep" "job_sweep" "job_read" "queues" "schedules" "job_documents" "job_producers" "job_transactions" "refusals" "recovery" "views" "roles"
    "plans" "comments"
);

/// The first version that a release has.
const BASE: i32 = 30;
/// The one version before that can be brought up to date, and how.
const EARLIER: (i32, &[File]) = (21, files!("tables_since_21" "upgrade_from_21"));
/// What the versions after [`BASE`] change in an existing schema, in order: the version, its name and its text. One that a release has
/// carried is never changed again.
const MIGRATIONS: &[(i32, &str, &str)] = &[
    (31, "functions share their bodies", include_str!("schema/0031_functions_share_their_bodies.sql")),
    (32, "events are counted", include_str!("schema/0032_events_are_counted.sql")),
    (33, "tasks below a task", include_str!("schema/0033_tasks_below_a_task.sql")),
    (34, "contention is recorded", include_str!("schema/0034_contention_is_recorded.sql")),
    (35, "jobs are enqueued by documents", include_str!("schema/0035_jobs_are_enqueued_by_documents.sql")),
    (36, "background work is elected", include_str!("schema/0036_background_work_is_elected.sql")),
    (37, "jobs are counted", include_str!("schema/0037_jobs_are_counted.sql")),
    (38, "counts name an event", include_str!("schema/0038_counts_name_an_event.sql")),
    (39, "many jobs on offer", include_str!("schema/0039_many_jobs_on_offer.sql")),
    (40, "few jobs one by one", include_str!("schema/0040_few_jobs_one_by_one.sql")),
];
/// Versions that older programs can use: each with the oldest of them. One that is not named here can be used by no program that is older than
/// itself.
const COMPATIBLE: &[(i32, i32)] =
    &[(31, 30), (32, 30), (33, 30), (34, 30), (35, 30), (36, 30), (37, 30), (38, 30), (39, 30), (40, 30)];

/// Where the schema is, and what a program may do about it.
#[derive(Clone, Debug)]
pub(super) struct SchemaTarget {
    pub(super) schema: String,
    owner: Option<String>,
    migrate: MigrateSchema,
}

impl SchemaTarget {
    pub(super) fn new(url: &PostgresUrl) -> Self {
        SchemaTarget { schema: url.schema.clone(), owner: url.owner.clone(), migrate: url.migrate }
    }

    /// The channel of all notifications of this schema.
    pub(super) fn channel(&self) -> String {
        format!("fencehold_{}", self.schema)
    }

    /// Whose schema it is, if it is there, and how it stands.
    async fn look(
        &self,
        client: &impl GenericClient,
    ) -> Result<(Option<trust::Trusted>, SchemaStatus), StatementError> {
        let trusted = trust::look(client, &self.schema, self.owner.as_deref()).await?;
        let status = match &trusted {
            Some(found) if found.made => version(client, &self.schema).await?,
            _ => SchemaStatus::default(),
        };
        Ok((trusted, status))
    }
}

/// How a schema stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaStatus {
    /// 0: it is not there.
    pub(super) found: i32,
    /// The oldest program that can use it.
    pub(super) compatible_from: i32,
}

impl SchemaStatus {
    /// Whether this program can use the schema as it is.
    pub(super) fn is_usable(self) -> bool {
        self.found >= newest() && self.compatible_from <= newest()
    }

    /// Whether a newer program has changed it so that this one cannot use it.
    pub(super) fn is_too_new(self) -> bool {
        self.found > newest() && self.compatible_from > newest()
    }
}

/// A schema that was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedSchema {
    pub(super) version: SchemaStatus,
    /// Whether this user may do more than look.
    pub(super) works: bool,
}

/// The newest schema that this program knows.
pub(super) fn newest() -> i32 {
    MIGRATIONS.last().map_or(BASE, |(version, ..)| *version)
}

/// What brings a schema to a version.
#[derive(Debug)]
pub(super) struct Change {
    version: i32,
    pub(super) name: &'static str,
    files: Vec<File>,
    compatible_from: i32,
}

/// The oldest program that can use what one version leaves.
fn compatible_from(version: i32) -> i32 {
    COMPATIBLE
        .iter()
        .find(|(of, _)| *of == version)
        .map_or(version, |(_, from)| *from)
}

/// What a schema of this version lacks, or why it cannot be brought up to date.
pub(super) fn missing(schema: &str, found: i32) -> Result<Vec<Change>, StatementError> {
    let change = |version, name, files: &[File]| Change {
        version,
        name,
        files: files.to_vec(),
        compatible_from: compatible_from(version),
    };
    let (earlier, upgrade) = EARLIER;
    let mut changes = Vec::new();
    if found == 0 {
        let compatible_from = MIGRATIONS.iter().map(|(version, ..)| compatible_from(*version)).max();
        let new = change(newest(), "new schema", TABLES);
        return Ok(vec![Change { compatible_from: compatible_from.unwrap_or(BASE), ..new }]);
    } else if found == earlier {
        changes.push(change(BASE, "upgrade from 21", upgrade));
    } else if found < BASE {
        return Err(StatementError::Refused(unreleased(schema, found)));
    }
    let later = MIGRATIONS.iter().filter(|(version, ..)| *version > found);
    changes.extend(later.map(|(version, name, sql)| change(*version, name, &[(name, sql)])));
    Ok(changes)
}

/// What is ours in a schema of any version, by name.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) routines: Vec<&'static str>,
    pub(super) relations: Vec<&'static str>,
}

impl Objects {
    pub(super) fn made() -> &'static Self {
        static MADE: OnceLock<Objects> = OnceLock::new();
        MADE.get_or_init(|| {
            let mut made = Objects::default();
            let files = [CALLED_BY_TABLES, TABLES, ROUTINES, EARLIER.1]
                .into_iter()
                .flatten()
                .map(|(_, sql)| *sql);
            for line in files.chain(MIGRATIONS.iter().map(|(.., sql)| *sql)).flat_map(str::lines) {
                let mut words = line.split([' ', '(', ';']);
                let verb = words.next().unwrap_or("");
                let mut words = words
                    .filter(|word| !matches!(*word, "OR" | "REPLACE" | "UNIQUE" | "IF" | "NOT" | "EXISTS"));
                let (Some(kind), Some(name)) = (words.next(), words.next()) else { continue };
                match (verb, kind) {
                    // Those that are dropped or renamed were made by an earlier version.
                    ("CREATE" | "ALTER" | "DROP", "FUNCTION" | "PROCEDURE") => made.routines.push(name),
                    ("CREATE", "TABLE" | "SEQUENCE" | "INDEX" | "VIEW") => made.relations.push(name),
                    _ => {}
                }
            }
            made
        })
    }
}

/// Sees to it that the schema is one that this program can use. `used`: this handle has used it before, and finishes what it has begun,
/// whatever was done to the schema since.
pub(super) async fn ensure(
    client: &mut Client,
    place: &SchemaTarget,
    used: bool,
) -> Result<CheckedSchema, StatementError> {
    let (trusted, version) = place.look(client).await?;
    let works = trusted.is_some_and(|found| found.works);
    if version.is_usable() || used && version.found > newest() {
        return Ok(CheckedSchema { version, works });
    }
    if version.found > newest() {
        return Err(StatementError::Refused(too_new(&place.schema, version.found)));
    }
    if version.found > 0 && place.migrate == MigrateSchema::Manual {
        missing(&place.schema, version.found)?;
        return Err(StatementError::Refused(too_old(&place.schema, version.found)));
    }
    migrate(client, place).await?;
    // What this user may do in a schema that it has just made, or brought up to date.
    Ok(CheckedSchema { version: SchemaStatus { found: newest(), compatible_from: newest() }, works: true })
}

/// The version of a schema that can be trusted.
async fn version(client: &impl GenericClient, schema: &str) -> Result<SchemaStatus, StatementError> {
    // Schema 21 has no such column.
    let sql = format!(
        "SELECT coalesce(max(m.version), 0),
            coalesce(max(coalesce((to_jsonb(m)->>'compatible_from')::integer, m.version)), 0) FROM {}.migration AS m",
        quoted(schema)
    );
    let (found, compatible_from) = query_one(client, &sql, &[])
        .await
        .map_err(|error| StatementError::of_connecting(&error, schema))?;
    Ok(SchemaStatus { found, compatible_from })
}

/// How a schema stands, and whether it is there at all, without changing it.
pub(super) async fn find(
    client: &Client,
    place: &SchemaTarget,
) -> Result<(SchemaStatus, bool), StatementError> {
    let (trusted, status) = place.look(client).await?;
    Ok((status, trusted.is_some()))
}

/// Carries out what is missing, and gives the roles what is theirs. Gives the names of what was carried out.
pub(super) async fn migrate(
    client: &mut Client,
    place: &SchemaTarget,
) -> Result<Vec<&'static str>, StatementError> {
    let schema = &place.schema;
    carry_out(client, place).await.map_err(|fault| match fault {
        StatementError::Refused(why) => {
            StatementError::Refused(format!("the schema {schema} could not be brought up to date: {why}"))
        }
        fault => fault,
    })
}

/// Statements that are executed together, after the name of the file that has them; none: they are here.
type MigrationStatement = (Option<&'static str>, String);

/// What brings a schema up to date, after its lock was taken.
fn steps(schema: &str, changes: &[Change], there: bool) -> Vec<MigrationStatement> {
    let name = quoted(schema);
    let alone = |sql: String| (None, sql);
    let of_file = |(file, sql): &File| (Some(*file), sql.trim_end().trim_end_matches(';').to_owned());
    let mut steps = Vec::new();
    if !there {
        // An error, if another role has made it since it was looked for.
        steps.push(alone(format!("CREATE SCHEMA {name}")));
    }
    // Functions are made to keep the path that they were made under: see `SET search_path FROM CURRENT` in the files.
    steps.push(alone(format!("SET LOCAL search_path = {name}, pg_temp")));
    steps.push(alone("SET LOCAL client_min_messages = warning".to_owned()));
    if !changes.is_empty() {
        steps.extend(CALLED_BY_TABLES.iter().map(of_file));
    }
    for Change { version, name, files, compatible_from } in changes {
        steps.extend(files.iter().map(of_file));
        steps.push(alone(format!(
            "INSERT INTO migration (version, name, compatible_from) VALUES ({version}, '{name}', {compatible_from})"
        )));
    }
    if !changes.is_empty() {
        steps.extend(ROUTINES.iter().map(of_file));
    }
    // What is made can be called by every role at first. By name: the owner may keep other things here.
    steps.push(alone(format!(
        "DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOR ours IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
        AND p.proname = ANY ('{{{}}}') AND has_function_privilege('public', p.oid, 'EXECUTE')
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', ours);
    END LOOP;
END $$",
        Objects::made().routines.join(",")
    )));
    steps.push(alone("CALL grant_roles()".to_owned()));
    steps
}

/// Only one migrates at a time.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1179142477, hashtext($1))";

/// The same as one script, for those who carry it out by hand.
pub(super) fn script(schema: &str, found: i32, changes: &[Change], there: bool) -> String {
    let mut parts = vec![
        format!(
            "-- Brings the schema {schema} from version {found} to {}. Run it as the owner of the schema, with ON_ERROR_STOP.\nBEGIN",
            newest()
        ),
        LOCK.replace("$1", &format!("'{schema}'")),
    ];
    if found > 0 {
        parts.push(format!(
            "DO $$ BEGIN
    IF (SELECT max(version) FROM {}.migration) <> {found} THEN
        RAISE EXCEPTION 'the schema has another version than {found}: print the statements again';
    END IF;
END $$",
            quoted(schema)
        ));
    }
    parts.extend(steps(schema, changes, there).into_iter().map(|(file, sql)| match file {
        Some(name) => format!("\n-- File: {name}\n{sql}"),
        None => sql,
    }));
    parts.push("COMMIT".to_owned());
    parts.join(";\n") + ";\n"
}

async fn carry_out(client: &mut Client, place: &SchemaTarget) -> Result<Vec<&'static str>, StatementError> {
    let schema = place.schema.as_str();
    let fault = |error: tokio_postgres::Error| match error.code() {
        // Not the advice for those who only use the schema.
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => StatementError::Refused(format!(
            "{}; a user who may make schemas in this database can do it, by `fencehold store migrate`",
            error.as_db_error().map_or("", DbError::message)
        )),
        _ => StatementError::of_connecting(&error, schema),
    };
    // The second must see what the first has done, whatever the default of this database.
    let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let transaction = begin.start().await.map_err(fault)?;
    // Held to the end of the transaction: the second finds the work done.
    transaction.query_typed(LOCK, &[(&schema, Type::TEXT)]).await.map_err(fault)?;
    // A statement of its own: one that waited for the lock still sees what was there when it began.
    let (trusted, version) = place.look(&transaction).await?;
    let there = trusted.is_some();
    if version.found >= newest() {
        if version.is_too_new() {
            return Err(StatementError::Refused(too_new(schema, version.found)));
        }
        // Nothing to do, but for the roles: and those only their owner can give anything.
        if version.found > newest() || trusted.is_none_or(|found| !found.own) {
            return Ok(Vec::new());
        }
    } else if let Some(found) = &trusted {
        refuse_others(&transaction, schema, found).await?;
    }
    let changes = missing(schema, version.found)?;
    for (file, sql) in steps(schema, &changes, there) {
        transaction
            .batch_execute(&sql)
            .await
            .map_err(|error| match (fault(error), file) {
                (StatementError::Refused(why), Some(name)) => {
                    StatementError::Refused(format!("{name}: {why}"))
                }
                (fault, _) => fault,
            })?;
    }
    transaction.commit().await.map_err(fault)?;
    Ok(changes.into_iter().map(|change| change.name).collect())
}

/// Refuses to make or change anything beside what others keep in a schema.
async fn refuse_others(
    transaction: &Transaction<'_>,
    schema: &str,
    found: &trust::Trusted,
) -> Result<(), StatementError> {
    if found.made && !found.own {
        return Err(StatementError::Refused(format!(
            "not everything in it belongs to {}: connect as its owner, or make that role the owner of all of it (REASSIGN OWNED)",
            found.user
        )));
    }
    // A schema that is not ours is empty; in ours, no routine stands beside those that we made.
    let sql = "SELECT what FROM (
            SELECT 'the routine ' || p.oid::regprocedure AS what FROM pg_proc p
            WHERE p.pronamespace = to_regnamespace($1) AND (NOT $2 OR p.proname <> ALL ($3))
            UNION ALL
            SELECT 'the relation ' || c.oid::regclass FROM pg_class c WHERE NOT $2 AND c.relnamespace = to_regnamespace($1)
            UNION ALL
            SELECT 'the type ' || t.oid::regtype FROM pg_type t WHERE NOT $2 AND t.typnamespace = to_regnamespace($1)
            UNION ALL
            SELECT 'the operator ' || o.oid::regoperator FROM pg_operator o WHERE o.oprnamespace = to_regnamespace($1)) AS others LIMIT 1";
    let rows = transaction
        .query_typed(
            sql,
            &[
                (&quoted(schema), Type::TEXT),
                (&found.made, Type::BOOL),
                (&Objects::made().routines, Type::NAME_ARRAY),
            ],
        )
        .await
        .map_err(|error| StatementError::of_connecting(&error, schema))?;
    let Some(row) = rows.first() else { return Ok(()) };
    let what: String = row.get(0);
    Err(StatementError::Refused(if found.made {
        format!(
            "{what} is in it, which is none of ours: move it to another schema first (ALTER … SET SCHEMA)"
        )
    } else {
        format!(
            "{what} is in it already: choose a schema that is empty, or that is not there yet, with schema=NAME"
        )
    }))
}

/// Why a schema cannot be used by this program.
pub(super) fn too_new(schema: &str, found: i32) -> String {
    format!(
        "the schema {schema} has version {found}, and this program knows up to {}: a newer Fencehold uses it; update this one",
        newest()
    )
}

/// Why a schema is not used as it is.
fn too_old(schema: &str, found: i32) -> String {
    format!(
        "the schema {schema} has version {found}, and this program needs {}: bring it up to date with `fencehold store migrate`, as its \
         owner, or have programs do it with migrate=auto in the URL",
        newest()
    )
}

/// Why a schema cannot be brought up to date.
fn unreleased(schema: &str, found: i32) -> String {
    format!(
        "the schema {schema} has version {found}, which no release has made; this program can bring version {} and versions from {BASE} on up to \
         date: go on with the program that made it, or make a new one with schema=NAME in the URL",
        EARLIER.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_in_order() {
        assert!(MIGRATIONS.is_sorted_by(|one, next| one.0 < next.0));
        assert!(MIGRATIONS.first().is_none_or(|(version, ..)| *version > BASE));
    }

    /// What is written once: see the module.
    #[test]
    fn no_function_view_or_table_is_written_twice() {
        let files = [CALLED_BY_TABLES, TABLES, ROUTINES].into_iter().flatten();
        // With the arguments: two functions may have one name.
        let mut made: Vec<String> = files
            .flat_map(|(_, sql)| sql.lines())
            .filter(|line| line.starts_with("CREATE "))
            .map(|line| line.split_inclusive(['(', ')']).take(2).collect())
            .collect();
        made.sort_unstable();
        let all = made.len();
        made.dedup();
        assert_eq!((made.len(), all > 200), (all, true));
    }

    #[test]
    fn a_version_that_no_release_has_made_is_refused() {
        for found in [1, 20, 22, 29] {
            let Err(StatementError::Refused(why)) = missing("order", found) else {
                panic!("{found} was not refused")
            };
            assert!(
                why.contains(&format!("order has version {found},")) && why.contains("schema=NAME"),
                "{why}"
            );
        }
        for found in [0, 21, 30] {
            assert!(missing("order", found).is_ok(), "{found}");
        }
    }

    #[test]
    fn a_program_uses_the_schemas_that_say_that_it_can() {
        let newest = newest();
        let usable = |found, compatible_from| SchemaStatus { found, compatible_from }.is_usable();
        assert!(usable(newest, newest) && usable(newest + 1, newest) && usable(newest + 9, newest - 3));
        assert!(!usable(newest + 1, newest + 1) && !usable(newest - 1, newest - 1) && !usable(0, 0));
    }

    #[test]
    fn a_script_has_every_statement_that_is_missing_and_no_other() {
        let print = |found, there| script("order", found, &missing("order", found).unwrap(), there);
        let all = print(0, false);
        assert!(all.contains("CREATE SCHEMA \"order\"") && all.contains("CREATE TABLE lease_key"));
        let rest = print(21, true);
        assert!(
            !rest.contains("CREATE TABLE lease_key")
                && rest.contains("CREATE OR REPLACE PROCEDURE grant_roles")
        );
        assert!(rest.contains("max(version) FROM \"order\".migration) <> 21"), "{rest}");
        let none = print(newest(), true);
        assert!(!none.contains("CREATE") && none.contains("CALL grant_roles"), "{none}");
    }
}

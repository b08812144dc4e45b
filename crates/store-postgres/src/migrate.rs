//! The schema: made on first use, brought up to date when that is asked for, and refused where it does not fit this program.
//!
//! Nouns: a *migration* is one SQL file with a number; what was carried out stands in the table `migration`, with the oldest program that
//! can use the schema since. All that are missing are carried out in one transaction, under an advisory lock, so that fifty processes can
//! start at once.

use std::sync::OnceLock;

use fencehold_contract::url::quoted;
use fencehold_contract::{MigrateSchema, PostgresUrl};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

use super::fault::Fault;
use super::trust;

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
    (22, "producers", include_str!("migrations/0022_producers.sql")),
    (23, "roles", include_str!("migrations/0023_roles.sql")),
    (24, "quotas", include_str!("migrations/0024_quotas.sql")),
    (25, "events, claims, schedules", include_str!("migrations/0025_events_claims_schedules.sql")),
    (26, "held snapshots", include_str!("migrations/0026_held_snapshots.sql")),
    (27, "what runs out", include_str!("migrations/0027_what_runs_out.sql")),
    (28, "limits", include_str!("migrations/0028_limits.sql")),
    (29, "tenants", include_str!("migrations/0029_tenants.sql")),
    (30, "public names", include_str!("migrations/0030_public_names.sql")),
];

/// Migrations that leave older programs their schema: each with the oldest program that can use it since. One that is not named here can be
/// used by no program that is older than itself.
const COMPATIBLE: &[(i32, i32)] = &[];
/// From here on the table `migration` has the column `compatible_from`.
const NOTES_COMPATIBLE: i32 = 23;

/// Where the schema is, and what a program may do about it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) schema: String,
    owner: Option<String>,
    migrate: MigrateSchema,
}

impl Place {
    pub(super) fn new(url: &PostgresUrl) -> Self {
        Place { schema: url.schema.clone(), owner: url.owner.clone(), migrate: url.migrate }
    }

    async fn look(&self, client: &impl GenericClient) -> Result<Option<trust::Trusted>, Fault> {
        trust::look(client, &self.schema, self.owner.as_deref()).await
    }
}

/// How a schema stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    /// 0: it is not there.
    pub(super) found: i32,
    /// The oldest program that can use it.
    pub(super) compatible_from: i32,
}

impl Version {
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
pub(super) struct Seen {
    pub(super) version: Version,
    /// Whether this user may do more than look.
    pub(super) works: bool,
}

/// The newest schema that this program knows.
pub(super) fn newest() -> i32 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

/// The migrations that a schema of this version lacks.
pub(super) fn missing(found: i32) -> impl Iterator<Item = &'static (i32, &'static str, &'static str)> {
    MIGRATIONS.iter().filter(move |(version, ..)| *version > found)
}

/// What the migrations make, by name.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) routines: Vec<&'static str>,
    pub(super) relations: Vec<&'static str>,
}

impl Objects {
    pub(super) fn made() -> &'static Self {
        static MADE: OnceLock<Objects> = OnceLock::new();
        MADE.get_or_init(|| {
            let mut made = Objects { routines: Vec::new(), relations: vec!["migration"] };
            for line in MIGRATIONS.iter().flat_map(|(.., sql)| sql.lines()) {
                let mut words = line.split([' ', '(', ';']);
                match words.next() {
                    Some("CREATE") => {}
                    Some("ALTER") => {
                        let renamed =
                            line.contains(" RENAME TO ").then(|| words.rfind(|word| !word.is_empty()));
                        made.routines.extend(renamed.flatten());
                        continue;
                    }
                    _ => continue,
                }
                let kind = words.find(|word| !matches!(*word, "OR" | "REPLACE" | "UNIQUE")).unwrap_or("");
                let Some(name) = words.next() else { continue };
                match kind {
                    "FUNCTION" | "PROCEDURE" => made.routines.push(name),
                    "TABLE" | "SEQUENCE" | "INDEX" | "VIEW" => made.relations.push(name),
                    _ => {}
                }
            }
            made
        })
    }
}

/// Sees to it that the schema is one that this program can use. `used`: this handle has used it before, and finishes what it has begun,
/// whatever was done to the schema since.
pub(super) async fn ensure(client: &mut Client, place: &Place, used: bool) -> Result<Seen, Fault> {
    let trusted = place.look(client).await?;
    let works = trusted.as_ref().is_some_and(|found| found.works);
    let version = match trusted {
        Some(found) if found.made => version(client, &place.schema).await?,
        _ => Version::default(),
    };
    if version.is_usable() || used && version.found > newest() {
        return Ok(Seen { version, works });
    }
    if version.found > newest() {
        return Err(Fault::Refused(too_new(&place.schema, version.found)));
    }
    if version.found > 0 && place.migrate == MigrateSchema::Manual {
        return Err(Fault::Refused(too_old(&place.schema, version.found)));
    }
    migrate(client, place).await?;
    // What this user may do in a schema that it has just made, or brought up to date.
    Ok(Seen { version: Version { found: newest(), compatible_from: newest() }, works: true })
}

/// The version of a schema that can be trusted.
async fn version(client: &impl GenericClient, schema: &str) -> Result<Version, Fault> {
    // The column is missing in older schemas.
    let sql = format!(
        "SELECT coalesce(max(m.version), 0),
            coalesce(max(coalesce((to_jsonb(m)->>'compatible_from')::integer, m.version)), 0) FROM {}.migration AS m",
        quoted(schema)
    );
    let rows = client
        .query_typed(&sql, &[])
        .await
        .map_err(|error| Fault::of_connecting(&error, schema))?;
    let read = |row: &tokio_postgres::Row| Version { found: row.get(0), compatible_from: row.get(1) };
    Ok(rows.first().map_or_else(Version::default, read))
}

/// How a schema stands, and whether it is there at all, without changing it.
pub(super) async fn find(client: &Client, place: &Place) -> Result<(Version, bool), Fault> {
    match place.look(client).await? {
        Some(found) if found.made => Ok((version(client, &place.schema).await?, true)),
        found => Ok((Version::default(), found.is_some())),
    }
}

/// Carries out what is missing, and gives the roles what is theirs. Gives the names of what was carried out.
pub(super) async fn migrate(client: &mut Client, place: &Place) -> Result<Vec<&'static str>, Fault> {
    let schema = &place.schema;
    carry_out(client, place).await.map_err(|fault| match fault {
        Fault::Refused(why) => {
            Fault::Refused(format!("the schema {schema} could not be brought up to date: {why}"))
        }
        fault => fault,
    })
}

/// One statement of a migration.
struct Step {
    /// Whose it is; none: it belongs to all of them.
    of: Option<(i32, &'static str)>,
    sql: String,
}

/// What brings a schema of this version up to date, after its lock was taken.
fn steps(schema: &str, found: i32, there: bool) -> Vec<Step> {
    let name = quoted(schema);
    let alone = |sql: String| Step { of: None, sql };
    let mut steps = Vec::new();
    if !there {
        // An error, if another role has made it since it was looked for.
        steps.push(alone(format!("CREATE SCHEMA {name}")));
    }
    // Functions are made to keep the path that they were made under: see `SET search_path FROM CURRENT` in the files.
    steps.push(alone(format!("SET LOCAL search_path = {name}, pg_temp")));
    steps.push(alone("SET LOCAL client_min_messages = warning".to_owned()));
    if found == 0 {
        steps.push(alone(
            "CREATE TABLE migration (
    version integer PRIMARY KEY,
    name text NOT NULL,
    carried_out_at timestamptz NOT NULL DEFAULT clock_timestamp()
)"
            .to_owned(),
        ));
    }
    for &(version, name, sql) in missing(found) {
        steps.push(Step { of: Some((version, name)), sql: sql.trim_end().trim_end_matches(';').to_owned() });
        let compatible_from = COMPATIBLE.iter().find(|(of, _)| *of == version).map(|(_, from)| from);
        steps.push(alone(match compatible_from {
            Some(from) if version >= NOTES_COMPATIBLE => {
                format!("INSERT INTO migration (version, name, compatible_from) VALUES ({version}, '{name}', {from})")
            }
            _ => format!("INSERT INTO migration (version, name) VALUES ({version}, '{name}')"),
        }));
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
pub(super) fn script(schema: &str, found: i32, there: bool) -> String {
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
    parts.extend(steps(schema, found, there).into_iter().map(|Step { of, sql }| match of {
        Some((version, name)) => format!("\n-- Migration {version}: {name}\n{sql}"),
        None => sql,
    }));
    parts.push("COMMIT".to_owned());
    parts.join(";\n") + ";\n"
}

async fn carry_out(client: &mut Client, place: &Place) -> Result<Vec<&'static str>, Fault> {
    let schema = place.schema.as_str();
    let fault = |error: tokio_postgres::Error| match error.code() {
        // Not the advice for those who only use the schema.
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Fault::Refused(format!(
            "{}; a user who may make schemas in this database can do it, by `fencehold store migrate`",
            text_of(&error)
        )),
        _ => Fault::of_connecting(&error, schema),
    };
    // The second must see what the first has done, whatever the default of this database.
    let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let transaction = begin.start().await.map_err(fault)?;
    // Held to the end of the transaction: the second finds the work done.
    transaction.query_typed(LOCK, &[(&schema, Type::TEXT)]).await.map_err(fault)?;
    // A statement of its own: one that waited for the lock still sees what was there when it began.
    let trusted = place.look(&transaction).await?;
    let there = trusted.is_some();
    let made = trusted.as_ref().is_some_and(|found| found.made);
    let version = if made { version(&transaction, schema).await? } else { Version::default() };
    if version.found >= newest() {
        if version.is_too_new() {
            return Err(Fault::Refused(too_new(schema, version.found)));
        }
        // Nothing to do, but for the roles: and those only their owner can give anything.
        if version.found > newest() || trusted.is_none_or(|found| !found.own) {
            return Ok(Vec::new());
        }
    } else if let Some(found) = &trusted {
        refuse_others(&transaction, schema, found).await?;
    }
    let mut done = Vec::new();
    for Step { of, sql } in steps(schema, version.found, there) {
        transaction
            .batch_execute(&sql)
            .await
            .map_err(|error| match (fault(error), of) {
                (Fault::Refused(why), Some((version, name))) => {
                    Fault::Refused(format!("migration {version} ({name}): {why}"))
                }
                (fault, _) => fault,
            })?;
        done.extend(of.map(|(_, name)| name));
    }
    transaction.commit().await.map_err(fault)?;
    Ok(done)
}

/// Refuses to make or change anything beside what others keep in a schema.
async fn refuse_others(
    transaction: &Transaction<'_>,
    schema: &str,
    found: &trust::Trusted,
) -> Result<(), Fault> {
    if found.made && !found.own {
        return Err(Fault::Refused(format!(
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
        .map_err(|error| Fault::of_connecting(&error, schema))?;
    let Some(row) = rows.first() else { return Ok(()) };
    let what: String = row.get(0);
    Err(Fault::Refused(if found.made {
        format!(
            "{what} is in it, which is none of ours: move it to another schema first (ALTER … SET SCHEMA)"
        )
    } else {
        format!(
            "{what} is in it already: choose a schema that is empty, or that is not there yet, with schema=NAME"
        )
    }))
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

/// Why a schema is not used as it is.
fn too_old(schema: &str, found: i32) -> String {
    format!(
        "the schema {schema} has version {found}, and this program needs {}: bring it up to date with `fencehold store migrate`, as its \
         owner, or have programs do it with migrate=auto in the URL",
        newest()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_in_order() {
        assert!(MIGRATIONS.is_sorted_by(|one, next| one.0 < next.0));
    }

    #[test]
    fn a_program_uses_the_schemas_that_say_that_it_can() {
        let newest = newest();
        let usable = |found, compatible_from| Version { found, compatible_from }.is_usable();
        assert!(usable(newest, newest) && usable(newest + 1, newest) && usable(newest + 9, newest - 3));
        assert!(!usable(newest + 1, newest + 1) && !usable(newest - 1, newest - 1) && !usable(0, 0));
    }

    #[test]
    fn a_script_has_every_statement_that_is_missing_and_no_other() {
        let all = script("order", 0, false);
        assert!(all.contains("CREATE SCHEMA \"order\"") && all.contains("CREATE TABLE lease_key"));
        let rest = script("order", 21, true);
        assert!(!rest.contains("CREATE TABLE lease_key") && rest.contains("CREATE PROCEDURE grant_roles"));
        assert!(rest.contains("max(version) FROM \"order\".migration) <> 21"), "{rest}");
    }
}

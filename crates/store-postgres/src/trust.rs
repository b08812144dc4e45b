//! Whose schema this is. A schema can hold code, and code runs with the rights of its caller: so before anything in it is called or
//! read, its owner, the owners of what is in it, and those who could add to it, are looked at in the catalog.
//!
//! Trusted are the user itself, superusers, the owner of the database (not by a superuser: it would get more rights than it has), and the role
//! that the URL names (`schema_owner=`). Objects that come later need the right CREATE on the schema, or TRIGGER on a table: no other role may have it.

use fencehold_contract::url::quoted;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::fault::StatementError;
use super::migrate::Objects;

/// All names are qualified, and all operators are found with exactly the types that they are for: nothing on the search path of the
/// session can take their place.
const LOOK: &str = "
WITH me AS (
    SELECT r.oid, r.rolsuper, d.datdba FROM pg_catalog.pg_roles r, pg_catalog.pg_database d
    WHERE r.rolname = current_user AND d.datname = pg_catalog.current_database()
), base AS (
    SELECT r.oid FROM pg_catalog.pg_roles r, me
    WHERE r.oid = me.oid OR r.rolsuper OR r.rolname = $2 OR (NOT me.rolsuper AND r.oid = me.datdba)
), trusted AS (
    SELECT oid FROM base
    UNION ALL
    SELECT r.oid FROM pg_catalog.pg_roles r, me
    WHERE r.rolname = 'pg_database_owner'::pg_catalog.name AND me.datdba IN (SELECT oid FROM base)
), here AS (
    SELECT n.oid, n.nspname, n.nspowner, n.nspacl FROM pg_catalog.pg_namespace n WHERE n.nspname = $1
), routine AS (
    SELECT p.oid, p.proname, p.proowner FROM pg_catalog.pg_proc p, here WHERE p.pronamespace = here.oid
), relation AS (
    SELECT c.oid, c.relname, c.relowner, c.relacl FROM pg_catalog.pg_class c, here
    WHERE c.relnamespace = here.oid AND c.relname = ANY ($3)
)
SELECT
    EXISTS (SELECT 1 FROM relation WHERE relname = 'migration'::pg_catalog.name) AS made,
    NOT EXISTS (SELECT 1 FROM routine, me WHERE routine.proowner <> me.oid)
        AND NOT EXISTS (SELECT 1 FROM relation, me WHERE relation.relowner <> me.oid) AS own,
    EXISTS (SELECT 1 FROM routine WHERE proname = 'lease_sweep'::pg_catalog.name
        AND pg_catalog.has_schema_privilege(here.oid, 'USAGE'::pg_catalog.text)
        AND pg_catalog.has_function_privilege(oid, 'EXECUTE'::pg_catalog.text)) AS works,
    current_user::pg_catalog.text AS me,
    doubt.kind, doubt.what, doubt.who
FROM here LEFT JOIN LATERAL (
    SELECT 1 AS nth, 'owner' AS kind, here.nspname::pg_catalog.text AS what, pg_catalog.pg_get_userbyid(here.nspowner)::pg_catalog.text AS who
    WHERE here.nspowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT 2, 'routine', oid::pg_catalog.regprocedure::pg_catalog.text, pg_catalog.pg_get_userbyid(proowner)::pg_catalog.text
    FROM routine WHERE proowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT 3, 'relation', oid::pg_catalog.regclass::pg_catalog.text, pg_catalog.pg_get_userbyid(relowner)::pg_catalog.text
    FROM relation WHERE relowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT 4, 'operator', o.oid::pg_catalog.regoperator::pg_catalog.text, pg_catalog.pg_get_userbyid(o.oprowner)::pg_catalog.text
    FROM pg_catalog.pg_operator o WHERE o.oprnamespace = here.oid AND o.oprowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT 5, 'trigger', t.tgname::pg_catalog.text, pg_catalog.pg_get_userbyid(f.proowner)::pg_catalog.text
    FROM relation JOIN pg_catalog.pg_trigger t ON t.tgrelid = relation.oid JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
    WHERE NOT t.tgisinternal AND f.proowner NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT 6, 'create', here.nspname::pg_catalog.text,
        CASE WHEN a.grantee = 0::pg_catalog.oid THEN 'PUBLIC' ELSE pg_catalog.pg_get_userbyid(a.grantee)::pg_catalog.text END
    FROM pg_catalog.aclexplode(here.nspacl) a
    WHERE a.privilege_type = 'CREATE'::pg_catalog.text AND a.grantee NOT IN (SELECT oid FROM trusted)
    UNION ALL
    SELECT 7, 'add', relation.oid::pg_catalog.regclass::pg_catalog.text,
        CASE WHEN a.grantee = 0::pg_catalog.oid THEN 'PUBLIC' ELSE pg_catalog.pg_get_userbyid(a.grantee)::pg_catalog.text END
    FROM relation, pg_catalog.aclexplode(relation.relacl) a
    WHERE a.privilege_type = 'TRIGGER'::pg_catalog.text AND a.grantee NOT IN (SELECT oid FROM trusted)
    ORDER BY 1 LIMIT 1) AS doubt ON true";

/// A schema that can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trusted {
    /// Whether the table `migration` is there.
    pub(super) made: bool,
    /// Whether all that is in it belongs to this user.
    pub(super) own: bool,
    /// Whether this user may do more than look.
    pub(super) works: bool,
    pub(super) user: String,
}

/// Looks at a schema, and refuses one that others can put code into. `None`: it is not there.
pub(super) async fn look(
    client: &impl GenericClient,
    schema: &str,
    owner: Option<&str>,
) -> Result<Option<Trusted>, StatementError> {
    let relations = &Objects::made().relations;
    let rows = client
        .query_typed(LOOK, &[(&schema, Type::NAME), (&owner, Type::NAME), (relations, Type::NAME_ARRAY)])
        .await
        .map_err(|error| StatementError::of_connecting(&error, schema))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let trusted =
        Trusted { made: row.get("made"), own: row.get("own"), works: row.get("works"), user: row.get("me") };
    let Some(kind) = row.get::<_, Option<&str>>("kind") else { return Ok(Some(trusted)) };
    let (what, who): (String, String) = (row.get("what"), row.get("who"));
    let user = &trusted.user;
    let found = match kind {
        "owner" => format!("the schema {what} belongs to {who}"),
        "create" => format!(
            "{who} may add to the schema {what} (REVOKE CREATE ON SCHEMA {} FROM {who} ends that)",
            quoted(&what)
        ),
        "add" => format!("{who} may add triggers to {what} (REVOKE TRIGGER ON {what} FROM {who} ends that)"),
        kind => format!("the {kind} {what} in the schema {schema} belongs to {who}"),
    };
    let next = if who == "PUBLIC" {
        String::new()
    } else {
        format!(
            "; if {who} is meant to own this store, name it in the URL: schema_owner={who}; otherwise choose another schema with schema=NAME"
        )
    };
    Err(StatementError::Refused(format!("{found}, whose code {user} does not run{next}")))
}

//! Who may call and touch what in the schema, seen by six roles: every function, procedure, table, view and sequence that
//! the catalogue has is tried by each. What was seen stands in `docs/security.md`.

use fencehold_test_servers::calls::call;
use fencehold_test_store::block_on;
use tokio_postgres::error::SqlState;

use crate::cluster::{Admin, Durable, PostgresServer};
use crate::{open_url, security_page};

const SCHEMA: &str = "fencehold";
const OWNER: &str = "schema_owner";
/// What was tried, and what each role got.
type Row = (String, Vec<String>);

const NOBODY: &str = "without_grants";

/// One statement by one role, undone afterwards.
fn attempt(admin: &Admin, role: &str, statement: &str) -> Result<(), tokio_postgres::Error> {
    admin.run(&format!("BEGIN; SET LOCAL statement_timeout = '5s'; SET LOCAL SESSION AUTHORIZATION {role}"));
    let done = admin.try_run(statement).map(drop);
    admin.run("ROLLBACK");
    done
}

/// Whether it is a refusal for want of a right.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE)
}

/// What a call with nothing but nulls came to: it counts who is let in, not what becomes of it.
fn called(admin: &Admin, role: &str, name: &str, call: &str) -> String {
    match attempt(admin, role, call) {
        Err(error) if is_refusal(&error) => {
            let said = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
            let at_the_door = said.contains("for schema")
                || said.contains(&format!("for function {name}"))
                || said.contains(&format!("for procedure {name}"));
            if at_the_door { "–" } else { "refused inside" }.to_owned()
        }
        Err(error) => {
            assert!(error.code().is_some(), "{role}: {call}: {error}");
            "yes".to_owned()
        }
        Ok(()) => "yes".to_owned(),
    }
}

/// Whether a statement is none for this kind of relation: most views cannot be changed by any role.
fn is_impossible(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE | &SqlState::WRONG_OBJECT_TYPE))
}

/// Which statements a role may use on a table or a view.
fn touched(admin: &Admin, role: &str, relation: &str, column: &str) -> String {
    let statements = [
        ("select", format!("SELECT FROM {relation} LIMIT 0")),
        ("insert", format!("INSERT INTO {relation} DEFAULT VALUES")),
        ("update", format!("UPDATE {relation} SET {column} = {column} WHERE false")),
        ("delete", format!("DELETE FROM {relation} WHERE false")),
        ("truncate", format!("TRUNCATE {relation} CASCADE")),
    ];
    let may = |(_, statement): &&(&str, String)| match attempt(admin, role, statement) {
        Err(error) => !is_refusal(&error) && !is_impossible(&error),
        Ok(()) => true,
    };
    let allowed: Vec<&str> = statements.iter().filter(may).map(|(name, _)| *name).collect();
    match allowed.len() {
        0 => "–".to_owned(),
        5 => "all".to_owned(),
        _ => allowed.join(", "),
    }
}

/// The roles that the schema grants anything to, those with fewer rights last; and those around them.
fn roles(admin: &Admin) -> Vec<String> {
    let granted = admin.run(&format!(
        "SELECT rolname FROM pg_roles r, pg_namespace n WHERE nspname = '{SCHEMA}' AND r.oid <> nspowner AND NOT rolsuper
            AND EXISTS (SELECT FROM aclexplode(nspacl) a WHERE a.grantee = r.oid)
         ORDER BY (SELECT count(*) FROM pg_proc f WHERE f.pronamespace = n.oid
            AND has_function_privilege(r.oid, f.oid, 'EXECUTE')) DESC, rolname"
    ));
    let granted = granted.into_iter().map(|row| row[0].clone().unwrap());
    ["postgres".to_owned(), OWNER.to_owned()]
        .into_iter()
        .chain(granted)
        .chain([NOBODY.to_owned()])
        .collect()
}

fn shown(role: &str) -> String {
    match role {
        "postgres" => "superuser".to_owned(),
        OWNER => "owner of the schema".to_owned(),
        NOBODY => "no grants".to_owned(),
        role => format!("`{role}`"),
    }
}

#[test]
fn the_matrix_of_sql_is_what_was_seen() {
    // A server of its own: roles are the whole server's.
    let cluster = PostgresServer::start(Durable::No);
    let database = "rights";
    cluster.admin().run(&format!("CREATE ROLE {OWNER} LOGIN CREATEROLE"));
    cluster.admin().run(&format!("CREATE ROLE {NOBODY} LOGIN"));
    cluster.admin().run(&format!("CREATE DATABASE {database} OWNER {OWNER}"));
    let mut url = cluster.url_in(database, SCHEMA);
    url.user = Some(OWNER.to_owned());
    block_on(open_url(&url).migrate(&call())).unwrap();

    let admin = cluster.admin_in(database);
    let roles = roles(&admin);
    assert!(roles.len() >= 6, "{roles:?}");
    let mut rows: Vec<Row> = Vec::new();

    let create = format!("CREATE TABLE {SCHEMA}.planted ()");
    let may = |role: &String, statement: &str| match attempt(&admin, role, statement) {
        Err(error) if is_refusal(&error) => "–".to_owned(),
        _ => "yes".to_owned(),
    };
    let may_create = |role: &String| may(role, &create);
    rows.push(("make objects in the schema".to_owned(), roles.iter().map(may_create).collect()));

    // A trigger's function cannot be called by any role.
    let routines = admin.run(&format!(
        "SELECT f.proname, f.prokind = 'p',
            array_to_string(ARRAY(SELECT CASE WHEN f.provariadic <> 0 AND nth = cardinality(f.proargtypes::oid[]) THEN 'VARIADIC ' ELSE '' END
                || 'NULL::' || format_type(type, NULL) FROM unnest(f.proargtypes) WITH ORDINALITY AS a (type, nth) ORDER BY nth), ', '),
            pg_get_function_identity_arguments(f.oid)
         FROM pg_proc f WHERE f.pronamespace = '{SCHEMA}'::regnamespace
            AND f.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) AND f.prokind IN ('f', 'p')
         ORDER BY 1, 4"
    ));
    assert!(routines.len() > 50, "{}", routines.len());
    let mut names: Vec<String> = Vec::new();
    for routine in routines {
        let [Some(name), procedure, arguments, identity] = &routine[..] else { panic!("{routine:?}") };
        let verb = if procedure.as_deref() == Some("t") { "CALL" } else { "SELECT" };
        let call = format!("{verb} {SCHEMA}.{name}({})", arguments.clone().unwrap_or_default());
        // Its arguments are only worth the room where there are two of a name.
        let mut title = format!("`{name}`");
        if names.contains(name) {
            title = format!("`{name}({})`", identity.clone().unwrap_or_default());
        }
        names.push(name.clone());
        rows.push((title, roles.iter().map(|role| called(&admin, role, name, &call)).collect()));
    }

    let relations = admin.run(&format!(
        "SELECT c.relname, c.relkind::text, (SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0
            AND NOT attisdropped AND attgenerated = '' AND attidentity <> 'a' ORDER BY attnum LIMIT 1)
         FROM pg_class c WHERE c.relnamespace = '{SCHEMA}'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY 2 DESC, 1"
    ));
    assert!(relations.len() > 20, "{}", relations.len());
    for relation in relations {
        let [Some(name), Some(kind), column] = &relation[..] else { panic!("{relation:?}") };
        let place = format!("{SCHEMA}.{name}");
        let cell = |role: &String| match kind.as_str() {
            "S" => may(role, &format!("SELECT nextval('{place}')")),
            _ => touched(&admin, role, &place, column.as_deref().unwrap()),
        };
        let what = match kind.as_str() {
            "S" => "sequence",
            "v" | "m" => "view",
            _ => "table",
        };
        rows.push((format!("{what} `{name}`"), roles.iter().map(cell).collect()));
    }
    let columns: Vec<String> = roles.iter().map(|role| shown(role)).collect();
    security_page::check("sql", "what", &columns, &gathered(rows));
}

/// What is for no role but the owner is one row for each kind of thing, at the end.
fn gathered(rows: Vec<Row>) -> Vec<Row> {
    let is_inner = |(_, cells): &Row| cells[2..].iter().all(|cell| cell == "–");
    let (inner, mut open): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_inner);
    let mut kinds: Vec<(String, Vec<String>, Vec<String>)> = Vec::new();
    for (title, cells) in inner {
        let (kind, name) = title.split_once('`').map_or((title.as_str(), ""), |(kind, name)| (kind, name));
        let kind = if kind.is_empty() { "function" } else { kind.trim() };
        let name = if name.is_empty() { String::new() } else { format!("`{name}") };
        match kinds.iter_mut().find(|known| known.0 == kind && known.1 == cells) {
            Some(known) => known.2.push(name),
            None => kinds.push((kind.to_owned(), cells, vec![name])),
        }
    }
    open.extend(kinds.into_iter().map(|(kind, cells, names)| {
        let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        let title = if names.is_empty() { kind } else { format!("{kind} {}", names.join(", ")) };
        (title, cells)
    }));
    open
}

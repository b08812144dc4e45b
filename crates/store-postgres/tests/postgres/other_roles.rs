//! R48: other roles of the same database. Nothing that they made is run or changed, and they learn nothing that they were not granted.

use fencehold_contract::LeaseStore as _;
use fencehold_test_servers::calls::{call, unusable};
use fencehold_test_store::block_on;

use crate::cluster::{Admin, fresh_schema};
use crate::upgraded::old_schema;
use crate::{migrated, open, open_as};

/// A role that may log in and make schemas, and nothing else.
fn role(admin: &Admin) -> String {
    let name = format!("{}_other", fresh_schema());
    admin.run(&format!("CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE postgres TO {name}"));
    name
}

fn is_superuser(admin: &Admin, role: &str) -> bool {
    admin.value(&format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'")) == "t"
}

/// What the attacker puts in the place of a function that every handle calls.
fn trap(schema: &str, name: &str, returns: &str, attacker: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {schema}.{name} RETURNS {returns} LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                ALTER ROLE {attacker} SUPERUSER;
            END IF;
            RETURN NULL;
        END $$;"
    )
}

#[test]
fn a_schema_that_another_role_made_first_is_refused_and_none_of_its_code_runs() {
    let (admin, schema) = (crate::cluster().admin(), fresh_schema());
    let attacker = role(&admin);
    // A store of its own, up to date in every way, but for one function.
    block_on(open_as(&attacker, &schema).migrate(&call())).unwrap();
    admin.run(&format!("SET SESSION AUTHORIZATION {attacker}"));
    admin.run(&format!("DROP FUNCTION {schema}.lease_timeline()"));
    admin.run(&trap(&schema, "lease_timeline()", "boolean", &attacker));
    admin.run("RESET SESSION AUTHORIZATION");
    let why = [
        block_on(open(&schema).status(&call())).map(drop),
        block_on(open(&schema).migrate(&call())).map(drop),
    ];
    assert!(!is_superuser(&admin, &attacker), "code of {attacker} ran as a superuser: {why:?}");
    for why in why.map(unusable) {
        assert!(why.contains(&attacker) && why.contains(&format!("schema_owner={attacker}")), "{why}");
    }
}

#[test]
fn an_empty_schema_of_another_role_is_refused() {
    let (admin, schema) = (crate::cluster().admin(), fresh_schema());
    let attacker = role(&admin);
    admin.run(&format!("CREATE SCHEMA {schema} AUTHORIZATION {attacker}"));
    let why = unusable(block_on(open(&schema).migrate(&call())));
    assert!(why.contains(&attacker), "{why}");
    let made = format!("SELECT count(*) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace");
    assert_eq!(admin.value(&made), "0", "nothing is made in it");
}

#[test]
fn what_another_role_plants_in_our_schema_is_refused_before_anything_is_called() {
    let (admin, schema) = (crate::cluster().admin(), migrated());
    let attacker = role(&admin);
    admin.run(&format!("GRANT USAGE, CREATE ON SCHEMA {schema} TO {attacker}"));
    let why = unusable(block_on(open(&schema).status(&call())));
    assert!(why.contains(&format!("REVOKE CREATE ON SCHEMA \"{schema}\" FROM {attacker}")), "{why}");
    admin.run(&format!("SET SESSION AUTHORIZATION {attacker}"));
    // An overload that fits better than ours.
    admin.run(&trap(&schema, "lease_sweep(smallint)", "bigint", &attacker));
    admin.run(&format!("RESET SESSION AUTHORIZATION; REVOKE CREATE ON SCHEMA {schema} FROM {attacker}"));
    let why = unusable(block_on(open(&schema).status(&call())));
    assert!(why.contains("lease_sweep(smallint)") && why.contains(&attacker), "{why}");
    admin.run(&format!("DROP FUNCTION {schema}.lease_sweep(smallint)"));
    block_on(open(&schema).status(&call())).unwrap();
}

#[test]
fn a_trigger_or_a_rule_of_another_role_on_our_tables_is_refused() {
    let (admin, schema) = (crate::cluster().admin(), migrated());
    let attacker = role(&admin);
    admin.run(&format!(
        "CREATE SCHEMA AUTHORIZATION {attacker}; GRANT USAGE ON SCHEMA {schema} TO {attacker};
         GRANT TRIGGER ON {schema}.party TO {attacker}; SET SESSION AUTHORIZATION {attacker}"
    ));
    admin.run(&trap(&attacker, "sprung()", "trigger", &attacker));
    admin.run(&format!(
        "CREATE TRIGGER sprung BEFORE INSERT ON {schema}.party FOR EACH ROW EXECUTE FUNCTION {attacker}.sprung();
         RESET SESSION AUTHORIZATION"
    ));
    let why = unusable(block_on(open(&schema).status(&call())));
    assert!(why.contains("sprung") && why.contains(&attacker), "{why}");
}

/// A view runs with the rights of its owner, and what it calls with those of its reader.
#[test]
fn a_view_of_another_role_is_refused() {
    let (admin, schema) = (crate::cluster().admin(), migrated());
    let attacker = role(&admin);
    for view in ["events", "jobs", "lease_endings", "leases", "queues", "schedules"] {
        admin.run(&format!("ALTER VIEW {schema}.{view} OWNER TO {attacker}"));
        let why = unusable(block_on(open(&schema).status(&call())));
        assert!(why.contains(&format!("{schema}.{view}")) && why.contains(&attacker), "{why}");
        admin.run(&format!("ALTER VIEW {schema}.{view} OWNER TO postgres"));
    }
    block_on(open(&schema).status(&call())).unwrap();
}

/// A migration refuses the function `theirs`, says what to do about it, and leaves it as it looks to those who use it: what a
/// migration says of every routine would change it.
fn refuses_theirs(admin: &Admin, schema: &str, advice: &str) {
    let looks = format!(
        "SELECT row(proacl, proconfig, proowner, prosrc) FROM pg_proc WHERE oid = '{schema}.theirs()'::regprocedure"
    );
    let before = admin.value(&looks);
    let why = unusable(block_on(open(schema).migrate(&call())));
    assert_eq!(admin.value(&looks), before, "it was changed");
    assert!(why.contains("theirs()") && why.contains(advice), "{why}");
}

#[test]
fn a_schema_with_other_things_in_it_is_refused_and_left_as_it_was() {
    let (admin, schema) = (crate::cluster().admin(), fresh_schema());
    admin.run(&format!(
        "CREATE SCHEMA {schema};
         CREATE FUNCTION {schema}.theirs() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'"
    ));
    refuses_theirs(&admin, &schema, "schema=");
}

#[test]
fn what_we_did_not_make_is_not_touched_by_a_migration() {
    let (admin, schema) = (crate::cluster().admin(), old_schema());
    admin.run(&format!(
        "CREATE TABLE {schema}.kept (id int); INSERT INTO {schema}.kept VALUES (1);
         CREATE FUNCTION {schema}.theirs() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'"
    ));
    refuses_theirs(&admin, &schema, "SET SCHEMA");
    admin.run(&format!("DROP FUNCTION {schema}.theirs()"));
    block_on(open(&schema).migrate(&call())).unwrap();
    assert_eq!(admin.value(&format!("SELECT count(*) FROM {schema}.kept")), "1");
}

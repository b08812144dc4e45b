//! Who may do what: every function and every table of the schema, role by role.

use fencehold_contract::LeaseStore as _;
use fencehold_contract::job::WaitRequest;
use fencehold_test_servers::calls::{OneByOne as _, call, key, lease_request, unusable};
use fencehold_test_store::block_on;

use crate::session::{until, with_sessions};
use crate::upgraded::old_schema;
use crate::{migrated, open, open_as};

/// What a reader may call, the views, and the one table that it may read.
const READER: &str =
    "event_counts event_totals events events_page events_read job_counts_now job_list job_live job_look job_queue_list job_queues job_schedules job_with_effects jobs lease_endings lease_get lease_list
    lease_stats lease_ended_counts lease_contention_list lease_status lease_timeline leases maintenance_errors migration now_ms queues schedules shown_event_data shown_event_type shown_labels
    shown_state shown_time store_closed_ms store_limits";
/// What a worker may call beside that.
const WORKER: &str = "complete_job enqueue_job enqueue_jobs fence fence_job fence_on fence_resource job_await job_claim job_complete_batch job_complete_hashed
    job_draw job_enqueue_batch job_held_up job_idle_limit job_keep job_leave_line job_line_beat job_line_up job_load job_once_hashed job_queue_remove job_queues_tidy job_recorded job_recount job_renew
    job_room job_run_out job_schedule_hold job_schedules_due job_schedules_most job_tell_lines job_tidy job_under job_unheard job_unschedule job_untaken job_work_due lease_abandon
    lease_acquire lease_contention_add lease_leave lease_look lease_release lease_renew lease_renew_checked lease_suspend lease_sweep maintenance_failed
    maintenance_worked namespace_count open_fences party_lives raise_mark record_effect try_complete_job try_fence try_record_effect upkeep write_refused";
/// What an admin may call beside that.
const ADMIN: &str = "lease_advance lease_revoke lease_revoke_many store_limits_set store_open_now";

/// The first column of what a statement gives.
fn column(sql: &str) -> Vec<String> {
    let rows = crate::cluster().admin().run(sql);
    rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
}

/// Everything in the schema that this role has any right to.
fn rights(role: &str, schema: &str) -> Vec<String> {
    column(&format!(
        "SELECT DISTINCT p.proname::text FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace
            AND has_function_privilege('{role}', p.oid, 'EXECUTE')
         UNION
         SELECT c.relname || CASE WHEN r = 'SELECT' THEN '' ELSE ' ' || r END
         FROM pg_class c CROSS JOIN unnest('{{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}}'::text[]) AS r
         WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p')
            AND has_table_privilege('{role}', c.oid, r)
         UNION
         SELECT c.relname || ' ' || r FROM pg_class c CROSS JOIN unnest('{{SELECT,USAGE,UPDATE}}'::text[]) AS r
         WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'S' AND has_sequence_privilege('{role}', c.oid, r)
         ORDER BY 1"
    ))
}

/// Those of these names that there are in the schema.
fn named(schema: &str, lists: &[&str]) -> Vec<String> {
    let there = format!(
        "SELECT proname FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
         UNION SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"
    );
    let there = column(&there);
    let mut names: Vec<String> = lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .map(str::to_owned)
        .filter(|name| there.contains(name))
        .collect();
    names.sort();
    names
}

#[test]
fn every_role_may_do_what_is_its_own_and_nothing_else() {
    let (schema, other) = (migrated(), migrated());
    // Its roles have no schema in their names.
    block_on(open("fencehold").migrate(&call())).unwrap();
    let admin = crate::cluster().admin();
    admin.run(&format!("CREATE ROLE stranger_of_{schema}"));
    let role = |rank: &str| format!("fencehold_{schema}_{rank}");
    assert_eq!(rights(&format!("stranger_of_{schema}"), &schema), [""; 0]);
    assert_eq!(rights(&role("reader"), &schema), named(&schema, &[READER]));
    assert_eq!(rights(&role("worker"), &schema), named(&schema, &[READER, WORKER]));
    assert_eq!(rights(&role("admin"), &schema), named(&schema, &[READER, WORKER, ADMIN]));
    for rank in ["reader", "worker", "admin"] {
        assert_eq!(rights(&role(rank), &other), [""; 0], "one grant opens one store");
        let of_another = format!("fencehold_{rank}");
        assert_eq!(rights(&of_another, &schema), [""; 0], "nor do those of another schema");
        let may_add = format!("SELECT has_schema_privilege('{}', '{schema}', 'CREATE')", role(rank));
        assert_eq!(admin.value(&may_add), "f");
    }
}

/// What runs with the rights of the owner finds nothing that its caller has put in its way.
#[test]
fn every_function_that_runs_as_the_owner_has_a_search_path_of_its_own() {
    let schema = migrated();
    let loose = format!(
        "SELECT string_agg(p.oid::regprocedure::text, ' ') FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace
            AND p.prosecdef AND NOT coalesce(p.proconfig @> ARRAY['search_path={schema}, pg_temp'], false)"
    );
    assert_eq!(crate::cluster().admin().value(&loose), "");
}

#[test]
fn roles_that_were_made_after_the_schema_get_their_rights_from_a_migration() {
    let schema = migrated();
    let admin = crate::cluster().admin();
    // As a dump leaves it that was restored without roles.
    let worker = format!("fencehold_{schema}_worker");
    admin.run(&format!("DROP OWNED BY {worker}; DROP ROLE {worker}"));
    admin.run(&format!("CREATE ROLE {worker} NOLOGIN; CREATE ROLE user_of_{schema} LOGIN IN ROLE {worker}"));
    let user = || open_as(&format!("user_of_{schema}"), &schema);
    let why = unusable(block_on(user().status(&call())));
    for said in [worker.as_str(), "if it has that role", "store migrate"] {
        assert!(why.contains(said), "{why}");
    }
    assert_eq!(block_on(open(&schema).migrate(&call())).unwrap().len(), 0);
    assert_eq!(rights(&worker, &schema), named(&schema, &[READER, WORKER]));
    block_on(user().status(&call())).unwrap();
    assert_eq!(block_on(user().migrate(&call())).unwrap().len(), 0, "a worker finds nothing to do");
}

/// A grant that the owner made by hand is the owner's.
#[test]
fn a_grant_to_another_role_outlives_a_migration() {
    let schema = old_schema();
    let admin = crate::cluster().admin();
    admin.run(&format!(
        "CREATE ROLE shop_of_{schema}; GRANT USAGE ON SCHEMA {schema} TO shop_of_{schema};
         GRANT EXECUTE ON FUNCTION {schema}.enqueue TO shop_of_{schema}"
    ));
    block_on(open(&schema).migrate(&call())).unwrap();
    assert_eq!(rights(&format!("shop_of_{schema}"), &schema), ["enqueue_job"]);
    admin.run(&format!("SELECT {schema}.enqueue_job('q', 'k', '{{}}', priority => 5)"));
}

#[test]
fn a_worker_cannot_keep_the_leases_of_others_from_expiring() {
    let (test_store, calls, [worker]) = with_sessions();
    worker.value("SET ROLE fencehold_worker");
    worker.value(&calls.acquire("k", 1, "me"));
    let expired = (0..100).any(|_| {
        worker.value("SELECT fencehold.lease_suspend(9007199254740991)");
        test_store.admin("UPDATE fencehold.test_clock SET at_ms = at_ms + 20000");
        worker.value("SELECT fencehold.lease_sweep(10)");
        test_store.value("SELECT count(*) FROM fencehold.lease_hold") == "0"
    });
    assert!(expired, "a lease of 30 s is held after 2000 s");
}

#[test]
fn a_reader_looks_sweeps_nothing_and_adds_no_row() {
    let schema = migrated();
    let admin = crate::cluster().admin();
    admin.run(&format!("CREATE ROLE reader_of_{schema} LOGIN IN ROLE fencehold_{schema}_reader"));
    let reader = open_as(&format!("reader_of_{schema}"), &schema);
    let id = admin
        .value(&format!("SELECT {schema}.enqueue_job('q', 'k', '{{}}')"))
        .parse()
        .unwrap();
    let jobs = reader.jobs().unwrap();
    assert!(block_on(jobs.get_job(&call(), id)).unwrap().is_some());
    let waited = block_on(jobs.wait_for_job(&call(), WaitRequest { id, wait_ms: 1 })).unwrap();
    assert!(waited.is_some(), "it learns that the job is not over");
    assert_eq!(admin.value(&format!("SELECT count(*) FROM {schema}.job_awaited")), "0");
    // It may look at a lease, and is refused the rest.
    open(&schema).take(lease_request("k", 1, "A"));
    let seen = block_on(reader.get(&call(), key("k"))).unwrap().unwrap();
    assert_eq!(seen.holder.unwrap().owner.as_str(), "A");
    block_on(reader.status(&call())).unwrap();
    let why = unusable(block_on(reader.acquire(&call(), lease_request("k", 2, "A"))));
    assert!(why.contains(&format!("fencehold_{schema}_worker")), "{why}");
}

#[test]
fn every_table_can_be_published() {
    let schema = migrated();
    let without = format!(
        "SELECT string_agg(c.relname, ' ') FROM pg_class c WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'
            AND NOT (c.relreplident = 'f' OR c.relreplident = 'd' AND EXISTS (
                SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))"
    );
    let without = crate::cluster().admin().value(&without);
    assert_eq!(without, "", "no row of these can be deleted while they are published");
}

/// The status of the store says what keeps retention from its work.
#[test]
fn maintenance_that_fails_is_seen_in_the_status_until_it_works_again() {
    let schema = migrated();
    let admin = crate::cluster().admin();
    admin.run(&format!("ALTER TABLE {schema}.job_dropped RENAME TO gone"));
    let store = open(&schema);
    block_on(store.jobs().unwrap().list_queues(&call())).unwrap();
    let maintenance = || block_on(store.status(&call())).unwrap().maintenance_errors;
    until("it is shown", || {
        let shown = |line: &String| line.starts_with("retention: failed") && line.contains("job_dropped");
        maintenance().iter().any(shown)
    });
    admin.run(&format!("ALTER TABLE {schema}.gone RENAME TO job_dropped"));
    until("it is shown no more", || maintenance().is_empty());
}

#[test]
fn the_status_knows_of_the_events_of_jobs() {
    let schema = migrated();
    crate::cluster()
        .admin()
        .run(&format!("SELECT {schema}.enqueue_job('q', 'k', '{{}}')"));
    assert_eq!(block_on(open(&schema).status(&call())).unwrap().newest_event_seq, 1);
}

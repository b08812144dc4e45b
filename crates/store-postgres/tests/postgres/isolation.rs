//! What locks and then looks must see what the session that it waited for has done: that is so under READ COMMITTED alone.

use fencehold_contract::{LeaseStore as _, StoreError};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim, complete, first, run};
use crate::job_transactions::{call, meanwhile, request};
use crate::session::Calls;

#[test]
fn a_handle_sees_what_it_waited_for_whatever_isolation_a_database_has_by_default() {
    for level in ["repeatable read", "serializable"] {
        let fixture = JobRaceFixture::new();
        let operator = fixture.session();
        fixture.watch.run(&format!(
            "ALTER DATABASE {} SET default_transaction_isolation = '{level}'",
            fixture.test_store.database.name
        ));
        let store = fixture.test_store.store();
        run(&operator, "SELECT namespace_note_ttl('default', 30000)");
        run(&operator, "BEGIN");
        run(&operator, "SELECT * FROM lease_advance(1000, 'P', 60000)");
        let told = meanwhile(
            &operator,
            || block_on(store.jobs().unwrap().claim(&call(), request(A))),
            || drop(run(&operator, "COMMIT")),
        );
        assert!(
            matches!(&told, Err(StoreError::Unavailable { message: why }) if why.contains("advance")),
            "{told:?}"
        );
        assert_eq!(fixture.state(), "0", "the job was not touched");
    }
}

#[test]
fn a_database_that_is_not_read_committed_by_default_is_migrated_by_many_at_once() {
    let admin = crate::cluster().admin();
    let database = crate::cluster::fresh_schema();
    admin.run(&format!("CREATE DATABASE {database}"));
    admin.run(&format!("ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let url = crate::cluster().url_in(&database, "fencehold");
                let clock = std::sync::Arc::new(fencehold_contract::clock::SystemClock);
                let store = fencehold_store_postgres::PostgresStore::open(&url, clock).unwrap();
                block_on(store.status(&call())).unwrap();
                block_on(store.close());
            });
        }
    });
    admin.run(&format!("DROP DATABASE {database} WITH (FORCE)"));
}

/// What users call: a lease's fence and marks find out that something has changed, and fail; what is about jobs goes by more than one row,
/// and says what it needs.
#[test]
fn what_users_call_about_jobs_in_another_isolation_level_is_refused() {
    let fixture = JobRaceFixture::new();
    let (user, other) = (fixture.session(), fixture.session());
    let calls = Calls(fixture.test_store.schema);
    run(&other, &claim(A));
    other.value(&calls.acquire("k", 1, "A"));
    for call in [
        format!("SELECT fence_job('{JOB}', 1)"),
        complete(A, 1),
        format!("SELECT record_effect('{JOB}', '{}', 1, 'charge', '7')", A.0),
    ] {
        run(&user, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        let said = first(user.run(&call)).unwrap_err();
        assert!(said.starts_with("0A000 ") && said.contains("READ COMMITTED"), "{said}");
        run(&user, "ROLLBACK");
    }
    let checks = [
        (calls.revoke("k"), calls.fence("k", 1)),
        ("SELECT raise_mark('r', 2)".to_owned(), "SELECT fence_resource('r', 1)".to_owned()),
    ];
    for (change, check) in checks {
        run(&user, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        // From here on it sees nothing that others do.
        run(&user, "SELECT count(*) FROM lease_key");
        run(&other, &change);
        let said = user.run(&check);
        assert_eq!(said.unwrap_err().0, "40001", "{change}");
        run(&user, "ROLLBACK");
    }
}

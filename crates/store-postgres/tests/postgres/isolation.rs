//! What locks and then looks must see what the session that it waited for has done: that is so under READ COMMITTED alone.

use fencehold_contract::LeaseStore as _;
use fencehold_test_servers::calls::{call, unavailable};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim, complete};
use crate::job_transactions::{meanwhile, request};
use crate::open_url;
use crate::session::Calls;

#[test]
fn a_handle_sees_what_it_waited_for_whatever_isolation_a_database_has_by_default() {
    for level in ["repeatable read", "serializable"] {
        let (fixture, [operator]) = JobRaceFixture::with_sessions();
        let database = &fixture.test_store.database.name;
        fixture
            .watch
            .run(&format!("ALTER DATABASE {database} SET default_transaction_isolation = '{level}'"));
        let store = fixture.test_store.store();
        operator.value("SELECT namespace_note_ttl('default', 30000)");
        operator.value("BEGIN");
        operator.value("SELECT * FROM lease_advance(1000, 'P', 60000)");
        let told = meanwhile(
            &operator,
            || block_on(store.jobs().unwrap().claim(&call(), request(A))),
            || drop(operator.value("COMMIT")),
        );
        let why = unavailable(told);
        assert!(why.contains("advance"), "{why}");
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
                let store = open_url(&crate::cluster().url_in(&database, "fencehold"));
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
    let (fixture, [user, other]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    other.value(&claim(A));
    other.value(&calls.acquire("k", 1, "A"));
    for call in [
        format!("SELECT fence_job('{JOB}', 1)"),
        complete(A, 1),
        format!("SELECT record_effect('{JOB}', '{}', 1, 'charge', '7')", A.0),
    ] {
        user.value("BEGIN ISOLATION LEVEL REPEATABLE READ");
        let (code, said) = user.refusal(&call);
        assert!(code == "0A000" && said.contains("READ COMMITTED"), "{code} {said}");
        user.value("ROLLBACK");
    }
    let checks = [
        (calls.revoke("k"), calls.fence("k", 1)),
        ("SELECT raise_mark('r', 2)".to_owned(), "SELECT fence_resource('r', 1)".to_owned()),
    ];
    for (change, check) in checks {
        user.value("BEGIN ISOLATION LEVEL REPEATABLE READ");
        // From here on it sees nothing that others do.
        user.value("SELECT count(*) FROM lease_key");
        other.value(&change);
        assert_eq!(user.refusal(&check).0, "40001", "{change}");
        user.value("ROLLBACK");
    }
}

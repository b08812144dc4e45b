//! Who asks about leases alone does not pay for jobs: an owner reads them when something needs them.

use fencehold_contract::{
    CallContext, JobStore as _, LeaseStore as _, ListEventsRequest, ListLeasesRequest, StoreError,
};
use fencehold_core::Namespace;
use fencehold_core::job::JobId;
use fencehold_store_file::FileStore;
use fencehold_test_servers::calls::{new_job, revoke_key};

use crate::support::{Fixture, block_on, call, owner, release, renew, take, view};

const JOBS: u8 = 5;
const LOAD_WITHIN_MS: u64 = 30_000;
const TABLES: &str =
    "queues jobs job_live job_terms job_finished job_notes effects uniques schedules job_aside";

/// A directory with jobs in it that no process serves.
fn with_jobs() -> Fixture {
    let fixture = Fixture::new();
    let job = |nth| new_job(JobId::from_bytes([nth; 16]), "q", "{}");
    let answers = block_on(fixture.open().enqueue(&call(), (1..=JOBS).map(job).collect())).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    fixture
}

fn rename_tables(fixture: &Fixture, name: impl Fn(&str) -> (String, String)) {
    for table in TABLES.split(' ') {
        let (from, to) = name(table);
        fixture.tamper(&format!("ALTER TABLE {from} RENAME TO {to}"));
    }
}

/// Everything that can be asked about leases, with two hold ids of its own.
fn ask_about_leases(store: &FileStore, nth: u8) {
    block_on(store.ping(&call())).unwrap();
    let token = take(store, "k", nth);
    renew(store, "k", nth, token);
    assert!(view(store, "k").holder.is_some());
    release(store, "k", nth, token);
    block_on(store.list(&call(), ListLeasesRequest { limit: 10, ..ListLeasesRequest::default() })).unwrap();
    take(store, "k", nth + 1);
    block_on(store.revoke(&call(), revoke_key("k"))).unwrap();
}

fn set_aside(fixture: &Fixture) -> u8 {
    let connection = rusqlite::Connection::open(fixture.database()).unwrap();
    connection
        .query_row("SELECT count(*) FROM job_aside", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn questions_about_leases_read_no_row_of_a_job() {
    let fixture = with_jobs();
    // Without the tables, reading a row of them fails.
    rename_tables(&fixture, |table| (table.to_owned(), format!("away_{table}")));
    let store = fixture.open();
    ask_about_leases(&store, 1);
    let refused = block_on(store.list_queues(&call())).map(drop).unwrap_err();
    assert!(refused.to_string().contains("no such table"), "{refused}");
    // What is wrong with jobs does not end the service of leases.
    ask_about_leases(&store, 3);
    drop(store);

    rename_tables(&fixture, |table| (format!("away_{table}"), table.to_owned()));
    let store = fixture.open();
    ask_about_leases(&store, 5);
    let queues = block_on(store.list_queues(&call())).unwrap();
    assert_eq!(queues.queues[0].job_counts.queued, u64::from(JOBS), "{queues:?}");
    assert_eq!(block_on(store.status(&call())).unwrap().job_count, u64::from(JOBS));
}

/// Rows that cannot be read are set aside as they are read: so it shows when that is.
#[test]
fn jobs_are_read_before_the_first_question_that_needs_them_is_answered() {
    type Question = fn(&FileStore) -> Result<(), StoreError>;
    let questions: [(&str, Question); 4] = [
        ("status", |store| block_on(store.status(&call())).map(drop)),
        ("events", |store| {
            let request = ListEventsRequest { limit: 10, ..ListEventsRequest::default() };
            block_on(store.list_events(&call(), request)).map(drop)
        }),
        ("queues", |store| block_on(store.list_queues(&call())).map(drop)),
        ("advance", |store| block_on(store.advance(&call(), owner("op"), 1)).map(drop)),
    ];
    for (name, question) in questions {
        let fixture = with_jobs();
        fixture.tamper("UPDATE job_live SET record = x'00'");
        let store = fixture.open();
        ask_about_leases(&store, 7);
        assert_eq!(set_aside(&fixture), 0, "{name}");
        question(&store).unwrap();
        assert_eq!(set_aside(&fixture), JOBS, "{name}");
        assert_eq!(block_on(store.status(&call())).unwrap().unreadable_row_count, u64::from(JOBS), "{name}");
    }
}

#[test]
fn an_owner_that_stays_reads_jobs_that_no_one_asks_about() {
    let fixture = with_jobs();
    fixture.tamper("UPDATE job_live SET record = x'00'");
    let store = fixture.open();
    take(&store, "k", 1);
    fixture.clock.advance_ms(LOAD_WITHIN_MS - 1);
    // Its answer comes after the sweep of the same step.
    take(&store, "l", 1);
    assert_eq!(set_aside(&fixture), 0);
    fixture.clock.advance_ms(1);
    take(&store, "m", 1);
    assert_eq!(set_aside(&fixture), JOBS);
}

/// The tokens of jobs, their ids and the numbers of events go on, whichever owner read them.
#[test]
fn counters_go_on_over_owners_that_read_no_jobs() {
    let fixture = with_jobs();
    let other = CallContext::new(Namespace::new("other").unwrap());
    let last_event = |store: &FileStore| block_on(store.status(&call())).unwrap().newest_event_seq;
    let before = last_event(&fixture.open());
    for nth in 1..=3 {
        let store = fixture.open();
        let token = take(&store, "k", nth);
        assert_eq!(token.get(), u64::from(nth));
        release(&store, "k", nth, token);
    }
    let store = fixture.open();
    assert_eq!(last_event(&store), before + 6, "a grant and a release each");
    let job = new_job(JobId::from_bytes([99; 16]), "q", "{}");
    let answers = block_on(store.enqueue(&other, vec![job])).unwrap();
    assert!(answers[0].is_ok(), "{answers:?}");
    assert_eq!(block_on(store.status(&call())).unwrap().job_count, u64::from(JOBS) + 1);
}

//! What earlier programs said to the database is said again to the schema of this one: each statement is prepared and run.
//!
//! A *recording* is a file in `recorded/`, named after the version of the schema that its program knew: a line for each statement, with the
//! number of its session, its text and its parameters, apart by tabs. `FENCEHOLD_RECORD_STATEMENTS=1` has the first test here write
//! the one of this program; after that it is never changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fencehold_contract::job::{JobStore as _, NewJob, Report};
use fencehold_contract::{LeaseStore as _, ListEventsRequest};
use fencehold_core::job::{JobId, JobState};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{
    OneByOne as _, call, claim_request, key, lease_request, new_job, unique,
};
use fencehold_test_store::block_on;

use crate::cluster::{Admin, Durable, PostgresServer};
use crate::{migrated, open, open_url};

/// The schema of the oldest program that is understood. Schema 30 gave functions their public names, before the first release; what programs
/// before it say is refused, and their recordings are gone.
const OLDEST: &str = "0030";
/// As it is recorded.
const SCHEMA: &str = "fencehold";
/// What stands before each entry of the server's log: no statement has it.
const MARK: &str = "@@entry ";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/recorded")
}

/// The job of every recording.
fn job_id() -> JobId {
    JobId::from_random(1_800_000_000_000, [7; 10])
}

/// The usual life of leases and jobs, as a program leads it.
fn usual_life(store: &PostgresStore) {
    let lease = store.take(lease_request("k", 1, "A"));
    store.renew_one(&lease).unwrap();
    block_on(store.get(&call(), key("k"))).unwrap();
    let new = new_job(job_id(), "q", "{\"n\":1}");
    store.enqueue_one(NewJob { unique: unique("once", 60_000), ..new }).unwrap();
    let attempt = store.claim_one(claim_request("q", 2, "A"));
    store.renew_attempt(&attempt).unwrap();
    store
        .report_one(&attempt, Report::Complete { result: Some("{\"sent\":true}".into()) })
        .unwrap();
    block_on(store.list_queues(&call())).unwrap();
    store.release_one(&lease).unwrap();
    let events = ListEventsRequest { limit: 10, ..ListEventsRequest::default() };
    block_on(store.list_events(&call(), events)).unwrap();
}

/// What a program says in its usual life, from the log of the server.
fn record() -> String {
    let mut place = PathBuf::new();
    let cluster = PostgresServer::start_with(Durable::No, |directory| {
        directory.clone_into(&mut place);
        vec![format!("log_line_prefix={MARK}%p ")]
    });
    let open = || open_url(&cluster.url(SCHEMA));
    assert!(!block_on(open().migrate(&call())).unwrap().is_empty());
    cluster.admin().run("ALTER SYSTEM SET log_statement = 'all'");
    cluster.admin().run("SELECT pg_reload_conf()");
    while cluster.admin().value("SHOW log_statement") != "all" {}
    usual_life(&open());
    recorded(&std::fs::read_to_string(place.join("log")).unwrap())
}

fn recorded(log: &str) -> String {
    let mut sessions = BTreeMap::new();
    let mut lines: Vec<[String; 3]> = Vec::new();
    for entry in log.split(MARK).skip(1) {
        let Some((pid, said)) = entry.trim_end().split_once(' ') else { continue };
        // A statement of several lines goes on behind a tab.
        let said = said.replace(['\n', '\t'], " ");
        if let Some(parameters) = said
            .strip_prefix("DETAIL:  parameters: ")
            .or(said.strip_prefix("DETAIL:  Parameters: "))
        {
            if let Some(last) = lines.last_mut() {
                parameters.clone_into(&mut last[2]);
            }
            continue;
        }
        let said = said.strip_prefix("LOG:  ").unwrap_or_default();
        let sql = said.strip_prefix("statement: ").or_else(|| {
            said.strip_prefix("execute ")
                .and_then(|rest| rest.split_once(": "))
                .map(|(_, sql)| sql)
        });
        // What the test itself says is not recorded.
        if let Some(sql) = sql.filter(|sql| !sql.contains("log_statement")) {
            let next = sessions.len() + 1;
            let session = *sessions.entry(pid.to_owned()).or_insert(next);
            lines.push([session.to_string(), sql.to_owned(), String::new()]);
        }
    }
    lines.iter().map(|line| line.join("\t") + "\n").collect()
}

/// Says everything again, on a schema of this program. The statement that fails is named.
fn replay(recording: &str) -> Result<JobState, String> {
    let schema = migrated();
    let mut sessions: BTreeMap<&str, Admin> = BTreeMap::new();
    for (nth, line) in recording.lines().enumerate() {
        let [session, sql, parameters] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else {
            return Err(format!("line {} is not a statement: {line}", nth + 1));
        };
        let sql = sql.replace(&format!("\"{SCHEMA}\""), &format!("\"{schema}\""));
        let parameters = parameters.replace(&format!("'{SCHEMA}'"), &format!("'{schema}'"));
        let parameters = parameters.replace(&format!("'\"{SCHEMA}\"'"), &format!("'\"{schema}\"'"));
        let values = values(&parameters);
        let all = if values.is_empty() {
            sql.clone()
        } else {
            format!("PREPARE recorded AS {sql}; EXECUTE recorded({}); DEALLOCATE recorded", values.join(", "))
        };
        let session = sessions.entry(session).or_insert_with(|| crate::cluster().admin());
        session.try_run(&all).map_err(|error| {
            let said = error
                .as_db_error()
                .map_or_else(|| error.to_string(), |said| said.message().to_owned());
            format!("line {}: {said}: {sql}", nth + 1)
        })?;
    }
    let job = block_on(open(&schema).get_job(&call(), job_id())).unwrap();
    job.map(|job| job.job.state).ok_or_else(|| "its job is not there".to_owned())
}

/// `$1 = 'x', $2 = NULL` as a list.
fn values(parameters: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut rest = parameters;
    while let Some((_, value)) = rest.split_once(" = ") {
        let mut in_text = false;
        let end = value
            .find(|c| {
                in_text ^= c == '\'';
                c == ',' && !in_text
            })
            .unwrap_or(value.len());
        values.push(value[..end].to_owned());
        rest = &value[end..];
    }
    values
}

#[test]
fn what_this_program_says_can_be_recorded_and_said_again() {
    let recording = record();
    for statement in ["lease_acquire", "lease_renew", "job_"] {
        assert!(recording.contains(statement), "{statement} is not in what was recorded:\n{recording}");
    }
    if std::env::var_os("FENCEHOLD_RECORD_STATEMENTS").is_some() {
        let known = block_on(open("none").schema_version(&call())).unwrap().known;
        std::fs::write(folder().join(format!("{known:04}.tsv")), &recording).unwrap();
    }
    assert_eq!(replay(&recording), Ok(JobState::Completed), "{recording}");
}

/// A program of an earlier version goes on after a migration: all that it says is understood, and its job is completed.
#[test]
fn what_earlier_programs_say_is_understood_by_the_schema_of_this_one() {
    let mut files: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let oldest = files.first().and_then(|file| file.file_stem()).expect("there is no recording");
    assert_eq!(oldest, OLDEST, "every recording since then is kept, and run");
    for file in files {
        let recording = std::fs::read_to_string(&file).unwrap();
        assert_eq!(replay(&recording), Ok(JobState::Completed), "{}", file.display());
    }
}

#[test]
fn a_statement_that_is_no_longer_understood_is_named() {
    let said = replay("1\tSELECT \"fencehold\".gone($1)\t$1 = 'a, ''b'''\n").unwrap_err();
    assert!(said.contains("line 1") && said.contains("gone"), "{said}");
    assert_eq!(values("$1 = 'a, ''b''', $2 = NULL"), ["'a, ''b'''", "NULL"]);
}

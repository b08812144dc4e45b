//! What a directory may contain: torn, foreign, newer or damaged files.

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, ClaimJobsRequest, ClaimedJob, JobFilter, LedgerEntry, ListEffectsRequest,
    ListJobsRequest, NewJob, Report,
};
use fencehold_contract::{CallContext, JobStore, KeepFinished, LeaseStore, ListEventsRequest, StoreError};
use fencehold_core::EventData;
use fencehold_core::job::{EffectName, JobId, JobState};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::limits::{FINISHED_KEPT_MS_MAX, TTL_MS_MAX};
use fencehold_store_file::{FileOptions, FileStore, backup, check, restore};
use fencehold_test_servers::calls::{OneByOne as _, claim_request, hold_id, new_job, schedule_spec, unique};

use crate::support::{
    Fixture, TTL_MS, acquire, block_on, call, hold, key, owner, release, remaining_ms, renew, take, view,
};

/// The error of a directory that cannot be a store, and a proof that nothing in it was touched.
fn refused(fixture: &Fixture, content: &[u8]) -> String {
    std::fs::write(fixture.database(), content).unwrap();
    let error = fixture.try_open().err().map_or_else(
        || panic!("a store was opened on {:?}", String::from_utf8_lossy(content)),
        |error| error.to_string(),
    );
    assert_eq!(std::fs::read(fixture.database()).unwrap(), content);
    assert_eq!(std::fs::read_dir(fixture.path()).unwrap().count(), 1);
    error
}

#[test]
fn somebody_elses_file_is_left_untouched() {
    assert!(refused(&Fixture::new(), b"my diary").contains("too short for a database"));
    assert!(refused(&Fixture::new(), &[7; 4096]).contains("not a Fencehold database"));
}

#[test]
fn somebody_elses_database_is_left_untouched() {
    let fixture = Fixture::new();
    fixture.tamper("CREATE TABLE diary (page TEXT); INSERT INTO diary VALUES ('dear')");
    let theirs = std::fs::read(fixture.database()).unwrap();
    assert!(refused(&fixture, &theirs).contains("a foreign database"));
}

#[test]
fn a_newer_schema_is_refused_and_named() {
    let fixture = Fixture::new();
    take(&fixture.open(), "k", 1);
    fixture.tamper("PRAGMA journal_mode = DELETE; PRAGMA user_version = 99");
    let content = std::fs::read(fixture.database()).unwrap();
    for entry in std::fs::read_dir(fixture.path()).unwrap().flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
    assert!(refused(&fixture, &content).contains("schema is version 99"));
}

#[test]
fn a_database_that_was_lost_is_not_begun_anew() {
    let (fixture, store) = Fixture::opened();
    let token = take(&store, "k", 1);
    let copy = fixture.path().join("copy");
    drop(store);
    backup(fixture.path(), &copy).unwrap();
    let refused = || {
        let error = fixture.try_open().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("a store was kept here"), "{error}");
    };
    std::fs::remove_file(fixture.database()).unwrap();
    refused();
    assert!(!fixture.database().exists());
    std::fs::write(fixture.database(), b"").unwrap();
    refused();
    assert_eq!(std::fs::read(fixture.database()).unwrap(), b"");
    let saved = fixture.path().join("saved");
    assert!(check(fixture.path()).is_err() && backup(fixture.path(), &saved).is_err() && !saved.exists());
    restore(&copy, fixture.path()).unwrap();
    assert_eq!(view(&fixture.open(), "k").token, token);
}

#[test]
fn a_backup_takes_no_place_that_somebody_serves() {
    let (fixture, store) = Fixture::opened();
    take(&store, "k", 1);
    let copy = fixture.path().join("copy");
    backup(fixture.path(), &copy).unwrap();
    // Who serves goes on in a file that has lost its name.
    for beside in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(fixture.path().join(format!("fencehold.db{beside}")));
    }
    let error = restore(&copy, fixture.path()).unwrap_err().to_string();
    assert!(error.contains("still serves it"), "{error}");
    drop(store);
    restore(&copy, fixture.path()).unwrap();
}

/// The owner has the files open, and would go on granting what the next owner does not find.
#[test]
fn nobody_is_told_of_what_is_written_into_a_file_that_was_removed() {
    for directory in [false, true] {
        let (fixture, elsewhere) = (Fixture::new(), Fixture::new());
        let store = fixture.open();
        let token = take(&store, "k", 1);
        let copy = elsewhere.path().join("copy");
        backup(fixture.path(), &copy).unwrap();
        if directory {
            std::fs::remove_dir_all(fixture.path()).unwrap();
        } else {
            for beside in ["", "-wal", "-shm"] {
                std::fs::remove_file(fixture.path().join(format!("fencehold.db{beside}"))).unwrap();
            }
        }
        let renewed = block_on(store.renew(&call(), vec![hold("k", 1, token)])).map(drop);
        for answer in [renewed, acquire(&store, "other", 2).map(drop)] {
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("fencehold store restore"), "{error}");
        }
        restore(&copy, fixture.path()).unwrap();
        // It goes on with what was put back, unless it has to look elsewhere for it.
        let store = if directory {
            let error = acquire(&store, "other", 2).unwrap_err().to_string();
            assert!(error.contains("start this process again"), "{error}");
            fixture.open()
        } else {
            store
        };
        assert_eq!(view(&store, "k").token, token);
    }
}

/// To SQLite any log beside a database belongs to it.
#[test]
fn the_log_of_a_database_that_was_replaced_is_not_played_into_the_other_one() {
    let (fixture, elsewhere) = (Fixture::new(), Fixture::new());
    let store = fixture.open();
    let first = take(&store, "k", 1);
    let copy = elsewhere.path().join("copy");
    backup(fixture.path(), &copy).unwrap();
    for nth in 0..200 {
        take(&store, &format!("late/{nth}"), 2);
    }
    std::fs::rename(&copy, fixture.database()).unwrap();
    assert_eq!(view(&store, "k").token, first);
    assert!(
        block_on(store.get(&call(), key("late/7"))).unwrap().is_none(),
        "it goes on with what was put there"
    );
    drop(store);
    assert_eq!(check(fixture.path()).unwrap().problems, Vec::<String>::new());
    assert_eq!(view(&fixture.open(), "k").token, first);
    assert!(fixture.path().join("fencehold.db-wal.replaced").exists(), "nothing was thrown away");
}

#[test]
fn a_log_that_was_removed_under_its_owner_takes_nothing_with_it() {
    let (fixture, store) = Fixture::opened();
    let first = take(&store, "k", 1);
    std::fs::remove_file(fixture.path().join("fencehold.db-wal")).unwrap();
    let second = take(&store, "other", 2);
    let copy = fixture.copied(&["fencehold.db", "fencehold.db-wal"]);
    let store = copy.open();
    assert_eq!([view(&store, "k").token, view(&store, "other").token], [first, second]);
}

/// It is nowhere else: a reader is waited for.
#[test]
fn a_log_that_was_removed_is_saved_although_somebody_reads() {
    let (fixture, store) = Fixture::opened();
    take(&store, "early", 1);
    let reader = rusqlite::Connection::open(fixture.database()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM meta").unwrap();
    let first = take(&store, "k", 1);
    std::fs::remove_file(fixture.path().join("fencehold.db-wal")).unwrap();
    fixture.set_gate("checkpoint.closed");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| take(&store, "other", 2));
        fixture.await_gate("checkpoint");
        std::fs::remove_file(fixture.path().join("gates/checkpoint.reached")).unwrap();
        // It tries in vain, and again.
        fixture.lift_gate("checkpoint.closed");
        fixture.await_passed("checkpoint");
        fixture.set_gate("checkpoint.closed");
        fixture.await_gate("checkpoint");
        drop(reader);
        fixture.lift_gate("checkpoint.closed");
        let second = second.join().unwrap();
        assert_eq!([view(&store, "k").token, view(&store, "other").token], [first, second]);
    });
}

#[test]
fn a_torn_database_gives_an_error_and_loses_nothing() {
    let (fixture, store) = Fixture::opened();
    for nth in 0..100 {
        take(&store, &format!("key-{nth}"), 1);
    }
    drop(store);
    let whole = std::fs::read(fixture.database()).unwrap();
    let torn = &whole[..whole.len() / 2];
    std::fs::write(fixture.database(), torn).unwrap();
    let error = fixture.try_open().and_then(|store| acquire(&store, "k", 1)).unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    assert_eq!(std::fs::read(fixture.database()).unwrap(), torn);
}

#[test]
fn a_torn_tail_of_the_log_takes_nothing_that_was_acknowledged() {
    let (fixture, store) = Fixture::opened();
    let token = take(&store, "k", 1);
    // As it lies on disk when the power is cut in the middle of the next batch.
    let copy = fixture.copied(&["fencehold.db", "fencehold.db-wal"]);
    let log = copy.path().join("fencehold.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    let half_a_frame = bytes[bytes.len() - 4120..bytes.len() - 2000].to_vec();
    bytes.extend(half_a_frame);
    std::fs::write(&log, bytes).unwrap();
    let store = copy.open();
    assert_eq!(view(&store, "k").token, token);
    copy.clock.advance_ms(2 * TTL_MS);
    assert!(take(&store, "k", 2) > token, "no token is issued twice");
}

#[test]
fn a_log_without_its_database_is_left_untouched() {
    let (fixture, store) = Fixture::opened();
    take(&store, "k", 1);
    let copy = fixture.copied(&["fencehold.db-wal"]);
    let log = copy.path().join("fencehold.db-wal");
    let whole = std::fs::read(&log).unwrap();
    let refused = || {
        let error = copy.try_open().and_then(|store| acquire(&store, "k", 2)).unwrap_err();
        assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
        assert_eq!(std::fs::read(&log).unwrap(), whole);
    };
    refused();
    std::fs::write(copy.database(), "").unwrap();
    refused();
}

#[test]
fn one_row_that_cannot_be_read_is_set_aside_and_the_rest_is_served() {
    let (fixture, store) = Fixture::opened();
    let (good, bad) = (take(&store, "good", 1), take(&store, "bad", 2));
    // Renewed since it was taken: its holder believes in it for longer than its row says.
    fixture.clock.advance_ms(TTL_MS - 1);
    renew(&store, "good", 1, good);
    renew(&store, "bad", 2, bad);
    drop(store);
    fixture.clock.advance_ms(TTL_MS - 1);
    fixture.tamper("UPDATE leases SET record = x'01ffffffffff' WHERE key = 'bad'");
    assert_eq!(check(fixture.path()).unwrap().problems.len(), 1);

    let store = fixture.open();
    assert_eq!(renew(&store, "good", 1, good), TTL_MS);
    let held = acquire(&store, "bad", 3).unwrap_err().to_string();
    assert!(held.contains("unreadable"), "its holder may still be at work: {held}");
    let events = ListEventsRequest { limit: 100, ..ListEventsRequest::default() };
    let page = block_on(store.list_events(&call(), events)).unwrap();
    let told = page
        .events
        .iter()
        .any(|e| e.key == key("bad") && matches!(e.data, EventData::RowUnreadable { .. }));
    assert!(told, "{page:?}");
    fixture.clock.advance_ms(TTL_MS);
    assert!(take(&store, "bad", 3) > bad, "its tokens go on growing");
    let status = block_on(store.status(&call())).unwrap();
    assert_eq!(status.unreadable_row_count, 1);
    drop(store);
    assert_eq!(check(fixture.path()).unwrap().set_aside, 1);
    assert_eq!(view(&fixture.open(), "bad").token.get(), bad.get() + 1, "it is kept like any other again");
}

#[test]
fn a_row_without_a_readable_name_lifts_the_floor_of_everything() {
    let (fixture, store) = Fixture::opened();
    take(&store, "other", 1);
    take(&store, "lost", 2);
    drop(store);
    fixture.tamper("UPDATE leases SET key = x'00ff', counter = 'many' WHERE key = 'lost'");
    let store = fixture.open();
    assert!(take(&store, "lost", 3).get() > 1 << 32, "whatever token it had, this one is larger");
}

#[test]
fn a_row_without_a_readable_name_lifts_the_floor_above_the_rows_after_it_too() {
    let (fixture, store) = Fixture::opened();
    take(&store, "lost", 1);
    take(&store, "later", 2);
    drop(store);
    fixture.tamper(
        "UPDATE leases SET counter = 1 << 40 WHERE key = 'later';
         UPDATE leases SET key = x'00ff', counter = 'many' WHERE key = 'lost'",
    );
    assert!(take(&fixture.open(), "lost", 3).get() > (1 << 40) + (1 << 32));
}

#[test]
fn after_a_reboot_every_lease_gets_a_full_ttl_anew() {
    let (fixture, store) = Fixture::opened();
    let token = take(&store, "held", 1);
    let ended = take(&store, "ended", 2);
    release(&store, "ended", 2, ended);
    drop(store);
    fixture.clock.advance_ms(3 * TTL_MS);
    fixture.tamper("UPDATE meta SET boot = 'another'");
    let store = fixture.open();
    assert_eq!(remaining_ms(&store, "held"), TTL_MS, "whatever the other boot's clock said");
    assert_eq!(renew(&store, "held", 1, token), TTL_MS);
    let again = acquire(&store, "ended", 2).unwrap_err();
    assert!(matches!(again, StoreError::Refused { .. }), "an ended hold id stays ended: {again:?}");
    assert_eq!(take(&store, "ended", 3).get(), 2);
}

#[test]
fn a_restored_backup_gives_no_token_twice_once_it_was_advanced() {
    let (fixture, store) = Fixture::opened();
    let first = take(&store, "k", 1);
    let copy = fixture.path().join("copy.fencehold");
    backup(fixture.path(), &copy).unwrap();
    release(&store, "k", 1, first);
    let later = take(&store, "k", 2);
    let error = backup(fixture.path(), &copy).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");

    let restored = Fixture::new();
    restore(&copy, restored.path()).unwrap();
    let error = restore(&copy, restored.path()).unwrap_err().to_string();
    assert!(error.contains("left untouched"), "{error}");
    let store = restored.open();
    let alarm = store.renew_one(&hold("k", 2, later)).unwrap_err().to_string();
    assert!(alarm.contains("rewound"), "{alarm}");
    let advanced = block_on(store.advance(&call(), owner("operator"), 1_000)).unwrap();
    assert_eq!((advanced.ended_count, advanced.closed_for_ms), (1, TTL_MS));
    assert!(acquire(&store, "k", 3).unwrap_err().to_string().contains("store advance"));
    drop(store);
    let store = restored.open();
    assert!(acquire(&store, "k", 3).is_err(), "it stays closed over a restart");
    restored.clock.advance_ms(TTL_MS);
    assert!(take(&store, "k", 3) > later);
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let fixture = Fixture::new();
    take(&fixture.open(), "k", 1);
    let copy = fixture.path().join("copy.fencehold");
    backup(fixture.path(), &copy).unwrap();
    rusqlite::Connection::open(&copy)
        .unwrap()
        .execute("UPDATE leases SET record = x'00'", [])
        .unwrap();
    let target = Fixture::new();
    let error = restore(&copy, target.path()).unwrap_err().to_string();
    assert!(error.contains("unknown version 0"), "{error}");
    assert!(!target.database().exists());
    let error = check(&fixture.path().join("nothing")).unwrap_err().to_string();
    assert!(error.contains("no such file"), "{error}");
}

#[test]
fn a_stand_in_never_outlives_the_longest_ttl() {
    let (fixture, store) = Fixture::opened();
    take(&store, "k", 1);
    drop(store);
    fixture.tamper("UPDATE leases SET record = x'00', deadline_ms = 9000000000000000");
    let store = fixture.open();
    assert_eq!(remaining_ms(&store, "k"), TTL_MS_MAX);
}

/// A database of every schema that was ever released can be opened. This one was made by version 1.
#[test]
fn a_database_of_schema_1_is_read() {
    let fixture = Fixture::new();
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema-1.db");
    restore(&kept, fixture.path()).unwrap();
    let store = fixture.open();
    let daily = view(&store, "reports/daily");
    assert_eq!((daily.token.get(), daily.endings[0].outcome), (2, LeaseOutcome::Released));
    let holder = daily.holder.unwrap();
    assert_eq!((holder.owner.as_str(), holder.ttl_ms), ("host-a/2", 600_000));
    let gpu = view(&store, "gpu/3");
    assert_eq!((gpu.token.get(), gpu.holder), (2, None), "the revocation consumed a token");
    let revoked = &gpu.endings[0];
    assert_eq!(revoked.outcome, LeaseOutcome::Revoked);
    assert_eq!(revoked.reason.as_ref().unwrap().as_str(), "wrong branch");
    let status = block_on(store.status(&call())).unwrap();
    assert_eq!((status.key_count, status.held_count, status.unreadable_row_count), (3, 2, 0));
}

/// This one was made by version 2: a job that waits, one that is done with its result, and nothing said about how long
/// finished jobs are kept.
#[test]
fn a_database_of_schema_2_is_read() {
    let fixture = Fixture::new();
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema-2.db");
    restore(&kept, fixture.path()).unwrap();
    // The job that is done was done long ago.
    let options = FileOptions::default().keep_finished(KeepFinished::for_ms(FINISHED_KEPT_MS_MAX).unwrap());
    let clock = std::sync::Arc::new(fixture.clock.clone());
    let store = FileStore::open_with(fixture.path(), clock, options).unwrap();
    assert_eq!(view(&store, "reports/daily").token.get(), 1);
    let jobs = |state| {
        let filter = JobFilter { states: vec![state], ..JobFilter::default() };
        let request = ListJobsRequest { filter, limit: 10, ..ListJobsRequest::default() };
        block_on(JobStore::list_jobs(&store, &call(), request)).unwrap().jobs
    };
    assert_eq!(jobs(JobState::Queued).len(), 1);
    let done = jobs(JobState::Completed);
    let detail = block_on(store.get_job(&call(), done[0].id)).unwrap().unwrap();
    assert_eq!(detail.result.as_deref(), Some("{\"sent\":true}"));
    let status = block_on(store.status(&call())).unwrap();
    assert_eq!((status.job_count, status.unreadable_row_count), (1, 0));
}

#[test]
fn a_second_look_at_the_files_costs_the_owner_no_lock() {
    let (fixture, owner) = Fixture::opened();
    take(&owner, "k", 1);
    // Code that looks at the database in the owner's process and closes it again must not take the owner's locks along:
    // another process that comes and goes would then remove the log under the owner.
    check(fixture.path()).unwrap();
    drop(fixture.open());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(fixture.database()).unwrap());
    assert!(
        locks.lines().any(|line| line.contains(&format!(":{inode} "))),
        "no lock on the database: {locks}"
    );
    let other = rusqlite::Connection::open(fixture.database()).unwrap();
    let kept = || -> i64 { other.query_row("SELECT count(*) FROM leases", [], |row| row.get(0)).unwrap() };
    assert_eq!(kept(), 1);
    take(&owner, "later", 1);
    assert_eq!(kept(), 2, "what the owner commits is seen by everybody");
}

#[test]
fn a_store_that_was_advanced_once_is_open_after_a_reboot() {
    let (fixture, store) = Fixture::opened();
    take(&store, "k", 1);
    block_on(store.advance(&call(), owner("operator"), 10)).unwrap();
    fixture.clock.advance_ms(TTL_MS);
    take(&store, "k", 2);
    drop(store);
    fixture.tamper("UPDATE meta SET boot = 'another'");
    let store = fixture.open();
    take(&store, "other", 3);
}

#[test]
fn a_store_that_was_rewound_waits_for_leases_that_it_never_knew() {
    let (_fixture, store) = Fixture::opened();
    let token = take(&store, "k", 1);
    release(&store, "k", 1, token);
    // Nothing is held when the backup is made; something may have been granted since.
    let advanced = block_on(store.advance(&call(), owner("operator"), 10)).unwrap();
    assert_eq!(advanced.closed_for_ms, TTL_MS);
}

fn job_id(nth: u8) -> JobId {
    JobId::from_random(1_000 + u64::from(nth), [nth; 10])
}

fn job(queue: &str, nth: u8) -> NewJob {
    new_job(job_id(nth), queue, "{}")
}

fn put(store: &FileStore, job: NewJob) -> Result<(), StoreError> {
    block_on(store.enqueue(&patient(), vec![job])).map(|answers| assert!(answers[0].is_ok(), "{answers:?}"))
}

fn claim(store: &FileStore, queue: &str, nth: u8) -> Result<Option<ClaimedJob>, StoreError> {
    let request = ClaimJobsRequest { ttl_ms: 60_000, ..claim_request(queue, nth, "worker") };
    block_on(store.claim(&patient(), request)).map(|claimed| claimed.jobs.into_iter().next())
}

fn report(store: &FileStore, job: &ClaimedJob, nth: u8, word: Report) -> AttemptRef {
    let attempt = AttemptRef { job_id: job.id, hold_id: hold_id(nth), token: job.token };
    store.report_one(&attempt, word).unwrap();
    attempt
}

/// With a timeout for slow machines.
fn patient() -> CallContext {
    call().with_timeout_ms(60_000)
}

/// Jobs in two queues, in every kind of row.
fn a_store_with_jobs(fixture: &Fixture) {
    let store = fixture.open();
    let token = take(&store, "k", 1);
    renew(&store, "k", 1, token);
    put(&store, NewJob { unique: unique("u", 1_000_000), ..job("q", 1) }).unwrap();
    for nth in 2..=4 {
        put(&store, job("q", nth)).unwrap();
    }
    put(&store, job("other", 5)).unwrap();
    let done = claim(&store, "q", 1).unwrap().unwrap();
    report(&store, &done, 1, Report::Complete { result: Some("1".into()) });
    let running = claim(&store, "q", 2).unwrap().unwrap();
    let attempt = report(&store, &running, 2, Report::Checkpoint { checkpoint: vec![7] });
    let effect = EffectName::new("charge").unwrap();
    let act = LedgerEntry::Record { effect, value: "1".into(), compensation: None };
    block_on(store.write_effects(&call(), vec![AttemptLedgerEntry { attempt: attempt.clone(), entry: act }]))
        .unwrap();
    block_on(store.renew_attempts(&call(), vec![attempt])).unwrap();
    let spec = schedule_spec("nightly", "0 3 * * *", "q");
    block_on(store.set_schedule(&call(), spec)).unwrap();
}

/// A damaged row of a queue costs no job: its jobs say what its name was. The damage is reported, before and after.
#[test]
fn a_damaged_queue_costs_no_job_and_is_reported() {
    for damage in [
        "UPDATE queues SET name = x'ff' WHERE number = 0",
        "UPDATE queues SET namespace = '' WHERE number = 0",
        "UPDATE queues SET mode = 'x' WHERE number = 0",
        "UPDATE queues SET completed = 'x' WHERE number = 0",
        "UPDATE queues SET number = 4000000000 WHERE number = 0",
        "DELETE FROM queues WHERE number = 0",
        "UPDATE job_live SET queue = 77",
    ] {
        let fixture = Fixture::new();
        a_store_with_jobs(&fixture);
        fixture.tamper(damage);
        assert!(!check(fixture.path()).unwrap().problems.is_empty(), "{damage}: no damage is found");
        let store = fixture.open();
        let status = block_on(store.status(&patient())).unwrap();
        assert_eq!(status.job_count, 4, "{damage}");
        assert!(status.unreadable_row_count > 0, "{damage}: it is not reported");
        assert_eq!(claim(&store, "q", 11).unwrap().map(|job| job.id), Some(job_id(3)), "{damage}");
        assert_eq!(claim(&store, "other", 12).unwrap().map(|job| job.id), Some(job_id(5)), "{damage}");
        drop(store);
        assert!(check(fixture.path()).unwrap().set_aside > 0, "{damage}");
        let status = block_on(fixture.open().status(&patient())).unwrap();
        assert_eq!(status.job_count, 4, "{damage}: on the next start");
    }
}

/// Whatever column of whatever table holds what was never written into it: the store opens and serves, or says that it is
/// damaged; and no job is missing in silence.
#[test]
fn no_damaged_column_ends_the_engine() {
    let sound = Fixture::new();
    a_store_with_jobs(&sound);
    let values =
        ["''", "'x'", "x'00'", "x'ffffffffffffffffffffffffffffffffff'", "-1", "9223372036854775807", "1.5"];
    for (table, columns) in [
        ("queues", "number namespace name mode completed failed cancelled"),
        ("jobs", "id body"),
        ("job_live", "id queue deadline_ms record"),
        ("job_terms", "token deadline_ms"),
        ("job_finished", "queue record"),
        ("job_notes", "what bytes"),
        ("effects", "name effect"),
        ("uniques", "namespace key job payload until_wall_ms"),
        ("schedules", "namespace name spec next_wall_ms last_wall_ms"),
        ("leases", "namespace key counter deadline_ms record"),
        ("terms", "token deadline_ms"),
        ("floors", "namespace floor"),
        ("events", "event"),
    ] {
        for column in columns.split(' ') {
            for value in values {
                let fixture = Fixture::new();
                backup(sound.path(), &fixture.database()).unwrap();
                let what = format!("{table}.{column} = {value}");
                let keyed = matches!(table, "job_notes" | "effects" | "uniques" | "schedules" | "floors");
                let first = format!(" WHERE rowid = (SELECT min(rowid) FROM {table})");
                let first = if keyed { "" } else { &first };
                let connection = rusqlite::Connection::open(fixture.database()).unwrap();
                let sql = format!("UPDATE OR IGNORE {table} SET {column} = {value}{first}");
                // An integer key takes no text: then there is nothing to damage.
                if connection.execute_batch(&sql).is_err() {
                    continue;
                }
                drop(connection);
                let is_reported = check(fixture.path()).is_ok_and(|found| !found.problems.is_empty());
                use_it(&fixture, &what, is_reported);
            }
        }
    }
}

fn use_it(fixture: &Fixture, what: &str, is_reported: bool) {
    let store = match fixture.try_open() {
        Ok(store) => store,
        Err(StoreError::Unusable { .. }) => return,
        Err(other) => panic!("{what}: {other}"),
    };
    let status = match block_on(store.status(&patient())) {
        Ok(status) => status,
        Err(StoreError::Unusable { .. }) => return,
        Err(other) => panic!("{what}: {other}"),
    };
    let lost = status.job_count < 4;
    assert!(
        !lost || is_reported || status.unreadable_row_count > 0,
        "{what}: a job is missing, and nothing says so"
    );
    let answered = |answer: Result<(), StoreError>| assert!(answer.is_ok(), "{what}: {answer:?}");
    let all = ListJobsRequest { limit: 100, ..ListJobsRequest::default() };
    answered(block_on(JobStore::list_jobs(&store, &patient(), all)).map(drop));
    answered(block_on(store.list_queues(&patient())).map(drop));
    answered(block_on(store.list_schedules(&patient())).map(drop));
    let effects = ListEffectsRequest { cursor: None, limit: 100 };
    answered(block_on(store.list_effects(&patient(), effects)).map(drop));
    for nth in 1..=5 {
        answered(block_on(store.get_job(&patient(), job_id(nth))).map(drop));
    }
    put(&store, job("fresh", 9)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let fresh = claim(&store, "fresh", 21).unwrap_or_else(|error| panic!("{what}: {error}"));
    report(&store, &fresh.unwrap_or_else(|| panic!("{what}: no job")), 21, Report::Complete { result: None });
    answered(claim(&store, "q", 22).map(drop));
    answered(claim(&store, "other", 23).map(drop));
}

//! Races about one job, as interleavings of real sessions: every step of every session in a stated order, and a session that must wait is
//! seen to wait. Nothing here sleeps: a session that is blocked is asked of the server.

use std::thread;

use fencehold_test_store::TestStore as _;

use crate::cluster::Admin;
use crate::session::{LOOKS_MAX, Session, StatementResult};
use crate::test_store::PostgresTestStore;

pub(crate) const JOB: &str = "019a7afd-1e00-7000-8000-000000000001";
/// Hold ids, and what they are recognised by.
pub(crate) const A: (&str, &str) = ("0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "A");
pub(crate) const B: (&str, &str) = ("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "B");

/// The first value of a step that works.
pub(crate) fn run(session: &Session, sql: &str) -> Option<String> {
    first(session.run(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The first value of an answer; or the SQLSTATE and the words of a refusal.
pub(crate) fn first(said: StatementResult) -> Result<Option<String>, String> {
    let rows = said.map_err(|(code, message)| format!("{code} {message}"))?;
    Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten())
}

/// A schema with one job in the queue `q`, and sessions on it. No handle sweeps it unless a case opens one.
pub(crate) struct JobRaceFixture {
    pub(crate) test_store: PostgresTestStore,
    pub(crate) watch: Admin,
}

impl JobRaceFixture {
    pub(crate) fn new() -> Self {
        let test_store = PostgresTestStore::new();
        let watch = crate::cluster().admin_in(&test_store.database.name);
        let fixture = JobRaceFixture { test_store, watch };
        let schema = fixture.test_store.schema;
        fixture
            .watch
            .run(&format!("SET LOCAL search_path = {schema}; SELECT notice_server()"));
        fixture
            .watch
            .run(&format!("SELECT {schema}.enqueue_job('q', 'work', '{{}}', id => '{JOB}')"));
        fixture
    }

    pub(crate) fn session(&self) -> Session {
        let session = Session::new(&self.test_store);
        run(&session, &format!("SET search_path = {}", self.test_store.schema));
        session
    }

    pub(crate) fn state(&self) -> String {
        let schema = self.test_store.schema;
        self.watch.value(&format!(
            "SELECT line::jsonb->>'state' FROM {schema}.job_look(ARRAY['{JOB}']::uuid[], 'default', true) AS line OFFSET 1"
        ))
    }

    /// What sweeping this claim comes to, by a handle as every process has one.
    pub(crate) fn sweep(&self) {
        let jobs = self.test_store.store();
        fencehold_test_store::block_on(
            jobs.jobs()
                .unwrap()
                .list_queues(&fencehold_contract::CallContext::new(fencehold_core::Namespace::default())),
        )
        .unwrap();
    }

    /// Lets the claim run out, and the time after which the job comes back.
    pub(crate) fn take_over(&self) {
        self.test_store.pass(30_000);
        self.sweep();
        self.until_swept();
        self.test_store.pass(5_000);
    }

    /// Returns when a sweep has noted that the claim is over.
    pub(crate) fn until_swept(&self) {
        for _ in 0..LOOKS_MAX {
            if self.state() != "2" {
                return;
            }
            thread::yield_now();
        }
        panic!("the claim was not swept");
    }
}

fn hash((hold, _): (&str, &str)) -> String {
    format!("encode(substr(sha256(decode('{hold}', 'hex')), 1, 16), 'hex')::uuid")
}

pub(crate) fn claim(who: (&str, &str)) -> String {
    format!(
        "SELECT token FROM job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], 1, {}, '{}', 30000, NULL, NULL, NULL, true)
         WHERE id IS NOT NULL",
        hash(who),
        who.1
    )
}

pub(crate) fn complete(who: (&str, &str), token: u64) -> String {
    format!("SELECT complete_job('{JOB}', '{}', {token}, '{{\"by\": \"{}\"}}')", who.0, who.1)
}

pub(crate) fn renew(who: (&str, &str), token: u64) -> String {
    format!(
        "SELECT remaining_ms FROM job_renew('default', ARRAY['{JOB}']::uuid[], ARRAY[{}], ARRAY[{token}]::bigint[]) WHERE nth > 0",
        hash(who)
    )
}

/// R28: two claim one job at once: the second finds it taken, at once and without waiting; there is one token.
#[test]
fn two_claimers_find_one_job_and_neither_waits() {
    let fixture = JobRaceFixture::new();
    let (a, b) = (fixture.session(), fixture.session());
    run(&a, "BEGIN");
    assert_eq!(run(&a, &claim(A)).as_deref(), Some("1"));
    assert_eq!(run(&b, &claim(B)), None, "it is passed over while the other has it");
    run(&a, "ROLLBACK");
    assert_eq!(run(&b, &claim(B)).as_deref(), Some("2"), "a token that was drawn is never given again");
}

/// R15: the same completion from two sessions at once: the second waits, and gets the same answer.
#[test]
fn the_same_completion_twice_at_once_happens_once() {
    let fixture = JobRaceFixture::new();
    let (a, again) = (fixture.session(), fixture.session());
    run(&a, &claim(A));
    run(&a, "BEGIN");
    run(&a, &complete(A, 1));
    let again = again.run_blocked_by(&a, &complete(A, 1));
    run(&a, "COMMIT");
    assert_eq!(first(again.end().1).map(drop), Ok(()));
    assert_eq!(fixture.state(), "3");
}

/// R06, R09: a holder stalls, its job goes on under another token, also of the same worker; what it says then is stale.
#[test]
fn a_completion_after_takeover_is_stale() {
    for next in [B, ("0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "A")] {
        let fixture = JobRaceFixture::new();
        let (a, b) = (fixture.session(), fixture.session());
        run(&a, &claim(A));
        fixture.take_over();
        assert_eq!(run(&b, &claim(next)).as_deref(), Some("2"));
        let said = first(a.run(&complete(A, 1))).unwrap_err();
        assert!(said.starts_with("FH001 ") && said.ends_with("token 1 is stale; the newest is 2"), "{said}");
        assert_eq!(run(&a, &renew(A, 1)), None, "R08: and nothing is stolen back");
        run(&b, &complete(next, 2));
        assert_eq!(fixture.state(), "3");
    }
}

/// R41: the transaction of a holder is open under its fence for three ttls: its renewals go on, sweeps and claims pass the job
/// over, and it commits.
#[test]
fn a_fenced_transaction_of_three_ttls_commits_while_its_renewals_go_on() {
    let fixture = JobRaceFixture::new();
    let (work, heart, other) = (fixture.session(), fixture.session(), fixture.session());
    run(&work, &claim(A));
    run(&work, "BEGIN");
    run(&work, &format!("SELECT fence_job('{JOB}', 1)"));
    for _ in 0..3 {
        fixture.test_store.pass(20_000);
        assert_eq!(run(&heart, &renew(A, 1)).as_deref(), Some("30000"), "a renewal waits for no fence");
        assert_eq!(run(&other, &claim(B)), None);
    }
    // Even if its renewals had stopped, no call could end it.
    fixture.test_store.pass(30_000);
    fixture.sweep();
    assert_eq!(run(&other, "SELECT count(*) FROM job_run_out(10)").as_deref(), Some("0"));
    assert_eq!(run(&other, &claim(B)), None);
    run(&work, &complete(A, 1));
    run(&work, "COMMIT");
    assert_eq!(fixture.state(), "3");
    let said = first(work.run(&format!("SELECT fence_job('{JOB}', 1)"))).unwrap_err();
    assert!(said.starts_with("FH002 "), "{said}");
}

/// A sweep that has picked a claim, and a renewal: the renewal waits, and finds out; or it came first, and the claim lives (R03).
#[test]
fn a_renewal_and_a_sweep_take_turns() {
    let fixture = JobRaceFixture::new();
    let (heart, sweep) = (fixture.session(), fixture.session());
    run(&heart, &claim(A));
    fixture.test_store.pass(29_999);
    run(&heart, "BEGIN");
    assert_eq!(run(&heart, &renew(A, 1)).as_deref(), Some("30000"));
    fixture.test_store.pass(1);
    assert_eq!(
        run(&sweep, "SELECT count(*) FROM job_run_out(10)").as_deref(),
        Some("0"),
        "locked ones are passed over"
    );
    run(&heart, "COMMIT");
    assert_eq!(
        run(&sweep, "SELECT count(*) FROM job_run_out(10)").as_deref(),
        Some("0"),
        "it was renewed in time"
    );
    fixture.test_store.pass(30_000);
    run(&sweep, "BEGIN");
    assert_eq!(run(&sweep, "SELECT count(*) FROM job_run_out(10)").as_deref(), Some("1"));
    let heart = heart.run_blocked_by(&sweep, &renew(A, 1));
    run(&sweep, "COMMIT");
    assert_eq!(first(heart.end().1), Ok(None), "it had run out");
}

/// Exactly once: the business write and the completion are one transaction, and the worker dies after every one of its steps. In
/// the end there is one business row.
#[test]
fn work_and_completion_in_one_transaction_happen_exactly_once() {
    let fixture = JobRaceFixture::new();
    fixture.watch.run(&format!(
        "CREATE TABLE {0}.sent (job uuid NOT NULL, token bigint NOT NULL)",
        fixture.test_store.schema
    ));
    let mut token = 0;
    for dies_after in 0..4 {
        let holder = (format!("{:032x}", 0xd1e_0000 + dies_after), "A");
        let holder = (holder.0.as_str(), holder.1);
        let worker = fixture.session();
        token += 1;
        assert_eq!(run(&worker, &claim(holder)), Some(token.to_string()));
        let steps = [
            "BEGIN".to_owned(),
            format!("SELECT fence_job('{JOB}', {token})"),
            format!("INSERT INTO sent VALUES ('{JOB}', {token})"),
            complete(holder, token),
        ];
        for step in &steps[..=dies_after] {
            run(&worker, step);
        }
        // Its connection is gone, and with it all that was not committed.
        fixture.watch.end_sessions(&format!("pid = {}", worker.pid));
        assert_eq!(fixture.state(), "2", "it is not completed");
        fixture.take_over();
    }
    let worker = fixture.session();
    token += 1;
    // Dead holders, so many that it is quarantined but for the number that is allowed.
    assert_eq!(run(&worker, &claim(B)), Some(token.to_string()));
    run(&worker, "BEGIN");
    run(&worker, &format!("SELECT fence_job('{JOB}', {token})"));
    run(&worker, &format!("INSERT INTO sent VALUES ('{JOB}', {token})"));
    run(&worker, &complete(B, token));
    run(&worker, "COMMIT");
    // The answer to the commit is lost: asked again, it is done.
    run(&worker, &complete(B, token));
    assert_eq!(run(&worker, "SELECT string_agg(token::text, ',') FROM sent"), Some(token.to_string()));
    assert_eq!(fixture.state(), "3");
}

/// What is rolled back was never enqueued, and what is committed is there once.
#[test]
fn a_rolled_back_transaction_enqueues_nothing() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    let counts = "SELECT count(*) FROM job_body";
    run(&session, "BEGIN");
    run(&session, "SELECT enqueue_job('mail', 'welcome', '{\"to\": \"ada\"}', unique_key => 'ada')");
    assert_eq!(run(&session, counts).as_deref(), Some("2"));
    run(&session, "ROLLBACK");
    assert_eq!(run(&session, counts).as_deref(), Some("1"));
    let made =
        run(&session, "SELECT enqueue_job('mail', 'welcome', '{\"to\": \"ada\"}', unique_key => 'ada')");
    let again =
        run(&session, "SELECT enqueue_job('mail', 'welcome', '{\"to\": \"ada\"}', unique_key => 'ada')");
    assert_eq!((made, run(&session, counts).as_deref()), (again, Some("2")));
    let other =
        first(session.run("SELECT enqueue_job('mail', 'welcome', '{\"to\": \"bob\"}', unique_key => 'ada')"))
            .unwrap_err();
    assert!(other.starts_with("23505 the unique key is taken by job "), "{other}");
}

/// P8: an effect is recorded once, by an attempt that is the newest, in the transaction that has it.
#[test]
fn an_effect_is_recorded_once_and_never_by_a_stale_attempt() {
    let fixture = JobRaceFixture::new();
    let (a, b) = (fixture.session(), fixture.session());
    run(&a, &claim(A));
    let once = |who: (&str, &str), token: u64, value: u64| {
        format!("SELECT record_effect('{JOB}', '{}', {token}, 'charge', '{value}')", who.0)
    };
    run(&a, "BEGIN");
    assert_eq!(run(&a, &once(A, 1, 7)).as_deref(), Some("7"));
    let b = b.run_blocked_by(&a, &once(A, 1, 8));
    run(&a, "COMMIT");
    let (b, said) = b.end();
    assert_eq!(first(said), Ok(Some("7".to_owned())), "the first record stands");
    let wrong = first(b.run(&once(B, 1, 9))).unwrap_err();
    assert!(wrong.starts_with("FH002 "), "{wrong}");
    let ahead = first(b.run(&once(A, 99, 9))).unwrap_err();
    assert!(ahead.starts_with("FH003 "), "{ahead}");
}

/// P8: as the rules have it. One whose claim has run out begins nothing new, even before a sweep notes it; it may read what is recorded.
#[test]
fn an_attempt_whose_claim_has_run_out_begins_no_effect() {
    let fixture = JobRaceFixture::new();
    let a = fixture.session();
    run(&a, &claim(A));
    let once = |effect: &str| format!("SELECT record_effect('{JOB}', '{}', 1, '{effect}', '7')", A.0);
    assert_eq!(run(&a, &once("charge")).as_deref(), Some("7"));
    fixture.test_store.pass(30_000);
    assert_eq!(run(&a, &once("charge")).as_deref(), Some("7"));
    let said = first(a.run(&once("mail"))).unwrap_err();
    assert!(said.starts_with("FH002 ") && said.contains("has run out"), "{said}");
    assert_eq!(run(&a, "SELECT count(*) FROM job_effect").as_deref(), Some("1"));
    // A renewal that the store takes makes it live again: after a step of the clock.
    run(&a, "UPDATE store_state SET suspended_from_ms = now_ms()");
    assert_eq!(run(&a, &once("mail")).as_deref(), Some("7"));
}

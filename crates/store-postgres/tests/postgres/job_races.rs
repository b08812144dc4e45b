//! Races about one job, as interleavings of real sessions: every step of every session in a stated order, and a session that must wait is
//! seen to wait. Nothing here sleeps: a session that is blocked is asked of the server.

use fencehold_test_servers::calls::call;
use fencehold_test_store::{TestStore as _, block_on};

use crate::cluster::Admin;
use crate::session::{Session, until};
use crate::test_store::PostgresTestStore;

pub(crate) const JOB: &str = "019a7afd-1e00-7000-8000-000000000001";
/// Hold ids, and what they are recognised by.
pub(crate) const A: (&str, &str) = ("0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "A");
pub(crate) const B: (&str, &str) = ("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "B");

/// A schema with one job in the queue `q`, and sessions on it. No handle sweeps it unless a case opens one.
pub(crate) struct JobRaceFixture {
    pub(crate) test_store: PostgresTestStore,
    pub(crate) watch: Admin,
}

impl JobRaceFixture {
    pub(crate) fn new() -> Self {
        let test_store = PostgresTestStore::new();
        let watch = crate::cluster().admin_in(&test_store.database.name);
        watch.run(&format!("SET search_path = {}; SELECT notice_server()", test_store.schema));
        watch.run(&format!("SELECT enqueue_job('q', 'work', '{{}}', id => '{JOB}')"));
        JobRaceFixture { test_store, watch }
    }

    pub(crate) fn with_sessions<const N: usize>() -> (Self, [Session; N]) {
        let fixture = Self::new();
        let sessions = [(); N].map(|()| fixture.session());
        (fixture, sessions)
    }

    pub(crate) fn session(&self) -> Session {
        Session::new(&self.test_store)
    }

    pub(crate) fn state(&self) -> String {
        self.watch.value(&format!(
            "SELECT line::jsonb->>'state' FROM job_look(ARRAY['{JOB}']::uuid[], 'default', true) AS line OFFSET 1"
        ))
    }

    /// What sweeping this claim comes to, by a handle as every process has one.
    pub(crate) fn sweep(&self) {
        block_on(self.test_store.store().jobs().unwrap().list_queues(&call())).unwrap();
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
        until("the claim is swept", || self.state() != "2");
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
    let (_fixture, [a, b]) = JobRaceFixture::with_sessions();
    a.value("BEGIN");
    assert_eq!(a.value(&claim(A)), "1");
    assert_eq!(b.value(&claim(B)), "", "it is passed over while the other has it");
    a.value("ROLLBACK");
    assert_eq!(b.value(&claim(B)), "2", "a token that was drawn is never given again");
}

/// R15: the same completion from two sessions at once: the second waits, and gets the same answer.
#[test]
fn the_same_completion_twice_at_once_happens_once() {
    let (fixture, [a, again]) = JobRaceFixture::with_sessions();
    a.value(&claim(A));
    a.value("BEGIN");
    a.value(&complete(A, 1));
    let again = again.run_blocked_by(&a, &complete(A, 1));
    a.value("COMMIT");
    again.value();
    assert_eq!(fixture.state(), "3");
}

/// R06, R09: a holder stalls, its job goes on under another token, also of the same worker; what it says then is stale.
#[test]
fn a_completion_after_takeover_is_stale() {
    for next in [B, ("0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "A")] {
        let (fixture, [a, b]) = JobRaceFixture::with_sessions();
        a.value(&claim(A));
        fixture.take_over();
        assert_eq!(b.value(&claim(next)), "2");
        let (code, said) = a.refusal(&complete(A, 1));
        assert!(code == "FH001" && said.ends_with("token 1 is stale; the newest is 2"), "{code} {said}");
        assert_eq!(a.value(&renew(A, 1)), "", "R08: and nothing is stolen back");
        b.value(&complete(next, 2));
        assert_eq!(fixture.state(), "3");
    }
}

/// R41: the transaction of a holder is open under its fence for three ttls: its renewals go on, sweeps and claims pass the job
/// over, and it commits.
#[test]
fn a_fenced_transaction_of_three_ttls_commits_while_its_renewals_go_on() {
    let (fixture, [work, heart, other]) = JobRaceFixture::with_sessions();
    work.value(&claim(A));
    work.value("BEGIN");
    work.value(&format!("SELECT fence_job('{JOB}', 1)"));
    for _ in 0..3 {
        fixture.test_store.pass(20_000);
        assert_eq!(heart.value(&renew(A, 1)), "30000", "a renewal waits for no fence");
        assert_eq!(other.value(&claim(B)), "");
    }
    // Even if its renewals had stopped, no call could end it.
    fixture.test_store.pass(30_000);
    fixture.sweep();
    assert_eq!(other.value("SELECT count(*) FROM job_run_out(10)"), "0");
    assert_eq!(other.value(&claim(B)), "");
    work.value(&complete(A, 1));
    work.value("COMMIT");
    assert_eq!(fixture.state(), "3");
    assert_eq!(work.refusal(&format!("SELECT fence_job('{JOB}', 1)")).0, "FH002");
}

/// A sweep that has picked a claim, and a renewal: the renewal waits, and finds out; or it came first, and the claim lives (R03).
#[test]
fn a_renewal_and_a_sweep_take_turns() {
    let (fixture, [heart, sweep]) = JobRaceFixture::with_sessions();
    heart.value(&claim(A));
    fixture.test_store.pass(29_999);
    heart.value("BEGIN");
    assert_eq!(heart.value(&renew(A, 1)), "30000");
    fixture.test_store.pass(1);
    assert_eq!(sweep.value("SELECT count(*) FROM job_run_out(10)"), "0", "locked ones are passed over");
    heart.value("COMMIT");
    assert_eq!(sweep.value("SELECT count(*) FROM job_run_out(10)"), "0", "it was renewed in time");
    fixture.test_store.pass(30_000);
    sweep.value("BEGIN");
    assert_eq!(sweep.value("SELECT count(*) FROM job_run_out(10)"), "1");
    let heart = heart.run_blocked_by(&sweep, &renew(A, 1));
    sweep.value("COMMIT");
    assert_eq!(heart.value(), "", "it had run out");
}

/// Exactly once: the business write and the completion are one transaction, and the worker dies after every one of its steps. In
/// the end there is one business row.
#[test]
fn work_and_completion_in_one_transaction_happen_exactly_once() {
    let fixture = JobRaceFixture::new();
    fixture
        .watch
        .run("CREATE TABLE sent (job uuid NOT NULL, token bigint NOT NULL)");
    let steps = |who: (&str, &str), token: u64| {
        let work = format!("INSERT INTO sent VALUES ('{JOB}', {token})");
        ["BEGIN".to_owned(), format!("SELECT fence_job('{JOB}', {token})"), work, complete(who, token)]
    };
    let mut token = 0;
    for dies_after in 0..4 {
        let hold = format!("{:032x}", 0xd1e_0000 + dies_after);
        let worker = fixture.session();
        token += 1;
        assert_eq!(worker.number(&claim((&hold, "A"))), token);
        for step in &steps((&hold, "A"), token)[..=dies_after] {
            worker.value(step);
        }
        // Its connection is gone, and with it all that was not committed.
        fixture.watch.end_sessions(&format!("pid = {}", worker.pid));
        assert_eq!(fixture.state(), "2", "it is not completed");
        fixture.take_over();
    }
    let worker = fixture.session();
    token += 1;
    // Dead holders, so many that it is quarantined but for the number that is allowed.
    assert_eq!(worker.number(&claim(B)), token);
    for step in steps(B, token) {
        worker.value(&step);
    }
    worker.value("COMMIT");
    // The answer to the commit is lost: asked again, it is done.
    worker.value(&complete(B, token));
    assert_eq!(worker.value("SELECT string_agg(token::text, ',') FROM sent"), token.to_string());
    assert_eq!(fixture.state(), "3");
}

/// What is rolled back was never enqueued, and what is committed is there once.
#[test]
fn a_rolled_back_transaction_enqueues_nothing() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    let counts = "SELECT count(*) FROM job_body";
    let enqueue = "SELECT enqueue_job('mail', 'welcome', '{\"to\": \"ada\"}', unique_key => 'ada')";
    session.value("BEGIN");
    session.value(enqueue);
    assert_eq!(session.value(counts), "2");
    session.value("ROLLBACK");
    assert_eq!(session.value(counts), "1");
    let made = session.value(enqueue);
    assert_eq!((session.value(enqueue), session.value(counts)), (made, "2".to_owned()));
    let (code, said) = session.refusal(&enqueue.replace("\"ada\"", "\"bob\""));
    assert!(code == "23505" && said.starts_with("the unique key is taken by job "), "{code} {said}");
}

/// P8: an effect is recorded once, by an attempt that is the newest, in the transaction that has it.
#[test]
fn an_effect_is_recorded_once_and_never_by_a_stale_attempt() {
    let (_fixture, [a, b]) = JobRaceFixture::with_sessions();
    a.value(&claim(A));
    let once = |who: (&str, &str), token: u64, value: u64| {
        format!("SELECT record_effect('{JOB}', '{}', {token}, 'charge', '{value}')", who.0)
    };
    a.value("BEGIN");
    assert_eq!(a.value(&once(A, 1, 7)), "7");
    let b = b.run_blocked_by(&a, &once(A, 1, 8));
    a.value("COMMIT");
    let (b, said) = b.ends_well();
    assert_eq!(said, "7", "the first record stands");
    assert_eq!(b.refusal(&once(B, 1, 9)).0, "FH002");
    assert_eq!(b.refusal(&once(A, 99, 9)).0, "FH003");
}

/// P8: as the rules have it. One whose claim has run out begins nothing new, even before a sweep notes it; it may read what is recorded.
#[test]
fn an_attempt_whose_claim_has_run_out_begins_no_effect() {
    let (fixture, [a]) = JobRaceFixture::with_sessions();
    a.value(&claim(A));
    let once = |effect: &str| format!("SELECT record_effect('{JOB}', '{}', 1, '{effect}', '7')", A.0);
    assert_eq!(a.value(&once("charge")), "7");
    fixture.test_store.pass(30_000);
    assert_eq!(a.value(&once("charge")), "7");
    let (code, said) = a.refusal(&once("mail"));
    assert!(code == "FH002" && said.contains("has run out"), "{code} {said}");
    assert_eq!(a.value("SELECT count(*) FROM job_effect"), "1");
    // A renewal that the store takes makes it live again: after a step of the clock.
    a.value("UPDATE store_state SET suspended_from_ms = now_ms()");
    assert_eq!(a.value(&once("mail")), "7");
}

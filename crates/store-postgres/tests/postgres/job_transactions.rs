//! Races between a user's own transaction and what others ask of a handle: the transaction is open, the handle is seen to wait for
//! it, and then it ends this way or that.

use std::thread;

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ChangeJobsRequest, ClaimJobsRequest, ClaimedJob,
    JobAction, JobSelector, LedgerEntry, LedgerResponse, Report,
};
use fencehold_contract::{CallContext, LeaseStore};
use fencehold_core::job::{EffectName, JobId, JobRefusal, JobState, QueueName, ReportedAttempt};
use fencehold_core::ledger::{EffectState, InDoubtPolicy};
use fencehold_core::limits::FINISHED_KEPT_MS;
use fencehold_core::{HoldId, Namespace, Owner, Reason, Token};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, complete, first, run};
use crate::session::Session;

pub(crate) fn call() -> CallContext {
    CallContext::new(Namespace::default()).with_timeout_ms(60_000)
}

fn hold((bits, _): (&str, &str)) -> HoldId {
    let byte = u8::from_str_radix(&bits[..2], 16).unwrap();
    HoldId::from_random([byte; 16])
}

pub(crate) fn attempt(who: (&str, &str), token: u64) -> AttemptRef {
    AttemptRef { job_id: JOB.parse().unwrap(), hold_id: hold(who), token: Token::new(token) }
}

fn report(
    store: &dyn LeaseStore,
    who: (&str, &str),
    token: u64,
    word: Report,
) -> Result<ReportedAttempt, JobRefusal> {
    let report = AttemptReport { attempt: attempt(who, token), report: word };
    block_on(store.jobs().unwrap().report(&call(), vec![report])).unwrap().remove(0)
}

fn failed() -> Report {
    Report::Fail { error: "no answer".to_owned(), retry_in_ms: None, permanent: false }
}

pub(crate) fn cancel(store: &dyn LeaseStore, now: bool) -> Result<JobState, JobRefusal> {
    let id: JobId = JOB.parse().unwrap();
    let request = ChangeJobsRequest::new(
        JobSelector::Ids { job_ids: vec![id] },
        JobAction::Cancel { reason: Some(Reason::new("the customer left").unwrap()), force: now },
        Owner::new("P").unwrap(),
    );
    block_on(store.jobs().unwrap().change_jobs(&call(), request))
        .unwrap()
        .results
        .remove(0)
        .result
}

/// The response to a handle that asks while `work` has its transaction open, and is seen to wait for it.
pub(crate) fn meanwhile<T: Send>(work: &Session, ask: impl FnOnce() -> T + Send, end: impl FnOnce()) -> T {
    thread::scope(|scope| {
        let asking = scope.spawn(ask);
        work.wait_until_in_the_way();
        end();
        asking.join().unwrap()
    })
}

/// A claim under way whose holder has completed it in a transaction that is not committed yet.
fn completing(fixture: &JobRaceFixture) -> Session {
    let work = fixture.session();
    run(&work, &claim(A));
    run(&work, "BEGIN");
    run(&work, &complete(A, 1));
    work
}

/// How many claims a sweep picks that have run out.
fn picked(sweep: &Session) -> String {
    run(sweep, "SELECT count(*) FROM job_run_out(256)").unwrap()
}

/// What a sweep does about jobs that have finished long ago.
fn forget(sweep: &Session) {
    run(sweep, &format!("SELECT job_tidy({FINISHED_KEPT_MS}, 256)"));
}

/// R07: the claim has run out and a sweep has it in hand, but has not decided: the completion waits, and is accepted as late.
#[test]
fn r07_a_completion_that_waits_for_a_sweep_which_decides_nothing_is_accepted() {
    let fixture = JobRaceFixture::new();
    let (work, sweep) = (fixture.session(), fixture.session());
    run(&work, &claim(A));
    fixture.test_store.pass(30_000);
    run(&sweep, "BEGIN");
    assert_eq!(picked(&sweep), "1");
    let completing = work.run_blocked_by(&sweep, &complete(A, 1));
    run(&sweep, "ROLLBACK");
    first(completing.end().1).unwrap();
    assert_eq!(fixture.state(), "3");
}

/// R16: the completion is not answered yet, and the client reports a failure: it waits, and the first end stands.
#[test]
fn r16_a_failure_waits_for_the_completion_and_changes_nothing() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let work = completing(&fixture);
    let told = meanwhile(&work, || report(&*store, A, 1, failed()), || drop(run(&work, "COMMIT")));
    assert_eq!(told, Err(JobRefusal::Finished { state: JobState::Completed }));
    assert_eq!(fixture.state(), "3");
}

/// R16: the same, and the completion never happened: then the failure is what happened.
#[test]
fn r16_a_failure_after_a_completion_that_was_rolled_back_counts() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let work = completing(&fixture);
    let told = meanwhile(&work, || report(&*store, A, 1, failed()), || drop(run(&work, "ROLLBACK")));
    assert_eq!(told.map(|reported| reported.state), Ok(JobState::Scheduled));
    let said = first(work.run(&complete(A, 1))).unwrap_err();
    assert!(said.starts_with("FH002 "), "{said}");
}

/// R33: an operator cancels the job while it is being completed: one end, and both learn which.
#[test]
fn r33_who_cancels_waits_for_the_completion_and_is_told_of_it() {
    for now in [false, true] {
        let fixture = JobRaceFixture::new();
        let store = fixture.test_store.store();
        let work = completing(&fixture);
        let told = meanwhile(&work, || cancel(&*store, now), || drop(run(&work, "COMMIT")));
        assert_eq!(told, Err(JobRefusal::Finished { state: JobState::Completed }));
        assert_eq!(fixture.state(), "3");
    }
}

/// R33: the same, and the transaction is rolled back: the job is cancelled, and its holder learns it.
#[test]
fn r33_a_cancellation_goes_on_when_the_completion_was_rolled_back() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let work = completing(&fixture);
    let told = meanwhile(&work, || cancel(&*store, true), || drop(run(&work, "ROLLBACK")));
    assert_eq!(told, Ok(JobState::Cancelled));
    let said = first(work.run(&complete(A, 1))).unwrap_err();
    assert!(said.starts_with("FH001 "), "{said}");
    assert_eq!(fixture.state(), "5");
}

/// R33: a sweep finds the claim run out while its holder completes it: it passes it over, and the completion stands as a late one.
#[test]
fn r33_a_sweep_leaves_a_job_that_is_being_completed() {
    let fixture = JobRaceFixture::new();
    let work = completing(&fixture);
    fixture.test_store.pass(30_000);
    let sweep = fixture.session();
    assert_eq!(picked(&sweep), "0", "passed over");
    run(&work, "COMMIT");
    assert_eq!(picked(&sweep), "0", "it has come to its end");
    assert_eq!(fixture.state(), "3");
}

/// R33: a finished job is forgotten by a sweep while a session has it under a fence: it is gone only afterwards.
#[test]
fn r33_a_job_that_somebody_has_under_a_fence_is_not_forgotten() {
    let fixture = JobRaceFixture::new();
    let (work, user) = (fixture.session(), fixture.session());
    run(&work, &claim(A));
    run(&work, &complete(A, 1));
    run(&user, "BEGIN");
    // What `complete` locks when it is said again.
    run(&user, &complete(A, 1));
    fixture.test_store.pass(FINISHED_KEPT_MS);
    forget(&work);
    assert_eq!(fixture.state(), "3", "passed over");
    run(&user, "COMMIT");
    forget(&work);
    assert_eq!(run(&user, "SELECT count(*) FROM job_body").as_deref(), Some("0"), "forgotten");
}

/// R17: an effect and its record are one transaction, and the session dies before it commits: neither is there, and the next
/// attempt has both, once.
#[test]
fn r17_an_effect_in_the_transaction_of_its_record_dies_with_it() {
    let fixture = JobRaceFixture::new();
    let first_holder = fixture.session();
    run(&first_holder, "CREATE TABLE charged (token bigint)");
    run(&first_holder, &claim(A));
    let charge = |session: &Session, who: (&str, &str), token: u64| {
        run(session, "BEGIN");
        run(session, &format!("INSERT INTO charged VALUES ({token})"));
        run(session, &format!("SELECT record_effect('{JOB}', '{}', {token}, 'charge', '{token}')", who.0))
    };
    assert_eq!(charge(&first_holder, A, 1).as_deref(), Some("1"));
    fixture.watch.end_sessions(&format!("pid = {}", first_holder.pid));
    fixture.take_over();
    let second = fixture.session();
    assert_eq!(run(&second, &claim(B)).as_deref(), Some("2"));
    assert_eq!(charge(&second, B, 2).as_deref(), Some("2"), "nothing was recorded before");
    run(&second, "COMMIT");
    assert_eq!(run(&second, "SELECT string_agg(token::text, ',') FROM charged").as_deref(), Some("2"));
    // Said again after its answer was lost: the first record stands.
    assert_eq!(
        run(&second, &format!("SELECT record_effect('{JOB}', '{}', 2, 'charge', '9')", B.0)).as_deref(),
        Some("2")
    );
}

/// R17: the effect is elsewhere; its intent was recorded, and the holder is gone before it could say what came of it. The next
/// attempt runs it again under the same name, or the job stops for a person: as the intent says.
#[test]
fn r17_killed_between_effect_and_record_the_intent_says_what_happens() {
    for (policy, answer, state) in [
        (InDoubtPolicy::Retry, LedgerResponse::Proceed {}, "2"),
        (InDoubtPolicy::Manual, LedgerResponse::InDoubt {}, "7"),
    ] {
        let fixture = JobRaceFixture::new();
        let store = fixture.test_store.store();
        let announce = |who, token| {
            let act =
                LedgerEntry::Begin { effect: EffectName::new("charge").unwrap(), in_doubt_policy: policy };
            let entry = AttemptLedgerEntry { attempt: attempt(who, token), entry: act };
            block_on(store.jobs().unwrap().write_effects(&call(), vec![entry]))
                .unwrap()
                .remove(0)
        };
        claim_by_handle(&*store, A);
        assert_eq!(announce(A, 1), Ok(LedgerResponse::Proceed {}));
        // All of its connections end at once, and it never comes back.
        fixture
            .watch
            .end_sessions("application_name = 'fencehold' AND datname = current_database()");
        fixture.take_over();
        let claimed = claim_by_handle(&*store, B);
        assert_eq!(claimed.effects[0].state, EffectState::Intended(policy));
        // In a transaction of its own it gets the same response.
        let user = fixture.session();
        run(&user, "BEGIN");
        let said = first(user.run(&format!("SELECT record_effect('{JOB}', '{}', 2, 'charge', '9')", B.0)));
        match policy {
            InDoubtPolicy::Retry => assert_eq!(said, Ok(Some("9".to_owned()))),
            _ => assert!(said.as_ref().unwrap_err().starts_with("FH005 "), "{said:?}"),
        }
        run(&user, "ROLLBACK");
        assert_eq!(announce(B, 2), Ok(answer));
        assert_eq!(fixture.state(), state);
    }
}

pub(crate) fn request(who: (&str, &str)) -> ClaimJobsRequest {
    ClaimJobsRequest {
        queues: vec![(QueueName::new("q").unwrap(), 1)],
        limit: 1,
        hold_id: hold(who),
        owner: Owner::new(who.1).unwrap(),
        ttl_ms: 30_000,
        wait_ms: 0,
        waited_before_ms: 0,
    }
}

fn claim_by_handle(store: &dyn LeaseStore, who: (&str, &str)) -> ClaimedJob {
    block_on(store.jobs().unwrap().claim(&call(), request(who)))
        .unwrap()
        .jobs
        .remove(0)
}

/// A decision that stalls between its steps, with a job locked, is ended by the server; and every decision of a handle, also that of a
/// sweep, is under that bound.
#[test]
fn whoever_stalls_while_it_decides_about_a_job_is_in_nobodys_way_for_long() {
    let fixture = JobRaceFixture::new();
    let (stalls, work) = (fixture.session(), fixture.session());
    run(&work, &claim(A));
    run(&stalls, "BEGIN; SET LOCAL fencehold.job_lock_idle_timeout_ms = 200; SELECT job_idle_limit()");
    run(
        &stalls,
        &format!(
            "SELECT count(*) FROM job_load(ARRAY['{JOB}']::uuid[], 'default', NULL, NULL, false, false, 1000)"
        ),
    );
    run(&work, &complete(A, 1));
    assert_eq!(fixture.state(), "3");

    let limits = |fixture: &JobRaceFixture| {
        let schema = fixture.test_store.schema;
        fixture.watch.run(&format!(
            "CREATE TABLE {schema}.seen (idle_limit text);
             CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 INSERT INTO {schema}.seen VALUES (current_setting('idle_in_transaction_session_timeout'));
                 RETURN NEW;
             END $$;
             CREATE TRIGGER see BEFORE INSERT OR UPDATE ON {schema}.job_past FOR EACH ROW EXECUTE FUNCTION {schema}.see();"
        ));
    };
    let seen = |fixture: &JobRaceFixture| {
        let schema = fixture.test_store.schema;
        fixture
            .watch
            .value(&format!("SELECT string_agg(DISTINCT idle_limit, ',') FROM {schema}.seen"))
    };
    let fixture = JobRaceFixture::new();
    limits(&fixture);
    run(&fixture.session(), &claim(A));
    report(&*fixture.test_store.store(), A, 1, failed()).unwrap();
    assert_eq!(seen(&fixture), "5s", "a failure that is reported");
    let fixture = JobRaceFixture::new();
    limits(&fixture);
    run(&fixture.session(), &claim(A));
    fixture.take_over();
    assert_eq!(seen(&fixture), "5s", "a claim that has run out");
}

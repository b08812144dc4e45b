//! Races between a user's own transaction and what others ask of a handle: the transaction is open, the handle is seen to wait for
//! it, and then it ends this way or that.

use std::thread;

use fencehold_contract::LeaseStore;
use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, ChangeJobsRequest, ClaimJobsRequest, ClaimedJob, JobAction, JobSelector,
    LedgerEntry, LedgerResponse, Report,
};
use fencehold_core::job::{EffectName, JobRefusal, JobState};
use fencehold_core::ledger::{EffectState, InDoubtPolicy};
use fencehold_core::limits::FINISHED_KEPT_MS;
use fencehold_core::{Reason, Token};
use fencehold_test_servers::calls::{OneByOne as _, call, claim_request, hold_id, owner};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, complete};
use crate::session::Session;

fn byte((bits, _): (&str, &str)) -> u8 {
    u8::from_str_radix(&bits[..2], 16).unwrap()
}

pub(crate) fn attempt(who: (&str, &str), token: u64) -> AttemptRef {
    AttemptRef { job_id: JOB.parse().unwrap(), hold_id: hold_id(byte(who)), token: Token::new(token) }
}

fn failed() -> Report {
    Report::Fail { error: "no answer".to_owned(), retry_in_ms: None, permanent: false }
}

pub(crate) fn cancelling(force: bool) -> ChangeJobsRequest {
    let reason = Some(Reason::new("the customer left").unwrap());
    let job = JobSelector::Ids { job_ids: vec![JOB.parse().unwrap()] };
    ChangeJobsRequest::new(job, JobAction::Cancel { reason, force }, owner("P"))
}

pub(crate) fn cancel(store: &dyn LeaseStore, force: bool) -> Result<JobState, JobRefusal> {
    let changed = block_on(store.jobs().unwrap().change_jobs(&call(), cancelling(force)));
    changed.unwrap().results.remove(0).result
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
fn completing() -> (JobRaceFixture, Session) {
    let (fixture, [work]) = JobRaceFixture::with_sessions();
    work.value(&claim(A));
    work.value("BEGIN");
    work.value(&complete(A, 1));
    (fixture, work)
}

/// How many claims a sweep picks that have run out.
fn picked(sweep: &Session) -> String {
    sweep.value("SELECT count(*) FROM job_run_out(256)")
}

/// What a sweep does about jobs that have finished long ago.
fn forget(sweep: &Session) {
    sweep.value(&format!("SELECT job_tidy({FINISHED_KEPT_MS}, 256)"));
}

/// R07: the claim has run out and a sweep has it in hand, but has not decided: the completion waits, and is accepted as late.
#[test]
fn r07_a_completion_that_waits_for_a_sweep_which_decides_nothing_is_accepted() {
    let (fixture, [work, sweep]) = JobRaceFixture::with_sessions();
    work.value(&claim(A));
    fixture.test_store.pass(30_000);
    sweep.value("BEGIN");
    assert_eq!(picked(&sweep), "1");
    let completing = work.run_blocked_by(&sweep, &complete(A, 1));
    sweep.value("ROLLBACK");
    completing.value();
    assert_eq!(fixture.state(), "3");
}

/// R16: the completion is not answered yet, and the client reports a failure: it waits, and the first end stands.
#[test]
fn r16_a_failure_waits_for_the_completion_and_changes_nothing() {
    let (fixture, work) = completing();
    let store = fixture.test_store.store();
    let told = meanwhile(&work, || store.report_one(&attempt(A, 1), failed()), || drop(work.value("COMMIT")));
    assert_eq!(told, Err(JobRefusal::Finished { state: JobState::Completed }));
    assert_eq!(fixture.state(), "3");
}

/// R16: the same, and the completion never happened: then the failure is what happened.
#[test]
fn r16_a_failure_after_a_completion_that_was_rolled_back_counts() {
    let (fixture, work) = completing();
    let store = fixture.test_store.store();
    let told =
        meanwhile(&work, || store.report_one(&attempt(A, 1), failed()), || drop(work.value("ROLLBACK")));
    assert_eq!(told.map(|reported| reported.state), Ok(JobState::Scheduled));
    assert_eq!(work.refusal(&complete(A, 1)).0, "FH002");
}

/// R33: an operator cancels the job while it is being completed: one end, and both learn which.
#[test]
fn r33_who_cancels_waits_for_the_completion_and_is_told_of_it() {
    for now in [false, true] {
        let (fixture, work) = completing();
        let store = fixture.test_store.store();
        let told = meanwhile(&work, || cancel(&*store, now), || drop(work.value("COMMIT")));
        assert_eq!(told, Err(JobRefusal::Finished { state: JobState::Completed }));
        assert_eq!(fixture.state(), "3");
    }
}

/// R33: the same, and the transaction is rolled back: the job is cancelled, and its holder learns it.
#[test]
fn r33_a_cancellation_goes_on_when_the_completion_was_rolled_back() {
    let (fixture, work) = completing();
    let store = fixture.test_store.store();
    let told = meanwhile(&work, || cancel(&*store, true), || drop(work.value("ROLLBACK")));
    assert_eq!(told, Ok(JobState::Cancelled));
    assert_eq!(work.refusal(&complete(A, 1)).0, "FH001");
    assert_eq!(fixture.state(), "5");
}

/// R33: a sweep finds the claim run out while its holder completes it: it passes it over, and the completion stands as a late one.
#[test]
fn r33_a_sweep_leaves_a_job_that_is_being_completed() {
    let (fixture, work) = completing();
    fixture.test_store.pass(30_000);
    let sweep = fixture.session();
    assert_eq!(picked(&sweep), "0", "passed over");
    work.value("COMMIT");
    assert_eq!(picked(&sweep), "0", "it has come to its end");
    assert_eq!(fixture.state(), "3");
}

/// R33: a finished job is forgotten by a sweep while a session has it under a fence: it is gone only afterwards.
#[test]
fn r33_a_job_that_somebody_has_under_a_fence_is_not_forgotten() {
    let (fixture, [work, user]) = JobRaceFixture::with_sessions();
    work.value(&claim(A));
    work.value(&complete(A, 1));
    user.value("BEGIN");
    // What `complete` locks when it is said again.
    user.value(&complete(A, 1));
    fixture.test_store.pass(FINISHED_KEPT_MS);
    forget(&work);
    assert_eq!(fixture.state(), "3", "passed over");
    user.value("COMMIT");
    forget(&work);
    assert_eq!(user.value("SELECT count(*) FROM job_body"), "0", "forgotten");
}

/// R17: an effect and its record are one transaction, and the session dies before it commits: neither is there, and the next
/// attempt has both, once.
#[test]
fn r17_an_effect_in_the_transaction_of_its_record_dies_with_it() {
    let (fixture, [first_holder]) = JobRaceFixture::with_sessions();
    first_holder.value("CREATE TABLE charged (token bigint)");
    first_holder.value(&claim(A));
    let charge = |session: &Session, who: (&str, &str), token: u64| {
        session.value("BEGIN");
        session.value(&format!("INSERT INTO charged VALUES ({token})"));
        session.value(&format!("SELECT record_effect('{JOB}', '{}', {token}, 'charge', '{token}')", who.0))
    };
    assert_eq!(charge(&first_holder, A, 1), "1");
    fixture.watch.end_sessions(&format!("pid = {}", first_holder.pid));
    fixture.take_over();
    let second = fixture.session();
    assert_eq!(second.value(&claim(B)), "2");
    assert_eq!(charge(&second, B, 2), "2", "nothing was recorded before");
    second.value("COMMIT");
    assert_eq!(second.value("SELECT string_agg(token::text, ',') FROM charged"), "2");
    // Said again after its answer was lost: the first record stands.
    assert_eq!(second.value(&format!("SELECT record_effect('{JOB}', '{}', 2, 'charge', '9')", B.0)), "2");
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
        user.value("BEGIN");
        let record = format!("SELECT record_effect('{JOB}', '{}', 2, 'charge', '9')", B.0);
        match policy {
            InDoubtPolicy::Retry => assert_eq!(user.value(&record), "9"),
            _ => assert_eq!(user.refusal(&record).0, "FH005"),
        }
        user.value("ROLLBACK");
        assert_eq!(announce(B, 2), Ok(answer));
        assert_eq!(fixture.state(), state);
    }
}

pub(crate) fn request(who: (&str, &str)) -> ClaimJobsRequest {
    claim_request("q", byte(who), who.1)
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
    let (fixture, [stalls, work]) = JobRaceFixture::with_sessions();
    work.value(&claim(A));
    stalls.value("BEGIN; SET LOCAL fencehold.job_lock_idle_timeout_ms = 200; SELECT job_idle_limit()");
    stalls.value(&format!(
        "SELECT count(*) FROM job_load(ARRAY['{JOB}']::uuid[], 'default', NULL, NULL, false, false, 1000)"
    ));
    work.value(&complete(A, 1));
    assert_eq!(fixture.state(), "3");

    let limited = |what: &str, end: &dyn Fn(&JobRaceFixture)| {
        let (fixture, [work]) = JobRaceFixture::with_sessions();
        work.value(
            "CREATE TABLE seen (idle_limit text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
             BEGIN
                 INSERT INTO seen VALUES (current_setting('idle_in_transaction_session_timeout'));
                 RETURN NEW;
             END $$;
             CREATE TRIGGER see BEFORE INSERT OR UPDATE ON job_past FOR EACH ROW EXECUTE FUNCTION see();",
        );
        work.value(&claim(A));
        end(&fixture);
        assert_eq!(work.value("SELECT string_agg(DISTINCT idle_limit, ',') FROM seen"), "5s", "{what}");
    };
    limited("a failure that is reported", &|fixture| {
        fixture.test_store.store().report_one(&attempt(A, 1), failed()).unwrap();
    });
    limited("a claim that has run out", &JobRaceFixture::take_over);
}
